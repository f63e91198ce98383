"""Standing in line for a lock between processes, for as long as somebody has the patience.

A wait for `flock` keeps the order of those who wait and has no limit, so a thread waits, on a descriptor of its own,
and who asked it may go. What it then gets too late it gives back. It ends, and its descriptor with it, when it was not
needed for a while and when the queue is closed.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from onefold.storage import file_lock

IDLE = 5.0
"""For how many seconds a thread with nothing to do is kept."""


class LockQueue:
    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._fd = -1
        self._changed = threading.Condition()
        self._waiter: threading.Thread | None = None
        self._wanted = False
        self._closed = False
        self._error: OSError | None = None
        self.standing = False
        """Whether the thread waits for the lock, wanted or not."""
        self.granted = False
        """Whether the lock is held, by the descriptor of this queue."""

    def wait(self, patience: float) -> bool:
        """True when the lock was granted; False if it was not in that time, or the queue was closed meanwhile."""
        with self._changed:
            if self._closed:
                return False
            self._wanted, self._error = True, None
            if self._waiter is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                self._waiter = threading.Thread(target=self._stand, name="onefold-queue", daemon=True)
                self._waiter.start()
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self.granted or self._error is not None or self._closed, patience)
            except BaseException:
                if self.granted:
                    self._give_back()
                raise
            finally:
                self._wanted = False
            if self._error is not None:
                raise self._error
            return self.granted

    def leave(self) -> None:
        with self._changed:
            self._give_back()

    def _give_back(self) -> None:
        self.granted = False
        file_lock.unlock(self._fd)
        if self._closed:
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more. A lock that is held is held until it is left."""
        if os.getpid() != self._pid:  # a forked child, which has no such thread; the lock is still the parent's
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _stand(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._needed, IDLE)
                if not self.granted and (self._closed or not self._wanted):
                    os.close(self._fd)
                    self._fd, self._waiter = -1, None
                    return
                if self.granted:
                    continue
                self.standing = True
            try:
                file_lock.lock(self._fd)
            except OSError as error:
                with self._changed:
                    self.standing, self._wanted, self._error = False, False, error
                    self._changed.notify_all()
                continue
            with self._changed:
                self.standing = False
                if self._wanted and not self._closed:
                    self.granted, self._wanted = True, False
                    self._changed.notify_all()
                else:
                    file_lock.unlock(self._fd)

    def _needed(self) -> bool:
        return not self.granted and (self._wanted or self._closed)
