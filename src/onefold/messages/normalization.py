"""Text as quotations are compared: without what changes when somebody copies words and changes none of them.

White space, signs without a width, typographic quotation marks and dashes, Markdown, and how accents are composed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class Normalized(NamedTuple):
    text: str
    places: Sequence[int]
    """Of each of its signs, the place in the text that it comes from."""


_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
_QUOTES = dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\u300c\u300d\u300e\u300f\uff02", '"')
_QUOTES |= dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032\uff07", "'")
_DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-")
_SAME = _QUOTES | _DASHES
_MARKS = re.compile(
    rf"""
    ^[ \t]*+ (?:>[ \t]*+)*+ (?:[-*+][ \t]++|\#{{1,6}}[ \t]++)?+   # at the beginning of a line
    | [{_UNSEEN}]++
    | (?<![\w*`~]) [*_`~]++ | [*_`~]++ (?![^\W_])               # around words, and not in them
    | [{re.escape("".join(_SAME))}]
    """,
    re.VERBOSE | re.MULTILINE,
)
_BLANK = re.compile(r"\s+")


def normalized(text: str) -> Normalized:
    """In time proportional to the text."""
    made = Normalized(text, range(len(text)))
    if not text.isascii() and not unicodedata.is_normalized("NFC", text):
        made = _composed(text)
    made = _replaced(made, _MARKS, lambda match: _SAME.get(match[0], ""))
    return _replaced(made, _BLANK, lambda _: " ")


def _replaced(given: Normalized, pattern: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> Normalized:
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for match in pattern.finditer(given.text):
        start, end = match.span()
        if start == end:
            continue
        new = instead(match)
        parts += [given.text[at:start], new]
        places += [*given.places[at:start], *[given.places[start]] * len(new)]
        at = end
    if not at:
        return given
    parts.append(given.text[at:])
    places += given.places[at:]
    return Normalized("".join(parts), places)


def _composed(text: str) -> Normalized:
    parts: list[str] = []
    places: list[int] = []
    for start, end in _clusters(text):
        whole = unicodedata.normalize("NFC", text[start:end])
        parts.append(whole)
        places += [start] * len(whole)
    return Normalized("".join(parts), places)


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Signs with the marks that belong to them, and syllables of Hangul."""
    start = 0
    for at in range(1, len(text)):
        sign = text[at]
        if not (unicodedata.category(sign).startswith("M") or "\u1160" <= sign <= "\u11ff"):
            yield start, at
            start = at
    if text:
        yield start, len(text)
