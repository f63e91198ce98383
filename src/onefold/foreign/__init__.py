"""Checks and repairs the stores of other programs: what is wrong, what it means, what can be done.

`examine` only reads, `repair_store` repairs, `dry_run` reports what a repair would do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from onefold.errors import StoreError
from onefold.foreign.detection import ForeignStore, store_at
from onefold.foreign.findings import ForeignFinding, Progress, chosen, ills, pressing
from onefold.foreign.readonly import sqlite_store, sqlite_users, unsound
from onefold.foreign.repair import (
    Outcome,
    RepairAborted,
    Repaired,
    StoreInUse,
    dry_run_database,
    dry_run_folder,
    repair_database,
    repair_folder,
    unit_name,
)

__all__ = [
    "Examination",
    "ForeignFinding",
    "ForeignStore",
    "Outcome",
    "Progress",
    "RepairAborted",
    "Repaired",
    "StoreInUse",
    "chosen",
    "dry_run",
    "examine",
    "ills",
    "pressing",
    "repair_store",
    "store_at",
]


@dataclass(frozen=True)
class Examination:
    """The result of checking a store."""

    store: ForeignStore
    users: tuple[str, ...]
    """Who has it open, in words. A store in use is not repaired."""
    units: int
    """How many folders were checked; 1 for a database."""
    findings: tuple[ForeignFinding, ...]


def examine(store: ForeignStore, *, now: float, progress: Progress) -> Examination:
    """Checks a store of another program, and changes nothing."""
    if store.database is not None:
        return _examine_database(store, now, progress)
    if store.folder is None:
        raise ValueError("a store of onefold is checked by Store.verify")
    program, path = store.folder, store.path
    units = list(program.units(path))
    findings: list[ForeignFinding] = []
    for number, unit in enumerate(units):

        def seen(done: int, total: int, number: int = number) -> None:
            progress(number * 1000 + 1000 * done // max(total, 1), len(units) * 1000)

        findings += program.examine(unit, name=unit_name(path, unit), now=now, progress=seen)
    return Examination(store, program.users(path, now), len(units), tuple(findings))


def _examine_database(store: ForeignStore, now: float, progress: Progress) -> Examination:
    assert store.database is not None
    users = tuple(f"process {pid}" for pid in sqlite_users(store.path))
    findings: list[ForeignFinding] = []
    with sqlite_store(store.path) as sight:
        if wrong := unsound(sight.connection):
            findings.append(_damaged(store, wrong))
        try:
            findings += store.database.examine(sight.connection, now=now, progress=progress)
        except apsw.Error as error:
            if not findings:
                findings.append(_damaged(store, [str(error)]))
    return Examination(store, users, 1, tuple(findings))


def _damaged(store: ForeignStore, wrong: Sequence[str]) -> ForeignFinding:
    return ForeignFinding(
        kind="damaged-file",
        key=store.path.name,
        where=str(store.path),
        wrong=f"SQLite finds the file damaged: {'; '.join(wrong)}",
        means="Parts of it cannot be read, whatever program opens it. Nothing else in it is repaired.",
        remedy="Restore a backup, or rescue what can be read with `sqlite3 FILE .recover`.",
        damage=True,
        facts={"lines": list(wrong)},
    )


def repair_store(store: ForeignStore, only: Sequence[str], *, backups: Path, now: float, progress: Progress) -> Outcome:
    """Repairs the chosen findings, by id or by kind; without a choice, everything repairable."""
    with _told(store):
        if store.database is not None:
            return repair_database(store.path, store.database, only, backups=backups, now=now, progress=progress)
        if store.folder is None:
            raise ValueError("a store of onefold is repaired by Store.verify")
        return repair_folder(store.path, store.folder, only, backups=backups, now=now)


def dry_run(store: ForeignStore, only: Sequence[str], *, now: float, progress: Progress) -> Outcome:
    """What `repair_store` would do, tried on a copy. The store is only read."""
    with _told(store):
        if store.database is not None:
            return dry_run_database(store.path, store.database, only, now=now, progress=progress)
        if store.folder is None:
            raise ValueError("a store of onefold is repaired by Store.verify")
        return dry_run_folder(store.path, store.folder, only, now=now)


@contextlib.contextmanager
def _told(store: ForeignStore) -> Iterator[None]:
    try:
        yield
    except (OSError, apsw.Error) as error:
        raise StoreError(f"the repair of {store.path} failed: {error}. What it did not repair is unchanged") from error
