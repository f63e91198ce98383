"""Noticing changes: at once for those of this process, by asking SQLite for those of others.

One thread per store asks, and only while somebody waits. Asking is `pragma data_version`, which reads a number from
shared memory: no write, no lock held. It asks often after a change, and less often when nothing happens.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable

import apsw

from onefold.errors import StoreError

QUICK = 0.005
SLOW = 0.04
IDLE = 0.1
QUICK_FOR = 40  # questions in vain before it slows down
SLOW_FOR = 90  # and before it takes the store for idle
LOOK = 10  # and of an idle one, which of them also look whether the file is another one by now


class ChangePoller:
    def __init__(self, connect: Callable[[], apsw.Connection], moved: Callable[[], bool]) -> None:
        self.versions = itertools.count(1)
        self.version = 0
        """Made another one by every change. Whoever waits counts itself first and looks at the version after that; who
        changes it looks at the count after that. So one of the two sees the other, and with nobody waiting there is no
        lock to take."""
        self.waiters = 0
        self._connect = connect
        self._moved = moved
        self._cond = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._closed = False
        self._asking = threading.Lock()
        self._open: list[apsw.Connection] = []

    def wake(self) -> None:
        with self._cond:
            self._cond.notify_all()

    def wait(self, version: int, timeout: float) -> None:
        with self._cond:
            self.waiters += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._ask, name="onefold-watch", daemon=True)
                self._thread.start()
            try:
                self._cond.wait_for(lambda: self.version != version or self._closed, timeout)
            finally:
                self.waiters -= 1

    def close(self) -> None:
        with self._cond:
            self._closed = True
            self._cond.notify_all()
        with self._asking:
            self._close_all()

    def let_go(self) -> None:
        """Before a fork: nothing is asked, and no connection is open, until `go_on`."""
        self._asking.acquire()
        self._close_all()

    def go_on(self) -> None:
        self._asking.release()

    def _close_all(self) -> None:
        while self._open:
            with contextlib.suppress(apsw.Error):
                self._open.pop().close()

    def _ask(self) -> None:
        """Runs while somebody waits, and a little longer."""
        connection: apsw.Connection | None = None
        seen = quiet = 0
        try:
            while True:
                with self._asking:
                    try:
                        if connection is None or connection not in self._open:
                            if self._closed:
                                return
                            connection, seen = self._connect(), -1
                            self._open.append(connection)
                        now = int(str(connection.pragma("data_version")))
                        if (quiet < SLOW_FOR or quiet % LOOK == 0) and self._moved():
                            now = seen + 1
                    except (apsw.Error, StoreError):
                        # Whoever waits reads the store itself and gets the error in words.
                        now = seen + 1
                if now != seen:
                    seen, quiet = now, 0
                    self.version = next(self.versions)
                    self.wake()
                with self._cond:
                    quiet += 1
                    if self._closed or (not self.waiters and quiet > QUICK_FOR):
                        self._thread = None
                        return
                    self._cond.wait_for(
                        lambda: self._closed, QUICK if quiet < QUICK_FOR else SLOW if quiet < SLOW_FOR else IDLE
                    )
        except BaseException:
            with self._cond:
                self._thread = None
            raise
        finally:
            with self._asking:
                if connection in self._open:
                    self._open.remove(connection)
                    connection.close()
