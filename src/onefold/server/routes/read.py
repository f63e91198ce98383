"""The routes that read. Each answers from one read transaction and writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from onefold.compaction.context import load_view
from onefold.export import lines, parents_first
from onefold.ids import system_clock
from onefold.journal import lineage
from onefold.model import MESSAGE, Json, Segment, SessionState
from onefold.server.error_responses import DECLARED, AnswerTooLarge, BadCombination, NotThere, TryLater
from onefold.server.request_models import (
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
from onefold.server.response_models import (
    AttachJson,
    CompactionsJson,
    ContextJson,
    CurveJson,
    HitsJson,
    LedgerJson,
    RecordsJson,
    ReportJson,
    SegmentsJson,
    SentJson,
    SessionsJson,
    SnapshotsJson,
    SummarizersJson,
)
from onefold.server.serializers import (
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
    sent_json,
    summarizer_json,
)
from onefold.server.size_series import curve
from onefold.server.snapshot import (
    AppState,
    activity_of,
    attach,
    get_app_state,
    keeper_of,
    known,
    page,
    problems,
    row,
    snapshot,
    suspicious,
    taken,
)
from onefold.storage.base import Transaction
from onefold.summarizers.estimate import describe, estimate_summary

AppStateDep: TypeAlias = Annotated[AppState, Depends(get_app_state)]

_TITLES = 0.2
"""Seconds that a filter may take to learn titles."""
_PATIENCE = 1.0
"""Seconds that a search may take to bring its index up to date."""
_CHUNK = 1 << 16
_SENT = 8 << 20
"""Bytes of messages in a context of which `/api/sent` tells: a page asks for it with every change."""

router = APIRouter(responses=DECLARED)


def json(value: Json, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


# ---------------------------------------------------------------------- all sessions


@router.get("/api/sessions", response_model=SessionsJson, operation_id="sessions")
def sessions(
    app_state: AppStateDep,
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
        return json(_walked(app_state, app_state.page(limit), after))
    if q.strip() or problems is not None:
        return json(_picked(app_state, app_state.page(limit), after, q.strip(), first=problems is not None))
    total = len(app_state.session_cache.states())
    place = read_cursor(after, float, str)

    def read_sessions(tx: Transaction) -> SessionsJson:
        found = tx.sessions(app_state.page(limit), place)
        more = len(found) == app_state.page(limit)
        return {
            "sessions": [row(app_state, tx, s) for s in found],
            "next": write_cursor(found[-1].touched_at, found[-1].id) if more else None,
            "total": total,
            "complete": True,
        }

    return json(app_state.store.journal.backend.read(read_sessions))


def _walked(app_state: AppState, limit: int, after: str | None) -> SessionsJson:
    (place,) = read_cursor(after, str) or ("",)
    total = len(app_state.session_cache.states())
    met = [state.id for state in islice(app_state.store.walk(place, page=limit), limit)]

    def read_walked(tx: Transaction) -> SessionsJson:
        found = [s for id in met if (s := tx.session(id)) is not None]
        return {
            "sessions": [row(app_state, tx, s) for s in found],
            "next": write_cursor(met[-1]) if len(met) == limit else None,
            "total": total,
            "complete": True,
        }

    return app_state.store.journal.backend.read(read_walked)


def _picked(app_state: AppState, limit: int, after: str | None, q: str, *, first: bool) -> SessionsJson:
    """Those that a filter lets through, or in another order. Titles are learned for a while, the newest first; what
    was not looked at by then is left out, and the answer says so."""
    place = read_cursor(after, bool, float, str)
    cache = app_state.session_cache
    states = cache.states()  # not inside the transaction: another one of these may be waited for in it

    def read_picked(tx: Transaction) -> SessionsJson:
        found, complete = _matching(app_state, tx, states, q) if q else (states, True)
        troubled = {s.id for s in found if _troubled(app_state, tx, s)} if first else set()
        keyed = [(s.id in troubled, s.touched_at, s.id) for s in found]
        order = sorted(keyed, reverse=True) if troubled else keyed
        rest = [k for k in order if place is None or k < place]
        shown = [id for _, _, id in rest[:limit] if cache.is_there(tx, id)]
        return {
            "sessions": [row(app_state, tx, s) for id in shown if (s := tx.session(id)) is not None],
            "next": write_cursor(*rest[limit - 1]) if len(rest) > limit else None,
            "total": len(found) - (len(rest[:limit]) - len(shown)),
            "complete": complete,
        }

    return app_state.store.journal.backend.read(read_picked)


def _matching(
    app_state: AppState, tx: Transaction, states: Iterable[SessionState], q: str
) -> tuple[list[SessionState], bool]:
    wanted, complete = q.casefold(), True
    ends = time.monotonic() + _TITLES
    found = []
    for state in states:
        there, title = app_state.titles.known(state)
        if wanted in state.id.casefold():
            found.append(state)
            continue
        if not there:
            if time.monotonic() > ends:
                complete = False
                continue
            if not app_state.session_cache.is_there(tx, state.id):
                continue
            title = app_state.titles.of(tx, state)
        if title is not None and wanted in title.casefold():
            found.append(state)
    return found, complete


def _troubled(app_state: AppState, tx: Transaction, state: SessionState) -> bool:
    if not suspicious(app_state, tx, state) or not app_state.session_cache.is_there(tx, state.id):
        return False
    limits = app_state.limits(tx, state) if keeper_of(tx, state) == "onefold" else None
    return bool(problems(state, activity_of(app_state, tx, state), limits, tx.now))


@router.get("/debug/sessions", response_model=SnapshotsJson, operation_id="debug_sessions")
def debug_sessions(app_state: AppStateDep, limit: LimitParam = 100, after: AfterParam = None) -> Response:
    """Every session's snapshot, in pages, in the order of ids."""
    (place,) = read_cursor(after, str) or ("",)
    size = app_state.page(limit)
    met = [state.id for state in islice(app_state.store.walk(place, page=size), size)]

    def read_debug_sessions(tx: Transaction) -> SnapshotsJson:
        return {
            "sessions": [snapshot(app_state, tx, s) for id in met if (s := tx.session(id)) is not None],
            "next": write_cursor(met[-1]) if len(met) == size else None,
        }

    return json(app_state.store.journal.backend.read(read_debug_sessions))


# ---------------------------------------------------------------------- one session


@router.get("/api/attach", response_model=AttachJson, operation_id="attach")
def attached(
    app_state: AppStateDep,
    session: SessionParam,
    history: Annotated[History, Query(description="Records of the segment in force, of all, or none.")] = "segment",
    order: Order = "newest",
    limit: LimitParam = 200,
) -> Response:
    """A snapshot, records, and the number to follow from, all of one moment: `/api/events` after that number gives
    what comes next, without a gap and without a repeat."""
    return json(attach(app_state, session, history, order, limit))


@router.get("/api/records", response_model=RecordsJson, operation_id="records")
def records(
    app_state: AppStateDep,
    session: SessionParam,
    *,
    start: Annotated[Number, Query(description="The first number.")] = 1,
    stop: Annotated[Number, Query(description="The number after the last one.")] = LAST,
    limit: LimitParam = 200,
    order: Order = "oldest",
) -> Response:
    """Everything that ever happened, in pages. `next` is the `start` of the next page; from the newest, its `stop`."""

    def read_records(tx: Transaction) -> RecordsJson:
        state = known(tx, session)
        found, following = page(
            tx, state.id, max(1, start), min(stop, state.last + 1), order=order, limit=app_state.page(limit)
        )
        return {"records": found, "next": following}

    return json(app_state.store.journal.backend.read(read_records))


@router.get("/api/context", response_model=ContextJson, operation_id="context")
def context(
    app_state: AppStateDep,
    session: SessionParam,
    segment: Number | None = None,
    format: Annotated[Format | None, Query()] = None,
) -> Response:
    """What a model is sent now, or what an older segment would send; in another provider's format, if asked."""
    opened = app_state.store.session(session, create=False)
    _check_size(app_state, opened.id, _segment(app_state, opened.id, segment), app_state.settings.max_context)
    return json(context_json(opened.id, opened.context(segment), format))


@router.get("/api/sent", response_model=SentJson, operation_id="sent")
def sent(app_state: AppStateDep, session: SessionParam) -> Response:
    """What a model is sent now, as numbers of records in their order, and in full only what no record holds as it is: a
    line in place of a result, a result that was never given, quotes and notes. For who has the records already."""
    opened = app_state.store.session(session, create=False)
    _check_size(app_state, opened.id, _segment(app_state, opened.id, None), min(_SENT, app_state.settings.max_context))
    return json(sent_json(opened.id, opened.context()))


@router.get("/api/summarizers", response_model=SummarizersJson, operation_id="summarizers")
def summarizers(app_state: AppStateDep, session: SessionParam) -> Response:
    """Who can write a summary of a session here, the usual one first, and about what it would cost now."""
    id = app_state.store.resolve(session)
    made: SummarizersJson = {"session": id, "needless": None, "summarizers": []}
    for name in (None, *app_state.settings.summarizers):
        chosen = app_state.summarizer(name)
        cost = estimate_summary(app_state.store.journal, id, chosen, app_state.policy)
        if isinstance(cost, str):
            made["needless"] = cost
        made["summarizers"].append(summarizer_json(name, describe(chosen), None if isinstance(cost, str) else cost))
    return json(made)


@router.get("/api/segments", response_model=SegmentsJson, operation_id="segments")
def segments(app_state: AppStateDep, session: SessionParam) -> Response:
    """Every boundary that a session ever had, the oldest first."""

    def read_segments(tx: Transaction) -> SegmentsJson:
        state = known(tx, session)
        return {"segments": [segment_json(s) for s in tx.segments(state.id)], "head": state.head}

    return json(app_state.store.journal.backend.read(read_segments))


@router.get("/api/expand", response_model=RecordsJson, operation_id="expand")
def expand(
    app_state: AppStateDep,
    session: SessionParam,
    *,
    segment: Number | None = None,
    start: Number = 1,
    limit: LimitParam = 200,
    added: Annotated[bool, Query(description="Only what this segment's own compaction added.")] = False,
) -> Response:
    """The original messages that a segment's summary stands for."""
    id = app_state.store.resolve(session)
    of = _segment(app_state, id, segment)
    found, following = taken(app_state.recall.expanded(id, of, added=added, first=max(1, start)), app_state.page(limit))
    return json({"records": found, "next": following.number if following is not None else None})


@router.get("/api/compactions", response_model=CompactionsJson, operation_id="compactions")
def compactions(
    app_state: AppStateDep,
    session: AnySession = None,
    state: Literal["open", "failed", "all"] = "all",
    limit: LimitParam = 100,
) -> Response:
    """Compactions of one session or of all: those that are open before the others, and of each the newest first."""

    def read_compactions(tx: Transaction) -> CompactionsJson:
        id = known(tx, session).id if session is not None else None
        every = tx.compactions(id, open_only=state == "open")
        wanted = [c for c in every if state != "failed" or c.state == "failed"]
        wanted.sort(key=lambda c: (c.open, c.requested_at, c.id), reverse=True)
        journal = app_state.store.journal
        some = wanted[: app_state.page(limit)]
        return {"compactions": [compaction_json(c, journal.holds(tx, c) if c.open else None, tx.now) for c in some]}

    return json(app_state.store.journal.backend.read(read_compactions))


@router.get("/api/ledger", response_model=LedgerJson, operation_id="ledger")
def ledger(app_state: AppStateDep, session: SessionParam) -> Response:
    """What stands in every context: notes, quotes, facts and pins."""

    def read_ledger(tx: Transaction) -> LedgerJson:
        state = known(tx, session)
        begins = load_view(tx, state.id, state.head, state.last + 1)
        stands = begins.now or begins.standing
        return {
            "session": state.id,
            "notes": [note_json(n) for n in stands.notes],
            "facts": [fact_json(f) for f in (*begins.facts, *begins.quoting.facts)],
            "quotes": [quotation_json(q) for q in begins.quoting.shown],
            "pins": sorted(stands.pinned),
        }

    return json(app_state.store.journal.backend.read(read_ledger))


@router.get("/api/curve", response_model=CurveJson, operation_id="curve")
def size_curve(
    app_state: AppStateDep, session: SessionParam, points: Annotated[int, Query(ge=2, le=1_000)] = 300
) -> Response:
    """The size of the context over the session's life."""

    def read_size_curve(tx: Transaction) -> CurveJson:
        state = known(tx, session)
        made, marks = curve(tx, state, points)
        limits = app_state.limits(tx, state) if keeper_of(tx, state) == "onefold" else None
        return {"session": state.id, "points": made, "marks": marks, "limit": limit_json(limits)}

    return json(app_state.store.journal.backend.read(read_size_curve))


@router.get("/api/search", response_model=HitsJson, operation_id="search")
def search(
    app_state: AppStateDep,
    q: Annotated[str, Query(min_length=1, max_length=1_000, description='Words, "phrases", beginnings*, -not.')],
    session: AnySession = None,
    limit: LimitParam = 20,
) -> Response:
    """What was said before, whatever was compacted since: the best first."""
    found = app_state.recall.search(q, session=session, limit=app_state.page(limit), patience=_PATIENCE)
    return json({"hits": [hit_json(h) for h in found], "behind": found.behind, "indexed": found.indexed})


@router.get(
    "/api/export",
    operation_id="export",
    response_class=Response,
    responses={200: {"description": "One record a line.", "content": {"application/x-ndjson": {}}}},
)
def export(
    app_state: AppStateDep,
    session: SessionParam,
    parents: Annotated[bool, Query(description="Of a fork, the sessions that it is of before it.")] = True,
) -> Response:
    """Records as JSON lines, as `onefold export` writes them."""
    found = parents_first(app_state.store, [session], with_parents=parents)
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
def verify(app_state: AppStateDep) -> Response:
    """Compares everything derived with the journal. It reads the whole store, so one at a time."""
    return json(report_json(verified(app_state, fix=False)))


def verified(app_state: AppState, *, fix: bool) -> Json:
    if not _verifying.acquire(blocking=False):
        raise TryLater("somebody verifies the store already", session="", retry_at=system_clock() + 5)
    try:
        return app_state.store.verify(fix=fix)
    finally:
        _verifying.release()


# ---------------------------------------------------------------------- small parts


def _check_size(app_state: AppState, session: str, of: Segment, most: int) -> None:
    """Rejects a context that is too much for one answer, before all of it is in memory."""

    def read_check_size(tx: Transaction) -> str | None:
        last = known(tx, session).last
        standing = lineage.load_pins_and_notes(tx, session, last + 1, of.hidden)
        size = len(dumps(lineage.summary_body(tx, session, of))) + sum(len(note.text) for note in standing.notes)
        for number in sorted({*of.kept, *(n for n in standing.pinned if n < of.cut)}):
            there = lineage.record(tx, session, number) if size <= most else None
            size += len(dumps(there.body)) if there is not None and there.kind == MESSAGE else 0
        if size > most:
            return f"what is noted, pinned and kept from before record {of.cut} alone is more"
        at, step = of.cut, 4
        while at <= last and size <= most:
            found = sum(
                len(dumps(r.body)) for r in lineage.messages(tx, session, at, min(at + step, last + 1), of.hidden)
            )
            size, at = size + found, at + step
            step = min(256, 2 * step) if found < 1 << 20 else 4
        return f"those of records {of.cut} to {at - 1} alone are more" if size > most else None

    if why := app_state.store.journal.backend.read(read_check_size):
        raise AnswerTooLarge(f"the context of session {session!r} has more than {most:,} bytes of messages: {why}")


def _segment(app_state: AppState, session: str, number: int | None) -> Segment:
    def read_segment(tx: Transaction) -> Segment | None:
        return lineage.segment(tx, session, known(tx, session).head if number is None else number)

    found = app_state.store.journal.backend.read(read_segment)
    if found is None:
        raise NotThere(f"session {session!r} has no segment {number}; /api/segments lists them")
    return found
