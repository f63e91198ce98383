"""What counts as a word: one rule for the index, the queries and the highlights of an excerpt.

A word is a run of letters and digits, without its case and its accents. So `src/app.py` is three words in a row, and
so is whatever else somebody types with signs in between. Where a script puts no space between words, each character is
a word of its own, and a word of two or three is found as characters in a row. Of a name such as `retryCount` the parts
are words too; they stand behind all others, so that what stands in a row stays in a row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u303f\u3040-\u31ff\u3400-\u4dbf"
    "\u4e00-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Scripts that are written without spaces: Thai, Lao, Burmese, Khmer, Chinese, Japanese, Korean, Yi."""
_SIGNS = "\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u0b82\u0bbe-\u0bcd"
"""Vowels and the like that stand at a letter and are part of its word: Devanagari, Bengali, Tamil."""
_POINTS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u0610-\u061a\u0640\u064b-\u065f\u0670"
"""Accents, the vowel points of Hebrew and Arabic, and what draws out an Arabic word."""
_WORD = re.compile(rf"(?:[^\W_{ALONE}][{_SIGNS}]*)+|(?=\w)[{ALONE}]")
_WRITTEN = re.compile(rf"(?:[^\W_{ALONE}][{_POINTS}{_SIGNS}]*)+|(?=\w)[{ALONE}][\u3099\u309a]?")
_ACCENTS = re.compile(f"[{_POINTS}]")
_SHORT_I = re.compile("\u0438\u0306")
"""й is no и with an accent: endings are told apart by it."""
_HUMPS = re.compile(r"(?<=[a-z0-9])[A-Z]")
_HUMPED = re.compile(r"[A-Za-z]+[0-9]*[A-Za-z0-9]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SAME = str.maketrans({"\u06cc": "\u064a", "\u06a9": "\u0643"})
"""The Persian forms of two Arabic letters."""


def words(text: str) -> list[str]:
    """The words of a text, in order, and behind them the parts of those that are joined by capitals."""
    return [*_WORD.findall(folded(text)), *(part.lower() for part, _, _ in _parts(text))]


def placed(text: str) -> Iterator[tuple[str, int, int]]:
    """The same, each with where it stands in the text."""
    for found in _WRITTEN.finditer(text):
        for word in _WORD.findall(folded(found[0])):
            yield word, found.start(), found.end()
    for part, start, stop in _parts(text):
        yield part.lower(), start, stop


def spaced(text: str) -> str:
    """A text for the index, whose tokenizer takes every run of letters, digits and bytes beyond ASCII for a word."""
    if not text.isascii():
        return " ".join(words(text))
    plain = text.replace("\0", " ")
    parts = [part for part, _, _ in _parts(text)]
    return f"{plain} {' '.join(parts)}" if parts else plain


def folded(text: str) -> str:
    """A text without its case and its accents, digits of any script as 0 to 9."""
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub(
        "", _SHORT_I.sub("\u0439", unicodedata.normalize("NFKD", text).replace("\u0418\u0306", "\u0419"))
    )
    plain = unicodedata.normalize("NFKC", bare.casefold()).translate(_SAME)
    return "".join(_digit(c) if c.isdecimal() and not c.isascii() else c for c in plain)


def _digit(sign: str) -> str:
    return str(unicodedata.decimal(sign))


def _parts(text: str) -> Iterator[tuple[str, int, int]]:
    """The parts of names such as `retryCount`, each with where it stands."""
    if text.islower() or _HUMPS.search(text) is None:
        return
    for name in _HUMPED.finditer(text):
        if _HUMPS.search(name[0]) is not None:
            for part in _PART.finditer(name[0]):
                if len(part[0]) > 1:
                    yield part[0], name.start() + part.start(), name.start() + part.end()
