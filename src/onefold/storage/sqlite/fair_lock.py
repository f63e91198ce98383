"""Taking turns between processes. For fairness only: SQLite's own lock keeps writers apart.

SQLite's busy handler lets one process win again and again while another waits for seconds. A blocking `flock` on a
file next to the store hands the turn on in order. It has no time limit, and a stopped process would hold everybody up,
so the wait is given up after a while: then SQLite's lock alone decides.

The file says as well which database the log next to it belongs to: see `file.check_log`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from onefold.storage import file_lock
from onefold.storage.permissions import PRIVATE, Access, make_file
from onefold.storage.sqlite.lock_queue import LockQueue

PATIENCE = 5.0


class FairLock:
    def __init__(self, path: str, access: Access = PRIVATE) -> None:
        self._path = path
        self._access = access
        self._fd: int | None = None
        self._try: Callable[[], object] = _nothing
        self._leave: Callable[[], object] = _nothing
        self._broken = not file_lock.AVAILABLE  # then SQLite's lock alone decides
        self._queue = LockQueue(path)

    def enter(self) -> Callable[[], object] | None:
        """Waits for the turn. What gives it up again; None if we go without one."""
        if self._fd is None and self._descriptor() is None:
            return None
        try:
            self._try()
        except BlockingIOError:
            return self._wait_in_line()
        except OSError:
            self._broken = True
            return None
        return self._leave

    def note(self, text: str) -> None:
        """Writes into the file, if that does not say so already. A gate that cannot be written to is no reason to
        stop: what it says is a help against mistakes, and no part of the store."""
        fd = self._descriptor()
        if fd is None or noted(self._path) == text:
            return
        try:
            os.pwrite(fd, text.encode(), 0)
            os.ftruncate(fd, len(text.encode()))
        except OSError:
            return

    def wake(self) -> None:
        """Lets nobody wait any more; who has the turn keeps it until he leaves."""
        self._queue.close()

    def close(self) -> None:
        """Closes, and never unlocks: in a forked child the lock is still the parent's."""
        self._queue.close()
        fd, self._fd, self._broken = self._fd, None, True
        self._try = self._leave = _nothing
        if fd is not None:
            os.close(fd)

    def _descriptor(self) -> int | None:
        if self._fd is None and not self._broken:
            try:
                make_file(self._path, self._access)
                self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                self._try, self._leave = file_lock.try_and_leave(self._fd)
            except OSError:
                self._broken = True
        return self._fd

    def _wait_in_line(self) -> Callable[[], object] | None:
        if self._queue.standing:  # still, since somebody's patience ended
            return None
        try:
            return self._queue.leave if self._queue.wait(PATIENCE) else None
        except OSError:
            self._broken = True
            return None


def _nothing() -> None:
    pass


def noted(path: str) -> str:
    """What a gate says, if there is one that can be read."""
    try:
        # Closing it gives up no lock: those of a gate belong to a descriptor.
        return Path(path).read_bytes()[:1024].decode(errors="replace")
    except OSError:
        return ""


def forget(path: str) -> None:
    """What a gate says holds no longer."""
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
