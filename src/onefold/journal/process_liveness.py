"""Which process made a claim, and whether it is certainly gone: what a machine knows of its own processes.

A process id alone says little: numbers are used again, and in another container or on another machine the same number
is another process. So a process is named by three things: the running machine as seen from its namespaces, its number,
and when it began. Whoever is on the same machine, in the same namespaces, can then tell that it is gone: nothing has
that number, or something that began at another time, or only what is left of it until somebody asks how it ended.

Whatever cannot be told counts as alive, and then its lease decides.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from onefold.model import Json

Whereabouts: TypeAlias = Literal["here", "gone", "elsewhere"]
"""Of a process: on this machine and not known to be gone; certainly gone; or where nobody here can tell."""

_STATE, _THREADS, _START = 0, 17, 19
"""Where they stand in `/proc/PID/stat` after the name, which may have spaces and parentheses of its own."""
_NUMBERS = range(1, 1 << 31)


class Machine(Protocol):
    """What knows processes. It is passed in, so that tests say who is alive."""

    def this(self) -> Json:
        """This process as its claims name it; None where it could not be told apart from others."""

    def whereabouts(self, process: Json) -> Whereabouts:
        """What is known now of a process that was named by `this`, here or elsewhere."""


class Linux:
    """A machine with `/proc`. On any other it knows nothing, and every process is elsewhere."""

    def __init__(self, proc: Path = Path("/proc"), kill: Callable[[int, int], None] = os.kill) -> None:
        self._proc = proc
        self._kill = kill
        self._known: tuple[int, Json] | None = None

    def this(self) -> Json:
        pid = os.getpid()
        if self._known is None or self._known[0] != pid:
            self._known = pid, self._look_at(pid)
        return self._known[1]

    def forget(self) -> None:
        """In a forked child, which is another process, and in a namespace of its own may have the same number."""
        self._known = None

    def whereabouts(self, process: Json) -> Whereabouts:
        here = self.this()
        if here is None or not _well_formed(process) or process["machine"] != here["machine"]:
            return "elsewhere"
        pid = process["pid"]
        try:
            state, threads, start = self._stat(pid)
        except (FileNotFoundError, ProcessLookupError):
            return "gone" if self._no_such(pid) else "here"  # others' processes may be hidden from this user
        except (OSError, ValueError, IndexError):
            return "here"
        # The first thread of a process may have ended while others go on: then it looks like one that nobody has
        # waited for, but for their count.
        ended = state in ("Z", "X", "x") and threads <= 1
        return "gone" if ended or start != process["start"] else "here"

    def _no_such(self, pid: int) -> bool:
        try:
            self._kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _look_at(self, pid: int) -> Json:
        try:
            if (self._proc / "self").readlink().name != str(pid):
                return None  # it shows the processes of another namespace
            boot = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
            spaces = [self._space("pid"), self._space("time", "none")]  # starts are told in the reader's own time
            start = self._stat(pid)[2]
        except (OSError, ValueError, IndexError):
            return None
        machine = hashlib.sha256(" ".join([boot, *spaces]).encode()).hexdigest()[:20]
        return {"machine": machine, "pid": pid, "start": start}

    def _space(self, name: str, without: str | None = None) -> str:
        try:
            found = (self._proc / "self/ns" / name).stat()
        except FileNotFoundError:
            if without is None:
                raise
            return without
        return f"{found.st_dev}:{found.st_ino}"

    def _stat(self, pid: int) -> tuple[str, int, int]:
        """How a process is, how many threads it has, and when it began, in ticks since the machine did."""
        words = (self._proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return words[_STATE], int(words[_THREADS]), int(words[_START])


def _well_formed(process: Json) -> bool:
    """A claim may come from an older program, or a newer one, or a store that somebody wrote by hand."""
    return (
        isinstance(process, dict)
        and isinstance(process.get("machine"), str)
        and type(process.get("pid")) is int
        and process["pid"] in _NUMBERS
        and type(process.get("start")) is int
    )


MACHINE = Linux()
os.register_at_fork(after_in_child=MACHINE.forget)
