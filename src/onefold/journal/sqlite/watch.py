"""Noticing changes: at once for those of this process, by asking SQLite for those of others.

One thread per store asks, and only while somebody waits. Asking is `pragma data_version`, which reads a number from
shared memory: no write, no lock held. It asks often after a change, and less often when nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw

QUICK = 0.005
SLOW = 0.025
QUICK_FOR = 40  # questions without an answer before it slows down


class Watch:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self.version = 0
        self._connect = connect
        self._cond = threading.Condition()
        self._waiters = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def changed(self) -> None:
        with self._cond:
            self.version += 1
            self._cond.notify_all()

    def wait(self, version: int, timeout: float) -> None:
        with self._cond:
            self._waiters += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._ask, name="onefold-watch", daemon=True)
                self._thread.start()
            try:
                self._cond.wait_for(lambda: self.version != version or self._closed, timeout)
            finally:
                self._waiters -= 1

    def close(self) -> None:
        with self._cond:
            self._closed = True
            self._cond.notify_all()

    def _ask(self) -> None:
        """Runs while somebody waits, and a little longer."""
        connection: apsw.Connection | None = None
        seen = quiet = 0
        try:
            while True:
                try:
                    connection = connection or self._connect()
                    now = int(str(connection.pragma("data_version")))
                except apsw.Error:
                    # Whoever waits reads the store itself and gets the error in words.
                    now = seen + 1
                if now != seen:
                    seen, quiet = now, 0
                    self.changed()
                with self._cond:
                    quiet += 1
                    if self._closed or (not self._waiters and quiet > QUICK_FOR):
                        self._thread = None
                        return
                    self._cond.wait_for(lambda: self._closed, QUICK if quiet < QUICK_FOR else SLOW)
        except BaseException:
            with self._cond:
                self._thread = None
            raise
        finally:
            if connection is not None:
                connection.close()
