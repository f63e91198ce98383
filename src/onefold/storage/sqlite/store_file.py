"""The file a store lives in: whether its path still names the one that was opened, and whose log lies next to it.

SQLite looks at a path when it opens it, and never again. A file that is put in its place, taken away or given a second
name meanwhile would make two histories of one, and a log would be written into a database that it is not of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import apsw

from onefold.errors import StoreError, StoreUnavailable
from onefold.storage.permissions import PRIVATE, SHARED, Access, access_of, make_file
from onefold.storage.sqlite import fair_lock

HOW_TO = "docs/how-to/backup.md says how to restore a backup"


class StoreFile:
    def __init__(self, path: Path, address: str) -> None:
        self._path = str(path)
        self._address = address
        self._inode = self._device = -1
        self._gone = ""
        """Why it is not used any more. That does not pass, even if the path names the old file again: what others
        wrote meanwhile is unknown here."""

    def take(self, *, group: bool = False) -> Access:
        """Remembers the file that is there now, and makes an empty one where there is none: so that it can be told
        from the one that SQLite opens. Gives who may reach it, and what SQLite and others make next to it."""
        try:
            make_file(self._path, SHARED if group else PRIVATE)
        except OSError as error:
            raise StoreUnavailable(
                f"store {self._address}: the file cannot be made ({error.strerror}). "
                "Check that its folder exists and is writable"
            ) from error
        there = Path(self._path).stat()
        self._inode, self._device = there.st_ino, there.st_dev
        self.check()
        return access_of(there)

    def check(self) -> None:
        """Raises if the path names another file by now, or none, or one that has another name as well. Called inside
        of every transaction: whatever began after the file was replaced finds that out here."""
        try:
            there = os.stat(self._path)  # noqa: PTH116  a part of every append
            if there[1] == self._inode and there[3] == 1 and there[2] == self._device and not self._gone:
                return
        except OSError as error:
            self._missed(error)
        else:
            self._other(there)

    def opened(self, connect: Callable[[str], apsw.Connection]) -> apsw.Connection:
        """A connection to this very file."""
        self.check()
        try:
            connection = connect(self._path)
        except apsw.CantOpenError:
            self.check()
            raise
        try:
            self.check()  # it was opened by its name, and nothing of it was read yet
        except BaseException:
            connection.close()
            raise
        return connection

    def moved(self) -> bool:
        """The same as a question."""
        try:
            self.check()
        except StoreError:
            return True
        return False

    def _missed(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise StoreUnavailable(
                f"store {self._address}: {self._path} cannot be looked at ({error.strerror}), so nothing was read or "
                "written. Look at the permissions of its folder"
            ) from error
        self._give_up("was moved or removed")

    def _other(self, there: os.stat_result) -> None:
        if self._gone or (there.st_ino, there.st_dev) != (self._inode, self._device):
            self._give_up("is another file by now: somebody put it there")
        if there.st_nlink > 1:
            raise StoreUnavailable(
                f"store {self._address}: {self._path} has {there.st_nlink} names (hard links), and under each of them "
                "it would get another log. Nothing was read or written. Remove the others: "
                f"find where they are with `find FOLDER -samefile {quote(self._path)}`. For a copy use `onefold backup`"
            )

    def _give_up(self, why: str) -> None:
        self._gone = self._gone or why
        raise StoreUnavailable(
            f"store {self._address}: {self._path} {self._gone} while this process had it open. Nothing was "
            f"read or written since. Close the store here and open it again; {HOW_TO}"
        )


class AnyFile(StoreFile):
    """One that may be replaced: an index, which is rebuilt from files that are the truth."""

    def take(self, *, group: bool = False) -> Access:
        return PRIVATE

    def check(self) -> None:
        return


# ---------------------------------------------------------------------- the log next to it


class LogNote(NamedTuple):
    """Which database a log is of, as the gate says: its generation, and the inodes of both files."""

    generation: str
    database: int
    log: int

    def __str__(self) -> str:
        return f"{self.generation} {self.database} {self.log}\n"


def read_note(gate_path: str) -> LogNote | None:
    words = fair_lock.noted(gate_path).split()
    try:
        return LogNote(words[0], int(words[1]), int(words[2]))
    except (IndexError, ValueError):  # a store of an older program, or a write that was cut short
        return None


class Beside(NamedTuple):
    """The files that SQLite and the gate have next to a database: by its real path, where links lead to it."""

    log: str
    memory: str
    gate: str


def beside(path: Path) -> Beside:
    real = os.path.realpath(path)
    return Beside(f"{real}-wal", f"{real}-shm", f"{real}-gate")


def state_of(path: str | Path) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None


def check_log(path: Path, log: os.stat_result | None, generation: str | None) -> None:
    """Rejects a database next to a log that is not its own, and a log without a database: SQLite would write the one
    into the other, or throw it away.

    `log` is what was there before the database was looked at, and `generation` what that says of itself without it.
    A log that was copied or moved together with its database is another file than the one that was noted, and its own.
    """
    names, there = beside(path), state_of(path)
    if log is not None and log.st_size and (there is None or not there.st_size):
        raise StoreError(
            f"{path} is {'gone' if there is None else 'empty'}, and its log {names.log} is still there, with records "
            "that may be nowhere else. Nothing was made or removed. Put the database back next to its log. If it is "
            f"lost, move the log away; {HOW_TO}"
        )
    note = read_note(names.gate)
    if note is None:
        return
    replaced = there is None or note.database != there.st_ino
    other = generation is not None and note.generation != generation
    if log is not None and (other or (replaced and note.log == log.st_ino)):
        raise StoreError(
            f"the log {names.log} is not of the database that is at {path} now, and would be written into it. Nothing "
            f"was changed. End every program that has the store open, then move {names.log} and {names.memory} "
            f"away, and open it again; {HOW_TO}"
        )
    if log is None and (replaced or other):  # before there is a new log, which may get the old one's inode
        fair_lock.forget(names.gate)
