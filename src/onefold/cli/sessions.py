"""`onefold sessions`: what is in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, StoreOption, open_store
from onefold.cli.output import ago, as_json, console, count, plain, safe, say
from onefold.model import Compaction, Holder, SessionState
from onefold.store import Store


@dataclass(frozen=True, slots=True)
class Doing:
    """What happens to a session's compaction now."""

    state: str
    holder: Holder | None = None
    compaction: Compaction | None = None

    def words(self, now: float) -> str:
        if self.holder is not None:
            since = ago(self.holder.since, now).removesuffix(" ago")
            return f"compacting for {since} by {self.holder.host}:{self.holder.pid}"
        if self.compaction is not None:
            return f"waiting, {self.compaction.trigger}, asked {ago(self.compaction.requested_at, now)}"
        return self.state


def doing(store: Store, session: SessionState) -> Doing:
    """Asked of the journal at this moment: `compacting` is never a thing that was written down."""
    if session.open is None:
        return Doing("idle")
    holder = store.journal.holder(session.id)
    compaction = store.journal.compaction(session.id, session.open)
    if holder is not None:
        return Doing("compacting", holder, compaction)
    return Doing("waiting", None, compaction) if compaction.open else Doing("idle")


def command(
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.", show_default=False)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Lists the sessions of a store, the latest activity first.

    Prints a line for each: id, messages, records, the size of its context in tokens, segments, compactions that were
    committed, whether one is under way and who works on it, and when something happened last.

    \b
    Example:
      onefold sessions --limit 20
    """
    with open_store(store) as opened:
        found = [(session, doing(opened, session)) for session in opened.sessions(limit)]
        now = opened.journal.backend.read(lambda tx: tx.now)
        address = opened.address
    if json:
        as_json([{**plain(session), "doing": plain(does)} for session, does in found])
    elif not found:
        say(f"no sessions in {safe(address)} yet")
    else:
        _table(found, now)


def _table(found: list[tuple[SessionState, Doing]], now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    for name in ("messages", "records", "tokens", "segments", "folds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    table.add_column("last", no_wrap=True)
    for session, does in found:
        numbers = (session.messages, session.last, session.tokens, session.segments, session.committed)
        table.add_row(
            Text(safe(session.id)),
            *(f"{n:,}" for n in numbers),
            Text(safe(does.words(now)), style="" if does.state == "idle" else "yellow"),
            ago(session.touched_at, now),
        )
    console().print(table)
    say(count(len(found), "session"), style="dim")
