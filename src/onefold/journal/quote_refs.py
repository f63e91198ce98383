"""Quotes by reference: what a segment says of them, and what they say. Pure: `lineage` reads their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onefold.messages.codecs import estimate
from onefold.messages.context_text import quotes_block
from onefold.messages.quotation import KINDS, Quotation, Utterance, lines, utterances
from onefold.model import MESSAGE, Fact, Gap, Json, Label, Quote, Quotes, Record

MOST = 1_000
"""Stretches that a segment quotes, at most."""
MOST_MESSAGES = 400
"""Messages that they stand in, at most: they are read for each context."""
MOST_LABELS = 400
"""Labels of a segment, at most."""
_ORDER = {kind: place for place, kind in enumerate(KINDS)}
_IN_FORCE = 6  # fields of a label that nothing ended

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
        """What a model labelled, in the words that were said: what must not be forgotten first, what is over last."""
        if not self.quotes.labels:
            return ()
        heard = utterances(self.quotes.stretches, self.records)
        labels = sorted(self.quotes.labels, key=lambda x: (x.by > 0, _ORDER.get(x.kind, len(KINDS)), x.number, x.start))
        found = ((label, heard[label.number].texts.get(label.pointer, "")) for label in labels
                 if label.number in heard)  # fmt: skip
        return tuple(
            Fact(x.kind, x.subject, text[x.start : x.end], x.number, "model", x.by) for x, text in found if text
        )


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
    labels = [label if label.by else label[:_IN_FORCE] for label in quotes.labels]
    more: dict[str, Sequence[tuple[Json, ...]]] = {"gaps": quotes.gaps, "labels": labels}
    return said | {name: [list(one) for one in some] for name, some in more.items() if some}


def read(
    quotes: Quotes, records: Sequence[Record], kept: Sequence[int], heard: Mapping[int, Utterance] | None = None
) -> Quoting:  # fmt: skip
    """What quotes say, by the messages that they name. One that is gone is left out. `heard` is what they are quoted
    from, if that is known."""
    shown = [q for q in quotes.stretches if q.number not in kept] if kept else quotes.stretches
    made = lines(shown, utterances(shown, records) if heard is None else heard, quotes.labels)
    return Quoting(quotes, tuple(records), tuple(made), quotes_block(made, quotes.gaps) if made else "")


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
    return _wrong_labels(quotes.labels, heard, cut)


def _wrong_labels(labels: Sequence[Label], heard: Mapping[int, Utterance], cut: int) -> str | None:
    if len(labels) > MOST_LABELS:
        return f"it has {len(labels)} labels, and {MOST_LABELS} is the most"
    for label in labels:
        text = heard[label.number].texts.get(label.pointer, "") if label.number in heard else ""
        if label.kind not in KINDS or not 0 <= label.start < label.end <= len(text):
            return f"its label {label.kind!r} is of nothing that it quotes, of record {label.number}"
        if label.by and not label.number <= label.by < cut:
            return (
                f"its label of record {label.number} is ended by record {label.by}, which is not between it and the cut"
            )
    return None
