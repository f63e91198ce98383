"""Starts the demo's processes, reads what they print, and makes sure that none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import onefold
from onefold.errors import OnefoldError
from onefold.messages import decode, encode
from onefold.model import Json


class StoryFailed(OnefoldError):
    """The story did not go as it should."""


class Child:
    """One process of the story, and everything it said."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.process = process
        self.said: list[Json] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def heard(self, what: str) -> list[Json]:
        return [line for line in list(self.said) if line["say"] == what]

    def tell(self, command: str) -> None:
        voice = self.process.stdin
        if voice is not None:
            with contextlib.suppress(BrokenPipeError):
                voice.write(command + "\n")
                voice.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Cast:
    """All processes of the story. On leaving, whoever is left is killed and waited for."""

    def __init__(self, store: str, session: str, pace: float, news: threading.Condition, log: IO[bytes]) -> None:
        self.children: list[Child] = []
        self.killed: list[Child] = []
        self._part = {"store": store, "session": session, "pace": pace}
        self._news = news
        self._log = log
        self._ears: list[threading.Thread] = []

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.process.poll() is None:
                child.process.kill()
        for child in self.children:
            child.process.wait()
        for ear in self._ears:
            ear.join()
        for child in self.children:
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def start(self, role: str, name: str, *, pass_fds: tuple[int, ...] = (), **more: Json) -> Child:
        part = encode({**self._part, "role": role, "name": name, **more})
        # The same package in every process, installed or not; and a process group of its own, so that Ctrl-C in the
        # terminal reaches the parent alone, which then ends the children in order.
        found = str(Path(onefold.__file__).parents[1])
        path = os.pathsep.join(p for p in (found, os.environ.get("PYTHONPATH")) if p)
        process = subprocess.Popen(
            [sys.executable, "-m", "onefold.cli.demo.workers", part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=pass_fds,
            process_group=0,
        )
        child = Child(name, process)
        self.children.append(child)
        ear = threading.Thread(target=self._listen, args=(child,), daemon=True)
        ear.start()
        self._ears.append(ear)
        return child

    def kill(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        child.process.wait()
        self.killed.append(child)

    def until(self, what: str, true: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits for something to be so, and looks again at every piece of news."""
        if not self.within(seconds, true):
            raise StoryFailed(f"the story stopped: {what} did not happen in {seconds:g} s")

    def within(self, seconds: float, true: Callable[[], bool]) -> bool:
        with self._news:
            return self._news.wait_for(true, seconds)

    def _listen(self, child: Child) -> None:
        for line in child.process.stdout or ():
            with self._news:
                child.said.append(decode(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()
