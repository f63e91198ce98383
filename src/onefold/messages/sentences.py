"""Takes a text apart into sentences, in no particular language, and tells what was said from what is only shown.

Nothing here knows a word of any language: ends of sentences, lines, lists, colons, fences and quotation marks are signs
that scripts share. What it gives are places in the text, and never a changed text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LONGEST = 400
"""A piece has at most that many bytes: what has no punctuation is taken apart between words."""
SHORTEST = 24
"""Bytes below which a sentence is not a piece of its own: "No." belongs to what stands next to it in its line."""


class Piece(NamedTuple):
    """One sentence, or a few short ones, of a text; without the white space around it."""

    start: int
    end: int
    shown: bool
    """Code, a quotation, a document: data, whoever sends it."""
    under: int
    """Which piece before it introduces it: the nearest that ends in a colon; -1 if none does."""


_OPENERS = frozenset("`~<")
"""What a line begins with that opens code or a document."""
_MARKED = _OPENERS | {">", ""}
_FENCE = re.compile(r"\s{0,8}(```|~~~)")
_TAG = re.compile(r"\s{0,20}<([A-Za-z][\w.:-]{0,40})(?:\s[^<>]{0,300})?>")
_LISTED = re.compile(r"\s{0,40}(?:[-*+\u2022\u2013\u2014\u00b7\u30fb]|[(\[]?\w{1,3}[.)\]]|\[[ xX]\])\s+")
_COLON = (":", "\uff1a", "\ufe55")
_ENDS = re.compile(
    r"""
    [.!?\u2026\u061f\u06d4\u0964\u0965\u0589\u1362\u037e] [^\w\s<>]*+              # with white space after it
      | [\u3002\uff01\uff1f\uff0e]++ [\u300d\u300f\uff09\u201d\u2019)"']*+          # none is needed
    """,
    re.VERBOSE,
)
_PLAIN_ENDS = re.compile(r"[.!?](?:(?<!\.)|(?![a-zA-Z0-9]|\s{1,3}[a-z]))[^\w\s<>]*+")
"""The same in ASCII, without a full stop in a word or before a small letter."""
_FULL_STOPS = "\u3002\uff01\uff1f\uff0e"
_SIGNS = re.compile(r"[.!?\u2026\u061f\u06d4\u0964\u0965\u0589\u1362\u037e\u3002\uff01\uff1f\uff0e]")
_BREAKS = re.compile(r"[;,\uff1b\uff0c\u3001\u061b\u060c](?=\s|[^\x00-\x7f])|\s")
_ASKS = ("?", "\uff1f", "\u061f", "\u037e")


def pieces(text: str) -> list[Piece]:
    """All that is said in a text, in order. In time proportional to it, whatever it is."""
    if "\n" not in text and text.lstrip()[:1] not in _MARKED:  # one line of plain words, as most are
        whole = _Run(0, len(text), False, False)
        ends = _ends(text, whole)
        if text.isascii() and len(text) <= LONGEST and ends in ([], [len(text)]):  # one sentence
            start, end = _trimmed(text, 0, len(text))
            return [Piece(start, end, False, -1)] if start < end else []
        return [Piece(start, end, False, -1) for start, end in _sentences(text, whole, ends)]
    made: list[Piece] = []
    heading, listed = -1, False
    for run in _runs(text):
        if not run.listed and not run.shown and listed:
            heading = -1  # a list is over, and with it what introduced it
        listed = run.listed
        for start, end in _sentences(text, run, [] if run.shown else _ends(text, run)):
            made.append(Piece(start, end, run.shown, heading))
        if not run.shown and made and text.endswith(_COLON, 0, made[-1].end):
            heading = len(made) - 1
    return made


def asks(sentence: str) -> bool:
    return sentence.rstrip("\"')]»”*_` ").endswith(_ASKS)


class _Run(NamedTuple):
    """Lines that a sentence may run over, or one line of what is shown."""

    start: int
    end: int
    shown: bool
    listed: bool


def _runs(text: str) -> Iterator[_Run]:
    held: _Run | None = None
    tags = _Tags(text)
    closing = ""
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        if closing:
            over = closing in line
            closing = "" if over else closing
            if not over:
                yield _Run(start, end, True, False)
        else:
            begins = line.lstrip()[:1]
            listed = _LISTED.match(line) is not None
            closing = tags.closing(line, end) if begins in _OPENERS else ""
            quoted = begins == ">"
            if held is not None and (listed or closing or quoted or not _goes_on(text, held, begins)):
                yield held
                held = None
            if held is not None:
                held = held._replace(end=end)
            elif quoted:
                yield _Run(start, end, True, False)
            elif begins and not closing:
                held = _Run(start, end, False, listed)
        start = end + 1
    if held is not None:
        yield held


class _Tags:
    """Where documents and code end that begin in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}

    def closing(self, line: str, end: int) -> str:
        """What ends the one that begins on this line, which ends there; nothing if none begins, or it has no end."""
        if fence := _FENCE.match(line):
            return fence[1]
        if (tag := _TAG.match(line)) is None:
            return ""
        last = f"</{tag[1]}>"
        if last in line or (last not in self._next and len(self._next) >= _MOST_TAGS):
            return ""
        if 0 <= self._next.get(last, 0) <= end:
            self._next[last] = self._text.find(last, end)
        return last if self._next[last] >= 0 else ""


_MOST_TAGS = 32


def _goes_on(text: str, held: _Run, begins: str) -> bool:
    """Whether a sentence of the lines before runs on in one that begins so: they have no end, and it begins small."""
    return begins.islower() and held.end - held.start < _WIDE and not text.endswith(_STOPS, held.start, held.end)


_WIDE = 4_000
_STOPS = (".", "!", "?", ";", *_COLON)


def _sentences(text: str, run: _Run, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The sentences of a run that end there, short ones together with a neighbour, long ones in parts."""
    begin = run.start
    waiting: tuple[int, int] | None = None
    for end in (*ends, run.end):
        start, stop = _trimmed(text, begin, end)
        begin = end
        if start == stop:
            continue
        if waiting is not None:
            if _small(text, start, stop) or _small(text, *waiting):
                waiting = (waiting[0], stop)
                continue
            yield from _parts(text, *waiting)
        waiting = (start, stop)
    if waiting is not None:
        yield from _parts(text, *waiting)


def _ends(text: str, run: _Run) -> list[int]:
    """Where sentences end. Looking for their signs first is several times as fast as trying everywhere."""
    if text.isascii():  # as most are: there, the pattern leaves little to ask
        return [at for end in _PLAIN_ENDS.finditer(text, run.start, run.end)
                if ((at := end.end()) == run.end or text[at].isspace()) and _is_end(text, end, run)]  # fmt: skip
    found: list[int] = []
    at = dead = 0
    for sign in _SIGNS.finditer(text, run.start, run.end):
        start = sign.start()
        after = text[start + 1 : start + 3]
        if sign[0] == "." and (after[:1].isalnum() or (after[:1] == " " and after[1:].islower())):
            continue  # 3.5, a.txt, and before a small letter
        alone = sign[0] in _FULL_STOPS
        if start < at or (start < dead and not alone) or (end := _ENDS.match(text, start, run.end)) is None:
            continue
        if not alone and end.end() < run.end and not text[end.end()].isspace():
            dead = end.end()  # up to there, all of these have no white space after them
            continue
        at = end.end()
        if _is_end(text, end, run):
            found.append(at)
    return found


def _is_end(text: str, sign: re.Match[str], run: _Run) -> bool:
    """A full stop after a number at the beginning of its line, after one letter, or before a small letter is none."""
    at = sign.start()
    if text[at] != ".":
        return True
    after = text[sign.end() : sign.end() + 4].lstrip()[:1]
    if after.islower():
        return False
    before = text[max(run.start, at - _TWO) : at]
    return (len(before) == _TWO and before.isalpha()) or _is_stop(text, at, run)


_TWO = 2


def _is_stop(text: str, at: int, run: _Run) -> bool:
    word = text[max(run.start, at - 4) : at].split()[-1:] or [""]
    if len(word[0]) == 1 and word[0].isalpha() and word[0].isascii():
        return False
    return not word[0].isdigit() or bool(text[max(run.start, at - 12) : at - len(word[0])].strip("([ \t"))


def _small(text: str, start: int, end: int) -> bool:
    return end - start < SHORTEST and len(text[start:end].encode("utf-8", "surrogatepass")) < SHORTEST


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A sentence in parts of some hundred bytes, taken apart between words where there are any."""
    if end - start <= LONGEST // 2:
        yield start, end  # as most are
        return
    wide = 1 if text[start : start + LONGEST].isascii() else 2
    most = LONGEST // wide
    while end - start > most:
        signs = [m.end() for m in _BREAKS.finditer(text, start + most // 2, start + most)]
        at = signs[-1] if signs else start + most
        first, last = _trimmed(text, start, at)
        if first < last:
            yield first, last
        start = at
    start, end = _trimmed(text, start, end)
    if start < end:
        yield start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
