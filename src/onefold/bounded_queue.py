"""What waits for one slow reader, bounded by bytes and by number. Filled and emptied in one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """`give` rejects what is too much, and never waits; who gives decides what becomes of a reader that is too slow."""

    def __init__(self, *, most_bytes: int, most_count: int) -> None:
        self._items: deque[tuple[T, int, int]] = deque()
        self._bytes = self._count = 0
        self._most_bytes, self._most_count = most_bytes, most_count
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._woken = False
        self.closed = False

    def __iter__(self) -> Iterator[T]:
        return (item for item, _, _ in self._items)

    def give(self, item: T, size: int, count: int = 1) -> bool:
        """Puts something in. False if it is too much next to what waits, or if it is closed; alone it always fits."""
        full = self._bytes + size > self._most_bytes or self._count + count > self._most_count
        if self.closed or (full and self._items):
            return False
        self._items.append((item, size, count))
        self._bytes += size
        self._count += count
        self._wake.set()
        return True

    def remove(self, unwanted: Callable[[T], bool]) -> None:
        """Takes out of what waits."""
        self._items = deque(one for one in self._items if not unwanted(one[0]))
        self._bytes = sum(size for _, size, _ in self._items)
        self._count = sum(count for _, _, count in self._items)

    def wake(self) -> None:
        """Has `next` return, with nothing if nothing waits."""
        self._woken = True
        self._wake.set()

    def close(self) -> None:
        """Ends it. What waits is dropped: whoever resumes is given it again."""
        self.closed = True
        self._items.clear()
        self._bytes = self._count = 0
        self._wake.set()
        self._room.set()

    async def next(self) -> T | None:
        """The next of what waits; None once it is closed, or when it was woken."""
        while not (self._items or self._woken or self.closed):
            self._wake.clear()
            await self._wake.wait()
        self._woken = False
        if not self._items:
            return None
        item, size, count = self._items.popleft()
        self._bytes -= size
        self._count -= count
        if self._has_room():
            self._room.set()
        return item

    async def room(self) -> None:
        """Waits until half of it is free, or it is closed: for who gives much at once, and can wait."""
        while not (self.closed or self._has_room()):
            self._room.clear()
            await self._room.wait()

    def _has_room(self) -> bool:
        return self._bytes <= self._most_bytes // 2 and self._count <= self._most_count // 2
