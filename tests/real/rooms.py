"""A real agent behind `onefold run`, and the real clients that join it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from onefold.model import Json
from tests.real.acp import Client
from tests.real.agents import Agent
from tests.real.programs import installed

TOKEN = "onefold-real-token-0123456789abcdef"
SESSION = "shared"
_PATIENCE = 120.0
_CLIENTS = Path(__file__).with_name("clients")
_RUNS = re.compile(r"runs at (http://[\d.]+:\d+)")


class Room:
    """`onefold run` with an agent, in the agent's own environment."""

    def __init__(self, agent: Agent, home: Path) -> None:
        self.agent = agent
        self.store = home / "onefold.db"
        self.url = ""
        self.log: list[str] = []
        self._environment = {**agent.environment, "ONEFOLD_TOKEN": TOKEN}
        self._process: subprocess.Popen[str] | None = None
        self._came = threading.Condition()

    def __enter__(self) -> Room:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGTERM)

    def start(self) -> None:
        if not self.store.exists():
            subprocess.run(
                [*onefold(), "init", "--store", str(self.store)],
                env=self._environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        options = ("--session", SESSION, "--cwd", str(self.agent.folder), "--port", "0", "--store", str(self.store))
        process = subprocess.Popen(
            [*onefold(), "run", *options, "--", *self.agent.command],
            env=self._environment,
            cwd=self.agent.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._process, self.url = process, ""
        assert process.stdout is not None
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        with self._came:
            there = self._came.wait_for(lambda: self.url or process.poll() is not None, _PATIENCE)
        assert there, "\n".join(self.log)
        assert self.url, "\n".join(self.log)

    def stop(self, how: signal.Signals, *, rest: bool = True) -> None:
        """Ends onefold, and the agent with it unless the agent is to be left to itself."""
        agents = [int(r["body"]["pid"]) for r in self.records() if r["kind"] == "agent.started"]
        assert self._process is not None
        self._process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        for pid in [self._process.pid, *agents] if rest else []:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._process.wait(10)

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                with self._came:
                    self.log.append(line.rstrip())
                    if found := _RUNS.search(line):
                        self.url = found.group(1)
                    self._came.notify_all()
        with self._came:
            self._came.notify_all()

    @property
    def websocket(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/acp?session={SESSION}"

    @property
    def environment(self) -> Mapping[str, str]:
        """For a command that joins."""
        return {**self._environment, "ONEFOLD_URL": self.url}

    def join(self) -> Client:
        """A client over stdio, as an editor starts one."""
        return Client([*onefold(), "attach", "--stdio", SESSION], self.environment, self.agent.folder)

    def records(self) -> list[Json]:
        """What the journal has of the session, as `onefold show` tells it."""
        found: list[Json] = json.loads(
            self._output([*onefold(), "show", SESSION, "--store", str(self.store), "--json"])
        )
        return found

    def kill_agent(self) -> None:
        """kill -9 of the agent itself: the newest process that the journal says was started."""
        started = [r for r in self.records() if r["kind"] == "agent.started"]
        os.kill(int(started[-1]["body"]["pid"]), signal.SIGKILL)

    # ------------------------------------------------------------------ the real clients

    def python_sdk(self, *prompts: str) -> Json:
        return self._run([str(installed("python-sdk")), str(_CLIENTS / "python_sdk.py"), self._told(prompts)])

    def typescript_sdk(self, *prompts: str, headers: bool) -> Json:
        """The script lies where its packages are: Node looks for them from there."""
        folder = installed("sdk").parents[3]
        script = shutil.copy(_CLIENTS / "typescript_sdk.mjs", folder)
        return self._run([str(installed("node")), str(script), self._told(prompts, headers=headers)])

    def acpx(self, prompt: str) -> str:
        """What acpx prints of one prompt, joined over stdio."""
        joins = shlex.join([*onefold(), "attach", "--stdio", SESSION])
        how = ("--agent", joins, "--cwd", str(self.agent.folder), "--approve-all", "--format", "text")
        return self._output([str(installed("node")), str(installed("acpx")), *how, "exec", prompt])

    def _told(self, prompts: Sequence[str], **more: Json) -> str:
        told = {"url": self.websocket, "token": TOKEN, "folder": str(self.agent.folder), "prompts": prompts, **more}
        return json.dumps(told)

    def _run(self, command: Sequence[str]) -> Json:
        output = self._output(command)
        results = [line for line in output.splitlines() if line.startswith("RESULT ")]
        assert results, output
        return json.loads(results[-1].removeprefix("RESULT "))

    def _output(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command,
            env=dict(self.environment),
            cwd=self.agent.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


def onefold() -> list[str]:
    return [sys.executable, "-m", "onefold"]


def said(updates: Sequence[Json]) -> str:
    """What the agent said to the user in these updates."""
    chunks = [u for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    return "".join(u["content"].get("text", "") for u in chunks)
