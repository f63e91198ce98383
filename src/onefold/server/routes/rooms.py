"""Agents' rooms over the network: ACP on a WebSocket, and the routes of the page."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, TypeAlias, get_args
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request, Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from onefold.acp.client_connection import ClientConnection
from onefold.acp.host import RoomHost
from onefold.acp.members import Member
from onefold.acp.prompt_queue import why_not
from onefold.acp.room import Room
from onefold.acp.send_queue import SendQueue
from onefold.errors import OnefoldError
from onefold.jsonrpc import Frame
from onefold.server.error_responses import DECLARED
from onefold.server.error_responses import answer as refused
from onefold.server.request_models import AnswerBody, PromptBody, SessionParam, UnqueueBody
from onefold.server.response_models import (
    AnsweredJson,
    ClosedJson,
    PromptedJson,
    RestartedJson,
    RoomJson,
    RoomsJson,
    StoppedJson,
    UnqueuedJson,
)
from onefold.server.routes.read import json
from onefold.server.routes.write import Caller
from onefold.server.security.tokens import Principal
from onefold.server.security.tokens import Scope as TokenScope

RESUME = 1012
"""The code of a WebSocket that ends because its client is to come again."""
SOON = 1.0
"""Seconds that an answer waits for what may be known by then."""

router = APIRouter(responses=DECLARED)


class NoRoom(OnefoldError):
    """No agent runs for a session here."""


_NO_AGENTS = "this server runs no agents; name some in its config file, or start one with `onefold run`"


async def _host(request: Request) -> RoomHost:
    host: RoomHost | None = request.app.state.app_state.host
    if host is None:
        raise NoRoom(_NO_AGENTS)
    return host


TheHost: TypeAlias = Annotated[RoomHost, Depends(_host)]


def _guest(host: RoomHost, who: Principal) -> Member:
    """Somebody who asks over HTTP: nothing is sent to them."""
    return Member(
        name=who.name, send_queue=SendQueue(), since=host.clock(), kind="http", may_act=who.may("agents"),
        may_compact=who.may("compact"),
    )  # fmt: skip


@router.get("/api/rooms", response_model=RoomsJson, operation_id="rooms")
async def rooms(request: Request) -> Response:
    """The agents that run here, the ones that can be started, and what the token that asks may do."""
    host: RoomHost | None = request.app.state.app_state.host
    who = getattr(request.state, "who", None)
    may = [scope for scope in get_args(TokenScope) if who is not None and who.may(scope)]
    if host is None:
        return json({"rooms": [], "agents": [], "may": may})
    there = [_shown(room) for room in host.rooms.values()]
    return json({"rooms": there, "agents": sorted(host.agents.known), "may": may})


def _shown(room: Room) -> RoomJson:
    return {
        "session": room.session,
        "agent": room.process.agent.name,
        "phase": room.phase,
        "trouble": room.why_not,
        "clients": len(room.members),
        "questions": len(room.questions),
    }


@router.post("/api/prompt", response_model=PromptedJson, operation_id="prompt")
async def prompt(host: TheHost, who: Caller, session: SessionParam, body: PromptBody) -> Response:
    """Gives an agent something to do. It is on disk when this answers; the agent takes one prompt after another.
    `/compact` is not a prompt: `cause` says why nothing comes of it, if that is known within a second."""
    params: dict[str, Any] = {"prompt": [{"type": "text", "text": body.text}]}
    if body.key is not None:
        params["_meta"] = {"onefold": {"key": body.key}}
    asked = await host.prompt(session, _guest(host, who), params, first=body.steer)
    asked.ended.add_done_callback(_heard)
    number = await asked.accepted
    return json({"input": number, "cause": await _why_not(asked.ended) if number is None else None})


async def _why_not(ended: asyncio.Future[Any]) -> str | None:
    """For requests that are not queued prompts, such as `/compact`: why nothing comes of it, if that is known soon."""
    await asyncio.wait({ended}, timeout=SOON)
    return why_not(ended.result()) if ended.done() else None


def _heard(ended: asyncio.Future[Any]) -> None:
    """Its end is in the journal, for all to see; nobody waits for it here."""
    if not ended.cancelled():
        ended.exception()


@router.post("/api/unqueue", response_model=UnqueuedJson, operation_id="unqueue")
async def unqueue(host: TheHost, who: Caller, session: SessionParam, body: UnqueueBody) -> Response:
    """Takes a prompt back that waits."""
    return json(await host.unqueue(session, _guest(host, who), body.input))


@router.post("/api/stop", response_model=StoppedJson, operation_id="stop")
async def stop(host: TheHost, who: Caller, session: SessionParam) -> Response:
    """Asks the agent to stop what it is at. One that does not run is not asked."""
    room = await host.found_for(session)
    if room is not None:
        await room.cancel(_guest(host, who))
    return json({"asked": room is not None})


@router.post("/api/restart", response_model=RestartedJson, operation_id="restart")
async def restart(host: TheHost, who: Caller, session: SessionParam) -> Response:
    """Ends the agent's process, whatever it does, and starts another one that takes the session up. A turn that runs is
    interrupted; what waits is kept. One that does not run is started."""
    room = await host.restart(session, who.name)
    return json({"agent": room.process.agent.name, "phase": room.phase})


@router.post("/api/close", response_model=ClosedJson, operation_id="close")
async def close(host: TheHost, who: Caller, session: SessionParam) -> Response:
    """Ends the agent's process and its room. A turn that runs is interrupted; the session and what waits in it are
    kept, and the next prompt takes it up again."""
    return json({"closed": await host.shut(session, f"{who.name} closed it")})


@router.post("/api/answer", response_model=AnsweredJson, operation_id="answer")
async def answer(host: TheHost, who: Caller, session: SessionParam, body: AnswerBody) -> Response:
    """Answers a question of the agent. The first answer counts."""
    room = await host.found_for(session)
    if room is None:  # its questions were withdrawn
        return json({"answered": False})
    waits = body.question in room.questions
    await room.answer(_guest(host, who), Frame({"jsonrpc": "2.0", "id": body.question, "result": body.answer}))
    return json({"answered": waits})


# ---------------------------------------------------------------------- ACP on a WebSocket


def routes(host: RoomHost | None) -> list[BaseRoute]:
    return [WebSocketRoute("/acp", Acp(host) if host is not None else _no_agents, name="acp")]


async def _no_agents(socket: WebSocket) -> None:
    await socket.send_denial_response(refused(409, NoRoom.__name__, _NO_AGENTS))


class Acp:
    """ACP's remote transport: one JSON-RPC frame a text message, both ways. `?session=` or `?agent=` says what for."""

    def __init__(self, host: RoomHost) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        given = {k: v[-1] for k, v in parse_qs(scope["query_string"].decode("latin-1")).items()}
        connection = ClientConnection(
            self._host, scope["state"]["who"], session=given.get("session"), agent=given.get("agent")
        )
        await send({"type": "websocket.accept"})
        writing = asyncio.create_task(_write(connection.send_queue, send))
        reading = asyncio.create_task(_read(connection, receive))
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await connection.close()
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            with contextlib.suppress(RuntimeError, OSError):  # it may be gone already
                await send(
                    {"type": "websocket.close", "code": RESUME, "reason": (connection.send_queue.closed or "")[:120]}
                )


async def _write(send_queue: SendQueue, send: Send) -> None:
    while (text := await send_queue.next()) is not None:
        await send({"type": "websocket.send", "text": text})


async def _read(connection: ClientConnection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if (text := message.get("text")) is not None:
            await connection.take(text)
