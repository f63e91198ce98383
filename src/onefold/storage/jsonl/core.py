"""What every part of the store of files uses: its files, its lock, its index, and the rows that wait for that."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import apsw

from onefold.errors import StoreDamaged, StoreUnavailable
from onefold.model import Ids
from onefold.storage.jsonl import layout
from onefold.storage.jsonl.deferred_index import DeferredIndex, Looking
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.reindex import SessionFolder
from onefold.storage.jsonl.store_lock import StoreLock, Users
from onefold.storage.jsonl.transaction import (
    ADD,
    TOUCH,
    Deferred,
    FilesKnown,
    FilesTransaction,
    LineChange,
    row_of_line,
)
from onefold.storage.sqlite.backend import SqliteBackend
from onefold.storage.sqlite.change_poller import ChangePoller
from onefold.storage.sqlite.transaction import row_of, touched

MOST_OPEN = 128
"""Files that are kept open to be written to."""


class Behind(Exception):
    """The files of a session go on after what the index knows."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r}: its files change faster than they can be read; nothing was written")
        self.session = session


@dataclass(slots=True)
class OpenFile:
    """The file in force of a session, kept open to be written to."""

    fd: int
    base: int
    folder: str


class FilesCore(SqliteBackend):
    _root: Path
    _disk: Disk
    _names: Ids
    _known: FilesKnown

    def _start(self) -> None:
        super()._start()
        own = self._root / layout.OWN
        self._known = FilesKnown()
        self._lock = StoreLock(own / layout.LOCK, f"{os.getpid()}-{self._names()}", self._access)
        self._users = Users(own / layout.USERS, self._access)
        self._lag = DeferredIndex(own / layout.LAG, self._access)
        self._watch = ChangePoller(self._looking, self._database.moved)
        self._kept: FilesTransaction | None = None  # as long as what is known holds
        self._files: dict[str, OpenFile] = {}
        self._deleted_end = -1

    def _open_connection(self) -> apsw.Connection:
        connection = super()._open_connection()
        connection.execute("pragma synchronous = normal")  # the files are synced, and the index can be rebuilt
        return connection

    def _note_log(self) -> None:
        """An index needs no note: what it lacks is in the files."""
        self._noted = True

    def _looking(self) -> apsw.Connection:
        return cast(apsw.Connection, Looking(self._open_connection(), self._lag))  # which has all that a watch uses

    # ------------------------------------------------------------------ rows that wait

    def _begin(self) -> apsw.Connection:
        """No transaction sees an index without the rows that wait for it."""
        self._flush()
        return super()._begin()

    def _flush(self) -> None:
        """Puts the rows that wait into the index. Inside the lock, and outside of any transaction. Their lines are on
        disk and were acknowledged, so if it fails nothing is taken back: whoever is next reads the files."""
        rows, states = self._lag.rows, self._lag.states
        if not rows:
            return
        try:
            connection = self._writer or self._writer_connection()
            if connection.in_transaction:
                self._roll_back()  # what a thread that was interrupted left
            if len(rows) == 1 and not states:
                connection.execute(ADD, row_of_line(rows[0]))
            else:
                connection.execute("begin immediate")
                connection.executemany(ADD, map(row_of_line, rows))
                with_them = [state for state in states.values() if state is not None]
                connection.executemany(TOUCH, [touched(state) for state in with_them])
                connection.execute("commit")
                self._known.rows |= {state.id: row_of(state) for state in with_them}
        except BaseException:
            self._doubt()
            self._lag.byte[0] = 1
            self._roll_back()
            raise
        self._log_pages += 2 + len(rows) // 16
        self._lag.clear()
        self._lag.byte[0] = 0

    def _forget(self) -> None:
        super()._forget()
        self._kept = None

    def _doubt(self) -> None:
        """The index may lack what the note names: whoever is next looks at those files, this process included."""
        self._lock.doubt()
        self._lag.clear()

    # ------------------------------------------------------------------ small parts

    def _view(self, connection: apsw.Connection) -> FilesTransaction:
        """What the index says, for who has the lock or can do with a moment ago."""
        return FilesTransaction(connection, 0.0, None, self._disk, self._root)

    def _transaction(
        self, connection: apsw.Connection, known: FilesKnown | None = None,
        earlier: Mapping[str, LineChange] | None = None,
    ) -> FilesTransaction:  # fmt: skip
        """In one that has begun."""
        index = Deferred(connection, self._flush, begun=True)
        return FilesTransaction(
            index, self._clock(), known or self._known, self._disk, self._root, earlier=earlier or {}
        )  # fmt: skip

    def _folder(self, session: str) -> SessionFolder:
        return SessionFolder(self._disk, self._root / layout.folder_name(session), self._names)

    def _open_file(self, session: str, base: int) -> OpenFile:
        old = self._files.pop(session, None)
        if old is not None:
            self._disk.close(old.fd)
        folder = self._root / layout.folder_name(session)
        path = folder / layout.file_name(base)
        try:
            fd = self._disk.open_append(path)
        except FileNotFoundError:
            raise Behind(session) from None
        file = self._files[session] = OpenFile(fd, base, str(folder))
        while len(self._files) > MOST_OPEN:
            self._disk.close(self._files.pop(next(iter(self._files))).fd)
        return file

    def _let_go_of_files(self) -> None:
        while self._files:
            self._disk.close(self._files.popitem()[1].fd)

    def _let_files_go(self) -> None:
        self._let_go_of_files()
        self._lock.close()
        self._users.close()
        self._lag.let_go()

    def _begin_again(self) -> None:
        self._let_files_go()
        super()._begin_again()
        if not self._closed:
            self._users.come()

    @contextlib.contextmanager
    def _translated(self, *, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self._translate(error, reading=reading) from error

    def _translate(self, error: BaseException, *, reading: bool = False) -> BaseException:
        nothing = "nothing was read" if reading else "nothing was written"
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return StoreDamaged(
                f"store {self.address}: its index is damaged ({error}). Nothing of the sessions is lost: close the "
                f"store everywhere and remove {self._path}, and it is rebuilt"
            )
        if not isinstance(error, OSError):
            return super()._translate(error, reading=reading)
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"store {self.address}: {error}; {nothing}. Look for one that is stopped")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(f"store {self.address}: the disk is full; {nothing}. Free some space and try again")
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return StoreUnavailable(
                f"store {self.address}: {error.filename or 'a file'} may not be read or written; {nothing}. "
                "Look at its permissions"
            )
        return StoreUnavailable(
            f"store {self.address}: the disk failed ({error}); {nothing}. Check the disk, then try again"
        )
