"""The opencode.db of OpenCode: what goes wrong in it, and how it is repaired.

A compaction is a user's message with a part of type `compaction`, the marker, and an answer to it that says `summary`.
It is in force once the summary has finished without an error. A marker that is newer than every finished answer is
taken up at the next prompt, whoever's it is: the summary is then filed as the answer to that prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apsw

from onefold.foreign.column_values import number, parsed_object, readable, statements, text
from onefold.foreign.findings import ForeignFinding, Progress, Severity
from onefold.foreign.readonly import tables
from onefold.foreign.repair import Operation, RepairAborted
from onefold.model import Json

name = "OpenCode"

_RUN = 3
"""So many compactions in a row, with nothing in between, did not help."""
_NEEDED = {
    "session": {"id"},
    "message": {"id", "session_id", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}


@dataclass(frozen=True, slots=True)
class OpenCodeMessage:
    """One message, as far as compactions go."""

    id: str
    role: str
    created: float
    parent: str | None
    summary: bool
    finished: bool
    failed: bool
    completed: bool

    @property
    def place(self) -> tuple[float, str]:
        return self.created, self.id

    @property
    def in_force(self) -> bool:
        return self.summary and self.finished and not self.failed


@dataclass(frozen=True, slots=True)
class Marker:
    """The part that asks for a compaction."""

    part: str
    message: str
    tail: str | None
    """The first message that is kept word for word."""


def recognises(connection: apsw.Connection) -> str | None:
    """An OpenCode store has sessions, messages and parts of this shape."""
    shape = tables(connection)
    if not all(table in shape and columns <= shape[table] for table, columns in _NEEDED.items()):
        return None
    if "project_id" not in shape["session"]:
        return None
    found = connection.execute("select max(version) from session").fetchone() if "version" in shape["session"] else None
    return f"version {found[0]}" if found and found[0] else "no session yet"


@readable
def examine(connection: apsw.Connection, *, now: float, progress: Progress) -> Iterator[ForeignFinding]:
    markers = find_markers(connection)
    told = [text(id) for (id,) in _ask(connection, "sessions_with_summaries")]
    sessions = sorted({*markers, *(id for id in told if id is not None)})
    steps = len(sessions) + 3
    progress(1, steps)
    for done, session in enumerate(sessions, 2):
        yield from _Session(connection, session, markers.get(session, {})).findings()
        progress(done, steps)
    yield from _without_parts(connection)
    progress(steps - 1, steps)
    yield from _logs(connection)
    progress(steps, steps)


def repair(operation: Operation, finding: ForeignFinding) -> str:
    return _REPAIRS[finding.kind](operation, finding.facts)


def _ask(connection: apsw.Connection, query: str, *bindings: Json) -> apsw.Cursor:
    return connection.execute(statements("opencode/queries.sql")[query], bindings)


def find_markers(connection: apsw.Connection) -> dict[str, dict[str, Marker]]:
    """By session and by message."""
    found: dict[str, dict[str, Marker]] = {}
    for part, message, session, data in _ask(connection, "parts_like_markers"):
        value = parsed_object(data)
        if value.get("type") == "compaction" and all(isinstance(id, str) for id in (part, message, session)):
            found.setdefault(session, {})[message] = Marker(part, message, text(value.get("tail_start_id")))
    return found


def as_message(id: str, data: object) -> OpenCodeMessage:
    value = parsed_object(data)
    time = value.get("time")
    times = time if isinstance(time, dict) else {}
    return OpenCodeMessage(
        id=id,
        role=str(value.get("role")),
        created=number(times.get("created")) or 0.0,
        parent=text(value.get("parentID")),
        summary=value.get("summary") is True,
        finished=bool(value.get("finish")),
        failed=bool(value.get("error")),
        completed=times.get("completed") is not None,
    )


# ---------------------------------------------------------------------- one session


class _Session:
    """A session with compactions in it."""

    def __init__(self, connection: apsw.Connection, id: str, markers: Mapping[str, Marker]) -> None:
        self.connection = connection
        self.id = id
        found = (as_message(id, data) for id, data in _ask(connection, "messages", id) if isinstance(id, str))
        self.messages = sorted(found, key=lambda m: m.place)
        self.by_id = {m.id: m for m in self.messages}
        self.markers = {id: marker for id, marker in markers.items() if id in self.by_id}
        self.summaries = [m for m in self.messages if m.role == "assistant" and m.summary]
        self.newest_finished = max(
            (m.place for m in self.messages if m.role == "assistant" and m.finished), default=None
        )

    def findings(self) -> Iterator[ForeignFinding]:
        usable = {m.id for m in self.summaries if m.in_force and self._says_something(m)}
        strays = [m for m in self.summaries if m.parent not in self.markers]
        owners = {m.id: self._owner(m, usable) for m in strays if m.id in usable}
        owned = {marker for marker in owners.values() if marker is not None}
        for stray in strays:
            yield self._stray(stray, stray.id in usable, owners.get(stray.id))
        for id in sorted(self.markers, key=lambda id: self.by_id[id].place):
            if id not in owned:
                yield from self._of_marker(self.markers[id], usable)
        yield from self._runs()

    def _of_marker(self, marker: Marker, usable: set[str]) -> Iterator[ForeignFinding]:
        made = [m for m in self.summaries if m.parent == marker.message]
        good = [m for m in made if m.id in usable]
        if len(good) > 1:
            yield self._several(marker, good)
        if good:
            yield from self._tail(marker)
            return
        for summary in made:
            yield self._bad(marker, summary)
        if not any(m.in_force for m in made):
            yield self._without_summary(marker, made)

    def _says_something(self, message: OpenCodeMessage) -> bool:
        return any(bool(said.strip()) for said in self._texts(message.id))

    def _works(self, message: OpenCodeMessage) -> bool:
        parts = (parsed_object(data) for (data,) in _ask(self.connection, "part_data", message.id))
        return any(part.get("type") == "tool" for part in parts)

    def _texts(self, message: str, *, synthetic: bool = True) -> Iterator[str]:
        for (data,) in _ask(self.connection, "part_data", message):
            part = parsed_object(data)
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                if synthetic or not (part.get("synthetic") or part.get("ignored")):
                    yield part["text"]
            elif not synthetic and part.get("type") in ("file", "agent", "subtask"):
                yield str(part.get("url") or part.get("name") or part.get("prompt"))

    def _owner(self, stray: OpenCodeMessage, usable: set[str]) -> str | None:
        """The marker that a summary under a wrong parent was made for: the one that was taken up for it."""
        taken = {m.parent for m in self.summaries if m.id in usable}
        for message in reversed([m for m in self.messages if m.place < stray.place]):
            if message.id in self.markers:
                return None if message.id in taken else message.id
            if message.role == "assistant" and message.finished:
                return None
        return None

    def _is_armed(self, marker: Marker) -> bool:
        return self.newest_finished is None or self.newest_finished < self.by_id[marker.message].place

    def _finding(
        self,
        kind: str,
        message: str,
        *,
        wrong: str,
        means: str,
        remedy: str,
        facts: Mapping[str, Json],
        severity: Severity = "harm",
        repairable: bool = True,
    ) -> ForeignFinding:
        where = f"session {self.id}, message {message}"
        known = {"session": self.id, **facts}
        return ForeignFinding(kind, message, where, wrong, means, remedy, severity, repairable, facts=known)

    def _without_summary(self, marker: Marker, made: Sequence[OpenCodeMessage]) -> ForeignFinding:
        facts = {"marker": marker.message, "attempts": [m.id for m in made]}
        taken_out = (
            "The marker and what was begun of its summary are taken out and kept aside; compact again if you like."
        )
        if self._is_armed(marker):
            return self._finding(
                "armed-marker",
                marker.message,
                wrong="a compaction was asked for and has no summary, and nothing was answered since",
                means="It is armed: the next prompt is not answered, but sets off the compaction and gets its summary.",
                remedy=taken_out,
                facts=facts,
            )
        return self._finding(
            "stale-marker",
            marker.message,
            wrong="a compaction was asked for and has no summary; the conversation went on without it",
            means='It sets nothing off now. Where it is in the context, the agent reads "What did we do so far?".',
            remedy=taken_out,
            facts=facts,
            severity="risk",
        )

    def _bad(self, marker: Marker, summary: OpenCodeMessage) -> ForeignFinding:
        facts = {"marker": marker.message, "attempts": [summary.id]}
        if summary.in_force:
            return self._finding(
                "empty-summary",
                summary.id,
                wrong="it is a summary that says nothing, and it counts",
                means="Everything before it is out of the agent's context, and nothing stands for it.",
                remedy="The summary and its marker are taken out and kept aside: all that was said is in the context.",
                facts=facts,
            )
        kind, wrong = ("failed-summary", "its summary failed") if summary.failed else (
            "unfinished-summary", "its summary was begun and never finished"
        )  # fmt: skip
        return self._finding(
            kind,
            summary.id,
            wrong=wrong,
            means="The compaction is not in force: the context is as long as before.",
            remedy="The summary and its marker are taken out and kept aside; compact again if you like.",
            facts=facts,
            severity="risk",
        )

    def _several(self, marker: Marker, good: Sequence[OpenCodeMessage]) -> ForeignFinding:
        return self._finding(
            "several-summaries",
            marker.message,
            wrong=f"{len(good)} summaries were made for one compaction",
            means="Each was paid for, and the agent reads all of them.",
            remedy="The newest stays; the others are taken out and kept aside.",
            facts={"marker": marker.message, "kept": good[-1].id, "others": [m.id for m in good[:-1]]},
            severity="risk",
        )

    def _stray(self, summary: OpenCodeMessage, usable: bool, owner: str | None) -> ForeignFinding:
        prompt = self.by_id.get(summary.parent or "")
        under = "a prompt" if prompt is not None else "a message that is not there"
        facts = {"summary": summary.id, "parent": summary.parent, "to": owner}
        means = "The prompt was never answered, and the compaction is not in force, though it was paid for."
        if usable and owner is None:
            return self._finding(
                "summary-under-wrong-parent",
                summary.id,
                wrong=f"a summary is filed as the answer to {under}",
                means=means,
                remedy="Report only: no compaction is left that it could belong to. Ask again what was not answered.",
                facts=facts,
                repairable=False,
            )
        return self._finding(
            "summary-under-wrong-parent",
            summary.id,
            wrong=f"a summary is filed as the answer to {under} and not to its own marker",
            means=means,
            remedy=f"It is filed under its marker, {owner}, and so it is in force. Ask again what was not answered."
            if owner is not None
            else "It is of no use, for it did not finish or says nothing; it is taken out and kept aside.",
            facts=facts,
        )

    def _tail(self, marker: Marker) -> Iterator[ForeignFinding]:
        if marker.tail is None:
            return
        here = self.by_id.get(marker.tail)
        place = self.by_id[marker.message].place
        if here is not None and here.place <= place:
            return
        after = [m.id for m in self.messages if marker.tail < m.id and m.place < place]
        kept = f"from {after[0]} on" if after else "none"
        yield self._finding(
            "dangling-tail",
            marker.message,
            wrong=f"it keeps the messages from {marker.tail} on, which is {'newer' if here else 'not there'}",
            means="OpenCode looks for it to the very beginning: the whole history is in the context again.",
            remedy="Report only: it cannot be told which messages were to be kept. Compact again."
            if here
            else f"It keeps what is left of them: {kept}.",
            facts={"part": marker.part, "tail": marker.tail, "to": after[0] if after else None},
            repairable=here is None,
        )

    def _runs(self) -> Iterator[ForeignFinding]:
        runs = [run for run in self._rows_of_markers() if len(run) >= _RUN]
        if runs:
            longest = max(runs, key=len)
            yield ForeignFinding(
                kind="compaction-run",
                key=self.id,
                where=f"session {self.id}, from message {longest[0]} on",
                wrong=f"{len(longest)} compactions follow one another, with no turn of the user and no work of the "
                "agent in between",
                means="Each was paid for and none helped: the context was too long again at once. It may start again.",
                remedy="Report only: it is past. Begin a new session, or take out what is too large, such as files.",
                severity="risk",
                facts={"session": self.id, "first": longest[0], "last": longest[-1], "count": len(longest)},
            )

    def _rows_of_markers(self) -> Iterator[list[str]]:
        """Markers that stand one after the other. A prompt that OpenCode itself repeats or makes up is not a turn of
        the user; an answer to such a one that calls no tool says that there is nothing to do, and fills no context."""
        if len(self.markers) < _RUN:
            return
        run: list[str] = []
        said: list[str] = []
        made_up: set[str] = set()
        for message in self.messages:
            if message.id in self.markers:
                run.append(message.id)
                continue
            words = [*self._texts(message.id, synthetic=False)] if message.role == "user" else []
            asked = bool(words) and not (run and words == said)
            if message.role == "user" and not words:
                made_up.add(message.id)
            answered = message.role == "assistant" and message.finished and not message.summary
            answered = answered and (message.parent not in made_up or self._works(message))
            if asked:
                said = words
            if asked or answered:
                yield run
                run = []
        yield run


# ---------------------------------------------------------------------- messages and events


def _without_parts(connection: apsw.Connection) -> Iterator[ForeignFinding]:
    for id, session, data in _ask(connection, "without_parts"):
        if not isinstance(id, str) or not isinstance(session, str):
            continue
        message = as_message(id, data)
        where = f"session {session}, message {id}"
        facts = {"session": session, "message": id}
        if message.role == "user":
            answered = _ask(connection, "answered", session, f'"{id}"', id).fetchone() is not None
            yield ForeignFinding(
                kind="message-without-parts",
                key=id,
                where=where,
                wrong="it is a user's message with nothing in it",
                means="What was typed was lost before it was written down.",
                remedy="Report only: an answer belongs to it. Ask again."
                if answered
                else "The empty message is taken out and kept aside. Ask again.",
                severity="risk",
                repairable=not answered,
                facts=facts,
            )
        elif message.finished and not message.failed:
            yield ForeignFinding(
                kind="message-without-parts",
                key=id,
                where=where,
                wrong="it is a finished answer with nothing in it",
                means="What was answered is lost.",
                remedy="Report only: it cannot be made again. Ask again.",
                facts=facts,
            )
        elif not (message.completed or message.failed or message.summary):
            yield ForeignFinding(
                kind="answer-cut-off",
                key=id,
                where=where,
                wrong="an answer was begun and cut off before its first word",
                means="The prompt before it was not answered.",
                remedy="Report only: nothing is lost, and OpenCode passes over it. Ask again.",
                severity="note",
                facts=facts,
            )


def _logs(connection: apsw.Connection) -> Iterator[ForeignFinding]:
    shape = tables(connection)
    if not {"aggregate_id", "seq"} <= shape.get("event", frozenset()) & shape.get("event_sequence", frozenset()):
        return
    for session, first, last, count, counter in _ask(connection, "logs"):
        if not isinstance(session, str) or not isinstance(first, int) or not isinstance(last, int):
            continue
        where = f"session {session}"
        if isinstance(counter, int) and counter < last:
            yield ForeignFinding(
                kind="event-counter-behind",
                key=session,
                where=where,
                wrong=f"its newest event is number {last}, and the counter stands at {counter}",
                means="The next change gets a number that is taken: it is rejected, and so is every other one.",
                remedy=f"The counter is set to {last}.",
                repairable=True,
                facts={"session": session, "counter": counter, "last": last},
            )
        missing = last - first + 1 - count + (counter - last if isinstance(counter, int) and counter > last else 0)
        if missing or first > 0:
            hole = _ask(connection, "gap", session).fetchone()
            after = 0 if first > 0 else hole[0] + 1 if hole else last + 1
            yield ForeignFinding(
                kind="event-gap",
                key=session,
                where=where,
                wrong=f"{missing + first:,} events are missing in its log, the first of them number {after}",
                means="Whoever follows the session by its log, another window or a copy, does not see all of it.",
                remedy="Report only: the messages are as they are, and what is missing cannot be made again.",
                severity="risk",
                facts={"session": session, "missing": missing + first, "first": after},
            )


# ---------------------------------------------------------------------- repairs


def _take_out(operation: Operation, message: str) -> bool:
    """Removes a message with its parts, and says so in the log, as OpenCode does."""
    found = _whole(operation, "message", message)
    if not found:
        return False
    operation.keep("message", found[0])
    for part in _whole(operation, "parts", message):
        operation.keep("part", part)
    _ask(operation.connection, "drop_parts", message)
    _ask(operation.connection, "drop_message", message)
    session = found[0]["session_id"]
    _log(operation, session, "message.removed.1", {"sessionID": session, "messageID": message})
    return True


def _whole(operation: Operation, query: str, id: str) -> list[dict[str, Json]]:
    cursor = _ask(operation.connection, query, id)
    rows = cursor.fetchall() if (names := _names(cursor)) else []
    return [dict(zip(names, row, strict=True)) for row in rows]


def _names(cursor: apsw.Cursor) -> list[str]:
    try:
        return [column[0] for column in cursor.get_description()]
    except apsw.ExecutionCompleteError:
        return []


def _log(operation: Operation, session: str, type: str, data: Mapping[str, Json]) -> None:
    shape = tables(operation.connection)
    if not {"id", "aggregate_id", "seq", "type", "data"} <= shape.get("event", frozenset()):
        return
    found = _ask(operation.connection, "counter", session).fetchone() if "event_sequence" in shape else None
    if found is None or not isinstance(found[0], int) or (found[1] or 0) > found[0]:
        return
    number = found[0] + 1
    moment = int(operation.now * 1000) * 0x1000 + number & (1 << 48) - 1
    rest = hashlib.blake2b(f"{session} {number}".encode(errors="replace"), digest_size=7).hexdigest()
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    _ask(operation.connection, "add_event", f"evt_{moment:012x}{rest}", session, number, type, body)
    _ask(operation.connection, "put_counter", number, session)


def _take_out_compaction(operation: Operation, facts: Mapping[str, Json]) -> str:
    marker = facts["marker"]
    made = [m.id for m in _Session(operation.connection, facts["session"], {}).summaries if m.parent == marker]
    if not any([*(_take_out(operation, id) for id in made), _take_out(operation, marker)]):
        return ""
    return f"The compaction {marker} is taken out{', with what was made of its summary' if made else ''}."


def _keep_newest(operation: Operation, facts: Mapping[str, Json]) -> str:
    gone = sum(_take_out(operation, id) for id in facts["others"])
    return f"Of {gone + 1} summaries one stays, {facts['kept']}." if gone else ""


def _file_right(operation: Operation, facts: Mapping[str, Json]) -> str:
    summary, owner = facts["summary"], facts["to"]
    if owner is None:
        return f"The summary {summary} is taken out." if _take_out(operation, summary) else ""
    found = _whole(operation, "message", summary)
    if not found or not _whole(operation, "message", owner):
        return ""
    operation.keep("message", found[0])
    data = {**parsed_object(found[0]["data"]), "parentID": owner}
    _put(operation, "put_message", data, summary)
    session = facts["session"]
    info = {**data, "id": summary, "sessionID": session}
    _log(operation, session, "message.updated.1", {"sessionID": session, "info": info})
    return f"The summary {summary} is filed under its marker {owner}."


def _repair_tail(operation: Operation, facts: Mapping[str, Json]) -> str:
    found = _whole(operation, "part", facts["part"])
    if not found:
        return ""
    operation.keep("part", found[0])
    data = {key: value for key, value in parsed_object(found[0]["data"]).items() if key != "tail_start_id"}
    if facts["to"] is not None:
        data["tail_start_id"] = facts["to"]
    _put(operation, "put_part", data, facts["part"])
    session = facts["session"]
    ids = {"id": facts["part"], "sessionID": session, "messageID": found[0]["message_id"]}
    moment = int(operation.now * 1000)
    _log(operation, session, "message.part.updated.1", {"sessionID": session, "part": {**data, **ids}, "time": moment})
    return f"The tail begins at {facts['to']}." if facts["to"] is not None else "Nothing is kept word for word."


def _put(operation: Operation, query: str, data: Mapping[str, Json], id: str) -> None:
    _ask(operation.connection, query, json.dumps(data, ensure_ascii=False, separators=(",", ":")), id)


def _take_out_empty(operation: Operation, facts: Mapping[str, Json]) -> str:
    return f"The empty message {facts['message']} is taken out." if _take_out(operation, facts["message"]) else ""


def _set_counter(operation: Operation, facts: Mapping[str, Json]) -> str:
    found = _ask(operation.connection, "counter", facts["session"]).fetchone()
    if found is None:
        raise RepairAborted(f"session {facts['session']} has no counter any more. Nothing was written")
    if found[0] >= found[1]:
        return ""
    operation.keep("event_sequence", {"aggregate_id": facts["session"], "seq": found[0]})
    _ask(operation.connection, "put_counter", found[1], facts["session"])
    return f"The counter of {facts['session']} stands at {found[1]}."


_REPAIRS: Mapping[str, Callable[[Operation, Mapping[str, Json]], str]] = {
    "armed-marker": _take_out_compaction,
    "stale-marker": _take_out_compaction,
    "empty-summary": _take_out_compaction,
    "failed-summary": _take_out_compaction,
    "unfinished-summary": _take_out_compaction,
    "several-summaries": _keep_newest,
    "summary-under-wrong-parent": _file_right,
    "dangling-tail": _repair_tail,
    "message-without-parts": _take_out_empty,
    "event-counter-behind": _set_counter,
}
