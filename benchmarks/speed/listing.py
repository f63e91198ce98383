"""The list of sessions of a real server, with very many of them."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import onefold
from benchmarks.speed.child import Child
from benchmarks.speed.followers import TOKEN
from benchmarks.speed.report import Bound, Row
from benchmarks.speed.stores import message

_THREADS = 16
_TIMES = 30


def listed_sessions(folder: Path, sessions: int, say: Callable[[str], None]) -> list[Row]:
    say(f"a list of {sessions:,} sessions")
    path = folder / "list.db"
    with onefold.open(path) as store:

        def make(n: int) -> None:
            store.session(f"session-{n}").append(message(n))

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(make, range(sessions)))
        with Child("live_server", path) as server:
            server.go()
            place = server.found()
            try:
                first, *later = (_asked(place["port"]) for _ in range(_TIMES + 1))
            finally:
                os.kill(place["pid"], signal.SIGTERM)
    return [
        Row(
            f"the list of {sessions:,} sessions, a page of 100, over HTTP",
            median(later) * 1e3,
            "ms",
            f"{first * 1e3:.0f} ms the first time after the server started, {max(later) * 1e3:.0f} at most",
            Bound(100, "ms"),
        )
    ]


def _asked(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    began = time.perf_counter()
    connection.request("GET", "/api/sessions?limit=100", headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != 200 or not body:
        raise RuntimeError(f"the list of sessions was refused: {answer.status} {body[:200]!r}")
    return took
