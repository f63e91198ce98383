"""Where ids and times come from by default. Both are passed in everywhere, so that a test has its own."""

from __future__ import annotations

import os
import time


def system_clock() -> float:
    """Seconds since 1970, to the microsecond, so that a time comes back from JSON unchanged."""
    return time.time_ns() // 1000 / 1e6


_random: list[str] = []
os.register_at_fork(after_in_child=_random.clear)  # a child must not give out its parent's


def random_id() -> str:
    """Eighty random bits from the system as 20 hex digits. Asked for in stock: one call gives a hundred of them."""
    try:
        return _random.pop()
    except IndexError:
        bits = os.urandom(1000).hex()
        _random.extend(bits[at : at + 20] for at in range(20, 2000, 20))
        return bits[:20]
