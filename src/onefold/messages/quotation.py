"""Quotes as a reader sees them: stretches of messages, put together again from the messages themselves.

A quote names a record, a place in its stored body, and code points of the string that stands there. Nothing of the text
is kept next to it, so what is erased is gone from every quote as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from onefold.messages.parts import ANSWERS
from onefold.messages.speaker_text import resolve
from onefold.messages.tool_groups import LEADING
from onefold.model import Gap, Label, Quote, Record

KINDS = ("rule", "limit", "preference", "decision", "goal", "open", "next", "effect", "identifier")
"""What a model may call words, in the order in which people are shown them: what must not be forgotten first."""
PERSON, SYSTEM, AGENT = "person", "system", "agent"
SKIPPED = "[…]"
_NUMBER, _POINTER = itemgetter(0), itemgetter(1)
_BLANK = 4  # characters of white space between two stretches that are quoted with them


class Utterance(NamedTuple):
    """One message of somebody, as far as it is quoted."""

    number: int
    who: str
    at: float
    texts: Mapping[str, str]
    """What stands at each pointer into its body."""


class Quotation(NamedTuple):
    """What is quoted of one message."""

    number: int
    who: str
    at: float
    text: str
    """Word for word, with a mark where something is left out; empty for a message that is too long to be quoted."""
    kinds: tuple[str, ...] = ()
    """What a model called it, and what ended that: `rule`, `rule ended by #45`."""
    size: int = 0
    """Of a message that is too long: its characters."""


_WHO = {**dict.fromkeys(ANSWERS, AGENT), **dict.fromkeys(LEADING, SYSTEM), "user": PERSON}


def who_says(role: str) -> str | None:
    """Whose words a message has, by its role; None for a tool's and a program's."""
    return _WHO.get(role)


def utterances(quotes: Iterable[Quote], records: Iterable[Record]) -> dict[int, Utterance]:
    """The quoted strings of some messages. What is not there any more is left out."""
    wanted: dict[int, dict[str, None]] = {}
    for number, pointer, *_ in quotes:
        wanted.setdefault(number, {})[pointer] = None
    found: dict[int, Utterance] = {}
    for r in records:
        texts = {p: text for p in wanted.get(r.number, ()) if p and (text := resolve(r.body, p)) is not None}
        who = who_says(r.header.role) if r.header is not None else None
        found[r.number] = Utterance(r.number, who or PERSON, r.at, texts)
    return found


def lines(
    quotes: Sequence[Quote], heard: Mapping[int, Utterance], labels: Sequence[Label] = ()
) -> list[Quotation]:  # fmt: skip
    """What is quoted of each message, in order."""
    made: list[Quotation] = []
    called: dict[int, dict[str, None]] = {}
    for label in labels:
        words = f"{label.kind} ended by #{label.by}" if label.by else label.kind
        called.setdefault(label.number, {})[words] = None
    for number, some in groupby(quotes, key=_NUMBER):
        if (said := heard.get(number)) is None:
            continue
        stretches = [*some]
        kinds = tuple(called.get(number, ()))
        parts = [*_parts(stretches, said.texts)]
        if parts:
            made.append(Quotation(number, said.who, said.at, f" {SKIPPED} ".join(parts), kinds))
        elif size := max((q.end for q in stretches if not q.pointer), default=0):
            made.append(Quotation(number, said.who, said.at, "", kinds, size))
    return made


def _parts(stretches: Sequence[Quote], texts: Mapping[str, str]) -> Iterator[str]:
    """Stretches that follow each other in one string are one, with the white space between them."""
    if len(stretches) == 1:  # as most are
        ((_, pointer, start, stop, _),) = stretches
        text = texts.get(pointer)
        if text is not None and 0 <= start < stop <= len(text):
            yield text[start:stop]
        return
    for pointer, some in groupby(stretches, key=_POINTER):
        text = texts.get(pointer)
        if text is None:
            continue
        begin = end = -1
        for _, _, start, stop, _ in some:
            if not 0 <= start < stop <= len(text):
                continue
            if begin >= 0 and end <= start <= end + _BLANK and not text[end:start].strip():
                end = stop
                continue
            if begin >= 0:
                yield text[begin:end]
            begin, end = start, stop
        if begin >= 0:
            yield text[begin:end]


def gaps(missing: Iterable[Gap], quoted: Iterable[int]) -> tuple[Gap, ...]:
    """Messages that are missing, put together where no quoted one stands between them."""
    made: list[Gap] = []
    stops = sorted(quoted, reverse=True)
    first = last = many = 0
    for gap in sorted(missing):
        apart = not many
        while stops and stops[-1] <= gap.first:
            stops.pop()
            apart = True
        if not apart:
            last, many = max(last, gap.last), many + gap.many
            continue
        if many:
            made.append(Gap(first, last, many))
        first, last, many = gap
    return (*made, Gap(first, last, many)) if many else tuple(made)
