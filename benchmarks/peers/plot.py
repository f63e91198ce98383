"""The plot on the page: how each store's appends, loads and files grow, as an SVG that follows the reader's theme."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from typing import Any

from benchmarks.peers.table import PEERS

_WIDTH, _HEIGHT = 900, 400
_TOP, _BOTTOM, _LEFT, _GAP, _KEY = 40, 40, 52, 62, 86
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #444 }
  .title { font-size: 14px }
  .small { font-size: 11px }
  .grid { stroke: #8884; stroke-width: 1 }
  path { fill: none; stroke-width: 2 } .ours { stroke-width: 3.5 }
  .c0 { stroke: #1f4e79 } .c1 { stroke: #d9480f } .c2 { stroke: #2b8a3e } .c3 { stroke: #9c36b5 }
  .c4 { stroke: #e67700 } .c5 { stroke: #868e96 } .c6 { stroke: #0c8599 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc }
    .c0 { stroke: #8ec5fc } .c1 { stroke: #ff922b } .c2 { stroke: #69db7c } .c3 { stroke: #e599f7 }
    .c4 { stroke: #ffd43b } .c5 { stroke: #ced4da } .c6 { stroke: #66d9e8 }
  }
"""
_SHOWN = ("onefold", "hermes", "openai-sqlite", "adk-sqlite", "adk-database", "langgraph", "pydantic-file")
_PANELS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("appends a second", "rate", lambda value: f"{value:,.0f}"),
    ("milliseconds to load all", "load", lambda value: f"{value * 1000:,.0f}"),
    ("megabytes on disk", "size", lambda value: f"{value / 1e6:,.0f}" if value >= 1e6 else f"{value / 1e6:.1f}"),
)


def plot(found: dict[str, Any]) -> str:
    """Three panels side by side, each with logarithmic axes: twice as long is one step to the right."""
    shown = [name for name in _SHOWN if found["speed"].get(name, {}).get("at")]
    wide = (_WIDTH - _LEFT - 2 * _GAP - 24) / 3
    parts = _key(shown)
    for n, (title, field, say) in enumerate(_PANELS):
        lines = {name: [(at["messages"], at[field]) for at in found["speed"][name]["at"]] for name in shown}
        parts += _panel(_LEFT + n * (wide + _GAP), wide, title, lines, say)
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Appends a second, time to load and size on disk, by the length of the conversation">\n'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _panel(
    left: float, wide: float, title: str, lines: dict[str, list[tuple[float, float]]], say: Callable[[float], str]
) -> list[str]:
    points = [point for line in lines.values() for point in line]
    across = sorted({x for x, _ in points})
    low = 10 ** math.floor(math.log10(min(y for _, y in points)))
    high = 10 ** math.ceil(math.log10(max(y for _, y in points)))

    def x_of(x: float) -> float:
        whole = math.log2(max(across) / min(across)) or 1.0
        return left + wide * math.log2(x / min(across)) / whole

    def y_of(y: float) -> float:
        share = math.log10(y / low) / (math.log10(high / low) or 1.0)
        return _HEIGHT - _KEY - _BOTTOM - share * (_HEIGHT - _KEY - _TOP - _BOTTOM)

    made = [_text(left, 22, title, "title", "start")]
    for power in range(round(math.log10(high / low)) + 1):
        y = y_of(low * 10**power)
        made.append(f'<line class="grid" x1="{left:.1f}" x2="{left + wide:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        made.append(_text(left - 6, y + 4, say(low * 10**power), "small", "end"))
    made += [_text(x_of(x), _HEIGHT - _KEY - _BOTTOM + 18, f"{x:,.0f}", "small") for x in across]
    for n, (name, line) in enumerate(lines.items()):
        way = " L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in line)
        ours = " ours" if PEERS[name].ours else ""
        tip = escape(f"{_plain(name)}: " + ", ".join(f"{x:,.0f}: {say(y)}" for x, y in line))
        made.append(f'<path class="c{n}{ours}" d="M{way}"><title>{tip}</title></path>')
    return made


def _key(shown: list[str]) -> list[str]:
    made = []
    for n, name in enumerate(shown):
        x, y = 20 + (n % 3) * 295, _HEIGHT - _KEY + 24 + (n // 3) * 22
        ours = " ours" if PEERS[name].ours else ""
        made.append(f'<path class="c{n}{ours}" d="M{x} {y - 4} L{x + 22} {y - 4}"/>')
        made.append(_text(x + 30, y, _plain(name), "", "start"))
    return made


def _plain(name: str) -> str:
    return PEERS[name].says.replace("`", "").replace("*", "")


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> str:
    look = f' class="{style}"' if style else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
