"""`onefold fork`: a new session that begins with another one's past."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import as_json, line_on_stderr, raw, refusing
from onefold.export import plain
from onefold.model import ForkKind


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    kind: Annotated[
        ForkKind, typer.Option("--kind", help="A branch and a subagent live on their own; a review never compacts.")
    ] = "branch",
    at: Annotated[
        int | None, typer.Option("--at", min=1, metavar="N", help="As it was at this record.", show_default=False)
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="NEW", help="The new session's id.", show_default=False)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Makes a new session whose past is this one's.

    Prints the new session's id alone, for scripts; what was done goes to stderr. Nothing is copied, and nothing is
    written to the session itself. If a call at that record has its results later, the fork begins before the call.
    With --id, the same command again gives the same fork; an id that is in use otherwise is rejected with exit code 1.

    \b
    Examples:
      onefold fork my-session
      onefold fork my-session --kind review --at 120 --id my-review
    """
    if id is not None and (not 0 < len(id) <= 512 or not id.isprintable()):
        raise WrongUse(f"--id {id!r:.80} is invalid: use 1 to 512 printable characters")
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        with refusing():
            made = found.fork(kind, at, id=id)
        state = made.state
    if json:
        as_json({"session": made.id, "parent": found.id, "kind": kind, "at": state.forked_at, "state": plain(state)})
        return
    raw(made.id + "\n")
    elsewhere = f", not #{at}: a call there has its results later" if at not in (None, state.forked_at) else ""
    line_on_stderr(f"a {kind} of {found.id} at #{state.forked_at}{elsewhere}; its context has {state.tokens:,} tokens")
