"""Assembles complete messages from an agent's updates: joins chunks, and merges the updates of a tool call into one
result.

The journal gets what was said; every single frame is kept apart (`frames`). Pure: what is not whole yet is only in
here, and can be folded again from the frame log after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from onefold.messages.json_size import weight
from onefold.model import Json

LONGEST = 1 << 20
"""Characters of one message; a longer one goes on in the next, so that nothing grows without bound."""
MOST_OPEN = 16 << 20
"""Bytes of what is known of calls that are not over. If it is more, all of it is said as it is."""

_CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_OVER = frozenset({"completed", "failed"})


class CompleteMessage(NamedTuple):
    """A message that is complete, and the frames it comes from."""

    body: dict[str, Json]
    first: int
    last: int


@dataclass(slots=True)
class _Chunks:
    kind: str
    message: Json
    first: int
    last: int
    blocks: list[dict[str, Json]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, block: dict[str, Json]) -> None:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            self.texts.append(text)
            self.size += len(text)
        else:
            self._settle()
            self.blocks.append(block)
            self.size += sum(len(v) for v in block.values() if isinstance(v, str))

    def _settle(self) -> None:
        if self.texts:
            self.blocks.append({"type": "text", "text": "".join(self.texts)})
            self.texts.clear()

    def whole(self) -> CompleteMessage | None:
        self._settle()
        said = [b for b in self.blocks if b.get("type") != "text" or b.get("text")]
        if not said:
            return None
        body: dict[str, Json] = {"sessionUpdate": self.kind, "content": said[0] if len(said) == 1 else said}
        if self.message is not None:
            body["messageId"] = self.message
        return CompleteMessage(body, self.first, self.last)


class MessageAssembler:
    """What an agent is saying now."""

    def __init__(self) -> None:
        self._glued: _Chunks | None = None
        self._calls: dict[str, tuple[dict[str, Json], int, int]] = {}
        """Updates of calls that are not over, and the frames of the first and the last."""
        self._weights: dict[str, int] = {}
        self._weight = 0
        """Of all of them together."""

    @property
    def since(self) -> int | None:
        """The first frame that is not in a whole message yet."""
        open = [first for _, first, _ in self._calls.values()]
        if self._glued is not None:
            open.append(self._glued.first)
        return min(open, default=None)

    def take(self, update: dict[str, Json], number: int) -> list[CompleteMessage]:
        """Takes one update in, and gives what is whole by it."""
        kind = update.get("sessionUpdate")
        if kind in _CHUNKS:
            return self._chunk(str(kind), update, number)
        if kind == "tool_call":
            return [*self._said(), *self._call(update, number), *self._relieve()]
        if kind == "tool_call_update":
            return [*self._progress(update, number), *self._relieve()]
        return []  # plans, modes, usage, commands: for clients, and in the frame log

    def flush(self) -> list[CompleteMessage]:
        """What was said until now, whole or not: a turn ends, or a boundary comes."""
        whole = self._said()
        for id, (held, first, last) in self._calls.items():
            if held:
                whole.append(
                    CompleteMessage({"sessionUpdate": "tool_call_update", "toolCallId": id, **held}, first, last)
                )
        self._calls.clear()
        self._weights.clear()
        self._weight = 0
        return whole

    def _weigh(self, id: str, weight: int) -> None:
        self._weight += weight - self._weights.pop(id, 0)
        if weight:
            self._weights[id] = weight

    def _relieve(self) -> list[CompleteMessage]:
        return self.flush() if self._weight > MOST_OPEN else []

    def _chunk(self, kind: str, update: dict[str, Json], number: int) -> list[CompleteMessage]:
        content = update.get("content")
        blocks = [b for b in (content if isinstance(content, list) else [content]) if isinstance(b, dict)]
        message = update.get("messageId")
        whole: list[CompleteMessage] = []
        glued = self._glued
        if glued is None or (glued.kind, glued.message) != (kind, message) or glued.size >= LONGEST:
            whole = self._said()
            glued = self._glued = _Chunks(kind, message, number, number)
        for block in blocks:
            glued.add(block)
        glued.last = number
        return whole

    def _said(self) -> list[CompleteMessage]:
        whole = self._glued.whole() if self._glued is not None else None
        self._glued = None
        return [whole] if whole is not None else []

    def _call(self, update: dict[str, Json], number: int) -> list[CompleteMessage]:
        id = update.get("toolCallId")
        if not isinstance(id, str):
            return []
        if not _is_over(update):
            self._calls[id] = {}, number, number
            self._weigh(id, weight(id))
        return [CompleteMessage(update, number, number)]

    def _progress(self, update: dict[str, Json], number: int) -> list[CompleteMessage]:
        """An update replaces what it names; what it leaves out stays. One message, when the call is over."""
        id = update.get("toolCallId")
        if not isinstance(id, str):
            return []
        # One that begins within what is being said counts from there, so that no message lies across `since`.
        held, first, _ = self._calls.pop(id, ({}, self._glued.first if self._glued is not None else number, number))
        held = held | {k: v for k, v in update.items() if k not in ("sessionUpdate", "toolCallId") and v is not None}
        self._weigh(id, 0)
        if _is_over(held):
            return [
                *self._said(),
                CompleteMessage({"sessionUpdate": "tool_call_update", "toolCallId": id, **held}, first, number),
            ]
        self._calls[id] = held, first, number
        self._weigh(id, weight(id) + weight(held))
        return []


def _is_over(call: dict[str, Json]) -> bool:
    status = call.get("status")
    return isinstance(status, str) and status in _OVER
