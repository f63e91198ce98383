"""Noticing changes: at once for those of this process, by LISTEN for those of others.

One thread per store listens, on a connection of its own, and only while somebody waits. What it hears is a reason to
look, and nothing else: records are read by number. Once a second it also asks for the server's snapshot, which is
another one after every commit that became visible. So a notification that is lost costs a second at most; so does a
PgBouncer in between, which passes none on. Where nobody can listen, on a standby, it asks ten times a second.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import sql

from onefold.storage.postgres.connection import Link

LOOK = 1.0
LOOK_ALONE = 0.1
LINGER = 10  # looks without anybody who waits, before the thread ends
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0
CLOSING = 5.0


class Listener:
    def __init__(self, connect: Callable[[], Link], channel: str, snapshot: bytes) -> None:
        self.version = 0
        self._connect = connect
        self._channel = channel
        self._snapshot = snapshot
        self._cond = threading.Condition()
        self._waiters = 0
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._pause = FIRST_PAUSE
        self._waker: socket.socket | None = None

    def changed(self) -> None:
        with self._cond:
            self.version += 1
            if self._waiters:
                self._cond.notify_all()

    def wait(self, version: int, timeout: float) -> None:
        with self._cond:
            self._waiters += 1
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="onefold-watch", daemon=True)
                self._thread.start()
            try:
                self._cond.wait_for(lambda: self.version != version or self._closed.is_set(), timeout)
            finally:
                self._waiters -= 1

    def close(self) -> None:
        with self._cond:
            thread = self._thread
            self._closed.set()
            self._cond.notify_all()
            if self._waker is not None:
                self._waker.send(b"!")
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSING)

    def _run(self) -> None:
        """Listens until nobody waits any more; after a lost connection, again, and after a longer pause each time."""
        woken, waker = socket.socketpair()
        with woken, waker:
            with self._cond:
                self._waker = waker
            try:
                while self._wanted():
                    self._listen_once(woken)
            finally:
                with self._cond:
                    if self._waker is waker:
                        self._waker = self._thread = None

    def _wanted(self) -> bool:
        with self._cond:
            if self._closed.is_set() or not self._waiters:
                self._waker = self._thread = None  # here, so that whoever waits from now on starts another one
                return False
            return True

    def _listen_once(self, woken: socket.socket) -> None:
        try:
            with contextlib.closing(self._connect()) as link:
                self._pause = FIRST_PAUSE
                self._listen(link, woken)
        except psycopg.Error:
            # Whoever waits reads the store itself, and gets the error in words.
            self._closed.wait(self._pause)
            self._pause = min(2 * self._pause, LAST_PAUSE)
        finally:
            self.changed()

    def _listen(self, link: Link, woken: socket.socket) -> None:
        every = LOOK if self._subscribed(link) else LOOK_ALONE
        seen, due, quiet = "", time.monotonic(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(link.fileno(), selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not self._closed.is_set():
                if time.monotonic() >= due:  # not at each notification: there may be thousands a second
                    (now,) = link.ask(self._snapshot)[0]
                    due = time.monotonic() + every
                    if now != seen:
                        seen = now
                        self.changed()
                    with self._cond:
                        quiet = 0 if self._waiters else quiet + 1
                    if quiet > LINGER:
                        return
                if [*link.notifies(timeout=0)]:  # after it: what came meanwhile is heard here
                    self.changed()
                selector.select(max(0.0, due - time.monotonic()))

    def _subscribed(self, link: Link) -> bool:
        try:
            link.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        except psycopg.errors.ReadOnlySqlTransaction:
            return False
        except psycopg.Error:
            if link.lost:
                raise
            return False
        return True
