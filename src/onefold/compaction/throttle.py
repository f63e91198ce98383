"""Keeps long computing in one thread from slowing down the writers of the same process.

Threads share one interpreter. One that computes gives it away only every few milliseconds, and an append needs it
several times: so while somebody writes, long work stops for a moment after each bit of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BESIDE_WRITERS = 0.0002
_ALONE = 0.02
_PAUSE = 0.0003


class Throttle:
    """Called now and then by whoever computes. Mostly it does nothing."""

    def __init__(self, wait: Callable[[float], object], writing: Callable[[], bool]) -> None:
        self._wait = wait
        self._writing = writing
        self._since = time.monotonic()

    def __call__(self) -> None:
        worked = time.monotonic() - self._since
        if worked > _BESIDE_WRITERS and (worked > _ALONE or self._writing()):
            self._wait(_PAUSE)
            self._since = time.monotonic()
