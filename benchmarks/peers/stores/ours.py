"""What onefold's integrations share here: one store, a policy without a limit, and one that compacts at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import onefold
from benchmarks.peers import conversation
from benchmarks.peers.conversation import SESSION, Exchange, Left, Summarize
from benchmarks.peers.stores.onefold_bare import later, look

NEVER = onefold.Policy(window=100_000_000)
"""So that a conversation of any length is loaded whole, as from a store that does not compact."""
NOW = onefold.Policy(limits=onefold.Limits(window=20_000, output=1_000))
"""The conversation that is compacted is above the hard limit of this, so a turn waits for its compaction."""
FULL = "WAL, synchronous=FULL"


def opened(folder: Path, *, afterwards: bool = False, policy: onefold.Policy = NOW) -> onefold.Store:
    """`afterwards` is the clock of somebody who comes when a dead one's lease has ended."""
    path = folder / "onefold.db"
    return onefold.open(path, policy=policy, clock=later) if afterwards else onefold.open(path, policy=policy)


def found(folder: Path, session: str) -> Left:
    with opened(folder) as store:
        return look(store.session(session, create=False))


class UnderFramework(conversation.Compacts, ABC):
    """A compaction by onefold as a framework's turn comes to it: the turn brings its own message."""

    session = SESSION

    @abstractmethod
    def new(self) -> conversation.Store:
        """What the conversation is said to."""

    @abstractmethod
    async def turn(self, store: onefold.Store, turn: Exchange, summarize: Summarize) -> None: ...

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        own = self.new()
        await own.open(folder)
        for exchange in exchanges:
            await own.say(exchange)
        await own.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        return  # its turn says it

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with opened(folder) as store:
            await self.turn(store, turn, summarize)

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with opened(folder, afterwards=True) as store:
            await self.turn(store, turn, summarize)

    async def left(self, folder: Path) -> Left:
        return found(folder, self.session)
