"""How rare the words of a sentence are in a conversation, and which of them are names and values. In no particular
language: a word is known by its letters, a name or a value by its shape."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain

from onefold.messages.codecs import estimate

OVERHEAD = 20  # tokens that a line costs beside its words
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


class Rarity:
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
        return rare / math.log(every) / (estimate(sentence) + OVERHEAD) if every > 1 else 0.0

    def _count(self) -> None:
        if self._found:
            found = Counter(chain.from_iterable(self._found))
            self._seen.update({self._ascii[term]: often for term, often in found.items()})
            self._found.clear()


_SOME_TEXTS = 256
_PAIR = 2


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


def names_in(sentence: str) -> list[str]:
    """The names and values that stand in it."""
    return [term for term, weight in terms(sentence).items() if weight > 1]


class Names:
    """Which names and values people have said, message by message: what an agent says back to them is no news."""

    def __init__(self, people: Iterable[tuple[int, str]]) -> None:
        self._to_come = sorted(people, reverse=True)
        self._names: set[str] = set()

    def nobody_said(self, names: Iterable[str], before: int) -> bool:
        """Whether one of them was said by nobody before that message. To be asked in order."""
        while self._to_come and self._to_come[-1][0] < before:
            _, words = self._to_come.pop()
            if words.isascii():
                self._names.update(token.strip(_EDGES) for token in words.casefold().split())
            else:
                self._names.update(term for token in words.split() for term, _ in _terms(token))
        return any(name not in self._names for name in names)


class Repeats:
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
