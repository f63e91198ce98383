"""Finds and mends the damage in stores that other programs left: what is wrong, what it means, what can be done.

`examine` looks and changes nothing, `mend` repairs, `rehearse` says what a repair would do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from onefold.doctor.findings import Finding, Progress, chosen, ills, pressing
from onefold.doctor.looking import sqlite_store, sqlite_users, unsound
from onefold.doctor.recognise import Store, store_at
from onefold.doctor.repairing import (
    CannotMend,
    InUse,
    Mended,
    Outcome,
    mend_database,
    mend_folder,
    rehearse_database,
    rehearse_folder,
    unit_name,
)
from onefold.errors import StoreError

__all__ = [
    "CannotMend",
    "Examined",
    "Finding",
    "InUse",
    "Mended",
    "Outcome",
    "Progress",
    "Store",
    "chosen",
    "examine",
    "ills",
    "mend",
    "pressing",
    "rehearse",
    "store_at",
]


@dataclass(frozen=True)
class Examined:
    """What a look at a store gave."""

    store: Store
    users: tuple[str, ...]
    """Who has it in use, in words. Then it is not repaired."""
    units: int
    """How many folders were looked at; 1 for a database."""
    findings: tuple[Finding, ...]


def examine(store: Store, *, now: float, progress: Progress) -> Examined:
    """Looks at a store of another program, and changes nothing."""
    if store.database is not None:
        return _examine_database(store, now, progress)
    if store.folder is None:
        raise ValueError("a store of onefold is looked at by Store.verify")
    program, path = store.folder, store.path
    units = list(program.units(path))
    findings: list[Finding] = []
    for number, unit in enumerate(units):

        def seen(done: int, total: int, number: int = number) -> None:
            progress(number * 1000 + 1000 * done // max(total, 1), len(units) * 1000)

        findings += program.examine(unit, name=unit_name(path, unit), now=now, progress=seen)
    return Examined(store, program.users(path, now), len(units), tuple(findings))


def _examine_database(store: Store, now: float, progress: Progress) -> Examined:
    assert store.database is not None
    users = tuple(f"process {pid}" for pid in sqlite_users(store.path))
    findings: list[Finding] = []
    with sqlite_store(store.path) as sight:
        if wrong := unsound(sight.connection):
            findings.append(_damaged(store, wrong))
        try:
            findings += store.database.examine(sight.connection, now=now, progress=progress)
        except apsw.Error as error:
            if not findings:
                findings.append(_damaged(store, [str(error)]))
    return Examined(store, users, 1, tuple(findings))


def _damaged(store: Store, wrong: Sequence[str]) -> Finding:
    return Finding(
        kind="damaged-file",
        key=store.path.name,
        where=str(store.path),
        wrong=f"SQLite finds the file damaged: {'; '.join(wrong)}",
        means="Parts of it cannot be read, whatever program opens it. Nothing else in it is repaired.",
        remedy="Restore a backup, or rescue what can be read with `sqlite3 FILE .recover`.",
        damage=True,
        facts={"lines": list(wrong)},
    )


def mend(store: Store, only: Sequence[str], *, backups: Path, now: float, progress: Progress) -> Outcome:
    """Mends what was chosen: by id, by kind, or everything that can be."""
    with _told(store):
        if store.database is not None:
            return mend_database(store.path, store.database, only, backups=backups, now=now, progress=progress)
        if store.folder is None:
            raise ValueError("a store of onefold is mended by Store.verify")
        return mend_folder(store.path, store.folder, only, backups=backups, now=now)


def rehearse(store: Store, only: Sequence[str], *, now: float, progress: Progress) -> Outcome:
    """What `mend` would do, tried on a copy. The store is only read."""
    with _told(store):
        if store.database is not None:
            return rehearse_database(store.path, store.database, only, now=now, progress=progress)
        if store.folder is None:
            raise ValueError("a store of onefold is mended by Store.verify")
        return rehearse_folder(store.path, store.folder, only, now=now)


@contextlib.contextmanager
def _told(store: Store) -> Iterator[None]:
    try:
        yield
    except (OSError, apsw.Error) as error:
        raise StoreError(f"the repair of {store.path} stopped: {error}. What it did not mend is as it was") from error
