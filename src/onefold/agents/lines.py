"""Lines out of a stream of bytes, none longer than is good for whoever has to keep it."""

from __future__ import annotations

from onefold.errors import OnefoldError


class LineTooLong(OnefoldError):
    """The agent wrote a line without an end."""


class Lines:
    """Cuts a stream at `\\n` and nothing else. Every byte is looked at once, however long a line gets: up to `most`
    bytes, where it is cut, or refused."""

    def __init__(self, most: int, *, cut: bool) -> None:
        self._most = most
        self._cut = cut
        self._line = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._line + whole[0])
            self._line.clear()
        self._line += rest
        if len(self._line) > self._most:
            if not self._cut:
                raise LineTooLong(f"it wrote a line of more than {self._most:,} bytes")
            whole.append(bytes(self._line))
            self._line.clear()
        return whole

    def rest(self) -> bytes:
        return bytes(self._line)
