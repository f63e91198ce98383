"""The calls that change something. Each says who asked; what is allowed, the library decides."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Protocol, TypeAlias

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from onefold.cli.rehearsal import rehearsal
from onefold.cli.undo import changed_between
from onefold.compaction.run import Call, Runner
from onefold.compaction.summarizers import extract
from onefold.errors import InvalidMessage, OnefoldError, StoreUnavailable
from onefold.journal import history
from onefold.journal.contract import Journal, segment
from onefold.journal.reading import Pause
from onefold.journal.seam import Transaction
from onefold.model import MANUAL, OPEN, CompactResult, Segment
from onefold.server.asking import (
    AppendBody,
    CompactBody,
    ForkBody,
    NoteBody,
    PinBody,
    RedoBody,
    SessionParam,
    UndoBody,
    VerifyBody,
)
from onefold.server.errors import DECLARED
from onefold.server.reading import AtDesk, json, verified
from onefold.server.shapes import (
    AppendedJson,
    CancelledJson,
    CompactedJson,
    CompactionJson,
    ForkedJson,
    NotedJson,
    PinnedJson,
    ReportJson,
    WentBackJson,
)
from onefold.server.shaping import compacted_json, compaction_json, record_json, report_json, segment_json
from onefold.server.snapshot import Desk, known

log = logging.getLogger("onefold.server")

_AT_ONCE = 8
"""Compactions that one server sees through at the same time; others wait for their turn."""
_LOOK = 0.5
"""Seconds after which one that is seen through looks whether the server ends."""

router = APIRouter(responses=DECLARED)


async def _asking(request: Request) -> str:
    """The name of the token that asks, as the guard found it."""
    who = getattr(request.state, "who", None)
    return str(getattr(who, "name", None) or request.app.state.desk.settings.agent)


Asking: TypeAlias = Annotated[str, Depends(_asking)]


# ---------------------------------------------------------------------- messages, notes, pins


@router.post("/api/append", response_model=AppendedJson, operation_id="append")
def append(desk: AtDesk, who: Asking, session: SessionParam, body: AppendBody) -> Response:
    """Adds one message or a list of them, all or none. They are on disk when this answers."""
    opened = desk.store.session(session, create=False)
    if body.queue:
        if isinstance(body.messages, list):
            raise InvalidMessage(f"session {opened.id!r}: one input is queued at a time, not a list")
        if body.slot is not None:
            raise InvalidMessage(f"session {opened.id!r}: an input that waits is no system prompt; append it")
        done = opened._queue(body.messages, body.format, body.key)
    else:
        who = body.actor or who
        done = opened.append(body.messages, key=body.key, format=body.format, actor=who, slot=body.slot)
    return json({"numbers": list(done.numbers), "duplicate": done.duplicate, "hidden": list(done.hidden)})


@router.post("/api/note", response_model=NotedJson, operation_id="note")
def note(desk: AtDesk, who: Asking, session: SessionParam, body: NoteBody) -> Response:
    """Writes a fact down that stands in every context. An empty text takes the one with this kind and key away."""
    opened = desk.store.session(session, create=False)
    number = opened.note(body.kind, body.text, body.key, actor=body.actor or who, source=body.source)
    return json({"number": number})


@router.post("/api/pin", response_model=PinnedJson, operation_id="pin")
def pin(desk: AtDesk, who: Asking, session: SessionParam, body: PinBody) -> Response:
    """Keeps a message in every context, with the call or the results that belong to it."""
    opened = desk.store.session(session, create=False)
    return json({"numbers": list(opened.pin(body.number, actor=body.actor or who))})


@router.post("/api/unpin", response_model=PinnedJson, operation_id="unpin")
def unpin(desk: AtDesk, who: Asking, session: SessionParam, body: PinBody) -> Response:
    """Lets a pinned message go again; what was pinned with it, too."""
    opened = desk.store.session(session, create=False)
    return json({"numbers": list(opened.unpin(body.number, actor=body.actor or who))})


# ---------------------------------------------------------------------- going back, and branching off


@router.post("/api/undo", response_model=WentBackJson, operation_id="undo")
def undo(desk: AtDesk, session: SessionParam, body: UndoBody) -> Response:
    """Hides the user's newest message and all that came of it, or all after a record. Nothing is deleted."""
    return json(_went_back(desk, session, history.undo if body.to is None else _rewind(body.to), body))


@router.post("/api/redo", response_model=WentBackJson, operation_id="redo")
def redo(desk: AtDesk, session: SessionParam, body: RedoBody) -> Response:
    """Takes the last undo back, if nothing was said since."""
    return json(_went_back(desk, session, history.redo, body))


class Step(Protocol):
    """A way to go back, or forth again."""

    def __call__(self, journal: Journal, session: str, *, expect_head: int, seen: int | None) -> Segment: ...


def _rewind(to: int) -> Step:
    def rewound(journal: Journal, session: str, *, expect_head: int, seen: int | None) -> Segment:
        return history.rewind(journal, session, to, expect_head=expect_head, seen=seen)

    return rewound


def _went_back(desk: Desk, session: str, step: Step, body: UndoBody | RedoBody) -> WentBackJson:
    journal = desk.store.journal
    id = desk.store.session(session, create=False).id
    before = journal.backend.read(lambda tx: segment(tx, id, known(tx, id).head))
    at = rehearsal(desk.store).journal if body.dry_run else journal
    after = step(at, id, expect_head=body.head, seen=body.seen)
    return {
        "segment": segment_json(after),
        "changed": [record_json(r) for r in changed_between(journal, id, before, after)],
        "dry_run": body.dry_run,
    }


@router.post("/api/fork", response_model=ForkedJson, operation_id="fork")
def fork(desk: AtDesk, session: SessionParam, body: ForkBody) -> Response:
    """A new session whose past is this one's, now or as it was at a record. Nothing is copied."""
    opened = desk.store.session(session, create=False)
    made = opened.fork(body.kind, body.at, id=body.id)
    return json({"id": made.id, "parent": opened.id, "at": made.state.forked_at, "kind": body.kind})


# ---------------------------------------------------------------------- compaction


class Compacting:
    """The compactions that this server was asked for. It sees each one through, also when nobody waits for it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runner = Runner()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="onefold-server-compact")

    def begin(self, session: str, who: str, instructions: str | None, head: int | None) -> Begun:
        """Asks for a compaction, or joins the one that is open, and answers at once."""
        if self._closing.is_set():
            raise StoreUnavailable("the server is about to end, and begins nothing new; ask the next one")
        desk, journal = self._desk, self._desk.store.journal
        opened = desk.store.session(session, create=False)
        policy = desk.policy
        call = Call(
            journal, opened.id, desk.settings.summarizer or extract, policy, self._runner, base=head or opened.head,
            trigger=MANUAL, instructions=instructions, wait=policy.life * policy.attempts, agent=who,
        )  # fmt: skip
        first = call.step()
        if isinstance(first, CompactResult):
            return Begun(call, first, None)
        stands = call.stands()
        with self._lock:
            over = self._under_way.get(stands.id or "")
            if over is None:
                over = self._threads.submit(self._see_through, call, stands.id or "")
                self._under_way[stands.id or ""] = over
        return Begun(call, stands, over)

    def _see_through(self, call: Call, compaction: str) -> None:
        backend = self._desk.store.journal.backend
        try:
            while not self._closing.is_set() and isinstance(pause := call.step(), Pause):
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
class Begun:
    """A compaction right after somebody asked for it."""

    call: Call
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
    desk: AtDesk, who: Asking, request: Request, session: SessionParam, body: CompactBody | None = None
) -> Response:
    """Makes the context smaller: begins a compaction or joins the one that runs, and answers at once. With `wait`, at
    its end, or after so many seconds."""
    asked = body or CompactBody()
    compacting: Compacting = request.app.state.compacting
    begun = await run_in_threadpool(compacting.begin, session, who, asked.instructions, asked.head)
    if begun.over is not None and asked.wait > 0:
        await asyncio.wait({asyncio.wrap_future(begun.over)}, timeout=min(asked.wait, desk.settings.wait))
    made = await run_in_threadpool(_outcome, desk, begun)
    return json(made, 202 if made["state"] in OPEN else 200)


def _outcome(desk: Desk, begun: Begun) -> CompactedJson:
    result = begun.stands if begun.over is None else begun.call.stands()
    return compacted_json(result, _row(desk, begun.call.session, result.id))


@router.post("/api/cancel", response_model=CancelledJson, operation_id="cancel")
def cancel(desk: AtDesk, who: Asking, session: SessionParam) -> Response:
    """Ends the open compaction, whoever works on it; null if none is open."""
    id = desk.store.session(session, create=False).id
    ended = desk.store.journal.cancel(id, actor=who)
    return json({"cancelled": _row(desk, id, ended.id) if ended is not None else None})


@router.post("/api/verify", response_model=ReportJson, operation_id="mend")
def mend(desk: AtDesk, body: VerifyBody) -> Response:
    """Compares everything derived with the journal, and mends it if asked."""
    return json(report_json(verified(desk, fix=body.fix)))


def _row(desk: Desk, session: str, id: str | None) -> CompactionJson | None:
    def look(tx: Transaction) -> CompactionJson | None:
        found = tx.compaction(session, id) if id is not None else None
        return compaction_json(found, desk.store.journal.holds(tx, found), tx.now) if found is not None else None

    return desk.store.journal.backend.read(look)
