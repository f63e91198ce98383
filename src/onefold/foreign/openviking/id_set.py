"""Sets of ids that take a dozen bytes each: a Python set takes ten times that, and there may be millions."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from onefold.foreign.openviking.reader import NO_ID

_PARTS = range(-4, 4)
_SHIFT = 61


class IdSet:
    """Which marks stand in some lines, and whose. The owner of a mark that several have is the last of them."""

    def __init__(self, logs: Iterable[array[int]]) -> None:
        given = list(logs)
        self._marks = array("q")
        self._owners = array("i")
        for part in _PARTS:  # in parts, so that few of them are Python's own numbers at a time
            found = sorted(
                (mark, owner)
                for owner, log in enumerate(given)
                for mark in log
                if mark >> _SHIFT == part and mark != NO_ID
            )
            self._marks.extend(mark for mark, _ in found)
            self._owners.extend(owner for _, owner in found)

    def __contains__(self, mark: int) -> bool:
        return self.owner(mark) is not None

    def owner(self, mark: int) -> int | None:
        place = bisect_right(self._marks, mark) - 1
        return self._owners[place] if place >= 0 and self._marks[place] == mark else None

    def has_all(self, marks: Iterable[int]) -> bool:
        return all(mark in self for mark in marks)

    def has_none(self, marks: Iterable[int]) -> bool:
        return not any(mark in self for mark in marks)

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Each mark that stands there once more, with the owner of the one before."""
        for place, (one, two) in enumerate(pairwise(self._marks)):
            if one == two:
                yield one, self._owners[place]
