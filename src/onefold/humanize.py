"""Counts and times as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def count(number: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in items)


def clock_time(at: float) -> str:
    """A time as the reader's clock shows it."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(at: float, now: float) -> str:
    """How long ago something was, in one unit."""
    seconds = now - at
    if seconds < 0:
        return "in the future"
    for size, unit in ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 1 else "just now"
