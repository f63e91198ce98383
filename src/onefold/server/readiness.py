"""Whether the store is usable now: checked by one thread, at most once a second, for everybody who asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from onefold.errors import OnefoldError
from onefold.store import Store

log = logging.getLogger("onefold.server")

KEPT = 1.0
"""Seconds for which what was found is told to all who ask."""
PATIENCE = 1.0
"""Seconds after which a store that does not answer is not ready."""

UNUSABLE = "the store cannot be used now; the server's log says why"
SILENT = f"the store has not answered for {PATIENCE:g} s; another process may hold its write lock"


class Readiness:
    """Asks for the store's write lock, and writes nothing. Those who ask meanwhile wait for the same answer, in the
    event loop: none of the threads that other calls need is taken, however many ask. What is told names no path."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._asked_at = 0.0
        self._found_at = float("-inf")
        self._found: str | None = None
        self._asking: asyncio.Future[None] | None = None
        self._logged: str | None = None

    async def trouble(self) -> str | None:
        """Why the store cannot be used, if it cannot."""
        if self._asking is None:
            if self._clock() - self._found_at < KEPT:
                return self._found
            self._ask()
        asking = self._asking
        assert asking is not None
        await asyncio.wait({asking}, timeout=max(0.0, self._asked_at + PATIENCE - self._clock()))
        return self._found if asking.done() else SILENT

    def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        self._asked_at = self._clock()
        self._asking = loop.create_future()
        threading.Thread(target=self._look, args=(loop,), name="onefold-readiness", daemon=True).start()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        why = not_ready(self._store)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._is_found, why)

    def _is_found(self, why: str | None) -> None:
        if why is not None and why != self._logged:
            log.warning("the store is not ready: %s", why)
        self._logged = why
        self._found, self._found_at = UNUSABLE if why else None, self._clock()
        asking, self._asking = self._asking, None
        if asking is not None and not asking.done():
            asking.set_result(None)


def not_ready(store: Store) -> str | None:
    backend = store.journal.backend
    try:
        backend.read(lambda tx: tx.now)
        backend.write("", lambda tx: tx.now)
    except OnefoldError as error:
        return str(error)
    return None
