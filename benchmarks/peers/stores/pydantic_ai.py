"""Pydantic AI has no store on disk of its own: its documentation has a program dump the messages as JSON after a run.

Here that is one file, written anew after each exchange, as the simplest program would, or with care. The agent itself
does not run: with a long history its own work takes longer than the writing does.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.peers.conversation import TOOL, Exchange

_NAME = "messages.json"


def messages(turn: Exchange) -> list[ModelMessage]:
    """What a run adds to the history."""
    call = ToolCallPart(TOOL, {"path": turn.path, "note": turn.note}, turn.call)
    return [
        ModelRequest([UserPromptPart(turn.question)]),
        ModelResponse([call]),
        ModelRequest([ToolReturnPart(TOOL, turn.result, turn.call)]),
        ModelResponse([TextPart(turn.answer)]),
    ]


class File:
    def __init__(self, *, careful: bool = False) -> None:
        self._careful = careful

    async def open(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._messages: list[ModelMessage] = []
        if self._path.exists():
            self._messages = ModelMessagesTypeAdapter.validate_json(self._path.read_bytes())

    async def say(self, exchange: Exchange) -> None:
        self._messages += messages(exchange)
        self._write(ModelMessagesTypeAdapter.dump_json(self._messages))

    def _write(self, content: bytes) -> None:
        if not self._careful:
            self._path.write_bytes(content)
            return
        beside = self._path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    async def load(self) -> int:
        return len(ModelMessagesTypeAdapter.validate_json(self._path.read_bytes()))

    async def close(self) -> None:
        """A file that is not open."""

    def settings(self) -> str:
        return "a file, synced and renamed" if self._careful else "a file, not synced"
