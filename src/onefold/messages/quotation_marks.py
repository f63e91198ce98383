"""Which words of a text are shown rather than said, as far as signs in its lines tell: in quotation marks, in code, in
tags, and after a colon. Pure; what stands in fences and quoted lines, `messages.sentences` tells."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

_PAIRS = {
    "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u00bb": "\u00ab\u00bb", "\u300c": "\u300d",
    "\u300e": "\u300f", "\u2018": "\u2019", "\u201a": "\u2018\u2019", "\u2039": "\u203a", "\u203a": "\u2039\u203a",
    '"': '"', "'": "'", "\uff02": "\uff02",
}  # fmt: skip
_CLOSING = frozenset("".join(_PAIRS.values()))
_SINGLE = frozenset("'\u2018\u2019")
_MARKS = re.compile(rf"\n[ \t]*\n|`+|[{re.escape(''.join({*_PAIRS, *_CLOSING}))}]")
_TAGS = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,40})(?:\s[^<>]{0,300})?>")
_COLON = re.compile(r"\n[ \t]*\n|:(?=[\s\"'`]|[^\x00-\x7f])|[\uff1a\ufe55]")
_GLUED = re.compile(r"[0-9A-Za-z\u00c0-\u0dff]")
_WORDS = re.compile(r"[^\W_]+")

_Span = tuple[int, int]


class Shown:
    """The stretches of a text that are only shown."""

    def __init__(self, text: str) -> None:
        self._text = text
        marked = [*_quoted(text, paragraphs=False), *_quoted(text, paragraphs=True), *_tagged(text)]
        self._marked = _joined(marked)
        self._told = [*_told(text)]

    def after_colon(self, first: int, last: int) -> bool:
        """Whether some of it follows a colon."""
        return any(begin < last and first < stop for begin, stop in self._told)

    def in_marks(self, start: int, end: int, first: int, last: int) -> bool:
        """Whether words stand in marks or tags, or most of the sentences `first` to `last` that they are in do."""
        if _inside(self._marked, start) or _inside(self._marked, end - 1):
            return True
        inside = sum(self._letters(max(first, a), min(last, b)) for a, b in self._marked if a < last and first < b)
        return 2 * inside >= self._letters(first, last)

    def _letters(self, start: int, end: int) -> int:
        return sum(map(len, _WORDS.findall(self._text, start, end)))


def _inside(spans: list[_Span], at: int) -> bool:
    place = bisect_right(spans, at, key=lambda span: span[0]) - 1
    return place >= 0 and at < spans[place][1]


def _joined(spans: list[_Span]) -> list[_Span]:
    made: list[_Span] = []
    for start, end in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


def _quoted(text: str, *, paragraphs: bool) -> Iterator[_Span]:
    """What stands between marks that open and close. With `paragraphs`, in one of them: elsewhere one may be
    missing."""
    opened: list[tuple[str, int]] = []
    for match in _MARKS.finditer(text):
        sign, at = match[0], match.start()
        if sign[0] == "\n":
            opened = [] if paragraphs else opened
            continue
        before, after = text[max(0, at - 1) : at], text[match.end() : match.end() + 1]
        if opened and _closes(sign, opened[-1][0], before, after):
            yield opened.pop()[1], match.end()
        elif (sign in _PAIRS or sign[0] == "`") and _opens(sign, before, after):
            if opened and opened[-1][0] == sign and sign in "\"'":
                opened.pop()  # that one had no end
            if len(opened) < _DEEPEST:
                opened.append((sign, at))


_DEEPEST = 8


def _opens(sign: str, before: str, after: str) -> bool:
    if sign in _SINGLE:
        return not before or before.isspace() or before in "([{:"
    return sign not in '"' or (not _GLUED.match(before) and bool(after) and not after.isspace())


def _closes(sign: str, opened: str, before: str, after: str) -> bool:
    if sign[0] == "`":
        return sign == opened
    if sign not in _PAIRS.get(opened, ""):
        return False
    if sign in _SINGLE:
        return not _GLUED.match(after)
    return sign not in '"' or (not before.isspace() and not _GLUED.match(after))


def _tagged(text: str) -> Iterator[_Span]:
    """What stands between a tag and its end."""
    opened: dict[str, int] = {}
    for match in _TAGS.finditer(text):
        if not match[1]:
            opened.setdefault(match[2], match.start())
        elif match[2] in opened:
            yield opened.pop(match[2]), match.end()


def _told(text: str) -> Iterator[_Span]:
    """What follows a colon, up to the end of its paragraph."""
    begin = -1
    for match in _COLON.finditer(text):
        if match[0][0] == "\n":
            if begin >= 0:
                yield begin, match.start()
            begin = -1
        elif begin < 0:
            begin = match.end()
    if begin >= 0:
        yield begin, len(text)
