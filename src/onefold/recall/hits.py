"""What a search finds, and what becomes of it in the session's context. Each hit is read from the journal itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from onefold.journal import context_prefix, lineage
from onefold.journal.context_prefix import Front
from onefold.model import INPUT_QUEUED, MESSAGE, NOTE, SEGMENT_OPENED, Ranges, Record, Segment
from onefold.recall.excerpts import excerpt
from onefold.recall.query import Query
from onefold.recall.searchable_text import role, searched
from onefold.storage.base import Transaction

Place: TypeAlias = Literal["context", "masked", "past", "undone", "waiting"]
"""In the present context; there as one line; only in the journal, since it was compacted away or replaced; taken back;
or an input that nobody has taken."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One record that a search found."""

    session: str
    """Whose record it is: in a search in a fork, perhaps its parent."""
    number: int
    kind: str
    role: str
    at: float
    place: Place
    excerpt: str
    marks: Ranges
    """Where in the excerpt the words stand: from a character up to another one."""
    partial: bool = False
    """Only some of the words are in it: no record had them all."""

    @property
    def snippet(self) -> str:
        """The excerpt with the words marked: «so»."""
        parts, done = [], 0
        for start, stop in self.marks:
            parts += [self.excerpt[done:start], "«", self.excerpt[start:stop], "»"]
            done = stop
        return "".join((*parts, self.excerpt[done:]))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found, and what it could not look at."""

    hits: tuple[Hit, ...]
    behind: int = 0
    """Records that the time did not suffice to look at: search again."""
    indexed: bool = True
    """False if the journal itself was read through, the newest first: the index could not be used, or there is no word
    in the query."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is looked for, and where."""

    query: Query
    session: str | None
    limit: int
    undone: bool
    """Whether what was taken back counts."""

    def loosened(self) -> SearchRequest | None:
        loose = self.query.loosened()
        return None if loose is None else replace(self, query=loose)


@dataclass(frozen=True, slots=True)
class SessionSight:
    """A session as it is seen now: whose records belong to it, and which of them its context shows."""

    owners: dict[str, tuple[int, int]]
    """From a number up to another one, of each session that it has records of."""
    head: Segment
    front: Front

    @property
    def masked(self) -> set[int]:
        return {number for number, _ in self.head.masked}.difference(self.front.opening.pinned)

    def place(self, record: Record) -> Place:
        number, head = record.number, self.head
        if record.kind in (MESSAGE, NOTE) and lineage.is_hidden(head.hidden, number):
            return "undone"
        shown = False
        if record.kind == MESSAGE and number in self.masked:
            return "masked"
        if record.kind == MESSAGE:
            shown = number >= head.cut or number in self.front.shown
        elif record.kind == NOTE:
            standing = (*self.front.opening.notes, *(one.note for one in self.front.since if one.note is not None))
            shown = any(n.number == number for n in standing)
        elif record.kind == SEGMENT_OPENED:
            shown = number == head.summary
        elif record.kind == INPUT_QUEUED:
            return "waiting"
        return "context" if shown else "past"


def session_sight(tx: Transaction, session: str) -> SessionSight:
    state = lineage.get_session(tx, session)
    head = lineage.segment(tx, session, state.head)
    if head is None:
        raise AssertionError(f"session {session!r} has no segment {state.head}")  # `verify` says more
    owners = {owner: (first, stop) for owner, first, stop in lineage.record_ranges(tx, session, 1, state.last + 1)}
    return SessionSight(owners, head, context_prefix.of(tx, session, head, state.last + 1))


class HitReader:
    """Looks candidates up in the journal, in one transaction: what is erased, or does not match, is not a hit."""

    def __init__(self, tx: Transaction, ask: SearchRequest) -> None:
        self._tx = tx
        self._ask = ask
        self._query = ask.query
        self._sights: dict[str, SessionSight] = {}

    def hits(self, candidates: Iterable[tuple[str, int]]) -> Iterator[Hit]:
        for owner, number in candidates:
            record = self._tx.record(owner, number)
            if record is not None and (hit := self.hit(owner, record)) is not None:
                yield hit

    def hit(self, owner: str, record: Record) -> Hit | None:
        text = searched(record)
        if not text or not self._query.matches(text) or self._tx.session(owner) is None:
            return None
        seen = self._seen(self._ask.session or owner)
        first, stop = seen.owners.get(owner, (0, 0))
        place = seen.place(record)
        if not first <= record.number < stop or (place == "undone" and not self._ask.undone):
            return None
        piece, marks = excerpt(text, self._query)
        return Hit(owner, record.number, record.kind, role(record), record.at, place, piece, marks, self._query.some)

    def _seen(self, session: str) -> SessionSight:
        if session not in self._sights:
            self._sights[session] = session_sight(self._tx, session)
        return self._sights[session]
