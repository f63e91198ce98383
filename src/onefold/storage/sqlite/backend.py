"""Sessions in one SQLite file: connections, transactions, and waiting for what other processes write.

WAL, synchronous=FULL, BEGIN IMMEDIATE: durable when `write` returns, visible to others only once it is durable.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from onefold.errors import OnefoldError, OutcomeUnknown, StoreError, StoreTooNew, StoreUnavailable
from onefold.ids import random_id, system_clock
from onefold.model import Clock, Ids
from onefold.storage import permissions
from onefold.storage.base import Transaction
from onefold.storage.sqlite import schema
from onefold.storage.sqlite.change_poller import ChangePoller
from onefold.storage.sqlite.errors import in_words
from onefold.storage.sqlite.fair_lock import FairLock
from onefold.storage.sqlite.group_commit import CommitQueue, PendingWrite
from onefold.storage.sqlite.path_checks import check_place, look
from onefold.storage.sqlite.queries import check_library, queries
from onefold.storage.sqlite.reader_pool import Readers
from onefold.storage.sqlite.store_file import LogNote, StoreFile, beside, state_of
from onefold.storage.sqlite.transaction import Known, SqliteTransaction

T = TypeVar("T")
log = logging.getLogger("onefold")
Connect = Callable[[str], apsw.Connection]
Done = tuple[PendingWrite, Any, SqliteTransaction]

BUSY = 30_000
PAGE_SIZE = 4096
MOST_STATES = 1000
CHECKPOINT_PAGES = 1000
RESTART_PAGES = 8000
CHECKPOINT_PATIENCE = 200
SCRUB_PATIENCE = 2000
SCRUB_PAGES = (256 << 20) // PAGE_SIZE
FORK_PATIENCE = 30.0

_NOTHING_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.ConstraintError)
"""Errors of a COMMIT after which SQLite has taken the transaction back, for sure."""

open_backends: weakref.WeakSet[SqliteBackend] = weakref.WeakSet()
_inherited: list[Any] = []
"""Connections of a parent process. Never used and never closed here: closing could end the parent's log."""


def connect(path: str) -> apsw.Connection:
    """The one place that makes a connection to a store. The file is there: see `StoreFile.take`."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)


class SqliteBackend:
    # Of the class until they are needed: an object with more than thirty attributes is slower in all of them.
    _to_purge = False
    """A reader kept the log from being emptied after an erasure."""
    _held = False
    _noted = False
    """Whether the gate says whose log it is that the writer has open."""
    generation: str

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Clock = system_clock,
        ids: Ids = random_id,
        connect: Connect = connect,
        group: bool = False,
    ) -> None:
        check_library()
        self._path = Path(path).absolute()
        self.address = str(path)
        self._clock = clock
        self._ids = ids
        self.connect = connect
        self._closed = False
        check_place(self._path)
        new = look(self._path, create=create).new
        self._database = StoreFile(self._path, self.address)
        self._access = self._database.take(group=group)
        permissions.warn(self.address, self._path)
        self._start()
        try:
            with self._translated():
                writer = self._writer_connection()
                if new or not schema.version(writer):
                    schema.begin(writer)
                schema.migrate(writer, self._path, ids, access=self._access)
                self.generation = schema.meta(writer, "incarnation")
                if new:
                    self._note_log()
        except BaseException:
            self.close()
            raise
        open_backends.add(self)

    def _start(self) -> None:
        """What belongs to one process: made at open, and again in a forked child."""
        self._writer: apsw.Connection | None = None
        self._single: SqliteTransaction | None = None  # the writer's: a new one, with a cursor, costs an append 8 µs
        self._log_pages = 0
        self._seen: int | None = None  # the store's version after this connection's last transaction
        self._known = Known()  # as that transaction, or the one under way, left it
        self._readers = Readers(self._open_connection)
        self._line = CommitQueue(self._run_batch)
        self._writing = threading.Lock()
        self._gate = FairLock(beside(self._path).gate, self._access)
        self._watch = ChangePoller(self._open_connection, self._database.moved)

    # ------------------------------------------------------------------ the seam

    def write(
        self, session: str, work: Callable[[Transaction], T], *, size: int = 0, patient: bool = True
    ) -> T:  # fmt: skip
        ticket = PendingWrite()
        ticket.work, ticket.size = work, size
        answer: T = self._line.submit(ticket)
        if self._log_pages >= CHECKPOINT_PAGES:
            self._bound_log()
        return answer

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._check_open()
        with self._translated(reading=True), self._readers.one() as connection:
            connection.execute("begin")
            try:
                answer = work(SqliteTransaction(connection, self._clock()))
                self._database.check()  # last: if the file is the same still, nobody else has put anything into its log
                return answer
            finally:
                if connection.in_transaction:
                    connection.execute("commit")

    @property
    def writing(self) -> bool:
        return self._line.busy

    def version(self) -> int:
        return self._watch.version

    def wait(self, version: int, timeout: float) -> None:
        self._check_open()
        self._watch.wait(version, timeout)
        self._check_open()

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        with self._translated(reading=True), self._readers.one() as connection:
            found = [(line, "ok", False) for (line,) in connection.execute("pragma quick_check") if line != "ok"]
            missing = schema.missing(connection)
            self._database.check()
        for table in missing:
            if fix:
                self.write("", partial(self._recreate, table))
            found.append((f"the table {table} is missing", "the table", fix))
        return found

    def _recreate(self, table: str, tx: Transaction) -> None:
        schema.recreate(self._writer_connection(), table)

    def backup(self, path: str, generation: str, progress: Callable[[int, int], None] | None) -> None:
        self._check_open()
        with self._translated(reading=True), self._readers.one() as connection:
            schema.backup(connection, Path(path), generation, progress, access=self._access, check=self._database.check)

    def close(self) -> None:
        """Lets go of everything. Waiting threads get an error; what was acknowledged is on disk."""
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        self._gate.wake()
        with self._writing:
            self._gate.close()
            self._readers.close()
            if self._writer is not None:
                self._writer.close()
            self._writer = self._single = None

    # ------------------------------------------------------------------ writing

    def _run_batch(self, batch: list[PendingWrite]) -> None:
        """One commit for all of a batch. Settles every ticket, unless this thread is interrupted."""
        with self._writing:
            leave = self._gate.enter()
            try:
                if len(batch) == 1:
                    self._commit_alone(batch[0])
                else:
                    self._commit_together(batch)
            finally:
                if leave is not None:
                    leave()
        watch = self._watch
        watch.version = next(watch.versions)
        if watch.waiters:
            watch.wake()

    def _commit_alone(self, ticket: PendingWrite) -> None:
        """One commit for one, which is the usual case: in as few steps as can be, since after a wait for the disk each
        of them is slow."""
        connection = self._writer
        committing = False
        try:
            if connection is None or connection.in_transaction or self._closed:
                connection = self._sound_writer()
            if self._single is None or self._single.known is not self._known:
                self._single = SqliteTransaction(connection, 0.0, self._known, connection.cursor())
            tx = self._single
            pen = tx.pen
            pen.execute("begin immediate")
            self._database.check()
            if connection.data_version() != self._seen or len(self._known.states) >= MOST_STATES:
                self._look_again(connection)
            tx.now, tx.commit_probe = self._clock(), None
            result = ticket.work(tx)
            self._log_pages += 1 + ticket.size // PAGE_SIZE if ticket.size else 4
            committing = True
            pen.execute("commit")
            ticket.result, ticket.done = result, True
            self._seen = connection.data_version()
            return
        except apsw.Error as error:
            if committing and not isinstance(error, _NOTHING_WRITTEN):
                self._settle_unclear(error, [(ticket, result, tx)])
                return
            reason = self._translate(error)
        except Exception as error:
            reason = error
        except BaseException:
            if committing and connection is not None and not connection.in_transaction:
                ticket.settle(result)
            self._roll_back()
            raise
        self._roll_back()
        ticket.settle(error=reason)

    def _commit_together(self, batch: list[PendingWrite], *, apart: bool = False) -> None:
        """Runs a batch in one transaction. If one of it is rejected, all are run again, `apart` from each other: a
        savepoint for each costs more than the work itself, and few are ever rejected."""
        try:
            connection = self._begin()
        except (apsw.Error, OnefoldError) as error:
            self._roll_back()
            self._refuse(batch, error)
            return
        done: list[Done] = []
        refused: list[tuple[PendingWrite, BaseException]] = []
        committing = False
        try:
            self._run_each(connection, batch, done, refused, apart=apart)
            committing = connection.in_transaction and bool(done) and (apart or not refused)
            if committing:
                connection.execute("commit")
                self._seen = connection.data_version()
                self._answer(done, refused)
                return
        except apsw.Error as error:
            if committing and not isinstance(error, _NOTHING_WRITTEN):
                self._settle_unclear(error, done)
                self._answer([], refused)
                return
            refused.clear()  # it was all of them together
        except BaseException:
            # This thread was interrupted. What was committed is answered; the rest goes back in line.
            self._answer(done if committing and not connection.in_transaction else [], [])
            self._roll_back()
            raise
        self._roll_back()
        if apart and len(refused) == len(batch):
            self._answer([], refused)
            return
        if not apart:
            self._commit_together(batch, apart=True)
            return
        # A full disk, or the like, took the whole batch back: each one alone, so that none fails another.
        for ticket in batch:
            self._commit_alone(ticket)

    def _answer(self, done: list[Done], refused: list[tuple[PendingWrite, BaseException]]) -> None:
        for ticket, result, _ in done:
            ticket.settle(result)
        for ticket, reason in refused:
            ticket.settle(error=reason)

    def _run_each(
        self,
        connection: apsw.Connection,
        batch: list[PendingWrite],
        done: list[Done],
        refused: list[tuple[PendingWrite, BaseException]],
        *,
        apart: bool,
    ) -> None:
        """Runs the operations of a batch one after another. Apart, those that are rejected leave nothing behind;
        otherwise the first one ends it."""
        for ticket in batch:
            tx = SqliteTransaction(connection, self._clock(), self._known.copy() if apart else self._known)
            try:
                result = self._one_of_many(connection, ticket, tx) if apart else ticket.work(tx)
                done.append((ticket, result, tx))
                self._known = tx.known
                self._log_pages += _pages(ticket)
            except Exception as error:
                refused.append((ticket, self._translate(error)))
                if not apart or not connection.in_transaction:
                    return

    def _refuse(self, batch: list[PendingWrite], error: BaseException) -> None:
        for ticket in batch:
            ticket.settle(error=self._translate(error, reading=ticket.reading))

    def _one_of_many(self, connection: apsw.Connection, ticket: PendingWrite, tx: SqliteTransaction) -> Any:
        """One operation of a batch, taken back alone if it fails."""
        connection.execute("savepoint operation")
        try:
            result = ticket.work(tx)
        except BaseException:
            self._take_back(connection)
            raise
        connection.execute("release operation")
        return result

    def _take_back(self, connection: apsw.Connection) -> None:
        """Back to before one operation; where that fails, back to before the whole batch, never halfway."""
        if not connection.in_transaction:
            return
        try:
            connection.execute("rollback to operation")
            connection.execute("release operation")
        except apsw.Error:
            self._roll_back()

    def _settle_unclear(self, error: apsw.Error, done: list[Done]) -> None:
        """A commit that failed, and only reading back can tell how far it came.

        The connection is not trusted again. A new one takes the write lock and looks for what the batch added. Where
        it is there, a checkpoint writes those pages again, because a failed fsync may have lost them from the log;
        where it is not, one small write overwrites whatever is left of it in the log. Only after that is either sure.
        """
        for ticket, _, _ in done:  # stands if this thread is interrupted below, so that nobody writes it again
            ticket.settle(
                error=OutcomeUnknown(
                    f"{self.address}: the disk failed during a commit ({error}), and it cannot be told yet whether "
                    "it was written. Check the disk, then repeat the same call with the same key"
                )
            )
        self._discard_writer()
        try:
            found = self._read_back([tx.commit_probe for _, _, tx in done])
        except (apsw.Error, OnefoldError):
            self._discard_writer()
            return
        for (ticket, result, tx), there in zip(done, found, strict=True):
            if there:
                ticket.settle(result)
            elif tx.commit_probe is not None:
                ticket.settle(error=self._translate(error))

    def _read_back(self, probes: list[tuple[str, int, str] | None]) -> list[bool]:
        connection = self._writer_connection()
        connection.execute("begin immediate")
        found = []
        for probe in probes:
            ids = connection.execute(queries()["commit_probe"], probe[:2]).fetchall() if probe else []
            found.append(probe is not None and ids == [(probe[2],)])
        connection.execute(queries()["put_meta"], ("settled", self._ids()))
        connection.execute("commit")
        if any(found):
            frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
            if copied < frames:
                raise StoreUnavailable(f"{self.address}: a reader keeps the log from being written out")
        return found

    def _begin(self) -> apsw.Connection:
        """A write transaction. What was known still holds in it if nobody else wrote since this connection did."""
        connection = self._sound_writer()
        connection.execute("begin immediate")
        self._database.check()
        if connection.data_version() != self._seen or len(self._known.states) >= MOST_STATES:
            self._look_again(connection)
        return connection

    def _sound_writer(self) -> apsw.Connection:
        self._check_open()
        connection = self._writer_connection()
        if connection.in_transaction:
            self._roll_back()  # what a thread that was interrupted left
        return connection

    def _look_again(self, connection: apsw.Connection) -> None:
        """Somebody else wrote: what was known may not hold, and it may have been a newer program."""
        self._known.clear()
        if not self._noted:
            self._note_log()
        accepted = schema.min_writer(connection)
        if accepted > schema.WRITER:
            raise StoreTooNew(
                f"{self.address} was written by a newer onefold and accepts writers from version {accepted} on; this "
                f"program is version {schema.WRITER}. Update it: pip install -U onefold. Nothing was written"
            )

    def _bound_log(self) -> None:
        """Checkpoints when the log is long, after everybody has their answer. If readers kept it from starting over
        for a while, waits for them a little. A checkpoint that fails loses nothing: the log is kept and goes on."""
        with self._writing:
            if self._writer is None or self._log_pages < CHECKPOINT_PAGES:
                return
            self._log_pages = 0
            if self._database.moved():  # whoever writes is told; this log goes into no file any more
                return
            try:
                pages, _ = self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if self._to_purge:
                    self._empty_log(CHECKPOINT_PATIENCE)
                elif pages >= RESTART_PAGES:
                    self._wait_for_readers(apsw.SQLITE_CHECKPOINT_RESTART, CHECKPOINT_PATIENCE)
            except (apsw.BusyError, apsw.LockedError):
                pass
            except apsw.Error as error:
                log.warning("store %s: the log could not be written out: %s", self.address, error)

    def purge(self, *, whole: bool = False) -> bool:
        """Writes the log out and empties it, so that old pages of it hold nothing that was erased."""
        self._check_open()
        with self._writing, self._translated():
            self._database.check()
            self._to_purge = True
            try:
                self._close_gaps(None if whole else SCRUB_PAGES)
                self._empty_log(SCRUB_PATIENCE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            return not self._gaps()

    def _gaps(self) -> bool:
        return bool(self._writer_connection().execute(queries()["meta"], ("gaps",)).fetchall())

    def _close_gaps(self, most: int | None) -> None:
        """Rewrites the store whole, if rows were removed from it and it is not too large: SQLite moved their
        neighbours, and what it moved stays readable in the gap. Meanwhile others wait."""
        writer = self._writer_connection()
        if self._gaps() and (most is None or int(str(writer.pragma("page_count"))) <= most):
            writer.execute("vacuum")
            writer.execute(queries()["drop_meta"], ("gaps",))
            self._forget()

    def _empty_log(self, patience: int) -> None:
        self._wait_for_readers(apsw.SQLITE_CHECKPOINT_TRUNCATE, patience)
        self._log_pages, self._to_purge = 0, False

    def _wait_for_readers(self, mode: int, patience: int) -> None:
        """A checkpoint that waits for readers, so many milliseconds."""
        writer = self._writer_connection()
        writer.set_busy_timeout(patience)
        try:
            writer.wal_checkpoint(mode=mode)
        finally:
            writer.set_busy_timeout(BUSY)

    # ------------------------------------------------------------------ connections

    def _open_connection(self) -> apsw.Connection:
        connection = self._database.opened(self.connect)
        connection.set_busy_timeout(BUSY)
        connection.execute("pragma synchronous = full")
        return connection

    def _writer_connection(self) -> apsw.Connection:
        if self._writer is None:
            self._writer = self._open_connection()
            self._writer.wal_autocheckpoint(0)  # after the answers, not before them: see `_bound_log`
            self._writer.execute("pragma secure_delete = on")  # what is erased leaves no trace in free pages
            self._noted = False
            self._forget()
        return self._writer

    def _note_log(self) -> None:
        """Notes next to the store which database its log belongs to, before this connection writes to it."""
        self._noted = True
        log, database = state_of(beside(self._path).log), state_of(self._path)
        if log is not None and database is not None:
            self._gate.note(str(LogNote(self.generation, database.st_ino, log.st_ino)))

    def _forget(self) -> None:
        """Takes nothing for known any more: what the last transaction left is not sure."""
        self._seen = None
        self._known.clear()

    def _roll_back(self) -> None:
        self._forget()
        if self._writer is not None and self._writer.in_transaction:
            self._writer.execute("rollback")

    def _discard_writer(self) -> None:
        self._forget()
        writer, self._writer, self._single = self._writer, None, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.address} is closed in this process; open it again")

    # ------------------------------------------------------------------ fork

    def _let_go(self) -> None:
        """Before a fork: ends what is under way and closes every connection; both sides open new ones after it.

        SQLite keeps one table of locks per process. A child that inherits it with an entry for this file believes
        that it holds locks which are its parent's alone, and the parent, closing, takes the log away under it.
        """
        self._held = self._writing.acquire(timeout=FORK_PATIENCE)
        self._watch.let_go()
        quiet = self._readers.let_go(FORK_PATIENCE)
        if self._held:
            self._discard_writer()
        if not (self._held and quiet):
            log.warning("store %s: forked in the middle of its own work; the child must not use it", self.address)

    def _go_on(self) -> None:
        """After a fork, in the parent."""
        self._readers.go_on()
        self._watch.go_on()
        if self._held:
            self._writing.release()

    def _begin_again(self) -> None:
        """After a fork, in the child: nothing of the parent's is used or closed here."""
        _inherited.extend((self._writer, self._single, self._readers, self._watch, self._line))
        self._gate.close()
        if not self._closed:
            self._held = self._to_purge = False
            self._start()

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def _translated(self, *, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._translate(error, reading=reading) from error

    def _translate(self, error: BaseException, *, reading: bool = False) -> BaseException:
        return in_words(self.address, error, BUSY, reading=reading) if isinstance(error, apsw.Error) else error


def _pages(ticket: PendingWrite) -> int:
    """How much longer an operation makes the log, roughly."""
    return 1 + ticket.size // PAGE_SIZE if ticket.size else 4


_one_fork = threading.Lock()
_let_go: list[SqliteBackend] = []
"""The stores that the fork under way has closed."""


def _before_fork() -> None:
    _one_fork.acquire()
    for backend in list(open_backends):
        if not backend._closed:
            backend._let_go()
            _let_go.append(backend)


def _after_fork(then: Callable[[SqliteBackend], None]) -> None:
    while _let_go:
        then(_let_go.pop())
    _one_fork.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, SqliteBackend._go_on),
    after_in_child=partial(_after_fork, SqliteBackend._begin_again),
)
