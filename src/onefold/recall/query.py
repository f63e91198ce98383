"""What somebody types into a search: words, "phrases", beginnings* and -what-not. Everything is a query; none is wrong.

Words are looked for in any order, and what has more of them, and rarer ones, is better. What stands in quotes has to be
there. Which other forms of a word count is decided when it is looked up, by the words that an index has (`word_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onefold.recall.common_words import COMMON
from onefold.recall.dates import Span, spans
from onefold.recall.tokenizer import ALONE, folded, words

_LONGEST = 4000
_PHRASES = 64
_NAMES = 2
_CHUNK = re.compile(r'(?P<no>-(?!-))?(?:["“”„](?P<phrase>[^"“”„]*)(?:["“”„]|$)(?P<star>\*?)|(?P<plain>\S+))')
_RUN = re.compile(rf"[{ALONE}]+")
_APOSTROPHE = re.compile(r"[’'ʼ]")
_PATH = re.compile(r"[/\\]")
_GROUPED = re.compile(r"\d{1,3}(?:[.,'’_]\d{3})+")
_HASH = re.compile(r"(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}")
_SHORT_HASH = 7
_LEAST_NUMBER = 4
_HAN_SILENT = frozenset(
    "的了吗呢吧啊是在我你您他她它们這这那哪什么麼怎和与與及也都就还還把被对對于於从從之其或并而且但因为為所以个個些时時后後前"
    "过過得地着著会會能可要请請问問谁誰很最又再去来來到上下里裡中有没沒做说說给給"
)
"""Signs that Chinese questions are made with, whatever they are about."""
_THAI = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_HAN_KATA = re.compile("[\u30a1-\u30ff\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_KATAKANA = re.compile("[\u30a1-\u30ff]+")

Row = tuple[str, ...]
"""Words in a row."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in a row, and what else stands for them."""

    words: Row
    begins: bool = False
    """The last of them may go on."""
    quoted: bool = False
    """It has to be there."""
    weight: float = 1.0
    rows: tuple[tuple[Row, float], ...] = ()
    """Rows that stand for it too, and how well: the last part of a path, a number without its points."""
    forms: Mapping[str, float] = field(default_factory=dict)
    """Other forms of its one word, and how well they stand for it."""
    starts: tuple[str, ...] = ()
    """Beginnings of a word that stand for it too: a hash is known by its first digits."""

    def stands(self, at: Mapping[str, Sequence[int]], said: Sequence[str]) -> float:
        """How well it stands among the words of a text: 1 as it was typed, 0 not at all."""
        if self._at(self.words, self.begins, at, said):
            return 1.0
        best = max((weight for row, weight in self.rows if self._at(row, False, at, said)), default=0.0)
        if self.forms:
            best = max(best, max((weight for word, weight in self.forms.items() if word in at), default=0.0))
        if self.starts and any(word.startswith(self.starts) for word in at):
            best = max(best, NEAR)
        return best

    @staticmethod
    def _at(row: Row, begins: bool, at: Mapping[str, Sequence[int]], said: Sequence[str]) -> bool:
        head, length = row[0], len(row)
        if length == 1:
            return head in at or (begins and any(word.startswith(head) for word in at))
        return any(fits(row, begins, said[place : place + length]) for place in at.get(head, ()))


NEAR = 0.9
"""How well another form of a word stands for it."""


def fits(wanted: Row, begins: bool, row: Sequence[str]) -> bool:
    """Whether words in a row are these, of which the last may go on."""
    if len(row) != len(wanted) or tuple(row[:-1]) != wanted[:-1]:
        return False
    return row[-1].startswith(wanted[-1]) if begins else row[-1] == wanted[-1]


@dataclass(frozen=True, slots=True)
class Query:
    wanted: tuple[Phrase, ...]
    unwanted: tuple[Phrase, ...] = ()
    literal: str = ""
    """What to look for sign by sign, if there is no word in it."""
    said: tuple[str, ...] = ()
    """All of its words, the common ones too."""
    times: tuple[Span, ...] = ()
    """The times that it names."""
    parts: tuple[Phrase, ...] = ()
    """Words of those phrases that stand nowhere as a whole."""

    @property
    def indexed(self) -> bool:
        """Whether an index of words can answer it."""
        return bool(self.wanted)

    @property
    def asks(self) -> bool:
        """Whether it says enough for what stands around its words to count: a name or two are looked up, not asked."""
        plain = {*self.said}.difference(*(p.words for p in self.wanted))
        return len(self.wanted) > _NAMES or bool(plain) or bool(self.times)

    @property
    def shown(self) -> tuple[Phrase, ...]:
        """What to mark in a text."""
        return (*self.wanted, *self.parts)

    def loosened(self) -> Query | None:
        """The same without the quotes; None if there are none, or nothing else is left to look for."""
        if len(self.wanted) < 2 or not any(phrase.quoted for phrase in self.wanted):
            return None
        return replace(self, wanted=tuple(replace(phrase, quoted=False) for phrase in self.wanted))

    def found_in(self, text: str, speaker: str = "") -> tuple[int, int]:
        """How many of the wanted phrases stand in a text or are its speaker, and how many of these as they were typed
        or in another form; (-1, 0) if something in the text is against it."""
        if not self.wanted:
            there = int(bool(self.literal) and self.literal in text)
            return there, there
        said = [*words(text), "", *words(speaker)]
        at: dict[str, list[int]] = {}
        for place, word in enumerate(said):
            at.setdefault(word, []).append(place)
        if any(phrase.stands(at, said) for phrase in self.unwanted):
            return -1, 0
        found = [phrase.stands(at, said) for phrase in self.wanted]
        if any(phrase.quoted and not weight for phrase, weight in zip(self.wanted, found, strict=True)):
            return -1, 0
        some = sum(weight > 0 for weight in found) or sum(part.stands(at, said) > 0 for part in self.parts)
        return some, sum(weight >= NEAR for weight in found)

    def matches(self, text: str) -> bool:
        """Whether all that is looked for stands in a text."""
        return self.found_in(text)[1] >= max(1, len(self.wanted))


def parse(text: str) -> Query:
    """The query that somebody typed. A lone `-word` is looked for: there is nothing to leave it out of."""
    wanted: list[Phrase] = []
    unwanted: list[Phrase] = []
    said: list[str] = []
    typed = text[:_LONGEST]
    for found in _CHUNK.finditer(typed):
        plain = found["plain"]
        if plain is None or found["no"]:
            said_here = plain if plain is not None else found["phrase"]
            begins = bool(found["star"]) or (plain is not None and plain.rstrip('"“”').endswith("*"))
            if row := _row(said_here):
                phrase = Phrase(row, begins, quoted=not found["no"])
                (unwanted if found["no"] else wanted).append(phrase)
                said += row
            continue
        for phrase in _phrases(plain):
            wanted.append(phrase)
            said += phrase.words
        if _RUN.search(plain) is not None:
            said += _row(plain)
    if not wanted:
        wanted, unwanted = unwanted, []
    wanted = _without_common(wanted)
    return Query(
        tuple({(phrase.words, phrase.begins): phrase for phrase in wanted}.values())[:_PHRASES],
        tuple(unwanted[:_PHRASES]),
        literal=text.strip()[:_LONGEST],
        said=tuple(said),
        times=spans(typed),
    )


def _row(text: str) -> Row:
    """The words of a chunk in a row, without the parts of its names."""
    return tuple(words(folded(text))[:_PHRASES])


def _without_common(wanted: list[Phrase]) -> list[Phrase]:
    """Common words weigh nothing, unless there are no others."""
    rare = [p for p in wanted if p.quoted or p.begins or len(p.words) > 1 or p.words[0] not in COMMON]
    return rare or wanted


def _phrases(plain: str) -> Iterator[Phrase]:
    """What one chunk without spaces looks for."""
    if plain.rstrip('"“”').endswith("*"):
        # `a*b` is two words in a row; only a star at the very end means that a word may go on.
        if row := _row(plain):
            yield Phrase(row, begins=True)
        return
    if _RUN.search(plain) is not None:
        yield from _unspaced(plain)
        return
    chunk = _bare(plain)
    row = _row(chunk)
    if not row:
        return
    if folded(chunk) in COMMON:
        yield Phrase(row[:1])
    elif len(row) == 1:
        yield _word(chunk, row)
    else:
        yield _name(chunk, row)


def _bare(chunk: str) -> str:
    """A word without what an apostrophe joins to it: `Anna's`, `l'erreur`, `Ankara'da`."""
    chunk = chunk.strip(".,;:!?()[]{}<>«»…¿¡\"'’`")
    parts = _APOSTROPHE.split(chunk)
    if len(parts) != 2 or folded(chunk.replace("’", "'")) in COMMON:
        return chunk.replace("’", "'")
    before, after = parts
    if after and len(before) <= 2:
        return after
    return before if before and len(after) <= 4 else chunk


def _word(chunk: str, row: Row) -> Phrase:
    word = row[0]
    if _HASH.fullmatch(word):
        shorter = tuple(((word[:end],), NEAR) for end in range(_SHORT_HASH, len(word)))
        return Phrase(row, rows=shorter, starts=(word,))
    rows: list[tuple[Row, float]] = []
    humps = _row(" ".join(words(chunk)[1:]))
    if humps:
        rows.append((humps, NEAR))
    if word.isdecimal() and word.isascii() and len(word) >= _LEAST_NUMBER:
        head = len(word) % 3 or 3
        rows.append(((word[:head], *(word[i : i + 3] for i in range(head, len(word), 3))), NEAR))
    return Phrase(row, rows=tuple(rows))


def _name(chunk: str, row: Row) -> Phrase:
    """Something with signs in it: whole, joined, by the last part of its path; by its parts only if it is nowhere."""
    rows: list[tuple[Row, float]] = []
    if _GROUPED.fullmatch(chunk) or "_" in chunk or "-" in chunk:
        rows.append((("".join(row),), NEAR))
    parts = [part for part in _PATH.split(chunk) if words(part)]
    if len(parts) > 1 and len(last := _row(parts[-1])) < len(row):
        rows.append((last, 0.6))
    return Phrase(row, rows=tuple(rows))


def _unspaced(plain: str) -> Iterator[Phrase]:
    """What stands in scripts without spaces: pairs of signs, and the runs of other letters between them."""
    done = 0
    for found in _RUN.finditer(plain):
        if row := _row(plain[done : found.start()]):
            yield Phrase(row)
        yield from _signs(found[0])
        done = found.end()
    if row := _row(plain[done:]):
        yield Phrase(row)


def _signs(run: str) -> Iterator[Phrase]:
    row = _row(run)
    if len(row) <= 3:
        if row:
            yield Phrase(row)
        return
    if _THAI.search(run):
        yield from _windows(row, 3)
        return
    pieces = [_row(piece) for piece in _pieces(run)]
    told = [piece for piece in pieces if len(piece) > 1]
    for piece in told or [row]:
        if _KATAKANA.fullmatch("".join(piece)):
            yield Phrase(piece)
        else:
            yield from _windows(piece, 2)


def _pieces(run: str) -> Iterator[str]:
    """A run of signs without those that only make it a sentence."""
    if _HIRAGANA.search(run):
        for found in _HAN_KATA.finditer(run):
            yield from (p for p in re.split("([\u30a1-\u30ff]+)", found[0]) if p)
        return
    piece = ""
    for sign in run:
        if sign in _HAN_SILENT:
            if piece:
                yield piece
            piece = ""
        else:
            piece += sign
    if piece:
        yield piece


def _windows(row: Row, size: int) -> Iterator[Phrase]:
    count = max(1, len(row) - size + 1)
    for start in range(count):
        yield Phrase(row[start : start + size], weight=1.0 if count == 1 else 0.7)


def parts_of(phrase: Phrase) -> tuple[str, ...]:
    """The words of a phrase that may be looked for alone if it stands nowhere as a whole."""
    if phrase.quoted or phrase.begins or len(phrase.words) < 2:
        return ()
    return tuple(w for w in dict.fromkeys(phrase.words) if w not in COMMON and (len(w) > 1 or not w.isascii()))
