"""`onefold run`: an agent behind onefold, with its room, the API and the page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from onefold.cli.options import StoreOption, WrongUse, settings
from onefold.cli.output import finish, line_on_stderr, safe, say
from onefold.cli.serve import check_server_extra, frames_file, opened_store
from onefold.cli.sign_in import OpenOption, SignIn
from onefold.cli.token import TokensOption, tokens_path
from onefold.errors import OnefoldError
from onefold.ids import random_id

if TYPE_CHECKING:
    from onefold.acp.agent_config import Agent
    from onefold.acp.host import RoomHost


def command(  # noqa: PLR0917  a parameter here is an option there
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME | -- COMMAND…]",
            help="The agent: opencode, claude, codex or hermes; or a command that speaks ACP.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="One of the config file's.", show_default=False)
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Go on with this session; else a new one.", show_default=False),
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option("--cwd", metavar="DIR", help="Where the agent works; else here.", show_default=False),
    ] = None,
    compact_at: Annotated[
        float | None,
        typer.Option(
            "--compact-at",
            min=0.05,
            max=1.0,
            metavar="SHARE",
            help="Ask the agent to compact when its context is so full.",
            show_default=False,
        ),
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Also speak ACP here, for an editor that starts this command.")
    ] = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="0 for any free port.")] = 8642,
    tokens: TokensOption = None,
    open_: OpenOption = False,
    store: StoreOption = None,
) -> None:
    """Runs an agent that many clients share, and outlives it.

    The agent speaks the Agent Client Protocol on its standard input and output. Every frame is kept, what was said goes
    into the session's journal, and the agent's own compactions are noticed once. Clients join over a WebSocket at /acp,
    with `onefold attach --stdio`, or on the page. If the agent dies it is started again and takes its session up; if
    this command dies, start it again with --session and the command, or without one where the config file names the
    agent: no command is ever taken from a store. It prints the address of the page, with a link that lets a browser in
    once if this is a terminal, and how to join; the log goes to stderr. Where opencode, claude, codex or hermes is
    installed, its name is enough.

    \b
    Examples:
      onefold run opencode
      onefold run -- opencode acp
      onefold run --session refactoring --cwd ~/project -- hermes-acp
      onefold run --agent opencode --stdio      an editor's agent, shared
    """
    check_server_extra()

    from onefold.acp.agent_config import agents
    from onefold.acp.host import RoomHost
    from onefold.server.app import create_app
    from onefold.server.run import log_to, serve
    from onefold.server.security.host_check import check_listening
    from onefold.server.security.tokens import Tokens
    from onefold.server.settings import Settings

    known_agents = agents(settings())
    opened = opened_store(store)
    rooms = RoomHost(opened, frames_file(opened), known_agents, compact_at=compact_at)
    chosen = _chosen(rooms, words or [], agent, session)
    where = str((cwd or Path.cwd()).absolute())
    id = session or random_id()
    listening = Settings(host=host, port=port)
    check_listening(listening)
    log_to()
    known = Tokens(tokens_path(tokens), environ=os.environ)
    known.known()
    tell = line_on_stderr if stdio else say
    sign_in = SignIn(known, listening, printed=sys.stderr if stdio else sys.stdout, opens=open_)

    def ready(url: str) -> None:
        tell(f"session {safe(id)}: the agent {safe(chosen.name)} runs at {safe(url)}")
        sign_in.tell(url, tell)
        tell(f"talk to it: ONEFOLD_URL={safe(url)} onefold attach {safe(quote(id))}")
        tell(f"join it: ONEFOLD_URL={safe(url)} onefold attach --stdio {safe(quote(id))}")
        finish()

    async def begin(end: Callable[[], None]) -> None:
        rooms.default = id
        await _begun(rooms, id, chosen, where, new=session is None)
        if stdio:
            from onefold.cli.acp_stdio import speak

            speak(rooms, id, end)

    try:
        app = partial(create_app, opened, listening, known, host=rooms, links=sign_in.links)
        serve(opened, listening, app, ready, begin)
    finally:
        sign_in.close()


async def _begun(rooms: RoomHost, id: str, agent: Agent, cwd: str, *, new: bool) -> None:
    """Starts the agent. One that ends without a word leaves no session that was made for it."""
    await rooms.in_thread(lambda: rooms.check_new(id, agent, cwd))
    room = await rooms.open(id, agent, cwd=cwd)
    try:
        await room.begun()
    except OnefoldError:
        if new:
            await rooms.shut(id, "its agent could not be started")
            await rooms.in_thread(lambda: rooms.store.delete(id))
        raise


def _chosen(rooms: RoomHost, words: list[str], agent: str | None, session: str | None) -> Agent:
    """The agent: the command that is given, the one that is named, or the one of that name that the session had. A name
    alone is that of the config file's agent, or of one that needs no config."""
    from onefold.acp.agent_config import KNOWN, adhoc, well_known

    if words and agent is not None:
        raise WrongUse("--agent and a command both name the agent; give one of them")
    if len(words) == 1 and words[0] in KNOWN:
        return rooms.agents.known.get(words[0]) or well_known(words[0])
    if words:
        return adhoc(words)
    row = rooms.frames.room(session) if session is not None and agent is None else None
    if row is not None and session is not None:
        return rooms.agents.again(row.agent, session)
    return rooms.agents.named(agent)
