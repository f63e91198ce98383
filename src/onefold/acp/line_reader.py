"""Splits a byte stream into lines, with a bound on their length."""

from __future__ import annotations

from typing import NamedTuple

from onefold.errors import OnefoldError

HEAD = 4 << 10
"""Bytes that are kept of a line which is skipped."""


class LineTooLong(OnefoldError):
    """The agent wrote a line that nobody can take, or one without an end."""


class TruncatedLine(NamedTuple):
    """A line of which the beginning is left."""

    head: bytes
    size: int


class StderrLine(NamedTuple):
    """One line of an agent's stderr, without its end."""

    text: str


class LineReader:
    """Cuts a stream at `\\n` and nothing else. Every byte is looked at once, however long a line gets. One of more than
    `most` bytes is cut into several; with `endless` it is skipped up to that size, and rejected beyond it."""

    def __init__(self, most: int, *, endless: int | None = None) -> None:
        self._most = most
        self._endless = endless
        self._line = bytearray()
        self._skipped = 0
        """Bytes of the line that were dropped, not counting its head."""

    def feed(self, data: bytes) -> list[bytes | TruncatedLine]:
        first, *more = data.split(b"\n")
        found: list[bytes | TruncatedLine] = []
        self._add(first, found)
        if more:
            found.append(self._take())
            found += more[:-1]
            self._add(more[-1], found)
        return found

    def rest(self) -> bytes | TruncatedLine:
        return self._take()

    def _add(self, part: bytes, found: list[bytes | TruncatedLine]) -> None:
        if self._skipped:
            self._skip(len(part))
            return
        self._line += part
        if len(self._line) <= self._most:
            return
        if self._endless is None:
            found.append(self._take())
            return
        size = len(self._line)
        self._line = self._line[:HEAD]
        self._skip(size - len(self._line))

    def _skip(self, size: int) -> None:
        self._skipped += size
        if self._endless is not None and len(self._line) + self._skipped > self._endless:
            raise LineTooLong(f"it wrote a line of more than {self._endless:,} bytes")

    def _take(self) -> bytes | TruncatedLine:
        line, size = bytes(self._line), self._skipped
        self._line, self._skipped = bytearray(), 0
        return TruncatedLine(line, len(line) + size) if size else line
