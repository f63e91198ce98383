"""Contents of the Gemini API: a role, and parts. An event of the Agent Development Kit has one of them inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.formats import google_adk
from onefold.messages.parts import ParsedMessage, ToolResult
from onefold.model import Json


def recognises(body: dict[str, Json]) -> bool:
    """Parts without a type: what a part is, the name of its one field says."""
    parts = body.get("parts")
    if not isinstance(parts, list) or not parts or "content" in body or "kind" in body:
        return False
    return body.get("role") in (None, "user", "model", "function") and all(
        isinstance(p, dict) and p and p.keys().isdisjoint({"type", "kind", "part_kind"}) for p in parts
    )


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict) or not isinstance(body.get("parts"), list):
        raise InvalidMessage("a content of the Gemini API is an object with a role and a list of parts")
    return google_adk.parse(_event(body))


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    return [event["content"] for event in google_adk.write(said)]


def join(contents: list[Json]) -> list[Json]:
    return [event["content"] for event in google_adk.join([_event(c) for c in contents])]


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    return [event["content"] for event in google_adk.results(_event(call), given)]


def unthought(content: Json) -> Json | None:
    event = _event(content)
    left = google_adk.unthought(event)
    return content if left is event else None if left is None else left["content"]


def masked(content: Json, lines: Mapping[str, str]) -> Json:
    made: Json = google_adk.masked(_event(content), lines)["content"]
    return made


def _event(content: dict[str, Json]) -> dict[str, Json]:
    return {"author": "model" if content.get("role") == "model" else "user", "content": content}
