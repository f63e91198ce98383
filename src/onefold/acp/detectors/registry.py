"""Which agent it is, which detector observes it, and which command makes it compact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal, TypeAlias

from onefold.acp.detectors import acp_updates, hermes, heuristics, qwen, vibe
from onefold.acp.detectors.conversation_state import ConversationState, ObservedEvent, follow, is_other
from onefold.acp.detectors.observation import Event, Observation, mapping, word
from onefold.acp.line_reader import StderrLine
from onefold.model import Json

Family: TypeAlias = Literal["hermes", "qwen", "vibe", "opencode", "generic"]

_NAMES: Mapping[str, Family] = {"hermes": "hermes", "qwen": "qwen", "vibe": "vibe", "opencode": "opencode"}
_COMMANDS: Mapping[Family, str] = {
    "hermes": "/compact",
    "qwen": "/compress",
    "vibe": "/compact",
    "opencode": "/compact",
}

_State: TypeAlias = hermes.HermesState | qwen.QwenState | vibe.VibeState | heuristics.HeuristicState
_Step: TypeAlias = Callable[..., tuple[_State, tuple[Observation, ...]]]

_FAMILIES: Mapping[Family, tuple[_Step, _State]] = {
    "hermes": (hermes.step, hermes.HermesState()),
    "qwen": (qwen.step, qwen.QwenState()),
    "vibe": (vibe.step, vibe.VibeState()),
    "opencode": (heuristics.opencode, heuristics.HeuristicState()),
    "generic": (heuristics.generic, heuristics.HeuristicState()),
}


def family(initialize: Mapping[str, Json], command: Sequence[str]) -> Family:
    """By what the agent calls itself in its answer to `initialize`, else by the command that starts it."""
    info = mapping(initialize.get("agentInfo"))
    names = [n for n in (word(info.get("name")), word(info.get("title"))) if n is not None]
    for name in names or [PurePath(part).name for part in command]:
        for mark, found in _NAMES.items():
            if mark in name.lower():
                return found
    return "generic"


@dataclass(frozen=True, slots=True)
class DetectorState:
    """What is known from watching one process of an agent. A new process starts from scratch."""

    family: Family
    own: _State
    protocol: acp_updates.SummaryStream = field(default_factory=acp_updates.SummaryStream)
    traffic: ConversationState = field(default_factory=ConversationState)


def watch(family: Family) -> DetectorState:
    return DetectorState(family, _FAMILIES[family][1])


def see(watch: DetectorState, event: Event) -> tuple[DetectorState, tuple[Observation, ...]]:
    """Shows the detectors one event: every frame to and from the agent, answers included, and every line of stderr."""
    traffic = follow(watch.traffic, event)
    if is_other(traffic, event):
        if isinstance(watch.own, hermes.HermesState):
            watch = replace(watch, own=hermes.overhear(watch.own, event))
        return watch, ()
    moment = ObservedEvent(event, watch.traffic, traffic)
    told, seen = acp_updates.step(watch.protocol, moment)
    own, more = _FAMILIES[watch.family][0](watch.own, moment)
    if isinstance(own, heuristics.HeuristicState) and any(one.what == "done" for one in seen):
        own = heuristics.compacted(own)
    seen += more
    if watch.traffic.loading and not isinstance(event, StderrLine):  # which may lag, and repeats nothing
        seen = tuple(replace(one, replayed=True) for one in seen)
    return replace(watch, own=own, protocol=told, traffic=traffic), seen


def command(watch: DetectorState) -> str | None:
    """How this agent is asked to compact; None if that is not known. Its own list of commands has the last word."""
    usual, listed = _COMMANDS.get(watch.family), watch.traffic.commands
    if usual is not None and (watch.family == "opencode" or not listed or usual[1:] in listed):
        return usual  # OpenCode does not list it
    return next((f"/{name}" for name in ("compact", "compress") if name in listed), None)
