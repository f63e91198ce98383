"""A client of an agent's room on a server: the Agent Client Protocol over a WebSocket, which is taken up again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onefold.cli.http_client import FIRST, LONGEST, NotReached, address
from onefold.cli.options import WrongUse
from onefold.errors import OnefoldError
from onefold.model import Json

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.http11 import Response

LARGEST = 64 << 20
"""Bytes of one frame."""
_LATER = (429, 500, 502, 503, 504)
"""Answers after which it is worth trying again."""
_COMES_AGAIN = (1001, 1006, 1011, 1012, 1013)
"""Codes with which a WebSocket ends whose client may come again."""


class RequestFailed(OnefoldError):
    """The room answered with an error."""


class LineLost(OnefoldError):
    """The line to the server was cut."""


def room_address(url: str, session: str, *, allow_http: bool) -> str:
    """The WebSocket of a session's room."""
    base = address(url, allow_http=allow_http)
    there = f"ws{base.scheme.removeprefix('http')}://{base.netloc.rpartition('@')[2]}{base.path.rstrip('/')}"
    return f"{there}/acp?session={quote(session, safe='')}"


def unique_name(what: str) -> str:
    """What this client calls itself, so that its own turns can be told from those of others."""
    return f"{what} {secrets.token_hex(2)}"


class RoomClient:
    """One client in one room. `frames` is everything that comes; requests are answered beside it."""

    def __init__(self, url: str, token: str | None, session: str, name: str, *, allow_http: bool = False) -> None:
        self.url = url
        self.session = session
        self.name = name
        self._there = room_address(url, session, allow_http=allow_http)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._socket: ClientConnection | None = None
        self._ids = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last: int | None = None
        """The number of the newest frame."""
        self._leaving = False
        self._closing: asyncio.Future[None] | None = None

    async def frames(self, history: str, lost: Callable[[str], None]) -> AsyncIterator[Json]:
        """What is told: first the answer to `session/attach`, as {"attached": …}, then every frame that is no answer.
        A line that is cut is taken up again where it was; `lost` is called then. Ends after `leave`."""
        wait, connected = FIRST, False
        while True:
            try:
                async for frame in self._once(history):
                    connected, wait = True, FIRST
                    yield frame
                return
            except (LineLost, NotReached) as cut:
                if not connected:
                    raise
                if wait == FIRST:  # the tries after the first one say nothing new
                    lost(f"{cut}; trying again")
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST)

    async def _once(self, history: str) -> AsyncIterator[Json]:
        socket = await self._connected()
        from websockets.exceptions import ConnectionClosed

        async with socket:
            self._socket = socket
            arriving = asyncio.create_task(self._join(history))
            try:
                async for line in socket:
                    for frame in self._taken(json.loads(line)):
                        yield frame
                    if arriving.done() and (trouble := arriving.exception()) is not None:
                        raise trouble
            except ConnectionClosed:
                pass  # how it was closed is looked at below
            finally:
                self._socket = None
                arriving.cancel()
                with contextlib.suppress(BaseException):
                    await arriving
                for answer in self._waiting.values():
                    if not answer.done():
                        answer.set_exception(LineLost(f"the line to {self.url} was cut"))
                self._waiting.clear()
            if self._leaving:
                return
            if socket.close_code is None or socket.close_code in _COMES_AGAIN:
                raise LineLost(f"the line to {self.url} was cut")
            raise OnefoldError(f"{self.url} ended the connection: {socket.close_reason or socket.close_code}")

    async def _connected(self) -> ClientConnection:
        try:
            from websockets.asyncio.client import connect
            from websockets.exceptions import InvalidStatus, WebSocketException
        except ImportError:
            raise WrongUse("websockets is not installed, which this needs: pip install 'onefold[server]'") from None
        try:
            return await connect(self._there, additional_headers=self._headers, max_size=LARGEST, proxy=None)
        except InvalidStatus as refused:
            if refused.response.status_code in _LATER:
                raise LineLost(f"{self.url}: {told_by(refused.response)}") from None
            raise OnefoldError(f"{self.url} rejected the connection: {told_by(refused.response)}") from None
        except (OSError, WebSocketException) as error:
            raise NotReached(f"{self.url} cannot be joined: {error}; check that it runs, and give its token") from None

    def leave(self) -> None:
        """Ends `frames`."""
        self._leaving = True
        if self._socket is not None:
            self._closing = asyncio.ensure_future(self._socket.close())

    async def _join(self, history: str) -> None:
        info = {"name": self.name, "version": "1"}
        able: Json = {"session": {"compaction": {}}}
        await self.ask("initialize", protocolVersion=1, clientInfo=info, clientCapabilities=able)
        more: dict[str, Json] = {"history": history} if self._last is None else {"after": self._last}
        await self.ask("session/attach", sessionId=self.session, **more)

    def _taken(self, frame: Json) -> list[Json]:
        """What of a frame is for whoever reads."""
        id = frame.get("id")
        if "method" not in frame and isinstance(id, int) and (answer := self._waiting.pop(id, None)) is not None:
            if answer.done():
                return []
            if "error" in frame:
                answer.set_exception(RequestFailed(str(frame["error"].get("message") or frame["error"])))
                return []
            answer.set_result(frame.get("result"))
            result = frame.get("result")
            if isinstance(result, dict) and "follow" in result:
                self.session = result["sessionId"]
                self._last = max(self._last or 0, result["follow"])
                return [{"attached": result}]
            return []
        meta = (frame.get("params") or {}).get("_meta")
        number = meta.get("onefold", {}).get("number") if isinstance(meta, dict) else None
        if isinstance(number, int):
            self._last = number
        return [frame]

    # ------------------------------------------------------------------ what is sent

    async def ask(self, method: str, **params: Json) -> Any:
        """A request; returns its result, or raises what it was refused with."""
        self._ids += 1
        answer = self._waiting[self._ids] = asyncio.get_running_loop().create_future()
        await self._send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        return await answer

    async def prompt(self, text: str, key: str | None = None) -> Any:
        """A prompt, and how its turn ended. Sent again with the same key, it is the same prompt."""
        more = {} if key is None else {"_meta": {"onefold": {"key": key}}}
        said = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", sessionId=self.session, prompt=said, **more)

    async def cancel(self) -> None:
        await self._send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session}})

    async def answer(self, id: Json, result: Json) -> None:
        await self._send({"jsonrpc": "2.0", "id": id, "result": result})

    async def decline(self, id: Json) -> None:
        """A question that this client does not know; others may."""
        await self._send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not known here"}})

    async def _send(self, frame: Json) -> None:
        from websockets.exceptions import ConnectionClosed

        if self._socket is None:
            raise LineLost(f"there is no line to {self.url} now")
        try:
            await self._socket.send(json.dumps(frame))
        except ConnectionClosed:
            raise LineLost(f"the line to {self.url} was cut") from None


def told_by(response: Response) -> str:
    """What a server said instead of opening a connection."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(response.body or b"")["error"]["message"])
    return f"it answered {response.status_code}"
