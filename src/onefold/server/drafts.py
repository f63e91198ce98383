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
from onefold.compaction.resummary import SummaryDraft
from onefold.compaction.run import whoami
from onefold.compaction.summarizers import extract
from onefold.errors import Moved, OnefoldError, StoreUnavailable
from onefold.ids import random_id
from onefold.server.acting import Asking
from onefold.server.asking import DraftBody, SessionParam, TakeBody
from onefold.server.errors import DECLARED
from onefold.server.reading import AtDesk, json
from onefold.server.shapes import DraftJson, UnfoldedJson
from onefold.server.shaping import segment_json, spent_json
from onefold.server.snapshot import Desk
from onefold.server.tokens import Who

_AT_ONCE = 2
"""Drafts that are written at the same time; more are refused."""
_MOST = 64
_LIFE = 3600.0
"""How many are kept, and for how many seconds."""

router = APIRouter(responses=DECLARED)


class Drafts:
    """Those of one server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, SummaryDraft]] = OrderedDict()
        self._writing = threading.Semaphore(_AT_ONCE)

    async def make(self, session: str, head: int, instructions: str | None, who: str) -> tuple[str, SummaryDraft]:
        if self._closing.is_set():
            raise StoreUnavailable("the server is about to end, and begins nothing new; ask the next one")
        if not self._writing.acquire(blocking=False):
            raise StoreUnavailable(f"{_AT_ONCE} drafts are being written here already; ask again when one is there")
        made: Future[tuple[str, SummaryDraft]] = Future()
        work = partial(self._work, made, partial(self._make, session, head, instructions, who))
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

    def _make(self, session: str, head: int, instructions: str | None, who: str) -> tuple[str, SummaryDraft]:
        desk = self._desk
        opened = desk.store.session(session, create=False)
        if opened.head != head:
            raise Moved(f"session {opened.id!r} is at segment {opened.head}, not {head}: look at it again")
        made = resummary.draft(
            desk.store.journal, opened.id, desk.settings.summarizer or extract, desk.policy, instructions=instructions,
            actor=who, stopped=self._closing.is_set,
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
async def draft(who: Asking, request: Request, session: SessionParam, body: DraftBody) -> Response:
    """Has the summary in force written once more, of the same messages, and answers when it is there. Nothing changes
    but that the journal says what it cost. It can be taken for an hour, as long as the session is not compacted."""
    drafts: Drafts = request.app.state.drafts
    id, made = await drafts.make(session, body.head, body.instructions, who.name)
    return json(_draft_json(id, made, who))


@router.post("/api/drafts/take", response_model=UnfoldedJson, operation_id="take_draft")
def take(desk: AtDesk, who: Asking, request: Request, session: SessionParam, body: TakeBody) -> Response:
    """Puts a draft in the place of the summary in force. Refused, with nothing written, if the session moved on."""
    drafts: Drafts = request.app.state.drafts
    found = drafts.find(desk.store.session(session, create=False).id, body.draft)
    after = resummary.take(desk.store.journal, found, whoami(who.name), actor=who.name)
    return json({"segment": segment_json(after), "limit": None, "dry_run": False})


def _draft_json(id: str, made: SummaryDraft, who: Who) -> DraftJson:
    """A draft. Its words are for those who may read the conversation."""
    before, now = made.tokens
    reads = who.may("read")
    return {
        "draft": id, "session": made.session, "head": made.head, "text": made.text if reads else None,
        "present": made.present if reads else None, "by": made.summary.by, "gains": list(made.gains) if reads else [],
        "loses": list(made.loses) if reads else [], "tokens_before": before, "tokens_after": now,
        "spent": spent_json(made.spent),
    }  # fmt: skip
