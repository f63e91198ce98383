"""One line that a person types while others print above it: keys become lines, and the line is drawn as text.

Nothing here touches a terminal. What is typed comes in as bytes, and what to write goes out as text.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from onefold.cli.output import safe

MOST = 100_000
"""Characters of a line."""
_REMEMBERED = 200
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z]|[^\[O])")
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"


class Entered(NamedTuple):
    """A line that was ended with Enter."""

    text: str


Key: TypeAlias = Entered | Literal["interrupt", "end"]
"""`interrupt` is Ctrl-C, `end` is Ctrl-D on an empty line."""


@dataclass(slots=True)
class LineEditor:
    """The line being typed, and the ones before it."""

    text: str = ""
    at: int = 0
    """Where the cursor is."""
    _past: list[str] = field(default_factory=list)
    _back: int = 0
    """How many lines back in the past the line comes from."""
    _kept: str = ""
    """What was typed before somebody went back."""
    _pasting: bool = False
    _half: str = ""
    """The beginning of a sequence of which the rest is still to come."""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def feed(self, data: bytes) -> list[Key]:
        """Takes what was typed; returns what came of it, in order."""
        typed = self._half + self._decoder.decode(data)
        self._half = ""
        done: list[Key] = []
        i = 0
        while i < len(typed):
            if typed[i] != "\x1b":
                done += self._key(typed[i])
                i += 1
            elif found := _SEQUENCE.match(typed, i):
                self._sequence(found[0])
                i = found.end()
            else:
                self._half = typed[i:][:16]
                break
        return done

    def drawn(self, prompt: str, width: int) -> str:
        """The line behind its prompt, as much of it as fits, with the cursor in its place."""
        from rich.cells import cell_len, set_cell_size

        room = max(8, width - cell_len(prompt) - 1)
        shown = [safe(one) for one in self.text]
        before, after = "".join(shown[: self.at]), "".join(shown[self.at :])
        while cell_len(before) >= room:
            before = before[1 + (cell_len(before) - room) // 2 :]
        after = set_cell_size(after, min(cell_len(after), room - cell_len(before)))
        back = f"\x1b[{cell_len(after)}D" if after else ""
        return f"\r\x1b[K{prompt}{before}{after}{back}"

    def _key(self, key: str) -> list[Key]:
        match key:
            case "\r" | "\n" if self._pasting:
                self._insert("\n")
            case "\r" | "\n":
                return [self._entered()]
            case "\x03":
                return ["interrupt"]
            case "\x04" if not self.text:
                return ["end"]
            case "\x7f" | "\x08":
                self._cut(self.at - 1, self.at)
            case "\x04":
                self._cut(self.at, self.at + 1)
            case "\x15":
                self._cut(0, self.at)
            case "\x0b":
                self._cut(self.at, len(self.text))
            case "\x17":
                self._cut(len(self.text[: self.at].rstrip().rpartition(" ")[0]), self.at)
            case "\x01":
                self.at = 0
            case "\x05":
                self.at = len(self.text)
            case _ if key.isprintable() or key == "\t":
                self._insert(key)
        return []

    def _sequence(self, typed: str) -> None:
        match typed:
            case "\x1b[D" | "\x1bOD":
                self.at = max(0, self.at - 1)
            case "\x1b[C" | "\x1bOC":
                self.at = min(len(self.text), self.at + 1)
            case "\x1b[A" | "\x1bOA":
                self._recall(self._back + 1)
            case "\x1b[B" | "\x1bOB":
                self._recall(self._back - 1)
            case "\x1b[H" | "\x1bOH" | "\x1b[1~":
                self.at = 0
            case "\x1b[F" | "\x1bOF" | "\x1b[4~":
                self.at = len(self.text)
            case "\x1b[3~":
                self._cut(self.at, self.at + 1)
            case "\x1b\r" | "\x1b\n":
                self._insert("\n")
            case _:
                self._pasting = typed == _PASTE_BEGINS or (self._pasting and typed != _PASTE_ENDS)

    def clear(self) -> bool:
        """Forgets the line; whether there was one."""
        had = bool(self.text)
        self.text, self.at, self._back = "", 0, 0
        return had

    def _entered(self) -> Entered:
        line = Entered(self.text)
        if line.text.strip() and (not self._past or self._past[-1] != line.text):
            self._past = [*self._past, line.text][-_REMEMBERED:]
        self.clear()
        return line

    def _insert(self, text: str) -> None:
        if len(self.text) < MOST:
            self.text = self.text[: self.at] + text + self.text[self.at :]
            self.at += len(text)

    def _cut(self, begin: int, end: int) -> None:
        begin = max(0, begin)
        self.text, self.at = self.text[:begin] + self.text[end:], begin

    def _recall(self, back: int) -> None:
        if not 0 <= back <= len(self._past):
            return
        if self._back == 0:
            self._kept = self.text
        self._back = back
        self.text = self._past[-back] if back else self._kept
        self.at = len(self.text)
