"""Wakes async callers when a store changes, without a thread for each of them.

One thread per store waits for all, of whatever event loop, and only while somebody does. When the store has changed, it
looks once at the sessions that are waited for, and wakes those whose session has a new record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from anyio import Event, move_on_after

from onefold.aio.threads import Loop, in_thread
from onefold.journal.reader import WaitFor
from onefold.storage.base import Backend

T = TypeVar("T")

LINGER = 1.0
"""How many seconds the thread stays when nobody waits."""


class Listener:
    """One who waits for a session. Look first, then wait: what comes after the look is not missed."""

    def __init__(self, notifier: ChangeNotifier, session: str) -> None:
        self.session = session
        self.seen: int | None = None
        """The session's last record when it was looked at; None while that is not known."""
        self._notifier = notifier
        self._loop = Loop()
        self._rung = Event()

    async def look(self, work: Callable[[], T]) -> T:
        """Does something in a thread that reads the session."""
        self._rung = Event()
        return await in_thread(partial(self._look, work))

    def _look(self, work: Callable[[], T]) -> T:
        self.seen = None
        self._notifier.add(self)
        self.seen = self._notifier.last(self.session)
        return work()

    async def wait(self, seconds: float | None) -> bool:
        """Waits for a record that came after the look; False if none did in time."""
        with move_on_after(None if seconds is None else max(0.0, seconds)):
            await self._rung.wait()
        return self._rung.is_set()

    def ring(self) -> None:
        self._loop.soon(self._rung.set)


class ChangeNotifier:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._thread: threading.Thread | None = None

    @contextmanager
    def listener(self, session: str) -> Iterator[Listener]:
        made = Listener(self, session)
        try:
            yield made
        finally:
            with self._lock:
                self._listeners.discard(made)

    async def through(self, session: str, step: Callable[[], T | WaitFor]) -> T:
        """Takes one step after another, each in a thread, until there is an answer; waits in between without one."""
        with self.listener(session) as listener:
            while isinstance(answer := await listener.look(step), WaitFor):
                await listener.wait(answer.until - time.monotonic())
            return answer

    async def beyond(self, session: str, after: int, last: Callable[[], int], seconds: float | None) -> bool:
        """Waits until a session has a record after this number; False if none came in time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self.listener(session) as listener:
            while await listener.look(last) <= after:
                if not await listener.wait(None if deadline is None else deadline - time.monotonic()):
                    return False
        return True

    def add(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.add(listener)
            if self._thread is None or not self._thread.is_alive():  # the second: this is a forked child
                self._thread = threading.Thread(target=self._run, name="onefold-notifier", daemon=True)
                self._thread.start()

    def last(self, session: str) -> int:
        return self._backend.read(lambda tx: tx.lasts([session]).get(session, 0))

    def _run(self) -> None:
        looked: int | None = None
        needed = time.monotonic()
        try:
            while True:
                version = self._backend.version()  # before looking: a change after that is not missed
                with self._lock:
                    listeners = list(self._listeners)
                    if listeners:
                        needed = time.monotonic()
                    elif time.monotonic() > needed + LINGER:
                        self._thread = None
                        return
                if version != looked and listeners:
                    self._wake(listeners)
                    looked = version
                self._backend.wait(version, LINGER)
        except Exception:
            # The store is closed or cannot be read. Whoever waits looks at it, and gets the error in words.
            with self._lock:
                self._thread = None
                listeners, self._listeners = list(self._listeners), set()
            for listener in listeners:
                listener.ring()

    def _wake(self, listeners: list[Listener]) -> None:
        sessions = [*{listener.session for listener in listeners}]
        lasts = self._backend.read(lambda tx: tx.lasts(sessions))
        moved = [listener for listener in listeners if listener.seen != lasts.get(listener.session, 0)]
        with self._lock:
            self._listeners.difference_update(moved)
        for listener in moved:
            listener.ring()
