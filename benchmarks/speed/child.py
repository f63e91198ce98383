"""What is measured in another process: `python -m benchmarks.speed.child NAME STORE …`.

A child says "ready", waits for a line, works, and says what it found as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

import onefold
from benchmarks.speed.stores import message
from onefold.model import Json

_LONGEST = 120.0


class Child:
    """A child as its parent sees it."""

    def __init__(self, name: str, store: Path | str, *args: object) -> None:
        self._name = name
        command = [sys.executable, "-m", "benchmarks.speed.child", name, str(store), *map(str, args)]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._limit = threading.Timer(_LONGEST, self._process.kill)

    def __enter__(self) -> Child:
        self._limit.start()
        self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.cancel()
        if error is not None:
            self._process.kill()
        self._process.communicate()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def found(self) -> Json:
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the child {self._name!r} ended without an answer")
        return line


def ready() -> None:
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("nobody is there any more")


def context(path: str) -> Json:
    """The memory of a process that opens a store and asks for a context, in bytes."""
    ready()
    before = _peak()
    with onefold.open(path, create=False) as store:
        messages = len(store.session("long", create=False).context().messages)
    return {"before": before, "peak": _peak(), "messages": messages}


def writers(path: str, threads: str, appends: str) -> Json:
    """When the first append of all threads began, when the last ended, and the longest one, in seconds."""
    waits: list[float] = []
    with onefold.open(path) as store:
        sessions = [store.session(f"writer-{os.getpid()}-{n}") for n in range(int(threads))]
        ready()
        start = time.monotonic()
        together([partial(_append_into, waits, session, int(appends)) for session in sessions])
        return {"start": start, "end": time.monotonic(), "appends": len(waits), "worst": max(waits)}


def follower(path: str, records: str) -> Json:
    """When each record was seen, by its number."""
    seen: dict[int, float] = {}
    with onefold.open(path) as store:
        session = store.session("followed")
        last = session.state.last
        ready()
        for record in session.follow(last, idle=30.0):
            seen[record.number] = time.monotonic()
            if len(seen) == int(records):
                break
    return seen


def idler(path: str, seconds: str) -> Json:
    """The share of a core that a follower takes while nothing happens."""
    with onefold.open(path) as store:
        session = store.session("quiet")
        last = session.state.last
        ready()
        for _ in session.follow(last, idle=1.0):
            raise RuntimeError("somebody writes to the quiet session")
        wall, used = time.monotonic(), time.process_time()
        for _ in session.follow(last, idle=float(seconds)):
            raise RuntimeError("somebody writes to the quiet session")
        return {"share": (time.process_time() - used) / (time.monotonic() - wall)}


def _append_into(waits: list[float], session: onefold.Session, count: int) -> None:
    waits += append_times(session, count)


def append_times(session: onefold.Session, count: int) -> list[float]:
    """How long each of so many appends took, one after another."""
    messages = [message(n) for n in range(count)]
    times = []
    for given in messages:
        began = time.perf_counter()
        session.append(given)
        times.append(time.perf_counter() - began)
    return times


def together(jobs: list[Callable[[], None]]) -> float:
    """Runs jobs in threads that start at once. Gives the seconds from the start to the end of the last one."""
    barrier = threading.Barrier(len(jobs) + 1)

    def run(job: Callable[[], None]) -> None:
        barrier.wait()
        job()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _peak() -> int:
    """The most memory this process has had. The kernel's count of the process, not of what it was started from."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def resident(pid: int) -> int:
    """The memory that a process has now, in bytes."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def used(pid: int) -> float:
    """The seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_with_ended(pid: int) -> float:
    """The same, with what those used that it started and that have ended since."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def live_server(*args: str) -> Json:
    from benchmarks.speed.followers import live_server

    return live_server(*args)


def live_followers(*args: str) -> Json:
    from benchmarks.speed.followers import live_clients

    return live_clients(*args)


def _load(name: str, *args: str) -> Json:
    from benchmarks.speed import load

    done: Json = getattr(load, name)(*args)
    return done


_WORK: dict[str, Callable[..., Json]] = {
    "context": context,
    "writers": writers,
    "follower": follower,
    "idler": idler,
    "live_server": live_server,
    "live_followers": live_followers,
    **{name: partial(_load, name) for name in ("agent", "worker", "followers")},
}

if __name__ == "__main__":
    print(json.dumps(_WORK[sys.argv[1]](*sys.argv[2:])), flush=True)
