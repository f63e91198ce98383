"""Opens another program's store read-only: consistent while that program writes, and without leaving a trace.

An SQLite file is opened through SQLite alone. A plain `open` and `close` of it would drop every lock this process
holds on it, and see pages that are half written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import apsw

from onefold.errors import StoreError, StoreUnavailable

Signature: TypeAlias = dict[str, tuple[int, int, int]]
"""The files below a folder, each with what changes when it is written."""

PATIENCE = 5000
"""Milliseconds to wait for a writer that holds the store for a moment."""

_PROCESSES = Path("/proc")
_WAL = b"\x02"
_BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class ReadOnlyStore:
    """An open store, in one read transaction: everything that is read belongs to one moment."""

    connection: apsw.Connection
    copied: bool
    """It is a private copy that is looked at: the store was left in the middle of a write, and to finish or undo that
    would be to write to it."""


@contextlib.contextmanager
def sqlite_store(path: Path) -> Iterator[ReadOnlyStore]:
    """Opens an SQLite store to look at it. Raises StoreError if it is none or cannot be read."""
    if not _size(path):
        # SQLite would delete a log next to it, however it is opened.
        raise StoreError(f"{path} is empty; it was left as it is")
    with contextlib.ExitStack() as stack:
        try:
            sight = stack.enter_context(_opened(path))
            sight.connection.execute("begin")
            sight.connection.execute("select count(*) from sqlite_schema").fetchall()
        except apsw.NotADBError:
            raise StoreError(f"{path} is not a database, or is encrypted; it was left as it is") from None
        except apsw.BusyError:
            raise StoreUnavailable(f"{path} is locked by a program that writes to it; try again later") from None
        except apsw.Error as error:
            raise StoreError(f"{path} cannot be read: {error}; it was left as it is") from error
        yield sight


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[ReadOnlyStore]:
    log, index, journal = (_beside(path, end) for end in _BESIDE)
    if (_size(journal) and not users([path, journal])) or (_size(log) and not index.exists()):
        with (
            tempfile.TemporaryDirectory(prefix="onefold-doctor-") as folder,
            contextlib.closing(_private(path, Path(folder))) as connection,
        ):
            yield ReadOnlyStore(connection, copied=True)
        return
    if log.exists() and index.exists():
        with contextlib.closing(_in_wal(path)) as connection:
            yield ReadOnlyStore(connection, copied=False)
        return
    stood = _moment(path)
    with contextlib.closing(_alone(path)) as connection:
        yield ReadOnlyStore(connection, copied=False)
    if _moment(path) != stood and log.exists():
        raise StoreUnavailable(f"{path} was opened by a program while it was looked at; look again")


def _alone(path: Path) -> apsw.Connection:
    """Opens a store that has no log next to it.

    One that is in WAL mode all the same is open nowhere; to open it the usual way would make a log and an index.
    """
    look = _connect(path, "immutable=1")
    try:
        _, version = look.read("main", 0, 18, 1)
    except apsw.Error:
        version = b""  # shorter than a header; SQLite says below what it makes of that
    if version == _WAL:
        return look
    look.close()
    return _connect(path, "mode=ro")


def _in_wal(path: Path) -> apsw.Connection:
    """Opens a store with a log. If nobody has it open its index is not touched either; else this is one more reader."""
    quiet = _connect(path, "mode=ro&readonly_shm=1")
    try:
        quiet.execute("select count(*) from sqlite_schema").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.ProtocolError):
        quiet.close()
        return _connect(path, "mode=ro")
    return quiet


def _private(path: Path, folder: Path) -> apsw.Connection:
    """A copy of a store that was left in the middle of a write and that nobody has open, in which SQLite ends it."""
    copy = folder / "store.db"
    try:
        shutil.copyfile(path, copy)
        for end in ("-wal", "-journal"):
            if _beside(path, end).exists():
                shutil.copyfile(_beside(path, end), _beside(copy, end))
    except OSError as error:
        raise StoreError(
            f"{path} was left in the middle of a write and cannot be copied to look at it: {error}"
        ) from error
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(PATIENCE)
    return connection


def _connect(path: Path, how: str) -> apsw.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(PATIENCE)
    return connection


def tables(connection: apsw.Connection) -> dict[str, frozenset[str]]:
    """The tables of a store with their columns, as they are: versions differ.

    Virtual ones, which have no page of their own, are passed over: to look at one is to load what it is made with.
    """
    own = "select name from sqlite_schema where type = 'table' and rootpage > 0"
    names = [row[0] for row in connection.execute(own)]
    return {name: frozenset(_columns(connection, name)) for name in names if isinstance(name, str)}


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [str(row[0]) for row in connection.execute("select name from pragma_table_info(?)", (table,))]


def unsound(connection: apsw.Connection) -> list[str]:
    """What SQLite itself finds wrong with the file; nothing, if it is sound."""
    try:
        lines = [str(row[0]) for row in connection.execute("pragma quick_check(5)")]
    except apsw.Error as error:
        return [str(error)]
    return [line for line in lines if line != "ok"]


def users(paths: Iterable[Path]) -> tuple[int, ...]:
    """The processes that have one of these files open, other than this one, as far as this user may see.

    Looks at what the system says and opens none of the files. Where there is no /proc nobody is found: then the lock
    that a repair asks for decides.
    """
    wanted = {(found.st_dev, found.st_ino) for path in paths if (found := _stat(path)) is not None}
    if not wanted or not _PROCESSES.is_dir():
        return ()
    pids = (int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit())
    return tuple(sorted(pid for pid in pids if pid != os.getpid() and _holds(pid, wanted)))


def sqlite_users(path: Path) -> tuple[int, ...]:
    """The processes that have an SQLite store open."""
    return users([path, *(_beside(path, end) for end in _BESIDE)])


def alive(pid: int, name: str) -> bool:
    """Whether this process lives, and is not another one that was given the number of a dead one."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    try:
        command = (_PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return not _PROCESSES.is_dir()
    return not command or name.encode() in command.lower()


def signature(folder: Path) -> Signature:
    """Every file below a folder. Links are files here, and are not followed."""
    found: Signature = {}
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*files, *links):
            file = Path(place, name)
            with contextlib.suppress(FileNotFoundError):
                state = file.lstat()
                found[file.relative_to(folder).as_posix()] = (state.st_ino, state.st_size, state.st_mtime_ns)
    return found


def _holds(pid: int, wanted: set[tuple[int, int]]) -> bool:
    try:
        for handle in (_PROCESSES / str(pid) / "fd").iterdir():
            found = _stat(handle)
            if found is not None and (found.st_dev, found.st_ino) in wanted:
                return True
    except OSError:
        return False  # it ended, or it is somebody else's
    return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _moment(path: Path) -> tuple[int, int, int] | None:
    found = _stat(path)
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def _size(path: Path) -> int:
    found = _stat(path)
    return 0 if found is None else found.st_size


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)
