"""`onefold serve`: the API, the live events and the page, for one store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import onefold
from onefold.cli.compact import chosen_summarizer, named_summarizers, who_writes
from onefold.cli.options import StoreOption, WindowOption, WrongUse, default_store, locate, open_store, policy, settings
from onefold.cli.output import finish, safe, say
from onefold.cli.sign_in import OpenOption, SignIn
from onefold.cli.token import TokensOption, tokens_path
from onefold.storage.locations import data_folder, frames_path
from onefold.storage.permissions import make_folder
from onefold.store import Store

if TYPE_CHECKING:
    from onefold.acp.host import RoomHost


def command(  # noqa: PLR0917  a parameter here is an option there
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="0 for any free port.")] = 8642,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Accept remote connections without TLS. Only on a network you trust.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate, for https.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.", show_default=False)
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            "--proxy", metavar="URL", help="The public address of a TLS proxy in front of it.", show_default=False
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Another host name to accept; may be repeated.", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="More tokens, one a line, as containers give them.", show_default=False
        ),
    ] = None,
    tokens: TokensOption = None,
    drain: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="How long running requests may take at shutdown.")
    ] = 10.0,
    window: WindowOption = None,
    open_: OpenOption = False,
    store: StoreOption = None,
) -> None:
    """Serves a store: a page, an HTTP API and live events.

    It listens on this machine only, and answers nobody without a token. On a terminal each start prints a link that
    lets a browser in once, within ten minutes; --open opens it. In a pipe no such link is printed: there the first
    start makes a token and prints it once, as a link to the page. `onefold token` makes more. The log goes to stderr,
    one JSON object a line, never with the text of a message; ONEFOLD_LOG sets its level. SIGTERM or Ctrl-C drains it:
    those who follow are told to resume elsewhere, requests under way end, compactions are handed back, and the exit
    code is 0. A second signal ends it at once.

    \b
    Examples:
      onefold serve --store agent.db
      onefold serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    check_server_extra()
    if (tls_cert is None) != (tls_key is None):
        raise WrongUse("--tls-cert and --tls-key go together; give both")

    from onefold.server.app import create_app
    from onefold.server.run import log_to, serve
    from onefold.server.security.host_check import check_listening
    from onefold.server.security.tokens import Tokens
    from onefold.server.settings import Settings
    from onefold.summarizers.estimate import describe

    chosen = Settings(
        host=host, port=port, hosts=tuple(allow_host or ()), proxy=proxy, allow_remote=allow_remote,
        tls_cert=tls_cert, tls_key=tls_key, drain=drain,
        summarizer=chosen_summarizer(), summarizers=named_summarizers(), policy=policy(window),
    )  # fmt: skip
    check_listening(chosen)
    log_to()
    known = Tokens(tokens_path(tokens), token_file=token_file, environ=os.environ)
    known.known()  # what is wrong with them is said before anything listens
    opened = opened_store(store)
    sign_in = SignIn(known, chosen, printed=sys.stdout, opens=open_)

    def ready(url: str) -> None:
        say(f"onefold serves {safe(opened.address)} at {safe(url)}")
        sign_in.tell(url, say)
        usual = describe(chosen.summarizer or onefold.extractive_summary)
        others = "".join(f"; {safe(name)}: {safe(describe(one).by)}" for name, one in chosen.summarizers.items())
        say(f"summaries that are asked for here: {safe(who_writes(usual))}{others}")
        finish()

    rooms = _rooms(opened)
    try:
        serve(opened, chosen, lambda hub: create_app(opened, chosen, known, hub, rooms, links=sign_in.links), ready)
    finally:
        sign_in.close()


def check_server_extra() -> None:
    """What `serve` and `run` need beyond the library has to be installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise WrongUse(
            f"{error.name} is not installed, which the server needs: pip install 'onefold[server]'"
        ) from None


def _rooms(opened: Store) -> RoomHost | None:
    """The agents' host, where the config file names agents or there were rooms before."""
    from onefold.acp.agent_config import agents
    from onefold.acp.host import RoomHost

    known = agents(settings())
    path = frames_file(opened)
    return RoomHost(opened, path, known, resume=True) if known.known or path.exists() else None


def frames_file(store: Store) -> Path:
    """Where the frame log of a store is kept; its folder is created if it belongs to this user."""
    path = frames_path(store.address)
    if data_folder() in path.parents:
        make_folder(path.parent)
    return path


def opened_store(given: str | None) -> Store:
    """The store. If none is named, the default one is created at the first start."""
    address = locate(given)
    if address == str(default_store()) and not default_store().exists():
        make_folder(default_store().parent)
        return onefold.open(address)
    return open_store(given)
