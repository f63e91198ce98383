"""onefold under the Claude Agent SDK: its `SessionStore`, which is handed the lines of the transcript.

The SDK hands over what a turn wrote in batches; here they come one by one, as the transcript is written.
"""

from __future__ import annotations

from pathlib import Path

from claude_agent_sdk import get_session_messages_from_store, project_key_for_directory

from benchmarks.peers.conversation import Exchange
from benchmarks.peers.stores.claude_agent import ID, entries
from benchmarks.peers.stores.ours import FULL
from onefold.integrations.claude_agent import OnefoldSessionStore


class Entries:
    async def open(self, folder: Path) -> None:
        self._folder = str(folder)
        self._store = OnefoldSessionStore(folder / "onefold.db")

    async def say(self, exchange: Exchange) -> None:
        key = {"project_key": project_key_for_directory(self._folder), "session_id": ID}
        for entry in entries(exchange):
            await self._store.append(key, [entry])

    async def load(self) -> int:
        return len(await get_session_messages_from_store(self._store, ID, directory=self._folder))

    async def close(self) -> None:
        self._store.close()

    def settings(self) -> str:
        return FULL
