"""Faults made on purpose: connections that count and kill, disks that fail, answers that get lost.

A `SqliteBackend` takes the function that makes its connections, so everything here is handed in from outside.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from onefold import Store
from onefold.ids import random_id
from onefold.model import Ids
from onefold.storage.sqlite import SqliteBackend
from onefold.storage.sqlite.backend import connect
from onefold.storage.sqlite.group_commit import PendingWrite

_names = itertools.count(1)


class KillSwitch:
    """Counts the statements of all its connections, and kills this process before the n-th since it was armed."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._at: int | None = None

    def connect(self, path: str) -> apsw.Connection:
        connection = connect(path)
        connection.exec_trace = self._trace
        return connection

    def arm(self, at: int) -> None:
        self.seen, self._at = [], at

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        self.seen.append(statement)
        if len(self.seen) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


class BadDisk:
    """A file system whose writes and syncs of the log can be made to fail. Unregisters at the end of its block."""

    def __init__(self) -> None:
        self.name = f"bad-disk-{os.getpid()}-{next(_names)}"
        self.failing_syncs = 0
        """How many of the next syncs of the log fail."""
        self.room: int | None = None
        """How many bytes the log may have; None for any number."""
        self._vfs: apsw.VFS | None = None

    def __enter__(self) -> BadDisk:
        self._vfs = _Vfs(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._vfs is not None:
            self._vfs.unregister()

    def connect(self, path: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        return apsw.Connection(path, vfs=self.name, flags=flags)

    def sync(self) -> None:
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

    def write(self, end: int) -> None:
        if self.room is not None and end > self.room:
            raise apsw.FullError("the disk is full")


class _Vfs(apsw.VFS):
    def __init__(self, disk: BadDisk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self._disk, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: BadDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._is_log = bool(path and path.endswith("-wal"))
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        if self._is_log:
            self._disk.sync()
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._is_log:
            self._disk.write(offset + len(data))
        super().xWrite(data, offset)


class Told(apsw.Connection):
    """A connection that is told of every statement, whichever cursor runs it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cursor_factory = _Telling

    def begins(self, statements: str) -> None: ...

    def ends(self, statements: str) -> None: ...


class _Telling(apsw.Cursor):
    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        connection = self.connection
        assert isinstance(connection, Told)
        connection.begins(statements)
        answer = super().execute(statements, *args, **options)
        connection.ends(statements)
        return answer


class LostAnswers:
    """Connections whose COMMIT succeeds and then says that it failed, so often."""

    def __init__(self, often: int = 0) -> None:
        self.often = often
        self.refuse_new = False
        """Whether no connection can be made any more, so that nothing can be read back."""
        self.failed: list[apsw.Connection] = []
        self.used_again: list[str] = []

    def connect(self, path: str) -> apsw.Connection:
        if self.refuse_new:
            raise apsw.CantOpenError("the disk is away")
        made = _Forgetful(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        made.faults = self
        return made


class _Forgetful(Told):
    faults: LostAnswers
    before = 1 << 62  # only a commit that wrote: reading transactions end with one too

    def begins(self, statements: str) -> None:
        if self in self.faults.failed:
            self.faults.used_again.append(statements)
        if statements == "begin immediate":
            self.before = self.total_changes()

    def ends(self, statements: str) -> None:
        if statements == "commit" and self.faults.often > 0 and self.total_changes() > self.before:
            self.faults.often -= 1
            self.faults.failed.append(self)
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


class Counting:
    """Connections that count the questions `pragma data_version`, and tell of each."""

    def __init__(self) -> None:
        self.questions = 0
        self.asked = threading.Semaphore(0)

    def connect(self, path: str) -> apsw.Connection:
        connection = connect(path)
        connection.exec_trace = self._trace
        return connection

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if "data_version" in statement:
            self.questions += 1
            self.asked.release()
        return True


class Announced(deque[PendingWrite]):
    """A line of tickets that says when one more stands in it."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Semaphore(0)

    def append(self, ticket: PendingWrite) -> None:
        super().append(ticket)
        self.came.release()


class HeldLine:
    """Holds the writer inside a transaction of its own until told to go, so that others gather behind it."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._tickets = Announced()
        self._go = threading.Event()
        self._inside = threading.Event()
        self._holder = threading.Thread(target=self._hold)
        self._others: list[threading.Thread] = []
        self.answers: dict[str, Any] = {}

    def __enter__(self) -> HeldLine:
        self._backend._line._waiting = self._tickets
        self._holder.start()
        assert self._inside.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        for thread in (self._holder, *self._others):
            thread.join(30)
            assert not thread.is_alive(), "a writer hangs"

    def behind(self, name: str, call: Callable[[], Any]) -> threading.Thread:
        """Runs a call in a thread of its own, and returns once it stands in line."""

        def run() -> None:
            try:
                self.answers[name] = call()
            except BaseException as error:
                self.answers[name] = error

        thread = threading.Thread(target=run, name=name)
        self._others.append(thread)
        thread.start()
        assert self._tickets.came.acquire(timeout=30)
        return thread

    def _hold(self) -> None:
        def work(tx: object) -> None:
            self._inside.set()
            assert self._go.wait(30)

        self._backend.write("", work)


def open_store(path: Path, connect: Callable[[str], apsw.Connection] = connect, *, ids: Ids = random_id) -> Store:
    return Store(SqliteBackend(path, connect=connect, ids=ids), ids=ids)


def backend_of(store: Store) -> SqliteBackend:
    backend = store.journal.backend
    assert isinstance(backend, SqliteBackend)
    return backend


def prints(path: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of change of a store's file and of every file beside it, but for the gate and shared memory."""
    files = [
        f for f in path.parent.iterdir() if f.name.startswith(path.name) and not f.name.endswith(("-gate", "-shm"))
    ]
    return {f.name: (hashlib.sha256(f.read_bytes()).hexdigest(), f.stat().st_mtime_ns) for f in files}
