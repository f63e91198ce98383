"""Async iterators over records: what the sync ones yield, fetched a page at a time.

They are not generators: one that is left half read holds nothing, and needs no closing. One whose wait was cancelled
goes on where it was.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from anyio.lowlevel import checkpoint_if_cancelled

from onefold.aio.notifier import ChangeNotifier, Listener
from onefold.aio.threads import in_thread
from onefold.journal.reader import PAGE, read_page
from onefold.model import Record
from onefold.storage.base import Backend

T = TypeVar("T")


class AsyncRecords(AsyncIterator[T], Generic[T]):
    def __init__(self) -> None:
        self._ready: deque[T] = deque()
        self._over = False

    async def __anext__(self) -> T:
        if self._ready:
            await checkpoint_if_cancelled()
        elif not self._over:
            try:
                await self._fetch()
            except Exception:
                self._over = True
                raise
        if self._ready:
            return self._ready.popleft()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends it. There is nothing to let go of; it is here for `contextlib.aclosing`."""
        self._ready.clear()
        self._over = True

    @abstractmethod
    async def _fetch(self) -> None:
        """Puts what comes next into `_ready`, or says that it is `_over`."""


class AsyncPages(AsyncRecords[T]):
    """What a sync iterator gives."""

    def __init__(self, begin: Callable[[], Iterator[T]]) -> None:
        super().__init__()
        self._source = begin()

    async def _fetch(self) -> None:
        await in_thread(self._read)

    def _read(self) -> None:
        self._ready.extend(islice(self._source, PAGE))
        self._over = len(self._ready) < PAGE


class AsyncFollow(AsyncRecords[Record]):
    """The records of a session after a number, live."""

    def __init__(
        self,
        notifier: ChangeNotifier,
        backend: Backend,
        session: str,
        after: int,
        *,
        generation: str | None,
        idle: float | None,
    ) -> None:
        super().__init__()
        self._notifier = notifier
        self._look = partial(read_page, backend, session, generation=generation)
        self._session = session
        self._after = after
        self._idle = idle

    async def _fetch(self) -> None:
        with self._notifier.listener(self._session) as listener:
            self._over = not await self._next_page(listener)

    async def _next_page(self, listener: Listener) -> bool:
        deadline = None if self._idle is None else time.monotonic() + self._idle
        await listener.look(self._read)
        while not self._ready:
            left = None if deadline is None else deadline - time.monotonic()
            if not await listener.wait(left):
                return False
            await listener.look(self._read)
        return True

    def _read(self) -> None:
        page = self._look(self._after)
        if page:
            self._ready.extend(page)
            self._after = page[-1].number
