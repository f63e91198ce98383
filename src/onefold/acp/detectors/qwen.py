"""Qwen Code: `_meta.contextCompression` on a chunk of a message, for its command and for what it does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import Observation, What, mapping, number, short, text_of

_PHASES: Mapping[str, What] = {
    "progress": "started",
    "done": "done",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "skipped": "failed",
    "noop": "failed",
}


def step(state: None, moment: ObservedEvent) -> tuple[None, tuple[Observation, ...]]:
    meta = mapping(moment.update.get("_meta"))
    told = mapping(meta.get("contextCompression"))
    phase = told.get("phase")
    what = _PHASES.get(phase) if isinstance(phase, str) else None
    if what is None:
        return state, ()
    said = short(text_of(moment.update.get("content")))
    seen = Observation(
        what,
        "qwen.meta",
        f"contextCompression {phase}: {said}",
        before=number(told.get("originalTokenCount")),
        after=number(told.get("newTokenCount")),
        automatic=meta.get("source") != "slash_command",
        cause=f"the agent says: {said or phase}" if what == "failed" else None,
    )
    return state, (seen,)
