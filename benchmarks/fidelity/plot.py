"""The plot on the page: an SVG of our own, which follows the reader's light or dark theme."""

from __future__ import annotations

from html import escape

from benchmarks.fidelity.measures import NEWEST, SHARES, Found
from benchmarks.fidelity.report import Row, rows
from benchmarks.fidelity.talks import HELD_BACK, KNOWN

_WIDTH, _HEIGHT = 860, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 46, 44
_BAR, _GAP = 22, 4
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #444 }
  .small { font-size: 11px }
  .grid { stroke: #8884; stroke-width: 1 }
  .s0 { fill: #9ec5e8 } .s1 { fill: #3b82c4 } .s2 { fill: #1f4e79 }
  .without { stroke: #d9480f; stroke-width: 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc }
    .s0 { fill: #2f5d86 } .s1 { fill: #4f9be0 } .s2 { fill: #b5d9fa }
    .without { stroke: #ff922b }
  }
"""


def plot(found: Found) -> str:
    """Bars: what quotes hold of the phrasings held back; a line across each: what newest messages hold of the known."""
    held = [rows(found, HELD_BACK, share) for share in SHARES]
    newest = [rows(found, KNOWN, share, NEWEST) for share in SHARES]
    parts = [*_frame(), *_key()]
    step = (_WIDTH - _LEFT - _RIGHT) / len(held[0])
    wide = len(SHARES) * _BAR + (len(SHARES) - 1) * _GAP
    for n, first in enumerate(held[0]):
        start = _LEFT + n * step + (step - wide) / 2
        for place, share in enumerate(SHARES):
            parts += _bar(start + place * (_BAR + _GAP), place, share, held[place][n], newest[place][n])
        middle = _LEFT + (n + 0.5) * step
        parts.append(_text(middle, _HEIGHT - _BOTTOM + 20, f"{first.kind}s" if first.kind != "all" else "all"))
        parts.append(_text(middle, _HEIGHT - _BOTTOM + 36, f"{first.planted} planted", "small"))
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Share of planted facts that a context still holds, by kind and size">\n'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _bar(left: float, place: int, share: float, row: Row, without: Row) -> list[str]:
    top, line = _height(row.rate), _height(without.rate)
    tip = f"{row.kind}, {100 * share:.0f} %: {row}; the newest messages {without}"
    high = _height(0) - top
    return [
        f'<rect class="s{place}" x="{left:.1f}" y="{top:.1f}" width="{_BAR}" height="{high:.1f}">{_tip(tip)}</rect>',
        f'<line class="without" x1="{left - 1:.1f}" x2="{left + _BAR + 1:.1f}" y1="{line:.1f}" y2="{line:.1f}"/>',
        _text(left + _BAR / 2, top - 4, f"{int(row.rate * 100)}", "small"),
    ]


def _tip(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _frame() -> list[str]:
    made = []
    for percent in (0, 25, 50, 75, 100):
        y = _height(percent / 100)
        made.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        made.append(_text(_LEFT - 8, y + 4, f"{percent} %", "small", "end"))
    return made


def _key() -> list[str]:
    made, x = [], float(_LEFT)
    for place, share in enumerate(SHARES):
        made.append(f'<rect class="s{place}" x="{x}" y="8" width="14" height="14"/>')
        made.append(_text(x + 20, 20, f"context of {100 * share:.0f} %", anchor="start"))
        x += 150
    made.append(f'<line class="without" x1="{x}" x2="{x + 16}" y1="15" y2="15"/>')
    made.append(_text(x + 22, 20, "the newest messages alone", anchor="start"))
    return made


def _height(rate: float) -> float:
    return _HEIGHT - _BOTTOM - rate * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> str:
    look = f' class="{style}"' if style else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
