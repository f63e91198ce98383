"""The story in words, as it happens, and its table at the end."""

from __future__ import annotations

import _thread
import time
from collections.abc import Sequence
from typing import Protocol

from onefold.cli.output import console, safe, say
from onefold.humanize import count
from onefold.model import FAILED, JOINED, MESSAGE, REQUESTED, SEGMENT_OPENED, STARTED, Record


class Row(Protocol):
    """One line of the table."""

    @property
    def words(self) -> str: ...
    @property
    def expected(self) -> int: ...
    @property
    def found(self) -> int: ...
    @property
    def ok(self) -> bool: ...


class Narrator:
    """One calm line for each event. Quiet, it says nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.alone = False
        """Nobody reads any more."""
        self._began = time.monotonic()

    def begin(self, store: str, session: str) -> None:
        self._began = time.monotonic()
        self._line(f"onefold demo: session {session} in {safe(store)}", "bold")

    def act(self, text: str) -> None:
        self._line("")
        self._line(f"{time.monotonic() - self._began:5.1f} s  {text}", "bold")

    def note(self, text: str) -> None:
        """What the parent does, among what it sees."""
        self._line(f"{time.monotonic() - self._began:5.1f} s    !     {text}", "yellow")

    def record(self, record: Record, seconds: float, before: Sequence[Record], tokens: int) -> None:
        told = event(record, before, tokens)
        if told is not None:
            text, style = told
            self._line(f"{seconds:5.1f} s    #{record.number:<4} {safe(text)}", style)

    def _line(self, text: str, style: str | None = None) -> None:
        if self._quiet:
            return
        try:
            say(text, style=style)
        except SystemExit:
            # The reader left, perhaps while another thread than the main one was speaking: the story ends there.
            self._quiet = self.alone = True
            _thread.interrupt_main()


def event(record: Record, before: Sequence[Record], tokens: int) -> tuple[str, str | None] | None:
    """What a record means in the story; None if it is told by others."""
    body = record.body
    if record.kind == REQUESTED:
        return f"{record.actor} asks: {body['trigger']}, {tokens:,} tokens", None
    if record.kind == JOINED:
        return f"{record.actor} asks too: {body['trigger']}; joins it", None
    if record.kind == STARTED:
        who = f"{body['holder']['agent']} (pid {body['holder']['pid']})"
        attempt = sum(1 for r in before if r.kind == STARTED and r.body["compaction"] == body["compaction"])
        if attempt > 1:
            return f"{who} takes over, attempt {attempt}", "yellow"
        return f"{who} works on it, from what stands up to #{record.number - 1}", None
    if record.kind == FAILED:
        return f"an attempt failed: {body['cause']}", "red"
    if record.kind == SEGMENT_OPENED and body["source"] == "compaction":
        return _folded(record, before), "green"
    return None


def _folded(record: Record, before: Sequence[Record]) -> str:
    body = record.body
    committed = before[record.number - 2].body
    began = before[committed["fence"] - 1]
    meanwhile = sum(1 for r in before[committed["fence"] :] if r.kind == MESSAGE)
    sizes = f"{body['tokens_before']:,} → {body['tokens_after']:,} tokens"
    return f"{began.body['holder']['agent']} commits: {sizes}; {count(meanwhile, 'message')} came meanwhile"


def as_table(checks: Sequence[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("checked by the journal, and by what the processes say", no_wrap=True)
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for row in checks:
        verdict = Text("ok", style="green") if row.ok else Text("WRONG", style="bold red")
        table.add_row(row.words, f"{row.expected:,}", f"{row.found:,}", verdict)
    console().print(table)
