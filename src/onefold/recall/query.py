"""What somebody types into a search: words, "phrases", beginnings* and -what-not. Everything is a query; none is wrong.

Words are looked for in any order, and all of them have to be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from onefold.recall.tokenizer import folded, words

_LONGEST = 4000
_PHRASES = 64
_CHUNK = re.compile(r'(?P<no>-(?!-))?(?:["“”„](?P<phrase>[^"“”„]*)(?:["“”„]|$)(?P<star>\*?)|(?P<plain>\S+))')


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in a row."""

    words: tuple[str, ...]
    begins: bool = False
    """The last of them may go on."""

    def stands(self, at: Mapping[str, Sequence[int]], said: Sequence[str]) -> int | None:
        """Where it stands among the words of a text, the first time."""
        head, length = self.words[0], len(self.words)
        if length == 1 and self.begins:
            return min((places[0] for word, places in at.items() if word.startswith(head)), default=None)
        for place in at.get(head, ()):
            row = said[place : place + length]
            if len(row) == length and self.fits(row):
                return place
        return None

    def fits(self, row: Sequence[str]) -> bool:
        """Whether as many words as it has are these."""
        last, wanted = row[-1], self.words[-1]
        same = last.startswith(wanted) if self.begins else last == wanted
        return same and tuple(row[:-1]) == self.words[:-1]

    def for_index(self) -> str:
        # Words hold nothing but letters and digits, so quotes are enough.
        return '"' + " ".join(self.words) + '"' + (" *" if self.begins else "")


@dataclass(frozen=True, slots=True)
class Query:
    wanted: tuple[Phrase, ...]
    unwanted: tuple[Phrase, ...] = ()
    literal: str = ""
    """What to look for sign by sign, if there is no word in it."""
    some: bool = False
    """Any of the wanted phrases is enough."""

    @property
    def indexed(self) -> bool:
        """Whether an index of words can answer it."""
        return bool(self.wanted)

    def loosened(self) -> Query | None:
        """The same with any of its words instead of all; None if that is the same question."""
        return replace(self, some=True) if len(self.wanted) > 1 and not self.some else None

    def for_index(self, scopes: Iterable[str] = ()) -> str:
        """As FTS5 wants it, in some sessions or in all."""
        text = f"said : ({(' OR ' if self.some else ' AND ').join(p.for_index() for p in self.wanted)})"
        if among := " OR ".join(f'"{scope}"' for scope in scopes):
            text = f"scope : ({among}) AND {text}"
        if self.unwanted:
            text = f"({text}) NOT said : ({' OR '.join(p.for_index() for p in self.unwanted)})"
        return text

    def matches(self, text: str) -> bool:
        """Whether a text is what is looked for."""
        if not self.wanted:
            return bool(self.literal) and self.literal in text
        enough = any if self.some else all
        plain = folded(text)
        if not enough(all(word in plain for word in p.words) for p in self.wanted):
            return False  # most texts: to take them apart would cost more
        said = words(text)
        at: dict[str, list[int]] = {}
        for place, word in enumerate(said):
            at.setdefault(word, []).append(place)
        return enough(p.stands(at, said) is not None for p in self.wanted) and not any(
            p.stands(at, said) is not None for p in self.unwanted
        )


def parse(text: str) -> Query:
    """The query that somebody typed. A lone `-word` is looked for: there is nothing to leave it out of."""
    wanted: list[Phrase] = []
    unwanted: list[Phrase] = []
    for found in _CHUNK.finditer(text[:_LONGEST]):
        plain = found["plain"]
        said = plain if plain is not None else found["phrase"]
        begins = bool(found["star"]) or (plain is not None and plain.rstrip('"“”').endswith("*"))
        if row := words(said):
            # `a*b` is two words in a row; only a star at the very end means that a word may go on.
            (unwanted if found["no"] else wanted).append(Phrase(tuple(row[:_PHRASES]), begins))
    if not wanted:
        wanted, unwanted = unwanted, []
    return Query(tuple(wanted[:_PHRASES]), tuple(unwanted[:_PHRASES]), literal=text.strip()[:_LONGEST])
