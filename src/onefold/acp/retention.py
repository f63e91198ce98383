"""Bounds the frame log: beyond its limit, the largest room drops its oldest frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

MOST_BYTES = 2 << 30
"""Of the frame log. Complete messages are in the journal too; frames are for late joiners and for debugging."""
LOOK_EVERY = 8 << 20
"""Bytes that are kept between two looks at the size."""
PAGES = 64
"""Pages that go in one transaction, so that nobody waits long."""

Run = Callable[..., list[Any]]


class Retention:
    """Counts what is kept, and says when it is time to look."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._since = min(LOOK_EVERY, most // 8)

    def is_due(self, size: int) -> bool:
        """After so many more bytes."""
        self._since += size
        if self._since < min(LOOK_EVERY, self._most // 8):
            return False
        self._since = 0
        return True

    def excess(self, connection: apsw.Connection) -> int:
        """Bytes that have to go, if it is too large: a tenth more than that, so that it is quiet for a while."""
        pages, free, size = (int(str(connection.pragma(p))) for p in ("page_count", "freelist_count", "page_size"))
        used = (pages - free) * size
        return used - self._most * 9 // 10 if used > self._most else 0

    def shrink(self, connection: apsw.Connection, run: Run) -> int:
        """One step: removes the oldest pages of the largest room, but never its last one. How many bytes went."""
        excess = self.excess(connection)
        largest = run("largest") if excess else []
        if not largest:
            return 0
        room = largest[0][0]
        pages = run("oldest_sizes", room << 40, (room + 1 << 40) - 1, PAGES + 1)
        gone, upto = 0, None
        for page in pages[:-1]:
            if gone >= excess:
                break
            gone, upto = gone + page[2], page
        if upto is not None:
            _drop(run, room, upto[0], upto[1])
        return gone


def forget(run: Run, after: int, before: float) -> tuple[int, int] | None:
    """One step of retention by time: (the room to go on after, frames that were removed), or None at the end."""
    for (room,) in run("counts", after):
        pages = run("oldest", room << 40, (room + 1 << 40) - 1, PAGES)
        old = 0
        while old < len(pages) and pages[old][2] < before:
            old += 1
        if old:
            place, last, _ = pages[old - 1]
            _drop(run, room, place, last)
            removed = last - (pages[0][0] & ((1 << 40) - 1)) + 1
            return (room - 1 if old == PAGES else room), removed
    return None


def _drop(run: Run, room: int, place: int, last: int) -> None:
    run("drop_pages", room << 40, place)
    run("put_forgotten", last, room)
    run("give_back")
