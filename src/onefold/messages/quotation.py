"""Quotes as a reader sees them: stretches of messages, put together again from the messages themselves.

A quote names a record, a place in its stored body, and code points of the string that stands there. Nothing of the text
is kept beside it, so what is erased is gone from every quote as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from onefold.messages.groups import LEADING
from onefold.messages.said import ANSWERS
from onefold.messages.words import resolve
from onefold.model import Gap, Label, Quote, Record

PERSON, SYSTEM, AGENT = "person", "system", "agent"
SKIPPED = "[…]"
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
    """What a model called it."""
    size: int = 0
    """Of a message that is too long: its characters."""


def who_says(role: str) -> str | None:
    """Whose words a message has, by its role; None for a tool's and a program's."""
    if role == "user":
        return PERSON
    return SYSTEM if role in LEADING else AGENT if role in ANSWERS else None


def utterances(quotes: Iterable[Quote], records: Iterable[Record]) -> dict[int, Utterance]:
    """The quoted strings of some messages. What is not there any more is left out."""
    wanted: dict[int, list[str]] = {}
    for quote in quotes:
        wanted.setdefault(quote.number, []).append(quote.pointer)
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
    for number, some in groupby(quotes, key=lambda q: q.number):
        if (said := heard.get(number)) is None:
            continue
        stretches = [*some]
        kinds = tuple(dict.fromkeys(label.kind for label in labels if label.number == number))
        parts = [*_parts(stretches, said.texts)]
        if parts:
            made.append(Quotation(number, said.who, said.at, f" {SKIPPED} ".join(parts), kinds))
        elif size := max((q.end for q in stretches if not q.pointer), default=0):
            made.append(Quotation(number, said.who, said.at, "", kinds, size))
    return made


def _parts(stretches: Iterable[Quote], texts: Mapping[str, str]) -> Iterator[str]:
    """Stretches that follow each other in one string are one, with the white space between them."""
    for pointer, some in groupby(stretches, key=lambda q: q.pointer):
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
    marks = sorted((*((g.first, 1, g) for g in missing), *((n, 0, None) for n in quoted)))
    made: list[Gap] = []
    apart = True
    for _, _, gap in marks:
        if gap is None:
            apart = True
        elif apart:
            made.append(gap)
            apart = False
        else:
            made[-1] = Gap(made[-1].first, max(made[-1].last, gap.last), made[-1].many + gap.many)
    return tuple(made)
