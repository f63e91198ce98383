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

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from onefold.compaction.quote_sizes import Sizes, Unit
from onefold.compaction.rarity import Names, Rarity, Repeats, names, names_in, terms
from onefold.journal.quote_refs import MOST, MOST_MESSAGES
from onefold.messages import encode
from onefold.messages.codecs import estimate
from onefold.messages.context_text import quotes_block
from onefold.messages.quotation import AGENT, PERSON, SYSTEM, Quotation, Utterance, gaps, lines, who_says
from onefold.messages.sentences import LONGEST, asks, pieces
from onefold.messages.speaker_text import spoken
from onefold.model import Gap, Label, Quote, Quotes, Record

MOST_WORDS = 100_000
"""Characters of one message's words, at most: a longer one is a line with its size."""
MOST_BYTES = 4 << 20
"""Bytes of the messages that a context quotes from, pictures in them included: they are read for each context."""

_SYSTEM, _LABEL = 100.0, 1.0
"""What is added to a score: what the program's operator said comes first, and what a model called a rule early."""
_AGENTS, _QUESTION, _EARLIER, _MIDDLE, _SHOWN, _REPEATED = 0.9, 0.5, 0.5, 0.5, 0.5, 0.5
_STAYS = 3.0  # how many times as much a name or a value has to be worth, at most, to replace what is quoted
_PEOPLES = 0.85  # of the room, for people's messages whole: the rest is for what agents report
_EDGE = 1_000  # characters at either end of a long message that are not its middle
_GREETING = 25  # tokens that the beginning of a message with paragraphs has at least
_LONG = 400  # bytes from which a message's end is part of the setting of what stands in it
_ANSWER = 40  # bytes up to which a message is a short answer
_REPLY = 15  # tokens up to which a sentence after a question may be what answers it
_HANDED = 100  # letters, a sign of three bytes for two, from which a message may be what another one announced
_ANNOUNCED = 200  # bytes up to which what was said before comes whole
_NOD = 160  # bytes up to which an agent's message says little more than yes
_DEEP = 2  # introductions that an introduction has at most
_NEAR = 4  # records from one message to another that has to do with it
_TINY = 1e-6
_MANY = 999_999  # messages that are left out behind the last quote, at most
_GUESSES = 6  # at how many fit, before the rest is halved
_LINE = 9  # bytes that a stretch costs in addition to its words, about
_SIMPLE = 2  # keys of a message that is a role and its words
_NUMBER = itemgetter(0)
_SAME = 3  # words that two sentences share at least that differ only in values

T = TypeVar("T")


class Speech(NamedTuple):
    """One message of somebody, as far as it can be quoted."""

    number: int
    who: str
    at: float
    texts: dict[str, str]
    """What stands at each pointer into its body."""
    size: int
    """Bytes of its body."""
    actor: str | None = None
    """Which person or program, if that is known."""

    @property
    def length(self) -> int:
        return sum(map(len, self.texts.values()))

    @property
    def words(self) -> str:
        return "\n".join(self.texts.values())


def said(record: Record) -> Speech | None:
    """Who says what in a message; None if there are nobody's words in it to quote."""
    who = who_says(record.header.role) if record.header is not None else None
    if who is None:
        return None
    texts = dict(spoken(record.format, record.body))
    if not any(text and not text.isspace() for text in texts.values()):
        return None
    simple = len(record.body) <= _SIMPLE and texts.keys() == {"/content"}
    size = _bytes(texts["/content"]) if simple else len(encode(record.body))
    return Speech(record.number, who, record.at, texts, size, record.actor)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Chosen(NamedTuple):
    quotes: Quotes
    tokens: int
    """The size of the message that quotes it."""


def choose(
    before: Quotes,
    carried: Mapping[int, Speech],
    cut: Sequence[Speech],
    *,
    room: int,
    earlier: Sequence[Speech] = (),
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


def _sentences(of: Speech, wanted: Callable[[str], bool] | None = None) -> list[_Sentence]:
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


def _too_long(one: Speech) -> bool:
    return one.length > MOST_WORDS or one.size > MOST_BYTES


def _whole(of: Speech) -> list[_Unit]:
    """A message whole; one that is too long, as a line."""
    if _too_long(of):
        return [_Unit(of.number, "", 0, of.length)]
    trimmed = ((p, len(t) - len(t.lstrip()), len(t.rstrip())) for p, t in of.texts.items())
    return [_Unit(of.number, pointer, start, end) for pointer, start, end in trimmed if start < end]


class _Choice:
    def __init__(
        self, before: Quotes, carried: Mapping[int, Speech], cut: Sequence[Speech], *, room: int,
        earlier: Sequence[Speech], others: Iterable[str], labels: Sequence[Label], pause: Callable[[], object],
    ) -> None:  # fmt: skip
        self._before = before
        self._carried = [q for q in before.stretches if q.number in carried]
        self._cut = [s for s in cut if s.number not in carried]
        self._known: dict[int, Speech] = {s.number: s for s in (*earlier, *carried.values(), *self._cut)}
        self._numbers = sorted(self._known)
        people = {s.number for s in (*carried.values(), *self._cut) if s.who != AGENT}
        self._people = {n: Gap(n, n, 1) for n in sorted(people)}
        self._room = room
        self._others = others
        self._labels = tuple(dict.fromkeys((*before.labels, *labels)))
        self._labels_of: dict[int, list[Label]] = {}
        self._raised: dict[int, list[_Unit]] = {}
        for label in self._labels:
            self._labels_of.setdefault(label.number, []).append(label)
            for unit in (_Unit(*label[:4]), _Unit(*label[6:])):  # with what ends something, so that both stand
                self._raised.setdefault(unit.number, []).append(unit)
        self._sizes = Sizes(self._numbers, self._people, before.gaps)
        self._pause = pause

    def made(self) -> Chosen:
        if self._room < estimate(quotes_block(())):
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
        size = self._sizes.of((*scored, *whole), self._line)
        return Chosen(Quotes(tuple(quotes), (people, agents), gone, labels), size)

    def _most(self, bundles: Sequence[_Bundle], stops: Sequence[int], whole: Sequence[_Unit]) -> int:
        """Up to which stop the best fit. That is looked for where it is likely to be, by the length of the words and by
        how far off that was before."""
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
        size = 4 * estimate(quotes_block(())) + sum(map(self._length, whole))
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

    def _words(self, unit: _Unit) -> str:
        return self._known[unit.number].texts.get(unit.pointer, "")[unit.start : unit.end]

    def _length(self, unit: _Unit) -> int:
        text = self._known[unit.number].texts.get(unit.pointer, "")
        return _LINE + (max(0, min(unit.end, len(text)) - unit.start) if text.isascii() else _bytes(self._words(unit)))

    def _fits(self, whole: Sequence[_Unit], room: int) -> bool:
        if len(whole) > MOST or len({unit.number for unit in whole}) > MOST_MESSAGES:
            return False
        read = {unit.number: self._known[unit.number].size for unit in whole if unit.pointer}
        return sum(read.values()) <= MOST_BYTES and self._size(whole) <= room

    def _size(self, units: Iterable[_Unit]) -> int:
        """Tokens of the message that quotes these, however many messages are left out behind the last of them: that
        grows round after round, and must not cost a quote then."""
        return self._sizes.of(units, self._line, behind=_MANY)

    def _line(self, number: int, units: Sequence[Unit]) -> Quotation | None:
        one = self._known[number]
        quotes = self._quotes({}, units) if len(units) > 1 else [Quote(*units[0], 0.0)]
        if len(quotes) == 1 and quotes[0].pointer and number not in self._labels_of:  # as most are
            _, pointer, start, end, _ = quotes[0]
            return Quotation(number, one.who, one.at, one.texts[pointer][start:end])
        heard = {number: Utterance(number, one.who, one.at, one.texts)}
        made = lines(quotes, heard, self._labelled(quotes, self._labels_of.get(number, ())))
        return made[0] if made else None

    def _quotes(self, scored: Mapping[_Unit, float], whole: Sequence[Unit]) -> list[Quote]:
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
            if self._competes(quote, people):
                kept.setdefault(quote.score, []).append(_Unit(*quote[:4]))
        again = {q.number for q in self._carried if not q.score} if people else set()  # whole until now
        told: list[tuple[Speech, list[_Sentence]]] = []
        for one in sorted((*(self._known[n] for n in again), *self._cut), key=_NUMBER):
            self._pause()
            if one.who == AGENT:
                told.append((one, _sentences(one, names)))
            elif people:
                told.append((one, _sentences(one) if not _too_long(one) else []))
        others = [*self._others]
        rarity = Rarity(self._heard(), (self._words(_Unit(*q[:4])) for q in self._carried if q.pointer), len(others))
        short = {one.number for one in self._cut if one.length <= LONGEST and one.words.isascii()}
        named = Names(self._said_by_people, self._unheard(), rarity.often, short)
        likely = self._likely(told, rarity, named, floor, others)
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for one, sentences in self._gently(told):
            if one.who == AGENT:
                found += [(s, _AGENTS * rarity.of(s.text), ()) for s in sentences if s.unit in likely]
            elif not sentences or any(s.unit in likely for s in sentences):
                found += self._of_a_person(one, sentences, rarity, likely, floor)
        found = [one for one in found if round(one[1], 6) > floor]
        rare = _rarest([sentence.text for sentence, *_ in found], rarity.often)
        earlier = _earlier(
            s
            for one, sentences in self._gently(told)
            for s in sentences
            if (rare is None or not rare.isdisjoint(terms(s.text))) and _is_news(s, one, named)
        )  # fmt: skip
        quoted = Repeats(
            text
            for quote, (text, said) in zip((q for q in self._carried if q.pointer), rarity.quoted, strict=True)
            if self._competes(quote, people) and not (text.isascii() and rare is not None and rare.isdisjoint(said))
        )
        stays = self._stays()
        lift = max(1.0, stays / _STAYS)
        fresh: list[_Bundle] = []
        for sentence, worth, setting in self._gently(found):
            less = (_EARLIER if sentence.unit in earlier else 1.0) * (_REPEATED if quoted.says(sentence.text) else 1.0)
            score = round(worth * less, 6)
            if score > floor:
                held = sentence.unit.number in again
                rank = score * (stays if held else lift if lift > 1 and self._says_something(sentence) else 1.0)
                fresh.append(_Bundle(score, tuple(dict.fromkeys((sentence.unit, *setting))), rank))
        return [*(_Bundle(score, tuple(units), score * stays) for score, units in kept.items()), *fresh]

    def _gently(self, work: Iterable[T]) -> Iterator[T]:
        for one in work:
            self._pause()
            yield one

    def _unheard(self) -> Iterator[str]:
        """What people said that is not heard, as far as it is known: what is not cut now, and is not quoted whole."""
        heard = {one.number for one in self._cut}
        quoted = {q[:2]: self._words(_Unit(*q[:4])) for q in self._carried}
        for n, one in self._known.items():
            if one.who != AGENT and n not in heard:
                yield from (text for pointer, text in one.texts.items() if quoted.get((n, pointer)) != text.strip())

    def _competes(self, quote: Quote, people: bool) -> bool:
        return bool(quote.score) and (people or self._known[quote.number].who == AGENT)

    def _said_by_people(self) -> Iterator[tuple[int, str]]:
        for n in reversed(self._numbers):
            if (one := self._known[n]).who != AGENT:
                self._pause()
                yield n, one.words[:MOST_WORDS]

    def _stays(self) -> float:
        """How many times as much something new has to be worth as what is quoted. The less people said beside the room
        there is, the more: few words among much that holds are rarely worth what they would displace."""
        news = sum(estimate(one.words) for one in self._cut if one.who != AGENT)
        return max(1.0, self._room / (2 * max(1, news)))

    def _says_something(self, sentence: _Sentence) -> bool:
        """Whether it is more than talk by its shape, by whose words it is, or by what a model called it."""
        unit = sentence.unit
        return names(sentence.text) or self._is_labelled(unit) or self._known[unit.number].who == SYSTEM

    def _of_a_person(
        self, one: Speech, sentences: Sequence[_Sentence], rarity: Rarity, likely: Container[_Unit], floor: float
    ) -> list[tuple[_Sentence, float, tuple[_Unit, ...]]]:
        if not sentences:
            return [(_Sentence(line, "", False, -1, False), _TINY, ()) for line in _whole(one) if not line.pointer]
        around: list[_Unit] | None = None
        found: list[tuple[_Sentence, float, tuple[_Unit, ...]]] = []
        for at, sentence in enumerate(sentences):
            if sentence.unit not in likely:
                continue
            score = rarity.of(sentence.text)
            for factor, holds in (
                (_QUESTION, asks(sentence.text)), (_MIDDLE, sentence.middle), (_SHOWN, sentence.shown),
            ):  # fmt: skip
                score *= factor if holds else 1.0
            score += _LABEL if self._is_labelled(sentence.unit) else 0.0
            score += _SYSTEM if one.who == SYSTEM else 0.0
            if round(score, 6) <= floor:
                continue
            around = [*_edges(one, sentences), *self._around(one)] if around is None else around
            under = [sentences[sentence.under].unit] if sentence.under >= 0 else []
            if at and _answers(sentence.text, sentences[at - 1].text):
                under.append(sentences[at - 1].unit)
            found.append((sentence, score, (*around, *under)))
        return found

    def _around(self, one: Speech, deep: int = _DEEP) -> list[_Unit]:
        """What of the messages right before belongs to this one: they may introduce it, or be what it answers. What an
        agent answered at length does not introduce what comes next. What introduces may need an introduction too."""
        found: list[_Unit] = []
        at = bisect_left(self._numbers, one.number)
        for n in reversed(self._numbers[max(0, at - 2) : at]):
            near = self._known[n]
            if near.number < one.number - _NEAR or near.length > MOST_WORDS:
                break
            if (near.who == PERSON and _may_be_shown(one)) or (near.who == AGENT and _small(one)):
                said = _sentences(near)
                found += [s.unit for s in (said if _bytes(near.words) <= _ANNOUNCED else said[-1:])]
                found += self._around(near, deep - 1) if deep and near.who == PERSON else []
            if near.who != AGENT or _bytes(near.words) > _NOD:
                break
        return found

    def _is_labelled(self, unit: _Unit) -> bool:
        number, pointer, start, end = unit
        return any(x.pointer == pointer and x.start < end and start < x.end for x in self._raised.get(number, ()))

    def _likely(
        self, told: Sequence[tuple[Speech, Sequence[_Sentence]]], rarity: Rarity, named: Names, floor: float,
        others: Iterable[str],
    ) -> set[_Unit]:  # fmt: skip
        """What may be worth more than the floor by the rarity of its words: most is not, as what was heard tells before
        the rest is read. What an agent says back is not either."""
        likely: dict[_Unit, str] = {}
        for one, sentences in self._gently(told):
            always = not floor or one.who == SYSTEM or one.number in self._raised
            least = (floor - _TINY) / (_AGENTS if one.who == AGENT else 1.0)
            likely |= {
                s.unit: s.text
                for s in sentences
                if (always or rarity.most(s.text) > least) and _is_news(s, one, named)
            }  # fmt: skip
        rarity.narrow(likely.values())
        for text in others if likely else ():
            self._pause()
            rarity.add(text)
        return {*likely}

    def _heard(self) -> Iterator[str]:
        for one in self._cut:
            self._pause()
            yield one.words[:MOST_WORDS]


def _is_news(sentence: _Sentence, one: Speech, named: Names) -> bool:
    """Whether an agent does not say back what people said."""
    return one.who != AGENT or named.nobody_said(names_in(sentence.text), one.number)


def _edges(one: Speech, sentences: Sequence[_Sentence]) -> list[_Unit]:
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
    if parted or _bytes(one.words) > _LONG:
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
        if words := _same_words(sentence.text):
            if words in last:
                found.add(last[words])
            last[words] = sentence.unit
    return found


def _rarest(sentences: Iterable[str], often: Mapping[str, int]) -> frozenset[str] | None:
    """A word of each sentence, the rarest: without it, nothing says the same, be it with other values. None if one has
    nothing but signs."""
    some = [_same_words(text) or [term for term in terms(text) if term.isalnum()] for text in sentences]
    return frozenset(min(words, key=lambda word: often.get(word, 0)) for words in some) if all(some) else None


def _same_words(sentence: str) -> frozenset[str] | None:
    """What a sentence that says the same with other values has as well; None if that is too little to tell."""
    words = frozenset(word for word, weight in terms(sentence).items() if weight == 1 and word.isalpha())
    return words if len(words) >= _SAME else None


def _answers(sentence: str, before: str) -> bool:
    """Whether it may be what answers the question before it, and says little without that."""
    return estimate(sentence) <= _REPLY and asks(before) and not asks(sentence)


def _may_be_shown(one: Speech) -> bool:
    """Whether a message is long enough, or has the lines, of something that is handed over."""
    size = (len(one.words) + len(one.words.encode("utf-8", "surrogatepass"))) // 2
    return size >= _HANDED or "\n" in one.words.strip()


def _small(one: Speech) -> bool:
    return one.length <= _ANSWER and len(one.words.encode("utf-8", "surrogatepass")) <= _ANSWER
