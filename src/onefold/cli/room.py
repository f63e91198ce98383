"""`onefold room`: restarts and closes the rooms of agents that a server runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onefold.cli.options import JsonOption, SessionArgument, WrongUse
from onefold.cli.output import as_json, refuse, safe, say

if TYPE_CHECKING:
    from onefold.cli.http_client import Remote

UrlOption: TypeAlias = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The server. Without it: ONEFOLD_URL.", show_default=False)
]
TokenOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="For the server. Better: ONEFOLD_TOKEN.", show_default=False),
]
AllowHttpOption: TypeAlias = Annotated[
    bool, typer.Option("--allow-http", help="Connect to another machine without TLS. Only on a network you trust.")
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def program() -> None:
    """Restarts and closes the rooms of agents.

    A server has them: `onefold serve`, or `onefold run`. In both cases a turn that runs is interrupted, as if the agent
    had died, and nothing that was said is lost; prompts that wait are kept. Prints how the agent is then. It takes a
    token with the scope agents.

    \b
    Examples:
      onefold room restart my-session --url http://127.0.0.1:8642
      onefold room close my-session
    """


@app.command("restart")
def restart(
    session: SessionArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    allow_http: AllowHttpOption = False,
    json: JsonOption = False,
) -> None:
    """Ends an agent's process, whatever it does, and starts another that takes its session up.

    For one that hangs, or has lost its way. It is asked to end and killed after five seconds, with all that it started.
    A turn that runs is interrupted; prompts that wait are kept and go on with the next process. One that does not run
    is started.

    \b
    Examples:
      onefold room restart my-session --url http://127.0.0.1:8642
    """
    told = _server(url, token, allow_http=allow_http).post("/api/restart", session=session)
    if json:
        as_json({"session": session, **told})
    else:
        say(f"restarted in {safe(session)}: the agent {safe(told['agent'])} is {safe(told['phase'])}")


@app.command("close")
def close(
    session: SessionArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    allow_http: AllowHttpOption = False,
    json: JsonOption = False,
) -> None:
    """Ends an agent's process and lets its room go; the session stays.

    A turn that runs is interrupted. Prompts that wait are kept, and run when the room is taken up again: the next
    prompt does that, whoever sends it. If no room is open for the session, the exit code is 1.

    \b
    Examples:
      onefold room close my-session --url http://127.0.0.1:8642
    """
    told = _server(url, token, allow_http=allow_http).post("/api/close", session=session)
    if not told["closed"]:
        refuse(f"no agent runs for session {session!r} there; nothing was closed")
    if json:
        as_json({"session": session, **told})
    else:
        say(f"closed the room of {safe(session)}; the next prompt takes it up again")


def _server(url: str | None, token: str | None, *, allow_http: bool) -> Remote:
    from onefold.cli.http_client import Remote

    server = url or os.environ.get("ONEFOLD_URL")
    if not server:
        raise WrongUse("a room needs the server that runs its agent; name it with --url or ONEFOLD_URL")
    return Remote(server, token or os.environ.get("ONEFOLD_TOKEN") or None, allow_http=allow_http)
