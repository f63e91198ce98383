"""The conversations of an OpenCode store.

A message is a row with parts; as a chat message it is one, or several where tools ran: the answer with its calls, and a
result for each. A compaction is in force if its marker has a summary that finished; then the summary is a boundary, and
neither it nor the marker is a message. What a chat message cannot say stands in the field `opencode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import apsw

from onefold.foreign.column_values import fitted, parsed_object, statements, text
from onefold.foreign.importers.conversation import (
    BranchPoint,
    CompactionStep,
    Conversation,
    MessageStep,
    RewindStep,
    SkippedStep,
    Step,
    key_of,
    moment,
)
from onefold.foreign.opencode.checks import Marker, OpenCodeMessage, as_message, find_markers
from onefold.foreign.readonly import tables
from onefold.messages import encode
from onefold.messages.codecs import OPENAI_CHAT
from onefold.model import Json

program = "opencode"

_NO_WORDS = ("text/plain", "application/x-directory")
"""Files that OpenCode has written into the prompt as text, next to the part that names them."""
_INTERRUPTED = "[Tool execution was interrupted]"


def conversations(connection: apsw.Connection) -> Iterator[Conversation]:
    """Every session, parents before those of their subagents."""
    store = _Store(connection)
    done: set[str] = set()
    for session in store.parents:
        line: list[str] = []
        before: str | None = session
        while before is not None and before in store.parents and before not in done and before not in line:
            line.append(before)
            before = store.parents[before]
        done |= {*line}
        yield from (store.conversation(id) for id in reversed(line))


class _Store:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        columns = tables(connection)["session"]
        order = {"time_created": "id"}
        found = connection.execute(fitted(statements("importers/opencode.sql")["sessions"], columns, order)).fetchall()
        self.parents = {id: text(parent) for id, parent, _ in found if isinstance(id, str)}
        self.reverts = {id: text(parsed_object(revert).get("messageID")) for id, _, revert in found}
        self.markers = find_markers(connection)
        self.sizes = dict(self.ask("sizes"))

    def ask(self, query: str, *bindings: Json) -> apsw.Cursor:
        return self.connection.execute(statements("importers/opencode.sql")[query], bindings)

    def conversation(self, id: str) -> Conversation:
        parent = self.parents[id]
        origin = None
        if parent is not None:
            origin = BranchPoint(parent, "subagent", partial(self._before, parent, id))
        return Conversation(id, (), int(self.sizes.get(id, 0)), partial(self._tell, id), origin)

    def messages(self, session: str) -> list[OpenCodeMessage]:
        found = (as_message(id, data) for id, data in self.ask("lights", session) if isinstance(id, str))
        return sorted(found, key=lambda m: m.place)

    def _before(self, parent: str, child: str) -> Iterator[str]:
        """What was said in a session before the call that began another one; nothing if there is no such call."""
        calls = {id for (id,) in self.ask("spawned", parent, f'"{child}"')}
        messages = self.messages(parent)
        place = next((i for i, m in enumerate(messages) if m.id in calls), 0)
        return (key_of(program, m.id) for m in reversed(messages[:place]))

    def _tell(self, session: str, forked: bool) -> Iterator[Step]:
        messages = self.messages(session)
        if forked and messages:
            yield RewindStep(None, _seconds(messages[0]))
        yield from _StepReader(self, session, messages, self.markers.get(session, {})).steps()


class _StepReader:
    """One session."""

    def __init__(
        self, store: _Store, session: str, messages: list[OpenCodeMessage], markers: Mapping[str, Marker]
    ) -> None:
        self._store = store
        self._messages = messages
        self._by_id = {m.id: m for m in messages}
        self._markers = {id: marker for id, marker in markers.items() if id in self._by_id}
        self._revert = store.reverts.get(session)
        self._told: list[OpenCodeMessage] = []
        self._silent: list[str] = []

    def steps(self) -> Iterator[Step]:
        done = {m.parent for m in self._messages if m.in_force and m.parent in self._markers}
        for message in self._messages:
            if message.summary and message.role == "assistant" and message.parent in self._markers:
                yield from self._summary(message)
            elif message is self._messages[-1] and _under_way(message):
                yield SkippedStep(
                    f"the answer {message.id} is not finished; it is imported once it is, or something follows"
                )
            else:
                yield from self._message(message)
            if message.id in self._markers and message.id not in done:
                yield SkippedStep(f"the compaction {message.id} has no summary in force, so it moves no boundary")
        if self._silent:
            yield SkippedStep(f"{len(self._silent):,} messages in which nothing is said, {self._silent[0]} first")
        reverted = self._by_id.get(self._revert or "")
        if reverted is not None:
            before = [m for m in self._told if m.place < reverted.place]
            yield RewindStep(key_of(program, before[-1].id) if before else None, None)

    def _message(self, message: OpenCodeMessage) -> Iterator[Step]:
        data = self._data(message)
        parts = self._parts(message)
        if not data:
            yield SkippedStep(f"message {message.id} cannot be read", lost=True)
            return
        bodies = [*(_user(parts) if message.role == "user" else _answer(parts))]
        if not bodies:
            if message.id not in self._markers:
                self._silent.append(message.id)
            return
        first = {"role": message.role, **bodies[0], program: {"info": data, "parts": [_rest(p) for p in parts]}}
        self._told.append(message)
        yield MessageStep(key_of(program, message.id), (first, *bodies[1:]), OPENAI_CHAT, _seconds(message))

    def _summary(self, message: OpenCodeMessage) -> Iterator[Step]:
        marker = self._markers[message.parent or ""]
        if not message.in_force:
            return  # its marker is told of
        first = None
        if marker.tail is not None:
            tail = self._by_id.get(marker.tail)
            if tail is None or tail.place > self._by_id[marker.message].place:
                yield SkippedStep(
                    f"the compaction {marker.message} keeps messages from {marker.tail} on, which is not there; what "
                    "was said before it stays in the context"
                )
                return
            first = next((m for m in self._told if m.place >= tail.place), None)
        words = "\n\n".join(p["text"] for p in self._parts(message) if _is_text(p))
        asked = next((p for p in self._parts(self._by_id[marker.message]) if p.get("type") == "compaction"), {})
        yield CompactionStep(
            key=key_of(program, message.id),
            summary=words,
            first=key_of(program, first.id) if first is not None else None,
            at=_seconds(message),
            trigger="overflow" if asked.get("overflow") else "limit" if asked.get("auto") else "manual",
        )

    def _data(self, message: OpenCodeMessage) -> dict[str, Json]:
        found = self._store.ask("data", message.id).fetchone()
        return parsed_object(found[0]) if found else {}

    def _parts(self, message: OpenCodeMessage) -> list[dict[str, Json]]:
        return [{**parsed_object(data), "id": id} for id, data in self._store.ask("parts", message.id)]


def _under_way(message: OpenCodeMessage) -> bool:
    return message.role == "assistant" and not (message.completed or message.failed or message.finished)


def _seconds(message: OpenCodeMessage) -> float | None:
    return moment(message.created / 1000)


# ---------------------------------------------------------------------- parts as chat messages


def _user(parts: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    said: list[Json] = []
    for part in parts:
        if _is_text(part) and not part.get("ignored"):
            said.append({"type": "text", "text": part["text"]})
        elif _is_file(part) and str(part.get("mime")).startswith("image/"):
            said.append({"type": "image_url", "image_url": {"url": part["url"]}})
        elif _is_file(part):
            said.append({"type": "file", "file": {"filename": part.get("filename"), "file_data": part["url"]}})
    if said:
        yield {"content": _content(said)}


def _answer(parts: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    """What was said up to and with some calls, then their results, and so on."""
    said: list[Json] = []
    calls: list[dict[str, Json]] = []
    for part in (*parts, {"type": "end"}):
        if calls and (_is_text(part) or part["type"] == "end"):
            yield {"role": "assistant", "content": _content(said), "tool_calls": [_call(c) for c in calls]}
            yield from (_result(c) for c in calls)
            said, calls = [], []
        if _is_text(part) and part["text"]:
            said.append({"type": "text", "text": part["text"]})
        elif _is_call(part):
            calls.append(part)
    if said:
        yield {"role": "assistant", "content": _content(said)}


def _content(said: list[Json]) -> Json:
    if len(said) == 1 and said[0]["type"] == "text":
        return said[0]["text"]
    return said or None


def _call(part: dict[str, Json]) -> Json:
    called = {"name": str(part.get("tool")), "arguments": encode(_state(part).get("input", {}))}
    return {"id": part["callID"], "type": "function", "function": called}


def _result(part: dict[str, Json]) -> dict[str, Json]:
    state = _state(part)
    said = {"completed": state.get("output"), "error": state.get("error")}.get(str(state.get("status")), _INTERRUPTED)
    return {"role": "tool", "tool_call_id": part["callID"], "content": said if isinstance(said, str) else encode(said)}


def _rest(part: dict[str, Json]) -> dict[str, Json]:
    """A part without what the chat messages say of it."""
    if _is_text(part) and part["text"] and not part.get("ignored"):
        return {name: value for name, value in part.items() if name != "text"}
    if _is_file(part):
        return {name: value for name, value in part.items() if name != "url"}
    if _is_call(part):
        told = {"input", "output" if _state(part).get("status") == "completed" else "error"}
        return part | {"state": {name: value for name, value in _state(part).items() if name not in told}}
    return part


def _is_text(part: Mapping[str, Json]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _is_file(part: Mapping[str, Json]) -> bool:
    return part.get("type") == "file" and isinstance(part.get("url"), str) and part.get("mime") not in _NO_WORDS


def _is_call(part: Mapping[str, Json]) -> bool:
    return part.get("type") == "tool" and isinstance(part.get("callID"), str)


def _state(part: Mapping[str, Json]) -> dict[str, Json]:
    state = part.get("state")
    return state if isinstance(state, dict) else {}
