"""Sessions as folders of JSON lines: a store of them as a whole.

The files are the truth, and SQLite has an index to them: every row that another store has, with the place of a line
where that has the body. Lines are on disk before the index says so, and whoever takes the lock after a writer that was
killed first brings the index up to date with what that left.

The class is made in layers, each of which uses those below it: `core` (files, lock, rows that wait), `recovery`
(comparing and catching up), `segment_files` (what opens a file, erases or deletes), `appender` (lines at the ends of
files).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import apsw

from onefold.ids import random_id, system_clock
from onefold.model import Clock, Ids
from onefold.storage import permissions
from onefold.storage.base import Transaction
from onefold.storage.jsonl import backup, creation, file_erasure, layout
from onefold.storage.jsonl.appender import Writing
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.reindex import SessionFolder
from onefold.storage.jsonl.transaction import FilesTransaction, Shifted
from onefold.storage.sqlite import backend as sqlite
from onefold.storage.sqlite.backend import Connect, connect
from onefold.storage.sqlite.group_commit import PendingWrite
from onefold.storage.sqlite.queries import check_library
from onefold.storage.sqlite.store_file import AnyFile, StoreFile

T = TypeVar("T")
log = logging.getLogger("onefold")


class FilesBackend(Writing):
    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Clock = system_clock,
        ids: Ids = random_id,
        connect: Connect = connect,
        disk: Disk | None = None,
        names: Ids = random_id,
        group: bool = False,
    ) -> None:
        check_library()
        self._root = Path(path).absolute()
        self.address = f"{str(path).rstrip('/')}/"
        self._path = self._root / layout.OWN / layout.INDEX
        self._database: StoreFile = AnyFile(self._path, self.address)
        self._clock = clock
        self._ids = ids
        self._names = names
        self.connect = connect
        self._disk = disk or Disk()
        self._disk.access = permissions.SHARED if group else permissions.PRIVATE
        self._closed = False
        with self._translated():
            self.generation = creation.prepare(self._disk, self._root, create=create, ids=ids, names=names)
            own_file = self._root / layout.OWN / layout.STORE
            self._access = self._disk.access = permissions.access_of(self._disk.stat(own_file))
            permissions.warn(self.address, own_file)
            self._start()
            try:
                self._lock.check()
                self._open_index()
                self._look_over()
            except BaseException:
                self.close()
                raise
        sqlite.open_backends.add(self)

    def close(self) -> None:
        if self._closed:
            return
        try:
            with self._translated():
                self._level_at_once()
        finally:
            super().close()
            self._let_files_go()

    def _level_at_once(self) -> None:
        """Puts rows that wait into the index, without waiting for a lock: who has that has brought it up to date, and
        if it cannot be done whoever is next does it."""
        with self._writing:
            if not self._lag.rows or not self._lock.try_enter():
                return
            try:
                if self._lock.is_ours():
                    self._flush()
            except apsw.Error as error:
                log.warning("store %s: its index is behind, and is brought up to date later: %s", self.address, error)
            finally:
                self._lock.leave()

    # ------------------------------------------------------------------ reading

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._check_open()
        if self._lag.byte[0]:  # in line with those who write: a lock that they take again and again may never be free
            ticket = PendingWrite()
            ticket.work, ticket.reading = self._level, True
            self._line.submit(ticket)
        try:
            return self._read(work, sure=False)
        except Shifted:
            # A file was rewritten since this view of the index, or is being: once more, while nobody writes.
            with self._translated(reading=True), self._writing, self._alone():
                return self._read(work, sure=True)

    def _level(self, tx: Transaction) -> None:
        """Somebody reads what is not in the index yet. From now on rows do not wait, until nobody reads for a while."""
        self._flush()
        self._lag.byte[0] = self._lag.quiet = 0

    def _read(self, work: Callable[[Transaction], T], *, sure: bool) -> T:
        self._check_open()
        with self._translated(reading=True), self._readers.one() as connection:
            tx = FilesTransaction(connection, self._clock(), None, self._disk, self._root, sure=sure)
            connection.execute("begin")
            try:
                return work(tx)
            finally:
                tx.close()
                if connection.in_transaction:
                    connection.execute("commit")

    # ------------------------------------------------------------------ the store as a whole

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        found = super().examine(fix)
        with self._translated(reading=not fix), self._writing, self._alone():
            self._catch_up(self._differences())
            with self._readers.one() as connection:
                tx = self._view(connection)
                found += [
                    (
                        f"session {session!r} in {layout.folder_name(session)}: {why}",
                        "files as they were written",
                        False,
                    )
                    for session, why in tx.run("damaged")
                ]
                found += [(why, "files of sessions", False) for why in self._strays(tx)]
        return found

    def _strays(self, tx: FilesTransaction) -> Iterator[str]:
        """Files that nothing reads, though they look like files of sessions."""
        for folder in creation.folders(self._disk, self._root, self._names):
            session = self._session_of(folder)
            if session is None:
                if (why := creation.foreign(folder)) is not None:
                    yield f"{folder.path.name}: {why}"
            elif tx.session(session) is not None:
                known = {segment.base or 0 for segment in tx.segments(session)}
                for base in folder.bases():
                    if base not in known and not tx.run("damage_of", session):
                        name = f"{folder.path.name}/{layout.file_name(base)}"
                        yield f"session {session!r}: {name}: it follows no segment of the session; it is left alone"

    def purge(self, *, whole: bool = False) -> bool:
        self._check_open()
        try:
            with self._writing, self._alone():
                folders = creation.folders(self._disk, self._root, self._names)
                left = [folder for folder in folders if self._to_erase(folder)]
        except OSError as error:
            log.warning("store %s: what was erased may still be in its files: %s", self.address, error)
            return False
        return super().purge(whole=whole) and not left

    def _to_erase(self, folder: SessionFolder) -> bool:
        """Finishes what was begun in a folder; True if that could not be done."""
        session = self._session_of(folder)
        if session is None:
            return False
        with self._readers.one() as connection:
            gone = self._view(connection).deleted(session) == session
        if gone:
            return not self._bury(folder)
        if file_erasure.intentions(folder):
            self._catch_up([session], rebuild=True)
        return bool(file_erasure.intentions(folder))

    def backup(self, path: str, generation: str, progress: Callable[[int, int], None] | None) -> None:
        self._check_open()
        source = backup.Source(self._disk, self._root, self._names, self._snapshot)
        backup.backup(source, Path(path), generation, progress)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[FilesTransaction]:
        """One view of the index while nobody writes: what it says is in the files."""
        with self._translated(reading=True), self._writing, self._alone(), self._readers.one() as connection:
            tx = self._view(connection)
            connection.execute("begin")
            try:
                yield tx
            finally:
                tx.close()
                connection.execute("commit")
