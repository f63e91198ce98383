"""`onefold sessions`: what is in a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, StoreOption, open_store, policy
from onefold.cli.output import as_json, console, safe, say
from onefold.compaction.limits import Limits
from onefold.describe import turn_words
from onefold.errors import SessionNotFound
from onefold.export import plain
from onefold.humanize import ago, count
from onefold.journal import turns
from onefold.model import Compaction, Holder, OpenTurn, SessionState
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


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session of the list, with what goes on in it."""

    session: SessionState
    doing: Doing
    turn: OpenTurn | None
    fork: str | None
    """Which kind of fork it is, if it is one."""
    keeper: str = "onefold"

    def size(self, usual: Limits | None) -> str:
        """Its context against its window. How large that of an agent is which compacts by itself, only that knows."""
        if self.keeper == "agent":
            return "?"
        window = self.session.window or (usual.window if usual is not None else 0)
        return f"{self.session.tokens:,} / {f'{window:,}' if window else '?'}"

    @property
    def busy(self) -> bool:
        return self.turn is not None or self.doing.state != "idle"

    def words(self, now: float) -> str:
        parts = [turn_words(self.turn, now)] if self.turn is not None else []
        if self.doing.state != "idle":
            parts.append(self.doing.words(now))
        if self.fork is not None:
            parts.append(f"{self.fork} of {self.session.parent} at #{self.session.forked_at}")
        return "; ".join(parts) or self.doing.words(now)


def look(store: Store, session: SessionState) -> ListedSession | None:
    """None for a session that was deleted since it was listed."""
    try:
        turn = turns.current(store.journal, session.id) if session.turn else None
        head = store.journal.backend.read(lambda tx: tx.segment(session.id, session.head))
        keeper = head.keeper if head is not None else "onefold"
        return ListedSession(session, doing(store, session), turn, fork_kind(store, session), keeper)
    except SessionNotFound:
        return None


def _listed(store: Store, limit: int | None) -> Iterable[SessionState]:
    if limit is not None:
        return store.sessions(limit)
    return sorted(store.walk(), key=lambda state: (state.touched_at, state.id), reverse=True)


def fork_kind(store: Store, session: SessionState) -> str | None:
    """What a fork says of itself in its first record."""
    if session.parent is None:
        return None
    said = store.journal.backend.read(lambda tx: tx.record(session.id, session.forked_at + 1))
    return str(said.body.get("kind", "fork")) if said is not None and isinstance(said.body, dict) else "fork"


def command(
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.", show_default=False)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Lists the sessions of a store, the latest activity first.

    Prints a line for each: id, messages, records, the size of its context in tokens and its window (? where nobody
    named one, or only its agent knows), segments, compactions that were committed, what goes on (an open turn and whose
    it is, a compaction and who works on it), of which session it is a fork, and when something happened last.

    Without --limit each session that is there before and after is listed once, whatever is written meanwhile. With
    --limit it is for looking: one that is written to meanwhile moves to the front, and may be left out.

    \b
    Example:
      onefold sessions --limit 20
    """
    with open_store(store) as opened:
        found = [seen for state in _listed(opened, limit) if (seen := look(opened, state)) is not None]
        now = opened.journal.backend.read(lambda tx: tx.now)
        address = opened.address
    if json:
        as_json(
            [
                {
                    **plain(f.session),
                    "doing": plain(f.doing),
                    "open_turn": plain(f.turn),
                    "fork_kind": f.fork,
                    "keeper": f.keeper,
                }
                for f in found
            ]
        )
    elif not found:
        say(f"no sessions in {safe(address)} yet")
    else:
        _table(found, now)


def _table(found: list[ListedSession], now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    wide = console().width >= 100
    usual = policy(None).said
    for name in ("messages", "records", "tokens", *(("segments",) if wide else ()), "folds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    table.add_column("last", no_wrap=True)
    for line in found:
        session = line.session
        segments = (session.segments,) if wide else ()
        numbers = (session.messages, session.last, line.size(usual), *segments, session.committed)
        table.add_row(
            Text(safe(session.id)),
            *(n if isinstance(n, str) else f"{n:,}" for n in numbers),
            Text(safe(line.words(now)), style="yellow" if line.busy else ""),
            ago(session.touched_at, now),
        )
    console().print(table)
    say(count(len(found), "session"), style="dim")
