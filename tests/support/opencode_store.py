"""Stores as OpenCode writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

from onefold.model import Json

NOW = 1_800_000_000.0
SCHEMA = """
create table session (
    id text primary key, project_id text not null, title text not null, version text not null,
    time_created integer not null, time_updated integer not null);
create table message (
    id text primary key, session_id text not null, time_created integer not null, time_updated integer not null,
    data text not null);
create table part (
    id text primary key, message_id text not null, session_id text not null, time_created integer not null,
    time_updated integer not null, data text not null);
create index message_session_time_created_id_idx on message (session_id, time_created, id);
create index part_message_id_id_idx on part (message_id, id);
"""
EVENTS = """
create table event_sequence (aggregate_id text primary key, seq integer not null, owner_id text);
create table event (
    id text primary key, aggregate_id text not null, seq integer not null, type text not null, data text not null);
create unique index event_aggregate_seq_idx on event (aggregate_id, seq);
"""


class OpenCode:
    """Writes a store as OpenCode does."""

    def __init__(self, path: Path, schema: str = SCHEMA + EVENTS) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.execute(schema)
        self.connection.execute("begin")
        self.logs = "create table event" in schema
        self.at = int(NOW * 1000) - 100_000_000
        self.number = 0

    def id(self, kind: str) -> str:
        self.number += 1
        return f"{kind}_{self.number:012d}abc"

    def tick(self) -> int:
        self.at += 100
        return self.at

    def session(self, name: str) -> str:
        id = f"ses_{name}"
        at = self.tick()
        self.do("insert into session values (?, 'project', ?, '1.18.33', ?, ?)", id, name, at, at)
        if self.logs:
            self.do("insert into event_sequence values (?, -1, null)", id)
        self.log(id, "session.created.1", {"sessionID": id})
        return id

    def log(self, session: str, type: str, data: Json) -> None:
        if self.logs:
            self.do("update event_sequence set seq = seq + 1 where aggregate_id = ?", session)
            self.do(
                "insert into event select ?, aggregate_id, seq, ?, ? from event_sequence where aggregate_id = ?",
                self.id("evt"), type, json.dumps(data), session,
            )  # fmt: skip

    def message(self, session: str, role: str, *parts: Json, completed: bool = True, **more: Json) -> str:
        id = self.id("msg")
        at = self.tick()
        time = {"created": at} | ({"completed": at + 50} if role == "assistant" and completed else {})
        data = {"role": role, "time": time, "agent": "build", **more}
        self.do("insert into message values (?, ?, ?, ?, ?)", id, session, at, at, json.dumps(data))
        self.log(session, "message.updated.1", {"sessionID": session, "info": {**data, "id": id}})
        for part in parts:
            name = self.id("prt")
            self.do("insert into part values (?, ?, ?, ?, ?, ?)", name, id, session, at, at, json.dumps(part))
            self.log(session, "message.part.updated.1", {"sessionID": session, "part": {**part, "id": name}})
        return id

    def ask(self, session: str, words: str = "a question", **more: Json) -> str:
        return self.message(session, "user", {"type": "text", "text": words, **more}, summary={"diffs": []})

    def answer(self, session: str, prompt: str, words: str = "an answer") -> str:
        parts = ({"type": "step-start"}, {"type": "text", "text": words}, {"type": "step-finish", "reason": "stop"})
        return self.message(session, "assistant", *parts, parentID=prompt, finish="stop")

    def work(self, session: str, prompt: str) -> str:
        call = {"type": "tool", "tool": "read", "callID": self.id("call"), "state": {"status": "completed"}}
        parts = ({"type": "step-start"}, call, {"type": "step-finish", "reason": "tool-calls"})
        return self.message(session, "assistant", *parts, parentID=prompt, finish="tool-calls")

    def turn(self, session: str, words: str = "a question") -> str:
        prompt = self.ask(session, words)
        self.answer(session, prompt)
        return prompt

    def marker(self, session: str, *, auto: bool = False, **more: Json) -> str:
        return self.message(session, "user", {"type": "compaction", "auto": auto, **more})

    def summary(self, session: str, parent: str, words: str = "## Objective\n- all of it", **more: Json) -> str:
        parts = ({"type": "step-start"}, {"type": "text", "text": words}) if words else ({"type": "step-start"},)
        said = {"mode": "compaction", "summary": True, "finish": "stop", **more}
        return self.message(
            session, "assistant", *parts, parentID=parent, **{k: v for k, v in said.items() if v is not None}
        )

    def compact(self, session: str, **more: Json) -> str:
        marker = self.marker(session, **more)
        self.summary(session, marker)
        return marker

    def do(self, sql: str, *bindings: Json) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, bindings).fetchall()

    def done(self) -> Path:
        self.connection.execute("commit")
        self.connection.close()
        return self.path
