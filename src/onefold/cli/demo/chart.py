"""The context's size over time as a chart of blocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

WIDTH = 66
HEIGHT = 10
_EIGHTHS = " ▁▂▃▄▅▆▇█"


class Sized(Protocol):
    """The context's size at a moment."""

    @property
    def seconds(self) -> float: ...
    @property
    def tokens(self) -> int: ...


def draw(curve: Sequence[Sized], commits: Sequence[float], *, width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    """Lines of at most `width` + 9 characters, with tokens on the left and seconds below."""
    if not curve:
        return []
    end = max(curve[-1].seconds, 0.001)
    columns = _columns(curve, commits, end, width)
    top = _round_up(max(columns))
    lines = ["the context's size in tokens"]
    for row in range(height - 1, -1, -1):
        cells = "".join(_cell(value * height / top - row) for value in columns)
        label = f"{round(top * (row + 1) / height):,}" if row in (height - 1, height // 2 - 1) else ""
        lines.append(f"{label:>6} ┤{cells}".rstrip() if label else f"{'':>6} │{cells}".rstrip())
    lines.append(f"{'0':>6} └" + "─" * width)
    lines.append(f"{'':>8}" + _marks(commits, end, width).rstrip())
    lines.append(f"{'':>8}" + _axis(end, width))
    return lines


def _columns(curve: Sequence[Sized], commits: Sequence[float], end: float, width: int) -> list[int]:
    """The size at the end of each slice of time; where a compaction lies in it, the peak, so that it is seen."""
    values: list[int] = []
    folded = {_slot(at, end, width) for at in commits}
    at = 0
    last = 0
    for slot in range(width):
        seen = []
        while at < len(curve) and _slot(curve[at].seconds, end, width) <= slot:
            seen.append(curve[at].tokens)
            at += 1
        values.append(max([last, *seen]) if slot in folded else seen[-1] if seen else last)
        last = seen[-1] if seen else last
    return values


def _slot(seconds: float, end: float, width: int) -> int:
    return min(width - 1, int(seconds / end * width))


def _cell(filled: float) -> str:
    return _EIGHTHS[max(0, min(8, round(filled * 8)))]


def _round_up(tokens: int) -> int:
    step = int("1".ljust(len(str(tokens)), "0"))
    return max(step, -(-tokens // step) * step)


def _marks(commits: Sequence[float], end: float, width: int) -> str:
    marks = [" "] * width
    for at in commits:
        marks[_slot(at, end, width)] = "▲"
    return "".join(marks)


def _axis(end: float, width: int) -> str:
    """Seconds below, and what the marks mean in the middle."""
    left, right = "0 s", f"{end:.0f} s"
    middle = "▲ a compaction is committed"
    room = width - len(left) - len(right)
    return left + middle.center(room) + right
