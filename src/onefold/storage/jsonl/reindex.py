"""Bringing the index up to date with the files of a session, which are the truth.

What a killed writer left is finished or set aside by what is on disk. What was added by hand and makes sense is taken.
Anything else is said with its file and line, and left as it is. The caller holds the store's lock.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

import orjson

from onefold.errors import StoreDamaged
from onefold.model import FORK, Ids, SessionState
from onefold.storage import projection
from onefold.storage.base import UniqueViolation
from onefold.storage.jsonl import layout
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.record_lines import RecordLine, lines, parsed
from onefold.storage.jsonl.transaction import TAKE_IT, FilesTransaction, LinePosition

log = logging.getLogger("onefold")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a session's files."""

    file: str
    """Which one; empty if it is the folder."""
    line: int
    why: str

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}: {self.why}" if where else self.why


class _Senseless(Exception):
    """A record that can be read and cannot be folded: it makes no sense where it stands."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number, self.why = number, why


class SessionFolder:
    """The files of one session."""

    def __init__(self, disk: Disk, path: Path, names: Ids) -> None:
        self.disk = disk
        self.path = path
        self._names = names

    def listing(self) -> list[str] | None:
        """None if there is no such folder. Any other error is one: what cannot be read is not empty."""
        try:
            return self.disk.names(self.path)
        except (FileNotFoundError, NotADirectoryError):  # a file of somebody's is not a session
            return None

    def bases(self) -> list[int]:
        return sorted(base for name in self.listing() or () if (base := layout.base_of(name)) is not None)

    def session(self) -> str | None:
        """The session that is kept here; None if none is. A copy of a session's folder under another name is not it."""
        claimed = self.claimed()
        return claimed if claimed is not None and layout.folder_name(claimed) == self.path.name else None

    def claimed(self) -> str | None:
        """Whose it is, by the first line of its first file."""
        try:
            fd = self.disk.open(self.path / layout.file_name(0))
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            _, line = next(lines(self.disk, fd), (0, b""))
            return parsed(line).session
        except (ValueError, TypeError):
            return None
        finally:
            self.disk.close(fd)

    def clear_away(self) -> None:
        """Leftovers of a transaction that opened a segment. Linked to its name it was committed, and the other name
        goes. Otherwise it was not, nobody was told that it was, and it is set aside."""
        for name in self.listing() or ():
            left = self.path / name
            if name.startswith((".erased-", ".head-")):  # a copy of what is there
                self.disk.unlink(left)
            if not layout.is_temporary(name):
                continue
            if self.disk.stat(left).st_nlink > 1:
                self.disk.fsync_folder(self.path)
                self.disk.unlink(left)
            else:
                aside = self.path / f"unfinished-{name.removeprefix('.new-')}"
                self.disk.rename(left, aside)
                log.warning("%s: what a writer did not finish was set aside as %s", self.path, aside.name)

    def write_head(self, session: str, base: int, segment: int) -> None:
        """A hint for people and tools; nothing here relies on it."""
        text = layout.head_json(session, base, segment)
        with contextlib.suppress(FileNotFoundError):
            if self.disk.read_whole(self.path / layout.HEAD) == text:
                return
        beside = self.path / f".head-{self._names()}"
        self.disk.write_new(beside, text, sync=False)
        self.disk.rename(beside, self.path / layout.HEAD)

    def cut_off(self, name: str, at: int) -> None:
        """Takes a torn end off a file, and keeps it beside."""
        fd = self.disk.open_append(self.path / name)
        try:
            rest = self.disk.read(fd, self.disk.size(fd) - at, at)
            aside = self.path / f"{name}.torn-{self._names()}"
            self.disk.write_new(aside, rest)
            self.disk.fsync_folder(self.path)
            self.disk.truncate(fd, at)
            self.disk.fsync(fd)
        finally:
            self.disk.close(fd)
        log.warning(
            "%s: %d bytes at its end were not written whole; they are in %s now",
            self.path / name,
            len(rest),
            aside.name,
        )

    def sync(self, name: str) -> None:
        """Makes sure that what was found is there to stay, before anybody is told of it."""
        fd = self.disk.open_append(self.path / name)
        try:
            self.disk.fsync(fd)
        finally:
            self.disk.close(fd)
        self.disk.fsync_folder(self.path)


class Reading:
    """Folding the files of one session into the index, from where that ends, or from the beginning."""

    def __init__(
        self, tx: FilesTransaction, folder: SessionFolder, session: str, upto: _Senseless | None = None
    ) -> None:
        self._tx = tx
        self._folder = folder
        self._session = session
        self._upto = upto
        self._state: SessionState | None = tx.session(session)
        ends = tx.ends(session)
        self._known = ends
        """What the index has had: it was whole once, so that its end cannot be torn, only changed."""
        self._base, self._end = ends or (0, 0)
        self.damage: Damage | None = None

    def go(self) -> None:
        bases = self._folder.bases()
        visited = 0
        while self._base in bases and self.damage is None:
            visited += 1
            self._file(newest=self._base == bases[-1])
            if self._state is None or self._state.head == self._base or self._state.head not in bases:
                break
            self._base, self._end = self._state.head, 0
        if self.damage is None and bases and bases[-1] > self._base:
            stray = next(b for b in bases if b > self._base)
            self.damage = Damage(layout.file_name(stray), 0, "no segment of this session has such a successor")
        if self._state is not None:
            self._tx.put_session(self._state)
            self._tx.known.ends[self._session] = self._base, self._end

    def _file(self, *, newest: bool) -> None:
        disk, name = self._folder.disk, layout.file_name(self._base)
        fd = disk.open(self._folder.path / name)
        try:
            pending: list[tuple[RecordLine, LinePosition]] = []
            for offset, line in lines(disk, fd, self._end):
                why = self._take(offset, line, pending)
                if why is not None:
                    break
            else:
                offset, why = self._end, "a part of what was written together is missing" if pending else None
            if why is not None and not self._torn(fd, name, offset, newest=newest):
                for one, at in pending:  # which can be read all the same
                    self._fold(one, at)
                self.damage = Damage(name, 1 + sum(1 for at, _ in lines(disk, fd) if at < offset), why)
        finally:
            disk.close(fd)

    def _take(self, offset: int, line: bytes, pending: list[tuple[RecordLine, LinePosition]]) -> str | None:
        """One more line. Whole transactions go into the index. Says what is wrong with it, if anything is."""
        if not line.endswith(b"\n"):
            return "it has no end"
        try:
            said = parsed(line)
        except (ValueError, TypeError, KeyError) as error:
            return f"it is not a record ({error})"
        record = said.record
        last = pending[-1][0].record.number if pending else self._last(said)
        if record.number != last + 1:
            return f"after record {last} comes {record.number}"
        if said.session not in (None, self._session):
            return f"it is of session {said.session!r}"
        if self._upto is not None and record.number == self._upto.number:
            return self._upto.why
        pending.append((said, LinePosition.of(self._base, offset, line)))
        if not said.more:
            for one, at in pending:
                self._fold(one, at)
            pending.clear()
            self._end = offset + len(line)
        return None

    def _last(self, said: RecordLine) -> int:
        if self._state is not None:
            return self._state.last
        body = said.record.body
        return int(body["at"]) if said.record.kind == FORK else 0  # a fork's numbers go on where it left its parent

    def _fold(self, said: RecordLine, at: LinePosition) -> None:
        record = said.record
        state = self._state or projection.initial_state(self._session, record.at)
        self._tx.add_at(self._session, record, at)
        try:
            self._state = projection.apply(self._tx, state, record)
        except (KeyError, TypeError, AttributeError, ValueError, StoreDamaged, UniqueViolation) as error:
            raise _Senseless(
                record.number, f"record {record.number} ({record.kind}) makes no sense: {error}"
            ) from error

    def _torn(self, fd: int, name: str, offset: int, *, newest: bool) -> bool:
        """Something is wrong from here on. The end of the newest file that was never whole is torn: one write that a
        kill or a power loss came into, and nobody was told that it was done. It is cut off. Everything else is damage.
        """
        known = self._known is not None and self._known[0] == self._base and offset < self._known[1]
        if not newest or not self._end or known or not _one_write(self._folder.disk, fd, self._end):
            return False
        self._folder.cut_off(name, self._end)
        return True


def _one_write(disk: Disk, fd: int, start: int) -> bool:
    """Whether all from here on can be what one write left: no transaction ends in it but at its very end."""
    size = disk.size(fd)
    for offset, line in lines(disk, fd, start):
        try:
            ends = not parsed(line).more
        except (ValueError, TypeError, KeyError):
            continue
        if ends and offset + len(line) < size:
            return False
    return True


def reindex(tx: FilesTransaction, folder: SessionFolder, session: str, *, rebuild: bool = False) -> Damage | None:
    """Takes into the index what a session's files have and it has not; `rebuild`, all of it."""
    damage = _caught_up(tx, folder, session, rebuild=rebuild)
    if damage is None:
        tx.run("drop_damage", session)
    else:
        tx.run("put_damage", session, str(damage))
        log.warning("session %r: %s; it can be read where it is whole, and is not written to", session, damage)
    return damage


def _caught_up(tx: FilesTransaction, folder: SessionFolder, session: str, *, rebuild: bool) -> Damage | None:
    if folder.listing() is None:
        known = tx.last_number(session)
        return Damage("", 0, f"its folder is gone, with {known} records") if known else None
    folder.clear_away()
    if rebuild:
        tx.forget(session)
    elif (gone := _first_gone(tx, session)) is not None:
        return gone
    before = tx.ends(session)
    damage = _read(tx, folder, session)
    after, state = tx.ends(session), tx.session(session)
    if after is not None and state is not None:
        if after != before:
            folder.sync(layout.file_name(after[0]))
        try:
            folder.write_head(session, after[0], state.head)
        except OSError as error:
            log.warning("%s: its head.json could not be written: %s", folder.path, error)
    return damage


def _read(tx: FilesTransaction, folder: SessionFolder, session: str) -> Damage | None:
    """Folds what is there. What makes no sense leaves nothing behind: then all is read again, up to there."""
    upto = None
    while True:
        tx.run("begin_fold")
        reading = Reading(tx, folder, session, upto)
        try:
            reading.go()
        except _Senseless as error:
            tx.run("undo_fold")
            tx.run("end_fold")
            tx.known.clear()
            upto = error
        else:
            tx.run("end_fold")
            return reading.damage


def _first_gone(tx: FilesTransaction, session: str) -> Damage | None:
    """Whether the files go on from what the index has: by the id of the last record it knows, and not by counts."""
    last = tx.last_number(session)
    ends = tx.ends(session)
    if not last or ends is None or tx.is_there(session, last):
        return None
    why = f"record {last}, which was there, is gone or another one. Put the file back as it was. {TAKE_IT}"
    return Damage(layout.file_name(ends[0]), 0, why)


def deleted_ids(text: bytes) -> tuple[list[tuple[str, list[str], float]], int]:
    """The sessions that `deleted.jsonl` says were deleted, with all their ids, and where its last whole line ends."""
    found: list[tuple[str, list[str], float]] = []
    end = 0
    while (after := text.find(b"\n", end) + 1) > 0:
        try:
            said = orjson.loads(text[end:after])
            found.append((str(said["session"]), [str(id) for id in said["ids"]], float(said["at"])))
        except (ValueError, KeyError, TypeError):
            break
        end = after
    return found, end
