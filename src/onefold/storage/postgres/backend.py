"""Sessions in a PostgreSQL database: transactions, what became of those whose answer was lost, and waiting for others.

A write takes its session's row and no other, so sessions do not wait for each other, in one process or in many. Reads
take no lock. There is no lock that all share.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from shlex import quote
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from onefold.errors import OnefoldError, OutcomeUnknown, StoreError, StoreUnavailable
from onefold.ids import random_id
from onefold.model import Clock, Ids
from onefold.storage.base import Transaction
from onefold.storage.postgres import connection, schema
from onefold.storage.postgres.connection import Link, Pool
from onefold.storage.postgres.dsn import parse
from onefold.storage.postgres.errors import held_too_long, is_outcome_unknown, is_transient, translated
from onefold.storage.postgres.listener import Listener
from onefold.storage.postgres.queries import queries
from onefold.storage.postgres.schema import Shape
from onefold.storage.postgres.session_queue import SessionQueues, Waited
from onefold.storage.postgres.transaction import PostgresTransaction, Raced, Unclear

T = TypeVar("T")

RACES = 20
FIRST_PAUSE, LAST_PAUSE = 0.01, 1.0
SHORTEST = 0.05
"""For so long a session's row is waited for at least, by who has stood in line for it for as long as its patience."""
SCRUB_PATIENCE = 2.0
REWRITE = 86400.0
"""How many seconds rewriting the tables may take."""
SETTLE_STEP = 1.0
"""How long one look at a lost transaction waits for its lock, at most, before the transaction is ended from here."""

_ours: weakref.WeakSet[PostgresBackend] = weakref.WeakSet()
_inherited: list[Any] = []
"""Connections of a parent process. Never used and never closed here: closing would end the parent's."""


class PostgresBackend:
    def __init__(
        self,
        address: str,
        *,
        create: bool = True,
        clock: Clock | None = None,
        ids: Ids = random_id,
        pool: type[ConnectionPool[Link]] = ConnectionPool,
    ) -> None:
        self._place = parse(address)
        self.address = self._place.shown
        self._shape = Shape(self._place.schema, self.address)
        self._queries = queries(self._place.schema)
        self._patience = self._place.patience
        self._clock = clock  # without one, the server's
        self._pool_kind = pool
        self._channel = f"onefold_{schema.number('listen', self._place.schema) & 0xFFFFFFFFFFFFFFFF:016x}"
        self._closed = threading.Event()
        self._start()
        with self._translated(reading=not create), contextlib.closing(self._connect()) as link:
            self.generation: str = schema.prepare(link, self._shape, ids, create=create)
        _ours.add(self)

    def _start(self) -> None:
        """What belongs to one process: made at open, and again in a forked child."""
        self._pool: Pool | None = None
        self._pool_lock = threading.Lock()
        self._lines = SessionQueues()
        self._watch = Listener(self._connect_to_listen, self._channel, self._queries["snapshot"])

    # ------------------------------------------------------------------ the seam

    def write(
        self, session: str, work: Callable[[Transaction], T], *, size: int = 0, patient: bool = True
    ) -> T:  # fmt: skip
        ends = time.monotonic() + self._patience

        def once(held: tuple[str, ...]) -> T:
            return self._write_once(session, work, held, ends, patient)

        if patient:
            with self._in_line(session):
                result = self._patiently(once)
        else:
            result = self._patiently(once)  # it does not wait at the server, either
        self._watch.changed()
        return result

    @contextlib.contextmanager
    def _in_line(self, session: str) -> Iterator[None]:
        self._check_open()
        try:
            with self._lines.turn(session, self._patience):
                yield
        except Waited:
            self._check_open()
            raise StoreUnavailable(held_too_long(self.address, self._patience)) from None

    def read(self, work: Callable[[Transaction], T]) -> T:
        def once(held: tuple[str, ...]) -> T:
            with self._link() as link:
                tx = PostgresTransaction(link, self._queries, self._clock)
                tx.begin_reading()
                try:
                    return work(tx)
                finally:
                    tx.end()

        return self._patiently(once, reading=True)

    @property
    def writing(self) -> bool:
        return False  # it waits for the server, most of the time

    def version(self) -> int:
        return self._watch.version

    def wait(self, version: int, timeout: float) -> None:
        self._check_open()
        self._watch.wait(version, timeout)
        self._check_open()

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        with self._translated(reading=not fix), self._link() as link:
            found = schema.warnings(link, self._shape)
            for table in schema.missing(link, self._shape):
                if fix:
                    schema.recreate(link, self._shape, table)
                found.append((f"the table {table} is missing", "the table", fix))
        return found

    def purge(self, *, whole: bool = False) -> bool:
        """What was erased is gone for whoever asks the server, at once. Its files hold it until the tables are
        rewritten: not even VACUUM overwrites a removed row. That stops all writers, so it is done only on request, and
        `wiped` is False until then. As long as somebody may see the old rows, they would be rewritten too. The server's
        log and its backups are not reached."""
        if not whole:
            return False
        with self._translated(), contextlib.closing(self._connect(longest=REWRITE)) as link:
            if not self._nobody_sees(link, *link.ask(self._queries["next_transaction"])[0]):
                return False
            link.ask(self._queries["rewrite_tables"])
        return True

    def _nobody_sees(self, link: Link, before: str) -> bool:
        """Waits until nobody can see any more what was removed before a transaction. False if that took too long."""
        ends = time.monotonic() + min(SCRUB_PATIENCE, self._patience)
        while link.send([(self._queries["in_the_way"], {"before": before})])[0][0][0]:
            if time.monotonic() > ends:
                return False
            self._closed.wait(LAST_PAUSE / 20)
        return True

    def backup(self, path: str, generation: str, progress: Callable[[int, int], None] | None) -> None:
        raise StoreError(
            f"store {self.address}: a PostgreSQL store is backed up by the server's own means: `pg_dump --schema="
            f"{quote(self._place.schema)}`, or a base backup; or session by session: `onefold export`"
        )

    def close(self) -> None:
        """Lets go of everything. Waiting threads get an error; what was acknowledged is on disk."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watch.close()
        self._lines.wake()
        with self._pool_lock:
            if self._pool is not None:
                self._pool.close()

    # ------------------------------------------------------------------ writing

    def _write_once(
        self, session: str, work: Callable[[Transaction], T], held: tuple[str, ...], ends: float, patient: bool
    ) -> T:  # fmt: skip
        """`ends`: until when to wait for the session's row."""
        with self._link() as link:
            tx = PostgresTransaction(link, self._queries, self._clock)
            try:
                left = max(SHORTEST, ends - time.monotonic())
                tx.begin_writing(session, held, self._lock_number(session), left, self._patience, patient=patient)
                schema.check_writer(self._shape, tx.min_writer)
                result = work(tx)
                tx.commit(self._channel, _short(session))
                return result
            except Unclear as unclear:
                lost = unclear.__cause__
            finally:
                tx.end()
        if self._happened(session, tx, lost):
            return result
        raise lost if isinstance(lost, psycopg.Error) else StoreUnavailable(f"store {self.address}: {lost}")

    def _patiently(self, once: Callable[[tuple[str, ...]], T], *, reading: bool = False) -> T:
        """Runs a transaction, and again if it did not happen and that may pass: a server that restarts, a deadlock,
        somebody who was first."""
        ends = time.monotonic() + self._patience
        races, pause = 0, FIRST_PAUSE
        held: tuple[str, ...] = ()
        while True:
            self._check_open()
            try:
                return once(held)
            except Raced as raced:
                races += 1
                if races > RACES or (races > 1 and not raced.held):
                    raise
                held = (*{*held, *raced.held},)
                continue
            except psycopg.Error as error:
                races += isinstance(error, psycopg.errors.UniqueViolation)
                if is_outcome_unknown(error):
                    self._drain()
                if not is_transient(error) or races > RACES or time.monotonic() + pause > ends:
                    raise translated(self._why(error), self.address, self._patience, reading=reading) from error
            self._closed.wait(pause)
            pause = min(2 * pause, LAST_PAUSE)

    def _happened(self, session: str, tx: PostgresTransaction, lost: BaseException | None) -> bool:
        """Whether a transaction happened whose commit was not answered.

        Its lock says when it is over: whoever has that lock after it can read what it left. If it is not over soon,
        since its connection is lost for one side only, it is ended from here; unless it waits for its standby, since
        then it is written already. Whoever looks waits for the standby as well: a server that was restarted shows what
        only itself has. One that leaves no record behind is run again, which does no harm.
        """
        ends = time.monotonic() + self._patience
        pause = FIRST_PAUSE
        while tx.commit_probe is not None:
            self._drain()
            try:
                with contextlib.closing(self._connect(self._patience)) as link:
                    return self._look(link, session, tx)
            except (psycopg.Error, OnefoldError) as error:
                if time.monotonic() + pause > ends:
                    raise OutcomeUnknown(
                        f"store {self.address}: the connection was lost during a commit to session {session!r} "
                        f"({lost}), and it cannot be told yet whether it was written ({error}). Look whether the "
                        "server runs, then repeat the same call with the same key"
                    ) from error
            self._closed.wait(pause)
            pause = min(2 * pause, LAST_PAUSE)
        return False

    def _look(self, link: Link, session: str, tx: PostgresTransaction) -> bool:
        assert tx.commit_probe is not None
        look = PostgresTransaction(link, self._queries, self._clock)
        try:
            step = min(SETTLE_STEP, self._patience / 4)
            look.begin_writing(session, (), self._lock_number(session), step, step)
            query, bindings = tx.commit_probe
            found = bool(look.run(query, *bindings))
            look.commit(self._channel, _short(session))
            return found
        except psycopg.errors.LockNotAvailable:
            look.end()
            link.ask(self._queries["end_stray"], *tx.stray)
            raise
        finally:
            look.end()

    def _lock_number(self, session: str) -> int:
        return schema.number("session", self._place.schema, session)

    # ------------------------------------------------------------------ connections

    def _connect(self, longest: float | None = None) -> Link:
        return connection.connect(self._place.conninfo, longest or 2 * self._patience)

    def _connect_to_listen(self) -> Link:
        return connection.connect(self._place.listen, 2 * self._patience)

    @contextlib.contextmanager
    def _link(self) -> Iterator[Link]:
        """A connection for one transaction."""
        pool = self._pool or self._open_pool()
        link = pool.getconn()
        try:
            yield link
        except BaseException:
            if not link.lost and (link.in_transaction or link.in_error or link.busy):
                link.close()  # interrupted in the middle
            raise
        finally:
            pool.putconn(link)

    def _open_pool(self) -> Pool:
        with self._pool_lock:
            self._check_open()
            if self._pool is None:
                place = self._place
                self._pool = connection.pool(place.conninfo, 2 * self._patience, self._patience, self._pool_kind)
            return self._pool

    def _drain(self) -> None:
        """After one connection was lost, the others are hardly better."""
        with self._pool_lock, contextlib.suppress(PoolClosed):
            if self._pool is not None and not self._closed.is_set():
                self._pool.drain()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StoreError(f"{self.address} is closed in this process; open it again")

    def _begin_again(self) -> None:
        """After a fork, in the child: nothing of the parent's is used or closed here."""
        _inherited.extend((self._pool, self._watch))
        if not self._closed.is_set():
            self._closed = threading.Event()
            self._start()

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def _translated(self, *, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translated(self._why(error), self.address, self._patience, reading=reading) from error

    def _why(self, error: psycopg.Error) -> psycopg.Error:
        """A pool that gave nothing does not say why: the server does."""
        if isinstance(error, PoolTimeout):
            try:
                self._connect().close()
            except psycopg.Error as reason:
                return reason
        return error


def _short(session: str) -> str:
    return hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _after_fork() -> None:
    for backend in list(_ours):
        backend._begin_again()


os.register_at_fork(after_in_child=_after_fork)
