"""Rate limits: token buckets by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class RateLimiter:
    """One bucket for each key. The clock is passed in; the number of keys is bounded, the least used one goes first."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float], *, most: int = 10_000) -> None:
        self._rate = rate
        self._burst = float(max(1, burst))
        self._clock = clock
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Takes one, and returns 0; or takes none, and returns the seconds until there is one."""
        return self._take(key, owing=False)

    def owe(self, key: str) -> float:
        """Takes one in any case, and returns the seconds to wait before it is used."""
        return self._take(key, owing=True)

    def _take(self, key: str, *, owing: bool) -> float:
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        left, since = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - since) * self._rate)
        taken = left >= 1.0
        self._left[key] = (left - 1.0 if taken or owing else left, now)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._rate
