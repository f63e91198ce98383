"""The projection in plain dictionaries: what `verify` rebuilds from a journal, and what the in-memory store keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onefold.model import Compaction, KeyUse, Segment, SessionState
from onefold.storage.base import ProjectionSnapshot, UniqueViolation

K = TypeVar("K")
V = TypeVar("V")


class DictProjection:
    """The rows of one session. Every change can be taken back, newest first, for a transaction that fails."""

    def __init__(self, derived: ProjectionSnapshot | None = None) -> None:
        self.derived = derived or ProjectionSnapshot()
        self.undo: list[Callable[[], None]] = []
        self._by_base = {s.base: s for s in self.derived.segments.values()}

    def put_session(self, state: SessionState) -> None:
        before = self.derived.state

        def back() -> None:
            self.derived.state = before

        self.undo.append(back)
        self.derived.state = state

    def add_segment(self, session: str, segment: Segment) -> None:
        if segment.base in self._by_base:
            raise UniqueViolation(f"session {session!r}: segment {segment.base} has a successor already")
        self._put(self._by_base, segment.base, segment)
        self._put(self.derived.segments, segment.number, segment)

    def successor(self, base: int | None) -> Segment | None:
        return self._by_base.get(base)

    def compaction(self, session: str, id: str) -> Compaction | None:
        return self.derived.compactions.get(id)

    def put_compaction(self, compaction: Compaction) -> None:
        self._put(self.derived.compactions, compaction.id, compaction)

    def key(self, session: str, key: str) -> KeyUse | None:
        return self.derived.keys.get(key)

    def put_key(self, session: str, key: str, use: KeyUse) -> None:
        self._put(self.derived.keys, key, use)

    def add_input(self, session: str, number: int) -> None:
        self.derived.inputs.add(number)
        self.undo.append(lambda: self.derived.inputs.discard(number))

    def drop_input(self, session: str, number: int) -> None:
        if number in self.derived.inputs:
            self.derived.inputs.discard(number)
            self.undo.append(lambda: self.derived.inputs.add(number))

    def add_alias(self, session: str, alias: str) -> None:
        if alias in self.derived.aliases:
            raise UniqueViolation(f"session {session!r} is known by {alias!r} already")
        self.derived.aliases.add(alias)
        self.undo.append(lambda: self.derived.aliases.discard(alias))

    def _put(self, rows: dict[K, V], key: K, value: V) -> None:
        before = rows.get(key)

        def back() -> None:
            if before is None:
                del rows[key]
            else:
                rows[key] = before

        self.undo.append(back)
        rows[key] = value
