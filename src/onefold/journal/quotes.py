"""Quotes by reference: what a segment's record says of them, and what they say. Pure: `view` reads their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onefold.messages.codecs import estimate
from onefold.messages.frame import quoted
from onefold.messages.quotation import Quotation, Utterance, lines, utterances
from onefold.model import MESSAGE, Fact, Gap, Json, Label, Quote, Quotes, Record

MOST = 1_000
"""Stretches that a segment quotes, at most."""
MOST_MESSAGES = 400
"""Messages that they stand in, at most: they are read for each context."""

NONE = Quotes()


@dataclass(frozen=True, slots=True)
class Quoting:
    """What a segment quotes, with the words themselves."""

    quotes: Quotes = NONE
    records: tuple[Record, ...] = ()
    shown: tuple[Quotation, ...] = ()
    """What a context shows: not what stands in it anyway, since it is kept by name."""
    text: str = ""

    @property
    def tokens(self) -> int:
        return estimate(self.text) if self.text else 0

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What a model labelled, in the words that were said."""
        if not self.quotes.labels:
            return ()
        heard = utterances(self.quotes.stretches, self.records)
        found = ((label, heard[label.number].texts.get(label.pointer, "")) for label in self.quotes.labels
                 if label.number in heard)  # fmt: skip
        return tuple(Fact(x.kind, x.subject, text[x.start : x.end], x.number, "model") for x, text in found if text)


NOTHING = Quoting()


def of(told: Mapping[str, Json] | None) -> Quotes | None:
    """What a segment's record says; None if it is of a time that knew no quotes."""
    if told is None or "quotes" not in told:
        return None
    return Quotes(
        tuple(Quote(*q) for q in told["quotes"]),
        tuple(told.get("marks", NONE.marks)),
        tuple(Gap(*g) for g in told.get("gaps", ())),
        tuple(Label(*label) for label in told.get("labels", ())),
        told.get("room", 0),
        told.get("covers", 0),
    )


def as_record(quotes: Quotes) -> dict[str, Json]:
    """What a segment's record is to say."""
    said: dict[str, Json] = {"quotes": [list(q) for q in quotes.stretches], "marks": list(quotes.marks)}
    said |= {"room": quotes.room, "covers": quotes.covers}
    more = {"gaps": quotes.gaps, "labels": quotes.labels}
    return said | {name: [list(one) for one in some] for name, some in more.items() if some}


def read(
    quotes: Quotes, records: Sequence[Record], kept: Sequence[int], heard: Mapping[int, Utterance] | None = None
) -> Quoting:  # fmt: skip
    """What quotes say, by the messages that they name. One that is gone is left out. `heard` is what they are quoted
    from, if that is known."""
    shown = [q for q in quotes.stretches if q.number not in kept] if kept else quotes.stretches
    made = lines(shown, utterances(shown, records) if heard is None else heard, quotes.labels)
    return Quoting(quotes, tuple(records), tuple(made), quoted(made, quotes.gaps) if made else "")


def wrong(quotes: Quotes, records: Sequence[Record], heard: Mapping[int, Utterance], cut: int) -> str | None:
    """Why a segment cannot quote this, by those of its messages that are in view, and what is heard in them; None if it
    can."""
    if len(quotes.stretches) > MOST:
        return f"it quotes {len(quotes.stretches)} stretches, and {MOST} is the most"
    if len(numbers := {q.number for q in quotes.stretches}) > MOST_MESSAGES:
        return f"it quotes {len(numbers)} messages, and {MOST_MESSAGES} is the most"
    there = {r.number for r in records if r.kind == MESSAGE and r.number < cut}
    if missing := numbers - there:
        return f"what it quotes, {sorted(missing)[:5]}, is not among the messages in view before its cut"
    for number, pointer, start, end, _ in quotes.stretches:
        text = heard[number].texts.get(pointer) if pointer else None
        if not 0 <= start < end or (pointer and (text is None or end > len(text))):
            return f"there is nothing at {pointer} {start}:{end} of record {number}, which it quotes"
    return None
