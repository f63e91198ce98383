"""Choosing what is quoted word for word after a compaction. Pure: messages in, places in them out.

Nothing is classified and nothing is copied, so nothing can be made of words that they are not. What people said is
quoted whole, if it fits. If it does not, the most specific sentences are: those whose words are rare in the
conversation, for their length. Each brings its setting, the words that introduce it.

A stretch has the score of the best sentence that it is quoted for, and that is fixed when the sentence first has to
compete. They are taken in the order of scores until the first that does not fit; its score is the water mark, and what
is below it is not taken later either. So many rounds choose what one pass over the whole conversation would, a round in
which nothing is said changes nothing, and a round costs what is cut and what is carried.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from onefold.compaction.prompt import KINDS
from onefold.journal.quotes import MOST, MOST_MESSAGES
from onefold.messages import encode
from onefold.messages.codecs import estimate
from onefold.messages.frame import put_together, quotation, quoted
from onefold.messages.quotation import AGENT, PERSON, SYSTEM, Quotation, Utterance, gaps, lines, who_says
from onefold.messages.sentences import Piece, asks, pieces
from onefold.messages.words import spoken
from onefold.model import Fact, Gap, Label, Quote, Quotes, Record

MOST_WORDS = 100_000
"""Characters of one message's words, at most: a longer one is a line with its size."""
MOST_BYTES = 4 << 20
"""Bytes of the messages that a context quotes from, pictures in them included: they are read for each context."""

_SYSTEM, _LABEL = 100.0, 1.0
"""What is added to a score: what the program's operator said comes first, and what a model called a rule early."""
_AGENTS, _QUESTION, _EARLIER, _MIDDLE, _SHOWN = 0.9, 0.5, 0.5, 0.5, 0.5
_STAYS = 2.0  # how many times as much a sentence has to be worth to take the place of one that is quoted
_PEOPLES = 0.85  # of the room, for people's messages whole: the rest is for what agents report
_OVERHEAD = 20  # tokens that a line costs beside its words
_EDGE = 1_000  # characters at either end of a long message that are not its middle
_GREETING = 25  # tokens that the beginning of a message with paragraphs has at least
_LONG = 400  # characters from which a message's end is part of the setting of what stands in it
_ANSWER = 40  # bytes up to which a message is a short answer
_HANDED = 100  # characters from which a message may be what another one announced
_ANNOUNCED = 200  # characters up to which what was said before comes whole
_NOD = 160  # characters up to which an agent's message says little more than yes
_NEAR = 4  # records from one message to another that has to do with it
_TINY = 1e-6
_GUESSES = 6  # at how many fit, before the rest is halved
_LINE = 9  # bytes that a stretch costs beside its words, about
_SIMPLE = 2  # keys of a message that is a role and its words
_SAME = 3  # words that two sentences share at least that differ only in values


class Said(NamedTuple):
    """One message of somebody, as far as it can be quoted."""

    number: int
    who: str
    at: float
    texts: dict[str, str]
    """What stands at each pointer into its body."""
    size: int
    """Bytes of its body."""

    @property
    def length(self) -> int:
        return sum(len(text) for text in self.texts.values())

    @property
    def words(self) -> str:
        return "\n".join(self.texts.values())


def said(record: Record) -> Said | None:
    """Who says what in a message; None if there are nobody's words in it to quote."""
    who = who_says(record.header.role) if record.header is not None else None
    if who is None:
        return None
    texts = dict(spoken(record.format, record.body))
    if not any(text and not text.isspace() for text in texts.values()):
        return None
    simple = len(record.body) <= _SIMPLE and texts.keys() == {"/content"}
    size = _bytes(texts["/content"]) if simple else len(encode(record.body))
    return Said(record.number, who, record.at, texts, size)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Chosen(NamedTuple):
    quotes: Quotes
    tokens: int
    """The size of the message that quotes it."""


def choose(
    before: Quotes,
    carried: Mapping[int, Said],
    cut: Sequence[Said],
    *,
    room: int,
    earlier: Sequence[Said] = (),
    others: Iterable[str] = (),
    labels: Sequence[Label] = (),
    pause: Callable[[], object] = lambda: None,
) -> Chosen:
    """What the next segment quotes: of what the base quotes, with its messages, and of what is cut now.

    `earlier` are the last messages before those: what they say may introduce or be answered by the first of them.
    `others` are texts by which the rarity of words is told. `room` is in tokens, for all quotes together.
    """
    return _Choice(
        before, carried, cut, room=room, earlier=earlier, others=others, labels=labels, pause=pause
    ).made()  # fmt: skip


def labelled(facts: Sequence[Fact], heard: Sequence[Said], others: Sequence[str] = ()) -> tuple[Label, ...]:
    """What a model called some words, for those of its quotations that stand in a message: widened to sentences.

    A rule, a limit or a preference needs a person's own words, outside what is only shown: code, quotations, documents,
    what follows a colon, and lines that also stand in what a tool or an agent said.
    """
    shown = (*others, *(one.words for one in heard if one.who == AGENT)) if facts else ()
    elsewhere = {line.strip() for text in shown for line in text.split("\n")}
    found: list[Label] = []
    for fact in facts:
        words = fact.text.split()
        if fact.kind not in KINDS or not words or len(fact.text) > _LONGEST_LABEL:
            continue
        pattern = re.compile(r"\s+".join(map(re.escape, words)))
        of_people = fact.kind in _OF_PEOPLE
        for one in reversed(heard):
            if of_people and one.who == AGENT:
                continue
            if (label := _labelled(fact, pattern, one, elsewhere if of_people else None)) is not None:
                found.append(label)
                break
    return tuple(found)


_OF_PEOPLE = frozenset({"rule", "limit", "preference"})
_LONGEST_LABEL = 1_000
_MARKS = '"“”„«»「」『』'


def _labelled(fact: Fact, pattern: re.Pattern[str], one: Said, elsewhere: set[str] | None) -> Label | None:
    for pointer, text in one.texts.items():
        match = pattern.search(text) if len(text) <= MOST_WORDS else None
        if match is None:
            continue
        around = [p for p in pieces(text) if p.start < match.end() and match.start() < p.end]
        if not around:
            continue
        if elsewhere is not None and any(_only_shown(text, p, match.start(), elsewhere) for p in around):
            continue
        return Label(one.number, pointer, around[0].start, around[-1].end, fact.kind, fact.key)
    return None


def _only_shown(text: str, piece: Piece, at: int, elsewhere: set[str]) -> bool:
    line = text[text.rfind("\n", 0, piece.start) + 1 : max(piece.end, text.find("\n", piece.end))].strip()
    before = text[piece.start : max(piece.start, at)]
    return piece.shown or piece.under >= 0 or line in elsewhere or any(before.count(m) % 2 for m in _MARKS)


# ---------------------------------------------------------------------- how rare words are

_WORD = re.compile(r"[^\W_]+")
_EDGES = "\"'`.,:;!?()[]{}<>*_~|…。，、！？：；「」『』（）«»“”‘’؟،؛।-–—"  # noqa: RUF001  signs of many scripts
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts that put no space between words: there, each two letters that follow each other count as one."""
_SHAPE = re.compile(r"\w[/\\_@#=+]\w|^[/~.]{1,2}/?\w+/|\w::\w|[^\W\d_]\.[^\W\d_]{2}|[a-z][A-Z]|^--?\w{2}|^[A-Z]{3,}$")
_LOW_WORDS = bytes(ord(chr(n).lower()) if n < 128 and chr(n).isalnum() else 32 for n in range(256))
"""For `bytes.translate`: the words of an ASCII text, in small letters."""
_LONGEST_TERM = 200


def is_identifier(word: str) -> bool:
    """Whether a word is a name or a value, by its shape: digits in it, signs between letters, a capital after a small
    letter."""
    return any(c.isdigit() for c in word) or _SHAPE.search(word) is not None


@lru_cache(1 << 12)
def terms(text: str) -> Mapping[str, float]:
    """The words of a sentence, and what each weighs: an identifier twice as much as another word."""
    found: dict[str, float] = {}
    for token in text.split():
        found |= _weights[token]
    return found


class _Weights(dict[str, dict[str, float]]):
    """The terms of a token, as far as they were asked for before: most are asked for again and again."""

    def __missing__(self, token: str) -> dict[str, float]:
        if len(self) >= _MOST_TOKENS:
            self.clear()
        made = self[token] = dict(_terms(token))
        return made


_MOST_TOKENS = 1 << 15
_weights = _Weights()


def _terms(token: str) -> tuple[tuple[str, float], ...]:
    bare = token.strip(_EDGES)
    if not bare or len(bare) > _LONGEST_TERM:
        return ()
    if bare.isascii() and bare.isalpha() and (bare.islower() or bare.istitle()):
        return ((bare.casefold(), 1.0),)  # as most are
    if bare.isascii() or _UNSPACED.search(bare) is None:
        words = [(word, 1.0) for word in _WORD.findall(bare.casefold())]
        if not is_identifier(bare):
            return tuple(words)
        return ((bare.casefold(), 2.0), *(words if len(words) > 1 else ()))
    found: list[tuple[str, float]] = []
    at = 0
    for run in _UNSPACED.finditer(bare):
        found += _terms(bare[at : run.start()])
        found += [(run[0][n : n + 2], 1.0) for n in range(max(1, len(run[0]) - 1))]
        at = run.end()
    return (*found, *_terms(bare[at:]))


class _Rarity:
    """How often the words of some sentences come in all that was said: only those are counted, so that much text is
    read at the speed of a search."""

    def __init__(self, sentences: Iterable[str], texts: int) -> None:
        self._every = texts + 1
        self._seen: Counter[str] = Counter()
        self._found: list[frozenset[bytes]] = []
        self.narrow(sentences)

    def narrow(self, sentences: Iterable[str]) -> None:
        """From here on, only these count."""
        self._count()
        wanted = {term for sentence in sentences for term in terms(sentence)}
        self._wanted = frozenset(wanted)
        self._pairs = any(len(term) <= _PAIR and _UNSPACED.match(term) for term in wanted if not term.isascii())
        self._compounds = frozenset(term for term in wanted if not term.isalnum())
        self._ascii = {term.encode(): term for term in wanted if term.isascii()}
        self._plain = frozenset(self._ascii)
        self._weights: dict[str, float] = {}

    def add(self, text: str) -> None:
        if text.isascii():  # as most are, and what follows is a small part of the work
            raw = text.encode()
            self._found.append(self._plain.intersection(raw.translate(_LOW_WORDS).split()))
            if len(self._found) >= _SOME_TEXTS:
                self._count()
            if self._compounds:
                odd = {token for token in {*text.casefold().split()} if not token.isalnum()}
                self._seen.update(self._compounds.intersection(token.strip(_EDGES) for token in odd))
            return
        low = text.casefold()
        found = self._wanted.intersection(_WORD.findall(low))
        found |= self._wanted.intersection(token.strip(_EDGES) for token in {*low.split()})
        if self._pairs:
            for run in _UNSPACED.findall(low):
                found |= self._wanted.intersection(run[n : n + _PAIR] for n in range(max(1, len(run) - 1)))
        self._seen.update(found)

    def of(self, sentence: str) -> float:
        """How much only this sentence says, for its length. Before all texts are there, the most that it can be."""
        every = self._every
        if not self._weights:
            self._count()
            logs = [math.log(every / max(1, often)) for often in range(every)]
            self._weights = {term: logs[self._seen.get(term, 0)] for term in self._wanted}
        weights = self._weights
        rare = sum([w * weights[t] for t, w in terms(sentence).items()])
        return rare / math.log(every) / (estimate(sentence) + _OVERHEAD) if every > 1 else 0.0

    def _count(self) -> None:
        if self._found:
            found = Counter(chain.from_iterable(self._found))
            self._seen.update({self._ascii[term]: often for term, often in found.items()})
            self._found.clear()


_SOME_TEXTS = 256
_PAIR = 2


# ---------------------------------------------------------------------- sentences that may be quoted


class _Unit(NamedTuple):
    """A stretch of a message, without its score."""

    number: int
    pointer: str
    start: int
    end: int


class _Bundle(NamedTuple):
    """A sentence with its setting: quoted together or not at all."""

    score: float
    units: tuple[_Unit, ...]
    rank: float
    """By which it competes: what is quoted already stands, unless something is said that is worth much more."""


class _Sentence(NamedTuple):
    unit: _Unit
    text: str
    shown: bool
    under: int
    """Which sentence of its message introduces it; -1 if none does."""
    middle: bool


def _sentences(of: Said, wanted: Callable[[str], bool] | None = None) -> list[_Sentence]:
    """All of a message; or only those that are `wanted`, without what introduces them."""
    made: list[_Sentence] = []
    for pointer, text in of.texts.items():
        first, most = len(made), len(text) - _EDGE
        for start, end, shown, under in pieces(text):
            words = text[start:end]
            if wanted is None or wanted(words):
                place = first + under if under >= 0 and wanted is None else -1
                unit = _Unit(of.number, pointer, start, end)
                made.append(_Sentence(unit, words, shown, place, start > _EDGE and end < most))
    return made


def _too_long(one: Said) -> bool:
    return one.length > MOST_WORDS or one.size > MOST_BYTES


def _whole(of: Said) -> list[_Unit]:
    """A message whole; one that is too long, as a line."""
    if _too_long(of):
        return [_Unit(of.number, "", 0, of.length)]
    trimmed = ((p, len(t) - len(t.lstrip()), len(t.rstrip())) for p, t in of.texts.items())
    return [_Unit(of.number, pointer, start, end) for pointer, start, end in trimmed if start < end]


class _Choice:
    def __init__(
        self, before: Quotes, carried: Mapping[int, Said], cut: Sequence[Said], *, room: int, earlier: Sequence[Said],
        others: Iterable[str], labels: Sequence[Label], pause: Callable[[], object],
    ) -> None:  # fmt: skip
        self._before = before
        self._carried = [q for q in before.stretches if q.number in carried]
        self._cut = [s for s in cut if s.number not in carried]
        self._known: dict[int, Said] = {s.number: s for s in (*earlier, *carried.values(), *self._cut)}
        self._numbers = sorted(self._known)
        people = {s.number for s in (*carried.values(), *self._cut) if s.who != AGENT}
        self._people = {n: Gap(n, n, 1) for n in sorted(people)}
        self._room = room
        self._others = others
        self._labels = tuple(dict.fromkeys((*before.labels, *labels)))
        self._labels_of: dict[int, list[Label]] = {}
        for label in self._labels:
            self._labels_of.setdefault(label.number, []).append(label)
        self._written: dict[tuple[_Unit, ...], str] = {}
        self._pause = pause

    def made(self) -> Chosen:
        if self._room < estimate(quoted(())):
            return Chosen(Quotes(marks=self._before.marks, gaps=self._gaps(())), 0)
        if not self._before.marks[0]:
            whole = [unit for n in self._people for unit in _whole(self._known[n])]
            if self._fits(whole, int(self._room * _PEOPLES)):
                return self._taken(whole, self._bundles(people=False))
        return self._taken([], self._bundles(people=True))

    def _taken(self, whole: Sequence[_Unit], bundles: list[_Bundle]) -> Chosen:
        """As many as fit, the best first. What has one score goes together."""
        bundles.sort(key=lambda b: -b.rank)
        count = len(bundles)
        stops = [n for n in range(count + 1) if n in (0, count) or bundles[n - 1].rank > bundles[n].rank]
        low = self._most(bundles, stops, whole)
        scored = _scored(bundles[: stops[low]])
        people, agents = self._before.marks
        refused = bundles[stops[low]].score if stops[low] < count else 0.0
        agents = max(agents, refused)
        people = 0.0 if whole else max(people, refused, _TINY)
        quotes = self._quotes(scored, whole)
        gone, labels = self._gaps(q.number for q in quotes), self._labelled(quotes, self._labels)
        return Chosen(Quotes(tuple(quotes), (people, agents), gone, labels), self._size((*scored, *whole)))

    def _most(self, bundles: Sequence[_Bundle], stops: Sequence[int], whole: Sequence[_Unit]) -> int:
        """Up to which stop the best fit. A size is looked for where it is likely to be, by the length of the words and
        by how far off that was before."""
        about = self._about(bundles, stops, whole)
        low, high = 0, len(about) - 1
        room, tries = 4 * self._room, 0
        while low < high:
            likely = bisect_right(about, room) - 1 if tries < _GUESSES else (low + high + 1) // 2
            middle = min(high, max(low + 1, likely))
            self._pause()
            taken = dict.fromkeys(unit for bundle in bundles[: stops[middle]] for unit in bundle.units)
            size = self._size((*taken, *whole))
            if size <= self._room:
                low = middle
            else:
                high = middle - 1
            room, tries = 4 * (self._room - size) + about[middle], tries + 1
        return low

    def _about(self, bundles: Sequence[_Bundle], stops: Sequence[int], whole: Sequence[_Unit]) -> list[int]:
        """About how many bytes are quoted up to each stop, as long as there are not too many stretches and messages."""
        seen: set[_Unit] = {*whole}
        read = {unit.number: self._known[unit.number].size if unit.pointer else 0 for unit in whole}
        size = 4 * estimate(quoted(())) + sum(map(self._length, whole))
        load = sum(read.values())
        made: list[int] = []
        for at, stop in enumerate(stops):
            for bundle in bundles[stops[at - 1] if at else 0 : stop]:
                for unit in bundle.units:
                    if unit in seen:
                        continue
                    seen.add(unit)
                    size += self._length(unit)
                    if unit.pointer and not read.get(unit.number):
                        read[unit.number] = self._known[unit.number].size
                        load += read[unit.number]
                    read.setdefault(unit.number, 0)
            if made and (len(seen) > MOST or len(read) > MOST_MESSAGES or load > MOST_BYTES):
                break
            made.append(size)
        return made

    def _length(self, unit: _Unit) -> int:
        text = self._known[unit.number].texts.get(unit.pointer, "")
        return _LINE + _bytes(text[unit.start : unit.end])

    def _fits(self, whole: Sequence[_Unit], room: int) -> bool:
        if len(whole) > MOST or len({unit.number for unit in whole}) > MOST_MESSAGES:
            return False
        read = {unit.number: self._known[unit.number].size for unit in whole if unit.pointer}
        return sum(read.values()) <= MOST_BYTES and self._size(whole) <= room

    def _size(self, units: Iterable[_Unit]) -> int:
        """Tokens of the message that quotes these. What is quoted of each message is written once."""
        of: dict[int, list[_Unit]] = {}
        for unit in units:
            of.setdefault(unit.number, []).append(unit)
        written: list[tuple[int, float, str]] = []
        for number in sorted(of):
            if (some := tuple(of[number])) not in self._written:
                self._written[some] = self._line(number, some)
            if line := self._written[some]:
                written.append((number, self._known[number].at, line))
        return estimate(put_together(written, self._gaps(of))) if written else 0

    def _line(self, number: int, units: Sequence[_Unit]) -> str:
        one = self._known[number]
        quotes = self._quotes({}, units) if len(units) > 1 else [Quote(*units[0], 0.0)]
        if len(quotes) == 1 and quotes[0].pointer and number not in self._labels_of:  # as most are
            _, pointer, start, end, _ = quotes[0]
            return quotation(Quotation(number, one.who, one.at, one.texts[pointer][start:end]))
        heard = {number: Utterance(number, one.who, one.at, one.texts)}
        made = lines(quotes, heard, self._labelled(quotes, self._labels_of.get(number, ())))
        return quotation(made[0]) if made else ""

    def _quotes(self, scored: Mapping[_Unit, float], whole: Sequence[_Unit]) -> list[Quote]:
        made = [*(Quote(*unit, score) for unit, score in scored.items()), *(Quote(*unit, 0.0) for unit in whole)]
        order = {n: {p: at for at, p in enumerate(self._known[n].texts)} for n in {q.number for q in made}}
        return sorted(made, key=lambda q: (q.number, order[q.number].get(q.pointer, 0), q.start))

    def _gaps(self, quoted: Iterable[int]) -> tuple[Gap, ...]:
        there = {*quoted}
        missing = [gap for n, gap in self._people.items() if n not in there]
        return gaps((*self._before.gaps, *missing), there)

    def _labelled(self, quotes: Sequence[Quote], labels: Sequence[Label]) -> tuple[Label, ...]:
        """Those labels that are of what is quoted."""
        if not labels:
            return ()
        there: dict[tuple[int, str], list[Quote]] = {}
        for quote in quotes:
            there.setdefault((quote.number, quote.pointer), []).append(quote)
        return tuple(
            label
            for label in labels
            if any(q.start < label.end and label.start < q.end for q in there.get((label.number, label.pointer), ()))
        )

    # ---------------------------------------------------------------- what competes

    def _bundles(self, *, people: bool) -> list[_Bundle]:
        """What may be quoted by its score: what the base quotes so, and what is cut now. Without `people`, of agents
        alone, since people's messages are whole."""
        floor = self._before.marks[0 if people else 1]
        kept: dict[float, list[_Unit]] = {}
        for quote in self._carried:
            if quote.score and (people or self._known[quote.number].who == AGENT):
                kept.setdefault(quote.score, []).append(_Unit(*quote[:4]))
        again = {q.number for q in self._carried if not q.score} if people else set()  # whole until now
        new = sorted((*(self._known[n] for n in again), *self._cut))
        told: list[tuple[Said, list[_Sentence]]] = []
        for one in new:
            self._pause()
            if one.who == AGENT:
                told.append((one, _sentences(one, names)))
            elif people:
                told.append((one, _sentences(one) if not _too_long(one) else []))
        earlier = _earlier(s for _, sentences in told for s in sentences)
        rarity, likely = self._rarity(told, floor)
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for one, sentences in told:
            if one.who == AGENT:
                found += [(s, _AGENTS * rarity.of(s.text), ()) for s in sentences if s.unit in likely]
            elif not sentences or any(s.unit in likely for s in sentences):
                found += self._of_a_person(one, sentences, rarity, likely)
        fresh: list[_Bundle] = []
        for sentence, worth, setting in found:
            score = round(worth * (_EARLIER if sentence.unit in earlier else 1.0), 6)
            if score > floor:
                fresh.append(_Bundle(score, tuple(dict.fromkeys((sentence.unit, *setting))), score))
        return [*(_Bundle(score, tuple(units), score * _STAYS) for score, units in kept.items()), *fresh]

    def _of_a_person(
        self, one: Said, sentences: Sequence[_Sentence], rarity: _Rarity, likely: Container[_Unit]
    ) -> list[tuple[_Sentence, float, tuple[_Unit, ...]]]:
        if not sentences:
            return [(_Sentence(line, "", False, -1, False), _TINY, ()) for line in _whole(one) if not line.pointer]
        around = [*_edges(one, sentences), *self._around(one)]
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for sentence in sentences:
            if sentence.unit not in likely:
                continue
            score = rarity.of(sentence.text)
            for factor, holds in (
                (_QUESTION, asks(sentence.text)), (_MIDDLE, sentence.middle), (_SHOWN, sentence.shown),
            ):  # fmt: skip
                score *= factor if holds else 1.0
            score += _LABEL if self._is_labelled(sentence.unit) else 0.0
            score += _SYSTEM if one.who == SYSTEM else 0.0
            under = (sentences[sentence.under].unit,) if sentence.under >= 0 else ()
            found.append((sentence, score, (*around, *under)))
        return found

    def _around(self, one: Said) -> list[_Unit]:
        """What of the messages right before belongs to this one: they may introduce it, or be what it answers. What an
        agent answered at length is no introduction to what comes next."""
        found: list[_Unit] = []
        at = bisect_left(self._numbers, one.number)
        for n in reversed(self._numbers[max(0, at - 2) : at]):
            near = self._known[n]
            if near.number < one.number - _NEAR or near.length > MOST_WORDS:
                break
            if (near.who == PERSON and _may_be_shown(one)) or (near.who == AGENT and _small(one)):
                said = _sentences(near)
                found += [s.unit for s in (said if near.length <= _ANNOUNCED else said[-1:])]
            if near.who != AGENT or near.length > _NOD:
                break
        return found

    def _is_labelled(self, unit: _Unit) -> bool:
        number, pointer, start, end = unit
        labels = self._labels_of.get(number, ())
        return any(x.pointer == pointer and x.start < end and start < x.end for x in labels)

    def _rarity(self, told: Sequence[tuple[Said, Sequence[_Sentence]]], floor: float) -> tuple[_Rarity, set[_Unit]]:
        """How rare words are, and what may be worth more than the floor by that: most is not, as its own words tell
        before the rest is read."""
        heard, others = [*self._heard()], [*self._others]
        made = _Rarity((s.text for _, sentences in told for s in sentences), len(heard) + len(others))
        self._read(made, heard)
        likely = {
            sentence.unit: sentence.text
            for one, sentences in told
            for sentence in sentences
            if not floor or one.who == SYSTEM or one.number in self._labels_of
            or made.of(sentence.text) > floor - _TINY
        }  # fmt: skip
        made.narrow(likely.values())
        if likely:
            self._read(made, others)
        return made, {*likely}

    def _read(self, rarity: _Rarity, texts: Iterable[str]) -> None:
        for text in texts:
            self._pause()
            rarity.add(text)

    def _heard(self) -> Iterator[str]:
        for one in self._cut:
            yield one.words[:MOST_WORDS]
        for quote in self._carried:
            if quote.pointer:
                yield self._known[quote.number].texts.get(quote.pointer, "")[quote.start : quote.end]


def _edges(one: Said, sentences: Sequence[_Sentence]) -> list[_Unit]:
    """The beginning of a message, in one with paragraphs a greeting with what follows it; and its end, where that may
    say what the rest is."""
    parted = "\n\n" in one.words
    found = [sentences[0].unit]
    size = estimate(sentences[0].text)
    for sentence in sentences[1:]:
        if not parted or size >= _GREETING:
            break
        found.append(sentence.unit)
        size += estimate(sentence.text)
    if parted or one.length > _LONG:
        found.append(sentences[-1].unit)
    return found


def _scored(bundles: Iterable[_Bundle]) -> dict[_Unit, float]:
    """What is taken, each with the score of the best that it is taken for."""
    made: dict[_Unit, float] = {}
    for score, units, _ in bundles:
        for unit in units:
            made[unit] = max(score, made.get(unit, 0.0))
    return made


def _earlier(sentences: Iterable[_Sentence]) -> set[_Unit]:
    """Those that a later one says again with other values."""
    last: dict[frozenset[str], _Unit] = {}
    found: set[_Unit] = set()
    for sentence in sentences:
        words = frozenset(word for word, weight in terms(sentence.text).items() if weight == 1 and word.isalpha())
        if len(words) >= _SAME:
            if words in last:
                found.add(last[words])
            last[words] = sentence.unit
    return found


_HARMLESS = b"abcdefghijklmnopqrstuvwxyz \t\n\"'()!?,;"
"""What no name or value is told by: beside it, such a sentence has a capital at its beginning and a stop at its end."""


def names(sentence: str) -> bool:
    """Whether a name or a value stands in it."""
    if sentence.isascii():  # of most, that is seen by the signs in it
        rest = sentence.encode().translate(None, _HARMLESS)
        rest = rest[:-1] if rest[-1:] == b"." == sentence[-1:].encode() else rest
        if not rest or (len(rest) == 1 and rest.isupper() and sentence[0] == rest.decode()):
            return False
    return any(weight > 1 for weight in terms(sentence).values())


def _may_be_shown(one: Said) -> bool:
    """Whether a message is long enough, or has the lines, of something that is handed over."""
    return one.length >= _HANDED or "\n" in one.words.strip()


def _small(one: Said) -> bool:
    return one.length <= _ANSWER and len(one.words.encode("utf-8", "surrogatepass")) <= _ANSWER
