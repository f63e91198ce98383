"""Claude Agent SDK: the transcript that its command-line program keeps, one line of JSON an entry.

The program itself is closed and asks a model, so its writing is stood in for: entries with the fields it writes, each
appended to the file it would use. Reading is the SDK's own `get_session_messages`.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from claude_agent_sdk import get_session_messages, project_key_for_directory

from benchmarks.peers.conversation import SESSION, TOOL, Exchange

ID = str(uuid.uuid5(uuid.NAMESPACE_URL, SESSION))


def entries(exchange: Exchange) -> list[dict[str, Any]]:
    parent = _own(exchange.number - 1, 3) if exchange.number else None
    use = {"type": "tool_use", "id": exchange.call, "name": TOOL,
           "input": {"path": exchange.path, "note": exchange.note}}  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": exchange.call, "content": exchange.result}
    said: list[tuple[str, Any]] = [
        ("user", exchange.question),
        ("assistant", [use]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": exchange.answer}]),
    ]
    made = []
    for n, (role, content) in enumerate(said):
        own = _own(exchange.number, n)
        made.append(
            {"parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/project", "sessionId": ID,
             "version": "2.1.0", "gitBranch": "main", "type": role, "message": {"role": role, "content": content},
             "uuid": own, "timestamp": "2026-01-01T00:00:00.000Z"}
        )  # fmt: skip
        parent = own
    return made


def _own(exchange: int, n: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{exchange}.{n}"))


class Transcript:
    async def open(self, folder: Path) -> None:
        os.environ["CLAUDE_CONFIG_DIR"] = str(folder)
        self._folder = folder
        self._path = folder / "projects" / project_key_for_directory(str(folder)) / f"{ID}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    async def say(self, exchange: Exchange) -> None:
        for entry in entries(exchange):
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    async def load(self) -> int:
        return len(get_session_messages(ID, directory=str(self._folder)))

    async def close(self) -> None:
        """A file that is not open."""

    def settings(self) -> str:
        return "a file, not synced"
