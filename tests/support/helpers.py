"""What tests share: children that are real processes, barriers between them, conversations, and short policies.

A child runs one function of a module of tests, by default `tests.support.children`. It speaks to the test in JSON
lines: what it says goes out on stdout, what it hears comes in on stdin. Every wait here ends by itself, on both sides.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from onefold import Context, Policy, Record, Session, Store
from onefold.ids import system_clock
from onefold.journal.process_liveness import Whereabouts
from onefold.messages import codec
from onefold.messages.context_text import EARLIER
from onefold.model import Json
from onefold.storage.base import Transaction
from verification.operations import talk

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
"""How many seconds a test waits for a child before it fails."""
LONGEST = 100
"""How many seconds a child lives at most, whatever becomes of its test."""

_RUN = "from tests.support.helpers import run_child; run_child()"
_END = object()


def said_in(context: Context) -> tuple[list[Json], int]:
    """The messages of a context and their size, without the line that stands before a model's words at its head."""
    line = {"role": "user", "content": EARLIER}
    if context.messages[:1] != [line]:
        return context.messages, context.tokens
    return context.messages[1:], context.tokens - codec("openai-chat").header(line).tokens


def thought_in(session: Session, context: Context) -> int:
    """How much larger the messages of a context are in the journal: by reasoning, which is left out of old ones."""
    records = {r.number: r for r in session.read() if r.kind == "message"}
    shown = zip(context.numbers, context.formats, context.messages, strict=True)
    told = sum(codec(format).header(body).tokens for number, format, body in shown if number in records)
    whole = [records[n].header for n in (*context.numbers, *context.left_out) if n in records]
    return sum(header.tokens for header in whole if header is not None) - told


class Clock:
    """The time, which a test can put forward: past a lease without waiting for its end."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return system_clock() + self.ahead


class Elsewhere:
    """A machine that cannot tell its processes from others: only a lease says anything about them."""

    def this(self) -> Json:
        return None

    def whereabouts(self, process: Json) -> Whereabouts:
        return "elsewhere"


class Child:
    """A process that runs `function(**arguments)`. Killed at the end of its `with` block, if it still lives."""

    def __init__(self, function: str, *, module: str = "tests.support.children", **arguments: Json) -> None:
        self.name = function
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, module, function, json.dumps(arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[Any] = queue.Queue()
        self._complaints: list[str] = []
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read_lines, self._read_complaints)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for thread in self._threads:
            thread.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, word: str, **details: Json) -> None:
        """Tells the child something, which it gets from `hear`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"word": word, **details}) + "\n")
        self._process.stdin.flush()

    def hear(self, *words: str) -> dict[str, Json]:
        """The next thing the child says, which has to be one of these."""
        word = " or ".join(words)
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"child {self.name!r} did not say {word!r} in {PATIENCE} s") from None
        if line is _END:
            code = self._process.wait(PATIENCE)
            self._threads[1].join(PATIENCE)
            said = "".join(self._complaints)
            raise AssertionError(f"child {self.name!r} ended ({code}) before it said {word!r}\n{said}")
        heard: dict[str, Json] = json.loads(line)
        assert heard["word"] in words, f"child {self.name!r} said {heard}, not {word!r}"
        return heard

    def silent(self) -> bool:
        """Whether it has said nothing that was not heard yet."""
        return self._lines.empty()

    def end(self) -> int:
        """Waits for the child to end by itself; its exit code."""
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL, and waits until the process is gone and its locks with it."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def die(self) -> None:
        """SIGKILL, and nobody asks how it ended: what is left of the process stays, as under a careless supervisor."""
        self._process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        """SIGSTOP, and waits until the process stands still."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(_END)

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)


@contextlib.contextmanager
def restless(store: Store, sessions: Sequence[str], tick: Callable[[], object] = int) -> Iterator[list[str]]:
    """After each look that anybody takes at the store, the session that was quiet for longest is written to. So a list
    by activity has another order each time its next page is asked for. Gives the ids of those that were written to."""
    backend = store.journal.backend
    quiet = deque(store.session(id, create=False) for id in sessions)
    written: list[str] = []
    look = backend.read
    busy = threading.local()

    def read(work: Callable[[Transaction], Any]) -> Any:
        found = look(work)
        if not getattr(busy, "writes", False):
            busy.writes = True
            try:
                tick()
                quiet[0].append({"role": "user", "content": "and another thing"})
                written.append(quiet[0].id)
                quiet.rotate(-1)
            finally:
                busy.writes = False
        return found

    with mock.patch.object(backend, "read", read):
        yield written


def together(*children: Child, word: str = "go", **details: Json) -> None:
    """A barrier: waits until every child has said "ready", then tells them all to go."""
    for child in children:
        child.hear("ready")
    for child in children:
        child.say(word, **details)


# ---------------------------------------------------------------------- the child's side

_speaking = threading.Lock()


def say(word: str, **details: Json) -> None:
    """Tells the test something. For children only."""
    with _speaking:
        print(json.dumps({"word": word, **details}), flush=True)


def hear(word: str | None = None) -> dict[str, Json]:
    """Waits for what the test says next. Ends this process if the test is gone. For children only."""
    line = sys.stdin.readline()
    if not line:
        os._exit(3)
    heard: dict[str, Json] = json.loads(line)
    assert word is None or heard["word"] == word, f"expected {word!r}, heard {heard}"
    return heard


def at_barrier(word: str = "go") -> dict[str, Json]:
    """Says "ready", and waits for the others. For children only."""
    say("ready")
    return hear(word)


def run_child() -> None:
    """Where a child begins: module, function and arguments are on its command line."""
    signal.alarm(LONGEST)
    module, function, arguments = sys.argv[1:4]
    getattr(importlib.import_module(module), function)(**json.loads(arguments))


# ---------------------------------------------------------------------- conversations and policies


def quick(**changes: Json) -> Policy:
    """A policy for small conversations: no waits after a failure, a lease that nobody has to wait out for long, and no
    quotes, which have tests of their own."""
    numbers: dict[str, Json] = {
        "quote_tokens": 0,
        "tail_tokens": 60,
        "backoff": (0.0,),
        "lease": 20.0,
        "lease_renew_interval": 15.0,
        "attempt_timeout": 60.0,
        "wait_timeout": 30.0,
    }
    return Policy(**{**numbers, **changes})


def converse(session: Session, count: int, *, start: int = 1, words: int = 12) -> list[Json]:
    """Appends so many messages in one go, and gives them back."""
    said = talk(count, start=start, words=words)
    session.append(said)
    return said


def kinds(session: Session, start: int = 1) -> list[str]:
    """What happened to a session, record by record."""
    return [record.kind for record in session.read(start)]


def counted(session: Session, kind: str) -> int:
    return kinds(session).count(kind)


def await_record(session: Session, kind: str, *, after: int = 0, times: int = 1) -> Record:
    """Follows the journal until it has this kind of record, so many times, and gives the last of them."""
    for record in session.follow(after, idle=PATIENCE):
        if record.kind == kind:
            times -= 1
            if times == 0:
                return record
    raise AssertionError(f"session {session.id!r}: no {kind!r} came in {PATIENCE} s; there are {kinds(session)}")


def contents(messages: Sequence[Json]) -> list[str]:
    """The texts of messages, for comparing."""
    return [m["content"] for m in messages]
