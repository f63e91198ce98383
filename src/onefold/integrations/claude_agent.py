"""A session store for the Claude Agent SDK: what Claude Code writes to its transcript is in the journal as well.

Claude Code keeps its own transcript and compacts by itself, so these sessions are kept by their agent: nothing is cut
here, and a compaction of its own is noted as one that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from urllib.parse import quote, unquote

from claude_agent_sdk import SessionStore, fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from onefold import aio
from onefold.aio.threads import in_thread
from onefold.errors import SessionNotFound
from onefold.ids import random_id
from onefold.integrations.common import LazyStore, StoreOrAddress, below
from onefold.integrations.dedup import append_new
from onefold.integrations.handle_cache import HandleCache
from onefold.journal import agent_compactions
from onefold.model import MESSAGE, Ids, Json, SessionState
from onefold.session import Session

FORMAT = "claude-code"


class OnefoldSessionStore(SessionStore):
    """Give it to `ClaudeAgentOptions(session_store=…)`. One for all sessions, tasks and processes.

    A session's id in the store is its project and its own, `project/session`; that of a subagent's transcript has its
    subpath behind it.
    """

    def __init__(self, store: StoreOrAddress, *, ids: Ids = random_id) -> None:
        self._place = LazyStore(store)
        self._ids = ids
        self._handles: HandleCache[aio.Session] = HandleCache()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Once for each uuid, all or none. A session that was deleted stays so: `SessionNotFound`."""
        if not entries:
            return
        session = await self._handle(session_id(key))
        lines = [(_key(entry), dict(entry)) for entry in entries]
        await in_thread(partial(append_new, session.blocking, lines, FORMAT, ids=self._ids))
        for boundary in _compactions([line for _, line in lines]):
            await in_thread(partial(_observe, session, boundary, lines))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Every line, in order; None for a session that was never written, or was deleted."""
        store = await self._place.store()
        try:
            session = await store.session(session_id(key), create=False)
        except SessionNotFound:
            return None
        return await in_thread(partial(_entries, session.blocking))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": unquote(state.id.split("/")[1]), "mtime": _mtime(state)}
            for state in await self._below(quote(project_key, safe=""))
            if state.id.count("/") == 1
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Folded from the lines when asked for: nothing next to the journal can be behind it."""
        store = await self._place.store()
        summaries: list[SessionSummaryEntry] = []
        for state in await self._below(quote(project_key, safe="")):
            if state.id.count("/") > 1:
                continue
            key: SessionKey = {"project_key": project_key, "session_id": unquote(state.id.split("/")[1])}
            try:
                session = await store.session(state.id, create=False)
                entries = await in_thread(partial(_entries, session.blocking))
            except SessionNotFound:
                continue  # deleted since it was met
            folded = fold_session_summary(None, key, entries)
            summaries.append({**folded, "mtime": _mtime(state)})
        return summaries

    async def delete(self, key: SessionKey) -> None:
        """For good; of a main transcript with all its subagents'. The ids stay taken."""
        store = await self._place.store()
        below = [] if key.get("subpath") else [s.id for s in await self._below(session_id(key))]
        for id in (*below, session_id(key)):
            try:
                await store.delete(id)
            except SessionNotFound:
                continue  # never written, or deleted before: it is not there

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        of = session_id({"project_key": key["project_key"], "session_id": key["session_id"]})
        return [unquote(state.id.split("/")[2]) for state in await self._below(of)]

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        self._place.close()

    async def _handle(self, id: str) -> aio.Session:
        store = await self._place.store()
        return self._handles.get(id) or self._handles.keep(id, await store.session(id, keeper="agent"))

    async def _below(self, id: str) -> list[SessionState]:
        store = await self._place.store()
        return [state async for state in below(store, id)]


def session_id(key: SessionKey) -> str:
    """The id in the store of a transcript. A slash in a name is written as %2F, so that no two share one."""
    parts = (key["project_key"], key["session_id"], key.get("subpath"))
    return "/".join(quote(part, safe="") for part in parts if part)


def _key(entry: SessionStoreEntry) -> str | None:
    uuid = entry.get("uuid")
    return f"uuid-{uuid}" if isinstance(uuid, str) and uuid else None


def _entries(session: Session) -> list[SessionStoreEntry]:
    return [record.body for record in session.read() if record.kind == MESSAGE]


def _compactions(entries: Iterable[Json]) -> list[dict[str, Json]]:
    return [e for e in entries if e.get("subtype") == "compact_boundary" and isinstance(e.get("uuid"), str)]


def _observe(session: aio.Session, boundary: dict[str, Json], lines: Sequence[tuple[str | None, Json]]) -> None:
    """Notes a compaction once: a batch may come again."""
    handle = session.blocking
    summaries = [str(e["message"].get("content")) for _, e in lines if e.get("isCompactSummary") and e.get("message")]
    agent_compactions.record_agent_compaction(
        handle.journal,
        handle.id,
        source="claude-code",
        signals=("compact_boundary",),
        key=f"compacted-{boundary['uuid']}",
        said=summaries[0] if summaries else None,
    )


def _mtime(state: SessionState) -> int:
    return int(state.touched_at * 1000)
