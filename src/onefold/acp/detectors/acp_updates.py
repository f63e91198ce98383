"""The protocol's own reports, `compaction_update` and `compaction_summary_chunk`. Every agent is checked for these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import (
    LONGEST_SUMMARY,
    ChunkedText,
    Observation,
    What,
    mapping,
    short,
    text_of,
    word,
)
from onefold.model import Json

COMPACTION_CAPABILITY: Mapping[str, Json] = {"session": {"compaction": {}}}
"""Part of `clientCapabilities`: an agent sends these updates only to a client that announced it."""

_SAID: Mapping[str, What] = {
    "in_progress": "started",
    "completed": "done",
    "failed": "failed",
    "cancelled": "failed",
}
_STATUS = {"completed": "completed", "failed": "failed", "cancelled": "failed"}
"""A tool call cannot be cancelled."""
_TITLES = {
    "in_progress": "Compacting context",
    "completed": "Context compacted",
    "failed": "Context was not compacted",
}


@dataclass(frozen=True, slots=True)
class SummaryStream:
    """The summary that is streamed now."""

    act: str | None = None
    text: ChunkedText = field(default_factory=ChunkedText)


def step(state: SummaryStream, moment: ObservedEvent) -> tuple[SummaryStream, tuple[Observation, ...]]:
    update = moment.update
    act = word(update.get("compactionId"))
    match update.get("sessionUpdate"):
        case "compaction_summary_chunk":
            said = state.text if act == state.act else ChunkedText()
            return SummaryStream(act, said.add(text_of(update.get("content")))), ()
        case "compaction_update":
            status = update.get("status")
            what = _SAID.get(status) if isinstance(status, str) else None
            if what is None:
                return state, ()
            streamed = str(state.text) if act == state.act else ""
            seen = Observation(
                what,
                "acp",
                f"compaction_update {status}",
                act=act,
                summary=(text_of(update.get("summary"))[:LONGEST_SUMMARY] or streamed or None)
                if what == "done"
                else None,
                automatic=not moment.now.asked if what == "started" and moment.now.running else None,
                cause=_cause(update, str(status)) if what == "failed" else None,
            )
            return (state if what == "started" else SummaryStream()), (seen,)
        case _:
            return state, ()


def _cause(update: Mapping[str, Json], status: str) -> str:
    error = word(update.get("error"))
    return f"the agent says: {short(error)}" if error is not None else f"the agent says it was {status}"


def as_tool_call(
    update: Mapping[str, Json], *, before: str | None = None, shown: bool | None = None
) -> dict[str, Json] | None:
    """The same as an update of a tool call, for a client that knows nothing of compactions; None if there is nothing.

    A tool call's content is replaced whole, so `before` is what chunks of this compaction have told so far; without it
    a chunk is not shown, and the summary comes at the end. `shown` says whether the client has this call already;
    without it, one that begins is new, and any other is not.
    """
    what, act = update.get("sessionUpdate"), word(update.get("compactionId"))
    chunk = what == "compaction_summary_chunk"
    if act is None or not (chunk or what == "compaction_update") or (chunk and before is None):
        return None
    status = "in_progress" if chunk else _STATUS.get(str(update.get("status")), "in_progress")
    known = shown if shown is not None else chunk or status != "in_progress"
    call: dict[str, Json] = {
        "sessionUpdate": "tool_call_update" if known else "tool_call",
        "toolCallId": f"compaction-{act}",
        "title": _TITLES[status],
        "kind": "think",
        "status": status,
    }
    told = (before or "") + text_of(update.get("content")) if chunk else text_of(update.get("summary")) or before
    told = told or word(update.get("error"))
    if told:
        call["content"] = [{"type": "content", "content": {"type": "text", "text": told}}]
    if meta := mapping(update.get("_meta")):
        call["_meta"] = meta
    return call
