"""Messages as lines below each other, for the commands that list some."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.cli.output import say, short, text_width
from onefold.describe import words
from onefold.humanize import count
from onefold.model import MESSAGE, Record

_SHOWN = 20
"""How many lines of a long list are printed from each of its ends."""


def print_messages(records: Sequence[Record], indent: str = "  ") -> None:
    """One line each. Of a very long list, both ends."""
    gap = len(records) - 2 * _SHOWN
    for i, record in enumerate(records):
        if gap > 1 and i == _SHOWN:
            say(f"{indent}… {count(gap, 'more message')} …", style="dim")
        if gap <= 1 or not _SHOWN <= i < _SHOWN + gap:
            say(line(record, indent))


def line(record: Record, indent: str = "", note: str = "") -> str:
    """Number, who said it, and the beginning of what was said."""
    what = record.header.role if record.header is not None and record.kind == MESSAGE else record.kind
    head = f"{indent}#{record.number:<5} {short(what, 12):<9}  {note}"
    return head + short(words(record), max(24, text_width() - len(head)))
