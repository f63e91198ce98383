"""Has every peer do the same, each in its own process, and gathers what they say."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.conversation import MESSAGES
from benchmarks.peers.drive import ANSWER
from benchmarks.peers.environments import python
from benchmarks.peers.table import PEERS, Peer
from tests.frameworks.environments import ROOT

MARKS = (500, 1_000, 2_000, 4_000)
_SLICE = 100
_SLICES = 5
"""The rate at a mark is the median of so many slices before it."""
_TRACED = 25
_LONGEST = 300.0
_SYNC = re.compile(r"\b(?:fsync|fdatasync|msync|sync_file_range)\((\d+|0x[0-9a-f]+)")
_NO_FILE = "1000000"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    marks: tuple[int, ...] = MARKS
    patience: float = math.inf


SHORT = Size((100, 200), 5.0)
FULL = Size()


class Child:
    """A peer in its own environment."""

    def __init__(self, peer: Peer, task: str, folder: Path, *given: object, trace: Path | None = None) -> None:
        self._name = f"{peer.name} ({task})"
        traced = (
            ["strace", "-f", "-e", "trace=fsync,fdatasync,msync,sync_file_range", "-o", str(trace)] if trace else []
        )
        command = [str(python(peer.environment)), "-m", "benchmarks.peers.drive", task, peer.name, str(folder)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the child
        self._process = subprocess.Popen(
            [*traced, *command, *map(str, given)],
            cwd=ROOT,
            env={**os.environ, "HERMES_HOME": str(folder.parent / "home")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def answer(self) -> Any:
        """The next one. RuntimeError if it does not come in time."""
        assert self._process.stdout is not None
        limit = threading.Timer(_LONGEST, self._process.kill)
        limit.start()
        try:
            for line in self._process.stdout:
                if line.startswith(ANSWER):
                    return json.loads(line.removeprefix(ANSWER))
        finally:
            limit.cancel()
        self._errors.seek(0)
        raise RuntimeError(f"{self._name} ended without an answer: {self._errors.read()[-1500:]}")

    def ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()


@contextlib.contextmanager
def _child(
    peer: Peer, task: str, *given: object, trace: Path | None = None, dir: Path | None = None
) -> Iterator[Child]:
    folder = Path(tempfile.mkdtemp(prefix="onefold-peers-", dir=dir))
    (folder / "store").mkdir()
    child = Child(peer, task, folder / "store", *given, trace=trace)
    try:
        yield child
    finally:
        child.end()
        shutil.rmtree(folder, ignore_errors=True)


class Line:
    """One peer's way through the conversation."""

    def __init__(self, peer: Peer, child: Child, size: Size) -> None:
        self.peer, self._child, self._size = peer, child, size
        self.settings = str(child.answer()["settings"])
        self.at: list[dict[str, float]] = []
        self._slices: list[float] = []
        self._written = 0

    @property
    def over(self) -> bool:
        long, taken = len(self._slices) * _SLICE, sum(self._slices)
        patience = min(self.peer.patience, self._size.patience)
        enough = taken > patience and long in self._size.marks
        return long >= min(self.peer.most, max(self._size.marks)) or enough or taken > 2 * patience

    def step(self) -> None:
        """One slice; at a mark, a look at what is there."""
        said = self._child.ask(f"say {_SLICE}")
        self._slices.append(said["seconds"])
        self._written += said["written"]
        long = len(self._slices) * _SLICE
        if long in self._size.marks:
            rates = [_SLICE / seconds for seconds in self._slices[-_SLICES:]]
            self.at.append(
                {"messages": long, "rate": statistics.median(rates), "seconds": sum(self._slices),
                 "written": self._written, **self._child.ask("look")}
            )  # fmt: skip


def speeds(peers: Sequence[Peer], size: Size, dir: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """First those that are handed messages, then those that run an agent: what they write would weigh on the others."""
    found: dict[str, Any] = {}
    for runs in (False, True):
        found |= _heat([peer for peer in peers if peer.runs is runs], size, dir)
        say("appended by agents" if runs else "appended")
    return {peer.name: found[peer.name] for peer in peers}


def _heat(peers: Sequence[Peer], size: Size, dir: Path | None) -> dict[str, Any]:
    """All of them at once, in turns of a hundred messages each, so that what the disk does it does to all. Each round
    begins with another one: it may matter who one comes after."""
    with contextlib.ExitStack() as stack:
        children = [(peer, stack.enter_context(_child(peer, "speed", dir=dir))) for peer in peers]
        lines = [Line(peer, child, size) for peer, child in children]
        first = 0
        while going := [line for line in lines if not line.over]:
            first = (first + 1) % len(going)
            for line in (*going[first:], *going[:first]):
                line.step()
        return {line.peer.name: {"settings": line.settings, "at": line.at} for line in lines}


def syncs(peer: Peer, dir: Path | None) -> float | None:
    """How often a message is synced to the disk, by a trace of system calls; None if there is no `strace` here."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="onefold-peers-") as folder:
        trace = Path(folder) / "trace"
        with _child(peer, "syncs", _TRACED, trace=trace, dir=dir) as child:
            child.answer()
        return counted(trace.read_text()) / (_TRACED * MESSAGES)


def counted(trace: str) -> int:
    """The syncs between the two marks, which are syncs of a file that is none."""
    between, count = False, 0
    for given in _SYNC.findall(trace):
        if given == _NO_FILE:
            between = not between
        elif between:
            count += 1
    return count


def endings(peers: Sequence[Peer], task: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Kills, or two at once: nothing is timed, so two peers go side by side."""

    def one(peer: Peer) -> Any:
        with _child(peer, task) as child:
            return child.answer()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(one, peers))
    say(f"{'killed' if task == 'kills' else 'two at once'}: {len(peers)} peers")
    return {peer.name: answer for peer, answer in zip(peers, answers, strict=True)}


def chosen(names: Sequence[str]) -> list[Peer]:
    return [peer for peer in PEERS.values() if not names or peer.name in names]
