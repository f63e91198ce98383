"""`onefold show`: a journal from top to bottom, in words."""

from __future__ import annotations

import textwrap
from functools import cached_property, partial
from typing import Annotated

import typer

from onefold.cli.note import print_facts
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import as_json_array, on_terminal, safe, safe_lines, say, short, text_width
from onefold.describe import summary_of, turn_words, words
from onefold.export import plain
from onefold.humanize import clock_time
from onefold.journal import adoption, lineage
from onefold.messages.tool_groups import group
from onefold.model import MESSAGE, NOTE, SEGMENT_OPENED, Fact, Record
from onefold.session import Session
from onefold.storage.base import Transaction

UNDONE, PROVIDED = "(undone) ", "(for its provider) "
ORPHAN = "a tool result without its call: kept here, left out of every context"


class Orphans:
    """Tool results whose call is not in the journal. Looked for only once a result is shown."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return group((r.number, r.header) for r in self._session.read() if r.header is not None).orphans

    def __contains__(self, record: Record) -> bool:
        return bool(record.header and record.header.result_ids) and record.number in self._numbers


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="Begin at this record.")] = 1,
    last: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="End with this record.", show_default=False)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole texts, not only their beginnings.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Shows everything that ever happened in a session.

    Prints a line for each record: number, time, kind, role and the beginning of its text; compactions in words: who
    asked, who works on it, what was cut, and the context's size before and after. What was undone, and tool results
    without their call, are flagged. A fork begins with the records of its parent. With --json, one object a record, in
    one array.

    \b
    Examples:
      onefold show my-session
      onefold show my-session --from 120 --to 140 --full
    """
    if last is not None and last < first:
        raise WrongUse(f"--to {last} comes before --from {first}")
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        orphans = Orphans(found)
        state = found.state
        head = opened.journal.backend.read(lambda tx: tx.segment(found.id, state.head))
        hidden = head.hidden if head is not None else ()
        provided = (
            opened.journal.backend.read(lambda tx: adoption.apart(tx, found.id, head))
            if head is not None
            else frozenset()
        )
        stop = min(state.last, last or state.last) + 1
        records = found.read(first, stop)
        if json:
            as_json_array(
                {**plain(r), "orphan": r in orphans, "hidden": lineage.is_hidden(hidden, r.number)} for r in records
            )
            return
        page = RecordPage(full=full)
        for record in records:
            out = record.kind in (MESSAGE, NOTE) and lineage.is_hidden(hidden, record.number)
            mark = PROVIDED if record.number in provided else UNDONE if out else ""
            page.show(record, orphan=record in orphans, mark=mark)
            if record.kind == SEGMENT_OPENED and record.body.get("labels"):
                print_facts(opened.journal.backend.read(partial(_called, found.id, record)))
        if page.day is None:
            say(f"no records from #{first} on; the session ends at #{state.last}", style="dim")
        if stop > state.last and (turn := found.open_turn()) is not None:
            now = opened.journal.backend.read(lambda tx: tx.now)
            say(f"{'':18}still open: {safe(turn_words(turn, now))}", style="yellow")


def _called(session: str, segment: Record, tx: Transaction) -> tuple[Fact, ...]:
    """What the model that wrote a segment's summary called some of the words that it quotes."""
    return lineage.quoting(tx, session, segment.body, ()).facts


class RecordPage:
    """Records one below the other, with the date where a new day begins."""

    def __init__(self, *, full: bool) -> None:
        self.day: str | None = None
        self._full = full

    def show(self, record: Record, *, orphan: bool, mark: str = "") -> None:
        day, moment = clock_time(record.at).split()
        if day != self.day:
            self.day = day
            say(day, style="dim")
        head = f"#{record.number:<6} {moment}  "
        if record.header is not None:
            self._message(record, head, mark)
        else:
            self._event(record, head, mark)
        if orphan:
            say(f"{'':18}! {ORPHAN}", style="yellow")

    def _message(self, record: Record, head: str, mark: str) -> None:
        what = record.header.role if record.header and record.kind == MESSAGE else record.kind
        head = f"{head}{short(what, 12):<9} " + (f"[{short(record.actor, 20)}] " if record.actor else "")
        head += mark
        if self._full:
            say(head.rstrip(), style="bold")
            _indented(safe_lines(words(record)))
        else:
            say(head + short(words(record), max(24, text_width() - len(head))), style="dim" if mark else None)

    def _event(self, record: Record, head: str, mark: str) -> None:
        """Whole, however many lines it takes on a terminal: this is what people look for."""
        text = f"{safe(record.kind)}: {mark}{safe(words(record))}"
        room = max(40, text_width() - len(head))
        lines = textwrap.wrap(text, room) if on_terminal() else [text]
        for i, line in enumerate(lines):
            say(f"{head if i == 0 else ' ' * len(head)}{line}", style="dim" if mark else "cyan")
        if (summary := summary_of(record)) is not None:
            if self._full:
                _indented(safe_lines(summary))
            else:
                say(f"{'':18}{short(f'summary: {summary}', room)}", style="dim")


def _indented(lines: list[str]) -> None:
    for line in lines:
        say(f"    {line}")
