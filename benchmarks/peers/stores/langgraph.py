"""LangGraph's SQLite checkpointer under LangChain's `create_agent`, with `SummarizationMiddleware` where it compacts.

A run of the agent writes a checkpoint after each step, and each holds all messages. So a conversation cannot be handed
over message by message: the agent runs, with a model that says what it is told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.peers.conversation import SESSION, TOOL, Exchange, Left, Summarize
from benchmarks.peers.stores.sqlite import pragmas

_NAME = "checkpoints.db"
_CONFIG: Any = {"configurable": {"thread_id": SESSION}}
Durability = Literal["sync", "async"]


class Scripted(BaseChatModel):
    """Calls the tool and then answers, as the exchange at hand says; or answers at once."""

    turn: Any = None
    calls: bool = True

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn: Exchange = self.turn
        said = AIMessage(turn.answer)
        if self.calls and messages[-1].type != "tool":
            call = {"id": turn.call, "name": TOOL, "args": {"path": turn.path, "note": turn.note}}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


def tool(model: Scripted) -> StructuredTool:
    def read_file(path: str, note: str) -> str:
        """Reads a file."""
        return str(model.turn.result)

    return StructuredTool.from_function(read_file)


class Checkpoints:
    """Its default writes a checkpoint behind the next step; `sync` writes it before."""

    def __init__(self, durability: Durability = "async") -> None:
        self._durability: Durability = durability

    async def open(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / _NAME, check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        self._saver.setup()
        self._model = Scripted()
        self._agent = create_agent(self._model, [tool(self._model)], checkpointer=self._saver)

    async def say(self, exchange: Exchange) -> None:
        self._model.turn = exchange
        said = {"messages": [HumanMessage(exchange.question)]}
        self._agent.invoke(said, _CONFIG, durability=self._durability)

    async def load(self) -> int:
        return len(self._agent.get_state(_CONFIG).values["messages"])

    async def close(self) -> None:
        self._connection.close()

    def settings(self) -> str:
        return f"{pragmas(self._connection)}, durability={self._durability}"


class Summarized:
    """A turn whose context is too long: the middleware summarises before the model is asked."""

    def __init__(self, durability: Durability = "async") -> None:
        self._durability: Durability = durability

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        store = Checkpoints(self._durability)
        await store.open(folder)
        for exchange in exchanges:
            await store.say(exchange)
        await store.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        """Its turn says it."""

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with SqliteSaver.from_conn_string(str(folder / _NAME)) as saver:
            agent = _agent(saver, turn, summarize)
            said = {"messages": [HumanMessage(turn.question)]}
            await _invoked(agent, said, self._durability)

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        """A run that was cut off is resumed first, as its documentation says, then the new turn comes."""
        with SqliteSaver.from_conn_string(str(folder / _NAME)) as saver:
            agent = _agent(saver, turn, summarize)
            if agent.get_state(_CONFIG).next:
                await _invoked(agent, None, self._durability)
            await _invoked(agent, {"messages": [HumanMessage(turn.question)]}, self._durability)

    async def left(self, folder: Path) -> Left:
        with SqliteSaver.from_conn_string(str(folder / _NAME)) as saver:
            newest = saver.get_tuple(_CONFIG)
            assert newest is not None
            context = [_text(m) for m in newest.checkpoint["channel_values"].get("messages", [])]
            earlier = {
                _text(m)
                for found in saver.list(_CONFIG)
                for m in found.checkpoint["channel_values"].get("messages", [])
            }
        return Left(context, sorted(earlier))


async def _invoked(agent: Any, said: Any, durability: Durability) -> None:
    import asyncio

    await asyncio.to_thread(agent.invoke, said, _CONFIG, durability=durability)


def _agent(saver: SqliteSaver, turn: Exchange, summarize: Summarize) -> Any:
    import asyncio

    def summary(_: Sequence[BaseMessage]) -> str:
        async def asked() -> str:
            return await summarize()

        return asyncio.run(asked())

    model = Scripted(turn=turn, calls=False)
    middleware = SummarizationMiddleware(model, trigger=("messages", 100), keep=("messages", 20), summarizer=summary)
    return create_agent(model, [tool(model)], checkpointer=saver, middleware=[middleware])


def _text(message: BaseMessage) -> str:
    calls = getattr(message, "tool_calls", None) or ""
    return f"{message.content} {calls}"
