"""OpenViking as a program: its own server on a workspace, asked over HTTP as its clients do."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from onefold.model import Json
from tests.real.agents import private_home, written
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.programs import installed

NOTHING_TO_LEARN = "sdk.commit()"
"""What its model answers when it is asked what to remember of a conversation, and nothing is to be."""

_PATIENCE = 120.0
_LOOK = 0.1


class OpenViking:
    """A server on a workspace. It is there once it answers, and gone at the end."""

    def __init__(self, home: Path, model: DirectedModel, outside: Outside) -> None:
        program = installed("openviking").with_name("openviking-server")
        self.workspace = home / "workspace"
        self._port = _free_port()
        self._log = home / "openviking.log"
        self._environment = private_home(home, outside)
        self._command = [str(program), "--config", str(written(home / "ov.conf", self._settings(model)))]
        self._process: subprocess.Popen[bytes] | None = None
        self._died = threading.Event()

    @property
    def sessions(self) -> Path:
        """Where the sessions lie, each a folder."""
        return self.workspace / "viking/default/user/default/sessions"

    def _settings(self, model: DirectedModel) -> Json:
        service = {"provider": "openai", "model": "model", "api_base": model.openai, "api_key": "none"}
        return {
            "storage": {"workspace": str(self.workspace)},
            "server": {"host": "127.0.0.1", "port": self._port},
            "embedding": {"dense": {**service, "dimension": 8, "input": "text", "encoding_format": "float"}},
            "vlm": service,
        }

    def __enter__(self) -> OpenViking:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._process = process
        self._died.clear()
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        self._until(self._answers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._died.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def create(self, session: str) -> None:
        self._ask("POST", "/api/v1/sessions", {"session_id": session})

    def add(self, session: str, texts: list[str]) -> None:
        """At most 100 at once; the user and the assistant take turns."""
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        self._ask("POST", f"/api/v1/sessions/{session}/messages/batch", {"messages": messages})

    def commit(self, session: str, **how: Json) -> Json:
        """Archives, and waits until all the work on the archive is done. What became of it."""
        begun = self._ask("POST", f"/api/v1/sessions/{session}/commit", how)
        ended: list[Json] = []

        def over() -> bool:
            task = self._ask("GET", f"/api/v1/tasks/{begun['task_id']}")
            ended[:] = [task] if task["status"] in ("completed", "failed") else []
            return bool(ended)

        self._until(over)
        return ended[0]

    def context(self, session: str) -> Json:
        return self._ask("GET", f"/api/v1/sessions/{session}/context")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._died.set()

    def _ask(self, method: str, path: str, body: Json = None) -> Json:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            said = response.read()
            assert response.status == 200, f"{method} {path}: {response.status} {said[:1000].decode()}"
            answer = json.loads(said)
        return answer.get("result", answer)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._ask("GET", "/health")["healthy"])
        return False

    def _until(self, wanted: Callable[[], bool]) -> None:
        """Looks again and again, but not longer than it lives."""
        for _ in range(int(_PATIENCE / _LOOK)):
            if wanted():
                return
            if self._died.wait(_LOOK):
                break
        raise AssertionError(f"OpenViking did not get there; its last words: {self._log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
