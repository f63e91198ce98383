"""Rooms behind a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

import onefold
from onefold.jsonrpc import Frame, notification, parse, request, text
from onefold.model import Record
from tests.support.acp_clients import Refusal, is_update
from tests.support.servers import PATIENCE, TOKEN, Served


@dataclass(frozen=True)
class Server:
    """A server with the scripted agent in its config file, and one that cannot be started; two kinds of people."""

    served: Served
    reader: str

    def get(self, path: str, token: str = TOKEN, /, **query: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.served.url}/api/{path}", params=query, headers=headers, timeout=PATIENCE)

    def post(self, path: str, session: str, token: str = TOKEN, /, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        address = f"{self.served.url}/api/{path}"
        return httpx.post(address, params={"session": session}, json=body, headers=headers, timeout=PATIENCE)

    def snapshot(self, session: str) -> Any:
        return self.get("attach", session=session, history="none").json()

    def records(self, session: str) -> list[Record]:
        with onefold.open(self.served.store) as store:
            return list(store.session(session, create=False).read())


# ---------------------------------------------------------------------- clients


class Client:
    """Somebody who speaks ACP, whatever carries it: requests and their answers, and all that was heard."""

    def __init__(self, put: Callable[[str], None], take: Callable[[], str]) -> None:
        self._put, self._take = put, take
        self._ids = 0
        self.heard: list[Frame] = []

    def send(self, method: str, **params: Any) -> int:
        self._ids += 1
        self._put(text(request(self._ids, method, params)))
        return self._ids

    def decline(self, question: Frame, why: str) -> None:
        self._put(text(Frame({"jsonrpc": "2.0", "id": question.id, "error": {"code": -32601, "message": why}})))

    def ended(self) -> bool:
        return self._take() == ""

    def notify(self, method: str, **params: Any) -> None:
        self._put(text(notification(method, params)))

    def reply(self, question: Frame, result: Any) -> None:
        self._put(text(Frame({"jsonrpc": "2.0", "id": question.id, "result": result})))

    def until(self, fits: Callable[[Frame], bool]) -> Frame:
        """What fits, of all that was and will be heard; the first of it."""
        found = next((frame for frame in self.heard if fits(frame)), None)
        while found is None:
            line = self._take()
            assert line, "the connection has ended"
            self.heard += (new := parse(line))
            found = next((frame for frame in new if fits(frame)), None)
        return found

    def answer(self, id: int) -> Any:
        body = self.until(lambda frame: frame.is_response and frame.id == id).body
        if "error" in body:
            raise Refusal(body["error"])
        return body["result"]

    def ask(self, method: str, **params: Any) -> Any:
        return self.answer(self.send(method, **params))

    def new(self) -> str:
        self.ask("initialize", protocolVersion=1)
        return str(self.ask("session/new", cwd="/", mcpServers=[])["sessionId"])

    @property
    def said(self) -> str:
        return "".join(f.update["content"]["text"] for f in self.heard if is_update("agent_message_chunk")(f))


@contextmanager
def client(server: Server, query: str, token: str = TOKEN) -> Iterator[Client]:
    address = f"ws{server.served.url.removeprefix('http')}/acp?{query}"
    headers = {"Authorization": f"Bearer {token}"}
    socket: ClientConnection
    with connect(address, additional_headers=headers, max_size=None, max_queue=None) as socket:
        yield Client(socket.send, lambda: str(socket.recv(PATIENCE)))


def onefold_run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`onefold run`, which is to end by itself."""
    environ = {**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "ONEFOLD_TOKEN": TOKEN}
    command = [sys.executable, "-m", "onefold", "run", "--store", str(folder / "agent.db"), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
