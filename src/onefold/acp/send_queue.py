"""The bounded send queue of one client. A client that does not read is disconnected, and resumes from its last
number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

MOST_BYTES = 8 << 20
MOST_FRAMES = 10_000


class SendQueue:
    """Frames on their way to a client, as text. Filled by rooms, emptied by the client's connection; in one loop."""

    def __init__(self, *, most_bytes: int = MOST_BYTES, most_frames: int = MOST_FRAMES) -> None:
        self._waiting: deque[tuple[str, int | None]] = deque()
        self._bytes = 0
        self._most_bytes, self._most_frames = most_bytes, most_frames
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self.closed: str | None = None
        """Why it takes nothing any more."""

    def give(self, text: str, number: int | None = None) -> bool:
        """Puts a frame in, with its number if it has one. False if the client is gone, or is let go by this."""
        if self.closed is not None:
            return False
        size = self._size(text)
        if self._bytes + size > self._most_bytes or len(self._waiting) >= self._most_frames:
            self.close("it did not read; attach again from the last number")
            return False
        self._waiting.append((text, number))
        self._bytes += size
        self._wake.set()
        return True

    def numbers(self) -> list[int]:
        """Of the frames that wait."""
        return [number for _, number in self._waiting if number is not None]

    def take_back(self, numbers: Collection[int]) -> None:
        """Removes frames that wait: they were erased since."""
        if numbers:
            self._waiting = deque(one for one in self._waiting if one[1] not in numbers)
            self._bytes = sum(self._size(text) for text, _ in self._waiting)

    def _size(self, text: str) -> int:
        """What a frame counts. One that is larger than the bound has to pass, too, and is the same text for all."""
        return min(len(text), self._most_bytes // 4)

    def close(self, why: str) -> None:
        """Ends it. What waits is dropped: whoever resumes is given it again."""
        if self.closed is None:
            self.closed = why
            self._waiting.clear()
            self._bytes = 0
            self._wake.set()
            self._room.set()

    async def next(self) -> str | None:
        """The next frame; None once it is closed."""
        while not self._waiting:
            if self.closed is not None:
                return None
            self._wake.clear()
            await self._wake.wait()
        text, _ = self._waiting.popleft()
        self._bytes -= self._size(text)
        if self._has_room():
            self._room.set()
        return text

    async def room(self) -> None:
        """Waits until half of it is free, or it is closed: for who gives much at once, and can wait."""
        while self.closed is None and not self._has_room():
            self._room.clear()
            await self._room.wait()

    def _has_room(self) -> bool:
        return self._bytes <= self._most_bytes // 2 and len(self._waiting) <= self._most_frames // 2
