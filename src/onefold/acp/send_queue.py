"""The bounded send queue of one client. A client that does not read is disconnected, and resumes from its last
number."""

from __future__ import annotations

from collections.abc import Collection

from onefold.bounded_queue import BoundedQueue

MOST_BYTES = 8 << 20
MOST_FRAMES = 10_000


class SendQueue:
    """Frames on their way to a client, as text. Filled by rooms, emptied by the client's connection; in one loop."""

    def __init__(self, *, most_bytes: int = MOST_BYTES, most_frames: int = MOST_FRAMES) -> None:
        self._frames: BoundedQueue[tuple[str, int | None]] = BoundedQueue(most_bytes=most_bytes, most_count=most_frames)
        self._largest = most_bytes // 4
        """What a frame counts at most. One that is larger than the bound has to pass, too, and is the same text for
        all."""
        self.closed: str | None = None
        """Why it takes nothing any more."""

    def give(self, text: str, number: int | None = None) -> bool:
        """Puts a frame in, with its number if it has one. False if the client is gone, or is disconnected by this."""
        if self.closed is not None:
            return False
        if not self._frames.give((text, number), min(len(text), self._largest)):
            self.close("it did not read; attach again from the last number")
            return False
        return True

    def numbers(self) -> list[int]:
        """Of the frames that wait."""
        return [number for _, number in self._frames if number is not None]

    def take_back(self, numbers: Collection[int]) -> None:
        """Removes frames that wait: they were erased since."""
        if numbers:
            self._frames.remove(lambda frame: frame[1] in numbers)

    def close(self, why: str) -> None:
        """Ends it. What waits is dropped: whoever resumes is given it again."""
        if self.closed is None:
            self.closed = why
            self._frames.close()

    async def next(self) -> str | None:
        """The next frame; None once it is closed."""
        frame = await self._frames.next()
        return None if frame is None else frame[0]

    async def room(self) -> None:
        """Waits until half of it is free, or it is closed: for who gives much at once, and can wait."""
        await self._frames.room()
