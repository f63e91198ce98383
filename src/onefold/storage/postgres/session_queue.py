"""Standing in line inside this process for a session that others write to.

Whoever waits at the server for a session's row waits with a connection in his hand. If all did so, one session that
somebody holds would take every connection of the process, and no other session could be read or written. So two of a
session's writers are at the server at a time: one that writes, and one that is there when it is done. The others wait
here, in the order in which they came.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

AT_ONCE = 2


class Waited(Exception):
    """The turn did not come in time."""


class _Line:
    __slots__ = ("inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting: deque[threading.Lock] = deque()


class SessionQueues:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}

    @contextlib.contextmanager
    def turn(self, session: str, patience: float) -> Iterator[None]:
        with self._lock:
            line = self._lines.setdefault(session, _Line())
            mine = None
            if line.inside < AT_ONCE:
                line.inside += 1
            else:
                mine = threading.Lock()
                mine.acquire()
                line.waiting.append(mine)
        try:
            if mine is not None and not mine.acquire(timeout=patience) and not self._came(line, mine):
                raise Waited
        except BaseException:
            self._step_out(session, line, mine)
            raise
        try:
            yield
        finally:
            self._leave(session, line)

    def wake(self) -> None:
        """Lets everybody go on who waits, as when there is nothing to wait for any more."""
        with self._lock:
            for line in self._lines.values():
                while line.waiting:
                    line.inside += 1
                    line.waiting.popleft().release()

    def _came(self, line: _Line, mine: threading.Lock) -> bool:
        """Whether the turn came at the last moment."""
        with self._lock:
            return mine not in line.waiting

    def _step_out(self, session: str, line: _Line, mine: threading.Lock | None) -> None:
        with self._lock:
            if mine is not None and mine in line.waiting:
                line.waiting.remove(mine)
                return
        self._leave(session, line)

    def _leave(self, session: str, line: _Line) -> None:
        with self._lock:
            if line.waiting:
                line.waiting.popleft().release()
                return
            line.inside -= 1
            if not line.inside:
                self._lines.pop(session, None)
