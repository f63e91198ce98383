"""The unfinished tool calls of an agent, so that a permission request can show what it is about."""

from __future__ import annotations

from onefold.jsonrpc import Frame, text
from onefold.model import Json

MOST = 256
"""Calls that are known at the same time."""
MOST_BYTES = 16 << 20
"""And what is known of all of them together; the oldest go first."""

_KINDS = frozenset({"tool_call", "tool_call_update"})
_OVER = frozenset({"completed", "failed"})
_FIELDS = ("title", "kind", "status", "rawInput", "content", "locations")


class ToolCalls:
    """Those of a room, in memory, for as long as a turn lasts: the journal and the frame log have them anyway."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Json]] = {}
        self._sizes: dict[str, int] = {}

    def heard(self, update: dict[str, Json]) -> None:
        """The agent tells of a call."""
        id, kind, status = (update.get(name) for name in ("toolCallId", "sessionUpdate", "status"))
        if not isinstance(id, str) or not isinstance(kind, str) or kind not in _KINDS:
            return
        if isinstance(status, str) and status in _OVER:
            self._drop(id)
            return
        known = _joined(self._known.get(id, {}), update)
        self._drop(id)
        self._known[id], self._sizes[id] = known, len(text(Frame(known)))
        while len(self._known) > MOST or sum(self._sizes.values()) > MOST_BYTES:
            self._drop(next(iter(self._known)))

    def whole(self, params: dict[str, Json]) -> dict[str, Json]:
        """A question's parameters, with all that is known of the call that it is about."""
        call = params.get("toolCall")
        if not isinstance(call, dict) or (known := self._known.get(str(call.get("toolCallId")))) is None:
            return params
        return {**params, "toolCall": {**_joined(known, call), **_others(call)}}

    def forget(self) -> None:
        self._known.clear()
        self._sizes.clear()

    def _drop(self, id: str) -> None:
        self._known.pop(id, None)
        self._sizes.pop(id, None)


def _joined(known: dict[str, Json], update: dict[str, Json]) -> dict[str, Json]:
    """New values replace the earlier ones; what is not given stays."""
    return {**known, **{name: update[name] for name in _FIELDS if update.get(name) is not None}}


def _others(call: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in call.items() if name not in _FIELDS}
