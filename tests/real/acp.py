"""The smallest client of an ACP agent: a process, requests by number, and every frame and line that came."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from onefold.model import Json

PATIENCE = 60.0


class Refused(Exception):
    """The agent answered with an error."""


class Client:
    """Speaks to one agent on its stdin and stdout. Permissions are granted with the first option."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.frames: list[Json] = []
        self.lines: list[str] = []
        self._numbers = itertools.count(1)
        self._came = threading.Condition()
        self._over = False
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._stdin = self.process.stdin
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Closes stdin, and ends whoever is still there after a while."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        for reader in self._readers:
            reader.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def ask(self, method: str, patience: float = PATIENCE, **params: Json) -> Json:
        """A request, and its result."""
        return self.answer(self.send(method, **params), patience)

    def send(self, method: str, **params: Json) -> int:
        number = next(self._numbers)
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def answer(self, number: int, patience: float = PATIENCE) -> Json:
        frame = self.await_frame(lambda f: f.get("id") == number and "method" not in f, patience)
        if "error" in frame:
            raise Refused(json.dumps(frame["error"]))
        return frame["result"]

    def await_frame(self, wanted: Callable[[Json], bool], patience: float = PATIENCE) -> Json:
        with self._came:
            self._came.wait_for(lambda: self._over or any(wanted(f) for f in self.frames), patience)
            found = [f for f in self.frames if wanted(f)]
        assert found, "the agent did not say it; its last lines: " + " | ".join(self.lines[-15:])
        return found[0]

    def updates(self, kind: str | None = None) -> list[Json]:
        """What session/update said, all of it or of one kind."""
        said = [f["params"]["update"] for f in self.frames if f.get("method") == "session/update"]
        return [u for u in said if kind is None or u["sessionUpdate"] == kind]

    def text(self) -> str:
        """What the agent said to the user, all its chunks together."""
        return "".join(u["content"].get("text", "") for u in self.updates("agent_message_chunk"))

    # ------------------------------------------------------------------ the usual ones

    def initialize(self) -> Json:
        """As an editor that knows compaction, and has neither files nor terminals to offer."""
        capabilities = {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
            "session": {"compaction": {}},
        }
        who = {"name": "onefold-tests", "title": "onefold's tests", "version": "1"}
        return self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities, clientInfo=who)

    def new(self, folder: Path) -> str:
        return str(self.ask("session/new", cwd=str(folder), mcpServers=[])["sessionId"])

    def prompt(self, session: str, text: str, patience: float = PATIENCE) -> Json:
        return self.ask("session/prompt", patience, sessionId=session, prompt=[{"type": "text", "text": text}])

    # ------------------------------------------------------------------ the pipes

    def _write(self, frame: Json) -> None:
        self._stdin.write(json.dumps(frame).encode() + b"\n")
        self._stdin.flush()

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            with self._came:
                try:
                    frame = json.loads(line)
                except ValueError:
                    self.lines.append(line.decode(errors="replace").rstrip())
                else:
                    self.frames.append(frame)
                    self._consent(frame)
                self._came.notify_all()
        with self._came:
            self._over = True
            self._came.notify_all()

    def _listen(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            with self._came:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._came.notify_all()

    def _consent(self, frame: Json) -> None:
        if frame.get("method") == "session/request_permission":
            first = frame["params"]["options"][0]["optionId"]
            outcome = {"outcome": {"outcome": "selected", "optionId": first}}
            self._write({"jsonrpc": "2.0", "id": frame["id"], "result": outcome})
        elif "method" in frame and "id" in frame:
            refusal = {"code": -32601, "message": "this client offers nothing of the kind"}
            self._write({"jsonrpc": "2.0", "id": frame["id"], "error": refusal})
