"""A durable log of raw frames, in a sidecar SQLite file of the store.

WAL, synchronous=FULL, and one thread that writes: whatever waits when a commit ends goes into the next one, so that
many rooms share the price of a disk's sync. Frames are numbered 1, 2, 3 … in each room, inside the transaction that
keeps them. What was kept together lies together, compressed, in pages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import apsw
import orjson

from onefold.acp.fork_guard import fork_guard
from onefold.acp.frame_pages import LARGE, LoggedFrame, NewFrame, packed, page, pages, unpacked
from onefold.acp.retention import MOST_BYTES, PAGES, Retention, forget
from onefold.errors import OutcomeUnknown, SessionNotFound, StoreDamaged, StoreError, StoreTooNew, StoreUnavailable
from onefold.ids import system_clock
from onefold.model import Clock
from onefold.storage import sql_files
from onefold.storage.permissions import make_beside
from onefold.storage.sqlite.path_checks import check_place
from onefold.storage.sqlite.queries import check_library
from onefold.storage.sqlite.schema import use_wal

T = TypeVar("T")
log = logging.getLogger("onefold.acp")

APPLICATION = 0x1F01DFA
SCHEMA = 1
BUSY = 30_000
LOG_BYTES = 16 << 20
"""To this size SQLite's log is cut back after a large write."""
MOST_TOGETHER = 256
READ_BYTES = 16 << 20
IDLE_READERS = 4
WIPE_PAGES = (256 << 20) // 4096
"""Up to this size the file is rewritten at once when something in it was erased."""
WIPE_PATIENCE = 2_000
_DROPPED = -1
"""In the place of a count: the room's session was deleted, and nothing is kept of it any more."""

_NOTHING_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.ConstraintError)
_ours: weakref.WeakSet[FrameLog] = weakref.WeakSet()
_inherited: list[Any] = []
"""Connections of a parent process. Never used and never closed here: closing could end the parent's log."""


class ErasureFirst(Exception):
    """Somebody else has kept a frame in this room: an erasure that says so. Look at it first, then keep your own."""


@dataclass(frozen=True, slots=True)
class RoomRow:
    """What has to be known of a room to open it again."""

    session: str
    agent: str
    command: list[str]
    """For people. It is never run: whoever wrote this file may be somebody else."""
    cwd: str
    agent_session: str | None
    """The agent's own id for the session."""
    opened_at: float
    closed_at: float | None


class Erasure(Protocol):
    """What is to go from a room's frames."""

    def see(self, row: LoggedFrame) -> None:
        """Learns from a frame. It is shown all of them, in order, before the first is replaced."""

    @property
    def is_done(self) -> bool:
        """Whether it was carried out before."""

    def left_of(self, row: LoggedFrame) -> str:
        """The text that is to stand in the place of a frame's; the same if it stays."""

    @property
    def mark(self) -> NewFrame:
        """The frame that says that it was carried out."""


class _FrameCount(NamedTuple):
    room: int
    last: int
    forgotten: int
    folded: int


class _LogJob(NamedTuple):
    work: Callable[[apsw.Connection], Any]
    size: int
    future: Future[Any]


class FrameLog:
    """All rooms of a store. Any thread may use it; `append` never waits, all else may."""

    def __init__(self, path: str, *, clock: Clock = system_clock, most: int = MOST_BYTES) -> None:
        check_library()
        self._path = Path(path).absolute()
        self._clock = clock
        self._pid = os.getpid()
        self._jobs: deque[_LogJob] = deque()
        self._news = threading.Condition()
        self._writing = fork_guard()
        self._closed = False
        self._retention = Retention(most)
        self._readers: list[apsw.Connection] = []
        check_place(self._path)
        with self._translated():
            self._writer: apsw.Connection | None = self._make()
        self._thread = threading.Thread(target=self._write, name="onefold-frames", daemon=True)
        self._thread.start()
        _ours.add(self)

    def append(self, room: str, rows: Sequence[NewFrame], *, after: int | None = None) -> Future[int]:
        """Keeps frames, all or none; gives the number of the last one once they are durable. Cannot be cancelled.

        `after` is the last frame that the caller knows of: `Overtaken` if there is a later one. Where the session was
        deleted nothing is kept: `SessionNotFound`.
        """
        size = sum(len(row.text) for row in rows)
        return self._submit(partial(_append, room=room, rows=tuple(rows), clock=self._clock, after=after), size)

    def read(self, room: str, after: int, limit: int) -> list[LoggedFrame]:
        """Frames with higher numbers, the oldest first: at most so many, and not many megabytes at once."""
        with self._reading() as connection:
            count = _count(connection, room)
            return _read(connection, count.room, after, limit) if count is not None and limit > 0 else []

    def last(self, room: str) -> int:
        """The number of the newest frame, kept or forgotten; 0 if there was none."""
        return self._count(room).last

    def first(self, room: str) -> int:
        """The number of the oldest frame that is kept; 0 if there is none."""
        count = self._count(room)
        return count.forgotten + 1 if count.forgotten < count.last else 0

    def forgotten(self, room: str) -> int:
        """The number of the newest frame that was removed; 0 if none was."""
        return self._count(room).forgotten

    def rooms(self) -> list[RoomRow]:
        with self._reading() as connection:
            return [_room(*row) for row in connection.execute(_queries()["rooms"])]

    def room(self, session: str) -> RoomRow | None:
        with self._reading() as connection:
            found: list[Any] = connection.execute(_queries()["room"], (session,)).fetchall()
            return _room(*found[0]) if found else None

    def put_room(self, row: RoomRow) -> None:
        """Durable when it returns. A room of a session that was deleted is not: `SessionNotFound`."""
        command = orjson.dumps(row.command).decode()
        values = [command if name == "command" else value for name, value in zip(_FIELDS, astuple(row), strict=True)]

        def put(connection: apsw.Connection) -> None:
            _known(connection, row.session)
            _run(connection, "put_room", *values)

        self._submit(put).result()

    def drop_room(self, session: str) -> bool:
        """Removes all that is kept of a room, for good, because its session was deleted. Nothing is kept of it again,
        by whatever process: see `admit`. False if nothing was there."""
        if session not in self.known():
            return False
        while not self._submit(partial(_drop_some, room=session)).result():
            pass
        return True

    def admit(self, session: str) -> None:
        """Whoever knows that a session is there opens its room, also where a store was put back from before its end."""
        self._submit(lambda connection: _run(connection, "admit", session)).result()

    def known(self) -> list[str]:
        """The sessions of which anything is kept."""
        with self._reading() as connection:
            return [session for (session,) in connection.execute(_queries()["known"])]

    def erase(self, room: str, erasure: Erasure) -> bool:
        """Puts others in the place of frames, under the same numbers, and keeps one more that says so. False if that
        was done before. One transaction: what is to go is told by frames that go themselves."""
        return self._submit(partial(_erase, room=room, erasure=erasure, clock=self._clock)).result()

    def wipe(self, *, whole: bool = False) -> bool:
        """Rewrites the file and empties its log, so that neither holds what was removed: as far as it is quick, or
        `whole`. False if it is large, or a reader was in the way."""
        with self._reading() as connection:
            if not whole and int(str(connection.pragma("page_count"))) > WIPE_PAGES:
                return False
            try:
                connection.execute("vacuum")
                connection.set_busy_timeout(WIPE_PATIENCE)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            finally:
                connection.set_busy_timeout(BUSY)
            return True

    def retain(self, before: float) -> int:
        """Removes frames that were kept before this time, a few at a time, so that nobody waits for it; how many.

        Always the oldest of a room, without a gap, so a clock that jumped keeps more than it should. Numbers go on.
        """
        removed, room = 0, 0
        while (found := self._submit(partial(_forget, after=room, before=before)).result()) is not None:
            room, gone = found
            removed += gone
        return removed

    def close(self) -> None:
        """Writes what was asked for before, then closes. A second call does nothing."""
        self._check_process()
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._thread.join()
        with self._news:
            while self._readers:
                self._readers.pop().close()

    # ------------------------------------------------------------------ writing

    def _submit(self, work: Callable[[apsw.Connection], T], size: int = 0) -> Future[T]:
        self._check_process()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it: it is written
        with self._news:
            if self._closed:
                future.set_exception(self._is_closed())
            else:
                self._jobs.append(_LogJob(work, size, future))
                self._news.notify()
        return future

    def _write(self) -> None:
        """The thread that writes."""
        while batch := self._next_batch():
            try:
                self._commit(batch)
            except BaseException as error:
                for job in batch:
                    if not job.future.done():
                        job.future.set_exception(error)
        self._discard()

    def _next_batch(self) -> list[_LogJob]:
        """Waits for work. Nothing, once the end has come and all is done."""
        with self._news:
            self._news.wait_for(lambda: self._jobs or self._closed)
            batch: list[_LogJob] = []
            size = 0
            while self._jobs and len(batch) < MOST_TOGETHER:
                size += self._jobs[0].size
                if batch and size > LARGE:
                    break
                batch.append(self._jobs.popleft())
            return batch

    def _commit(self, batch: list[_LogJob]) -> None:
        """One transaction for all. If one of them fails, each gets its own."""
        try:
            results = self._transaction([job.work for job in batch])
        except Exception as error:
            if len(batch) == 1 or isinstance(error, OutcomeUnknown):
                for job in batch:
                    job.future.set_exception(error)
            else:
                for job in batch:
                    self._commit([job])
            return
        for job, result in zip(batch, results, strict=True):
            job.future.set_result(result)
        if self._retention.is_due(sum(job.size for job in batch)):
            self._shrink()

    def _shrink(self) -> None:
        """In the thread that writes, a step at a time."""
        try:
            while self._transaction([lambda c: self._retention.shrink(c, partial(_all, c))])[0]:
                pass
        except StoreError as error:  # those who kept frames have nothing to do with it; it is tried again
            log.warning("the frame log could not be shrunk: %s", error)

    def _transaction(self, works: list[Callable[[apsw.Connection], Any]]) -> list[Any]:
        with self._writing, self._translated():
            if self._writer is None:
                self._writer = self._connect()
            connection = self._writer
            try:
                connection.execute("begin immediate")
                results = [work(connection) for work in works]
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            try:
                connection.execute("commit")
            except apsw.Error as error:
                self._discard()  # not trusted again
                if isinstance(error, _NOTHING_WRITTEN):
                    raise
                raise OutcomeUnknown(
                    f"frames {self._path}: the disk failed during a commit ({error}), and it cannot be told whether "
                    "they were kept. Check the disk; the numbers go on without a gap either way"
                ) from error
        return results

    # ------------------------------------------------------------------ connections

    def _connect(self) -> apsw.Connection:
        make_beside(self._path)
        connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(BUSY)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma secure_delete = on")  # what is removed leaves no trace in free pages
        connection.pragma("journal_size_limit", LOG_BYTES)
        return connection

    def _discard(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.close()

    def _make(self) -> apsw.Connection:
        """A connection to the file, which is made first if it is not there; if somebody else does so, that is it."""
        if not self._path.parent.is_dir():
            raise StoreError(f"there is no folder {self._path.parent} for the frame log; create it first")
        connection = self._connect()
        try:
            if self._is_new(connection):
                connection.pragma("auto_vacuum", 2)  # incremental: what is removed makes the file smaller
                connection.execute("begin exclusive")
                if self._is_new(connection):
                    connection.execute(sql_files.read(__package__, "frame_log_schema.sql"))
                    connection.pragma("application_id", APPLICATION)
                    connection.pragma("user_version", SCHEMA)
                connection.execute("commit")
            use_wal(connection, BUSY / 1000)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_new(self, connection: apsw.Connection) -> bool:
        # In this order: tables that somebody else makes meanwhile come together with their mark.
        empty = not connection.execute("select count(*) from sqlite_schema").fetchall()[0][0]
        application, version = connection.pragma("application_id"), int(str(connection.pragma("user_version")))
        if application == 0 and empty:
            return True
        if application != APPLICATION:
            raise StoreError(f"{self._path} is another program's database; move it away, it was left as it is")
        if version > SCHEMA:
            raise StoreTooNew(
                f"{self._path} was written by a newer onefold (schema {version}; this program knows {SCHEMA}). "
                "Update it: pip install -U onefold. Nothing was written"
            )
        return False

    @contextlib.contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        """A connection that nobody else uses meanwhile."""
        self._check_process()
        with self._news:
            if self._closed:
                raise self._is_closed()
            connection = self._readers.pop() if self._readers else None
        keep = False
        try:
            with self._translated():
                connection = connection or self._connect()
                yield connection
            keep = True
        finally:
            with self._news:
                if keep and connection is not None and len(self._readers) < IDLE_READERS and not self._closed:
                    self._readers.append(connection)
                elif connection is not None:
                    connection.close()

    def _count(self, room: str) -> _FrameCount:
        with self._reading() as connection:
            return _count(connection, room) or _FrameCount(0, 0, 0, 0)

    # ------------------------------------------------------------------ errors

    def _is_closed(self) -> StoreError:
        return StoreError(f"the frame log {self._path} is closed in this process; open it again")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"the frame log {self._path} was opened before a fork; open it again in this process")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            kind: type[StoreError] = StoreUnavailable
            match error:
                case apsw.FullError():
                    remedy = "the disk is full. Free some space and try again"
                case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
                    remedy = f"the file cannot be opened or written ({error}). Make it and its folder writable"
                case apsw.BusyError() | apsw.LockedError():
                    remedy = (
                        f"another process has held the write lock for {BUSY // 1000} s. Look for one that is stopped"
                    )
                case apsw.NotADBError() | apsw.CorruptError():
                    kind = StoreDamaged
                    remedy = (
                        f"it is damaged ({error}). Move it away: the journal does not need it, and it is created again"
                    )
                case _:
                    remedy = f"{error}. Check the disk, then try again"
            raise kind(f"frames {self._path}: {remedy}. Nothing was written") from error


# ---------------------------------------------------------------------- in a transaction


def _run(connection: apsw.Connection, name: str, *values: Any) -> None:
    connection.execute(_queries()[name], values)


def _all(connection: apsw.Connection, name: str, *values: Any) -> list[Any]:
    return connection.execute(_queries()[name], values).fetchall()


def _place(room: int, number: int) -> int:
    return room << 40 | number


def _number(place: int) -> int:
    return place & ((1 << 40) - 1)


def _range(room: int) -> tuple[int, int]:
    return _place(room, 0), _place(room + 1, 0) - 1


def _count(connection: apsw.Connection, room: str) -> _FrameCount | None:
    found: list[Any] = connection.execute(_queries()["count"], (room,)).fetchall()
    return _FrameCount(*found[0]) if found else None


def _known(connection: apsw.Connection, room: str) -> _FrameCount:
    found: Any = _count(connection, room)
    if found is not None and found.folded == _DROPPED:
        raise SessionNotFound(room, deleted=True)
    return found or _FrameCount(*_one(connection, "add_count", room))


def _one(connection: apsw.Connection, name: str, *values: Any) -> Any:
    return connection.execute(_queries()[name], values).fetchall()[0]


def _append(
    connection: apsw.Connection, *, room: str, rows: Sequence[NewFrame], clock: Clock, after: int | None = None
) -> int:
    count = _known(connection, room)
    last, at = count.last, clock()
    if after is not None and last > after:
        raise ErasureFirst
    for size, body in pages(rows):
        _run(connection, "add_page", _place(count.room, last + 1), last + size, at, len(body), *packed(body))
        last += size
    _run(connection, "put_last", last, count.room)
    return last


def _erase(connection: apsw.Connection, *, room: str, erasure: Erasure, clock: Clock) -> bool:
    count = _count(connection, room)
    if count is None or count.folded == _DROPPED:
        return False
    places: list[Any] = [place for (place,) in connection.execute(_queries()["places"], _range(count.room)).fetchall()]
    for place in places:
        for row in _one_page(connection, place):
            erasure.see(row)
    if erasure.is_done:
        return False
    for place in places:
        rows = _one_page(connection, place)
        left = [NewFrame(row.kind, erasure.left_of(row), row.record) for row in rows]
        if any(one.text != row.text for one, row in zip(left, rows, strict=True)):
            body = page(left)
            _run(connection, "put_page", len(body), *packed(body), place)
    _append(connection, room=room, rows=[erasure.mark], clock=clock)
    return True


def _one_page(connection: apsw.Connection, place: int) -> list[LoggedFrame]:
    _, at, _, coding, body = _one(connection, "pages", place, place)
    return [LoggedFrame(number, *row, at) for number, row in enumerate(unpacked(coding, body), _number(place))]


def _read(connection: apsw.Connection, room: int, after: int, limit: int) -> list[LoggedFrame]:
    low, high = _range(room)
    (begins,) = _one(connection, "page_of", low, min(low + after + 1, high))
    found: list[LoggedFrame] = []
    size = 0
    cursor = connection.execute(_queries()["pages"], (low if begins is None else begins, high))
    try:
        row: Any
        for row in cursor:
            place, at, length, coding, body = row
            if found and size + length > READ_BYTES:
                break
            for number, (kind, text, record) in enumerate(unpacked(coding, body), _number(place)):
                if number > after:
                    size += len(text)
                    if found and (len(found) >= limit or size > READ_BYTES):
                        return found
                    found.append(LoggedFrame(number, kind, text, record, at))
        return found
    finally:
        cursor.close()


def _forget(connection: apsw.Connection, *, after: int, before: float) -> tuple[int, int] | None:
    return forget(partial(_all, connection), after, before)


def _drop_some(connection: apsw.Connection, *, room: str) -> bool:
    """One step of removing a room; whether it was the last."""
    count = _count(connection, room)
    if count is not None:
        low, _ = _range(count.room)
        pages: list[Any] = connection.execute(_queries()["oldest"], (*_range(count.room), PAGES)).fetchall()
        if pages:
            _run(connection, "drop_pages", low, pages[-1][0])
            connection.execute("pragma incremental_vacuum").fetchall()
            return False
        _run(connection, "put_dropped", _DROPPED, count.room)
    _run(connection, "drop_room", room)
    return True


# ---------------------------------------------------------------------- the file

_FIELDS = ("session", "agent", "command", "cwd", "agent_session", "opened_at", "closed_at")


def _room(session: Any, agent: Any, command: Any, *rest: Any) -> RoomRow:
    return RoomRow(session, agent, orjson.loads(command), *rest)


@cache
def _queries() -> dict[str, str]:
    """The statements of `frame_log_queries.sql` by name."""
    return sql_files.statements(__package__, "frame_log_queries.sql")


def _after_fork() -> None:
    for frames in _ours:
        _inherited.extend((frames._writer, frames._readers))


os.register_at_fork(after_in_child=_after_fork)
