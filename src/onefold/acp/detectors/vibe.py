"""Mistral Vibe: a tool call that stands for a compaction. It is marked as one, unless a person typed the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import Observation, What, mapping, short, text_of, word
from onefold.model import Json

_SAID: Mapping[str, What] = {"pending": "started", "in_progress": "started", "completed": "done", "failed": "failed"}
_TITLE = "Compacting conversation history..."


@dataclass(frozen=True, slots=True)
class VibeState:
    typed: str | None = None
    """The call of a compaction that a person asked for."""


def step(state: VibeState, moment: ObservedEvent) -> tuple[VibeState, tuple[Observation, ...]]:
    update = moment.update
    call = word(update.get("toolCallId"))
    if call is None or update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
        return state, ()
    if mapping(update.get("_meta")).get("checkpoint_kind") == "compaction":
        return state, _seen("vibe.meta", call, update, _by_itself(update))
    if moment.now.asked and update.get("sessionUpdate") == "tool_call" and update.get("title") == _TITLE:
        state = VibeState(call)
    return state, _seen("vibe.tool", call, update, False) if call == state.typed else ()


def _seen(source: str, call: str, update: Mapping[str, Json], automatic: bool | None) -> tuple[Observation, ...]:
    status = update.get("status")
    what = _SAID.get(status) if isinstance(status, str) else None
    if what is None:
        return ()
    blocks = update.get("content")
    told = [mapping(b).get("content") for b in blocks] if isinstance(blocks, list) else []
    said = short(word(update.get("title")) or text_of(told))
    cause = f"the agent says: {short(text_of(told)) or said}" if what == "failed" else None
    return (Observation(what, source, f"tool call {status}: {said}", act=call, automatic=automatic, cause=cause),)


def _by_itself(update: Mapping[str, Json]) -> bool | None:
    trigger = mapping(update.get("rawInput")).get("trigger") or mapping(update.get("rawOutput")).get("trigger")
    return {"automatic": True, "manual": False}.get(trigger) if isinstance(trigger, str) else None
