"""Keeps the index up to date while a process runs, so that no search has to wait for it."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from onefold.errors import StoreError
from onefold.recall.index import IndexUnavailable
from onefold.recall.indexer import Deadline, catch_up
from onefold.recall.search_engine import Recall

log = logging.getLogger("onefold")

PAUSE = 0.2
"""Seconds between two looks: appends in a row are read together."""
_SLICE = 1.0
_REST = 5.0
"""How many times as long as a look took it rests at least: a store of many sessions is not looked at all the time."""
_LONG = 5.0


class BackgroundIndexer:
    """A thread that reads what is appended, here and by other processes, into the index. Use it in a `with` block, or
    `start` and `stop` it. If the index cannot be used now, it says so once and tries again; searches do without."""

    def __init__(self, recall: Recall, *, pause: float = PAUSE) -> None:
        self._recall = recall
        self._pause = pause
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.caught_up = threading.Event()
        """Set whenever everything that was there has been read."""

    def __enter__(self) -> BackgroundIndexer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        if self._thread is None and self._recall.index is not None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="onefold-recall", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended, which is soon: what it did not read, a search does."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        backend = self._recall.store.journal.backend
        warned, took = False, 0.0
        try:
            while not self._stopped.wait(max(self._pause, took * _REST)):
                began = time.monotonic()
                version = backend.version()  # before looking: a change after that is not missed
                try:
                    behind = self._look()
                except IndexUnavailable as error:
                    if not warned:
                        log.warning("%s; searches read the journal until it can", error)
                    warned = True
                    self._wait(version)
                    continue
                took = 0.0 if behind else time.monotonic() - began
                if not behind:
                    self.caught_up.set()
                    self._wait(version)
                    self.caught_up.clear()
        except StoreError as error:
            if not self._stopped.is_set():
                log.warning("the index is no longer brought up to date: %s", error)

    def _look(self) -> int:
        index = self._recall.index
        return 0 if index is None else catch_up(self._recall.store.journal.backend, index, Deadline.after(_SLICE))

    def _wait(self, version: int) -> None:
        """For a change, or for somebody to stop this."""
        backend = self._recall.store.journal.backend
        for _ in range(int(_LONG / self._pause) + 1):
            backend.wait(version, self._pause)
            if self._stopped.is_set() or backend.version() != version:
                return
