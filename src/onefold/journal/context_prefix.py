"""What stands before a segment's tail, and what was marked since it began.

What stands in front is fixed when a segment begins: so within a segment a context only grows at its end. A note, a pin
or a prompt that is made since stands at its own place, and moves to the front with the next segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onefold.journal import lineage
from onefold.journal.lineage import Marks, PinsAndNotes
from onefold.messages.context_text import PINNED, PINNED_END, noted_here
from onefold.messages.parts import estimate, plain_header
from onefold.model import PIN_ADDED, Json, Note, Segment, SessionState
from onefold.storage.base import Transaction

_LINES = sum(plain_header("user", estimate(line)).tokens for line in (PINNED, PINNED_END))


@dataclass(frozen=True, slots=True)
class Since:
    """A mark that was made after its segment began."""

    number: int
    note: Note | None = None
    """What somebody noted there; without a text, that a note or a fact of this kind and key holds no longer."""
    before: Note | None = None
    """The note whose place it takes, or which it takes away."""
    brings: tuple[int, ...] = ()
    """Messages from before the cut that were pinned there and stand nowhere else: a whole tool group."""

    @property
    def words(self) -> str | None:
        """A note as it stands at its place."""
        return None if self.note is None else noted_here(self.note, self.before)


@dataclass(frozen=True, slots=True)
class Front:
    """What stands in every context, as a segment has it."""

    opening: PinsAndNotes
    """As it was when the segment began: this is what stands in front."""
    now: PinsAndNotes
    since: tuple[Since, ...]
    shown: frozenset[int]
    """Messages from before the cut that stand somewhere in the context."""


def of(tx: Transaction, session: str, segment: Segment, stop: int) -> Front:
    """The front of a segment, and what was marked since it began before a number."""
    opened, cut, hidden = segment.number, segment.cut, segment.hidden
    leading = lineage.leading(tx, session, stop, hidden)
    stands = Marks(hidden)
    marks = lineage.marks(tx, session, stop)
    for mark in marks:
        if mark.number < opened:
            stands.take(mark)
    opening = stands.standing(tuple(n for n in leading if n < opened))
    shown = {*opening.by_name(segment.kept, cut), *(n for n in opening.pinned if n < cut)}
    since: list[Since] = []
    for mark in marks:
        if mark.number < opened:
            continue
        note, before = stands.take(mark)
        if note is not None:
            since.append(Since(mark.number, note, before))
        elif mark.kind == PIN_ADDED and not lineage.is_prompt(mark):
            group = tuple(n for n in mark.body["numbers"] if n < cut and not lineage.is_hidden(hidden, n))
            if not shown.issuperset(group):
                since.append(Since(mark.number, brings=group))
                shown |= {*group}
    return Front(opening, stands.standing(leading), tuple(since), frozenset(shown))


def pin_tokens(tx: Transaction, session: str, numbers: Iterable[int]) -> int:
    """By how much messages that are brought back make a context larger, with the lines around them."""
    brought = (lineage.record(tx, session, n) for n in numbers)
    return _LINES + sum(r.header.tokens for r in brought if r is not None and r.header is not None)


def note_tokens(note: Note, before: Note | None) -> int:
    """By how much a note makes a context larger."""
    return estimate(noted_here(note, before))


def size(tx: Transaction, state: SessionState, head: Segment, told: Mapping[str, Json] | None) -> int:
    """The size of the context as the segment in force has it now, from what it is made of."""
    begins = lineage.context_tokens(tx, state.id, head, head.number - 1, told=told)
    later = lineage.tokens(tx, state.id, max(head.cut, head.number), state.last + 1, head.hidden)
    since = of(tx, state.id, head, state.last + 1).since
    return begins + later + sum(_weighs(tx, state.id, one) for one in since)


def _weighs(tx: Transaction, session: str, one: Since) -> int:
    if one.note is not None:
        return note_tokens(one.note, one.before)
    return pin_tokens(tx, session, one.brings)
