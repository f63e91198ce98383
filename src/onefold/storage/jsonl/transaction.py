"""One transaction: the rows of an index, and lines of files that are read, or wait to be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from zlib import crc32

import apsw

from onefold.errors import StoreDamaged
from onefold.model import SEGMENT_OPENED, Record, SessionState
from onefold.storage.jsonl import layout
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.queries import index_queries
from onefold.storage.jsonl.record_lines import parsed, written
from onefold.storage.row_codec import header_columns
from onefold.storage.sqlite.transaction import EVERYTHING, MOST, NEVER, Known, SqliteTransaction

_QUERIES = index_queries()
ADD = _QUERIES["add_record"]
TOUCH = _QUERIES["touch_session"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})
TAKE_IT = f"Or, to take it as it is now, close the store everywhere and remove {layout.OWN}/{layout.INDEX}"
_LARGE = 1 << 16
_RUN = 4 << 20
"""How many bytes of lines that stand side by side are read at once."""


class LinePosition(NamedTuple):
    """Where a line is: the base that its file is named by, the offset in it, the length, and a checksum of the line,
    by which one that was changed by hand is known."""

    base: int
    offset: int
    length: int
    check: int

    @classmethod
    def of(cls, base: int, offset: int, line: bytes) -> LinePosition:
        return cls(base, offset, len(line), crc32(line))

    @property
    def end(self) -> int:
        return self.offset + self.length

    def __str__(self) -> str:
        return f"{self.base} {self.offset} {self.length} {self.check}"


def place(text: str) -> LinePosition:
    base, offset, length, check = text.split(" ")
    return LinePosition(int(base), int(offset), int(length), int(check))


class Shifted(Exception):
    """A line is not where the index says: a file was rewritten, or changed by hand."""

    def __init__(self, session: str, path: Path, at: LinePosition, why: str) -> None:
        super().__init__(f"session {session!r}: {path}: {why}")
        self.session, self.path, self.at, self.why = session, path, at, why


class FilesKnown(Known):
    """And where the files of sessions end, as long as nobody else writes."""

    __slots__ = ("ends", "sound")

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[str, tuple[int, int]] = {}
        self.sound: set[str] = set()
        """Sessions whose files have nothing wrong."""

    def copy(self) -> FilesKnown:
        other = FilesKnown()
        other.states.update(self.states)
        other.sids.update(self.sids)
        other.rows.update(self.rows)
        other.ends.update(self.ends)
        other.sound.update(self.sound)
        return other

    def clear(self) -> None:
        super().clear()
        self.ends.clear()
        self.sound.clear()


class LineChange:
    """What transactions have done to one session, and is not on disk yet."""

    first: tuple[Record, str] | None = None
    """What was added first, if that has its line and its place already."""
    line = b""
    """The line of it."""
    opens: int | None = None
    """The base of the first segment that was opened: what was added goes into a file of that name."""
    wiped: tuple[str, ...] = ()
    ends: tuple[int, int] | None = None
    """The file in force and where it ends; None for a session that has none."""

    # Made when they are asked for: most transactions add one record, and are over.

    @cached_property
    def added(self) -> list[tuple[Record, str]]:
        return [self.first] if self.first is not None else []

    @cached_property
    def fresh(self) -> dict[int, Record]:
        """Records as they will be, by number: those that were added, and those that were rewritten."""
        return {self.first[0].number: self.first[0]} if self.first is not None else {}

    @cached_property
    def rewritten(self) -> dict[int, tuple[Record, str]]:
        return {}

    @property
    def plain(self) -> bool:
        """Whether it does nothing but add lines to the end of a file."""
        return self.opens is None and not self.rewritten and not self.wiped


Waiting = tuple[int, Record, tuple[int, int], bytes]
"""A row that is not made yet: its session's number, its record, the file in force and where that ended, its line."""


def row_of_line(waiting: Waiting) -> tuple[Any, ...]:
    sid, (number, id, kind, at, _, format, header, key, turn, actor), (base, end), line = waiting
    where = LinePosition.of(base, end, line)
    return ((sid << 32) + number, id, kind, at, format, *header_columns(header), key, turn, actor, str(where))


class Deferred:
    """The connection that writes to the index, which begins a transaction only when something but one more record is
    asked of it. Most operations are just that, and their row can wait. Whoever uses it has the store's lock, so nobody
    else writes to the index meanwhile."""

    __slots__ = ("_connection", "_flush", "begun", "done", "waiting")

    def __init__(self, connection: apsw.Connection, flush: Callable[[], None], *, begun: bool) -> None:
        self._connection = connection
        self._flush = flush
        """Puts the rows of earlier operations into the index."""
        self.begun = begun
        self.waiting: Waiting | None = None
        """The row of a record that was added before it began."""
        self.done = False

    @property
    def in_transaction(self) -> bool:
        return not self.begun or self._connection.in_transaction

    def execute(self, statement: str, bindings: Any = ()) -> Any:
        if not self.begun:
            self.begin()
        return self._connection.execute(statement, bindings)

    def begin(self) -> None:
        self._flush()
        self._connection.execute("begin immediate")
        self.begun = True
        if self.waiting is not None:
            self._connection.execute(ADD, row_of_line(self.waiting))

    def commit(self) -> None:
        if self.begun:
            self._connection.execute("commit")
        self.done = True


class FilesTransaction(SqliteTransaction):
    """What one operation sees and writes. The `body` of a row is the place of the record's line."""

    known: FilesKnown
    index: Deferred
    later = False
    """Whether this is a burst, in which what one message changes in the index is written with what others change."""

    def __init__(
        self,
        connection: apsw.Connection | Deferred,
        now: float,
        known: FilesKnown | None,
        disk: Disk,
        root: Path,
        *,
        earlier: Mapping[str, LineChange] = _NOTHING,
        sure: bool = True,
    ) -> None:
        super().__init__(cast(apsw.Connection, connection), now, known or FilesKnown())
        self._queries = _QUERIES
        if isinstance(connection, Deferred):
            self.index = connection
            """What this one writes to the index with; one that only reads has none."""
        self._reads = not isinstance(connection, Deferred)
        self._disk = disk
        self._root = root
        self._earlier = earlier
        self._sure = sure
        """Whether nobody else writes meanwhile, so that a line that is not in its place is damage."""
        self.open: dict[tuple[str, int], int] = {}
        """Files that it has read."""
        self.changes: dict[str, LineChange] = {}
        """What this one does to each session."""

    # ------------------------------------------------------------------ writing

    def add(self, session: str, record: Record, data: str) -> None:
        """One record, which is all that most operations add to a session that is known: in as few steps as can be,
        since after a wait for the disk each of them is slow."""
        known, index = self.known, self.index
        if (
            index.begun
            or self.changes
            or session not in known.ends
            or record.kind == SEGMENT_OPENED
            or len(data) > _LARGE  # its content would be held until its row is written
        ):
            self._add(session, record, data)
            return
        change = self.changes[session] = LineChange()
        ends, line = known.ends[session], written(record, data)
        change.ends, change.first, change.line = ends, (record, data), line
        index.waiting = known.sids[session], record, ends, line

    def put_session(self, state: SessionState) -> None:
        others = self.known.rows.get(state.id, NEVER)[2]
        if self.later and not self.index.begun and others == state.last - state.messages:
            self.known.states[state.id] = state
        else:
            super().put_session(state)

    def _add(self, session: str, record: Record, data: str) -> None:
        change = self.changes.get(session) or self._change(session)
        at = ""
        if record.kind == SEGMENT_OPENED and change.opens is None:
            change.opens = record.body["base"] or 0
        if not change.added and change.opens is None and change.ends is not None and session not in self._earlier:
            change.line = written(record, data)
            at = str(LinePosition.of(*change.ends, change.line))
        change.added.append((record, data))
        change.fresh[record.number] = record
        super().add(session, record, at)

    def _change(self, session: str) -> LineChange:
        change = self.changes[session] = LineChange()
        change.ends = self.ends(session)
        return change

    def ends(self, session: str) -> tuple[int, int] | None:
        """The file in force of a session, by its base, and where it ends; None for one that has no file."""
        found = self.known.ends.get(session)
        if found is None:
            rows = self.run("last_place", *self._places(session, 0, MOST))
            if not rows or not rows[0][0]:
                return None
            last = place(rows[0][0])
            found = self.known.ends[session] = last.base, last.end
        return found

    def put_place(self, session: str, number: int, at: LinePosition) -> None:
        self._connection.execute(self._queries["set_place"], (str(at), (self._sid(session) << 32) + number))

    def add_at(self, session: str, record: Record, at: LinePosition) -> None:
        """A record that a file has already."""
        super().add(session, record, str(at))

    def rewrite(self, session: str, record: Record, data: str) -> None:
        change = self.changes.get(session) or self._change(session)
        change.rewritten[record.number] = record, data
        change.fresh[record.number] = record
        super().rewrite(session, record, self.place_of(session, record.number))

    def place_of(self, session: str, number: int) -> str:
        (row,) = self.run("records", *self._places(session, number, number + 1), 1)
        return str(row[-1])

    def wipe(self, session: str, ids: Sequence[str]) -> None:
        change = self.changes.get(session) or self._change(session)
        change.wiped = tuple(ids)
        super().wipe(session, ids)
        self.known.ends.pop(session, None)

    def forget(self, session: str) -> None:
        """Takes everything of a session out of the index, to be folded again."""
        self.run("wipe_records", *self._places(session, 0, MOST))
        for what in (*EVERYTHING, "drop_journal"):
            self.run(what, session)
        self.known.clear()

    # ------------------------------------------------------------------ reading

    def records(self, session: str, start: int, stop: int, limit: int) -> list[Record]:
        return self._whole(session, self.run("records", *self._places(session, start, stop), limit))

    def messages(self, session: str, start: int, stop: int) -> list[Record]:
        return self._whole(session, self.run("messages", *self._places(session, start, stop)))

    def some(self, session: str, numbers: Sequence[int]) -> list[Record]:
        return self._whole(session, self._some(session, numbers))

    def marks(self, session: str, start: int, stop: int) -> list[Record]:
        return self._whole(session, self.run("marks", *self._places(session, start, stop)))

    def _whole(self, session: str, rows: list[Any]) -> list[Record]:
        """Records by their rows: those that wait to be written from here, the others from their files."""
        fresh = self._fresh(session)
        wanted = [(row[0], row[1], place(row[-1])) for row in rows if row[0] not in fresh]
        read = iter(self._read(session, wanted))
        return [fresh[row[0]] if row[0] in fresh else next(read) for row in rows]

    def _fresh(self, session: str) -> dict[int, Record]:
        mine, earlier = self.changes.get(session), self._earlier.get(session)
        if mine is None or earlier is None:
            only = mine or earlier
            return only.fresh if only is not None else {}
        return earlier.fresh | mine.fresh

    def _read(self, session: str, wanted: list[tuple[int, str, LinePosition]]) -> list[Record]:
        found = []
        first = 0
        while first < len(wanted):
            start = wanted[first][2]
            end, after = start.end, first + 1
            while after < len(wanted):
                at = wanted[after][2]
                if (at.base, at.offset) != (start.base, end) or at.end - start.offset > _RUN:
                    break
                end, after = at.end, after + 1
            text = self._text(session, start, end - start.offset)
            for number, id, at in wanted[first:after]:
                line = text[at.offset - start.offset : at.end - start.offset]
                found.append(self._checked(session, number, id, at, line))
            first = after
        return found

    def _checked(self, session: str, number: int, id: str, at: LinePosition, line: bytes) -> Record:
        """The record of a line, which has to be the one that the index says."""
        try:
            record = parsed(line).record
        except (ValueError, TypeError, KeyError) as error:
            raise self._shifted(session, at, f"record {number} cannot be read: {error}") from error
        if record.number != number or record.id != id:
            raise self._shifted(session, at, f"there is record {record.number} where {number} should be")
        if crc32(line) != at.check:
            raise self._shifted(session, at, f"record {number} is not as it was written")
        return record

    def _text(self, session: str, at: LinePosition, size: int) -> bytes:
        try:
            fd = self.open.get((session, at.base))
            if fd is None:
                fd = self.open[session, at.base] = self._disk.open(self._path(session, at.base))
            return self._disk.read(fd, size, at.offset)
        except FileNotFoundError as error:
            raise self._shifted(session, at, "it is gone") from error

    def _shifted(self, session: str, at: LinePosition, why: str) -> Exception:
        shifted = Shifted(session, self._path(session, at.base), at, why)
        return damaged(shifted, self._disk, reading=self._reads) if self._sure else shifted

    def is_there(self, session: str, number: int) -> bool:
        """Whether the line of a record is where the index says."""
        rows = self.run("records", *self._places(session, number, number + 1), 1)
        try:
            return bool(self._whole(session, rows))
        except (Shifted, StoreDamaged):
            return False

    def _path(self, session: str, base: int) -> Path:
        return self._root / layout.folder_name(session) / layout.file_name(base)

    def close(self) -> None:
        """Lets go of the files it has read."""
        while self.open:
            self._disk.close(self.open.popitem()[1])


def damaged(error: Shifted, disk: Disk, *, reading: bool) -> StoreDamaged:
    """A file that was changed behind the index: said with its line."""
    try:
        before = disk.read_whole(error.path)[: error.at.offset].count(b"\n") + 1
        where = f"{error.path}, line {before}"
    except OSError:
        where = str(error.path)
    return StoreDamaged(
        f"session {error.session!r}: {where}: {error.why}. The file was changed by hand; put it back as it was, or "
        f"restore a backup, and open the store again. {TAKE_IT}{'' if reading else '. Nothing was written'}"
    )
