"""OpenViking: sessions as folders. What lies there is read in `reader`, judged in `checks`, repaired in `repairs`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from onefold.foreign import readonly
from onefold.foreign.findings import ForeignFinding, Progress
from onefold.foreign.openviking import reader
from onefold.foreign.openviking.checks import LOCK_LIFE, judge
from onefold.foreign.openviking.repairs import repair

__all__ = ["examine", "name", "recognises", "repair", "units", "users"]

name = "OpenViking"

_PID = ".openviking.pid"
_MOST = 200_000
_TRIES = 3


def recognises(path: Path) -> str | None:
    """A session's folder, or one with such folders below it. The version is told by what the archives say."""
    first = next(units(path), None)
    if first is None:
        return None
    for archive in reversed(reader.archive_names(first)):
        meta = reader.told(first / reader.HISTORY / archive / reader.META)
        if isinstance(meta.value.get("phase1"), dict):
            return "0.5, archives with the ids they keep"
        return "before 0.5, archives without the ids they keep"
    return "no archive yet"


def units(path: Path) -> Iterator[Path]:
    """The sessions at or below a path. Links are not followed."""
    for place, folders, files in islice(os.walk(path), _MOST):
        if _is_session(folders, files):
            folders.clear()
            yield Path(place)
        folders.sort()


def _is_session(folders: list[str], files: list[str]) -> bool:
    marks = {reader.META, reader.OVERVIEW, ".abstract.md"}.intersection(files)
    return reader.LIVE in files and (bool(marks) or reader.HISTORY in folders)


def users(path: Path, now: float) -> tuple[str, ...]:
    """Who has it in use: a server that says so, a lock that is still young, a process with a file open."""
    found = [f"process {pid}" for pid in sorted(set(_servers(path)))]
    files: list[Path] = []
    for unit in units(path):
        found += [f"lock {lock.name}" for lock in reader.locks(unit) if _young(lock, now)]
        files += [unit / file for file in readonly.signature(unit)]
    found += [f"process {pid}" for pid in readonly.users(files)]
    return tuple(dict.fromkeys(found))


def _servers(path: Path) -> Iterator[int]:
    place = path.absolute()
    for folder in (place, *place.parents):
        try:
            text = (folder / _PID).read_bytes()[:20].strip()
        except OSError:
            continue
        if text.isdigit() and readonly.alive(int(text), "openviking"):
            yield int(text)


def _young(lock: reader.Lock, now: float) -> bool:
    return lock.since is not None and now - lock.since <= LOCK_LIFE


def examine(unit: Path, *, name: str, now: float, progress: Progress) -> Iterator[ForeignFinding]:
    """Everything that is wrong in a session. If a program writes meanwhile, it is read again."""
    for _ in range(_TRIES):
        before = readonly.signature(unit)
        total = sum(size for _, size, _ in before.values())
        read = 0

        def seen(more: int, total: int = total) -> None:
            nonlocal read
            read += more
            progress(min(read, total), total)

        session = reader.read(unit, name, seen)
        if readonly.signature(unit) == before:
            break
    yield from judge(session, now, partial(reader.spelled, unit))
