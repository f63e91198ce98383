"""`onefold cancel`: cancels the open compaction or turn of a session, whoever holds it."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store
from onefold.cli.output import as_json, refuse, refusing, safe, say
from onefold.describe import turn_words
from onefold.export import plain
from onefold.humanize import ago


def command(
    session: SessionArgument,
    turn: Annotated[bool, typer.Option("--turn", help="The turn that is open, not the compaction.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Ends the compaction that is open; with --turn, the turn.

    Prints what was cancelled and who held it. The holder's process is not stopped, but its results are not accepted: a
    late summary is rejected, and so is what the turn's writer appends. If nothing is open, nothing is written and the
    exit code is 1.

    \b
    Examples:
      onefold cancel my-session
      onefold cancel my-session --turn
    """
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        now = opened.journal.backend.read(lambda tx: tx.now)
        if turn:
            with refusing():
                stopped = found.stop_turn("it was cancelled by hand")
            if stopped is None:
                refuse(f"session {found.id!r} has no open turn; nothing was written")
            if json:
                as_json({"session": found.id, "turn": plain(stopped)})
            else:
                say(f"cancelled in {safe(found.id)}: {safe(turn_words(stopped, now))}")
            return
        holder = found.compaction_holder()
        with refusing():
            ended = found.cancel()
        if ended is None:
            refuse(f"session {found.id!r} has no open compaction; nothing was written")
    if json:
        as_json({"session": found.id, "compaction": plain(ended), "holder": plain(holder)})
        return
    asked = f"{ended.trigger}, asked for {ago(ended.requested_at, now)}"
    who = f"{holder.host}:{holder.pid} worked on it" if holder else "nobody worked on it"
    say(f"cancelled the compaction of {safe(found.id)}: {safe(asked)}; {safe(who)}")
