"""Where in a message its speaker's own words stand, and which messages of a user's no person wrote.

A place is a JSON pointer (RFC 6901) into the body as it is stored, so that words can be quoted without a copy. Nothing
here knows a format's shape: each string of a body is marked with its place, the format's own codec reads the marked
body, and what comes out of it as plain text still has its mark, unless the codec made it from pieces.
"""

from __future__ import annotations

import re
from typing import Self

from onefold.errors import InvalidMessage
from onefold.messages.codecs import FORMATS
from onefold.messages.said import Text, objects
from onefold.model import Json


def spoken(format: str, body: Json) -> list[tuple[str, str]]:
    """What the speaker of a message says in plain words, each with its place in the body, in order: no calls, results,
    reasoning, documents or files. Nothing for a body that is not of its format, or a format that nobody knows."""
    if (codec := FORMATS.get(format)) is None:
        return []
    try:
        parts = codec.parse(_marked(body)).parts
    except InvalidMessage:
        return []
    found = [p.text for p in parts if isinstance(p, Text) and isinstance(p.text, _Marked) and p.text]
    return [(text.place, text[:]) for text in found if not (format == CLAUDE_CODE and _of_program(text))]


def resolve(body: Json, pointer: str) -> str | None:
    """The string at a place in a body, or None if there is none."""
    if pointer and not pointer.startswith("/"):
        return None
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(body, dict) and name in body:
            body = body[name]
        elif isinstance(body, list) and _INDEX.fullmatch(name) and int(name) < len(body):
            body = body[int(name)]
        else:
            return None
    return body if isinstance(body, str) else None


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
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
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
    return bool(said) and all(map(_of_program, said))


def _of_program(text: str) -> bool:
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


class _Marked(str):
    """A string that knows its place in the body."""

    __slots__ = ("place",)
    place: str

    @classmethod
    def at(cls, place: str, text: str) -> Self:
        made = cls(text)
        made.place = place
        return made

    def __str__(self) -> str:
        return self  # a copy would have no mark


def _marked(body: Json) -> Json:
    """The same body, with every string in it marked; names stay as they are."""
    if isinstance(body, str):
        return _Marked.at("", body)
    whole: Json = _emptied(body)
    left: list[tuple[str, Json, Json]] = [("", body, whole)]
    while left:
        place, of, made = left.pop()
        for name, value in of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ():
            step = name.replace("~", "~0").replace("/", "~1") if isinstance(name, str) else name
            if isinstance(value, str):
                made[name] = _Marked.at(f"{place}/{step}", value)
            else:
                made[name] = _emptied(value)
                if isinstance(value, dict | list):
                    left.append((f"{place}/{step}", value, made[name]))
    return whole


def _emptied(value: Json) -> Json:
    return {} if isinstance(value, dict) else [None] * len(value) if isinstance(value, list) else value
