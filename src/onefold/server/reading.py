"""The calls that read. Each answers from one read transaction and writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from onefold.cli.export import lines, parents_first
from onefold.compaction.context import boundary
from onefold.ids import system_clock
from onefold.journal import view
from onefold.journal.seam import Transaction
from onefold.model import MESSAGE, Json, Segment, SessionState
from onefold.server.asking import (
    LAST,
    AfterParam,
    AnySession,
    Format,
    History,
    LimitParam,
    Number,
    Order,
    SessionParam,
    read_cursor,
    write_cursor,
)
from onefold.server.curve import curve
from onefold.server.errors import DECLARED, AnswerTooLarge, BadCombination, NotThere, TryLater
from onefold.server.shapes import (
    AttachJson,
    CompactionsJson,
    ContextJson,
    CurveJson,
    HitsJson,
    LedgerJson,
    RecordsJson,
    ReportJson,
    SegmentsJson,
    SessionsJson,
    SnapshotsJson,
)
from onefold.server.shaping import (
    compaction_json,
    context_json,
    dumps,
    fact_json,
    hit_json,
    limit_json,
    note_json,
    quotation_json,
    report_json,
    segment_json,
)
from onefold.server.snapshot import Desk, attach, desk, doing, known, page, problems, row, snapshot, suspicious, taken

AtDesk: TypeAlias = Annotated[Desk, Depends(desk)]

_TITLES = 0.2
"""Seconds that a filter may take to learn titles."""
_PATIENCE = 1.0
"""Seconds that a search may take to bring its index up to date."""
_CHUNK = 1 << 16

router = APIRouter(responses=DECLARED)


def json(value: Json, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


# ---------------------------------------------------------------------- all sessions


@router.get("/api/sessions", response_model=SessionsJson, operation_id="sessions")
def sessions(
    desk: AtDesk,
    *,
    limit: LimitParam = 100,
    after: AfterParam = None,
    q: Annotated[str, Query(max_length=200, description="Part of an id or of a title.")] = "",
    problems: Annotated[Literal["first"] | None, Query(description="Those with problems before all others.")] = None,
    order: Annotated[
        Literal["activity", "id"], Query(description="By `id` is for walking over all of them, without q and problems.")
    ] = "activity",
) -> Response:
    """The sessions, the latest activity first. That is for looking: one that is written to while somebody turns the
    pages moves to the front, and may be left out. In the order of ids each that is there before and after is met once,
    whatever is written meanwhile."""
    if order == "id":
        if q.strip() or problems is not None:
            raise BadCombination("order=id walks over all sessions; q and problems pick some of them, by activity")
        return json(_walked(desk, desk.page(limit), after))
    if q.strip() or problems is not None:
        return json(_picked(desk, desk.page(limit), after, q.strip(), first=problems is not None))
    total = len(desk.roster.states())
    place = read_cursor(after, float, str)

    def look(tx: Transaction) -> SessionsJson:
        found = tx.sessions(desk.page(limit), place)
        more = len(found) == desk.page(limit)
        return {
            "sessions": [row(desk, tx, s) for s in found],
            "next": write_cursor(found[-1].touched_at, found[-1].id) if more else None,
            "total": total,
            "complete": True,
        }

    return json(desk.store.journal.backend.read(look))


def _walked(desk: Desk, limit: int, after: str | None) -> SessionsJson:
    (place,) = read_cursor(after, str) or ("",)
    total = len(desk.roster.states())
    met = [state.id for state in islice(desk.store.walk(place, page=limit), limit)]

    def look(tx: Transaction) -> SessionsJson:
        found = [s for id in met if (s := tx.session(id)) is not None]
        return {
            "sessions": [row(desk, tx, s) for s in found],
            "next": write_cursor(met[-1]) if len(met) == limit else None,
            "total": total,
            "complete": True,
        }

    return desk.store.journal.backend.read(look)


def _picked(desk: Desk, limit: int, after: str | None, q: str, *, first: bool) -> SessionsJson:
    """Those that a filter lets through, or in another order. Titles are learned for a while, the newest first; what
    was not looked at by then is left out, and the answer says so."""
    place = read_cursor(after, bool, float, str)

    def look(tx: Transaction) -> SessionsJson:
        states = desk.roster.states()
        found, complete = _matching(desk, tx, states, q) if q else (states, True)
        troubled = {s.id for s in found if suspicious(desk, tx, s) and _troubled(desk, tx, s)} if first else set()
        keyed = [(s.id in troubled, s.touched_at, s.id) for s in found]
        order = sorted(keyed, reverse=True) if troubled else keyed
        rest = [k for k in order if place is None or k < place]
        shown = [s for _, _, id in rest[:limit] if (s := tx.session(id)) is not None]
        return {
            "sessions": [row(desk, tx, s) for s in shown],
            "next": write_cursor(*rest[limit - 1]) if len(rest) > limit else None,
            "total": len(found),
            "complete": complete,
        }

    return desk.store.journal.backend.read(look)


def _matching(desk: Desk, tx: Transaction, states: Iterable[SessionState], q: str) -> tuple[list[SessionState], bool]:
    wanted, complete = q.casefold(), True
    ends = time.monotonic() + _TITLES
    found = []
    for state in states:
        there, title = desk.titles.known(state)
        if wanted in state.id.casefold():
            found.append(state)
            continue
        if not there:
            if time.monotonic() > ends:
                complete = False
                continue
            title = desk.titles.of(tx, state)
        if title is not None and wanted in title.casefold():
            found.append(state)
    return found, complete


def _troubled(desk: Desk, tx: Transaction, state: SessionState) -> bool:
    return bool(problems(state, doing(desk, tx, state), desk.limits(tx, state), tx.now))


@router.get("/debug/sessions", response_model=SnapshotsJson, operation_id="debug_sessions")
def debug_sessions(desk: AtDesk, limit: LimitParam = 100, after: AfterParam = None) -> Response:
    """Every session's snapshot, in pages, in the order of ids."""
    (place,) = read_cursor(after, str) or ("",)
    size = desk.page(limit)
    met = [state.id for state in islice(desk.store.walk(place, page=size), size)]

    def look(tx: Transaction) -> SnapshotsJson:
        return {
            "sessions": [snapshot(desk, tx, s) for id in met if (s := tx.session(id)) is not None],
            "next": write_cursor(met[-1]) if len(met) == size else None,
        }

    return json(desk.store.journal.backend.read(look))


# ---------------------------------------------------------------------- one session


@router.get("/api/attach", response_model=AttachJson, operation_id="attach")
def attached(
    desk: AtDesk,
    session: SessionParam,
    history: Annotated[History, Query(description="Records of the segment in force, of all, or none.")] = "segment",
    order: Order = "newest",
    limit: LimitParam = 200,
) -> Response:
    """A snapshot, records, and the number to follow from, all of one moment: `/api/events` after that number gives
    what comes next, without a gap and without a repeat."""
    return json(attach(desk, session, history, order, limit))


@router.get("/api/records", response_model=RecordsJson, operation_id="records")
def records(
    desk: AtDesk,
    session: SessionParam,
    *,
    start: Annotated[Number, Query(description="The first number.")] = 1,
    stop: Annotated[Number, Query(description="The number after the last one.")] = LAST,
    limit: LimitParam = 200,
    order: Order = "oldest",
) -> Response:
    """Everything that ever happened, in pages. `next` is the `start` of the next page; from the newest, its `stop`."""

    def look(tx: Transaction) -> RecordsJson:
        state = known(tx, session)
        found, following = page(
            tx, state.id, max(1, start), min(stop, state.last + 1), order=order, limit=desk.page(limit)
        )
        return {"records": found, "next": following}

    return json(desk.store.journal.backend.read(look))


@router.get("/api/context", response_model=ContextJson, operation_id="context")
def context(
    desk: AtDesk, session: SessionParam, segment: Number | None = None, format: Annotated[Format | None, Query()] = None
) -> Response:
    """What a model is sent now, or what an older segment would send; in another provider's format, if asked."""
    opened = desk.store.session(session, create=False)
    _check_size(desk, opened.id, _segment(desk, opened.id, segment))
    return json(context_json(opened.id, opened.context(segment), format))


@router.get("/api/segments", response_model=SegmentsJson, operation_id="segments")
def segments(desk: AtDesk, session: SessionParam) -> Response:
    """Every boundary that a session ever had, the oldest first."""

    def look(tx: Transaction) -> SegmentsJson:
        state = known(tx, session)
        return {"segments": [segment_json(s) for s in tx.segments(state.id)], "head": state.head}

    return json(desk.store.journal.backend.read(look))


@router.get("/api/expand", response_model=RecordsJson, operation_id="expand")
def expand(
    desk: AtDesk,
    session: SessionParam,
    *,
    segment: Number | None = None,
    start: Number = 1,
    limit: LimitParam = 200,
    added: Annotated[bool, Query(description="Only what this segment's own compaction added.")] = False,
) -> Response:
    """The original messages that a segment's summary stands for."""
    id = desk.store.resolve(session)
    of = _segment(desk, id, segment)
    found, following = taken(desk.recall.expanded(id, of, added=added, first=max(1, start)), desk.page(limit))
    return json({"records": found, "next": following.number if following is not None else None})


@router.get("/api/compactions", response_model=CompactionsJson, operation_id="compactions")
def compactions(
    desk: AtDesk,
    session: AnySession = None,
    state: Literal["open", "failed", "all"] = "all",
    limit: LimitParam = 100,
) -> Response:
    """Compactions of one session or of all: those that are open before the others, and of each the newest first."""

    def look(tx: Transaction) -> CompactionsJson:
        id = known(tx, session).id if session is not None else None
        every = tx.compactions(id, open_only=state == "open")
        wanted = [c for c in every if state != "failed" or c.state == "failed"]
        wanted.sort(key=lambda c: (c.open, c.requested_at, c.id), reverse=True)
        journal = desk.store.journal
        some = wanted[: desk.page(limit)]
        return {"compactions": [compaction_json(c, journal.holds(tx, c) if c.open else None, tx.now) for c in some]}

    return json(desk.store.journal.backend.read(look))


@router.get("/api/ledger", response_model=LedgerJson, operation_id="ledger")
def ledger(desk: AtDesk, session: SessionParam) -> Response:
    """What stands in every context: notes, quotes, facts and pins."""

    def look(tx: Transaction) -> LedgerJson:
        state = known(tx, session)
        begins = boundary(tx, state.id, state.head, state.last + 1)
        stands = begins.now or begins.standing
        return {
            "session": state.id,
            "notes": [note_json(n) for n in stands.notes],
            "facts": [fact_json(f) for f in (*begins.facts, *begins.quoting.facts)],
            "quotes": [quotation_json(q) for q in begins.quoting.shown],
            "pins": sorted(stands.pinned),
        }

    return json(desk.store.journal.backend.read(look))


@router.get("/api/curve", response_model=CurveJson, operation_id="curve")
def size_curve(desk: AtDesk, session: SessionParam, points: Annotated[int, Query(ge=2, le=1_000)] = 300) -> Response:
    """The size of the context over the session's life."""

    def look(tx: Transaction) -> CurveJson:
        state = known(tx, session)
        made, marks = curve(tx, state, points)
        return {"session": state.id, "points": made, "marks": marks, "limit": limit_json(desk.limits(tx, state))}

    return json(desk.store.journal.backend.read(look))


@router.get("/api/search", response_model=HitsJson, operation_id="search")
def search(
    desk: AtDesk,
    q: Annotated[str, Query(min_length=1, max_length=1_000, description='Words, "phrases", beginnings*, -not.')],
    session: AnySession = None,
    limit: LimitParam = 20,
) -> Response:
    """What was said before, whatever was compacted since: the best first."""
    found = desk.recall.search(q, session=session, limit=desk.page(limit), patience=_PATIENCE)
    return json({"hits": [hit_json(h) for h in found], "behind": found.behind, "indexed": found.indexed})


@router.get(
    "/api/export",
    operation_id="export",
    response_class=Response,
    responses={200: {"description": "One record a line.", "content": {"application/x-ndjson": {}}}},
)
def export(
    desk: AtDesk,
    session: SessionParam,
    parents: Annotated[bool, Query(description="Of a fork, the sessions that it is of before it.")] = True,
) -> Response:
    """Records as JSON lines, as `onefold export` writes them."""
    found = parents_first(desk.store, [session], with_parents=parents)
    return StreamingResponse(
        _chunks(line for one in found for line in lines(one)),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="session.jsonl"'},
    )


def _chunks(pieces: Iterable[str]) -> Iterator[bytes]:
    """Lines in larger pieces: each one that is sent costs a change of threads."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece.encode("utf-8"))
        size += len(waiting[-1])
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


# ---------------------------------------------------------------------- is everything as the journal says

_verifying = threading.Lock()


@router.get("/api/verify", response_model=ReportJson, operation_id="verify")
def verify(desk: AtDesk) -> Response:
    """Compares everything derived with the journal. It reads the whole store, so one at a time."""
    return json(report_json(verified(desk, fix=False)))


def verified(desk: Desk, *, fix: bool) -> Json:
    if not _verifying.acquire(blocking=False):
        raise TryLater("somebody verifies the store already", session="", retry_at=system_clock() + 5)
    try:
        return desk.store.verify(fix=fix)
    finally:
        _verifying.release()


# ---------------------------------------------------------------------- small parts


def _check_size(desk: Desk, session: str, of: Segment) -> None:
    """Refuses a context that is too much for one answer, before all of it is in memory."""
    most = desk.settings.max_context

    def look(tx: Transaction) -> str | None:
        last = known(tx, session).last
        standing = view.standing(tx, session, last + 1, of.hidden)
        size = len(dumps(view.told(tx, session, of))) + sum(len(note.text) for note in standing.notes)
        for number in sorted({*of.kept, *(n for n in standing.pinned if n < of.cut)}):
            there = view.record(tx, session, number) if size <= most else None
            size += len(dumps(there.body)) if there is not None and there.kind == MESSAGE else 0
        if size > most:
            return f"what is noted, pinned and kept from before record {of.cut} alone is more"
        at, step = of.cut, 4
        while at <= last and size <= most:
            found = sum(len(dumps(r.body)) for r in view.messages(tx, session, at, min(at + step, last + 1), of.hidden))
            size, at = size + found, at + step
            step = min(256, 2 * step) if found < 1 << 20 else 4
        return f"those of records {of.cut} to {at - 1} alone are more" if size > most else None

    if why := desk.store.journal.backend.read(look):
        raise AnswerTooLarge(f"the context of session {session!r} has more than {most:,} bytes of messages: {why}")


def _segment(desk: Desk, session: str, number: int | None) -> Segment:
    def look(tx: Transaction) -> Segment | None:
        return view.segment(tx, session, known(tx, session).head if number is None else number)

    found = desk.store.journal.backend.read(look)
    if found is None:
        raise NotThere(f"session {session!r} has no segment {number}; /api/segments lists them")
    return found
