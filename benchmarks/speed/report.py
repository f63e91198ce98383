"""What was measured, in words: for the terminal, as JSON, and as the page in `docs/`."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import apsw

from onefold.storage.sqlite.path_checks import MOUNTS, file_system

TIMES = "\N{MULTIPLICATION SIGN}"

_INTRODUCTION = """\
# Performance

This page is written by `make bench`. Run it again to get the numbers of your machine; it takes a few minutes and
ends with an error if a bound is not met. `make bench ARGS=--quick` is a short run with a smaller store, which leaves
this page alone. `ARGS="--dir FOLDER"` measures on another disk, `ARGS=--json` prints the same numbers as JSON.

Absolute speed is the disk's: a durable append waits for one fsync. So each bound is a **ratio within one run**. Its
two sides are measured in turn, round after round, so that a busy moment hits both, and the median of the rounds
counts.

- *Bare* is the least a program can do for a durable message: `BEGIN IMMEDIATE`, one `INSERT` of the same bytes into a
  one-table file, `COMMIT`, with the same SQLite and the same settings. Both sides are measured once their logs have
  reached their lasting size.
- An append does more than a bare insert: number, header, session row, turns with other threads and processes. What its
  SQL alone would reach stands under *Without a bound*; the rest is Python, which runs cold after each fsync.
- Messages are OpenAI chat messages of about 400 bytes. Every append is acknowledged only when it is on disk.
- The large and the small store have been compacted and have the same number of records after the cut.
- Appends during a compaction: a full window is summarised in the background for as long as the round takes, with its
  lease renewed four times a second, which is sixty times as often as by default. The slowest hundredth is that of all
  rounds of a side together. What is found in the messages is found by a process
  of its own, so that reading them does not compete with appends for Python.
- A session of a PostgreSQL store is held by a transaction of somebody else, on a server that is started for it. One
  process appends to another session meanwhile, and thirty-two of its threads wait for the held one.
- A follower's latency runs from the moment the append returned in one process to the moment another process has the
  record in its hands.
- Followers of a server are clients of `/api/events` in a process of their own, each with a token. Their
  latency begins in the writer's transaction, so that it has the disk in it; the server writes to a thousand of them ten
  times a second. A third of them is cut off halfway and resumes. `python -m benchmarks.speed.followers` measures this
  alone.
"""


@dataclass(frozen=True, slots=True)
class Bound:
    limit: float
    unit: str
    least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.limit:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    value: float
    unit: str
    detail: str = ""
    bound: Bound | None = None

    @property
    def met(self) -> bool | None:
        return None if self.bound is None else self.bound.holds(self.value)

    @property
    def measured(self) -> str:
        digits = 0 if self.value >= 100 else 1 if self.value >= 10 else 2
        return f"{self.value:,.{digits}f} {self.unit}"

    @property
    def verdict(self) -> str:
        return "" if self.met is None else "met" if self.met else "**not met**"


def missed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.met is False]


def machine(folder: Path) -> dict[str, str]:
    """What the numbers depend on."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file system": file_system(folder, MOUNTS.read_text() if MOUNTS.exists() else "") or "unknown",
        "Python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "settings": "journal_mode=WAL, synchronous=FULL",
        "load at the start": f"{load():.1f}",
    }


def as_text(rows: Sequence[Row]) -> str:
    wide = max(len(row.what) for row in rows)
    lines = []
    for row in rows:
        bound = f"{row.bound} {row.verdict.strip('*')}" if row.bound else ""
        lines.append(f"{row.what:{wide}}  {row.measured:>14}  {bound:16}  {row.detail}".rstrip())
    return "\n".join(lines)


def as_json(rows: Sequence[Row], facts: dict[str, str]) -> str:
    found = [
        {"what": r.what, "value": round(r.value, 4), "unit": r.unit, "detail": r.detail,
         "bound": str(r.bound) if r.bound else None, "met": r.met}
        for r in rows
    ]  # fmt: skip
    return json.dumps({"machine": facts, "rows": found, "met": not missed(rows)}, indent=2, ensure_ascii=False)


def as_page(rows: Sequence[Row], facts: dict[str, str], warning: str) -> str:
    bounded = [f"| {r.what} | {r.bound} | {r.measured} | {r.verdict} | {r.detail} |" for r in rows if r.bound]
    others = [f"| {r.what} | {r.measured} | {r.detail} |" for r in rows if not r.bound]
    parts = [
        _INTRODUCTION,
        *([f"**{warning}**\n"] if warning else []),
        "## Bounds\n",
        "| what | bound | measured | | in numbers |\n| --- | --- | --- | --- | --- |\n" + "\n".join(bounded) + "\n",
        "## Without a bound\n",
        "| what | measured | |\n| --- | --- | --- |\n" + "\n".join(others) + "\n",
        "## Measured on\n",
        "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in facts.items()) + "\n",
    ]
    return "\n".join(parts)


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):
        return "unknown"


def load() -> float:
    return os.getloadavg()[0] if sys.platform != "win32" else 0.0


def busy() -> str:
    """What to say when others use the machine; nothing when they do not."""
    if load() <= (os.cpu_count() or 1) / 4:
        return ""
    return (
        "The machine was busy when this run began. Its disk answers later then, which makes every way to append look "
        "alike: do not trust the first ratio, and measure again on a quiet machine."
    )
