"""Disks that kill, fail or count, and the acts that are run on them."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from onefold import Store
from onefold.model import Claim
from onefold.storage.jsonl import Disk, FilesBackend
from onefold.storage.sqlite.backend import connect
from verification.operations import ME, counted_ids, fixed_clock, stored, talk

CHANGING = (
    "create", "open_append", "write", "fdatasync", "fsync", "fsync_folder", "truncate", "link", "rename", "unlink",
    "mkdir", "rmdir",
)  # fmt: skip


class WatchedDisk(Disk):
    """Calls `before` with the name of every call that changes something, and what it is about."""

    def __init__(self, before: Callable[[str, Any], None]) -> None:
        self.before = before

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CHANGING:
            return found
        before = super().__getattribute__("before")

        def call(*given: Any, **named: Any) -> Any:
            before(name, given[-1] if name in ("link", "rename") else given[0])
            return found(*given, **named)

        return call


class KillingDisk(WatchedDisk):
    """Kills this process before the n-th change since it was armed; torn, in the middle of it if it is a write."""

    def __init__(self) -> None:
        super().__init__(self._count)
        self.seen: list[str] = []
        self.at = 0
        self.call = ""
        self.torn = False

    def arm(self, at: int = 0, *, call: str = "", torn: bool = False) -> None:
        """Kills at a change by its number, or at the first call of a name."""
        self.seen, self.at, self.call, self.torn = [], at, call, torn

    def _count(self, name: str, what: Any) -> None:
        self.seen.append(name)
        if name == self.call and not self.torn:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.seen) == self.at and not (self.torn and name == "write"):
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        if self.torn and (len(self.seen) == self.at or self.call):
            super().write(fd, data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(fd, data, offset)

    def connect(self, path: str) -> apsw.Connection:
        """Connections to the index whose statements count as well."""
        connection = connect(path)
        connection.exec_trace = self._trace
        return connection

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        alone = statement.startswith("insert into records") and not cursor.connection.in_transaction
        if statement == "commit" or alone:
            self._count("commit", None)
        return True


class FailingDisk(WatchedDisk):
    """Fails the named calls, so often, with an error; a write leaves half of its data behind."""

    def __init__(self) -> None:
        super().__init__(self._fail)
        self.failing: dict[str, int] = {}
        self.error = errno.ENOSPC
        self.raises: type[BaseException] | None = None

    def _fail(self, name: str, what: Any) -> None:
        if name != "write" and self._takes(name):
            raise self._error()

    def _takes(self, name: str) -> bool:
        left = self.failing.get(name, 0)
        self.failing[name] = max(0, left - 1)
        return left > 0

    def _error(self) -> BaseException:
        return self.raises() if self.raises is not None else OSError(self.error, os.strerror(self.error))

    def write(self, fd: int, data: bytes, offset: int) -> None:
        if self._takes("write"):
            super().write(fd, data[: len(data) // 2], offset)
            raise self._error()
        super().write(fd, data, offset)


def open_files(path: Path | str, disk: Disk | None = None, prefix: str = "new") -> Store:
    ids = counted_ids(prefix)
    made = disk.connect if isinstance(disk, KillingDisk) else connect
    return stored(FilesBackend(path, clock=fixed_clock, ids=ids, disk=disk, connect=made), ids)


def prepare(path: Path) -> None:
    """A store with one session, an older compaction of it, an input that waits and a key."""
    with open_files(path, prefix="old") as store:
        session = store.session("a")
        session.append(talk(6), key="first")
        store.journal.request("a", trigger="manual")
        claim = store.journal.claim("a", ME)
        assert isinstance(claim, Claim)
        store.journal.commit(claim, "what was said", cut=4)
        session.append(talk(2, start=7))
        session.queue_input({"role": "user", "content": "later"})


def everything(store: Store) -> dict[str, Any]:
    """What a store says, session by session, and which ids are known or gone."""

    def work(tx: Any) -> dict[str, Any]:
        states = sorted(tx.sessions(1000, None), key=lambda s: str(s.id))
        said: dict[str, Any] = {
            s.id: (s, tx.records(s.id, 1, 1 << 60, 10_000), tx.segments(s.id), tx.compactions(s.id, open_only=False))
            for s in states
        }
        said["ids"] = [(id, tx.owner(id), tx.deleted(id)) for id in ("a", "also-a", "b", "f")]
        return said

    return store.journal.backend.read(work)
