"""Where sessions live, for an agent with an event loop, and how to open it."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from anyio.lowlevel import checkpoint_if_cancelled

from onefold import store as sync
from onefold.aio.iterators import AsyncPages
from onefold.aio.journal import Journal
from onefold.aio.notifier import ChangeNotifier
from onefold.aio.session import Session
from onefold.aio.summarizer_bridge import LoopSummarizer
from onefold.aio.threads import AsyncOpen, documented, in_thread, reporting
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer
from onefold.ids import random_id, system_clock
from onefold.journal.session_scan import PAGE
from onefold.model import Clock, Compaction, Deleted, Ids, Keeper, Report, SessionState


@documented(sync.Store)
class Store:
    """Sessions in one place. Close it, or use it in an `async with` block. Tasks of several event loops may share it.

    It stands on a sync store, which may be in use at the same time: `Store(onefold.open("agent.db"))`.
    """

    def __init__(self, store: sync.Store) -> None:
        self._store = store
        self.notifier = ChangeNotifier(store.journal.backend)
        self.running_summaries: weakref.WeakSet[LoopSummarizer] = weakref.WeakSet()
        self.journal = Journal(store.journal, self.notifier)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def policy(self) -> Policy:
        return self._store.policy

    @property
    def address(self) -> str:
        return self._store.address

    @property
    def generation(self) -> str:
        return self._store.generation

    async def session(self, id: str, *, create: bool = True, keeper: Keeper = "onefold") -> Session:
        made = await in_thread(partial(self._store.session, id, create=create, keeper=keeper))
        return Session(made, self.notifier, self.running_summaries)

    def sessions(self, limit: int | None = None) -> AsyncIterator[SessionState]:
        return AsyncPages(partial(self._store.sessions, limit))

    def walk(self, after: str = "", *, page: int = PAGE) -> AsyncIterator[SessionState]:
        return AsyncPages(partial(self._store.walk, after, page=page))

    async def compactions(self, *, open_only: bool = True) -> list[Compaction]:
        return await in_thread(partial(self._store.compactions, open_only=open_only))

    async def resolve(self, any_id: str) -> str:
        return await in_thread(partial(self._store.resolve, any_id))

    async def delete(self, any_id: str, *, remove_copies: bool = False) -> Deleted:
        return await in_thread(partial(self._store.delete, any_id, remove_copies=remove_copies))

    async def purge(self) -> bool:
        return await in_thread(self._store.purge)

    async def forks(self, id: str) -> list[SessionState]:
        return await in_thread(partial(self._store.forks, id))

    async def verify(self, fix: bool = False, *, progress: Callable[[str, int], None] | None = None) -> Report:
        """Compares everything derived with the journal; with `fix`, repairs it. Cancelled, it stops after a session.

        `progress` is called in the event loop.
        """
        return await reporting(lambda heard: self._store.verify(fix, progress=heard), progress)

    async def backup(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> None:
        """A consistent copy, while others write. It is another generation: old numbers do not count there.

        Cancelled, it stops and leaves no file. `progress` is called in the event loop.
        """
        await reporting(lambda heard: self._store.backup(path, progress=heard), progress)

    async def finish(self, wait: bool | float = True) -> bool:
        return await in_thread(partial(self._store.finish, wait))

    async def close(self, wait: bool | float = False) -> None:
        """Hands back the compactions under way, ends open turns, and lets go of the store, cancelled or not.

        With `wait`, summaries under way are given that time to be made: True for as long as the policy says, or a
        number of seconds. Cancelled meanwhile, they are handed back at once.
        """
        try:
            if wait:
                await self.finish(wait)
        finally:
            await in_thread(self._close, always=True)

    def _close(self) -> None:
        self._store.close()
        for summary in list(self.running_summaries):
            summary.stop()


def open(
    address: str | Path,
    *,
    create: bool = True,
    summarizer: Summarizer | None = None,
    policy: Policy | None = None,
    clock: Clock = system_clock,
    ids: Ids = random_id,
    agent: str | None = None,
    group: bool = False,
) -> AsyncOpen[Store]:
    """Opens a store: `agent.db` or `sqlite:PATH` for SQLite, `memory:` for tests.

    `async with onefold.aio.open("agent.db") as store: …`, or `store = await onefold.aio.open("agent.db")`.
    """
    opened = partial(
        sync.open,
        address,
        create=create,
        summarizer=summarizer,
        policy=policy,
        clock=clock,
        ids=ids,
        agent=agent,
        group=group,
    )
    return AsyncOpen(partial(_open, opened))


async def _open(opened: Callable[[], sync.Store]) -> Store:
    stores: list[sync.Store] = []
    try:
        await in_thread(lambda: stores.append(opened()))
        await checkpoint_if_cancelled()  # nobody may be left to close a store that is handed out now
    except BaseException:
        for store in stores:
            await in_thread(store.close, always=True)
        raise
    return Store(stores[0])
