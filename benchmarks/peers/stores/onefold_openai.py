"""onefold under the OpenAI Agents SDK: `OnefoldSession` where `SQLiteSession` was."""

from __future__ import annotations

from pathlib import Path

from agents import Agent, Runner

import onefold
from benchmarks.peers.conversation import SESSION, Exchange, Summarize
from benchmarks.peers.stores.onefold_bare import scripted
from benchmarks.peers.stores.openai_agents import Scripted, items
from benchmarks.peers.stores.ours import FULL, NEVER, UnderFramework
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


class Compaction(UnderFramework):
    def new(self) -> Session:
        return Session()

    async def turn(self, store: onefold.Store, turn: Exchange, summarize: Summarize) -> None:
        session = OnefoldSession(SESSION, store, summarizer=scripted(summarize))
        await Runner.run(Agent(name="agent", model=Scripted(turn)), turn.question, session=session)
