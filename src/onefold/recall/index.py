"""The index of words: a sidecar SQLite file of the store, or memory for a store in memory.

It holds nothing that the journal does not, so whatever is wrong with it, it is rebuilt: another generation of the
store, another version of this program, damage. Nobody who writes to the journal ever opens it. Connections are made for
each use and closed after it, so that threads and forks of a process share none.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from onefold.errors import StoreError
from onefold.recall.searchable_text import Part
from onefold.storage import sql_files
from onefold.storage.permissions import make_beside

APPLICATION = 0x1F01D5E
SCHEMA = 2
WIPE_PAGES = (256 << 20) // 4096
"""Up to this size the file is rewritten at once when something in it was erased."""
WIPE_PATIENCE = 0.5
_REBUILD_PATIENCE = 5.0
_TAKEN_OUT = "taken out"
_WIPED = "wiped"
_LAST_SIGN = "\U0010ffff"


class IndexUnavailable(StoreError):
    """The index cannot be used now: somebody is in the way, or it cannot be written. The journal can still be read."""


@dataclass(frozen=True, slots=True)
class IndexedUpTo:
    """How far a session has been read."""

    id: str
    number: int
    upto: int
    last_id: str

    @property
    def scope(self) -> str:
        return f"s{self.number}"


class Said(NamedTuple):
    """What goes into the index of one record."""

    at: float
    text: str
    """Its words, apart from each other."""
    speaker: str
    part: Part


class Neighbour(NamedTuple):
    """A record, as one of those that stand around another."""

    center: int
    id: int
    session: int
    number: int
    at: float
    part: int


class Named(NamedTuple):
    """A record of the index, by the names that it has in the journal."""

    id: int
    session: str
    number: int
    at: float
    length: int


@cache
def queries() -> dict[str, str]:
    """The statements of `queries.sql` by name."""
    return sql_files.statements(__package__, "queries.sql")


class IndexRows:
    """The rows of the index, on one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def _run(self, name: str, *values: Any) -> list[Any]:
        return self._connection.execute(queries()[name], values).fetchall()

    def fact(self, name: str) -> str | None:
        found = self._run("fact", name)
        return str(found[0][0]) if found else None

    def put_fact(self, name: str, value: str) -> None:
        self._run("put_fact", name, value)

    def marks(self) -> dict[str, IndexedUpTo]:
        return {row[0]: IndexedUpTo(*row) for row in self._run("marks")}

    def mark(self, session: str) -> IndexedUpTo | None:
        found = self._run("mark", session)
        return IndexedUpTo(*found[0]) if found else None

    def put_mark(self, session: str, upto: int, last_id: str) -> IndexedUpTo:
        self._run("put_mark", session, upto, last_id)
        return IndexedUpTo(*self._run("mark", session)[0])

    def add(self, mark: IndexedUpTo, said: Mapping[int, Said]) -> None:
        """Records by number.

        All rows first, then all words: FTS5 writes out what it has gathered whenever another statement begins.
        """
        first = int(self._run("next_record")[0][0])
        rows = [(first + i, mark.number, n, one.at, len(one.text), one.part) for i, (n, one) in enumerate(said.items())]
        texts = [(first + i, one.text, mark.scope, one.speaker) for i, one in enumerate(said.values())]
        self._connection.executemany(queries()["put_record"], rows)
        self._connection.executemany(queries()["put_words"], texts)

    def drop(self, mark: IndexedUpTo, number: int) -> bool:
        """Takes one record out; False if it was not there."""
        found = self._run("record", mark.number, number)
        for (id,) in found:
            self._run("drop_words", id)
            self._run("drop_record", id)
        return bool(found)

    def drop_session(self, mark: IndexedUpTo) -> None:
        self._run("drop_session_words", mark.number)
        self._run("drop_session_records", mark.number)
        self._run("drop_mark", mark.number)
        self.to_wipe()

    def to_wipe(self) -> None:
        """Something that was taken out has to leave the file too."""
        self.put_fact(_TAKEN_OUT, str(int(self.fact(_TAKEN_OUT) or 0) + 1))

    def has_to_wipe(self) -> str | None:
        """The newest taking out, if the file was not wiped since."""
        newest = self.fact(_TAKEN_OUT)
        return newest if newest != self.fact(_WIPED) else None

    def wiped(self, newest: str) -> None:
        """Up to that one. What was taken out meanwhile is still to come."""
        self.put_fact(_WIPED, newest)

    # what a search asks

    def size(self, scopes: Sequence[IndexedUpTo] | None) -> int:
        """About how many records there are, in some sessions or in all."""
        if scopes is None:
            return int(self._run("size")[0][0])
        return int(self._run("extent", orjson.dumps([scope.number for scope in scopes]).decode())[0][0])

    def words_from(self, start: str, most: int) -> list[str]:
        """The words that begin so, in order."""
        self._run("vocabulary")
        return [row[0] for row in self._run("words_from", start, start + _LAST_SIGN, most)]

    def holding(self, expression: str, most: int) -> list[int]:
        """Records that hold something, the newest first."""
        return [row[0] for row in self._run("holding", expression, most)]

    def dated(self, start: float, stop: float, most: int) -> list[int]:
        return [row[0] for row in self._run("dated", start, stop, most)]

    def around(self, ids: Sequence[int], reach: int) -> list[Neighbour]:
        """What stands around each of some records in its session, in order, and the records themselves."""
        return [Neighbour._make(row) for row in self._run("around", orjson.dumps(ids).decode(), reach)]

    def named(self, ids: Sequence[int]) -> list[Named]:
        return [Named._make(row) for row in self._run("named", orjson.dumps(ids).decode())]


class Index:
    def __init__(self, path: Path | None, generation: str) -> None:
        self.path = path
        self._generation = generation
        self._memory: apsw.Connection | None = None
        self._one = threading.RLock()
        """For memory: one thread at a time."""

    @contextlib.contextmanager
    def open(self, patience: float = 0.0) -> Iterator[IndexRows]:
        """The index for reading, rebuilt first if it has to be. Waits so many seconds for others."""
        with self._translated(), self._connected(patience) as connection:
            yield IndexRows(connection)

    @contextlib.contextmanager
    def writing(self, patience: float = 0.0) -> Iterator[IndexRows | None]:
        """One transaction. None if another one is under way and does not end in time."""
        with self._translated(), self._connected(patience) as connection:
            try:
                connection.execute("begin immediate")
            except apsw.BusyError:
                yield None
                return
            try:
                yield IndexRows(connection)
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def rebuild(self) -> None:
        """Empties it, whatever is in it."""
        with self._translated(), self._one:
            if self._memory is not None:
                self._memory.close()
                self._memory = None
            if self.path is not None:
                with contextlib.closing(self._connect(_REBUILD_PATIENCE)) as connection:
                    with contextlib.suppress(apsw.CorruptError, apsw.NotADBError):
                        self._check_ours(connection)
                    self._reset(connection)

    def wipe(self, *, whole: bool = False) -> bool:
        """Sees to it that the file no longer holds what was taken out: as far as it is quick, or `whole`. False if
        something is left."""
        try:
            with self._translated(), self._connected(WIPE_PATIENCE) as connection:
                entries = IndexRows(connection)
                if (newest := entries.has_to_wipe()) is None:
                    return True
                if not whole and int(str(connection.pragma("page_count"))) > WIPE_PAGES:
                    return False
                connection.execute(queries()["optimize"])
                if self.path is not None:
                    connection.execute("vacuum")
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                entries.wiped(newest)
                return True
        except IndexUnavailable:
            return False

    # ------------------------------------------------------------------ connections

    @contextlib.contextmanager
    def _connected(self, patience: float) -> Iterator[apsw.Connection]:
        if self.path is None:
            with self._one:
                if self._memory is None:
                    self._memory = apsw.Connection(":memory:")
                    self._make(self._memory)
                yield self._memory
            return
        connection = self._sound(patience)
        try:
            yield connection
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
            self._reset(connection)  # found in the middle of the work: this use fails, the next one starts again
            raise
        finally:
            connection.close()

    def _sound(self, patience: float) -> apsw.Connection:
        """A connection to an index that is this store's."""
        connection = self._connect(patience)
        try:
            try:
                self._prepare(connection)
                if not self._fits(connection):
                    self._make(connection)
            except (apsw.CorruptError, apsw.NotADBError):
                self._reset(connection)
            return connection
        except BaseException:
            connection.close()
            raise

    def _connect(self, patience: float) -> apsw.Connection:
        if self.path is not None:
            make_beside(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(int(patience * 1000))
        return connection

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.execute("pragma synchronous = normal")  # what a power cut takes is read again
        connection.execute("pragma secure_delete = on")

    def _fits(self, connection: apsw.Connection) -> bool:
        if connection.pragma("application_id") != APPLICATION or connection.pragma("user_version") != SCHEMA:
            return False
        try:
            return IndexRows(connection).fact("incarnation") == self._generation
        except apsw.SQLError:  # a table is gone
            return False

    def _make(self, connection: apsw.Connection) -> None:
        """Rebuilds it, in one transaction; if somebody else was first, that is it."""
        self._check_ours(connection)
        if self.path is not None:
            with contextlib.suppress(apsw.BusyError):  # somebody else is at it
                connection.pragma("journal_mode", "wal")
        connection.execute("begin immediate")
        try:
            self._check_ours(connection)
            if not self._fits(connection):
                for (table,) in connection.execute(queries()["tables"]).fetchall():
                    connection.execute(f'drop table "{table}"')
                connection.execute(sql_files.read(__package__, "schema.sql"))
                IndexRows(connection).put_fact("incarnation", self._generation)
                connection.pragma("application_id", APPLICATION)
                connection.pragma("user_version", SCHEMA)
            connection.execute("commit")
        finally:
            if connection.in_transaction:
                connection.execute("rollback")

    def _check_ours(self, connection: apsw.Connection) -> None:
        mark = connection.pragma("application_id")
        if mark != APPLICATION and (mark != 0 or connection.execute(queries()["tables"]).fetchall()):
            raise IndexUnavailable(f"{self.path} is another program's database; move it away, the index is to be there")

    def _reset(self, connection: apsw.Connection) -> None:
        """Empties the file, however damaged, under SQLite's own locks: others that have it open see it empty."""
        connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
        try:
            connection.execute("vacuum")
        finally:
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
        self._prepare(connection)
        self._make(connection)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise IndexUnavailable(
                f"the index {self.path} cannot be used now ({type(error).__name__}: {error})"
            ) from error
