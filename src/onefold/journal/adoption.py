"""Adoption: a compaction that the provider made becomes a boundary of the session. No model is asked.

The segment that adopts an item says whose it is, which messages it covers, and which came back with it as its window.
Every other context is plain: where the item can be read, its text is the summary from then on; where it is sealed, the
boundary that was in force stays. So nothing that is kept here depends on a provider that takes its own item back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from onefold.errors import MessageTooLarge, NotNow, OnefoldError, StaleHandle
from onefold.journal import lineage, quote_refs
from onefold.journal.checks import check_name, may_compact
from onefold.journal.journal import SUMMARY_LIMIT, Journal, segment
from onefold.journal.lineage import get_session
from onefold.messages.codecs import PLAIN, codec
from onefold.messages.provider_item import Item, item
from onefold.messages.quotation import utterances
from onefold.messages.tool_groups import group
from onefold.model import ERASED, MANUAL, MESSAGE, NOTE, Json, Quotes, Ranges, Record, Segment, SessionState
from onefold.storage.base import MessageHeader, Transaction
from onefold.storage.projection import segment_body

_MOST = 1_000
"""Messages of a window, and messages before the cut that an item does not cover, at most."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose item it is. An item is worth nothing to any other."""

    provider: str
    endpoint: str = ""
    account: str = ""
    model: str = ""
    edits: bool = field(default=False, compare=False)
    """Whether the provider clears old tool results itself: then none is masked for it."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """An item that a session adopted."""

    segment: int
    """The segment that adopted it."""
    window: tuple[int, ...]
    """The messages that came back, the item's the last."""
    origin: Origin
    covers: Ranges
    """What it stands for."""
    cut: int
    """The first message behind all that it covers."""
    kept: tuple[int, ...]
    """Messages before that which it does not cover."""
    sealed: bool
    quotes: Quotes

    def covered(self, number: int) -> bool:
        return lineage.is_hidden(self.covers, number)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What adopting an item would amount to."""

    head: int
    window: tuple[int, ...]
    item: Item
    covers: Ranges
    cut: int
    kept: tuple[int, ...]


def of(record: Record | None) -> Adopted | None:
    """What a segment's record says of the item that it adopted, if it did and nothing of that was erased since."""
    if record is None or "adopts" not in record.body or record.body.get("erased"):
        return None
    said = record.body["adopts"]
    return Adopted(
        record.number, tuple(said["window"]), Origin(**said["origin"]), tuple((a, b) for a, b in said["covers"]),
        said["cut"], tuple(said["kept"]), said["sealed"], quote_refs.of(record.body) or quote_refs.NONE,
    )  # fmt: skip


def in_force(tx: Transaction, session: str, on: Segment) -> Adopted | None:
    """The item that a context of this segment may have: what it covers is in view as it was then, and it is there."""
    if on.item is None or on.keeper != "onefold":
        return None
    found, made = of(lineage.record(tx, session, on.item)), lineage.segment(tx, session, on.item)
    if found is None or made is None or not lineage.same_before(tx, session, found.cut, made.hidden, on.hidden):
        return None
    there = {r.number for r in lineage.some(tx, session, found.window) if r.kind == MESSAGE}
    return found if there.issuperset(found.window) else None


def apart(tx: Transaction, session: str, head: Segment) -> frozenset[int]:
    """What is hidden though nobody took it back: messages that are nothing but a provider's window, and are for that
    provider alone."""
    found: set[int] = set()
    for owner, first, end in lineage.record_ranges(tx, session, 1, head.number + 1) if head.hidden else ():
        for made in (s for s in tx.segments(owner) if s.source == "provider" and first <= s.number < end):
            adopted = None if lineage.is_hidden(head.hidden, made.number) else of(tx.record(owner, made.number))
            found |= {*adopted.window} if adopted is not None else set()
    return frozenset(n for n in found if lineage.is_hidden(head.hidden, n))


def beyond(tx: Transaction, session: str, on: Segment, number: int) -> bool:
    """Whether the item of a segment lies behind a record."""
    found = None if on.item is None else of(lineage.record(tx, session, on.item))
    return found is not None and found.window[-1] > number


def adoptable(tx: Transaction, session: str, window: Sequence[int], covers: Collection[int]) -> Adoption:
    """What adopting an item would amount to. Raises if it cannot be adopted. Writes nothing.

    `covers` is what was sent when it was made, by numbers. That of a segment stands for all that its summary does, and
    that of an item which is in force for all that this covers.
    """
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    _check_owner(session, head)
    numbers = tuple(sorted({*window}))
    if not 0 < len(numbers) <= _MOST:
        raise OnefoldError(f"session {session!r}: a provider's window has 1 to {_MOST} messages, not {len(numbers)}")
    records = {r.number: r for r in lineage.some(tx, session, numbers) if not lineage.is_hidden(head.hidden, r.number)}
    if missing := [n for n in numbers if n not in records]:
        raise OnefoldError(
            f"session {session!r}: {missing[:5]} are not messages in view, so this is not a provider's window"
        )
    last = records[numbers[-1]]
    made = item(last.format, last.body)
    if made is None:
        raise OnefoldError(
            f"session {session!r}: message {last.number} has no compaction of a provider's in it, or one that failed; "
            "nothing was adopted"
        )
    if last.number < head.cut:
        raise StaleHandle(
            f"session {session!r}: it was compacted behind message {last.number} already; nothing was adopted"
        )
    before = in_force(tx, session, head)
    if before is not None and before.window[-1] >= last.number:
        raise StaleHandle(
            f"session {session!r}: a later item of the provider's, {before.window[-1]}, is adopted already"
        )
    return judged(Sight(tx, state, head, last.number), before, numbers, made, {*covers})


class Sight(NamedTuple):
    """A session as it is seen up to an item."""

    tx: Transaction
    state: SessionState
    head: Segment
    stop: int

    def headers(self, start: int) -> list[MessageHeader]:
        return lineage.headers(self.tx, self.state.id, start, self.stop, self.head.hidden)

    def waiting(self) -> list[list[int]]:
        """Calls without all their results."""
        return lineage.open_groups(self.tx, self.state.id, self.stop, self.head.hidden, self.head)


def judged(
    sight: Sight, before: Adopted | None, window: tuple[int, ...], made: Item, sent: set[int]
) -> Adoption:  # fmt: skip
    """What adopting an item would amount to, by what was sent. Raises if it cannot be adopted."""
    tx, state, head, stop = sight
    elsewhere = sorted(sent.difference(h.number for h in sight.headers(head.cut)))
    if (gone := _taken_back(sight, before, elsewhere)) is not None:
        raise StaleHandle(
            f"session {state.id!r}: the item covers record {gone}, which was taken back or erased since it was sent; "
            "nothing was adopted. Send what is in view now"
        )
    upto, by_name = _stood_for(sight, before if before is not None and before.window[-1] in sent else None, elsewhere)
    found = [h for h in sight.headers(upto) if h.number not in window]
    left = {h.number for h in found if h.number not in sent}
    left |= {n for n in by_name if n not in sent and n not in window and not lineage.is_hidden(head.hidden, n)}
    covered = {h.number for h in found}.difference(left)
    if not covered and upto == 1:
        raise OnefoldError(f"session {state.id!r}: nothing in view before message {stop} was sent, by what it covers")
    stands = lineage.load_pins_and_notes(tx, state.id, stop, head.hidden)
    shown = {*head.kept, *stands.prompt}
    if unseen := sorted(n for n in left if n < head.cut and n not in shown):
        raise OnefoldError(
            f"session {state.id!r}: the item does not cover message {unseen[0]}, which only a summary stands for now; "
            f"name segment {head.summary} in what it covers, if that summary was sent"
        )
    waiting = sight.waiting()
    groups = [g.members for g in group((h.number, h.header) for h in found).groups]
    split = [g for g in groups if not left.isdisjoint(g) and not covered.isdisjoint(g)]
    if split := [*split, *(g for g in waiting if not covered.isdisjoint(g))]:
        raise OnefoldError(
            f"session {state.id!r}: what the item covers parts the call {split[0][0]} from what belongs to it; nothing "
            "was adopted. Name all of the group in what it covers, or nothing of it"
        )
    after = max(covered, default=upto - 1)
    cut = min((n for n in (*left, stop) if n > after), default=stop)
    kept = tuple(sorted(n for n in left if n < cut and n not in stands.prompt))
    if len(kept) > _MOST:
        raise OnefoldError(f"session {state.id!r}: {len(kept)} messages are not covered, and {_MOST} is the most")
    if any(not {*g}.isdisjoint(kept) for g in waiting):
        raise _not_now(state, "a call among what the item does not cover waits for its result")
    return Adoption(head.number, window, made, _ranges(cut, (*kept, *window)), cut, kept)


def _taken_back(sight: Sight, before: Adopted | None, sent: Sequence[int]) -> int | None:
    """The first of what was sent that is not in view as it was then: no boundary stands for what people took back."""
    tx, state, head, _ = sight
    shown = () if before is None else before.window  # hidden from everybody else, and sent
    for number in (n for n in sent if 0 < n <= state.last and n not in shown):
        one = lineage.segment(tx, state.id, number)
        if one is not None and one.summary is not None:
            if not lineage.same_before(tx, state.id, one.cut, one.hidden, head.hidden):
                return number
        elif lineage.is_hidden(head.hidden, number):
            said = lineage.record(tx, state.id, number)
            if said is None or said.kind in (MESSAGE, NOTE, ERASED):
                return number
    return None


def _stood_for(sight: Sight, before: Adopted | None, sent: Sequence[int]) -> tuple[int, set[int]]:
    """Up to which number everything was sent in a summary or an earlier item, but for what was shown by name."""
    upto, by_name = 1, set[int]()
    if before is not None:
        upto, by_name = before.cut, {*before.kept}
    for number in sent:
        one = lineage.segment(sight.tx, sight.state.id, number) if 0 < number <= sight.state.last else None
        if one is not None and one.summary is not None and one.cut > upto:
            upto, by_name = one.cut, {*one.kept}
    return upto, by_name


def _ranges(cut: int, apart: Iterable[int]) -> Ranges:
    """Everything before a cut but some."""
    return tuple((a, b - 1) for a, b in lineage.visible(tuple((n, n) for n in sorted({*apart})), 1, cut))


def adopt(
    journal: Journal, session: str, window: Sequence[int], covers: Collection[int], *, origin: Origin,
    expect_head: int, said: Quotes | None = None, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Opens a segment that adopts an item, if the head is the one that was looked at. Said again, the same segment.

    No claim is needed, since nothing is paid for. It never gives up a compaction that somebody works on, nor one that a
    person asked for.
    """
    check_name("provider", origin.provider)
    for name in ("endpoint", "account", "model"):
        if value := getattr(origin, name):
            check_name(name, value)

    def adopt_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        before = in_force(tx, session, head)
        if before is not None and before.window == tuple(sorted({*window})) and before.origin == origin:
            return head
        if state.head != expect_head:
            raise StaleHandle(f"session {session!r} is at segment {state.head}, not {expect_head}: look at it again")
        may_adopt(journal, tx, state)
        made = adoptable(tx, session, window, covers)
        return opened(journal, tx, state, made, origin=origin, said=said, actor=actor)

    return journal.backend.write(session, adopt_in)


def may_adopt(journal: Journal, tx: Transaction, state: SessionState) -> None:
    """Rejects where nothing may be compacted, or somebody works on a compaction that would be given up."""
    may_compact(tx, state)
    _check_owner(state.id, segment(tx, state.id, state.head))
    current = None if state.open is None else tx.compaction(state.id, state.open)
    if current is not None and (journal.holds(tx, current) is not None or current.trigger == MANUAL):
        raise _not_now(state, f"compaction {current.id} is open, and would be given up")


def opened(
    journal: Journal, tx: Transaction, state: SessionState, made: Adoption, *, origin: Origin, said: Quotes | None,
    actor: str | None,
) -> Segment:  # fmt: skip
    """Opens the segment of an adoption."""
    head = segment(tx, state.id, state.head)
    text = made.item.text
    if text is not None and len(text.encode("utf-8", "surrogatepass")) > SUMMARY_LIMIT:
        raise MessageTooLarge(
            f"session {state.id!r}: the provider's summary is over the limit of 1 MiB; nothing was adopted"
        )
    records = {r.number: r for r in lineage.some(tx, state.id, made.window)}
    whole = made.window[:-1] if made.item.rest is not None else made.window
    hidden = lineage.joined(tx, state.id, lineage.hide(head.hidden, *((n, n) for n in whole)))
    items = tuple((n, saves(records[n])) for n in made.window if n not in whole)
    like = replace(head, hidden=hidden, adopted=lineage.united(head.adopted, items), item=None)
    told: dict[str, Json] = {} if said is None else quote_refs.as_record(said)
    if said is not None and (wrong := _misquoted(tx, state, said, made.cut, hidden)) is not None:
        raise OnefoldError(f"session {state.id!r}: {wrong}; nothing was adopted")
    if text is None:
        body = segment_body(like, state, source="provider", summary_of=head.summary, **told)
        body["tokens_after"] = lineage.context_tokens(
            tx, state.id, like, state.last, told=lineage.summary_body(tx, state.id, head)
        )
    else:
        like = lineage.cut_at(like, made.cut, made.kept)
        body = segment_body(like, state, source="provider", summary=text, **told)
        body["tokens_after"] = lineage.context_tokens(tx, state.id, like, state.last, told=body)
    whose = {name: value for name, value in asdict(origin).items() if name != "edits" and value}
    body["adopts"] = {
        "window": list(made.window), "origin": whose, "covers": [list(r) for r in made.covers], "cut": made.cut,
        "kept": list(made.kept), "sealed": text is None,
    }  # fmt: skip
    state = journal.open_segment(tx, state, body, actor)
    tx.put_session(state)
    return segment(tx, state.id, state.head)


def _misquoted(tx: Transaction, state: SessionState, said: Quotes, cut: int, hidden: Ranges) -> str | None:
    numbers = [n for n in {q.number for q in said.stretches} if not lineage.is_hidden(hidden, n)]
    records = lineage.some(tx, state.id, numbers)
    return quote_refs.wrong(said, records, utterances(said.stretches, records), cut)


def saves(record: Record) -> int:
    """By how much a context is smaller without the item in this message."""
    found = item(record.format, record.body)
    if record.header is None or found is None or found.rest is None:
        return 0
    return max(0, record.header.tokens - codec(record.format or PLAIN).header(found.rest).tokens)


def windows(tx: Transaction, state: SessionState, gone: Ranges) -> list[int]:
    """The session's own messages that hold items which cover something that is to go, or cover such an item."""
    found: set[int] = set()
    for some in tx.segments(state.id):  # the oldest first: a later one may cover an earlier one's window
        adopted = of(tx.record(state.id, some.number)) if some.item == some.number else None
        reach = lineage.hide(gone, *((n, n) for n in found))
        if adopted is not None and any([*lineage.visible(_apart(adopted, some), a, b + 1)] for a, b in reach):
            found |= {n for n in adopted.window if n > state.forked_at}
    return sorted(found)


def tells_of(record: Record | None, some: Segment, gone: Ranges) -> bool:
    """Whether a segment adopted an item that covers any of these records, or is one of them; or quotes one, which may
    be kept by name and not covered."""
    adopted = of(record)
    if adopted is None:
        return False
    labels = (n for label in adopted.quotes.labels for n in (label.number, label.by))
    told = {*adopted.window, *(q.number for q in adopted.quotes.stretches), *labels}
    return any(lineage.is_hidden(gone, n) for n in told) or any(
        [*lineage.visible(_apart(adopted, some), a, b + 1)] for a, b in gone
    )


def _apart(adopted: Adopted, some: Segment) -> Ranges:
    """What an item does not cover: what was hidden then, what it left out, and all that came later."""
    outside = tuple((a, b - 1) for a, b in lineage.visible(adopted.covers, 1, 1 << 62))
    return lineage.hide(some.hidden, *outside)


def _not_now(state: SessionState, why: str) -> NotNow:
    return NotNow(f"session {state.id!r}: {why}; nothing was adopted", session=state.id)


def _check_owner(session: str, head: Segment) -> None:
    if head.keeper != "onefold":
        raise OnefoldError(
            f"session {session!r} is compacted by its agent, which keeps what its provider made; call "
            "set_compaction_owner('onefold') first"
        )
