"""onefold under LangChain: `OnefoldMiddleware` in place of checkpointer and `SummarizationMiddleware`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

import onefold
from benchmarks.peers.conversation import SESSION, Exchange, Summarize
from benchmarks.peers.stores.langgraph import Scripted, tool
from benchmarks.peers.stores.onefold_bare import scripted
from benchmarks.peers.stores.ours import FULL, NEVER, UnderFramework, opened
from onefold.integrations.langchain import OnefoldMiddleware


class Middleware:
    async def open(self, folder: Path) -> None:
        self._store = opened(folder, policy=NEVER)
        self._model = Scripted()
        middleware = OnefoldMiddleware(self._store, session=SESSION)
        self._agent = create_agent(self._model, [tool(self._model)], middleware=[middleware])

    async def say(self, exchange: Exchange) -> None:
        self._model.turn = exchange
        self._agent.invoke({"messages": [HumanMessage(exchange.question)]})

    async def load(self) -> int:
        return len(self._store.session(SESSION).context().messages)

    async def close(self) -> None:
        self._store.close()

    def settings(self) -> str:
        return FULL


class Compaction(UnderFramework):
    def new(self) -> Middleware:
        return Middleware()

    async def turn(self, store: onefold.Store, turn: Exchange, summarize: Summarize) -> None:
        model = Scripted(turn=turn, calls=False)
        middleware = OnefoldMiddleware(store, session=SESSION, summarizer=scripted(summarize))
        agent = create_agent(model, [tool(model)], middleware=[middleware])
        await asyncio.to_thread(agent.invoke, {"messages": [HumanMessage(turn.question)]})
