"""onefold under Google ADK: `OnefoldSessionService` where another session service was."""

from __future__ import annotations

from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.genai import types

import onefold
from benchmarks.peers.conversation import SESSION, Exchange, Summarize
from benchmarks.peers.stores.google_adk import APP, USER, Scripted, Service
from benchmarks.peers.stores.onefold_bare import scripted
from benchmarks.peers.stores.ours import FULL, NEVER, UnderFramework
from onefold.integrations.google_adk import OnefoldSessionService


class Onefold(Service):
    """One `append_event` a message, as for the others."""

    def __init__(self) -> None:
        super().__init__("onefold")

    async def open(self, folder: Path) -> None:
        self._folder = folder
        self._service = OnefoldSessionService(folder / "onefold.db", policy=NEVER)
        await self.begin()

    async def close(self) -> None:
        self._service.close()

    def settings(self) -> str:
        return FULL


class Compaction(UnderFramework):
    session = f"{APP}/{USER}/{SESSION}"

    def new(self) -> Onefold:
        store = Onefold()
        store.began = 1_000_000.0
        return store

    async def turn(self, store: onefold.Store, turn: Exchange, summarize: Summarize) -> None:
        sessions = OnefoldSessionService(store, summarizer=scripted(summarize))
        agent = LlmAgent(name="agent", model=Scripted(model="scripted", answer=turn.answer))
        runner = Runner(app_name=APP, agent=agent, session_service=sessions)
        asked = types.Content(role="user", parts=[types.Part(text=turn.question)])
        async for _ in runner.run_async(user_id=USER, session_id=SESSION, new_message=asked):
            pass
