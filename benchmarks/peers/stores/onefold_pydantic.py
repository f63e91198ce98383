"""onefold under Pydantic AI: the capability `OnefoldHistory`, in runs of an agent."""

from __future__ import annotations

from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import onefold
from benchmarks.peers.conversation import SESSION, TOOL, Exchange, Summarize
from benchmarks.peers.stores.onefold_bare import scripted
from benchmarks.peers.stores.ours import FULL, NEVER, UnderFramework, opened
from onefold.integrations.pydantic_ai import OnefoldHistory


class Talk:
    """An agent whose model and tool say what the exchange at hand says."""

    def __init__(self, history: OnefoldHistory, *, calls: bool = True) -> None:
        self.turn: Exchange | None = None
        self._calls = calls
        self.agent: Agent[None, str] = Agent(FunctionModel(self._answer), capabilities=[history])
        self.agent.tool_plain(self.read_file)

    def read_file(self, path: str, note: str) -> str:
        assert self.turn is not None
        return self.turn.result

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = self.turn
        assert turn is not None
        if not self._calls or any(part.part_kind == "tool-return" for part in messages[-1].parts):
            return ModelResponse([TextPart(turn.answer)])
        return ModelResponse([ToolCallPart(TOOL, {"path": turn.path, "note": turn.note}, turn.call)])


class History:
    async def open(self, folder: Path) -> None:
        self._store = opened(folder, policy=NEVER)
        self._talk = Talk(OnefoldHistory(self._store, session=SESSION))

    async def say(self, exchange: Exchange) -> None:
        self._talk.turn = exchange
        await self._talk.agent.run(exchange.question)

    async def load(self) -> int:
        return len(self._store.session(SESSION).context().messages)

    async def close(self) -> None:
        self._store.close()

    def settings(self) -> str:
        return FULL


class Compaction(UnderFramework):
    def new(self) -> History:
        return History()

    async def turn(self, store: onefold.Store, turn: Exchange, summarize: Summarize) -> None:
        talk = Talk(OnefoldHistory(store, session=SESSION, summarizer=scripted(summarize)), calls=False)
        talk.turn = turn
        await talk.agent.run(turn.question)
