"""Numbers in Prometheus' text format: what a process has counted since it began, and what stands in its store now."""

from __future__ import annotations

import bisect
import stat
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from onefold.storage.base import Transaction
from onefold.storage.locations import is_folder, path_of
from onefold.store import Store

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LONG = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
        self.append_seconds = Histogram(QUICK)
        self.compaction_seconds = Histogram(LONG)

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


def compactions(counts: Counts, store: Store) -> list[str]:
    """Of compactions: what was counted, and what is open now."""
    now, waiting, active = store.journal.backend.read(lambda tx: _open(store, tx))
    return [
        *head("compactions_total", "counter", "Compactions that ended, by any process."),
        *labelled("compactions_total", {f'state="{s}",trigger="{_safe(t)}"': n
                                        for (s, t), n in sorted(counts.compactions.items())}),
        *one("compactions_active", "gauge", "Compactions that somebody works on now.", active),
        *head("compaction_seconds", "histogram", "Seconds from the last claim of a compaction to its commit."),
        *counts.compaction_seconds.lines("onefold_compaction_seconds"),
        *one("oldest_request_seconds", "gauge", "How long the oldest open compaction has been waited for; 0 if none.",
             round(max(0.0, now - min(waiting, default=now)), 3)),
        *head("commit_refused_total", "counter", "Summaries that were not accepted, by the check they failed."),
        *labelled("commit_refused_total", {f'reason="{_safe(r)}"': n for r, n in sorted(counts.refusals.items())}),
        *one("takeovers_total", "counter", "Compactions claimed from a holder that was not heard of again.",
             counts.takeovers),
        *one("lease_errors_total", "counter", "Warnings of this process that a lease could not be read or renewed.",
             counts.lease_errors),
    ]  # fmt: skip


def sizes(store: Store) -> list[str]:
    """Of the store and its log; 0 where there is no file. Of plain files: everything in the folder."""
    path = path_of(store.address)
    files = path.rglob("*") if is_folder(store.address) else [path]
    return [
        *one("store_bytes", "gauge", "Size of the store's file, or of all its files.", sum(map(_size, files))),
        *one("wal_bytes", "gauge", "Size of its log.", _size(path.with_name(f"{path.name}-wal"))),
    ]


def _size(file: Path) -> int:
    """0 for a folder, and for a file that is not there: it may have gone a moment ago."""
    try:
        found = file.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _open(store: Store, tx: Transaction) -> tuple[float, list[float], int]:
    waiting = [*tx.open_compactions()]
    active = sum(store.journal.leases.held(tx, c) is not None for c in waiting)
    return tx.now, [c.requested_at for c in waiting], active


def head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP onefold_{name} {words}", f"# TYPE onefold_{name} {kind}"]


def one(name: str, kind: str, words: str, value: float) -> list[str]:
    return [*head(name, kind, words), f"onefold_{name} {value}"]


def labelled(name: str, values: Mapping[str, int]) -> list[str]:
    return [f"onefold_{name}{{{labels}}} {value}" for labels, value in values.items()]


def _safe(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
