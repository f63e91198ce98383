"""Other forms of a word: which words of an index have the same stem as one that somebody typed.

An index has words as they were said, so that phrases and beginnings stay exact and no language has to be known when
something is said. A search looks up which of those words belong to its own, with the stemmers of the languages that it
may be of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import ceil
from typing import TypeAlias

import Stemmer

from onefold.recall.common_words import COMMON, languages, script
from onefold.recall.query import NEAR, Phrase, Query
from onefold.recall.tokenizer import folded

WordsFrom: TypeAlias = Callable[[str, int], Iterable[str]]
"""The words of an index that begin so, in order, at most so many."""
Stem: TypeAlias = Callable[[str], str]

RELATED = 0.4
"""How well a word stands for one that has another stem, but begins alike."""
_LEAST, _ALIKE, _LONGER = 3, 5, 6
_SHARED = 0.65
_MOST = 400
_MOST_FORMS = 40
_DERIVED = frozenset({
    "ment", "ments", "er", "ers", "or", "ors", "ing", "ings", "ion", "ions", "ation", "ations", "able", "ability", "al",
    "als", "ure", "ures", "ness", "ance", "ence", "ive",
})  # fmt: skip
"""Endings that make another word of an English one."""
_CLITICS = {
    "german": ("", "ge"),
    "dutch": ("", "ge"),
    "arabic": ("", "ال", "و", "وال", "ب", "بال", "ف", "فال", "ك", "كال", "ل", "لل"),
    "hebrew": ("", "ה", "ו", "וה", "ב", "ל", "מ", "מה", "ש", "שה", "כ"),
}
"""What is written in front of a word without a space: and, the, in, to, like; what makes a participle."""
_HEBREW_ENDINGS = ("ים", "ות", "יה", "יו", "ית", "ה", "י", "ת", "ך", "ו")
_DOTLESS = "\u0131"
_STEMMED = frozenset(Stemmer.algorithms())


def with_forms(query: Query, words_from: WordsFrom) -> Query:
    """The query, with the forms of its words that there are."""
    latin = [w for w in query.said if script(w) is None]
    stems = _Stems(languages(latin))

    def with_own(phrases: tuple[Phrase, ...]) -> tuple[Phrase, ...]:
        return tuple(replace(p, forms=stems.forms(p.words[0], words_from)) if _inflects(p) else p for p in phrases)

    return replace(query, wanted=with_own(query.wanted), parts=with_own(query.parts))


def _inflects(phrase: Phrase) -> bool:
    word = phrase.words[0]
    return (
        len(phrase.words) == 1
        and not (phrase.begins or phrase.quoted or phrase.starts)
        and len(word) >= _LEAST
        and word.isalpha()
        and word not in COMMON
    ) or (len(phrase.words) == 1 and not phrase.quoted and script(word) in {"hindi", "tamil"})


class _Stems:
    """The stemmers of one search. They keep state, so each search has its own."""

    def __init__(self, latin: tuple[str, ...]) -> None:
        self._latin = latin
        self._made: dict[str, Stem] = {}

    def forms(self, word: str, words_from: WordsFrom) -> dict[str, float]:
        """Words that stand for this one, each with how well it does."""
        own = script(word)
        names = self._latin if own is None else (own,)
        stems = self._stems(word, names)
        bare = {word, *(stem for _, stem in stems)}
        found: dict[str, float] = {}
        for other in dict.fromkeys(self._near(own, word, bare, words_from)):
            if other == word:
                continue
            theirs = self._stems(other, names)
            if not stems.isdisjoint(theirs):
                found[other] = NEAR
            elif _alike(stems, theirs, other):
                found[other] = RELATED
        best = sorted(found.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
        return dict(best[:_MOST_FORMS])

    def _stems(self, word: str, names: tuple[str, ...]) -> set[tuple[str, str]]:
        """What a word comes from, language by language. What may be written in front of it may also be its own."""
        found = {(name, self._stem(name, bare)) for name in names for bare in _unprefixed(name, word)}
        if "turkish" in names and "i" in word:  # typed without the dotless one
            found.add(("turkish", self._stem("turkish", word.replace("i", _DOTLESS)).replace(_DOTLESS, "i")))
        return found

    def _stem(self, name: str, word: str) -> str:
        if name not in self._made:
            self._made[name] = Stemmer.Stemmer(name, 0).stemWord if name in _STEMMED else _without_ending
        return self._made[name](word)

    def _near(self, own: str | None, word: str, bare: set[str], words_from: WordsFrom) -> Iterator[str]:
        """Words of the index that may be forms of this one."""
        least = min(_ALIKE, max(_LEAST, len(word) - 3)) if own is None else min(_LEAST, len(word))
        starts = {start for b in bare for start in (_shared(word, folded(b)), folded(b)) if len(start) >= least}
        starts = {start[: max(_LEAST, min(_ALIKE, ceil(_SHARED * len(start))))] for start in starts} or {word}
        if own in _CLITICS:
            starts = {prefix + b[:_ALIKE] for prefix in _CLITICS[own] for b in bare if len(b) >= _LEAST}
        for start in sorted(starts):
            if not any(other != start and start.startswith(other) for other in starts):
                yield from words_from(start, _MOST)
        yield from (b[:-1] + "y" for b in bare if b.endswith("i") and own is None)


def _without_ending(word: str) -> str:
    """The stem of a Hebrew word, for which there is no stemmer."""
    return next((word[: -len(e)] for e in _HEBREW_ENDINGS if word.endswith(e) and len(word) - len(e) >= _LEAST), word)


def _unprefixed(language: str, word: str) -> list[str]:
    """A word, and what is left of it without what may be written in front."""
    return [
        word[len(c) :] for c in _CLITICS.get(language, ("",)) if word.startswith(c) and len(word) >= len(c) + _LEAST
    ] or [word]


def _shared(one: str, other: str) -> str:
    """What two words begin with."""
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _alike(stems: Iterable[tuple[str, str]], others: Iterable[tuple[str, str]], other: str) -> bool:
    """Whether a word goes on where a stem ends, or its stem in some language is most of the same."""
    theirs = {*others}
    for name, stem in stems:
        rest = other[len(stem) :] if other.startswith(stem) else ""
        if rest and len(stem) >= _ALIKE and len(rest) <= _LONGER:
            return True
        if name == "english" and len(stem) >= _LEAST and rest in _DERIVED:
            return True
        for their_name, their in theirs:
            if their_name == name:
                shared = len(_shared(stem, their))
                if shared >= _ALIKE - 1 and shared >= _SHARED * max(len(stem), len(their)):
                    return True
    return False
