"""Advisory locks on open files. A lock belongs to its descriptor, and ends with it however its process ends.

Where a system has none (`AVAILABLE` is False), nothing is locked, and whoever asks is told that he has the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    fcntl = None

AVAILABLE = fcntl is not None


def lock(fd: int, *, shared: bool = False) -> None:
    """Waits for the lock, in the order in which others wait for it."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(fd: int) -> bool:
    """Takes the lock if nobody has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_and_leave(fd: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """How to take this lock, again and again, and how to give it up, each in one call: they are part of every append.
    Where another holds it, taking it raises `BlockingIOError`."""
    if fcntl is None:
        return (lambda: None), (lambda: None)
    return partial(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB), partial(fcntl.flock, fd, fcntl.LOCK_UN)


def unlock(fd: int) -> None:
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
