"""Summaries that were written once more, and wait for somebody to take them or not. They are kept here for a while, and
nowhere else: the journal has what they cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from fastapi import APIRouter, Request, Response

from onefold.compaction import resummary
from onefold.compaction.holder import this_process
from onefold.compaction.resummary import SummaryDraft
from onefold.errors import OnefoldError, StaleHandle, StoreUnavailable
from onefold.ids import random_id
from onefold.server.error_responses import DECLARED
from onefold.server.request_models import DraftBody, SessionParam, TakeBody
from onefold.server.response_models import DraftJson, UnfoldedJson
from onefold.server.routes.read import AppStateDep, json
from onefold.server.routes.write import Caller
from onefold.server.security.tokens import Principal
from onefold.server.serializers import segment_json, spent_json
from onefold.server.snapshot import AppState

_AT_ONCE = 2
"""Drafts that are written at the same time; more are rejected."""
_MOST = 64
_LIFE = 3600.0
"""How many are kept, and for how many seconds."""

router = APIRouter(responses=DECLARED)


class Drafts:
    """Those of one server."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, SummaryDraft]] = OrderedDict()
        self._writing = threading.Semaphore(_AT_ONCE)

    async def make(self, session: str, asked: DraftBody, who: str) -> tuple[str, SummaryDraft]:
        if self._closing.is_set():
            raise StoreUnavailable("the server is about to end, and begins nothing new; ask the next one")
        if not self._writing.acquire(blocking=False):
            raise StoreUnavailable(f"{_AT_ONCE} drafts are being written here already; ask again when one is there")
        made: Future[tuple[str, SummaryDraft]] = Future()
        work = partial(self._work, made, partial(self._make, session, asked, who))
        threading.Thread(
            target=work, name="onefold-server-draft", daemon=True
        ).start()  # nobody waits for it at the end
        return await asyncio.wrap_future(made)

    def _work(self, made: Future[tuple[str, SummaryDraft]], make: Callable[[], tuple[str, SummaryDraft]]) -> None:
        made.set_running_or_notify_cancel()
        try:
            made.set_result(make())
        except BaseException as error:  # of the summarizer, whatever it is: whoever asked is told
            made.set_exception(error)
        finally:
            self._writing.release()

    def _make(self, session: str, asked: DraftBody, who: str) -> tuple[str, SummaryDraft]:
        app_state = self._app_state
        opened = app_state.store.session(session, create=False)
        if opened.head != asked.head:
            raise StaleHandle(f"session {opened.id!r} is at segment {opened.head}, not {asked.head}: look at it again")
        made = resummary.draft(
            app_state.store.journal, opened.id, app_state.summarizer(asked.summarizer), app_state.policy,
            instructions=asked.instructions, actor=who, stopped=self._closing.is_set,
        )  # fmt: skip
        id = random_id()
        with self._lock:
            self._kept[id] = (time.monotonic(), made)
            self._drop()
        return id, made

    def find(self, session: str, id: str) -> SummaryDraft:
        with self._lock:
            self._drop()
            _, made = self._kept.get(id, (0.0, None))
        if made is None or made.session != session:
            raise OnefoldError(f"session {session!r}: there is no such draft here any more; make another one")
        return made

    def _drop(self) -> None:
        """Those that are too old or too many. Under the lock."""
        now = time.monotonic()
        while self._kept and (len(self._kept) > _MOST or next(iter(self._kept.values()))[0] < now - _LIFE):
            self._kept.popitem(last=False)

    def close(self) -> None:
        """Tells what is being written that nobody wants it any more."""
        self._closing.set()


@router.post("/api/drafts", response_model=DraftJson, operation_id="draft_summary")
async def draft(who: Caller, request: Request, session: SessionParam, body: DraftBody) -> Response:
    """Has the summary in force written once more, of the same messages, and answers when it is there. Nothing changes
    but that the journal says what it cost. It can be taken for an hour, as long as the session is not compacted."""
    drafts: Drafts = request.app.state.drafts
    id, made = await drafts.make(session, body, who.name)
    return json(_draft_json(id, made, who))


@router.post("/api/drafts/take", response_model=UnfoldedJson, operation_id="take_draft")
def take(app_state: AppStateDep, who: Caller, request: Request, session: SessionParam, body: TakeBody) -> Response:
    """Replaces the summary in force by a draft. Rejected, with nothing written, if the session moved on."""
    drafts: Drafts = request.app.state.drafts
    found = drafts.find(app_state.store.session(session, create=False).id, body.draft)
    after = resummary.take(app_state.store.journal, found, this_process(who.name), actor=who.name)
    return json({"segment": segment_json(after), "limit": None, "dry_run": False})


def _draft_json(id: str, made: SummaryDraft, who: Principal) -> DraftJson:
    """A draft. Its words are for those who may read the conversation."""
    before, now = made.tokens
    reads = who.may("read")
    return {
        "draft": id, "session": made.session, "head": made.head, "text": made.text if reads else None,
        "present": made.present if reads else None, "by": made.summary.by, "gains": list(made.gains) if reads else [],
        "loses": list(made.loses) if reads else [], "tokens_before": before, "tokens_after": now,
        "spent": spent_json(made.spent),
    }  # fmt: skip
