"""What machines ask a server: whether it lives, whether it can work, and its numbers in Prometheus' text format.

A server sees every change of its store, whoever makes it, so most numbers are of the whole store; they count from the
start of this process. What stands in the store now is looked up when it is asked for.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from onefold.errors import OnefoldError
from onefold.journal.seam import Transaction
from onefold.store import Store

if TYPE_CHECKING:
    from onefold.server.live import Hub

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LONG = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*(f"{b:g}" for b in self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Counts:
    """What was counted since this process began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.appends = self.takeovers = self.lease_errors = 0
        self.compactions: dict[tuple[str, str], int] = {}
        self.refusals: dict[str, int] = {}
        self.append_seconds = Histogram(_QUICK)
        self.compaction_seconds = Histogram(_LONG)

    def appended(self, messages: int) -> None:
        with self._lock:
            self.appends += messages

    def answered(self, seconds: float) -> None:
        with self._lock:
            self.append_seconds.add(seconds)

    def compacted(self, state: str, trigger: str) -> None:
        with self._lock:
            self.compactions[state, trigger] = self.compactions.get((state, trigger), 0) + 1

    def took(self, seconds: float) -> None:
        with self._lock:
            self.compaction_seconds.add(seconds)

    def refused(self, reason: str) -> None:
        with self._lock:
            self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def taken_over(self) -> None:
        with self._lock:
            self.takeovers += 1

    def lease_failed(self) -> None:
        with self._lock:
            self.lease_errors += 1


def routes(hub: Hub) -> list[BaseRoute]:
    """`/healthz` and `/readyz`, which need no token, and `/metrics`."""

    def lives(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def ready(request: Request) -> Response:
        why = "the server is about to end" if hub.draining else not_ready(hub.store)
        return JSONResponse({"status": "not ready" if why else "ok", **({"cause": why} if why else {})},
                            503 if why else 200)  # fmt: skip

    def numbers(request: Request) -> Response:
        return Response(text(hub), media_type=_TYPE)

    return [
        Route("/healthz", lives, methods=["GET"], include_in_schema=False),
        Route("/readyz", ready, methods=["GET"], include_in_schema=False),
        Route("/metrics", numbers, methods=["GET"], include_in_schema=False),
    ]


def not_ready(store: Store) -> str | None:
    """Why the store cannot be used, if it cannot. The write lock is asked for, and nothing is written."""
    backend = store.journal.backend
    try:
        backend.read(lambda tx: tx.now)
        backend.write("", lambda tx: tx.now)
    except OnefoldError as error:
        return str(error)
    return None


def text(hub: Hub) -> str:
    counts, store = hub.observer.counts, hub.store
    now, waiting, active = store.journal.backend.read(lambda tx: _compactions(store, tx))
    sizes = _sizes(store.address)
    lines = [
        *_one("appends_total", "counter", "Messages appended to the store, by any process.", counts.appends),
        *_head("append_seconds", "histogram", "Seconds to answer an append that came through this server."),
        *counts.append_seconds.lines("onefold_append_seconds"),
        *_head("compactions_total", "counter", "Compactions that ended, by any process."),
        *_labelled("compactions_total", {f'state="{s}",trigger="{_safe(t)}"': n
                                         for (s, t), n in sorted(counts.compactions.items())}),
        *_one("compactions_active", "gauge", "Compactions that somebody works on now.", active),
        *_head("compaction_seconds", "histogram", "Seconds from the last claim of a compaction to its commit."),
        *counts.compaction_seconds.lines("onefold_compaction_seconds"),
        *_one("oldest_request_seconds", "gauge", "How long the oldest open compaction has been waited for; 0 if none.",
              round(max(0.0, now - min(waiting, default=now)), 3)),
        *_head("commit_refused_total", "counter", "Summaries that were not accepted, by the check they failed."),
        *_labelled("commit_refused_total", {f'reason="{_safe(r)}"': n for r, n in sorted(counts.refusals.items())}),
        *_one("takeovers_total", "counter", "Compactions claimed from a holder that was not heard of again.",
              counts.takeovers),
        *_one("lease_errors_total", "counter", "Warnings of this process that a lease could not be read or renewed.",
              counts.lease_errors),
        *_one("store_bytes", "gauge", "Size of the store's file.", sizes[0]),
        *_one("wal_bytes", "gauge", "Size of its log.", sizes[1]),
        *_one("followers", "gauge", "Clients that follow live events now.", hub.followers),
        *_one("follower_drops_total", "counter", "Followers that were too slow and were told to resume.", hub.drops),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _compactions(store: Store, tx: Transaction) -> tuple[float, list[float], int]:
    waiting = tx.compactions(None, open_only=True)
    active = sum(store.journal.leases.held_until(tx, c) is not None for c in waiting)
    return tx.now, [c.requested_at for c in waiting], active


def _sizes(address: str) -> tuple[int, int]:
    """Of the store and its log; 0 where there is no file."""
    sizes = [0, 0]
    for n, path in enumerate((address, f"{address}-wal")):
        with suppress(OSError):
            sizes[n] = Path(path).stat().st_size
    return sizes[0], sizes[1]


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP onefold_{name} {words}", f"# TYPE onefold_{name} {kind}"]


def _one(name: str, kind: str, words: str, value: float) -> list[str]:
    return [*_head(name, kind, words), f"onefold_{name} {value}"]


def _labelled(name: str, values: Mapping[str, int]) -> list[str]:
    return [f"onefold_{name}{{{labels}}} {value}" for labels, value in values.items()]


def _safe(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
