"""Choosing what is quoted word for word after a compaction. Pure: messages in, places in them out.

Nothing is classified and nothing is copied, so nothing can be made of words that they are not. What people said is
quoted whole, if it fits. If it does not, the most specific sentences are: those whose words are rare in the
conversation, for their length. Each brings its setting, the words that introduce it.

A stretch has the score of the best sentence that it is quoted for, and that is fixed when the sentence first has to
compete. They are taken in the order of scores until the first that does not fit; its score is the water mark, and what
is below it is not taken later either. What is quoted gives way to something that is worth more, and worth the more the
less people said: so chatter does not wear it away, a round in which nothing is said changes nothing, and a round costs
what is cut and what is carried.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from onefold.compaction.prompt import KINDS
from onefold.journal.quotes import MOST, MOST_MESSAGES
from onefold.messages import encode
from onefold.messages.codecs import estimate
from onefold.messages.frame import quoted
from onefold.messages.quotation import AGENT, PERSON, SYSTEM, Utterance, gaps, lines, who_says
from onefold.messages.sentences import Piece, asks, pieces
from onefold.messages.words import spoken
from onefold.model import Fact, Gap, Label, Quote, Quotes, Record

MOST_WORDS = 100_000
"""Characters of one message's words, at most: a longer one is a line with its size."""
MOST_BYTES = 4 << 20
"""Bytes of the messages that a context quotes from, pictures in them included: they are read for each context."""

_SYSTEM, _LABEL = 100.0, 1.0
"""What is added to a score: what the program's operator said comes first, and what a model called a rule early."""
_AGENTS, _QUESTION, _EARLIER, _MIDDLE, _SHOWN, _REPEATED = 0.9, 0.5, 0.5, 0.5, 0.5, 0.5
_STAYS = 3.0  # how many times as much a sentence has to be worth, at most, to take the place of one that is quoted
_PEOPLES = 0.85  # of the room, for people's messages whole: the rest is for what agents report
_OVERHEAD = 20  # tokens that a line costs beside its words
_EDGE = 1_000  # characters at either end of a long message that are not its middle
_GREETING = 25  # tokens that the beginning of a message with paragraphs has at least
_LONG = 400  # characters from which a message's end is part of the setting of what stands in it
_ANSWER = 40  # bytes up to which a message is a short answer
_REPLY = 15  # tokens up to which a sentence after a question may be what answers it
_HANDED = 100  # letters, a sign of three bytes for two, from which a message may be what another one announced
_ANNOUNCED = 200  # characters up to which what was said before comes whole
_NOD = 160  # characters up to which an agent's message says little more than yes
_DEEP = 2  # introductions that an introduction has at most
_NEAR = 4  # records from one message to another that has to do with it
_TINY = 1e-6
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
    texts = dict(spoken(record.format, record.body)) if who is not None else {}
    if who is None or not any(map(str.strip, texts.values())):
        return None
    simple = len(record.body) <= _SIMPLE and texts.keys() == {"/content"}
    size = len(texts["/content"].encode("utf-8", "surrogatepass")) if simple else len(encode(record.body))
    return Said(record.number, who, record.at, texts, size)


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

_TOKEN = re.compile(r"\S+")
_WORD = re.compile(r"[^\W_]+")
_EDGES = "\"'`.,:;!?()[]{}<>*_~|…。，、！？：；「」『』（）«»“”‘’؟،؛।-–—"  # noqa: RUF001  signs of many scripts
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts that put no space between words: there, each two letters that follow each other count as one."""
_SHAPE = re.compile(r"\w[/\\_@#=+]\w|^[/~.]{1,2}/?\w+/|\w::\w|[^\W\d_]\.[^\W\d_]{2}|[a-z][A-Z]|^--?\w{2}|^[A-Z]{3,}$")
_LONGEST_TERM = 200


def is_identifier(word: str) -> bool:
    """Whether a word is a name or a value, by its shape: digits in it, signs between letters, a capital after a small
    letter."""
    return any(c.isdigit() for c in word) or _SHAPE.search(word) is not None


@lru_cache(1 << 12)
def terms(text: str) -> Mapping[str, float]:
    """The words of a sentence, and what each weighs: an identifier twice as much as another word."""
    found: dict[str, float] = {}
    for token in _TOKEN.findall(text):
        found.update(_terms(token))
    return found


@lru_cache(1 << 15)
def _terms(token: str) -> tuple[tuple[str, float], ...]:
    bare = token.strip(_EDGES)
    if not bare or len(bare) > _LONGEST_TERM:
        return ()
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

    def __init__(self, sentences: Iterable[str]) -> None:
        wanted = {term for sentence in sentences for term in terms(sentence)}
        self._wanted = frozenset(wanted)
        self._pairs = any(len(term) <= _PAIR and _UNSPACED.match(term) for term in wanted)
        self._seen: Counter[str] = Counter()
        self._texts = 0

    def add(self, text: str) -> None:
        low = text.casefold()
        found = self._wanted.intersection(_WORD.findall(low))
        found |= self._wanted.intersection(token.strip(_EDGES) for token in {*low.split()})
        if self._pairs and not low.isascii():
            for run in _UNSPACED.findall(low):
                found |= self._wanted.intersection(run[n : n + _PAIR] for n in range(max(1, len(run) - 1)))
        self._seen.update(found)
        self._texts += 1

    def of(self, sentence: str) -> float:
        """How much only this sentence says, for its length."""
        every = self._texts + 1
        rare = sum(w * math.log(every / max(1, self._seen[t])) for t, w in terms(sentence).items())
        return rare / math.log(every) / (estimate(sentence) + _OVERHEAD) if every > 1 else 0.0


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


def _sentences(of: Said) -> list[_Sentence]:
    made: list[_Sentence] = []
    for pointer, text in of.texts.items():
        first = len(made)
        for start, end, shown, under in pieces(text):
            unit = _Unit(of.number, pointer, start, end)
            middle = start > _EDGE and end < len(text) - _EDGE
            made.append(_Sentence(unit, text[start:end], shown, first + under if under >= 0 else -1, middle))
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
        self._people = sorted({s.number for s in (*carried.values(), *self._cut) if s.who != AGENT})
        self._room = room
        self._others = others
        self._labels = tuple(dict.fromkeys((*before.labels, *labels)))
        self._pause = pause

    def made(self) -> Chosen:
        if self._room < estimate(quoted(())):
            return Chosen(Quotes(marks=self._before.marks, gaps=self._gaps(())), 0)
        if not self._before.marks[0]:
            whole = [unit for n in self._people for unit in _whole(self._known[n])]
            if self._fits({}, whole, int(self._room * _PEOPLES)):
                return self._taken(whole, self._bundles(people=False))
        return self._taken([], self._bundles(people=True))

    def _taken(self, whole: Sequence[_Unit], bundles: list[_Bundle]) -> Chosen:
        """As many as fit, the best first. What has one score goes together."""
        bundles.sort(key=lambda b: -b.rank)
        count = len(bundles)
        stops = [n for n in range(count + 1) if n in (0, count) or bundles[n - 1].rank > bundles[n].rank]
        low, high = 0, len(stops) - 1
        guess = self._guess(bundles, stops, whole)
        while low < high:
            middle = guess.pop() if guess else (low + high + 1) // 2
            if not low < middle <= high:
                continue
            self._pause()
            if self._fits(_scored(bundles[: stops[middle]]), whole, self._room):
                low = middle
            else:
                high = middle - 1
        scored = _scored(bundles[: stops[low]])
        people, agents = self._before.marks
        refused = bundles[stops[low]].score if stops[low] < count else 0.0
        agents = max(agents, refused)
        people = 0.0 if whole else max(people, refused, _TINY)
        quotes = self._quotes(scored, whole)
        gone, labels = self._gaps(q.number for q in quotes), self._labelled(quotes)
        return Chosen(Quotes(tuple(quotes), (people, agents), gone, labels), self._size(quotes))

    def _guess(self, bundles: Sequence[_Bundle], stops: Sequence[int], whole: Sequence[_Unit]) -> list[int]:
        """Where the search begins: around what is likely to fit, by the length of its words."""
        seen: dict[_Unit, int] = {}
        room = self._room * 4 - estimate(quoted(())) * 4 - sum(self._length(unit) for unit in whole)
        at = 0
        for at, stop in enumerate(stops):
            for bundle in bundles[stops[at - 1] if at else 0 : stop]:
                for unit in bundle.units:
                    if unit not in seen:
                        seen[unit] = self._length(unit)
                        room -= seen[unit]
            if room < 0 or len(seen) + len(whole) > MOST:
                break
        return [at - max(1, at // 16), at + max(1, at // 16), at]

    def _words(self, unit: _Unit) -> str:
        return self._known[unit.number].texts.get(unit.pointer, "")[unit.start : unit.end]

    def _length(self, unit: _Unit) -> int:
        words = self._words(unit)
        return _LINE + (len(words) if words.isascii() else len(words.encode("utf-8", "surrogatepass")))

    def _fits(self, scored: Mapping[_Unit, float], whole: Sequence[_Unit], room: int) -> bool:
        if len(scored) + len(whole) > MOST:
            return False
        quotes = self._quotes(scored, whole)
        read = {q.number: self._known[q.number].size for q in quotes if q.pointer}
        if len({q.number for q in quotes}) > MOST_MESSAGES:
            return False
        return sum(read.values()) <= MOST_BYTES and self._size(quotes) <= room

    def _size(self, quotes: Sequence[Quote]) -> int:
        known = (self._known[n] for n in {q.number for q in quotes})
        heard = {s.number: Utterance(s.number, s.who, s.at, s.texts) for s in known}
        shown = lines(quotes, heard, self._labelled(quotes))
        return estimate(quoted(shown, self._gaps(q.number for q in quotes))) if shown else 0

    def _quotes(self, scored: Mapping[_Unit, float], whole: Sequence[_Unit]) -> list[Quote]:
        made = [*(Quote(*unit, score) for unit, score in scored.items()), *(Quote(*unit, 0.0) for unit in whole)]
        order = {n: {p: at for at, p in enumerate(self._known[n].texts)} for n in {q.number for q in made}}
        return sorted(made, key=lambda q: (q.number, order[q.number].get(q.pointer, 0), q.start))

    def _gaps(self, quoted: Iterable[int]) -> tuple[Gap, ...]:
        there = {*quoted}
        missing = [Gap(n, n, 1) for n in self._people if n not in there]
        return gaps((*self._before.gaps, *missing), there)

    def _labelled(self, quotes: Sequence[Quote]) -> tuple[Label, ...]:
        """The labels of what is quoted."""
        if not self._labels:
            return ()
        there: dict[tuple[int, str], list[Quote]] = {}
        for quote in quotes:
            there.setdefault((quote.number, quote.pointer), []).append(quote)
        return tuple(
            label
            for label in self._labels
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
        named = _Named(one for one in self._known.values() if one.who != AGENT)
        for one in new:
            self._pause()
            if one.who == AGENT:
                told.append((one, [s for s in _sentences(one) if named.nobody_said(_names(s.text), one.number)]))
            elif people:
                told.append((one, _sentences(one) if not _too_long(one) else []))
        rarity = self._rarity(s.text for _, sentences in told for s in sentences)
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for one, sentences in told:
            if one.who == AGENT:
                found += [(s, _AGENTS * rarity.of(s.text), ()) for s in sentences]
            else:
                found += self._of_a_person(one, sentences, rarity)
        earlier = _earlier(s for s, _, _ in found)
        quoted = _Quoted(self._words(unit) for units in kept.values() for unit in units)
        fresh: list[_Bundle] = []
        for sentence, worth, setting in found:
            less = (_EARLIER if sentence.unit in earlier else 1.0) * (_REPEATED if quoted.says(sentence.text) else 1.0)
            score = round(worth * less, 6)
            if score > floor:
                fresh.append(_Bundle(score, tuple(dict.fromkeys((sentence.unit, *setting))), score))
        stays = self._stays()
        return [*(_Bundle(score, tuple(units), score * stays) for score, units in kept.items()), *fresh]

    def _stays(self) -> float:
        """How many times as much something new has to be worth as what is quoted. The less people said beside the room
        there is, the more: few words among much that holds are rarely worth what they would displace."""
        news = sum(estimate(one.words) for one in self._cut if one.who != AGENT)
        return min(_STAYS, max(1.0, self._room / (2 * max(1, news))))

    def _of_a_person(
        self, one: Said, sentences: Sequence[_Sentence], rarity: _Rarity
    ) -> list[tuple[_Sentence, float, tuple[_Unit, ...]]]:
        if not sentences:
            return [(_Sentence(line, "", False, -1, False), _TINY, ()) for line in _whole(one) if not line.pointer]
        around = [*_edges(one, sentences), *self._around(one)]
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for at, sentence in enumerate(sentences):
            score = rarity.of(sentence.text)
            for factor, holds in (
                (_QUESTION, asks(sentence.text)), (_MIDDLE, sentence.middle), (_SHOWN, sentence.shown),
            ):  # fmt: skip
                score *= factor if holds else 1.0
            score += _LABEL if self._is_labelled(sentence.unit) else 0.0
            score += _SYSTEM if one.who == SYSTEM else 0.0
            under = [sentences[sentence.under].unit] if sentence.under >= 0 else []
            if at and _answers(sentence.text, sentences[at - 1].text):
                under.append(sentences[at - 1].unit)
            found.append((sentence, score, (*around, *under)))
        return found

    def _around(self, one: Said, deep: int = _DEEP) -> list[_Unit]:
        """What of the messages right before belongs to this one: they may introduce it, or be what it answers. What an
        agent answered at length is no introduction to what comes next. What introduces may need an introduction too."""
        found: list[_Unit] = []
        at = bisect_left(self._numbers, one.number)
        for n in reversed(self._numbers[max(0, at - 2) : at]):
            near = self._known[n]
            if near.number < one.number - _NEAR or near.length > MOST_WORDS:
                break
            if (near.who == PERSON and _may_be_shown(one)) or (near.who == AGENT and _small(one)):
                said = _sentences(near)
                found += [s.unit for s in (said if near.length <= _ANNOUNCED else said[-1:])]
                found += self._around(near, deep - 1) if deep and near.who == PERSON else []
            if near.who != AGENT or near.length > _NOD:
                break
        return found

    def _is_labelled(self, unit: _Unit) -> bool:
        number, pointer, start, end = unit
        return any(x[:2] == (number, pointer) and x.start < end and start < x.end for x in self._labels)

    def _rarity(self, sentences: Iterable[str]) -> _Rarity:
        made = _Rarity(sentences)
        for text in self._texts():
            self._pause()
            made.add(text)
        return made

    def _texts(self) -> Iterator[str]:
        yield from self._others
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


def _names(sentence: str) -> list[str]:
    """The names and values that stand in it."""
    return [term for term, weight in terms(sentence).items() if weight > 1]


class _Named:
    """Which names and values people have said, message by message: what an agent says back to them is no news."""

    def __init__(self, people: Iterable[Said]) -> None:
        self._to_come = sorted(people, reverse=True)
        self._names: set[str] = set()

    def nobody_said(self, names: Iterable[str], before: int) -> bool:
        """Whether one of them was said by nobody before that message. To be asked in order."""
        while self._to_come and self._to_come[-1].number < before:
            words = self._to_come.pop().words[:MOST_WORDS]
            if words.isascii():
                self._names.update(token.strip(_EDGES) for token in words.casefold().split())
            else:
                self._names.update(term for token in _TOKEN.findall(words) for term, _ in _terms(token))
        return any(name not in self._names for name in names)


class _Quoted:
    """What is quoted already: saying it again, in the same words, says little."""

    def __init__(self, stretches: Iterable[str]) -> None:
        self._at: dict[str, set[int]] = {}
        for n, text in enumerate(stretches):
            for term in terms(text):
                self._at.setdefault(term, set()).add(n)

    def says(self, sentence: str) -> bool:
        """Whether one stretch has all words of a sentence."""
        found = sorted((self._at.get(term, set()) for term in terms(sentence)), key=len)
        return bool(found) and bool(set[int].intersection(*found))


def _answers(sentence: str, before: str) -> bool:
    """Whether it may be what answers the question before it, and says little without that."""
    return estimate(sentence) <= _REPLY and asks(before) and not asks(sentence)


def _may_be_shown(one: Said) -> bool:
    """Whether a message is long enough, or has the lines, of something that is handed over."""
    size = (len(one.words) + len(one.words.encode("utf-8", "surrogatepass"))) // 2
    return size >= _HANDED or "\n" in one.words.strip()


def _small(one: Said) -> bool:
    return one.length <= _ANSWER and len(one.words.encode("utf-8", "surrogatepass")) <= _ANSWER
