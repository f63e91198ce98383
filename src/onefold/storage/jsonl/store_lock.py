"""One process at a time writes to a store of files, and whoever comes next knows what the one before was about.

The lock is filelock's, on a descriptor that stays open: its path locks poll and open the file again for every turn. It
is asked for without waiting; who does not get it stands in line. The lock file carries a note of the sessions that its
last holder wrote to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import orjson
from filelock import lock_descriptor, unlock_descriptor

from onefold.errors import StoreDamaged, StoreError
from onefold.storage import file_lock
from onefold.storage.permissions import PRIVATE, Access, make_file
from onefold.storage.sqlite.lock_queue import LockQueue

PATIENCE = 30.0
_AGAIN = 0.01
_LOOKING = 5.0
_NOTE = 4096


class StoreLock:
    def __init__(self, path: Path, token: str, access: Access = PRIVATE) -> None:
        self._path = path
        make_file(path, access)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._queue = LockQueue(path)
        self._token = token
        self.own = b""
        """The note of this process, while nobody else had the lock since and all that it names is in the index, or
        waits to be: then it is ours."""
        self.noted: list[str] = []

    def check(self) -> None:
        """Rejects a lock that does not keep others out, as on a file system that only pretends to have them."""
        if not self.try_enter():
            return  # somebody holds it, so it keeps out
        other = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if lock_descriptor(other, blocking=False):
                raise StoreError(
                    f"{self._path}: two holders got one lock, so the locks of this file system cannot be trusted. "
                    "Keep the store on a local disk"
                )
        finally:
            os.close(other)
            unlock_descriptor(self._fd)

    def enter(self) -> bool:
        """Waits for this process's turn. True if nobody else had one since its last, so that what it knows holds."""
        try:
            if not lock_descriptor(self._fd, blocking=False):
                self._wait()
            own = self.own
            if own and os.pread(self._fd, len(own), 0) == own:
                return True
            self.own = b""
            return False
        except BaseException as error:
            with contextlib.suppress(OSError):
                self.leave()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError) and error.errno != errno.EIO:
                raise self._unlockable(error) from error
            raise

    def try_enter(self) -> bool:
        try:
            return lock_descriptor(self._fd, blocking=False)
        except OSError as error:
            if error.errno == errno.EIO:
                raise
            raise self._unlockable(error) from error

    def _unlockable(self, error: OSError) -> StoreError:
        return StoreError(f"{self._path} cannot be locked ({error}); keep the store on a local disk that has locks")

    def leave(self) -> None:
        if self._queue.granted:
            self._queue.leave()
        else:
            unlock_descriptor(self._fd)

    def close(self) -> None:
        """Closes, and never unlocks: in a forked child the lock is still the parent's."""
        self._queue.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # ------------------------------------------------------------------ the note

    def is_ours(self) -> bool:
        """Whether nobody else had the lock since this process did."""
        return bool(self.own) and os.pread(self._fd, len(self.own), 0) == self.own

    def left(self) -> list[str] | None:
        """The sessions that the last holder wrote to. None: nobody can say, so look at all."""
        note = os.pread(self._fd, _NOTE, 0)
        if not note:
            return []
        while b"\n" not in note:
            more = os.pread(self._fd, _NOTE, len(note))
            if not more:
                return None
            note += more
        try:
            sessions: list[str] = orjson.loads(note[: note.index(b"\n")])["sessions"]
        except (ValueError, KeyError, TypeError):
            return None
        return sessions

    def note(self, sessions: list[str]) -> None:
        """Says what is about to be written to. Not synced: after a power loss whoever opens the store looks at all."""
        if self.own and sessions == self.noted:
            return
        self.own = b""
        note = orjson.dumps({"by": self._token, "sessions": sessions}) + b"\n"
        os.pwrite(self._fd, note, 0)
        self.own, self.noted = note, sessions

    def doubt(self) -> None:
        """What the note names may not be in the index: whoever is next looks, this process included."""
        self.own = b""

    def _wait(self) -> None:
        if not self._queue.wait(PATIENCE):
            raise TimeoutError(f"another process has held the write lock for {PATIENCE:.0f} s")


class Users:
    """Who has the index open. Only one that is alone with it may put another in its place."""

    def __init__(self, path: Path, access: Access = PRIVATE) -> None:
        make_file(path, access)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def come(self) -> None:
        file_lock.lock(self._fd, shared=True)

    def go(self) -> None:
        file_lock.unlock(self._fd)

    def alone(self, store: str) -> None:
        """Waits a little for those who only look at it."""
        ends = time.monotonic() + _LOOKING
        pause = threading.Event()
        while not file_lock.try_lock(self._fd):
            if time.monotonic() > ends:
                raise StoreDamaged(
                    f"{store}: its index has to be built again, and other processes have it open. Nothing of the "
                    "sessions is lost: end those processes, then open the store again"
                )
            pause.wait(_AGAIN)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
