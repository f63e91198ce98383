"""How far the index may be behind the files, and how other processes know that it is.

A line counts once it is on disk. Its row in the index is written with others, as long as nobody reads: until then it
waits here, and one byte that all processes of the store have in common says so. Whoever reads or writes after that
brings the index up to date first, and a process that is killed meanwhile leaves just what is brought up to date anyway.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import apsw

from onefold.model import SessionState
from onefold.storage.jsonl.transaction import Waiting
from onefold.storage.permissions import PRIVATE, Access, make_file

MOST_ROWS = 256
"""So many rows wait at most."""
QUIET = 8
"""After so many appends in a row that nobody has read, and that nobody else has written between."""


class DeferredIndex:
    """Rows of lines that are on disk and not in the index. Only who had the store's lock last can have any, and they
    are of sessions that its note names."""

    def __init__(self, path: Path, access: Access = PRIVATE) -> None:
        self.rows: list[Waiting] = []
        self.states: dict[str, SessionState | None] = {}
        """What their sessions are like with them, in a burst: each has a row too, which is written with them."""
        self.quiet = 0
        """How many appends came in a row."""
        make_file(path, access)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not os.fstat(fd).st_size:
                _make_room(fd)
            self.byte: mmap.mmap | bytearray = mmap.mmap(fd, 1)
            """1 while the index lacks something that was acknowledged. Changed by who has the lock, seen by all."""
        finally:
            os.close(fd)

    def clear(self) -> None:
        self.rows.clear()
        self.states.clear()

    def let_go(self) -> None:
        """The file is no longer mapped once nobody looks at it: a thread that does so right now gets an answer."""
        self.byte = bytearray(1)


def _make_room(fd: int) -> None:
    """One byte, without changing it if it is there by now. A full disk is told here, and not when it is set."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, 1)
    else:
        os.ftruncate(fd, 1)


class Looking:
    """What a watch asks for changes: the index, and whether that is behind."""

    def __init__(self, connection: apsw.Connection, lag: DeferredIndex) -> None:
        self._connection = connection
        self._lag = lag

    def pragma(self, name: str) -> int:
        return 2 * int(str(self._connection.pragma(name))) + self._lag.byte[0]

    def close(self) -> None:
        self._connection.close()
