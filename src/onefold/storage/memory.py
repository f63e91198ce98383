"""A store in memory, for tests: the same contract, gone with the process."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from onefold.errors import StoreError
from onefold.ids import random_id, system_clock
from onefold.messages import decode
from onefold.model import ASKING, MARKS, MESSAGE, Clock, Compaction, KeyUse, Lease, Record, Segment, SessionState
from onefold.storage.base import MessageHeader, ProjectionSnapshot, Transaction, UniqueViolation
from onefold.storage.memory_projection import DictProjection

T = TypeVar("T")


class MemoryLeases:
    def __init__(self) -> None:
        self._rows: dict[str, Lease] = {}

    def get(self, session: str) -> Lease | None:
        return self._rows.get(session)

    def put(self, session: str, lease: Lease) -> None:
        self._rows[session] = lease

    def drop(self, session: str) -> None:
        self._rows.pop(session, None)


class SessionData:
    """One session in memory: its records, with bodies as text so that nobody can change them, and its rows."""

    def __init__(self) -> None:
        self.records: list[tuple[Record, str]] = []
        self.rows = DictProjection()

    @property
    def first(self) -> int:
        """The number of its first record; a fork's own begin after its parent's."""
        return self.records[0][0].number if self.records else 1

    def between(self, start: int, stop: int) -> list[tuple[Record, str]]:
        return self.records[max(start - self.first, 0) : max(stop - self.first, 0)]


class MemoryData:
    """All that a store in memory has."""

    def __init__(self) -> None:
        self.shelves: dict[str, SessionData] = {}
        self.leases = MemoryLeases()
        self.turn_leases = MemoryLeases()
        self.tombstones: dict[str, str] = {}
        self.ids: list[str] = []
        """Of all shelves, in order."""

    def put(self, session: str, shelf: SessionData) -> None:
        bisect.insort(self.ids, session)
        self.shelves[session] = shelf

    def take(self, session: str) -> SessionData | None:
        shelf = self.shelves.pop(session, None)
        if shelf is not None:
            del self.ids[bisect.bisect_left(self.ids, session)]
        return shelf


class MemoryTransaction:
    def __init__(self, room: MemoryData, now: float) -> None:
        self._room = room
        self._shelves = room.shelves
        self._before: dict[str, int | None] = {}
        """How many records the sessions had that it wrote to; None for one that was not there."""
        self._undo: list[Callable[[], None]] = []
        self.leases = room.leases
        self.turn_leases = room.turn_leases
        self.now = now

    def roll_back(self) -> None:
        while self._undo:
            self._undo.pop()()
        for id, before in self._before.items():
            if before is None:
                self._room.take(id)
                continue
            shelf = self._shelves[id]
            del shelf.records[before:]
            while shelf.rows.undo:
                shelf.rows.undo.pop()()

    def end(self) -> None:
        for id in self._before:
            self._shelf(id).rows.undo.clear()

    def usable(self) -> bool:
        return True

    def _shelf(self, session: str) -> SessionData:
        return self._shelves.get(session) or SessionData()

    def _changing(self, session: str) -> SessionData:
        """A session that is written to, there already or not."""
        shelf = self._shelves.get(session)
        self._before.setdefault(session, None if shelf is None else len(shelf.records))
        if shelf is None:
            shelf = SessionData()
            self._room.put(session, shelf)
        return shelf

    def add(self, session: str, record: Record, data: str) -> None:
        self._changing(session).records.append((record, data))

    def record(self, session: str, number: int) -> Record | None:
        found = self.records(session, number, number + 1, 1)
        return found[0] if found else None

    def records(self, session: str, start: int, stop: int, limit: int) -> list[Record]:
        return [_fresh(record, data) for record, data in self._shelf(session).between(start, stop)[:limit]]

    def messages(self, session: str, start: int, stop: int) -> list[Record]:
        return self._of_kind(session, start, stop, MESSAGE)

    def some(self, session: str, numbers: Sequence[int]) -> list[Record]:
        return [r for n in sorted({*numbers}) for r in self.messages(session, n, n + 1)]

    def marks(self, session: str, start: int, stop: int) -> list[Record]:
        return self._of_kind(session, start, stop, *MARKS)

    def _of_kind(self, session: str, start: int, stop: int, *kinds: str) -> list[Record]:
        return [_fresh(r, data) for r, data in self._shelf(session).between(start, stop) if r.kind in kinds]

    def headers(self, session: str, start: int, stop: int, *, tools_only: bool = False) -> list[MessageHeader]:
        return [
            MessageHeader(r.number, r.header, r.turn)
            for r, _ in self._shelf(session).between(start, stop)
            if r.kind == MESSAGE and r.header and (r.header.call_ids or r.header.result_ids or not tools_only)
        ]

    def tokens(self, session: str, start: int, stop: int) -> int:
        return sum(h.header.tokens for h in self.headers(session, start, stop))

    def last_user(self, session: str, start: int, stop: int) -> int | None:
        asked = (h.number for h in reversed(self.headers(session, start, stop)) if h.header.role in ASKING)
        return next(asked, None)

    def last_number(self, session: str) -> int:
        shelf = self._shelf(session)
        return shelf.first + len(shelf.records) - 1

    def rewrite(self, session: str, record: Record, data: str) -> None:
        shelf = self._changing(session)
        place = record.number - shelf.first
        before = shelf.records[place]
        self._undo.append(lambda: shelf.records.__setitem__(place, before))
        shelf.records[place] = (record, data)

    def session(self, session: str) -> SessionState | None:
        return self._shelf(session).rows.derived.state

    def put_session(self, state: SessionState) -> None:
        self._changing(state.id).rows.put_session(state)

    def sessions(self, limit: int, after: tuple[float, str] | None) -> list[SessionState]:
        states = [s.rows.derived.state for s in self._shelves.values()]
        known = sorted((s for s in states if s is not None), key=lambda s: (s.touched_at, s.id), reverse=True)
        return [s for s in known if after is None or (s.touched_at, s.id) < after][:limit]

    def walk(self, limit: int, after: str) -> list[tuple[str, SessionState | None]]:
        begins = bisect.bisect_right(self._room.ids, after)
        return [(id, self.session(id)) for id in self._room.ids[begins : begins + limit]]

    def lasts(self, sessions: Sequence[str]) -> dict[str, int]:
        states = (self.session(session) for session in sessions)
        return {state.id: state.last for state in states if state is not None}

    def segment(self, session: str, number: int) -> Segment | None:
        return self._shelf(session).rows.derived.segments.get(number)

    def segment_at(self, session: str, number: int) -> Segment | None:
        there = [s for s in self._shelf(session).rows.derived.segments.values() if s.number <= number]
        return there[-1] if there else None

    def successor(self, session: str, base: int) -> Segment | None:
        return self._shelf(session).rows.successor(base)

    def segments(self, session: str) -> list[Segment]:
        return list(self._shelf(session).rows.derived.segments.values())

    def add_segment(self, session: str, segment: Segment) -> None:
        self._changing(session).rows.add_segment(session, segment)

    def compaction(self, session: str, id: str) -> Compaction | None:
        return self._shelf(session).rows.compaction(session, id)

    def put_compaction(self, compaction: Compaction) -> None:
        self._changing(compaction.session).rows.put_compaction(compaction)

    def compactions(self, session: str | None, *, open_only: bool) -> list[Compaction]:
        shelves = self._shelves.values() if session is None else [self._shelf(session)]
        every = [c for s in shelves for c in s.rows.derived.compactions.values() if c.open or not open_only]
        return sorted(every, key=lambda c: (c.requested_at, c.id))

    def open_compactions(self) -> Iterator[Compaction]:
        return iter(self.compactions(None, open_only=True))

    def key(self, session: str, key: str) -> KeyUse | None:
        return self._shelf(session).rows.key(session, key)

    def keys(self, session: str, keys: Sequence[str]) -> dict[str, KeyUse]:
        return {key: use for key in keys if (use := self.key(session, key)) is not None}

    def put_key(self, session: str, key: str, use: KeyUse) -> None:
        self._changing(session).rows.put_key(session, key, use)

    def add_input(self, session: str, number: int) -> None:
        self._changing(session).rows.add_input(session, number)

    def drop_input(self, session: str, number: int) -> None:
        self._changing(session).rows.drop_input(session, number)

    def next_input(self, session: str) -> int | None:
        return min(self._shelf(session).rows.derived.inputs, default=None)

    def inputs(self, session: str) -> list[int]:
        return sorted(self._shelf(session).rows.derived.inputs)

    def add_alias(self, session: str, alias: str) -> None:
        if self.owner(alias) is not None:
            raise UniqueViolation(f"a session is known by {alias!r} already")
        self._changing(session).rows.add_alias(session, alias)

    def owner(self, alias: str) -> str | None:
        return next((id for id, s in self._shelves.items() if alias in s.rows.derived.aliases), None)

    def forks(self, session: str) -> list[SessionState]:
        states = (s.rows.derived.state for _, s in sorted(self._shelves.items()))
        return [s for s in states if s is not None and s.parent == session]

    def wipe(self, session: str, ids: Sequence[str]) -> None:
        shelf, stones = self._room.take(session), dict(self._room.tombstones)

        def back() -> None:
            if shelf is not None:
                self._room.put(session, shelf)
            self._room.tombstones = stones

        self._undo.append(back)
        self._room.tombstones |= dict.fromkeys(ids, session)
        self.leases.drop(session)
        self.turn_leases.drop(session)

    def deleted(self, id: str) -> str | None:
        return self._room.tombstones.get(id)

    def tombstones(self, limit: int, after: str) -> list[tuple[str, str]]:
        return sorted((id, session) for id, session in self._room.tombstones.items() if id > after)[:limit]

    def looks_right(self, session: str) -> bool:
        state = self.session(session)
        return state is not None and state.last == self.last_number(session)

    def derived(self, session: str) -> ProjectionSnapshot:
        return self._shelf(session).rows.derived

    def replace(self, session: str, derived: ProjectionSnapshot) -> None:
        self._changing(session).rows = DictProjection(derived)


class MemoryBackend:
    """One writer at a time, readers included: simple, and quick enough for tests."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self.address = "memory:"
        self.generation = random_id()
        self._clock = clock
        self._room = MemoryData()
        self._changed = threading.Condition(threading.RLock())
        self._version = 0
        self._closed = False

    def write(
        self, session: str, work: Callable[[Transaction], T], *, size: int = 0, patient: bool = True
    ) -> T:  # fmt: skip
        with self._changed:
            self._check_open()
            tx = MemoryTransaction(self._room, self._clock())
            try:
                result = work(tx)
            except BaseException:
                tx.roll_back()
                raise
            tx.end()
            self._version += 1
            self._changed.notify_all()
            return result

    def read(self, work: Callable[[Transaction], T]) -> T:
        with self._changed:
            self._check_open()
            return work(MemoryTransaction(self._room, self._clock()))

    @property
    def writing(self) -> bool:
        return False

    def version(self) -> int:
        return self._version

    def wait(self, version: int, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._closed, timeout)
            self._check_open()

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        return []

    def purge(self, *, whole: bool = False) -> bool:
        return True

    def backup(self, path: str, generation: str, progress: Callable[[int, int], None] | None) -> None:
        raise StoreError("a store in memory has no backup; copy its sessions into a file store")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("this store in memory is closed, and what was in it is gone")


def _fresh(record: Record, data: str) -> Record:
    return Record(
        record.number, record.id, record.kind, record.at, decode(data), record.format, record.header, record.key,
        record.turn, record.actor,
    )  # fmt: skip
