"""Repairs of a Hermes store. What leaves the live set is archived, as Hermes does, and kept aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from onefold.foreign.column_values import parsed_object
from onefold.foreign.hermes.message_checks import MessageScan, count_calls
from onefold.foreign.hermes.schema import Schema, numbers_of, rows_of
from onefold.foreign.repair import Operation
from onefold.model import Json


def count_of(ids: list[int], what: str) -> str:
    return f"{len(ids)} {what}{'' if len(ids) == 1 else 's'}"


def _keep(operation: Operation, shape: Schema, what: str, query: str, key: Json) -> None:
    """Keeps a whole row aside."""
    cursor = shape.ask(query, key)
    for found in cursor:
        operation.keep(what, dict(zip((column[0] for column in cursor.get_description()), found, strict=True)))


def _break_cycle(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    _keep(operation, shape, "sessions", "session", facts["session"])
    shape.ask("detach", facts["session"])
    return f"{facts['session']} is the beginning of its line."


def _reopen(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    _keep(operation, shape, "sessions", "session", facts["session"])
    shape.ask("reopen", facts["session"])
    return f"{facts['session']} is open again."


def _make_branches(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    for id in facts["others"]:
        _keep(operation, shape, "sessions", "session", id)
        shape.ask("make_branch", id)
    return f"{', '.join(facts['others'])} marked as a branch of {facts['parent']}; {facts['kept']} goes on."


def _put_away(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    child, parent = facts["session"], facts["parent"]
    _keep(operation, shape, "sessions", "session", child)
    shape.ask("put_away", operation.now, child)
    if facts["others"]:
        shape.ask("detach", child)
        return f"{child} is put away; {parent} goes on in the continuation that has messages."
    _keep(operation, shape, "sessions", "session", parent)
    shape.ask("reopen", parent)
    return f"{child} is put away, and {parent} is open again."


def _drop_lock(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    for id, holder, since, until in shape.ask("locks", table="compression_locks").fetchall():
        if id == facts["session"]:
            operation.keep(
                "compression_locks",
                {"session_id": id, "holder": holder, "acquired_at": since, "expires_at": until},
            )
    shape.ask("drop_lock", facts["session"])
    return f"The lock of {facts['session']} is removed."


def _send_on(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    if facts["table"] == "telegram_dm_topic_bindings":
        operation.keep(facts["table"], {"rowid": facts["row"], "session_id": facts["session"]})
        shape.ask("put_binding", facts["to"], facts["row"])
        return f"The topic goes to {facts['to']}."
    for rowid, scope, key, entry in shape.ask("routes", table="gateway_routing").fetchall():
        if rowid == facts["row"]:
            operation.keep(facts["table"], {"scope": scope, "session_key": key, "entry_json": entry})
            changed = {**parsed_object(entry), "session_id": facts["to"]}
            shape.ask("put_route", json.dumps(changed), rowid)
    return f"The chat goes to {facts['to']}."


def _move_goal(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    old, new = f"goal:{facts['session']}", f"goal:{facts['to']}"
    value = shape.one("goal", old)
    operation.keep("state_meta", {"key": old, "value": value})
    goal = parsed_object(value)
    moved = shape.one("goal", new) is None
    if moved:
        shape.ask("put_goal", new, json.dumps(goal, ensure_ascii=False))
    shape.ask("put_goal", old, json.dumps({**goal, "status": "cleared"}, ensure_ascii=False))
    return f"The goal of {facts['session']} {'goes on in ' + facts['to'] if moved else 'is closed'}."


def _carry_over(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    """Adds copies behind the last message of a session, as Hermes does with a tail that it carries over."""
    for id in facts["messages"]:
        shape.ask("copy_out", id)
        shape.ask("change_copy", facts["into"])
        if shape.archives:
            shape.ask("enliven_copy")
        shape.ask("copy_in")
        shape.ask("copy_end")
    _recount(shape, facts["into"])
    return f"{count_of(facts['messages'], 'message')} put back at the end of {facts['into']}."


def _carry_late(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    done = _carry_over(operation, shape, facts)
    _archive(operation, shape, facts["session"], facts["messages"])
    return done


def _archive(operation: Operation, shape: Schema, session: str, ids: Iterable[int]) -> None:
    for id in ids:
        _keep(operation, shape, "messages", "whole_message", id)
        shape.ask("archive", id)
    _recount(shape, session)


def _archive_copies(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    messages = MessageScan()
    for found in rows_of(shape, numbers_of(shape, facts["session"])):
        messages.add(found)
    _archive(operation, shape, facts["session"], messages.copies)
    return f"{len(messages.copies):,} copies in {facts['session']} are archived."


def _archive_doubles(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    ids = [row.id for row in rows_of(shape, facts["messages"]) if row.live]
    if not ids:
        return ""
    _archive(operation, shape, facts["session"], ids)
    return f"{len(ids):,} copies in {facts['session']} are archived."


def _archive_result(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    _archive(operation, shape, facts["session"], [facts["message"]])
    return f"Message {facts['message']} of {facts['session']} is archived."


def _archive_summaries(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    _archive(operation, shape, facts["session"], facts["messages"][:-1])
    return f"One summary of {facts['session']} is live, the newest."


def _set_count(operation: Operation, shape: Schema, facts: Mapping[str, Json]) -> str:
    _keep(operation, shape, "sessions", "session", facts["session"])
    _recount(shape, facts["session"])
    return f"The counts of {facts['session']} are right."


def _recount(shape: Schema, session: str) -> None:
    if not shape.has("sessions", "message_count"):
        return
    live = shape.one("live_counts", session)
    if shape.has("sessions", "tool_call_count"):
        calls = sum(count_calls(made) for (made,) in shape.ask("live_calls", session))
        shape.ask("put_counts", live, calls, session)
    else:
        shape.ask("put_count", live, session)


REPAIRS: Mapping[str, Callable[[Operation, Schema, Mapping[str, Json]], str]] = {
    "cycle": _break_cycle,
    "ended-without-continuation": _reopen,
    "fork": _make_branches,
    "empty-continuation": _put_away,
    "stale-lock": _drop_lock,
    "route-to-ended-session": _send_on,
    "goal-on-ended-session": _move_goal,
    "swallowed-tail": _carry_over,
    "written-after-end": _carry_late,
    "duplicated-rows": _archive_copies,
    "written-twice": _archive_doubles,
    "result-without-call": _archive_result,
    "several-summaries": _archive_summaries,
    "wrong-count": _set_count,
}
