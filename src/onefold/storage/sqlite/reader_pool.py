"""Connections to read with: one for each reader at a time, kept for the next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import apsw

IDLE = 8


class Readers:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._idle: list[apsw.Connection] = []
        self._busy = 0
        self._forking = False
        self._closed = False

    @contextlib.contextmanager
    def one(self) -> Iterator[apsw.Connection]:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._busy += 1
            connection = self._idle.pop() if self._idle else None
        sound = False
        try:
            connection = connection or self._connect()
            sound = True
            yield connection
        except apsw.Error:
            sound = False
            raise
        finally:
            with self._changed:
                keep = sound and len(self._idle) < IDLE and not self._closed
                if connection is not None:
                    if keep:
                        self._idle.append(connection)
                    else:
                        connection.close()
                self._busy -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Closes those that nobody reads with. The others are closed when they are given back."""
        with self._changed:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    def let_go(self, patience: float) -> bool:
        """Before a fork: waits for those who read, closes every connection, and lets nobody begin until `go_on`. False
        if somebody reads still."""
        with self._changed:
            self._forking = True
            quiet = self._changed.wait_for(lambda: not self._busy, patience)
            while self._idle:
                with contextlib.suppress(apsw.Error):
                    self._idle.pop().close()
            return quiet

    def go_on(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()
