"""onefold without a framework: OpenAI chat messages, one append each."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onefold
from benchmarks.peers.conversation import SESSION, TOOL, Exchange, Left, Summarize
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer, SummaryInput

_NAME = "onefold.db"


def chat(exchange: Exchange) -> list[dict[str, Any]]:
    """An exchange as messages of the OpenAI chat API."""
    function = {"name": TOOL, "arguments": json.dumps({"path": exchange.path, "note": exchange.note})}
    call = {"id": exchange.call, "type": "function", "function": function}
    return [
        {"role": "user", "content": exchange.question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": exchange.call, "content": exchange.result},
        {"role": "assistant", "content": exchange.answer},
    ]


class Bare:
    async def open(self, folder: Path) -> None:
        self._store = onefold.open(folder / _NAME)
        self._session = self._store.session(SESSION)

    async def say(self, exchange: Exchange) -> None:
        for message in chat(exchange):
            self._session.append(message)

    async def load(self) -> int:
        return len(self._session.context().messages)

    async def close(self) -> None:
        self._store.close()

    def settings(self) -> str:
        return "WAL, synchronous=FULL"


class Compaction:
    """`Session.compact`, after the turn's messages have been appended."""

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        bare = Bare()
        await bare.open(folder)
        for exchange in exchanges:
            await bare.say(exchange)
        await bare.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        await self.fill(folder, [turn])

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        with onefold.open(folder / _NAME) as store:
            store.session(SESSION).compact(scripted(summarize))

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        await self.say(folder, turn)
        with onefold.open(folder / _NAME, clock=later) as store:
            session = store.session(SESSION)
            if not session.state.committed:
                session.compact(scripted(summarize))

    async def left(self, folder: Path) -> Left:
        with onefold.open(folder / _NAME, create=False) as store:
            return look(store.session(SESSION, create=False))


def later() -> float:
    """A clock of somebody who has waited for a dead worker's lease to end."""
    return time.time() + Policy().lease


def scripted(summarize: Summarize) -> Summarizer:
    """What stands in for the model, as a summarizer of onefold's."""

    async def summary(_: SummaryInput) -> str:
        return await summarize()

    return summary


def look(session: onefold.Session) -> Left:
    """What the journal has, and what the next call of a model is sent."""
    holder = session.compaction_holder()
    return Left(
        context=[json.dumps(message, ensure_ascii=False) for message in session.context().messages],
        stored=[json.dumps(record.body, ensure_ascii=False) for record in session.read(1) if record.kind == "message"],
        held=max(0.0, holder.until - time.time()) if holder is not None else 0.0,
    )
