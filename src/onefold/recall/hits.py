"""What a search finds, and what becomes of it in the session's context. Each hit is read from the journal itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from onefold.journal import context_prefix, lineage
from onefold.journal.context_prefix import Front
from onefold.model import INPUT_QUEUED, MESSAGE, NOTE, SEGMENT_OPENED, Ranges, Record, Segment
from onefold.recall.excerpts import excerpt
from onefold.recall.query import Query
from onefold.recall.searchable_text import role, searched, speaker
from onefold.storage.base import Transaction

Place: TypeAlias = Literal["context", "masked", "past", "undone", "waiting"]
"""In the present context; there as one line; only in the journal, since it was compacted away or replaced; taken back;
or an input that nobody has taken."""


REACH = 6
"""How many records before and behind one count for it."""
_SURROUNDING = 160


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What was said right before or after a hit, shortened."""

    number: int
    role: str
    excerpt: str


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
    """Only some of the words are in it, or none of them."""
    nearby: bool = False
    """None of the words is in it: they stand in what was said around it."""
    around: tuple[Surrounding, ...] = ()
    """What was said before it and after it."""

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
    in_view: bool = True
    """Whether what the context shows counts."""
    around: bool = False
    """Whether to show what was said around a hit."""
    forks: bool = False
    """Whether the session's forks count too."""


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
        if not text or self._tx.session(owner) is None:
            return None
        some, whole = self._query.found_in(text, speaker(record))
        if some < 0 or (not some and not self._counts(owner, record)):
            return None
        seen = self._seen(self._ask.session or owner)
        if self._ask.forks and owner not in seen.owners:
            seen = self._seen(owner)
        first, stop = seen.owners.get(owner, (0, 0))
        place = seen.place(record)
        if not first <= record.number < stop or not self._wanted(place):
            return None
        piece, marks = excerpt(text, self._query)
        partial = whole < len(self._query.wanted)
        around = tuple(self._around(owner, record, seen)) if self._ask.around else ()
        return Hit(
            owner, record.number, record.kind, role(record), record.at, place, piece, marks, partial, not some, around
        )

    def _wanted(self, place: Place) -> bool:
        return (self._ask.undone or place != "undone") and (self._ask.in_view or place != "context")

    def _counts(self, owner: str, record: Record) -> bool:
        """Whether a record without any of the words is one, by its time or by what the journal has around it."""
        if any(span.holds(record.at) for span in self._query.times):
            return True
        return self._query.asks and any(
            self._query.found_in(searched(other), speaker(other))[0] > 0 for other in self._near(owner, record, REACH)
        )

    def _near(self, owner: str, record: Record, most: int) -> Iterator[Record]:
        """The records in which something is said that stand next to one, so many before it and behind it."""
        number = record.number
        page = self._tx.records(owner, max(1, number - 4 * most), number + 4 * most + 1, 8 * most + 1)
        saying = [one for one in page if one.number == number or searched(one)]
        here = next((i for i, one in enumerate(saying) if one.number == number), 0)
        yield from (one for i, one in enumerate(saying) if i != here and abs(i - here) <= most)

    def _around(self, owner: str, record: Record, seen: SessionSight) -> Iterator[Surrounding]:
        first, stop = seen.owners[owner]
        for other in self._near(owner, record, 1):
            if first <= other.number < stop and seen.place(other) != "undone":
                text = " ".join(searched(other)[: 4 * _SURROUNDING].split())
                short = text if len(text) <= _SURROUNDING else text[:_SURROUNDING] + "…"
                yield Surrounding(other.number, role(other), short)

    def _seen(self, session: str) -> SessionSight:
        if session not in self._sights:
            self._sights[session] = session_sight(self._tx, session)
        return self._sights[session]
