"""Clients of a room, for tests: in the same process through a connection, or over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

import onefold
from onefold.acp.agent_config import Agent, Agents
from onefold.acp.client_connection import ClientConnection
from onefold.acp.host import RoomHost
from onefold.jsonrpc import Frame, notification, parse, request, text
from onefold.store import Store
from tests.support.servers import TOKEN, Served

AGENT = Path(__file__).with_name("scripted_agent.py")
PATIENCE = 20.0


class Refusal(Exception):
    """A request was answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


@dataclass(frozen=True)
class Person:
    """Somebody with some scopes."""

    name: str = "ann"
    scopes: tuple[str, ...] = ("read", "agents", "compact")

    def may(self, scope: str) -> bool:
        return scope in self.scopes


@dataclass
class Client:
    """One client. It keeps every frame it was sent, and answers no question by itself."""

    connection: ClientConnection
    heard: list[Frame] = field(default_factory=list)
    _ids: int = 0
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    def start(self) -> Client:
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        while (line := await self.connection.send_queue.next()) is not None:
            for frame in parse(line):
                self.take(frame)

    def take(self, frame: Frame) -> None:
        self.heard.append(frame)
        if frame.is_response and frame.id in self._answers:
            answer = self._answers.pop(int(frame.id))
            if "error" in frame.body:
                answer.set_exception(Refusal(frame.body["error"]))
            else:
                answer.set_result(frame.body.get("result"))
        self._news.set()

    async def put(self, frame: Frame) -> None:
        await self.connection.take(text(frame))

    async def send(self, method: str, **params: Any) -> asyncio.Future[Any]:
        """Sends a request; its answer comes later."""
        self._ids += 1
        self._answers[self._ids] = answer = asyncio.get_running_loop().create_future()
        await self.put(request(self._ids, method, params))
        return answer

    async def ask(self, method: str, **params: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await (await self.send(method, **params))

    async def notify(self, method: str, **params: Any) -> None:
        await self.put(notification(method, params))

    async def until(self, seen: Callable[[Frame], bool], *, count: int = 1) -> list[Frame]:
        """Waits until so many frames of a kind were heard."""
        async with asyncio.timeout(PATIENCE):
            while len(found := [f for f in self.heard if seen(f)]) < count:
                self._news.clear()
                await self._news.wait()
        return found

    async def enter(self, session: str | None = None, /, **capabilities: Any) -> str:
        """As an editor does: initialize, and a session."""
        await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
        if session is None:
            return str((await self.ask("session/new", cwd="/", mcpServers=[]))["sessionId"])
        await self.ask("session/resume", sessionId=session, cwd="/", mcpServers=[])
        return session

    async def prompt(self, session: str, words: str) -> Any:
        return await self.ask("session/prompt", sessionId=session, prompt=blocks(words))

    @property
    def said(self) -> str:
        """What the agent said, glued."""
        return "".join(texts(self.heard, "agent_message_chunk"))

    async def close(self) -> None:
        await self.connection.close()
        if self._reading is not None:
            await self._reading


def blocks(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def texts(frames: list[Frame], kind: str) -> Iterator[str]:
    for frame in frames:
        if frame.update.get("sessionUpdate") == kind:
            yield frame.update["content"].get("text", "")


def is_method(method: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.method == method


def is_update(kind: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.update.get("sessionUpdate") == kind


@dataclass
class Place:
    """A host with one scripted agent, and clients that come to it."""

    store: Store
    host: RoomHost
    clients: list[Client] = field(default_factory=list)

    def client(self, who: Person | None = None, **where: Any) -> Client:
        made = Client(ClientConnection(self.host, who or Person(), **where)).start()
        self.clients.append(made)
        return made

    async def joined(self, session: str | None = None, who: Person | None = None, /, **capabilities: Any) -> Client:
        client = self.client(who)
        await client.enter(session, **capabilities)
        return client


@asynccontextmanager
async def place(tmp: Path, *options: str, name: str = "scripted", **more: Any) -> AsyncIterator[Place]:
    """A store and a host whose agent is the scripted one with these options; all of it ends with the block."""
    command = (sys.executable, str(AGENT), *options)
    store = onefold.open(tmp / "agent.db")
    agent = Agent(name, command, folders=("/",), mcp_servers=True)
    host = RoomHost(store, tmp / "agent.db.frames", Agents({name: agent}), **more)
    host.start()
    there = Place(store, host)
    try:
        yield there
    finally:
        for client in there.clients:
            await client.close()
        await host.close()
        store.close()


# ---------------------------------------------------------------------- over the network


def config(folder: Path, **agents: list[str]) -> None:
    """A config file that names these agents, each of which may work anywhere."""
    (folder / "onefold").mkdir(exist_ok=True)
    tables = [
        f"[agents.{name}]\ncommand = {json.dumps(command)}\nfolders = ['/']\n" for name, command in agents.items()
    ]
    (folder / "onefold" / "config.toml").write_text("\n".join(tables))


class Ran(Served):
    """`onefold run` with the scripted agent, in a process of its own."""

    verb = "run"

    def __init__(self, folder: Path, *options: str, session: str = "s") -> None:
        agent = (sys.executable, str(AGENT), *options)
        super().__init__(str(folder / "agent.db"), folder, "--session", session, "--", *agent)
        onefold.open(folder / "agent.db").close()

    def __enter__(self) -> Ran:
        self.start()
        return self

    def again(self) -> None:
        """Started once more, at the same port."""
        self.kill()
        self.start()


class Named(Served):
    """`onefold run` with the scripted agent, by the name it has in the config file."""

    verb = "run"

    def __init__(self, folder: Path, *options: str) -> None:
        config(folder, scripted=[sys.executable, str(AGENT), *options])
        onefold.open(folder / "agent.db").close()
        super().__init__(str(folder / "agent.db"), folder, "--session", "s", "--agent", "scripted")


class Remote(Client):
    """A client over a WebSocket that attaches, and comes again from its last number when the line is cut."""

    def __init__(self, served: Served, session: str = "s", name: str = "ann") -> None:
        self.served, self.session, self.name = served, session, name
        self.heard, self._ids, self._answers, self._news = [], 0, {}, asyncio.Event()
        self.last: int | None = None
        self.numbers: list[int] = []
        self.shots: list[Any] = []
        self._socket: WebSocket | None = None
        self._reading = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        """Connected for as long as the test lasts."""
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                await self._once()
            for answer in self._answers.values():
                if not answer.done():
                    answer.cancel()
            self._answers.clear()
            self._socket = None
            await asyncio.sleep(0.05)

    async def _once(self) -> None:
        address = f"ws://127.0.0.1:{self.served.port}/acp?session={self.session}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with connect(address, additional_headers=headers, max_size=None) as socket:
            hello = request(
                "hello", "initialize", {"protocolVersion": 1, "clientInfo": {"name": self.name, "version": "1"}}
            )
            await socket.send(text(hello))
            more = {} if self.last is None else {"after": self.last}
            await socket.send(text(request("attach", "session/attach", {"sessionId": self.session, **more})))
            async for line in socket:
                for frame in parse(line):
                    if frame.id == "attach" and "result" in frame.body:
                        self.shots.append(frame.body["result"])
                        self._socket = socket
                    self._count(frame)
                    self.take(frame)

    def _count(self, frame: Frame) -> None:
        meta = frame.params.get("_meta")
        number = meta.get("onefold", {}).get("number") if isinstance(meta, dict) else None
        if number is not None:
            self.numbers.append(number)
            self.last = number

    async def put(self, frame: Frame) -> None:
        async with asyncio.timeout(PATIENCE):
            while self._socket is None:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.1)
        await self._socket.send(text(frame))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
