"""What a compaction has to go by: its segment's summary, and the messages it may cut; read whole, or looked at ahead.

What is over is decided by the records that were claimed, never by what came since: a call that was open then is never
before the cut, whatever has answered or ended it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from onefold.compaction.context import load_view
from onefold.compaction.cut_planner import NoCut, Plan, Turns, plan
from onefold.compaction.policy import Policy
from onefold.journal import context_prefix, lineage
from onefold.journal.journal import Journal
from onefold.journal.lineage import PinsAndNotes, get_session
from onefold.journal.quote_refs import Quoting
from onefold.messages.provider_item import without
from onefold.messages.tool_groups import Numbered
from onefold.model import ASKING, Claim, Fact, Ranges, Record, Segment
from onefold.storage.base import MessageHeader, Transaction

_PAGE = 20

Said = Record | MessageHeader


@dataclass(frozen=True, slots=True)
class MaterialPreview:
    """What a plan is made by: headers, and no text."""

    kept: tuple[Said, ...]
    """What the segment shows by name from before its cut, the prompt included."""
    messages: tuple[Said, ...]
    tokens: int
    prompt: frozenset[int]
    """The system and developer messages in force."""
    pinned: frozenset[int]
    """Messages that stay in every context. They are summarised like the rest, so that unpinning loses nothing."""
    turns: Turns
    masked: Mapping[int, int] = field(default_factory=dict)
    """What is shown as one line, and the tokens that saves."""

    def plan(self, policy: Policy) -> Plan | NoCut:
        return plan(
            _numbered(self.messages, self.masked),
            kept=_numbered(self.kept, self.masked),
            total=self.tokens,
            policy=policy,
            prompt=self.prompt,
            pinned=self.pinned,
            turns=self.turns,
        )


@dataclass(frozen=True, slots=True)
class CompactionMaterial:
    """What a claim has to go by."""

    previous: str | None
    facts: tuple[Fact, ...]
    """Those of a base that an older version made."""
    quoting: Quoting
    """What the base quotes."""
    before: tuple[Record, ...]
    """The last messages before the base's cut, by which the first ones after it may be understood, and which show how
    rare words are where few messages came since."""
    earlier: Callable[[], tuple[Record, ...]]
    """Reads all messages before the base's cut, as far as that is bounded, the newest ones first."""
    filled: bool
    """Whether the base was made with quotes in mind."""
    covered: int
    """The size of all messages in view before the base's cut."""
    kept: tuple[Record, ...]
    messages: tuple[Record, ...]
    tokens: int
    prompt: frozenset[int]
    pinned: frozenset[int]
    turns: Turns
    masked: Mapping[int, int] = field(default_factory=dict)
    """What the context shows as one line, and the tokens that saves. A summarizer reads the whole."""
    untold: tuple[Record, ...] = ()
    """Of what the base keeps by name, what its summary does not know: a provider made that, and was not sent them."""

    def plan(self, policy: Policy) -> Plan | NoCut:
        seen = MaterialPreview(self.kept, self.messages, self.tokens, self.prompt, self.pinned, self.turns, self.masked)
        return seen.plan(policy)

    def size(self, records: Iterable[Record]) -> int:
        """Of messages, as they are shown."""
        return sum(r.header.tokens - self.masked.get(r.number, 0) for r in records if r.header is not None)


class Past(NamedTuple):
    """What a summary in force was made of: the messages after the boundary before it, up to its cut."""

    session: str
    base: int
    upto: int
    hidden: Ranges
    """What is not in view now: it may be more than what was not when the boundary was made."""
    turn: int = 0


def load_material(
    journal: Journal, claim: Claim | Past, pause: Callable[[], object] = lambda: None
) -> CompactionMaterial:
    """Reads what a claim may work with, or a new summary of the past, a little at a time: with a `pause` after each
    page, other threads of this process, the agent's own among them, are not kept waiting while a long context is
    read."""
    state = journal.state(claim.session)
    base = journal.backend.read(lambda tx: load_view(tx, claim.session, claim.base, state.last + 1))
    hidden = claim.hidden if isinstance(claim, Past) else base.segment.hidden
    stands = base.now or base.standing
    before = (r for r in (*base.prompt, *base.kept) if r.number < base.segment.cut)
    kept = tuple(sorted(before, key=lambda r: r.number))
    messages: list[Record] = []
    for start in range(base.segment.cut, claim.upto + 1, _PAGE):
        if start > base.segment.cut:
            pause()
        stop = min(start + _PAGE, claim.upto + 1)
        messages += journal.backend.read(partial(_messages, claim.session, start, stop, hidden))
    messages = _plain(messages, base.segment)
    return CompactionMaterial(
        previous=base.summary,
        facts=base.facts,
        quoting=base.quoting,
        before=_before(journal, claim, base.segment, max(_FEW, _ENOUGH - len(messages))),
        earlier=partial(_before, journal, claim, base.segment, _MANY, most=_FILL_RECORDS, pause=pause),
        filled=base.filled,
        covered=base.quoting.quotes.covers or journal.backend.read(partial(_size, claim.session, base.segment)),
        kept=kept,
        messages=tuple(messages),
        tokens=state.tokens,
        prompt=frozenset(n for n in stands.prompt if n <= claim.upto),
        pinned=stands.pinned,
        turns=journal.backend.read(lambda tx: _turns(tx, claim.session, claim.turn, (*kept, *messages))),
        masked=_shown_short(base.segment, base.standing),
        untold=tuple(r for r in kept if r.number in base.untold),
    )


def _before(
    journal: Journal, claim: Claim | Past, base: Segment, page: int, *, most: int = 1,
    pause: Callable[[], object] = lambda: None,
) -> tuple[Record, ...]:  # fmt: skip
    """Messages before a base's cut, the newest first as far as there may be so many, in order."""
    found: list[list[Record]] = []
    stop, count, size = base.cut, 0, 0
    while stop > 1 and count < most and size < _FILL_BYTES:
        some = journal.backend.read(partial(_messages, claim.session, max(1, stop - page), stop, base.hidden))
        found.append(some)
        count += len(some) or 1
        size += sum(4 * r.header.tokens for r in some if r.header is not None)
        stop -= page
        pause()
    return tuple(r for some in reversed(found) for r in some)


_FEW = 8
_ENOUGH = 200
_MANY = 200
_FILL_RECORDS = 20_000
_FILL_BYTES = 8 << 20


def preview_material(session: str, base: int, tx: Transaction) -> MaterialPreview | None:
    """What a claim made now would plan by; None if there is none to make: the head is another one, or somebody has
    asked already."""
    state = get_session(tx, session)
    head = tx.segment(session, base)
    if state.head != base or state.open is not None or head is None:
        return None
    messages = lineage.headers(tx, session, head.cut, state.last + 1, head.hidden)
    begins = context_prefix.of(tx, session, head, state.last + 1)
    by_name = begins.opening.by_name(head.kept, head.cut)
    kept = tuple(r for n in by_name if (r := lineage.record(tx, session, n)) is not None)
    return MaterialPreview(
        kept=kept,
        messages=tuple(messages),
        tokens=state.tokens,
        prompt=frozenset(begins.now.prompt),
        pinned=begins.now.pinned,
        turns=_turns(tx, session, state.turn, (*kept, *messages)),
        masked=_shown_short(head, begins.opening),
    )


def _messages(session: str, start: int, stop: int, hidden: Ranges, tx: Transaction) -> list[Record]:
    return lineage.messages(tx, session, start, stop, hidden)


def _plain(messages: list[Record], segment: Segment) -> list[Record]:
    """Messages without the provider's items in them that were adopted: what those cover is read, or told already."""
    items = {number for number, _ in segment.adopted}
    told = [r._replace(body=without(r.format, r.body)) if r.number in items else r for r in messages]
    return [r for r in told if r.body is not None]


def _size(session: str, base: Segment, tx: Transaction) -> int:
    return lineage.tokens(tx, session, 1, base.cut, base.hidden)


def _turns(tx: Transaction, session: str, number: int, messages: Sequence[Said]) -> Turns:
    """What is over, where the turn that began at this record is open, or none is (0)."""
    started = tx.record(session, number) if number else None
    live = None if started is None else started.turn
    return Turns(
        over=frozenset(r.number for r in messages if r.turn is not None and r.turn != live),
        opening=None if live is None else _opening(messages, live, number),
    )


def _opening(messages: Sequence[Said], live: str, began: int) -> int | None:
    """The message of the user that a turn is about: its own first one, or the last before it began, if its writer
    answered that. What came from the user later only steers it."""
    first = next((r for r in messages if r.turn == live), None)
    if first is not None and _asks(first):
        return first.number
    before = [r.number for r in messages if r.number < began and _asks(r)]
    return before[-1] if before else next((r.number for r in messages if r.turn == live and _asks(r)), None)


def _asks(record: Said) -> bool:
    return record.header is not None and record.header.role in ASKING


def _shown_short(segment: Segment, opening: PinsAndNotes) -> dict[int, int]:
    """What is shown with fewer words, and the tokens that saves."""
    masks = {number: saves for number, saves in segment.masked if number not in opening.pinned}
    return masks | dict(segment.adopted)


def _numbered(records: Sequence[Said], masked: Mapping[int, int]) -> list[Numbered]:
    """Headers, with sizes as a context shows them."""
    return [
        (r.number, replace(r.header, tokens=r.header.tokens - masked[r.number]) if r.number in masked else r.header)
        for r in records
        if r.header is not None
    ]
