"""The store of plain files, against the shortest durable way to add a line to a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import onefold
from benchmarks.speed.report import TIMES, Bound, Row
from benchmarks.speed.stores import message
from onefold.messages import encode

_OPENED = 5
"""How often a store is opened and listed."""


class BareFile:
    """A file, and what a durable line in it costs at least."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, line: bytes) -> None:
        os.write(self._fd, line)
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def append_to_files(folder: Path, appends: int, rounds: int, say: Callable[[str], None]) -> Row:
    say("durable append to plain files, against a bare write and fdatasync")
    bare = BareFile(folder / "bare.jsonl")
    given = [message(n) for n in range(appends)]
    with onefold.open(f"{folder / 'files'}/") as store:
        session = store.session("one")
        session.append(given[0])
        newest = folder / "files" / "one" / "0000000000.jsonl"
        around = len(newest.read_bytes().splitlines()[-1]) - len(encode(given[0]))
        lines = [encode(m).encode() + b" " * around + b"\n" for m in given]  # as long as the store's own

        def ours() -> float:
            began = time.perf_counter()
            for m in given:
                session.append(m)
            return time.perf_counter() - began

        def theirs() -> float:
            began = time.perf_counter()
            for line in lines:
                bare.add(line)
            return time.perf_counter() - began

        ours(), theirs()
        pairs = [(ours(), theirs()) for _ in range(rounds)]
    bare.close()
    mine, least = (median(side) / appends for side in zip(*pairs, strict=True))
    return Row(
        "durable append to plain files, against a bare write and fdatasync",
        median(b / a for a, b in pairs),
        TIMES,
        f"{1 / mine:,.0f} against {1 / least:,.0f} a second, {(mine - least) * 1e3:.2f} ms more each",
        Bound(0.7, TIMES, least=True),
    )


def list_of_files(folder: Path, sessions: int, say: Callable[[str], None]) -> Row:
    """From nothing: opening looks at every session's files."""
    say(f"the list of {sessions:,} sessions of plain files")
    path = f"{folder / 'many'}/"
    with onefold.open(path) as store:
        for n in range(sessions):
            store.session(f"session-{n:05}").append(message(n))
    times = []
    for _ in range(_OPENED):
        began = time.perf_counter()
        with onefold.open(path, create=False) as store:
            opened = time.perf_counter() - began
            found = sum(1 for _ in store.sessions())
            times.append((time.perf_counter() - began, opened))
        if found != sessions:
            raise RuntimeError(f"{sessions} sessions were made, and {found} are listed")
    took, opened = sorted(times)[_OPENED // 2]
    return Row(
        f"opening a store of plain files and listing {sessions:,} sessions",
        took,
        "s",
        f"{opened:.2f} s of it to look at every session's files; {max(times)[0]:.2f} s at most",
        Bound(1, "s"),
    )
