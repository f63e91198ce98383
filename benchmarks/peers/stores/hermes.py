"""Hermes Agent: its `SessionDB`, and its own compression of a session in it.

The routine that compresses runs as it is. The agent around it, whose prompts, tools and model it asks for, is stood in
for.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from hermes_state import SessionDB  # type: ignore[import-not-found]

from benchmarks.peers.conversation import SESSION, SUMMARY, TOOL, Exchange, Left, Summarize
from benchmarks.peers.stores.sqlite import pragmas

_NAME = "state.db"
_LOCKED = 300.0
"""Seconds, its default."""


class Sessions:
    async def open(self, folder: Path) -> None:
        self._db = SessionDB(folder / _NAME)
        if self._db.get_session(SESSION) is None:
            self._db.create_session(SESSION, "cli", model="model")

    async def say(self, exchange: Exchange) -> None:
        say(self._db, SESSION, exchange)

    async def load(self) -> int:
        return len(self._db.get_messages_as_conversation(SESSION))

    async def close(self) -> None:
        self._db.close()

    def settings(self) -> str:
        return pragmas(self._db._conn)


def say(db: Any, session: str, exchange: Exchange) -> None:
    function = {"name": TOOL, "arguments": json.dumps({"path": exchange.path, "note": exchange.note})}
    call = {"id": exchange.call, "type": "function", "function": function}
    db.append_message(session, "user", exchange.question)
    db.append_message(session, "assistant", "", tool_calls=[call], finish_reason="tool_calls")
    db.append_message(session, "tool", exchange.result, tool_name=TOOL, tool_call_id=exchange.call)
    db.append_message(session, "assistant", exchange.answer, finish_reason="stop")


class Compression:
    """`compress_context`, in place as by default, or into a new session as it was before."""

    def __init__(self, *, in_place: bool = True) -> None:
        self._in_place = in_place

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None:
        store = Sessions()
        await store.open(folder)
        for exchange in exchanges:
            await store.say(exchange)
        await store.close()

    async def say(self, folder: Path, turn: Exchange) -> None:
        db = SessionDB(folder / _NAME)
        say(db, _tip(db), turn)
        db.close()

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        await asyncio.to_thread(self._compress, folder, summarize)

    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None:
        """Later, when a dead one's lock has run out; compressed only where that is still to be done."""
        import hermes_state

        await self.say(folder, turn)
        hermes_state.time = SimpleNamespace(time=lambda: time.time() + _LOCKED + 1)
        if not any(SUMMARY in text for text in (await self.left(folder)).context):
            await asyncio.to_thread(self._compress, folder, summarize)

    def _compress(self, folder: Path, summarize: Summarize) -> None:
        from agent.conversation_compression import compress_context  # type: ignore[import-not-found]

        db = SessionDB(folder / _NAME)
        session = _tip(db)
        history = db.get_messages_as_conversation(session)
        compress_context(_agent(db, session, summarize, in_place=self._in_place), history, "You help.")
        db.close()

    async def left(self, folder: Path) -> Left:
        db = SessionDB(folder / _NAME)
        tip = _tip(db)
        context = [json.dumps(m) for m in db.get_messages_as_conversation(tip)]
        rows = db._conn.execute("select content, tool_calls from messages").fetchall()
        held = db._conn.execute("select max(expires_at) from compression_locks").fetchone()[0]
        db.close()
        stored = [f"{row[0]} {row[1]}" for row in rows]
        return Left(context, stored, max(0.0, (held or 0.0) - time.time()))


def _tip(db: Any) -> str:
    """As its resume finds it."""
    return str(db.resolve_resume_session_id(db.get_compression_tip(SESSION) or SESSION))


def _agent(db: Any, session: str, summarize: Summarize, *, in_place: bool) -> Any:
    from agent.context_compressor import ContextCompressor  # type: ignore[import-not-found]

    compressor = ContextCompressor("model", config_context_length=20_000, quiet_mode=True)
    compressor.bind_session_state(db, session)
    compressor._generate_summary = lambda *_, **__: compressor._with_summary_prefix(asyncio.run(_asked(summarize)))
    agent = MagicMock()
    agent.context_compressor = compressor
    agent.session_id, agent._session_db = session, db
    agent.compression_in_place = in_place
    agent.api_mode, agent.model, agent.platform = "chat_completions", "model", "cli"
    agent._compression_feasibility_checked = True
    agent._memory_manager = agent._memory_store = None
    agent._cached_system_prompt = "You help."
    agent._build_system_prompt.return_value = "You help."
    agent._todo_store = SimpleNamespace(format_for_injection=lambda: "")
    agent._compression_lock_ttl_seconds = _LOCKED
    agent._compression_lock_refresh_interval = None
    agent._session_init_model_config = None
    return agent


async def _asked(summarize: Summarize) -> str:
    return await summarize()
