"""Live events of a real server: many followers of one session, a third of them cut off and resumed on the way.

The server, the followers and the writer are three processes. A record's latency runs from its transaction in the
writer to the moment a follower has it in its hands, the disk included.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import onefold
from benchmarks.speed.child import Child, ready, resident, used
from benchmarks.speed.report import Bound, Row
from benchmarks.speed.stores import message
from onefold.model import Json

TOKEN = "onefold-bench-token-0123456789"
_AT = re.compile(rb'"at":([0-9.]+)')
_TIMED = 20
"""One follower in so many is timed: all of them would be measuring the bench."""
_HELLO = b"event: hello"


def live_followers(folder: Path, followers: int, records: int, rate: float, say: Callable[[str], None]) -> list[Row]:
    say(f"{followers:,} followers of a server, at {rate:g} records a second")
    path = folder / "live.db"
    with onefold.open(path) as store, Child("live_server", path) as server:
        session = store.session("live")
        server.go()
        place = server.found()
        try:
            before = resident(place["pid"])
            with Child("live_followers", path, place["port"], followers, session.state.last, records) as clients:
                clients.go()
                clients.found()  # all of them are connected
                after, cpu = resident(place["pid"]), used(place["pid"])
                _write(session, records, rate)
                found = clients.found()
            grown, cpu = resident(place["pid"]), used(place["pid"]) - cpu
        finally:
            os.kill(place["pid"], signal.SIGTERM)
    times = sorted(found["times"])
    many = f"{followers:,} followers at {rate:g} records a second"
    wrong = found["missing"] + found["repeated"]
    return [
        Row(
            f"{many}, delivery p50",
            median(times) * 1e3,
            "ms",
            f"the server takes {cpu / records * rate:.0%} of a core, the followers {found['cpu'] / records * rate:.0%}",
        ),
        Row(f"{many}, delivery p99", times[int(len(times) * 0.99)] * 1e3, "ms", f"worst {times[-1] * 1e3:.0f} ms"),
        Row(
            f"{many}, memory of the server",
            (after - before) / followers / 1024,
            "KiB a follower",
            f"{(grown - before) / followers / 1024:.1f} KiB after {records} records",
            Bound(100, "KiB a follower"),
        ),
        Row(
            f"{many}, lost or repeated",
            wrong,
            "records",
            f"{found['resumed']} of them were cut off and resumed; {found['seen']:,} records delivered",
            Bound(0, "records"),
        ),
    ]


def _write(session: onefold.Session, records: int, rate: float) -> None:
    pause, began = threading.Event(), time.monotonic()
    for n in range(records):
        pause.wait(max(0.0, began + n / rate - time.monotonic()))
        session.append(message(n))


def live_server(path: str) -> Json:
    """Serves a store until SIGTERM, with the guard, and without a bound on how often one token may connect."""
    from onefold.server.app import create_app
    from onefold.server.run import log_to, serve
    from onefold.server.security.tokens import Tokens
    from onefold.server.settings import Settings

    ready()
    log_to(level="warning")
    settings = Settings(port=0, rate=0)
    store = onefold.open(path, create=False)
    with tempfile.TemporaryDirectory(prefix="onefold-bench-") as folder:
        tokens = Tokens(Path(folder) / "tokens.json", environ={"ONEFOLD_TOKEN": TOKEN})

        def listening(url: str) -> None:
            print(json.dumps({"port": int(url.rpartition(":")[2]), "pid": os.getpid()}), flush=True)

        serve(store, settings, lambda hub: create_app(store, settings, tokens, hub), listening)
    return {}


def live_clients(path: str, port: str, followers: str, after: str, records: str) -> Json:
    from onefold.server.run import make_room

    make_room(int(followers))
    ready()
    return asyncio.run(_follow_all(int(port), int(followers), int(after), int(records)))


class _Follower(asyncio.Protocol):
    """One follower. It is cheap to run, so that what is measured is the server."""

    def __init__(self, port: int, after: int, last: int, *, timed: bool, cut_at: int | None) -> None:
        self._port = port
        self.seen = after
        self._last = last
        self._timed = timed
        self._cut_at = cut_at
        self.missing = self.repeated = self.count = 0
        self.resumed = False
        self.times: list[float] = []
        self.connected = asyncio.Event()
        self._rest = b""
        self._closed = asyncio.Event()

    async def run(self) -> None:
        while self.seen < self._last:
            self._closed.clear()
            self._rest = b""
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
            await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(
            f"GET /api/events?session=live HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nLast-Event-ID: {self.seen}\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set()

    def data_received(self, data: bytes) -> None:
        if not self.connected.is_set() and _HELLO in data:
            self.connected.set()
        whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        self._take(whole)
        cut = self._cut_at is not None and self.seen >= self._cut_at
        if cut:
            self._cut_at, self.resumed = None, True
        if cut or self.seen >= self._last:
            self._transport.abort()

    def _take(self, text: bytes) -> None:
        before, *after = text.split(b"\nevent: record\n")
        for data in after:
            number = int(before[before.rfind(b"id: ") + 4 :])
            self.repeated += number <= self.seen
            self.missing += max(0, number - self.seen - 1)
            self.seen = max(self.seen, number)
            before = data
        self.count += len(after)
        if self._timed:
            now = time.time()
            self.times += [now - float(_AT.search(data)[1]) for data in after]  # type: ignore[index]


async def _follow_all(port: int, followers: int, after: int, records: int) -> Json:
    last = after + records
    half = after + records // 2
    everybody = [
        _Follower(port, after, last, timed=n % _TIMED == 0, cut_at=half if n % 3 == 0 else None)
        for n in range(followers)
    ]
    tasks = []
    for n, follower in enumerate(everybody):
        tasks.append(asyncio.create_task(follower.run()))
        if n % 50 == 49:
            await follower.connected.wait()
    for follower in everybody:
        await follower.connected.wait()
    print(json.dumps({"connected": followers}), flush=True)
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    return {
        "cpu": time.process_time(),
        "times": [t for f in everybody for t in f.times],
        "missing": sum(f.missing for f in everybody),
        "repeated": sum(f.repeated for f in everybody),
        "resumed": sum(f.resumed for f in everybody),
        "seen": sum(f.count for f in everybody),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="onefold-bench-") as made:
        for row in live_followers(Path(made), 1_000, 500, 50.0, lambda what: print(what, file=sys.stderr)):
            print(f"{row.what}: {row.measured}  {row.detail}")
