"""What a client's connection needs for single requests: how one is taken back, and how its answer is made."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from onefold.acp.members import Member
from onefold.acp.prompt_queue import SubmittedPrompt
from onefold.acp.room_errors import RequestRejected
from onefold.jsonrpc import INVALID_PARAMS, Frame
from onefold.model import Json

CANCELLED = -32800
"""The code of an error that says: the client did not want an answer any more."""


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One of the client's that is not answered yet."""

    task: asyncio.Task[Any] | None
    prompting: bool = False
    """It is a prompt, or will be one."""
    prompt: tuple[str, Member, SubmittedPrompt] | None = None
    taken_back: bool = False


def release(refused: BaseException | None) -> None:
    """A rejection refers to the calls that it came through, and they to it and to what the client sent: megabytes that
    would stay until Python looks for such rings, which it does by their number and not by their size."""
    while refused is not None:
        traceback.clear_frames(refused.__traceback__)
        refused.__traceback__ = None
        refused = refused.__context__


def passed_on(answer: Frame, id: str | int) -> Frame:
    """The agent's answer, as the answer to a client's own request."""
    said = {k: v for k, v in answer.body.items() if k in ("result", "error")}
    return Frame({"jsonrpc": "2.0", "id": id, **said})


def opened_for(opened: dict[str, Json], cwd: str | None, asked: dict[str, Json]) -> dict[str, Json]:
    """What an agent said to its session's beginning, for one who joins it: with what was asked for in vain, since the
    session has its folder and its MCP servers already."""
    said = {k: v for k, v in opened.items() if k != "sessionId"}
    ignored = [k for k, v in (("cwd", cwd), ("mcpServers", None)) if asked.get(k) and asked[k] != v]
    if ignored:
        meta = said.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        own = meta.get("onefold")
        said["_meta"] = {**meta, "onefold": {**(own if isinstance(own, dict) else {}), "ignored": ignored}}
    return said


def ignore_error(accepted: asyncio.Future[int | None]) -> None:
    """A prompt that is rejected is rejected at its end, too."""
    if not accepted.cancelled():
        accepted.exception()


def session_of(params: dict[str, Json]) -> str:
    named = params.get("sessionId")
    if not isinstance(named, str) or not named:
        raise RequestRejected("which session? give its sessionId", INVALID_PARAMS)
    return named
