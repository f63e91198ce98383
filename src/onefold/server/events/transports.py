"""The two transports of live events, server-sent events and WebSocket, as plain ASGI with the same content."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from onefold.acp.members import known_as
from onefold.errors import OnefoldError, SessionNotFound, StoreError, kind_of
from onefold.messages import encode
from onefold.server.events.encoding import HEARTBEAT, RETRY, Event, EventBatch
from onefold.server.events.hub import Draining, Hub, InvalidCursor, Kind, Subscription

PIECE = 64 << 10
"""Bytes handed to a socket at once, so that one that takes none holds little."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def routes(hub: Hub) -> list[BaseRoute]:
    return [
        Route("/api/events", SseEndpoint(hub), methods=["GET"], name="events", include_in_schema=False),
        WebSocketRoute("/api/live", WebSocketEndpoint(hub), name="live"),
    ]


class SseEndpoint:
    """Server-sent events. `Last-Event-ID` counts more than `after`: a browser that connects again sends both."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        try:
            await self._hub.follow(_asked(scope, "sse"), SseTransport(receive, send))
        except OnefoldError as error:
            status, body = refusal(error)
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            if status == 503:
                headers.append((b"retry-after", b"1"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})


class WebSocketEndpoint:
    """A WebSocket: each message is one event as a JSON object with `event`, `id` and `data`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        wire = WebSocketTransport(receive, send)
        try:
            await self._hub.follow(_asked(scope, "websocket"), wire)
        except OnefoldError as error:
            # A rejected handshake tells a browser nothing, so it is accepted and told why.
            _, body = refusal(error)
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": f'{{"event":"error","id":"","data":{body.decode()}}}'})
            await send({"type": "websocket.close", "code": 1013 if isinstance(error, Draining) else 1008})


class SseTransport:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send

    async def open(self, first: Event) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._body(RETRY + first.sse())

    async def write(self, chunk: EventBatch) -> None:
        body = chunk.sse
        if len(body) <= PIECE:
            await self._body(body)
            return
        for at in range(0, len(body), PIECE):
            await self._body(body[at : at + PIECE])

    async def beat(self) -> None:
        await self._body(HEARTBEAT)

    async def close(self, last: Event) -> None:
        await self._send({"type": "http.response.body", "body": last.sse(), "more_body": False})

    async def gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _body(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


class WebSocketTransport:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._accepted = asyncio.Event()

    async def open(self, first: Event) -> None:
        await self._send({"type": "websocket.accept"})
        self._accepted.set()
        await self._text(first.text())

    async def write(self, chunk: EventBatch) -> None:
        for text in chunk.texts:
            await self._text(text)

    async def beat(self) -> None:
        await self._text('{"event":"beat","id":"","data":null}')

    async def close(self, last: Event) -> None:
        await self._text(last.text())
        await self._send({"type": "websocket.close", "code": 1012 if last.name == "resume" else 1000})

    async def gone(self) -> None:
        await self._accepted.wait()
        while (await self._receive())["type"] != "websocket.disconnect":
            pass

    async def _text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})


def refusal(error: OnefoldError) -> tuple[int, bytes]:
    """What an HTTP client is answered that cannot follow."""
    status = 400
    match error:
        case SessionNotFound():
            status = 404
        case Draining() | StoreError():
            status = 503
        case InvalidCursor():
            status = 422
    return status, encode({"error": {"kind": kind_of(error), "message": str(error)}}).encode()


def _asked(scope: Scope, kind: Kind) -> Subscription:
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="replace")
    given = {name: values[-1] for name, values in query.items()}
    resumed = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"last-event-id" and v), None)
    return Subscription(
        session=given.get("session") or None,
        after=resumed or given.get("after") or None,
        generation=given.get("incarnation") or None,
        name=_name(scope, given),
        kind=kind,
    )


def _name(scope: Scope, given: dict[str, str]) -> str:
    """What a client calls itself, and the name of its token."""
    who: Any = scope.get("state", {}).get("who")
    return known_as(given.get("name", ""), getattr(who, "name", None) or "somebody")
