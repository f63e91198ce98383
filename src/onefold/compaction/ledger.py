"""The ledger: facts that are carried word for word from segment to segment, outside the prose of summaries. Pure.

It is bounded. What does not fit gives way in this order, the first to go first: lines longer than the whole ledger may
be; identifiers that were only mentioned, which get a quarter of the room at most; then kind by kind, from the end of
`KINDS` to its beginning, so that rules go last. Within a kind the line goes first that was said, or had its value
mentioned again, the longest ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from onefold.compaction.changes import adopted, replaced
from onefold.compaction.extraction import fitting, heard, key_of, may_say
from onefold.compaction.statements import TOOL, Statement
from onefold.compaction.subjects import is_bare, plain
from onefold.compaction.values import bare
from onefold.messages.codecs import estimate
from onefold.messages.frame import stated
from onefold.model import Fact, Record

KINDS: tuple[tuple[str, str], ...] = (
    ("rule", "What must or must not be done, and what is allowed again: ends by somebody's word, and gives way last."),
    ("limit", "A bound with its number or date: a budget, a cap, a deadline. A new number takes the old one's place."),
    ("decision", "What was chosen, by a person or by the agent that says so."),
    ("preference", "How somebody likes things to be done."),
    ("goal", "What the work is for at present, and what was asked for last."),
    ("next", "The next step that was named."),
    (
        "identifier",
        "An exact name or value: said to be something, or only mentioned; the latter gives way before all else.",
    ),
    ("open", "Work that was said to be open, and calls whose result never came: until it is done or settled."),
    ("effect", "What was done: files written, commits, messages sent. Old ones give way before new ones."),
)
"""The kinds of facts, in the order in which they give way: the last first."""

PROTECTED = frozenset({"rule", "limit", "decision", "preference"})
"""Kinds that no summarizer can settle."""

_SETTLED = frozenset({"goal", "next", "open", "effect"})
"""Kinds that a summarizer can settle. An exact name that nobody needs gives way by itself."""

_RANK = {kind: rank for rank, (kind, _) in enumerate(KINDS)}


def carried(
    base: Sequence[Fact],
    found: Sequence[Fact],
    *,
    later: Sequence[Fact] = (),
    settled: Sequence[tuple[str, str]] = (),
    room: int,
) -> tuple[Fact, ...]:
    """The ledger of the next segment: that of its base, and what was found in the messages that are cut away now.

    A later fact of the same kind and key takes the place of an earlier one. `later` are those of the messages that stay
    verbatim: they are not carried, since they are in view, but say until when what is carried holds. `settled` names
    lines that no longer matter. What does not fit into `room` tokens gives way, in the order that this module states.
    """
    over = {(kind, key) for kind, key in settled if kind in _SETTLED}
    facts = [f for f in base if (f.kind, f.key) not in over]
    for fact in _in_order(found):
        if (fact.kind, fact.key) not in over:
            _add(facts, fact)
    return _that_fit(_until(facts, later), room)


def quoted(facts: Sequence[Fact], records: Sequence[Record]) -> tuple[Fact, ...]:
    """Those of the facts a summarizer gave that stand word for word in the messages it was given, each with the message
    it comes from: what was never said is no fact, and no tool's output makes a rule."""
    if not facts:
        return ()
    said = [passage for record in reversed(records) for passage in _passages(record)]  # the last time it was said
    made: list[Fact] = []
    for fact in facts:
        words = plain(fact.text)
        if fact.kind not in _RANK or not words:
            continue
        found = (p for p in said if words in p.plain and may_say(fact.kind, p.statements[0]))
        if (passage := next(found, None)) is not None:
            own = passage.around(words)
            key = key_of(fact.kind, own, fact.key)
            text = bare(fact.text) if own.shown or own.voice == TOOL else own.text
            if text:
                made.append(Fact(fact.kind, key, fitting(text), own.source, fact.by))
    return tuple(made)


class _Passage(NamedTuple):
    """Statements of one message that follow each other, all of them said, or all of them shown."""

    statements: tuple[Statement, ...]
    plain: str

    def around(self, words: str) -> Statement:
        """The sentences that these words are part of."""
        start = self.plain.index(words)
        end, at = start + len(words), 0
        within: list[str] = []
        for statement in self.statements:
            after = at + len(plain(statement.text)) + 1
            if at < end and after > start + 1:
                within.append(statement.text)
            at = after
        return self.statements[0]._replace(text=" ".join(within), heading="")


def _passages(record: Record) -> Iterator[_Passage]:
    for _, some in groupby(heard(record), key=lambda s: (s.voice, s.shown)):
        statements = tuple(some)
        yield _Passage(statements, " ".join(plain(s.text) for s in statements))


def lost(base: Sequence[Fact], settled: Sequence[tuple[str, str]]) -> tuple[Fact, ...]:
    """Those of the facts in force that a summarizer gave up and may not: rules and the like end by somebody's word."""
    given_up = set(settled)
    return tuple(f for f in base if f.kind in PROTECTED and (f.kind, f.key) in given_up)


def _in_order(found: Sequence[Fact]) -> list[Fact]:
    """As they were said; what rules found comes after what a model proposed from the same message, so that it stays."""
    return sorted(found, key=lambda f: (f.source, f.by == "extract"))


def _add(facts: list[Fact], fact: Fact) -> None:
    gone = replaced(fact, facts)
    facts[:] = [f for f in facts if f not in gone and not _same_line(f, fact)]
    facts.append(adopted(fact, gone))


def _same_line(one: Fact, other: Fact) -> bool:
    """Whether a model and the rules found the same sentence under two names."""
    return (one.kind, one.source) == (other.kind, other.source) and one.by != other.by and one.text == other.text


def _until(facts: Sequence[Fact], later: Sequence[Fact]) -> list[Fact]:
    """The same facts, each with the first message of the tail that says otherwise."""
    ends: dict[Fact, int] = {}
    left = [replace(f, until=0) for f in facts]
    for fact in _in_order(later):
        for old in replaced(fact, [f for f in left if f not in ends]):
            if plain(old.text) != plain(fact.text) and not is_bare(old) and old.kind != "effect":
                ends[old] = fact.source
    return [replace(f, until=ends.get(f, 0)) for f in left]


def _that_fit(facts: Sequence[Fact], room: int) -> tuple[Fact, ...]:
    frame = len(stated(()).encode("utf-8", "surrogatepass"))
    sizes = {f: len(stated((f,)).encode("utf-8", "surrogatepass")) - frame + 1 for f in facts}
    kept = [f for f in facts if estimate(stated((f,))) <= room]
    mentioned = [f for f in _giving_way(kept) if is_bare(f)]
    while sum(sizes[f] for f in mentioned) > room:  # bytes: a quarter of the room, at four bytes a token
        kept.remove(mentioned.pop(0))
    total = frame + sum(sizes[f] for f in kept)
    if (total + 3) // 4 <= room:
        return tuple(kept)
    gone: set[Fact] = set()
    for fact in _giving_way(kept):
        gone.add(fact)
        total -= sizes[fact]
        if (total + 3) // 4 <= room:
            break
    return tuple(f for f in kept if f not in gone)


def _giving_way(facts: Sequence[Fact]) -> list[Fact]:
    texts = [(f.source, f.text) for f in facts]

    def first(fact: Fact) -> tuple[bool, int, int]:
        rank = _RANK.get(fact.kind, len(KINDS))
        if fact.kind != "identifier":
            return (not is_bare(fact), -rank, fact.source)
        value = fact.key.partition(" ")[2] if is_bare(fact) else fact.key
        again = max((source for source, text in texts if value and value in text), default=fact.source)
        return (not is_bare(fact), -rank, max(again, fact.source))

    return sorted(facts, key=first)
