"""Stores as Hermes Agent writes them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from onefold import foreign
from onefold.foreign import ForeignFinding
from onefold.model import Json

NOW = 1_800_000_000.0
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] What was said before"
SCHEMA = """
create table schema_version (version integer not null);
insert into schema_version values (22);
create table sessions (
    id text primary key, source text not null, model text, model_config text, parent_session_id text,
    started_at real not null, ended_at real, end_reason text, message_count integer default 0,
    tool_call_count integer default 0);
create table messages (
    id integer primary key autoincrement, session_id text not null, role text not null, content text,
    tool_call_id text, tool_calls text, timestamp real not null, active integer not null default 1,
    compacted integer not null default 0);
create index idx_messages_session on messages(session_id, timestamp);
create table state_meta (key text primary key, value text);
create table gateway_routing (
    scope text not null default '', session_key text not null, entry_json text not null, updated_at real not null,
    primary key (scope, session_key));
create table compression_locks (session_id text primary key, holder text not null, acquired_at real, expires_at real);
create table telegram_dm_topic_bindings (
    chat_id text not null, thread_id text not null, session_id text not null, primary key (chat_id, thread_id));
create unique index idx_bindings on telegram_dm_topic_bindings(session_id);
create virtual table messages_fts using fts5(content);
create trigger messages_fts_insert after insert on messages begin
    insert into messages_fts(rowid, content) values (new.id, coalesce(new.content, '')); end;
create trigger messages_fts_update after update on messages begin
    delete from messages_fts where rowid = old.id;
    insert into messages_fts(rowid, content) values (new.id, coalesce(new.content, '')); end;
"""
EARLY = """
create table sessions (
    id text primary key, source text not null, parent_session_id text, started_at real, ended_at real, end_reason text,
    message_count integer default 0);
create table messages (
    id integer primary key autoincrement, session_id text, role text, content text, tool_call_id text,
    tool_calls text, timestamp real);
"""


class Hermes:
    """Writes a store as Hermes does."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.execute(schema)
        self.connection.execute("begin")
        self.at = NOW - 1_000_000

    def tick(self) -> float:
        self.at += 1
        return self.at

    def session(self, id: str, parent: str | None = None, *, source: str = "cli", marks: Json = None) -> None:
        config = json.dumps({"max_iterations": 90, **(marks or {})})
        self.connection.execute(
            "insert into sessions (id, source, model_config, parent_session_id, started_at) values (?, ?, ?, ?, ?)",
            (id, source, config, parent, self.tick()),
        )

    def end(self, id: str, reason: str = "compression") -> None:
        self.connection.execute(
            "update sessions set ended_at = ?, end_reason = ? where id = ?", (self.tick(), reason, id)
        )

    def say(
        self, session: str, role: str, content: str, *, at: float | None = None, result_of: str | None = None,
        calls: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        made = json.dumps([{"id": c, "type": "function", "function": {"name": "t"}} for c in calls]) if calls else None
        moment = self.tick() if at is None else at
        self.connection.execute(
            "insert into messages (session_id, role, content, tool_call_id, tool_calls, timestamp) "
            "values (?, ?, ?, ?, ?, ?)",
            (session, role, content, result_of, made, moment),
        )
        self.connection.execute(
            "update sessions set message_count = message_count + 1, tool_call_count = tool_call_count + ? where id = ?",
            (len(calls), session),
        )
        return self.connection.last_insert_rowid()

    def talk(self, session: str, turns: int, about: str = "thing") -> None:
        for turn in range(turns):
            self.say(session, "user", f"tell me about {about} {turn}")
            self.say(session, "assistant", f"{about} {turn} is so", calls=(f"{session}-{about}-{turn}",))
            self.say(session, "tool", "ok", result_of=f"{session}-{about}-{turn}")

    def rows(self, session: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(
            "select id, role, content, tool_call_id, tool_calls, timestamp from messages "
            "where session_id = ? and active = 1 order by id",
            (session,),
        ).fetchall()

    def compact(self, session: str, *, keep: int = 6, into: str | None = None, after: int = 0) -> None:
        """Compacts in place, or into a continuation. The last `after` messages came too late for the summary."""
        rows = self.rows(session)
        kept = rows[len(rows) - after - keep : len(rows) - after]
        if into is None:
            self.connection.execute(
                "update messages set active = 0, compacted = 1 where session_id = ? and active = 1", (session,)
            )
            self.connection.execute(
                "update sessions set message_count = 0, tool_call_count = 0 where id = ?", (session,)
            )
        else:
            self.end(session)
            self.session(into, session)
        target = into or session
        self.say(target, "user", f"{SUMMARY}, up to {self.at:.0f}")
        for _, role, content, result_of, calls, at in kept:
            made = tuple(c["id"] for c in json.loads(calls)) if calls else ()
            self.say(target, role, content, at=at, result_of=result_of, calls=made)

    def chat(self, session: str, messages: int) -> None:
        """Messages without a call, none like another."""
        for number in range(messages):
            self.say(session, "assistant" if number % 2 else "user", f"m{number}")

    def write_again(self, session: str, rows: list[tuple[Any, ...]], *, timed: bool = False) -> None:
        """What a second compaction does: it writes down what it knows, with the times it had if it read them."""
        for _, role, content, result_of, calls, at in rows:
            made = tuple(c["id"] for c in json.loads(calls)) if calls else ()
            self.say(session, role, content, at=at if timed else None, result_of=result_of, calls=made)

    def do(self, sql: str, *bindings: Json) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, bindings).fetchall()

    def done(self) -> Path:
        self.connection.execute("commit")
        self.connection.close()
        return self.path


def unseen(done: int, total: int) -> None:
    assert 0 <= done <= total


def look(path: Path) -> list[ForeignFinding]:
    return list(foreign.examine(foreign.store_at(path), now=NOW, progress=unseen).findings)


def ids(path: Path) -> list[str]:
    return sorted(f.id for f in look(path))


def repair(path: Path, times: int | None = None) -> list[str]:
    """Repairs everything that can be, and sees that a second time changes nothing. Gives what is left."""
    backups = path.parent / "backups"
    outcome = foreign.repair_store(foreign.store_at(path), (), backups=backups, now=NOW, progress=unseen)
    assert len(outcome.repaired) == (times or len(outcome.repaired)) > 0
    stands = path.read_bytes()
    again = foreign.repair_store(foreign.store_at(path), (), backups=backups, now=NOW, progress=unseen)
    assert not again.repaired
    assert path.read_bytes() == stands
    return sorted(f.id for f in outcome.left)


def ask(path: Path, sql: str, *bindings: Json) -> list[tuple[Any, ...]]:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return connection.execute(sql, bindings).fetchall()


def kept(path: Path) -> list[Json]:
    files = path.parent.glob("backups/*/quarantine.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


TIMED = pytest.mark.parametrize("timed", [False, True], ids=["new times", "the times they had"])
