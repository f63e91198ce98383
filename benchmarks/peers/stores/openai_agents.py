"""OpenAI Agents SDK: `SQLiteSession`, and `OpenAIResponsesCompactionSession` over it.

The runner hands a session the new items of each step; here they come one by one. The API that compacts is stood in for:
what comes back has the shape that its documentation names, all user messages and one item that holds the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession, Session
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.conversation import SESSION, SUMMARY, TOOL, Exchange, Left, Summarize
from benchmarks.peers.stores.sqlite import pragmas

set_tracing_disabled(True)
_NAME = "agents.db"


def items(exchange: Exchange) -> list[Any]:
    arguments = json.dumps({"path": exchange.path, "note": exchange.note})
    said = {"type": "output_text", "text": exchange.answer, "annotations": []}
    return [
        {"role": "user", "content": exchange.question},
        {"type": "function_call", "call_id": exchange.call, "name": TOOL, "arguments": arguments},
        {"type": "function_call_output", "call_id": exchange.call, "output": exchange.result},
        {"type": "message", "id": f"msg_{exchange.number}", "role": "assistant", "status": "completed",
         "content": [said]},
    ]  # fmt: skip


class Sqlite:
    async def open(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._session = SQLiteSession(SESSION, self._path)

    async def say(self, exchange: Exchange) -> None:
        for item in items(exchange):
            await self._session.add_items([item])

    async def load(self) -> int:
        return len(await self._session.get_items())

    async def close(self) -> None:
        self._session.close()

    def settings(self) -> str:
        return pragmas(self._session._get_connection())


class Scripted(Model):
    """Answers every turn with the turn's answer."""

    def __init__(self, turn: Exchange) -> None:
        self._turn = turn

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        text = ResponseOutputText(type="output_text", text=self._turn.answer, annotations=[])
        message = ResponseOutputMessage(
            id=f"msg_{self._turn.number}", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id="resp_1")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class Automatic:
    """A turn of the runner, which compacts after it."""

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        store = Sqlite()
        await store.open(folder)
        for exchange in exchanges:
            await store.say(exchange)
        await store.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        """Its turn says it."""

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        inner = SQLiteSession(SESSION, folder / _NAME)
        session = _compacting(inner, summarize)
        agent = Agent(name="agent", model=Scripted(turn))
        await Runner.run(agent, turn.question, session=session)
        inner.close()

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        await self.compact(folder, turn, summarize)

    async def left(self, folder: Path) -> Left:
        session = SQLiteSession(SESSION, folder / _NAME)
        found = [json.dumps(item, ensure_ascii=False) for item in await session.get_items()]
        session.close()
        return Left(found, found)


class Manual(Automatic):
    """`run_compaction({"force": True})`, which a program calls when it likes to."""

    async def say(self, folder: Path, turn: Exchange) -> None:
        await self.fill(folder, [turn])

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        inner = SQLiteSession(SESSION, folder / _NAME)
        await _compacting(inner, summarize).run_compaction({"force": True, "compaction_mode": "input"})
        inner.close()

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        await self.say(folder, turn)
        if not any(SUMMARY in text for text in (await self.left(folder)).context):
            await self.compact(folder, turn, summarize)


def _compacting(inner: Session, summarize: Summarize) -> OpenAIResponsesCompactionSession:
    async def compact(*, input: Sequence[Any], **_: Any) -> Any:
        asked = [item for item in input if item.get("role") == "user"]
        summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": await summarize()}
        return SimpleNamespace(output=[*asked, summary], usage=None)

    client: Any = SimpleNamespace(responses=SimpleNamespace(compact=compact))
    return OpenAIResponsesCompactionSession(SESSION, inner, client=client, compaction_mode="input")
