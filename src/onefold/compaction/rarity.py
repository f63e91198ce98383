"""How rare the words of a sentence are in a conversation, and which of them are names and values. In no particular
language: a word is known by its letters, a name or a value by its shape."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import lru_cache
from itertools import chain, repeat

from onefold.messages.codecs import estimate

OVERHEAD = 20  # tokens that a line costs in addition to its words
_STEEP = 3  # the power of its rarity that a word counts by: what is said now and then, little beside what is said once
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


def identifiers(text: str) -> tuple[str, ...]:
    """The names and values of a text, each once, as they are first written there."""
    parts = (part.strip(_EDGES) for token in text.split() for part in _UNSPACED.split(token))
    names = (part for part in parts if 0 < len(part) <= _LONGEST_TERM and is_identifier(part))
    return tuple({name.casefold(): name for name in reversed([*names])}.values())[::-1]


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


def words(text: str) -> frozenset[str]:
    """The words of a text, as the terms of its sentences have them. Those of an ASCII text without names that have
    signs in them: they take time, and few are ever asked for."""
    if text.isascii():
        return frozenset(text.encode().translate(_LOW_WORDS).decode().split())
    low = text.casefold()
    return frozenset((*_WORD.findall(low), *_stripped(low), *_pairs(low)))


def _stripped(low: str) -> Iterable[str]:
    return map(str.strip, {*low.split()}, repeat(_EDGES))


def _pairs(low: str) -> Iterable[str]:
    return (run[n : n + _PAIR] for run in _UNSPACED.findall(low) for n in range(max(1, len(run) - 1)))


class Rarity:
    """How often the words of sentences come in all that was said. Of what was heard, all words are counted; in the rest
    only those of sentences that may be quoted are, so that much text is read at the speed of a search."""

    def __init__(self, heard: Iterable[str], quoted: Iterable[str], others: int) -> None:
        """What was heard, what is quoted of what was heard before, and how many texts are added later."""
        self._heard: list[str] = []
        self.quoted = [(text, words(text)) for text in quoted]
        """What is quoted, each stretch with its words."""
        spoken = chain(map(self._hear, heard), (said for _, said in self.quoted))
        self.often = Counter(chain.from_iterable(spoken))
        """In how many of these texts a word stands; of ASCII texts without names that have signs in them."""
        self._heard += [text for text, _ in self.quoted]
        every = len(self._heard) + others + 1
        most = math.log(every) or 1.0
        self._rare = [(math.log(every / max(1, often)) / most) ** _STEEP for often in range(every)]
        self._most = {word: self._rare[often] for word, often in self.often.items()}
        self._found: list[frozenset[bytes]] = []
        self._seen: Counter[str] = Counter()
        self._weights: dict[str, float] = {}

    def _hear(self, text: str) -> frozenset[str]:
        self._heard.append(text)
        return words(text)

    def most(self, sentence: str) -> float:
        """The most that a sentence can be worth, by what was heard."""
        most, alone = self._most, self._rare[0]
        return _worth(sum([w * most.get(t, alone) for t, w in terms(sentence).items()]), sentence)

    def narrow(self, sentences: Iterable[str]) -> None:
        """From here on, only these count."""
        wanted = {term for sentence in sentences for term in terms(sentence)}
        self._wanted = frozenset(wanted)
        self._pairs = any(len(term) <= _PAIR and _UNSPACED.match(term) for term in wanted if not term.isascii())
        self._compounds = frozenset(term for term in wanted if not term.isalnum())
        self._ascii = {term.encode(): term for term in wanted if term.isascii()}
        self._plain = frozenset(self._ascii)
        self._seen.update({term: often for term in wanted if (often := self.often.get(term))})
        if self._compounds:
            for text in self._heard:
                if text.isascii():
                    self._add_compounds(text)

    def add(self, text: str) -> None:
        if text.isascii():  # as most are, and what follows is a small part of the work
            raw = text.encode()
            self._found.append(self._plain.intersection(raw.translate(_LOW_WORDS).split()))
            if len(self._found) >= _SOME_TEXTS:
                self._count()
            if self._compounds:
                self._add_compounds(text)
            return
        low = text.casefold()
        found = self._wanted.intersection(_WORD.findall(low))
        found |= self._wanted.intersection(_stripped(low))
        if self._pairs:
            found |= self._wanted.intersection(_pairs(low))
        self._seen.update(found)

    def _add_compounds(self, text: str) -> None:
        odd = (token for token in {*text.casefold().split()} if not token.isalnum())
        self._seen.update(self._compounds.intersection(map(str.strip, odd, repeat(_EDGES))))

    def of(self, sentence: str) -> float:
        """How much only this sentence says, for its length."""
        if not self._weights:
            self._count()
            self._weights = {term: self._rare[self._seen.get(term, 0)] for term in self._wanted}
        weights = self._weights
        return _worth(sum([w * weights[t] for t, w in terms(sentence).items()]), sentence)

    def _count(self) -> None:
        if self._found:
            found = Counter(chain.from_iterable(self._found))
            self._seen.update({self._ascii[term]: often for term, often in found.items()})
            self._found.clear()


def _worth(rare: float, sentence: str) -> float:
    return rare / (estimate(sentence) + OVERHEAD)


_SOME_TEXTS = 256
_PAIR = 2


_HARMLESS = b"abcdefghijklmnopqrstuvwxyz \t\n\"'()!?,;"
"""What no name or value is told by: besides, such a sentence has a capital at its beginning and a stop at its end."""


def names(sentence: str) -> bool:
    """Whether a name or a value stands in it."""
    if sentence.isascii():  # of most, that is seen by the signs in it
        rest = sentence.encode().translate(None, _HARMLESS)
        rest = rest[:-1] if rest[-1:] == b"." == sentence[-1:].encode() else rest
        if not rest or (len(rest) == 1 and rest.isupper() and sentence[0] == rest.decode()):
            return False
    return any(weight > 1 for weight in terms(sentence).values())


def names_in(sentence: str) -> list[str]:
    """The names and values that stand in it."""
    return [term for term, weight in terms(sentence).items() if weight > 1]


class Names:
    """Which names and values people have said, message by message: what an agent says back to them is no news."""

    def __init__(
        self, people: Callable[[], Iterable[tuple[int, str]]], unheard: Iterable[str], often: Mapping[str, int],
        short: Container[int],
    ) -> None:  # fmt: skip
        """What each of them said, the newest message first; what of that is not among the texts of which is known how
        `often` a word stands in them; and which messages of agents are, with each of their words."""
        self._people = people
        self._beside = unheard
        self._often = often
        self._short = short
        self._unheard: frozenset[str] | None = None
        self._first: dict[str, int] | None = None

    def nobody_said(self, names: Collection[str], before: int) -> bool:
        """Whether one of them, in an agent's message, was said by nobody before it."""
        if before in self._short:  # of most, one stands nowhere else
            if self._unheard is None:
                self._unheard = frozenset(chain.from_iterable(map(_said, self._beside)))
            for name in names:
                if self._often.get(name) == 1 and name.isalnum() and name not in self._unheard:
                    return True
        first = self._first
        if first is None:  # of what nobody asks for, nothing is looked for
            first = self._first = {}
            for number, text in self._people():
                first.update(dict.fromkeys(_said(text), number))
        return any(first.get(name, before) >= before for name in names)


def _said(text: str) -> Iterable[str]:
    if text.isascii():
        return map(str.strip, text.casefold().split(), repeat(_EDGES))
    return (term for token in text.split() for term, _ in _terms(token))


class Repeats:
    """What is quoted already: saying it again, in the same words, says little."""

    def __init__(self, stretches: Iterable[str]) -> None:
        self._at: dict[str, set[int]] = {}
        for n, text in enumerate(stretches):
            for term in terms(text):
                self._at.setdefault(term, set()).add(n)

    def says(self, sentence: str) -> bool:
        """Whether one stretch has all words of a sentence."""
        found: list[set[int]] = []
        for term in terms(sentence):
            if (at := self._at.get(term)) is None:
                return False
            found.append(at)
        return bool(found) and bool(set[int].intersection(*sorted(found, key=len)))
