"""`onefold say`: one prompt for a session's agent, and what it answers, for scripts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, WrongUse
from onefold.cli.output import as_json, finish, line_on_stderr, on_terminal, raw, refuse, safe_lines
from onefold.cli.room import AllowHttpOption, TokenOption, UrlOption
from onefold.ids import random_id
from onefold.model import Json

if TYPE_CHECKING:
    from onefold.cli.room_client import RoomClient


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.", show_default=False)
    ],
    url: UrlOption = None,
    token: TokenOption = None,
    allow_http: AllowHttpOption = False,
    json: JsonOption = False,
) -> None:
    """Prints what an agent answers to one prompt.

    It waits for its turn, and for the end of it: others may be talking with the same agent. Prints the agent's words as
    they come, without its thoughts and tools. What the agent asks meanwhile is for others to answer, on the page or in
    `onefold attach`; it is told on stderr. `/compact` has the agent compact. The exit code is 0 if the turn ended well,
    1 if it did not: refused, cancelled, or interrupted. Ctrl-C leaves, and the turn goes on.

    \b
    Examples:
      onefold say my-session "run the tests, and say which fail" --url http://127.0.0.1:8642
      git diff | onefold say my-session -
    """
    server = url or os.environ.get("ONEFOLD_URL")
    if server is None:
        raise WrongUse("an agent is talked with where it runs; name that server with --url or ONEFOLD_URL")
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise WrongUse("there is nothing to say; give a text")
    from onefold.cli.room_client import RequestFailed, RoomClient, unique_name

    client = RoomClient(
        server, token or os.environ.get("ONEFOLD_TOKEN") or None, session, unique_name("say"), allow_http=allow_http
    )
    answer = PrintedAnswer(client.name, shown=not json)
    try:
        asyncio.run(_said(client, text, answer))
    except RequestFailed as refused:
        refuse(str(refused))
    answer.end()
    ended = answer.ended
    told = (ended.get("_meta") or {}).get("onefold") or {}
    stop, cause = str(ended.get("stopReason")), told.get("cause")
    if json:
        as_json({"session": client.session, "stop_reason": stop, "text": answer.text, "cause": cause})
        finish()
    if stop != "end_turn" or cause is not None:
        refuse(f"session {client.session!r}: {cause or f'the turn ended with {stop}'}")


class PrintedAnswer:
    """What the agent says in our own turn, and in no other."""

    def __init__(self, name: str, *, shown: bool) -> None:
        self.text = ""
        self.ended: Mapping[str, Json] = {}
        self._name = name
        self._shown = shown
        self._ours = False

    def take(self, frame: Mapping[str, Json]) -> None:
        params = frame.get("params") or {}
        match frame.get("method"):
            case "onefold/turn_started":
                self._ours = str(params.get("owner")).startswith(self._name)
            case "onefold/turn_settled":
                self._ours = False
            case "onefold/question_asked" if self._ours:
                asked = (params.get("params") or {}).get("toolCall") or {}
                title = asked.get("title") or params.get("method")
                line_on_stderr(f"the agent asks, and waits until somebody answers: {title}")
            case "session/update" if self._ours:
                update = params.get("update") or {}
                content = update.get("content")
                if update.get("sessionUpdate") == "agent_message_chunk" and isinstance(content, dict):
                    self._say(str(content.get("text") or ""))

    def _say(self, text: str) -> None:
        self.text += text
        if self._shown:
            raw("\n".join(safe_lines(text)) if on_terminal() else text)
            finish()

    def end(self) -> None:
        """The last line ends, if the agent did not end it."""
        if self._shown and self.text and not self.text.endswith("\n"):
            raw("\n")
            finish()


async def _said(client: RoomClient, text: str, answer: PrintedAnswer) -> None:
    """A line that is cut is taken up again, and the prompt is sent again: by its key it is the same one."""
    key = random_id()
    asking: asyncio.Task[Json] | None = None
    async for frame in client.frames("none", line_on_stderr):
        if "attached" in frame and (asking is None or (asking.done() and _is_cut(asking))):
            asking = asyncio.create_task(client.prompt(text, key))
            asking.add_done_callback(lambda ended: None if _is_cut(ended) else client.leave())
        answer.take(frame)
    if asking is not None:
        answer.ended = await asking or {}


def _is_cut(asking: asyncio.Task[Json]) -> bool:
    from onefold.cli.room_client import LineLost

    return asking.cancelled() or isinstance(asking.exception(), LineLost)
