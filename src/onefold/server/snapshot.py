"""A session as it is at one moment: everything in one read transaction, so that whoever follows from its number misses
nothing and sees nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypedDict

from fastapi import Request

from onefold.acp.host import RoomHost
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer, extractive_summary
from onefold.journal import adoption, lineage, turns
from onefold.journal.journal import segment
from onefold.model import Compaction, Holder, OpenTurn, Record, Segment, SessionState
from onefold.recall import Recall
from onefold.server.error_responses import NotThere
from onefold.server.request_models import History, Order
from onefold.server.response_models import (
    AgentJson,
    AttachJson,
    ClientJson,
    CompactingJson,
    QuestionJson,
    RecordJson,
    SessionJson,
    SnapshotJson,
    UsageJson,
)
from onefold.server.serializers import (
    compaction_json,
    dumps,
    holder_json,
    record_json,
    segment_json,
    session_json,
    turn_json,
)
from onefold.server.session_cache import SessionCache, Titles
from onefold.server.settings import Settings
from onefold.storage.base import Transaction
from onefold.store import Store

_BYTES = 8 << 20
"""Of records in one answer: a page ends early rather than grow beyond it, but has one record at least."""
_QUEUE = 100
_WARM = 10_000
"""Sessions whose titles are learned when a server begins."""
_FEW = 50


class Client(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def since(self) -> float: ...
    @property
    def kind(self) -> str: ...


class Clients(Protocol):
    """Who follows a session now, as the live events know it."""

    def clients(self, session: str) -> Sequence[Client]: ...


@dataclass(slots=True)
class AppState:
    """What every call works with: one open store, and what is remembered of it."""

    store: Store
    settings: Settings
    hub: Clients | None = None
    host: RoomHost | None = None
    """The agents that this server runs."""
    titles: Titles = field(default_factory=Titles)
    session_cache: SessionCache = field(init=False)
    recall: Recall = field(init=False)
    _limits: dict[tuple[str, int], Limits | None] = field(default_factory=dict)
    """By session and the record that says so, which does not change."""

    def __post_init__(self) -> None:
        self.session_cache = SessionCache(self.store.journal.backend)
        self.recall = Recall(self.store)

    @property
    def policy(self) -> Policy:
        return self.settings.policy or self.store.policy

    def limits(self, tx: Transaction, state: SessionState) -> Limits | None:
        """What a session's agent goes by: as its record says, else as this server was told; None if nobody knows."""
        if not state.limits:
            return self.policy.said
        place = state.id, state.limits
        if place not in self._limits and (said := lineage.limits(tx, state)) is not None:
            if len(self._limits) >= _WARM:
                self._limits.clear()
            self._limits[place] = Limits.from_record(said)
        return self._limits.get(place) or self.policy.said

    def summarizer(self, name: str | None) -> Summarizer:
        """Who writes a summary: the one of that name, by default the usual one."""
        if name is None:
            return self.settings.summarizer or extractive_summary
        if (found := self.settings.summarizers.get(name)) is None:
            raise NotThere(f"this server has no summarizer {name!r}; /api/summarizers lists those that it has")
        return found

    def page(self, limit: int) -> int:
        return min(limit, self.settings.page)

    def warm(self, stop: threading.Event) -> None:
        """Learns of the sessions and their titles, a few at a time, so that the first who filters need not wait."""
        states = self.session_cache.states()[:_WARM]
        for at in range(0, len(states), _FEW):
            if stop.wait(0.005):
                return
            some = states[at : at + _FEW]
            self.store.journal.backend.read(partial(self._learn, some))

    def _learn(self, some: list[SessionState], tx: Transaction) -> None:
        for state in some:
            if self.session_cache.is_there(tx, state.id):
                self.titles.of(tx, state)


async def get_app_state(request: Request) -> AppState:
    """The state of the app that a request came to."""
    found: AppState = request.app.state.app_state
    return found


# ---------------------------------------------------------------------- one session in a list


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """What goes on in a session, in one transaction."""

    open: Compaction | None
    holder: Holder | None
    turn: OpenTurn | None


def activity_of(app_state: AppState, tx: Transaction, state: SessionState) -> SessionActivity:
    journal = app_state.store.journal
    current = tx.compaction(state.id, state.open) if state.open is not None else None
    return SessionActivity(
        current,
        journal.holds(tx, current),
        turns.opened(journal, tx, state) if state.turn else None,
    )


def problems(state: SessionState, goes_on: SessionActivity, limits: Limits | None, now: float) -> list[str]:
    """What somebody should look at, in words."""
    found = []
    if state.failures:
        times = "once" if state.failures == 1 else f"{state.failures} times in a row"
        found.append(f"compaction failed {times}")
    if limits is not None and state.tokens > limits.hard_tokens:
        found.append(f"over the hard limit: {state.tokens:,} of {limits.hard_tokens:,} tokens")
    current, turn = goes_on.open, goes_on.turn
    if current is not None and current.state == "running" and goes_on.holder is None:
        found.append(f"whoever compacts it is silent: {current.holder}")
    if turn is not None and now >= turn.until:
        found.append(f"the writer of its turn is silent: {turn.owner or turn.holder}")
    return found


def suspicious(app_state: AppState, tx: Transaction, state: SessionState) -> bool:
    """Whether a session may have a problem, by what is known without looking closer."""
    if state.failures or state.turn or state.open:
        return True
    limits = app_state.limits(tx, state) if state.tokens * 4 > state.window else None
    return limits is not None and state.tokens > limits.hard_tokens


def row(
    app_state: AppState, tx: Transaction, state: SessionState, goes_on: SessionActivity | None = None
) -> SessionJson:
    seen = goes_on or activity_of(app_state, tx, state)
    keeper = keeper_of(tx, state)
    limits = app_state.limits(tx, state) if keeper == "onefold" else None
    return session_json(
        state,
        title=app_state.titles.of(tx, state),
        limits=limits,
        holder=seen.holder,
        keeper=keeper,
        usage=_usage(app_state, state) if keeper == "agent" else None,
        problems=problems(state, seen, limits, tx.now),
    )


def keeper_of(tx: Transaction, state: SessionState) -> str:
    """Who compacts a session. Where its agent does by itself, the journal's size says nothing about its context."""
    head = tx.segment(state.id, state.head)
    return head.keeper if head is not None else "onefold"


def _usage(app_state: AppState, state: SessionState) -> UsageJson | None:
    """How full the agent says that its own context is; None if it has not said so to this server."""
    room = app_state.host.rooms.get(state.id) if app_state.host is not None else None
    usage = room.compactions.usage if room is not None else None
    return {"used": usage.used, "size": usage.size} if usage is not None else None


# ---------------------------------------------------------------------- the whole of one


def snapshot(app_state: AppState, tx: Transaction, state: SessionState) -> SnapshotJson:
    goes_on = activity_of(app_state, tx, state)
    head = segment(tx, state.id, state.head)
    queued = (tx.record(state.id, n) for n in tx.inputs(state.id)[:_QUEUE]) if state.pending else ()
    return {
        "session": row(app_state, tx, state, goes_on),
        "head": segment_json(head),
        "provided": sorted(adoption.apart(tx, state.id, head)),
        "segments": [segment_json(s) for s in tx.segments(state.id)],
        "turn": turn_json(goes_on.turn, tx.now) if goes_on.turn is not None else None,
        "queue": [record_json(r) for r in queued if r is not None],
        **_room(app_state, state.id),
        "compaction": _compacting(tx, state, head, goes_on),
        "counters": {
            "records": state.last,
            "messages": state.messages,
            "tokens": state.tokens,
            "compactions": state.compactions,
            "committed": state.committed,
            "failures": state.failures,
        },
        "follow_from": state.last,
        "incarnation": app_state.store.generation,
    }


class _Room(TypedDict):
    agent: AgentJson | None
    questions: list[QuestionJson]
    clients: list[ClientJson]


def _room(app_state: AppState, session: str) -> _Room:
    """The agent that runs for a session here, what it asks, and who is there."""
    there = app_state.hub.clients(session) if app_state.hub is not None else ()
    clients: list[ClientJson] = [{"name": c.name, "since": c.since, "kind": c.kind} for c in there]
    room = app_state.host.rooms.get(session) if app_state.host is not None else None
    if room is None:
        return {"agent": _asleep(app_state, session), "questions": [], "clients": clients}
    stands = room.standing()
    return {"agent": stands["agent"], "questions": stands["questions"], "clients": [*clients, *stands["clients"]]}


def _asleep(app_state: AppState, session: str) -> AgentJson | None:
    """The agent that a session had before, which does not run here: it is started when somebody asks for something."""
    row = app_state.host.frames.room(session) if app_state.host is not None else None
    return {"name": row.agent, "phase": "closed", "trouble": None} if row is not None else None


def _compacting(tx: Transaction, state: SessionState, head: Segment, goes_on: SessionActivity) -> CompactingJson:
    ever = tx.compactions(state.id, open_only=False) if state.compactions else []
    started = [c.started_at for c in ever if c.started_at is not None]
    completed = [c.settled_at for c in ever if c.state == "committed" and c.settled_at is not None]
    current = goes_on.open
    return {
        "active": goes_on.holder is not None,
        "holder": holder_json(goes_on.holder),
        "age": max(0.0, round(tx.now - current.requested_at, 6)) if current is not None else None,
        "count": state.committed,
        "last_source": head.source,
        "last_started": max(started, default=None),
        "last_completed": max(completed, default=None),
        "open": compaction_json(current, goes_on.holder, tx.now) if current is not None else None,
    }


def attach(app_state: AppState, session: str, history: History, order: Order, limit: int) -> AttachJson:
    """A snapshot, a page of records, and the number to follow from: one moment."""

    def read_attach(tx: Transaction) -> AttachJson:
        state = known(tx, session)
        begins = {"none": state.last + 1, "segment": state.cut, "all": 1}[history]
        records, cursor = page(tx, state.id, begins, state.last + 1, order=order, limit=app_state.page(limit))
        return {**snapshot(app_state, tx, state), "records": records, "cursor": cursor}

    return app_state.store.journal.backend.read(read_attach)


def known(tx: Transaction, any_id: str) -> SessionState:
    """A session by its id, or by any other it is known by."""
    state = tx.session(any_id)
    return state if state is not None else lineage.get_session(tx, tx.owner(any_id) or any_id)


# ---------------------------------------------------------------------- records, in pages


def page(
    tx: Transaction, session: str, start: int, stop: int, *, order: Order, limit: int
) -> tuple[list[RecordJson], int | None]:
    """Records with start ≤ number < stop, from the oldest or from the newest on; and where the next page goes on: at
    this number as its start, or, from the newest, as its stop."""
    made, following = taken(_walk(tx, session, start, stop, order), limit)
    if following is None:
        return made, None
    return made, following.number if order == "oldest" else following.number + 1


def taken(records: Iterable[Record], limit: int) -> tuple[list[RecordJson], Record | None]:
    """So many records, or as many as fit into one answer; and the one that follows."""
    made: list[RecordJson] = []
    size = 0
    for record in records:
        if len(made) >= limit or size >= _BYTES:
            return made, record
        made.append(record_json(record))
        size += len(dumps(made[-1]))
    return made, None


def _walk(tx: Transaction, session: str, start: int, stop: int, order: Order) -> Iterator[Record]:
    """Records one after another, read a few at first, since they may be large, and then more at a time."""
    several = 8
    while start < stop:
        several = min(several, stop - start)
        first = start if order == "oldest" else stop - several
        found = lineage.records(tx, session, first, first + several, several)
        yield from found if order == "oldest" else reversed(found)
        start, stop = (first + several, stop) if order == "oldest" else (start, first)
        several = min(several * 2, 64)
