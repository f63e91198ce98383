"""Stores on a PostgreSQL server of the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from onefold import Session, Store
from onefold.storage.postgres import PostgresBackend
from tests.support.helpers import PATIENCE


def backend_of(store: Store) -> PostgresBackend:
    backend = store.journal.backend
    assert isinstance(backend, PostgresBackend)
    return backend


# ---------------------------------------------------------------------- hearing of it


class Following:
    """Somebody who follows a session, and is known to wait, so that only the store itself can wake them."""

    def __init__(self, session: Session, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._records = session.follow(1, idle=PATIENCE)
        self._waits = threading.Semaphore(0)
        self._thread = ThreadPoolExecutor(1)
        watch = backend_of(store)._watch
        wait = watch.wait

        def noticed(version: int, timeout: float) -> None:
            self._waits.release()
            wait(version, timeout)

        monkeypatch.setattr(watch, "wait", noticed)

    def next_after(self, act: Callable[[], object], within: float) -> int:
        """The number of the record that comes by what is done once they wait."""
        while self._waits.acquire(blocking=False):
            pass
        coming = self._thread.submit(next, self._records)
        assert self._waits.acquire(timeout=PATIENCE)
        act()
        return coming.result(within).number

    def end(self) -> None:
        self._thread.shutdown()
