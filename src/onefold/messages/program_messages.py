"""Which messages in a user's place no person wrote, by what they say of themselves."""

from __future__ import annotations

import re

from onefold.messages.parts import objects
from onefold.model import Json


def by_program(format: str, body: Json) -> bool:
    """Whether a message of a user's is a program's word and no person's, by what the message says of itself."""
    if not isinstance(body, dict):
        return False
    match format:
        case "claude-code":
            return _by_claude_code(body)
        case "google-adk":
            actions = body.get("actions")
            return isinstance(actions, dict) and actions.get("compaction") is not None
        case "langchain":
            data = body.get("data")
            beside = data.get("additional_kwargs") if isinstance(data, dict) else None
            return isinstance(beside, dict) and isinstance(beside.get("lc_source"), str)
        case "pydantic-ai":
            kinds = {str(part.get("part_kind")) for part in objects(body.get("parts"))}
            return body.get("kind") == "request" and bool(kinds) and kinds.isdisjoint({"user-prompt", "speech"})
    return False


CLAUDE_CODE = "claude-code"
_MARKS = ("isMeta", "isCompactSummary", "isSynthetic", "isVisibleInTranscriptOnly", "isSidechain")
"""Of lines that Claude Code wrote: what it tells the model, its summaries, and the tasks of its sub-agents."""
_TAGS = "system-reminder|local-command-(?:stdout|stderr|caveat)|bash-(?:stdout|stderr)|task-notification"
_OPENING = re.compile(rf"\s{{0,20}}<({_TAGS})>")
_INTERRUPTED = re.compile(r"\s{0,20}\[Request interrupted by user[^\]\n]{0,40}\]\s{0,20}")


def _by_claude_code(line: dict[str, Json]) -> bool:
    if any(line.get(mark) is True for mark in _MARKS):
        return True
    origin = line.get("origin")
    if isinstance(origin, dict) and isinstance(origin.get("kind"), str) and origin["kind"] != "human":
        return True
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    texts = [content] if isinstance(content, str) else [b.get("text") for b in objects(content)]
    said = [t for t in texts if isinstance(t, str) and t.strip()]
    return bool(said) and all(map(of_program, said))


def of_program(text: str) -> bool:
    """Whether a text is nothing but what Claude Code put there, from the first tag to the end of the last."""
    if _INTERRUPTED.fullmatch(text):
        return True
    at = 0
    while (opening := _OPENING.match(text, at)) is not None:
        closing = f"</{opening[1]}>"
        at = text.find(closing, opening.end())
        if at < 0:
            return False
        at += len(closing)
    return at > 0 and not text[at:].strip()
