"""Taking turns between processes. For fairness only: SQLite's own lock keeps writers apart.

SQLite's busy handler lets one process win again and again while another waits for seconds. A blocking `flock` on a
file beside the store hands the turn on in order. It has no time limit, and a stopped process would hold everybody up,
so the wait happens in a thread of its own and is given up after a while: then SQLite's lock alone decides.
"""

from __future__ import annotations

import os
import threading
from functools import partial

try:
    import fcntl
except ImportError:  # no flock on this system: SQLite's lock alone decides
    fcntl = None  # type: ignore[assignment]

PATIENCE = 5.0


def _nothing() -> None:
    pass


class Gate:
    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self.leave = _nothing
        """Gives the turn up."""
        self._broken = fcntl is None
        self._lock = threading.Lock()
        self._waiter: threading.Thread | None = None
        self._asked = threading.Semaphore(0)
        self._granted = threading.Semaphore(0)
        self._abandoned = False

    def enter(self) -> bool:
        """True if the turn is ours and has to be left; False if we go without."""
        fd = self._fd if self._fd is not None else self._descriptor()
        if fd is None or self._abandoned:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait_in_line(fd)
        except OSError:
            self._broken = True
            return False
        return True

    def close(self) -> None:
        """Closes, and never unlocks: in a forked child the lock is still the parent's."""
        fd, self._fd, self.leave, self._broken = self._fd, None, _nothing, True
        if fd is not None and self._waiter is None:
            os.close(fd)

    def _descriptor(self) -> int | None:
        if self._fd is None and not self._broken:
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self.leave = partial(fcntl.flock, self._fd, fcntl.LOCK_UN)
            except OSError:
                self._broken = True
        return self._fd

    def _wait_in_line(self, fd: int) -> bool:
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._stand_in_line, args=(fd,), name="onefold-gate", daemon=True)
            self._waiter.start()
        self._asked.release()
        try:
            if self._granted.acquire(timeout=PATIENCE):
                return True
        except BaseException:
            if self._give_up():
                self.leave()
            raise
        return self._give_up()

    def _give_up(self) -> bool:
        """Stops waiting; True if the turn came at the last moment after all."""
        with self._lock:
            if self._granted.acquire(blocking=False):
                return True
            self._abandoned = True
            return False

    def _stand_in_line(self, fd: int) -> None:
        while True:
            self._asked.acquire()
            fcntl.flock(fd, fcntl.LOCK_EX)
            with self._lock:
                if self._abandoned:
                    self._abandoned = False
                    fcntl.flock(fd, fcntl.LOCK_UN)
                else:
                    self._granted.release()
