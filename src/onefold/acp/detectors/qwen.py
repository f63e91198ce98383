"""Qwen Code: `_meta.contextCompression` on a chunk of a message, for its command and for what it does by itself.

Versions without that metadata answer the command with a fixed text. It counts only as the whole answer to the command,
which no model writes: the same words anywhere else are somebody's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import ChunkedText, Observation, What, mapping, number, short, text_of

_PHASES: Mapping[str, What] = {
    "progress": "started",
    "done": "done",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "skipped": "failed",
    "noop": "failed",
}
_PROGRESS = "Compressing context..."
_ANSWER = re.compile(
    r"\s*(?:Compressing context\.\.\.\s*)?"
    r"Context compressed \(~?(?P<before>\d[\d,]{0,18}) -> ~?(?P<after>\d[\d,]{0,18})\)\.?\s*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class QwenState:
    answer: ChunkedText = field(default_factory=ChunkedText)
    """What is said to the command, without what carries metadata."""


def step(state: QwenState, moment: ObservedEvent) -> tuple[QwenState, tuple[Observation, ...]]:
    meta = mapping(moment.update.get("_meta"))
    told = mapping(meta.get("contextCompression"))
    if not told:
        return _text(state, moment)
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


def _text(state: QwenState, moment: ObservedEvent) -> tuple[QwenState, tuple[Observation, ...]]:
    """The answer to the command, in words."""
    if moment.ended is not None and moment.ended.asks:
        whole = moment.result.get("stopReason") == "end_turn"
        return QwenState(), _answered(str(state.answer)) if whole else ()
    if not moment.now.asked or moment.update.get("sessionUpdate") != "agent_message_chunk":
        return state, ()
    said = text_of(moment.update.get("content"))
    begins = not state.answer and said.strip() == _PROGRESS
    seen = Observation("started", "qwen.text", _PROGRESS, automatic=False)
    return QwenState(state.answer.add(said)), (seen,) if begins else ()


def _answered(answer: str) -> tuple[Observation, ...]:
    said = _ANSWER.fullmatch(answer)
    if said is None:
        cause = f"the agent says: {short(answer.strip().removeprefix(_PROGRESS))}"
        return (
            (Observation("failed", "qwen.text", short(answer), automatic=False, cause=cause),) if answer.strip() else ()
        )
    before, after = (int(said[name].replace(",", "")) for name in ("before", "after"))
    if after >= before:
        cause = "nothing became smaller"
        return (Observation("failed", "qwen.text", short(answer), automatic=False, cause=cause),)
    return (Observation("done", "qwen.text", short(answer), before=before, after=after, automatic=False),)
