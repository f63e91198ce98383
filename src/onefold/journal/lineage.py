"""A session as it is seen: a fork's past in its parent, without what is hidden, with what stands in every context.

Everything that reads a journal by number goes through here, so that a fork reads like any other session.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onefold.errors import CommitRefused, SessionNotFound
from onefold.journal import quote_refs
from onefold.journal.checks import commit_refused
from onefold.journal.quote_refs import Quoting
from onefold.messages.codecs import estimate
from onefold.messages.context_text import facts_block, notes_block, summary_block
from onefold.messages.quotation import utterances
from onefold.messages.tool_groups import LEADING, group
from onefold.model import (
    AGENT_ENDED,
    AGENT_STARTED,
    CANCELLED,
    COMMITTED,
    DRAFTED,
    ERASED,
    FAILED,
    FORK,
    INPUT_QUEUED,
    INPUT_TAKEN,
    JOINED,
    LIMITS,
    MESSAGE,
    NOTE,
    PIN_ADDED,
    PIN_REMOVED,
    REQUESTED,
    SEGMENT_OPENED,
    SKIPPED,
    STARTED,
    SUPERSEDED,
    TURN_SETTLED,
    TURN_STARTED,
    Claim,
    Fact,
    Json,
    Note,
    Quotes,
    Ranges,
    Record,
    Segment,
    SessionState,
)
from onefold.storage.base import MessageHeader, Transaction

_PAGE = 500
_FEW = 16
_SILENT = frozenset({
    SEGMENT_OPENED, REQUESTED, JOINED, STARTED, COMMITTED, FAILED, CANCELLED, SUPERSEDED, SKIPPED, TURN_STARTED,
    TURN_SETTLED, LIMITS, INPUT_QUEUED, INPUT_TAKEN, AGENT_STARTED, AGENT_ENDED, DRAFTED,
})  # fmt: skip
"""Records that only say what happened. Of kinds that are not known here nobody can say that they mean nothing."""

Stretch = tuple[int, int]
"""From a number up to, but not including, another."""
Masks = tuple[tuple[int, int], ...]
"""Results that are shown as one line, each with the tokens that saves."""


def get_session(tx: Transaction, session: str) -> SessionState:
    state = tx.session(session)
    if state is None:
        raise SessionNotFound(session, deleted=tx.deleted(session) is not None)
    return state


def limits(tx: Transaction, state: SessionState) -> dict[str, Json] | None:
    """What its agent goes by, as it said so or as a fork took it along; None if nobody did."""
    said = tx.record(state.id, state.limits) if state.limits else None
    return said.body.get("limits") if said is not None and isinstance(said.body, dict) else None


# ---------------------------------------------------------------------- whose records, and which of them


def record_ranges(tx: Transaction, session: str, start: int, stop: int) -> list[tuple[str, int, int]]:
    """Whose records start ≤ number < stop are, the oldest first: a fork's early ones are its parent's."""
    return [*_backwards(tx, session, start, stop)][::-1]


def _backwards(tx: Transaction, session: str, start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """The same, the newest first, and no further than it is asked for: a line of forks may be long."""
    state: SessionState | None = get_session(tx, session)
    while state is not None and start < stop:
        own = max(start, state.forked_at + 1)
        if own < stop:
            yield state.id, own, stop
        stop = min(stop, state.forked_at + 1)
        state = tx.session(state.parent) if state.parent is not None else None


def visible(hidden: Ranges, start: int, stop: int) -> Iterator[Stretch]:
    """What is left of a stretch without the hidden ranges."""
    for first, last in hidden:
        if start < min(first, stop):
            yield start, min(first, stop)
        start = max(start, last + 1)
    if start < stop:
        yield start, stop


def hide(hidden: Ranges, *more: tuple[int, int]) -> Ranges:
    """The ranges with more of them, joined where they touch."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*hidden, *more)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def is_hidden(hidden: Ranges, number: int) -> bool:
    return any(first <= number <= last for first, last in hidden)


def united(*masks: Masks) -> Masks:
    """What is masked in any of some views."""
    return tuple(sorted({number: saves for some in masks for number, saves in some}.items()))


def cut_at(base: Segment, cut: int, kept: Sequence[int]) -> Segment:
    """A segment as its successor is that cuts there. What is masked behind the cut stays so; a provider's item that the
    segment had is none of its successor's, which is made of plain text."""
    return replace(base, cut=cut, kept=tuple(kept), masked=tuple(m for m in base.masked if m[0] >= cut), item=None)


def joined(tx: Transaction, session: str, hidden: Ranges) -> Ranges:
    """The same view in fewer ranges: what lies between two of them is hidden with them, if nobody could tell. So who
    takes an answer back again and again has one range, and not one for each time."""
    fewer: list[tuple[int, int]] = []
    for first, last in hidden:
        if fewer and _silent(tx, session, fewer[-1][1] + 1, first):
            fewer[-1] = (fewer[-1][0], last)
        else:
            fewer.append((first, last))
    return tuple(fewer)


def same_before(tx: Transaction, session: str, cut: int, one: Ranges, other: Ranges) -> bool:
    """Whether two views hide the same before a cut: then a summary of one is a summary of the other. What nobody can
    see counts for neither: of the same view, one may have been written in more ranges than the other."""
    if [*visible(one, 1, cut)] == [*visible(other, 1, cut)]:
        return True
    return all(_silent(tx, session, a, b) for a, b in (*_only(one, other, cut), *_only(other, one, cut)))


def _only(here: Ranges, there: Ranges, stop: int) -> Iterator[Stretch]:
    """What one view hides before a number and the other does not."""
    for first, last in here:
        yield from visible(there, first, min(last + 1, stop))


def _silent(tx: Transaction, session: str, start: int, stop: int) -> bool:
    """Whether nothing in a stretch can be seen in any context, so that it does not matter if it is hidden. Of records
    that are gone with a deleted session that cannot be said."""
    while start < stop:
        page = records(tx, session, start, stop, _FEW)
        if not page or page[0].number != start or any(r.kind not in _SILENT for r in page):
            return False
        start = page[-1].number + 1
    return True


def taken_back(tx: Transaction, session: str, numbers: Iterable[int]) -> tuple[int, ...]:
    """Those of some records that no context has, since they were undone or erased. An input is what became of it: so it
    counts if its message does, or if it was withdrawn."""
    head = segment(tx, session, get_session(tx, session).head)
    hidden = head.hidden if head is not None else ()

    def gone(number: int) -> bool:
        there = record(tx, session, number)
        if there is None:
            return False
        if there.kind == ERASED or is_hidden(hidden, number):
            return True
        took = taken(tx, session, number) if there.kind == INPUT_QUEUED else None
        return took is not None and (by_nobody(took) or gone(took.number + 1))

    return tuple(n for n in numbers if gone(n))


def taken(tx: Transaction, session: str, number: int) -> Record | None:
    """The record that says that an input was taken."""
    start, last = number + 1, get_session(tx, session).last
    while page := tx.records(session, start, last + 1, _PAGE):
        for one in page:
            if one.kind == INPUT_TAKEN and one.body["input"] == number:
                return one
        start = page[-1].number + 1
    return None


def by_nobody(taken: Record) -> bool:
    """Whether an input was erased or taken back before a turn had it: then the next record is not its message."""
    return bool(taken.body.get("erased") or taken.body.get("unqueued"))


def record(tx: Transaction, session: str, number: int) -> Record | None:
    found = [tx.record(owner, number) for owner, _, _ in record_ranges(tx, session, number, number + 1)]
    return found[0] if found else None


def records(tx: Transaction, session: str, start: int, stop: int, limit: int) -> list[Record]:
    found: list[Record] = []
    for owner, first, end in record_ranges(tx, session, start, stop):
        if len(found) < limit:
            found += tx.records(owner, first, end, limit - len(found))
    return found


def messages(tx: Transaction, session: str, start: int, stop: int, hidden: Ranges = ()) -> list[Record]:
    return [r for owner, a, b in _seen(tx, session, start, stop, hidden) for r in tx.messages(owner, a, b)]


def some(tx: Transaction, session: str, numbers: Sequence[int]) -> list[Record]:
    """The messages among these records, all of a session's own, and all of each of its parents', at once."""
    wanted = sorted({*numbers})
    if not wanted:
        return []
    found: list[Record] = []
    for owner, first, end in record_ranges(tx, session, wanted[0], wanted[-1] + 1):
        found += tx.some(owner, [n for n in wanted if first <= n < end])
    return found


def headers(
    tx: Transaction, session: str, start: int, stop: int, hidden: Ranges = (), *, tools_only: bool = False
) -> list[MessageHeader]:
    seen = _seen(tx, session, start, stop, hidden)
    return [h for owner, a, b in seen for h in tx.headers(owner, a, b, tools_only=tools_only)]


def tokens(tx: Transaction, session: str, start: int, stop: int, hidden: Ranges = ()) -> int:
    return sum(tx.tokens(owner, a, b) for owner, a, b in _seen(tx, session, start, stop, hidden))


def last_user(tx: Transaction, session: str, stop: int, hidden: Ranges = ()) -> int | None:
    """The newest message of a user before a number."""
    for owner, first, end in _backwards(tx, session, 1, stop):
        for a, b in reversed([*visible(hidden, first, end)]):
            if (number := tx.last_user(owner, a, b)) is not None:
                return number
    return None


def last_message(tx: Transaction, session: str, stop: int, hidden: Ranges = ()) -> Record | None:
    """The newest message before a number."""
    for owner, first, end in _backwards(tx, session, 1, stop):
        for a, b in reversed([*visible(hidden, first, end)]):
            for upto in range(b, a, -_PAGE):
                if found := tx.headers(owner, max(a, upto - _PAGE), upto):
                    return tx.record(owner, found[-1].number)
    return None


def _seen(tx: Transaction, session: str, start: int, stop: int, hidden: Ranges) -> Iterator[tuple[str, int, int]]:
    for owner, first, end in record_ranges(tx, session, start, stop):
        for a, b in visible(hidden, first, end):
            yield owner, a, b


# ---------------------------------------------------------------------- boundaries


def segment(tx: Transaction, session: str, number: int) -> Segment | None:
    """A segment of a session, or of its past in its parent."""
    found = [tx.segment(owner, number) for owner, _, _ in record_ranges(tx, session, number, number + 1)]
    return found[0] if found else None


def segment_at(tx: Transaction, session: str, number: int) -> Segment | None:
    """The segment in force at a number."""
    for owner, _, end in _backwards(tx, session, 1, number + 1):
        if (found := tx.segment_at(owner, end - 1)) is not None:
            return found
    return None


def origin(tx: Transaction, session: str, of: Segment) -> Segment:
    """The segment itself, or the one that it stands on if it only masks: what was tried or taken back there holds."""
    found = None if of.origin is None else segment(tx, session, of.origin)
    return of if found is None else found


def masked_since(tx: Transaction, session: str, head: Segment, base: int) -> bool:
    """Whether nothing but masks came after a segment, if there is one of that number."""
    return origin(tx, session, head).number <= base and segment(tx, session, base) is not None


def segments(tx: Transaction, session: str, stop: int) -> Iterator[Segment]:
    """Every boundary before a number, the newest first, those of its past in its parent included."""
    number = stop - 1
    while number > 0 and (found := segment_at(tx, session, number)) is not None:
        yield found
        number = found.number - 1


def summary(tx: Transaction, session: str, of: Segment) -> Record | None:
    """The record that holds a segment's summary."""
    return None if of.summary is None else record(tx, session, of.summary)


def open_groups(
    tx: Transaction, session: str, stop: int, hidden: Ranges, newest: Segment | None = None
) -> list[list[int]]:
    """The messages before `stop` that make calls without all their results, each with the others of its group. What a
    turn left open that was over by then counts as closed, and for a fork its parent's turns are over. `newest` is the
    segment in force there, if it is known."""
    if newest is not None and newest.cut < stop:
        start = newest.cut
    else:
        start = next((s.cut for s in segments(tx, session, stop) if s.cut < stop), 1)
    if not _unanswered(headers(tx, session, start, stop, hidden, tools_only=True)):
        return []
    found = headers(tx, session, start, stop, hidden)
    turn = {h.number: h.turn for h in found}
    waiting = [g for g in group((h.number, h.header) for h in found).groups if not g.closed]
    if not waiting:
        return []
    settled, forked = _ends_of_turns(tx, session, waiting[0].first, stop)
    return [g.members for g in waiting if turn[g.first] is None or (turn[g.first] not in settled and g.first > forked)]


def _ends_of_turns(tx: Transaction, session: str, start: int, stop: int) -> tuple[set[str | None], int]:
    """The turns that were settled in a stretch, and where in it the newest fork began: 0 if none did."""
    settled: set[str | None] = set()
    forked = 0
    while start < stop and (page := records(tx, session, start, stop, 500)):
        settled |= {r.turn for r in page if r.kind == TURN_SETTLED}
        forked = max((r.number for r in page if r.kind == FORK), default=forked)
        start = page[-1].number + 1
    return settled, forked


def _unanswered(calls: Iterable[MessageHeader]) -> bool:
    """A quick look: whether any call may be without its result."""
    waiting: set[str] = set()
    for h in calls:
        waiting -= {*h.header.result_ids}
        waiting |= {*h.header.call_ids}
    return bool(waiting)


# ---------------------------------------------------------------------- what stands in every context


@dataclass(frozen=True, slots=True)
class PinsAndNotes:
    """What stands in every context, wherever the cut lies."""

    pinned: frozenset[int] = frozenset()
    """Messages that stay verbatim."""
    notes: tuple[Note, ...] = ()
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Kind and key of what somebody took away with an empty note, and when: older facts of that name are gone too."""
    prompt: tuple[int, ...] = ()
    """The system and developer messages in force: those that the session begins with, or what replaced them."""
    replaced: frozenset[int] = frozenset()
    """Those that were in force before, and are not pinned."""

    def tokens(self) -> int:
        return estimate(notes_block(self.notes)) if self.notes else 0

    def by_name(self, kept: Iterable[int], cut: int) -> list[int]:
        """Messages from before a cut that a segment shows by name, its `kept` ones and the prompt, in order. A prompt
        that was replaced since its cut was planned is none of them."""
        return sorted({*kept}.difference(self.replaced) | {n for n in self.prompt if n < cut})


def load_pins_and_notes(tx: Transaction, session: str, stop: int, hidden: Ranges) -> PinsAndNotes:
    """The prompt, pins and notes before a number. A note is part of the conversation, so an undo takes it back too; a
    pin is somebody's decision about a message, and holds as long as that is in view, and so does a prompt."""
    stands = Marks(hidden)
    for mark in marks(tx, session, stop):
        stands.take(mark)
    return stands.standing(leading(tx, session, stop, hidden))


def marks(tx: Transaction, session: str, stop: int) -> list[Record]:
    """Pins, notes and the like before a number, in order. A view from before an erasure does not hide what was erased:
    so that is looked at here for prompts, which replace others."""
    found = [mark for owner, first, end in record_ranges(tx, session, 1, stop) for mark in tx.marks(owner, first, end)]
    named = [n for mark in found if is_prompt(mark) for n in mark.body["numbers"]]
    there = {r.number for r in some(tx, session, named) if r.kind == MESSAGE} if named else set()
    if there.issuperset(named):
        return found
    return [_narrowed(mark, there) if is_prompt(mark) else mark for mark in found]


def _narrowed(prompt: Record, there: Container[int]) -> Record:
    return prompt._replace(body=prompt.body | {"numbers": [n for n in prompt.body["numbers"] if n in there]})


def leading(tx: Transaction, session: str, stop: int, hidden: Ranges) -> tuple[int, ...]:
    """The system and developer messages before a number that a session begins with. The rest of it is not read."""
    found: list[int] = []
    for owner, first, end in _seen(tx, session, 1, stop, hidden):
        start, size = first, _FEW
        while start < end:
            for h in tx.headers(owner, start, min(start + size, end)):
                if h.header.role not in LEADING:
                    return tuple(found)
                found.append(h.number)
            start, size = start + size, size * 2
    return tuple(found)


class Marks:
    """What marks amount to, one after another."""

    def __init__(self, hidden: Ranges) -> None:
        self._hidden = hidden
        self._pinned: set[int] = set()
        self._prompts: list[list[int]] = []
        self._notes: dict[tuple[str, str], Note] = {}
        self._dropped: dict[tuple[str, str], int] = {}

    def take(self, mark: Record) -> tuple[Note | None, Note | None]:
        """Takes one more. Of a note in view, what it says and the one whose place it takes; an empty text takes that
        away."""
        body = mark.body
        if is_prompt(mark):
            self._prompts.append([n for n in body["numbers"] if not is_hidden(self._hidden, n)])
        elif mark.kind == PIN_ADDED:
            self._pinned |= {*body["numbers"]}
        elif mark.kind == PIN_REMOVED:
            self._pinned -= {*body["numbers"]}
        elif mark.kind == NOTE and not is_hidden(self._hidden, mark.number):
            note = Note(
                mark.number, body["kind"], body["text"], body.get("key") or f"#{mark.number}", mark.actor, mark.at
            )
            name = note.kind, note.key
            before = self._notes.pop(name, None)
            self._dropped[name] = mark.number
            if note.text:
                del self._dropped[name]
                self._notes[name] = note
            return note, before
        return None, None

    def standing(self, leading: tuple[int, ...]) -> PinsAndNotes:
        pinned = frozenset(n for n in self._pinned if not is_hidden(self._hidden, n))
        prompts = [leading, *(tuple(some) for some in self._prompts if some)]
        return PinsAndNotes(
            pinned,
            tuple(self._notes.values()),
            dict(self._dropped),
            prompts[-1],
            frozenset(n for some in prompts[:-1] for n in some).difference(prompts[-1], pinned),
        )


def marked(tx: Transaction, session: str, start: int, stop: int) -> bool:
    """Whether anything was pinned, unpinned or noted in a range."""
    return any(tx.marks(owner, first, end) for owner, first, end in record_ranges(tx, session, start, stop))


def is_prompt(mark: Record) -> bool:
    """Whether a mark says that messages are the system prompt from there on. Older programs take it for a pin."""
    return mark.kind == PIN_ADDED and mark.body.get("slot") == "prompt"


def pinned_messages(tx: Transaction, session: str, standing: PinsAndNotes, stop: int) -> list[Record]:
    """Those before a number, in order."""
    found = (record(tx, session, n) for n in sorted(standing.pinned) if n < stop)
    return [r for r in found if r is not None and r.kind == MESSAGE]


def summary_body(tx: Transaction, session: str, of: Segment) -> Mapping[str, Json] | None:
    """What a segment says of all that came before its cut: its summary, and the facts next to it."""
    said = summary(tx, session, of)
    return None if said is None else said.body


def quoting(tx: Transaction, session: str, told: Mapping[str, Json] | None, kept: Sequence[int]) -> Quoting:
    """What a segment quotes, by what it says. One query for a session, and one for each parent that is quoted from."""
    said = quote_refs.of(told) or quote_refs.NONE
    return quote_refs.read(said, some(tx, session, [q.number for q in said.stretches]), kept)


def check_quotes(
    tx: Transaction, claim: Claim, said: Quotes | None, cut: int, *, hidden: Ranges, kept: Sequence[int]
) -> Quoting:  # fmt: skip
    """What a segment is to quote. Raises if it cannot quote this."""
    if said is None:
        return quote_refs.NOTHING
    numbers = [n for n in {q.number for q in said.stretches} if not is_hidden(hidden, n)]
    records = some(tx, claim.session, numbers)
    heard = utterances(said.stretches, records)
    if (why := quote_refs.wrong(said, records, heard, cut)) is not None:
        raise commit_refused(CommitRefused, claim, why)
    return quote_refs.read(said, records, kept, heard)


def facts(told: Mapping[str, Json] | None) -> tuple[Fact, ...]:
    """The facts that a segment of an older version carries."""
    return tuple(Fact(*line) for line in (told or {}).get("facts", ()))


def holding(facts: Sequence[Fact], standing: PinsAndNotes, hidden: Ranges) -> tuple[Fact, ...]:
    """Those of a segment's facts that hold now: no note of the same kind and key took their place or took them away
    later, and the message that says otherwise, if one does, is not in view."""
    replaced = dict(standing.dropped) | {(n.kind, n.key): n.number for n in standing.notes}
    return tuple(
        f for f in facts if replaced.get((f.kind, f.key), 0) <= f.source and (not f.until or is_hidden(hidden, f.until))
    )


def fact_tokens(facts: Sequence[Fact]) -> int:
    return estimate(facts_block(facts)) if facts else 0


def context_tokens(
    tx: Transaction, session: str, of: Segment, last: int, *, told: Mapping[str, Json] | None,
    quoted: Quoting | None = None,
) -> int:  # fmt: skip
    """The size of a context as a segment like this has it if it begins after a record, from what it is made of. `told`
    is the body of the record with its summary and facts, and `quoted` what it quotes, if that is read already."""
    stands = load_pins_and_notes(tx, session, last + 1, of.hidden)
    verbatim = {*stands.by_name(of.kept, of.cut), *(n for n in stands.pinned if n < of.cut)}
    by_name = (record(tx, session, n) for n in verbatim)
    masks = (m for m in of.masked if of.cut <= m[0] <= last and not is_hidden(of.hidden, m[0]))
    items = (m for m in of.adopted if m[0] in verbatim or (of.cut <= m[0] <= last and not is_hidden(of.hidden, m[0])))
    return (
        (estimate(summary_block(told["summary"])) if told is not None else 0)
        + fact_tokens(holding(facts(told), stands, of.hidden))
        + (quoting(tx, session, told, of.kept) if quoted is None else quoted).tokens
        + stands.tokens()
        + sum(r.header.tokens for r in by_name if r is not None and r.header is not None)
        + tokens(tx, session, of.cut, last + 1, of.hidden)
        - sum(saves for number, saves in masks if number not in stands.pinned)
        - sum(saves for _, saves in items)
    )
