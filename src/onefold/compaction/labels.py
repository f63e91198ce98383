"""Labels: what the model that writes a summary calls some of the words that were said. Pure: messages in, labels out.

A model names a message and quotes it. The quotation is looked for in that message alone, widened to sentences, and kept
as a place. What cannot be found there gives no label. What a person's own rule, limit or preference is, code can tell
only as far as signs show it: words in code, quotations and documents, after a colon, or in lines that a tool or an
agent said as well are shown, and are no such thing. What it cannot tell is why a label raises rank and nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from onefold.compaction.quote_selection import MOST_WORDS, Speech
from onefold.journal.quote_refs import MOST_LABELS
from onefold.messages.normalization import Normalized, normalized
from onefold.messages.quotation import AGENT, KINDS, PERSON
from onefold.messages.quotation_marks import Shown
from onefold.messages.sentences import Piece, pieces
from onefold.model import Fact, Label, LabelEnd

OF_PEOPLE = frozenset({"rule", "limit", "preference"})
"""What only a person's own words can be."""
_LONGEST = 1_000  # characters of a quotation
_WIDEST = 2_000  # characters of the sentences that it is widened to
_SUBJECT = 200
_TRIES = 8  # places at which the same words stand, of which some may be shown only
_LEAST = 2  # letters and digits of a piece of a quotation

_Place = tuple[str, int, int]
_Key = tuple[int, str, int, int, str]


def labelled(
    before: Sequence[Label],
    facts: Sequence[Fact],
    ends: Sequence[LabelEnd],
    heard: Iterable[Speech],
    *,
    others: Sequence[str] = (),
    pause: Callable[[], object] = lambda: None,
) -> tuple[Label, ...]:
    """The labels of the next segment: those of its base as far as they are not taken away, and what a model gives now.

    `heard` is what can be quoted, and `others` what tools and programs said.
    """
    labels = {_key(label): label for label in before}
    if facts or ends:
        messages = _Messages({one.number: one for one in heard}, others)
        for fact in facts:
            pause()
            given = _given(fact, messages)
            if given is not None:
                labels.setdefault(_key(given), given)  # what was ended does not begin again by the same words
        pause()
        held = frozenset(_key(label) for label in before if not label.by)
        for key, label in _ended(labels, held, ends, messages).items():
            if label is None:
                del labels[key]
            else:
                labels[key] = label
    return _bounded([*labels.values()])


def _key(label: Label) -> _Key:
    return label[:5]


def _bounded(labels: Sequence[Label]) -> tuple[Label, ...]:
    """As many as a segment may have: those that are over go first, then identifiers, then the oldest."""
    if len(labels) <= MOST_LABELS:
        return tuple(labels)
    best = {*sorted(labels, key=lambda x: (x.by > 0, x.kind == KINDS[-1], -x.number))[:MOST_LABELS]}
    return tuple(label for label in labels if label in best)


# ---------------------------------------------------------------------- what is given


def _given(fact: Fact, messages: _Messages) -> Label | None:
    subject = " ".join(fact.key.split())
    if fact.kind not in KINDS or not 0 < len(subject) <= _SUBJECT:
        return None
    place = messages.place(fact.source, fact.text, own=fact.kind in OF_PEOPLE)
    return None if place is None else Label(fact.source, *place, fact.kind, subject)


# ---------------------------------------------------------------------- what is over


def _ended(
    labels: Mapping[_Key, Label], held: frozenset[_Key], ends: Sequence[LabelEnd], messages: _Messages
) -> dict[_Key, Label | None]:
    """Those that an answer ends, or takes away (None). If that is more than half of what was in force (`held`), and
    more than one, it is none: a model that was told to forget everything looks like that."""
    changed: dict[_Key, Label | None] = {}
    for end in ends:
        label = _named(end, labels.values())
        if label is None or label.by:
            continue
        if not end.by:
            changed.setdefault(_key(label), None)
        elif (place := _later(end, label, messages)) is not None:
            pointer, first, last = place
            changed[_key(label)] = label._replace(by=end.by, by_pointer=pointer, by_start=first, by_end=last)
    gone = len(changed.keys() & held)
    return {} if gone > 1 and 2 * gone > len(held) else changed


def _named(end: LabelEnd, labels: Iterable[Label]) -> Label | None:
    """Which one is meant: by its message and kind, and where that is several, by its subject."""
    some = [label for label in labels if (label.number, label.kind) == (end.source, end.kind)]
    some = [label for label in some if label.subject == " ".join(end.key.split())] or some
    return some[0] if len(some) == 1 else None


def _later(end: LabelEnd, label: Label, messages: _Messages) -> _Place | None:
    """Where the words stand that end it: later ones of the same speaker. What follows a colon may be: a model can take
    a label away without any words, so that to want more of them would only lose ends."""
    if messages.speaker(end.by) is None or messages.speaker(end.by) != messages.speaker(label.number):
        return None
    place = messages.place(end.by, end.text, own=label.kind in OF_PEOPLE, told=True)
    if place is None or end.by > label.number:
        return place
    pointer, start, _ = place
    follows = end.by == label.number and pointer == label.pointer and start >= label.end
    return place if follows else None


# ---------------------------------------------------------------------- where words stand


class _Messages:
    """What was said, as quotations are looked for in it. A message is taken apart when one is, and then once."""

    def __init__(self, said: Mapping[int, Speech], others: Sequence[str]) -> None:
        self._said = said
        self._others = others
        self._texts: dict[int, list[tuple[str, _Text]]] = {}

    def speaker(self, number: int) -> tuple[str, str | None] | None:
        one = self._said.get(number)
        return None if one is None else (one.who, one.actor)

    def place(self, number: int, quotation: str, *, own: bool, told: bool = False) -> _Place | None:
        """Where sentences of a message stand that words are quoted from. With `own`, they have to be a person's, and
        not only shown; `told` lets them follow a colon."""
        one = self._said.get(number)
        parts = _patterns(quotation) if one is not None and len(quotation) <= _LONGEST else []
        if one is None or not parts or (own and one.who != PERSON):
            return None
        if number not in self._texts:
            self._texts[number] = [(p, _Text(text)) for p, text in one.texts.items() if len(text) <= MOST_WORDS]
        for pointer, text in self._texts[number]:
            for start, end in _found(parts, text.words):
                around = text.around(start, end)
                if not around or around[-1].end - around[0].start > _WIDEST:
                    continue
                if not own or not self._only_shown(one, text, _Span(start, end), around, told=told):
                    return pointer, around[0].start, around[-1].end
        return None

    def _only_shown(self, one: Speech, text: _Text, span: _Span, around: Sequence[Piece], *, told: bool) -> bool:
        first, last = around[0].start, around[-1].end
        if any(piece.shown or (piece.under >= 0 and not told) for piece in around):
            return True
        if text.shown.in_marks(*span, first, last) or (not told and text.shown.after_colon(first, last)):
            return True
        return any(self._stands_elsewhere(line, one.number) for line in text.lines(around))

    def _stands_elsewhere(self, line: str, number: int) -> bool:
        """Whether a tool has the same line, or an agent had it before: later ones may only say it back."""
        words = _WORD.findall(line)
        if not words:
            return False
        longest, wanted = max(words, key=len), _bare(line)
        agents = (text for one in self._said.values() if one.who == AGENT and one.number < number
                  for text in one.texts.values())  # fmt: skip
        return any(_has_line(text, longest, wanted) for some in (self._others, agents) for text in some)


class _Text:
    """One string of a message."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> Normalized:
        return normalized(self.text)

    @cached_property
    def shown(self) -> Shown:
        return Shown(self.text)

    @cached_property
    def _pieces(self) -> list[Piece]:
        return pieces(self.text)

    def around(self, start: int, end: int) -> list[Piece]:
        first = bisect_right(self._pieces, start, key=lambda piece: piece.end)
        return self._pieces[first : bisect_left(self._pieces, end, key=lambda piece: piece.start)]

    def lines(self, around: Sequence[Piece]) -> Iterator[str]:
        """The lines that some sentences stand in, and the sentences."""
        first = self.text.rfind("\n", 0, around[0].start) + 1
        last = self.text.find("\n", around[-1].end)
        yield from self.text[first : last if last >= 0 else None].split("\n")
        yield from (self.text[piece.start : piece.end] for piece in around)


_WORD = re.compile(r"[^\W_]+")
_COUNTED = re.compile(r"\W*\d+\W+")
_SIGNS = re.compile(r"[\W_]+")


def _bare(line: str) -> str:
    """A line without its number, its marks and its spaces."""
    return _SIGNS.sub("", _COUNTED.sub("", line, count=1) if _COUNTED.match(line) else line)


def _has_line(text: str, word: str, wanted: str) -> bool:
    """Whether it has a line that says this, which a word is in. Looking for the word first is fast."""
    at = text.find(word)
    while at >= 0:
        end = text.find("\n", at)
        if _bare(text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else None]) == wanted:
            return True
        at = text.find(word, end) if end >= 0 else -1
    return False


# ---------------------------------------------------------------------- quotations

_ELLIPSIS = re.compile(r"[\[(]?(?:\u2026|\.{3,})[\])]?")
_GLUED = r"[0-9A-Za-z\u00c0-\u0dff]"  # signs of scripts that put spaces between words


def _patterns(quotation: str) -> list[re.Pattern[str]]:
    """What has to be found, one after the other: an ellipsis stands for what was left out. Nothing if a piece of it
    says next to nothing."""
    parts = [part.strip() for part in _ELLIPSIS.split(normalized(quotation).text)]
    parts = [part for part in parts if part]
    if any(sum(map(len, _WORD.findall(part))) < _LEAST for part in parts):
        return []
    return [re.compile(f"{_edge(part[0], '?<!')}{re.escape(part)}{_edge(part[-1], '?!')}") for part in parts]


def _edge(sign: str, look: str) -> str:
    """Words are quoted whole."""
    return f"({look}{_GLUED})" if re.match(_GLUED, sign) else ""


class _Span(NamedTuple):
    start: int
    end: int


def _found(parts: Sequence[re.Pattern[str]], there: Normalized) -> Iterator[_Span]:
    """Where the pieces of a quotation stand, in order: at a few places at most."""
    after = 0
    for _ in range(_TRIES):
        begin, at = -1, after
        for part in parts:
            match = part.search(there.text, at)
            if match is None:
                return
            begin = match.start() if begin < 0 else begin
            at = match.end()
        yield _Span(there.places[begin], there.places[at - 1] + 1)
        after = begin + 1
