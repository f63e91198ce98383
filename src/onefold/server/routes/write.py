"""The routes that change something. Each records who asked; the library decides what is allowed."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Protocol, TypeAlias

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from onefold.acp.members import known_as
from onefold.acp.room_errors import FORBIDDEN, RequestRejected
from onefold.compaction.attempt import AttemptRegistry
from onefold.compaction.job import CompactionJob
from onefold.dry_run import dry_run_of
from onefold.errors import InvalidMessage, OnefoldError, StoreUnavailable
from onefold.journal import masks
from onefold.journal import undo as journal_undo
from onefold.journal import unfold as journal_unfold
from onefold.journal.journal import Journal, segment
from onefold.journal.reader import WaitFor
from onefold.journal.view_diff import changed_between
from onefold.model import MANUAL, OPEN, CompactResult, Json, Segment
from onefold.server.error_responses import DECLARED
from onefold.server.request_models import (
    AppendBody,
    CompactBody,
    ForkBody,
    MaskBody,
    NoteBody,
    PinBody,
    RedoBody,
    SessionParam,
    UndoBody,
    UnfoldBody,
    VerifyBody,
)
from onefold.server.response_models import (
    AppendedJson,
    CancelledJson,
    CompactedJson,
    CompactionJson,
    ForkedJson,
    NotedJson,
    PinnedJson,
    ReportJson,
    UnfoldedJson,
    WentBackJson,
)
from onefold.server.routes.read import AppStateDep, json, verified
from onefold.server.security.tokens import Principal
from onefold.server.serializers import compacted_json, compaction_json, record_json, report_json, segment_json
from onefold.server.snapshot import AppState, known
from onefold.storage.base import Transaction

log = logging.getLogger("onefold.server")

_AT_ONCE = 8
"""Compactions that one server sees through at the same time; others wait for their turn."""
_LOOK = 0.5
"""Seconds after which one that is seen through looks whether the server ends."""

router = APIRouter(responses=DECLARED)


async def _asking(request: Request) -> Principal:
    """Who asks, and what for, as the guard found it; without a guard, who runs the server."""
    who: Principal | None = getattr(request.state, "who", None)
    return who if who is not None else Principal(request.app.state.app_state.settings.agent, frozenset(("admin",)))


Caller: TypeAlias = Annotated[Principal, Depends(_asking)]


def _actor(who: Principal, given: str | None) -> str:
    """Who is written down to have done something: what the client says, and whose token it came with."""
    return known_as(given, who.name, most=400)


# ---------------------------------------------------------------------- messages, notes, pins


@router.post("/api/append", response_model=AppendedJson, operation_id="append")
def append(app_state: AppStateDep, who: Caller, session: SessionParam, body: AppendBody) -> Response:
    """Adds one message or a list of them, all or none. They are on disk when this answers."""
    opened = app_state.store.session(session, create=False)
    if body.queue:
        if isinstance(body.messages, list):
            raise InvalidMessage(f"session {opened.id!r}: one input is queued at a time, not a list")
        if body.slot is not None:
            raise InvalidMessage(f"session {opened.id!r}: an input that waits cannot be a system prompt; append it")
        _check_input(who, body.messages)
        done = opened.queue_draft(body.messages, body.format, body.key, _actor(who, body.actor))
    else:
        by = _actor(who, body.actor)
        done = opened.append(body.messages, key=body.key, format=body.format, actor=by, slot=body.slot)
    return json({"numbers": list(done.numbers), "duplicate": done.duplicate, "hidden": list(done.hidden)})


def _check_input(who: Principal, message: Json) -> None:
    """An input is for an agent to act on, and so may be a command of it: this takes more than to write."""
    if not who.may("agents"):
        raise RequestRejected(
            f"token {who.name!r} lacks the scope 'agents': a queued input has an agent do something", FORBIDDEN
        )
    if not who.may("compact") and any(text.lstrip().startswith("/") for text in _texts(message)):
        raise RequestRejected(
            f"token {who.name!r} lacks the scope 'compact', and this input may be a command to compact: it has a text "
            "that begins with a slash. `/api/prompt` takes commands that are none",
            FORBIDDEN,
        )


def _texts(value: Json) -> Iterator[str]:
    """Every text in a message, of whatever format."""
    match value:
        case str():
            yield value
        case dict() | list():
            for one in value.values() if isinstance(value, dict) else value:
                yield from _texts(one)


@router.post("/api/note", response_model=NotedJson, operation_id="note")
def note(app_state: AppStateDep, who: Caller, session: SessionParam, body: NoteBody) -> Response:
    """Writes a fact down that stands in every context. An empty text takes the one with this kind and key away."""
    opened = app_state.store.session(session, create=False)
    number = opened.note(body.kind, body.text, body.key, actor=_actor(who, body.actor), source=body.source)
    return json({"number": number})


@router.post("/api/pin", response_model=PinnedJson, operation_id="pin")
def pin(app_state: AppStateDep, who: Caller, session: SessionParam, body: PinBody) -> Response:
    """Keeps a message in every context, with the call or the results that belong to it."""
    opened = app_state.store.session(session, create=False)
    return json({"numbers": list(opened.pin(body.number, actor=_actor(who, body.actor)))})


@router.post("/api/unpin", response_model=PinnedJson, operation_id="unpin")
def unpin(app_state: AppStateDep, who: Caller, session: SessionParam, body: PinBody) -> Response:
    """Lets a pinned message go again; what was pinned with it, too."""
    opened = app_state.store.session(session, create=False)
    return json({"numbers": list(opened.unpin(body.number, actor=_actor(who, body.actor)))})


# ---------------------------------------------------------------------- going back, and branching off


@router.post("/api/undo", response_model=WentBackJson, operation_id="undo")
def undo(app_state: AppStateDep, who: Caller, session: SessionParam, body: UndoBody) -> Response:
    """Hides the user's newest message and all that came of it, or all after a record. Nothing is deleted. A token that
    may not read is told the numbers alone."""
    return json(_went_back(app_state, who, session, journal_undo.undo if body.to is None else _rewind(body.to), body))


@router.post("/api/redo", response_model=WentBackJson, operation_id="redo")
def redo(app_state: AppStateDep, who: Caller, session: SessionParam, body: RedoBody) -> Response:
    """Takes the last undo back, if nothing was said since."""
    return json(_went_back(app_state, who, session, journal_undo.redo, body))


class Step(Protocol):
    """A way to go back, or forth again."""

    def __call__(
        self, journal: Journal, session: str, *, expect_head: int, seen: int | None, actor: str | None
    ) -> Segment: ...


def _rewind(to: int) -> Step:
    def rewound(journal: Journal, session: str, *, expect_head: int, seen: int | None, actor: str | None) -> Segment:
        return journal_undo.rewind(journal, session, to, expect_head=expect_head, seen=seen, actor=actor)

    return rewound


def _went_back(
    app_state: AppState, who: Principal, session: str, step: Step, body: UndoBody | RedoBody
) -> WentBackJson:
    journal = app_state.store.journal
    id = app_state.store.session(session, create=False).id
    before = journal.backend.read(lambda tx: segment(tx, id, known(tx, id).head))
    at = dry_run_of(app_state.store).journal if body.dry_run else journal
    after = step(at, id, expect_head=body.head, seen=body.seen, actor=who.name)
    changed = changed_between(journal, id, before, after)
    return {
        "segment": segment_json(after),
        "changed": [record_json(r) for r in changed] if who.may("read") else [],
        "numbers": [r.number for r in changed],
        "dry_run": body.dry_run,
    }


@router.post("/api/unfold", response_model=UnfoldedJson, operation_id="unfold")
def unfold(app_state: AppStateDep, who: Caller, session: SessionParam, body: UnfoldBody) -> Response:
    """Takes a compaction back, with those that were made of its summary: what they stood for is in the context again,
    and what was said since stays. Rejected if that is more than the session's agent goes by."""
    opened = app_state.store.session(session, create=False)
    goes_by = opened.limits() or app_state.policy.said
    most = None if goes_by is None else goes_by.hard_tokens
    at = dry_run_of(app_state.store).journal if body.dry_run else app_state.store.journal
    after = journal_unfold.unfold(at, opened.id, body.segment, expect_head=body.head, most=most, actor=who.name)
    return json({"segment": segment_json(after), "limit": most, "dry_run": body.dry_run})


@router.post("/api/mask", response_model=UnfoldedJson, operation_id="mask")
def mask(app_state: AppStateDep, who: Caller, session: SessionParam, body: MaskBody) -> Response:
    """Shows tool results as one line each, with the number by which they can be read again. No model is asked, and
    nothing is lost; `unfold` with the new segment's number shows them whole again."""
    opened = app_state.store.session(session, create=False)
    _, could = opened.could_mask(app_state.policy)
    at = dry_run_of(app_state.store).journal if body.dry_run else app_state.store.journal
    chosen = body.numbers or [number for number, _ in could.masks]
    after = masks.mask(at, opened.id, chosen, expect_head=body.head, actor=who.name, by_hand=True)
    return json({"segment": segment_json(after), "limit": None, "dry_run": body.dry_run})


@router.post("/api/refold", response_model=UnfoldedJson, operation_id="refold")
def refold(app_state: AppStateDep, who: Caller, session: SessionParam, body: UnfoldBody) -> Response:
    """Goes to the boundary of a compaction again that was unfolded, also when more was said since."""
    id = app_state.store.session(session, create=False).id
    at = dry_run_of(app_state.store).journal if body.dry_run else app_state.store.journal
    after = journal_unfold.refold(at, id, body.segment, expect_head=body.head, actor=who.name)
    return json({"segment": segment_json(after), "limit": None, "dry_run": body.dry_run})


@router.post("/api/fork", response_model=ForkedJson, operation_id="fork")
def fork(app_state: AppStateDep, who: Caller, session: SessionParam, body: ForkBody) -> Response:
    """A new session whose past is this one's, now or as it was at a record. Nothing is copied."""
    opened = app_state.store.session(session, create=False)
    made = opened.fork_as(body.kind, body.at, body.id, who.name)
    return json({"id": made.id, "parent": opened.id, "at": made.state.forked_at, "kind": body.kind})


# ---------------------------------------------------------------------- compaction


class RequestedCompactions:
    """The compactions that this server was asked for. It sees each one through, also when nobody waits for it."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._runner = AttemptRegistry()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="onefold-server-compact")

    def begin(self, session: str, who: str, asked: CompactBody) -> StartedCompaction:
        """Asks for a compaction, or joins the one that is open, and answers at once."""
        if self._closing.is_set():
            raise StoreUnavailable("the server is about to end, and begins nothing new; ask the next one")
        app_state, journal = self._app_state, self._app_state.store.journal
        opened = app_state.store.session(session, create=False)
        policy = app_state.policy
        call = CompactionJob(
            journal, opened.id, app_state.summarizer(asked.summarizer), policy, self._runner,
            base=asked.head or opened.head, trigger=MANUAL, instructions=asked.instructions,
            wait=policy.attempt_timeout * policy.attempts, agent=who,
        )  # fmt: skip
        first = call.step()
        if isinstance(first, CompactResult):
            return StartedCompaction(call, first, None)
        stands = call.stands()
        with self._lock:
            over = self._under_way.get(stands.id or "")
            if over is None:
                over = self._threads.submit(self._see_through, call, stands.id or "")
                self._under_way[stands.id or ""] = over
        return StartedCompaction(call, stands, over)

    def _see_through(self, call: CompactionJob, compaction: str) -> None:
        backend = self._app_state.store.journal.backend
        try:
            while not self._closing.is_set() and isinstance(pause := call.step(), WaitFor):
                replace(pause, until=min(pause.until, time.monotonic() + _LOOK)).wait(backend)
        except OnefoldError as error:
            log.warning("session %r: compaction %s is left to others: %s", call.session, compaction, error)
        except Exception:
            log.exception("session %r: compaction %s is left to others", call.session, compaction)
        finally:
            with self._lock:
                del self._under_way[compaction]

    def close(self) -> None:
        """Hands back what is under way, for others to take at once."""
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)  # before that, they would take it up again
        self._runner.hand_back("the server ended")


@dataclass(frozen=True, slots=True)
class StartedCompaction:
    """A compaction right after somebody asked for it."""

    call: CompactionJob
    stands: CompactResult
    over: Future[None] | None
    """Done when it is settled; None if it is already."""


@router.post(
    "/api/compact",
    response_model=CompactedJson,
    operation_id="compact",
    responses={202: {"model": CompactedJson, "description": "It is under way, and goes on behind this answer."}},
)
async def compact_now(
    app_state: AppStateDep, who: Caller, request: Request, session: SessionParam, body: CompactBody | None = None
) -> Response:
    """Makes the context smaller: begins a compaction or joins the one that runs, and answers at once. With `wait`, at
    its end, or after so many seconds."""
    asked = body or CompactBody()
    compacting: RequestedCompactions = request.app.state.compacting
    begun = await run_in_threadpool(compacting.begin, session, who.name, asked)
    if begun.over is not None and asked.wait > 0:
        await asyncio.wait({asyncio.wrap_future(begun.over)}, timeout=min(asked.wait, app_state.settings.wait))
    made = await run_in_threadpool(_outcome, app_state, who, begun)
    return json(made, 202 if made["state"] in OPEN else 200)


def _outcome(app_state: AppState, who: Principal, begun: StartedCompaction) -> CompactedJson:
    result = begun.stands if begun.over is None else begun.call.stands()
    made = compacted_json(result, _row(app_state, who, begun.call.session, result.id))
    return made if who.may("read") else {**made, "cause": None}


@router.post("/api/cancel", response_model=CancelledJson, operation_id="cancel")
def cancel(app_state: AppStateDep, who: Caller, session: SessionParam) -> Response:
    """Ends the open compaction, whoever works on it; null if none is open."""
    id = app_state.store.session(session, create=False).id
    ended = app_state.store.journal.cancel(id, actor=who.name)
    return json({"cancelled": _row(app_state, who, id, ended.id) if ended is not None else None})


@router.post("/api/verify", response_model=ReportJson, operation_id="mend")
def verify(app_state: AppStateDep, body: VerifyBody) -> Response:
    """Compares everything derived with the journal, and repairs it if asked."""
    return json(report_json(verified(app_state, fix=body.fix)))


def _row(app_state: AppState, who: Principal, session: str, id: str | None) -> CompactionJson | None:
    """A compaction. Its words, which may quote the conversation, are for those who may read it."""

    def read_row(tx: Transaction) -> CompactionJson | None:
        found = tx.compaction(session, id) if id is not None else None
        return compaction_json(found, app_state.store.journal.holds(tx, found), tx.now) if found is not None else None

    row = app_state.store.journal.backend.read(read_row)
    return row if row is None or who.may("read") else {**row, "instructions": None, "cause": None}
