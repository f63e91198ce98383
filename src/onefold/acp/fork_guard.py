"""Locks that are held while something is written, so that no fork comes in between: a child would take over what SQLite
has locked in this process, and nobody would ever give that up."""

from __future__ import annotations

import os
import threading
import weakref

_one_fork = threading.Lock()
_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_held: list[threading.Lock] = []


def fork_guard() -> threading.Lock:
    """A lock that a fork waits for."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _before() -> None:
    _one_fork.acquire()
    for lock in list(_locks):
        lock.acquire()
        _held.append(lock)


def _after() -> None:
    while _held:
        _held.pop().release()
    _one_fork.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
