"""`onefold mcp`: recall as tools for any agent that speaks the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onefold.cli.options import StoreOption, WrongUse, open_store
from onefold.recall import BackgroundIndexer, Recall, RecallTools
from onefold.version import __version__


def command(
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="SESSION", help="The session it may look into.", show_default=False),
    ] = None,
    all_sessions: Annotated[bool, typer.Option("--all-sessions", help="It may look into every session.")] = False,
    index: Annotated[
        bool,
        typer.Option("--index/--no-index", help="Keep an index file next to the store, or read the journal each time."),
    ] = True,
    store: StoreOption = None,
) -> None:
    """Serves search to an agent by the Model Context Protocol.

    Prints nothing for people: it speaks the protocol on stdin and stdout. It offers three tools that only read:
    recall_search, recall_read and recall_expand. No record is ever written; the one file that it writes is the index
    STORE.search, and with --no-index not even that. It ends when its client does.

    An agent sees the session that --session names, and no argument of a tool leads out of it. It sees what was said in
    others only if you say so, with --all-sessions.

    \b
    Example, as the command of a server in a client's settings:
      onefold mcp --session my-session --store /path/to/agent.db
    """
    if (session is None) != all_sessions:
        raise WrongUse("name the session that may be looked into with --session, or all of them with --all-sessions")
    from onefold.recall.mcp_server import McpServer

    with open_store(store) as opened:
        if session is not None:
            opened.resolve(session)
        recall = Recall(opened, index=index)
        with BackgroundIndexer(recall):
            McpServer(RecallTools(recall, session), __version__).serve(sys.stdin.buffer, sys.stdout.buffer)
