"""A real `onefold serve` in a process of its own, and clients of it that speak plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

PATIENCE = 30.0
TOKEN = "onefold-test-token-0123456789"


class Served:
    """`onefold serve` on a store, with one token for everything."""

    verb = "serve"

    def __init__(self, store: str, folder: Path, *options: str, port: int = 0, **environ: str) -> None:
        self.store = store
        self.log = folder / "serve.log"
        self._folder = folder
        self._options = options
        self._environ = environ
        self.port = port
        self.process: subprocess.Popen[str] | None = None
        self._clients: list[Listening | Faithful] = []

    def listen(self, session: str | None, after: object = None) -> Listening:
        """A stream that reads when it is asked to, past its `hello`."""
        made = Listening(self, session, after)
        self._clients.append(made)
        hello = made.event()
        assert hello is not None
        assert hello[0] == "hello"
        return made

    def faithful(self, session: str) -> Faithful:
        made = Faithful(self, session)
        self._clients.append(made)
        made.start()
        return made

    def __enter__(self) -> Served:
        self.start()
        return self

    def start(self) -> None:
        environ = {
            **os.environ, "XDG_CONFIG_HOME": str(self._folder), "XDG_DATA_HOME": str(self._folder),
            "ONEFOLD_TOKEN": TOKEN, **self._environ,
        }  # fmt: skip
        command = [sys.executable, "-m", "onefold", self.verb, "--store", self.store, "--port", str(self.port)]
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*command, *self._options], env=environ, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.said = _line(self.process)
        found = re.search(r"at (https?)://[^ ]*:(\d+)", self.said)
        assert found, f"{self.said!r} {self.log.read_text()}"
        self.scheme, self.port = found[1], int(found[2])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None:
            self.kill()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate()

    @property
    def memory(self) -> int:
        """What the process has in memory, in bytes."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def get(self, path: str, token: str | None = TOKEN) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


class Listening:
    """One connection to `/api/events`, which reads only when it is asked to."""

    def __init__(self, server: Served, session: str | None, after: object = None) -> None:
        query = {} if session is None else {"session": session}
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({} if after is None else {"Last-Event-ID": str(after)})
        try:
            self._connection.request("GET", f"/api/events?{urlencode(query, quote_via=quote)}", headers=headers)
            self._socket = self._connection.sock
            self._answer = self._connection.getresponse()
        except BaseException:
            self._connection.close()
            raise
        self.status = self._answer.status
        self.last_id = ""

    def event(self) -> tuple[str, str, Any] | None:
        """The next event; None if the stream was cut or has ended."""
        fields: dict[str, str] = {}
        while True:
            try:
                read = self._answer.readline()
            except (OSError, http.client.HTTPException):
                return None
            if not read.endswith(b"\n"):  # the stream ended, perhaps within an event: that one does not count
                return None
            if line := read.decode().rstrip("\n"):
                name, _, value = line.partition(":")
                fields[name] = value[1:]
            elif "event" in fields:
                self.last_id = fields["id"]
                return fields["event"], fields["id"], json.loads(fields["data"])
            elif self._answer.isclosed() or not fields:
                return None
            else:
                fields = {}

    def numbers_until(self, last: int) -> list[int]:
        """Numbers of records up to one, or up to the end of the stream."""
        seen: list[int] = []
        while (event := self.event()) is not None:
            if event[0] == "record":
                seen.append(event[2]["number"])
                if seen[-1] >= last:
                    break
        return seen

    def shut(self) -> None:
        """Ends a read that another thread is in."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


class Faithful(threading.Thread):
    """A client that does what it is told: it follows, and resumes by the last id until it has a number."""

    def __init__(self, server: Served, session: str) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._session = session
        self.seen: list[int] = []
        self.cuts = 0
        self.enough = threading.Event()
        self.last = 1 << 60
        self._moved = threading.Condition()
        self._last_id = "0"
        self._stream: Listening | None = None

    def close(self) -> None:
        self.enough.set()
        if (stream := self._stream) is not None:
            stream.shut()
        self.join(PATIENCE)

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                stream = self._stream = Listening(self._server, self._session, self._last_id)
            except (OSError, http.client.HTTPException):
                self.enough.wait(0.05)
                continue
            try:
                self._read(stream)
            finally:
                self._stream = None
                stream.close()
            self.cuts += 1

    def _read(self, stream: Listening) -> None:
        while not self.enough.is_set() and (event := stream.event()) is not None:
            self._last_id = event[1]
            if event[0] == "record":
                with self._moved:
                    self.seen.append(event[2]["number"])
                    if self.seen[-1] >= self.last:
                        self.enough.set()
                    self._moved.notify_all()

    def has(self, count: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: len(self.seen) >= count, PATIENCE), self.seen[-3:]

    def until(self, last: int) -> list[int]:
        """All it has seen, once it has this number."""
        with self._moved:
            self.last = last
            there = self._moved.wait_for(lambda: bool(self.seen) and self.seen[-1] >= last, PATIENCE)
        self.enough.set()
        assert there, f"it has {len(self.seen)}, the last is {self.seen[-1:]}, and {last} is missing"
        return self.seen


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    limit = threading.Timer(PATIENCE, process.kill)
    limit.start()
    try:
        return process.stdout.readline()
    finally:
        limit.cancel()
