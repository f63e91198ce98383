"""Google ADK: `SqliteSessionService` and `DatabaseSessionService`, with its event compaction after a turn."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.genai import types

from benchmarks.peers.conversation import SESSION, TOOL, Exchange, Left, Summarize
from benchmarks.peers.stores.sqlite import pragmas

warnings.simplefilter("ignore")
APP, USER = "bench", "user"
_NAME = "adk.db"


def service(kind: str, folder: Path) -> BaseSessionService:
    if kind == "sqlite":
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        return SqliteSessionService(str(folder / _NAME))
    from google.adk.sessions import DatabaseSessionService

    return DatabaseSessionService(f"sqlite+aiosqlite:///{folder / _NAME}")


def events(exchange: Exchange, clock: float) -> list[Event]:
    call = types.Part.from_function_call(name=TOOL, args={"path": exchange.path, "note": exchange.note})
    result = types.Part.from_function_response(name=TOOL, response={"result": exchange.result})
    for part in (call.function_call, result.function_response):
        assert part is not None
        part.id = exchange.call
    parts = [types.Part(text=exchange.question), call, result, types.Part(text=exchange.answer)]
    return [
        Event(
            author="user" if n == 0 else "agent",
            invocation_id=f"turn-{exchange.number}",
            content=types.Content(role="model" if n in (1, 3) else "user", parts=[part]),
            timestamp=clock + exchange.number + n / 10,
        )
        for n, part in enumerate(parts)
    ]


class Service:
    """One `append_event` a message, as its runner does."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.began = 0.0
        """The time of the first event; others follow it by their numbers."""

    async def open(self, folder: Path) -> None:
        self._folder = folder
        self._service: Any = service(self._kind, folder)
        await self.begin()

    async def begin(self) -> None:
        found = await self._service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        self._session = found or await self._service.create_session(app_name=APP, user_id=USER, session_id=SESSION)

    async def say(self, exchange: Exchange) -> None:
        self.began = self.began or self._session.last_update_time + 1
        for event in events(exchange, self.began):
            await self._service.append_event(self._session, event)

    async def load(self) -> int:
        found = await self._service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert found is not None
        return len(found.events)

    async def close(self) -> None:
        await getattr(self._service, "close", _nothing)()

    def settings(self) -> str:
        connection = sqlite3.connect(self._folder / _NAME)
        try:
            return pragmas(connection)
        finally:
            connection.close()


async def _nothing() -> None:
    """Some services have nothing to close."""


class Scripted(BaseLlm):
    """Answers every turn with the turn's answer."""

    answer: str = ""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=self.answer)]))


class Summarizer(BaseEventsSummarizer):
    def __init__(self, summarize: Summarize) -> None:
        self._summarize = summarize

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event:
        content = types.Content(role="model", parts=[types.Part(text=await self._summarize())])
        covered = EventCompaction(
            start_timestamp=events[0].timestamp, end_timestamp=events[-1].timestamp, compacted_content=content
        )
        return Event(author="user", actions=EventActions(compaction=covered), invocation_id=Event.new_id())


class Compaction:
    """A turn of its runner, with compaction by the number of tokens after it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        store = Service(self._kind)
        await store.open(folder)
        store.began = 1_000_000.0
        for exchange in exchanges:
            await store.say(exchange)
        await store.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        """Its turn says it."""

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        sessions = service(self._kind, folder)
        agent = LlmAgent(name="agent", model=Scripted(model="scripted", answer=turn.answer))
        config = EventsCompactionConfig(
            summarizer=Summarizer(summarize), token_threshold=15_000, event_retention_size=20
        )
        app = App(name=APP, root_agent=agent, events_compaction_config=config)
        runner = Runner(app=app, session_service=sessions)
        asked = types.Content(role="user", parts=[types.Part(text=turn.question)])
        async for _ in runner.run_async(user_id=USER, session_id=SESSION, new_message=asked):
            pass
        await getattr(sessions, "close", _nothing)()

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        await self.compact(folder, turn, summarize)

    async def left(self, folder: Path) -> Left:
        from google.adk.flows.llm_flows.context._compaction import _process_compaction_events

        sessions = service(self._kind, folder)
        found = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert found is not None
        await getattr(sessions, "close", _nothing)()
        return Left(
            context=[_text(event) for event in _process_compaction_events(found.events)],
            stored=[_text(event) for event in found.events],
        )


def _text(event: Event) -> str:
    return json.dumps(event.model_dump(mode="json", exclude_none=True)["content"]) if event.content else ""
