"""onefold under the OpenAI Agents SDK: `OnefoldSession` where `SQLiteSession` was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents import Agent, Runner

import onefold
from bench.peers.conversation import SESSION, Exchange, Left, Summarize
from bench.peers.stores.onefold_bare import scripted
from bench.peers.stores.openai_agents import Scripted, items
from bench.peers.stores.ours import FULL, NEVER, found, opened
from onefold.integrations.openai_agents import OnefoldSession


class Session:
    async def open(self, folder: Path) -> None:
        self._session = OnefoldSession(SESSION, folder / "onefold.db", policy=NEVER)

    async def say(self, exchange: Exchange) -> None:
        for item in items(exchange):
            await self._session.add_items([item])

    async def load(self) -> int:
        return len(await self._session.get_items())

    async def close(self) -> None:
        self._session.close()

    def settings(self) -> str:
        return FULL


class Compaction:
    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        session = Session()
        await session.open(folder)
        for exchange in exchanges:
            await session.say(exchange)
        await session.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        """Its turn says it."""

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with opened(folder) as store:
            await _turn(store, turn, summarize)

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with opened(folder, afterwards=True) as store:
            await _turn(store, turn, summarize)

    async def left(self, folder: Path) -> Left:
        return found(folder, SESSION)


async def _turn(store: onefold.Store, turn: Exchange, summarize: Summarize) -> None:
    session = OnefoldSession(SESSION, store, summarizer=scripted(summarize))
    await Runner.run(Agent(name="agent", model=Scripted(turn)), turn.question, session=session)
