"""`onefold token`: who may use a server, and for what."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from onefold.cli.options import JsonOption, WrongUse, config_path
from onefold.cli.output import as_json, refuse, safe, say
from onefold.humanize import ago, clock_time
from onefold.server.security.tokens import SCOPES, Token, Tokens, TokensError, link
from onefold.server.settings import PORT

TokensOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="The file of tokens, if not the one next to the config file."),
]
NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)]

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def program() -> None:
    """Makes, lists and revokes the tokens of `onefold serve`.

    They are kept, hashed, in tokens.json next to the config file ($XDG_CONFIG_HOME/onefold). A server that runs notices
    a change within a second.

    \b
    What each scope can do:
      read     see everything, and start nothing
      write    append, note, pin, undo, redo, unfold, fork, and see nothing
      agents   run agents: begin sessions, prompt, stop, restart, and answer what they ask;
               an agent runs commands on the server's machine
      compact  compact, and cancel a compaction
      admin    all of it, and repair the store

    \b
    Examples:
      onefold token new ci --scope read --scope compact --expires 30d
      onefold token list
      onefold token revoke ci
    """


@app.command("new")
def new(
    name: NameArgument,
    scope: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help=f"One of {', '.join(SCOPES)}; may be repeated.")
    ] = ["read"],  # noqa: B006  typer takes a copy
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Valid for: 12h, 30d, 1y.", show_default=False)
    ] = None,
    tokens: TokensOption = None,
    json: JsonOption = False,
) -> None:
    """Makes a token and prints it, once.

    Only a hash is kept, so what is printed now cannot be printed again. `onefold token --help` says what each
    scope can do.

    \b
    Examples:
      onefold token new phone
      onefold token new editor --scope read --scope agents
      onefold token new ci --scope read --scope compact --expires 30d
    """
    kept = Tokens(tokens_path(tokens))
    try:
        secret, token = kept.new(name, scope, expires=None if expires is None else seconds(expires))
    except TokensError as error:
        refuse(str(error))
    opens = link(os.environ.get("ONEFOLD_URL") or f"http://127.0.0.1:{PORT}", secret)
    if json:
        as_json({**_shown(token), "token": secret, "link": opens})
        return
    until = "" if token.expires_at is None else f", until {clock_time(token.expires_at)}"
    say(f"token {token.name}, for {', '.join(token.scopes)}{until}; it is shown this once:")
    say(secret)
    say(f"in a browser: {opens}")


@app.command("list")
def list_(tokens: TokensOption = None, json: JsonOption = False) -> None:
    """Lists the tokens, without themselves.

    \b
    Examples:
      onefold token list
      onefold token list --json
    """
    path = tokens_path(tokens)
    known = Tokens(path).known()
    if json:
        as_json([_shown(token) for token in known])
        return
    if not known:
        say(f"there are no tokens in {safe(str(path))}; `onefold token new NAME` makes one")
        return
    from rich.table import Table

    from onefold.cli.output import console

    table = Table("name", "scopes", "made", "last used", "counts until", box=None, pad_edge=False, header_style="bold")
    now = time.time()
    for token in known:
        used = "never" if token.last_used is None else ago(token.last_used, now)
        scopes = ", ".join(token.scopes) + (" (by login links)" if token.login else "")
        table.add_row(safe(token.name), scopes, _day(token.created_at), used, _until(token, now))
    console().print(table)


@app.command("revoke")
def revoke(name: NameArgument, tokens: TokensOption = None, json: JsonOption = False) -> None:
    """Ends a token: from now on it opens nothing, and what it has open is ended.

    \b
    Example:
      onefold token revoke ci
    """
    kept = Tokens(tokens_path(tokens))
    try:
        gone = kept.revoke(name)
    except TokensError as error:
        refuse(str(error))
    if json:
        as_json(_shown(gone))
    else:
        say(f"token {safe(gone.name)} is revoked")


def tokens_path(given: Path | None) -> Path:
    """The file of tokens: the one given, else the one next to the config file."""
    return given or config_path().parent / "tokens.json"


def seconds(text: str) -> float:
    """How long 30d is. Raises `WrongUse` if it is invalid."""
    found = re.fullmatch(r"(\d{1,6})\s*(s|min|h|d|w|y)", text.strip())
    if found is None or not int(found[1]):
        raise WrongUse(f"{text!r} is not a duration; write a number and one of {', '.join(_UNITS)}: 30d")
    return float(int(found[1]) * _UNITS[found[2]])


def _shown(token: Token) -> dict[str, object]:
    return {
        "name": token.name,
        "scopes": list(token.scopes),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used": token.last_used,
        "login": token.login,
    }


def _day(at: float | None) -> str:
    return "" if at is None else clock_time(at)[:10]


def _until(token: Token, now: float) -> str:
    if token.expires_at is None:
        return "no end"
    return f"{clock_time(token.expires_at)[:16]}{' (over)' if token.expired(now) else ''}"
