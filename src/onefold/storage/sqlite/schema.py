"""The store's shape over time: making it, moving it on, telling who may write, and copying it whole."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from onefold.errors import StoreDamaged, StoreError, StoreTooNew
from onefold.model import Ids
from onefold.storage.permissions import PRIVATE, Access, make_file
from onefold.storage.sqlite.path_checks import APPLICATION
from onefold.storage.sqlite.queries import migrations, queries
from onefold.storage.sqlite.transaction import reseal

WRITER = 8
"""The version of this program's way of writing. A store may ask for a newer one: its `min_writer`."""


def begin(connection: apsw.Connection) -> None:
    """Marks an empty file as ours, then switches it to WAL. The mark is in the file itself before any log exists."""
    connection.execute("begin exclusive")
    if connection.pragma("application_id") != APPLICATION:
        if connection.execute("select count(*) from sqlite_schema").fetchall() != [(0,)]:
            connection.execute("rollback")
            raise StoreError(f"{connection.filename} was made by another program just now; choose another path")
        connection.pragma("application_id", APPLICATION)
    connection.execute("commit")


def migrate(
    connection: apsw.Connection,
    path: Path,
    ids: Ids,
    steps: tuple[tuple[int, str, bool], ...] = (),
    access: Access = PRIVATE,
) -> None:
    """Brings an older store up to date: in one transaction, after a backup where there is no way back."""
    steps = steps or migrations()
    newest = steps[-1][0]
    use_wal(connection)
    at = version(connection)
    _check_readable(connection, at, newest, path)
    if at >= newest:
        return
    if at and not all(undo for number, _, undo in steps if number > at):
        kept = path.with_name(f"{path.name}.before-{newest}")
        try:
            backup(connection, kept, ids(), None, access=access)
        except (FileExistsError, StoreError):
            if not kept.exists():  # else somebody migrates it at the same time, or did not come to the end before
                raise
    connection.execute("begin immediate")
    try:
        at = version(connection)
        _check_readable(connection, at, newest, path)
        for number, script, undo in steps:
            if number <= at:
                continue
            for statement in _statements(script):
                connection.execute(statement)
            if number == 1:
                connection.execute(queries()["put_meta"], ("min_writer", str(WRITER)))
                connection.execute(queries()["put_meta"], ("incarnation", ids()))
            elif not undo:
                connection.execute(queries()["put_meta"], ("min_writer", str(number)))
        if at:
            reseal(connection)
        connection.pragma("user_version", max(at, newest))
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def use_wal(connection: apsw.Connection, seconds: float = 30.0) -> None:
    """Switches a new file to WAL. SQLite rejects that at once, without waiting, while another process has a write lock,
    as one has that makes the same store: then this waits for its turn, looks again, and gives up after a while.
    """
    ends = time.monotonic() + seconds
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > ends:
                raise
            connection.execute("begin exclusive")
            connection.execute("rollback")
        else:
            return


def missing(connection: apsw.Connection) -> list[str]:
    """Tables that a store of this version should have."""
    there = {name for (name,) in connection.execute(queries()["tables"])}
    return [name for name in _tables() if name not in there]


def recreate(connection: apsw.Connection, table: str) -> None:
    """Recreates a missing derived table, empty, with its indexes; its rows are folded from the journal after that."""
    if table in ("records", "journals", "meta"):
        raise StoreDamaged(
            f"{connection.filename}: the table {table} is gone, and with it the journal; restore a backup"
        )
    for _, script, _ in migrations():
        for statement in _statements(script):
            if f" {table} (" in statement or statement.startswith(f"alter table {table} "):
                connection.execute(statement)


def backup(
    source: apsw.Connection,
    path: Path,
    generation: str,
    progress: Callable[[int, int], None] | None,
    *,
    access: Access = PRIVATE,
    check: Callable[[], None] = lambda: None,
) -> None:
    """A consistent copy while others write, under its own generation; it has its name only when it is whole."""
    if path.exists():
        raise StoreError(f"{path} exists already; choose another name, a backup overwrites nothing")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}; make it first")
    part = path.with_name(f"{path.name}.part-{generation}")
    make_file(part, access)
    copy = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        source.execute("begin")
        source.execute("select count(*) from sqlite_schema").fetchall()  # the view stands from here on
        try:
            with copy.backup("main", source, "main") as step:
                while not step.done:
                    step.step(4096)
                    if progress is not None:
                        progress(step.page_count - step.remaining, step.page_count)
            check()
        finally:
            source.execute("commit")
        copy.pragma("journal_mode", "delete")
        copy.execute(queries()["put_meta"], ("incarnation", generation))
        if copy.execute("pragma quick_check").fetchall() != [("ok",)]:
            raise StoreDamaged(f"the copy of {source.filename} is damaged, and so may be the store: `onefold verify`")
        copy.close()
        _sync(part)
        os.link(part, path)
        _sync(path.parent)
    finally:
        copy.close()
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def version(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("user_version")))


def min_writer(connection: apsw.Connection) -> int:
    return int(meta(connection, "min_writer"))


def meta(connection: apsw.Connection, name: str) -> str:
    """A fact about the store that every store has."""
    found = connection.execute(queries()["meta"], (name,)).fetchall()
    if not found:
        raise StoreDamaged(f"{connection.filename} does not say its {name}: it is damaged. Restore a backup")
    return str(found[0][0])


def _check_readable(connection: apsw.Connection, at: int, newest: int, path: Path) -> None:
    if at <= newest:
        return
    accepted = min_writer(connection)
    if accepted > WRITER:
        raise StoreTooNew(
            f"{path} has schema {at} and accepts writers from version {accepted} on; this program knows schema "
            f"{newest} and is version {WRITER}. Update it: pip install -U onefold. Nothing was written"
        )


def _statements(script: str) -> list[str]:
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [s.strip() for s in "\n".join(lines).split(";") if s.strip()]


def _tables() -> list[str]:
    creates = [s for _, script, _ in migrations() for s in _statements(script) if s.startswith("create table")]
    names = dict.fromkeys(s.split()[2] for s in creates)
    return [name for name in names if name != "places"]  # which became the records
