"""Raw frames, kept apart from the journal in a SQLite file of their own beside the store.

WAL, synchronous=FULL, and one thread that writes: whatever waits when a commit ends goes into the next one, so that
many rooms share the price of a disk's sync. Frames are numbered 1, 2, 3 … in each room, inside the transaction that
keeps them. What was kept together lies together, compressed, in pages.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import orjson

from onefold.errors import OutcomeUnknown, StoreDamaged, StoreError, StoreTooNew, StoreUnavailable
from onefold.journal.sqlite.engine import check_library
from onefold.journal.sqlite.place import check_place
from onefold.model import Clock, system_clock

T = TypeVar("T")

APPLICATION = 0x1F01DFA
SCHEMA = 1
BUSY = 30_000
LOG_BYTES = 16 << 20
"""To this size SQLite's log is cut back after a large write."""
PAGE_BYTES = 1 << 20
"""A page ends with the frame that fills it; a larger frame has one of its own."""
SMALL = 256
"""Pages below this size are kept as they are."""
LEVEL = 3
MOST_TOGETHER = 256
LARGE = 4 << 20
"""So many bytes in one commit, or one append: a large one delays nobody who came before it."""
READ_BYTES = 16 << 20
RETAIN_PAGES = 64
IDLE_READERS = 4

_PLAIN, _ZLIB = 0, 1
_NOTHING_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.ConstraintError)
_ours: weakref.WeakSet[Frames] = weakref.WeakSet()
_inherited: list[Any] = []
"""Connections of a parent process. Never used and never closed here: closing could end the parent's log."""


class Kept(NamedTuple):
    """A frame to be kept, or a line of stderr, or a note. A tuple, because there are very many."""

    kind: str
    """in and out: from the agent and to it; old: told again by the agent; err: its stderr; note: the room's own."""
    text: str
    record: int
    """The journal's last number at that time."""


class Numbered(NamedTuple):
    """A frame that was kept."""

    number: int
    kind: str
    text: str
    record: int
    at: float


@dataclass(frozen=True, slots=True)
class RoomRow:
    """What has to be known of a room to open it again."""

    session: str
    agent: str
    command: list[str]
    cwd: str
    agent_session: str | None
    """The agent's own id for the session."""
    opened_at: float
    closed_at: float | None


class _Count(NamedTuple):
    room: int
    last: int
    forgotten: int
    folded: int


class _Job(NamedTuple):
    work: Callable[[apsw.Connection], Any]
    size: int
    future: Future[Any]


class Frames:
    """All rooms of a store. Any thread may use it; `append` and `set_folded` never wait, all else may."""

    def __init__(self, path: str, *, clock: Clock = system_clock) -> None:
        check_library()
        self._path = Path(path).absolute()
        self._clock = clock
        self._pid = os.getpid()
        self._jobs: deque[_Job] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._readers: list[apsw.Connection] = []
        check_place(self._path)
        with self._translated():
            self._writer: apsw.Connection | None = self._make()
        self._thread = threading.Thread(target=self._write, name="onefold-frames", daemon=True)
        self._thread.start()
        _ours.add(self)

    def append(self, room: str, rows: Sequence[Kept]) -> Future[int]:
        """Keeps frames, all or none; gives the number of the last one once they are durable. Cannot be cancelled."""
        size = sum(len(row.text) for row in rows)
        return self._submit(partial(_append, room=room, rows=tuple(rows), clock=self._clock), size)

    def read(self, room: str, after: int, limit: int) -> list[Numbered]:
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

    def folded(self, room: str) -> int:
        """Up to which frame the journal has it all."""
        return self._count(room).folded

    def set_folded(self, room: str, number: int) -> Future[None]:
        return self._submit(partial(_set_folded, room=room, number=number))

    def rooms(self) -> list[RoomRow]:
        with self._reading() as connection:
            return [_room(*row) for row in connection.execute(_queries()["rooms"])]

    def room(self, session: str) -> RoomRow | None:
        with self._reading() as connection:
            found: list[Any] = connection.execute(_queries()["room"], (session,)).fetchall()
            return _room(*found[0]) if found else None

    def put_room(self, row: RoomRow) -> None:
        """Durable when it returns."""
        command = orjson.dumps(row.command).decode()
        values = [command if name == "command" else value for name, value in zip(_FIELDS, astuple(row), strict=True)]
        self._submit(lambda connection: _run(connection, "put_room", *values)).result()

    def drop_room(self, session: str) -> None:
        """Removes all that is kept of a room, for good: the session was deleted."""
        while not self._submit(partial(_drop_some, room=session)).result():
            pass
        with self._reading() as connection, contextlib.suppress(apsw.BusyError):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def retain(self, before: float) -> int:
        """Removes frames that were kept before this time, a few at a time, so that nobody waits for it; how many.

        Always the oldest of a room, without a gap, so a clock that jumped keeps more than it should. Numbers go on.
        """
        removed, room = 0, 0
        while (found := self._submit(partial(_forget_some, after=room, before=before)).result()) is not None:
            room, gone = found
            removed += gone
        return removed

    def close(self) -> None:
        """Writes what was asked for before, then lets go. A second call does nothing."""
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
                self._jobs.append(_Job(work, size, future))
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

    def _next_batch(self) -> list[_Job]:
        """Waits for work. Nothing, once the end has come and all is done."""
        with self._news:
            self._news.wait_for(lambda: self._jobs or self._closed)
            batch: list[_Job] = []
            size = 0
            while self._jobs and len(batch) < MOST_TOGETHER:
                size += self._jobs[0].size
                if batch and size > LARGE:
                    break
                batch.append(self._jobs.popleft())
            return batch

    def _commit(self, batch: list[_Job]) -> None:
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

    def _transaction(self, works: list[Callable[[apsw.Connection], Any]]) -> list[Any]:
        with self._translated():
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
        connection = apsw.Connection(str(self._path))
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
            raise StoreError(f"there is no folder {self._path.parent} for the frames; make it first")
        connection = self._connect()
        try:
            if self._is_new(connection):
                connection.pragma("auto_vacuum", 2)  # incremental: what is removed makes the file smaller
                connection.execute("begin exclusive")
                if self._is_new(connection):
                    connection.execute(_file("frames_schema.sql"))
                    connection.pragma("application_id", APPLICATION)
                    connection.pragma("user_version", SCHEMA)
                connection.execute("commit")
            _use_log(connection)
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

    def _count(self, room: str) -> _Count:
        with self._reading() as connection:
            return _count(connection, room) or _Count(0, 0, 0, 0)

    # ------------------------------------------------------------------ errors

    def _is_closed(self) -> StoreError:
        return StoreError(f"the frames in {self._path} are closed in this process; open them again")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"the frames in {self._path} were opened before a fork; open them again in this process")

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
                    remedy = f"it is damaged ({error}). Move it away: the journal does not need it, and it is made anew"
                case _:
                    remedy = f"{error}. Check the disk, then try again"
            raise kind(f"frames {self._path}: {remedy}. Nothing was written") from error


# ---------------------------------------------------------------------- in a transaction


def _run(connection: apsw.Connection, name: str, *values: Any) -> None:
    connection.execute(_queries()[name], values)


def _place(room: int, number: int) -> int:
    return room << 40 | number


def _number(place: int) -> int:
    return place & ((1 << 40) - 1)


def _range(room: int) -> tuple[int, int]:
    return _place(room, 0), _place(room + 1, 0) - 1


def _count(connection: apsw.Connection, room: str) -> _Count | None:
    found: list[Any] = connection.execute(_queries()["count"], (room,)).fetchall()
    return _Count(*found[0]) if found else None


def _known(connection: apsw.Connection, room: str) -> _Count:
    found: Any = _count(connection, room)
    return found or _Count(*_one(connection, "add_count", room))


def _one(connection: apsw.Connection, name: str, *values: Any) -> Any:
    return connection.execute(_queries()[name], values).fetchall()[0]


def _append(connection: apsw.Connection, *, room: str, rows: Sequence[Kept], clock: Clock) -> int:
    count = _known(connection, room)
    last, at = count.last, clock()
    for size, body in _pages(rows):
        _run(connection, "add_page", _place(count.room, last + 1), last + size, at, len(body), *_packed(body))
        last += size
    _run(connection, "put_last", last, count.room)
    return last


def _set_folded(connection: apsw.Connection, *, room: str, number: int) -> None:
    _run(connection, "put_folded", number, _known(connection, room).room)


def _read(connection: apsw.Connection, room: int, after: int, limit: int) -> list[Numbered]:
    low, high = _range(room)
    (begins,) = _one(connection, "page_of", low, min(low + after + 1, high))
    found: list[Numbered] = []
    size = 0
    cursor = connection.execute(_queries()["pages"], (low if begins is None else begins, high))
    try:
        page: Any
        for page in cursor:
            place, at, unpacked, coding, body = page
            if found and size + unpacked > READ_BYTES:
                break
            for number, (kind, text, record) in enumerate(_frames(coding, body), _number(place)):
                if number > after:
                    size += len(text)
                    if found and (len(found) >= limit or size > READ_BYTES):
                        return found
                    found.append(Numbered(number, kind, text, record, at))
        return found
    finally:
        cursor.close()


def _forget_some(connection: apsw.Connection, *, after: int, before: float) -> tuple[int, int] | None:
    """One step of retention: (the room to go on after, frames that were removed), or None at the end."""
    rooms: list[Any] = connection.execute(_queries()["counts"], (after,)).fetchall()
    for (number,) in rooms:
        pages: list[Any] = connection.execute(_queries()["oldest"], (*_range(number), RETAIN_PAGES)).fetchall()
        old = 0
        while old < len(pages) and pages[old][2] < before:
            old += 1
        if old:
            place, last, _ = pages[old - 1]
            _run(connection, "drop_pages", _range(number)[0], place)
            _run(connection, "put_forgotten", last, number)
            connection.execute("pragma incremental_vacuum").fetchall()
            removed = last - _number(pages[0][0]) + 1
            return (number - 1 if old == RETAIN_PAGES else number), removed
    return None


def _drop_some(connection: apsw.Connection, *, room: str) -> bool:
    """One step of removing a room; whether it was the last."""
    count = _count(connection, room)
    if count is not None:
        low, _ = _range(count.room)
        pages: list[Any] = connection.execute(_queries()["oldest"], (*_range(count.room), RETAIN_PAGES)).fetchall()
        if pages:
            _run(connection, "drop_pages", low, pages[-1][0])
            connection.execute("pragma incremental_vacuum").fetchall()
            return False
        _run(connection, "drop_count", count.room)
    _run(connection, "drop_room", room)
    return True


# ---------------------------------------------------------------------- pages


def _pages(rows: Sequence[Kept]) -> Iterator[tuple[int, bytes]]:
    """How many frames, and they themselves: a line of JSON with kind, record and length of each, then all texts."""
    heads: list[tuple[str, int, int]] = []
    texts: list[bytes] = []
    size = 0
    for kind, text, record in rows:
        data = text.encode(errors="surrogatepass")
        if texts and size + len(data) > PAGE_BYTES:
            yield len(texts), b"".join((orjson.dumps(heads), b"\n", *texts))
            heads, texts, size = [], [], 0
        heads.append((kind, record, len(data)))
        texts.append(data)
        size += len(data)
    if texts:
        yield len(texts), b"".join((orjson.dumps(heads), b"\n", *texts))


def _packed(body: bytes) -> tuple[int, bytes]:
    if len(body) >= SMALL:
        smaller = zlib.compress(body, LEVEL if len(body) < LARGE else 1)  # others wait meanwhile
        if len(smaller) < len(body):
            return _ZLIB, smaller
    return _PLAIN, body


def _frames(coding: Any, body: Any) -> Iterator[Kept]:
    try:
        data: bytes = zlib.decompress(body) if coding == _ZLIB else body
        begins = data.index(b"\n") + 1
        for kind, record, length in orjson.loads(data[:begins]):
            yield Kept(kind, data[begins : begins + length].decode(errors="surrogatepass"), record)
            begins += length
    except (zlib.error, ValueError) as error:
        raise StoreDamaged(f"a page of frames is damaged ({error}); the journal does not need it") from error


# ---------------------------------------------------------------------- the file

_FIELDS = ("session", "agent", "command", "cwd", "agent_session", "opened_at", "closed_at")


def _room(session: Any, agent: Any, command: Any, *rest: Any) -> RoomRow:
    return RoomRow(session, agent, orjson.loads(command), *rest)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text()


@cache
def _queries() -> dict[str, str]:
    """The statements of `frames_queries.sql` by name."""
    text = _file("frames_queries.sql")
    found = re.findall(r"^-- (\w+): [^\n]*\n(.*?;)\n", text + "\n", flags=re.MULTILINE | re.DOTALL)
    return {name: statement.rstrip(";") for name, statement in found}


def _use_log(connection: apsw.Connection) -> None:
    """Switches a new file to WAL. SQLite refuses that without waiting while somebody else has a write lock, as one has
    who makes the same file: then this waits for its turn, looks again, and gives up after a while."""
    ends = time.monotonic() + BUSY / 1000
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > ends:
                raise
            connection.execute("begin exclusive")
            connection.execute("rollback")


def _after_fork() -> None:
    for frames in _ours:
        _inherited.extend((frames._writer, frames._readers))


os.register_at_fork(after_in_child=_after_fork)
