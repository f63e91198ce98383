"""What counts as a word: one rule for the index, the queries and the highlights of an excerpt.

A word is a run of letters and digits, without its case and its accents. So `src/app.py` is three words in a row, and
so is whatever else somebody types with signs in between. Where a script puts no space between words, each character is
a word of its own, and a word of two or three is found as characters in a row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u303f\u3040-\u31ff\u3400-\u4dbf"
    "\u4e00-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Scripts that are written without spaces: Thai, Lao, Burmese, Khmer, Chinese, Japanese, Korean, Yi."""
_WORD = re.compile(rf"[^\W_{_ALONE}]+|(?=\w)[{_ALONE}]")
_WRITTEN = re.compile(rf"(?:[^\W_{_ALONE}][\u0300-\u036f]*)+|(?=\w)[{_ALONE}][\u3099\u309a]?")
_ACCENTS = re.compile("[\u0300-\u036f]")


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _WORD.findall(folded(text))


def placed(text: str) -> Iterator[tuple[str, int, int]]:
    """The same, each with where it stands in the text."""
    for found in _WRITTEN.finditer(text):
        for word in words(found[0]):
            yield word, found.start(), found.end()


def spaced(text: str) -> str:
    """A text for the index, whose tokenizer takes every run of letters, digits and bytes beyond ASCII for a word."""
    return text.replace("\0", " ") if text.isascii() else " ".join(words(text))


def folded(text: str) -> str:
    """A text without its case and its accents."""
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", bare.casefold())
