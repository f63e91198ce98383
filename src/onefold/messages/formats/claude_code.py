"""Lines of a Claude Code transcript, as the Claude Agent SDK hands them to a session store.

A line of a user or an assistant carries a message of the Anthropic API; the others are the program's own affair. Their
shapes are not documented and grow, so whatever is an object is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.formats import anthropic
from onefold.messages.parts import ParsedMessage, TextPart, ToolResult, strings
from onefold.messages.provider_blocks import document
from onefold.model import Json


def recognises(body: dict[str, Json]) -> bool:
    """A message of somebody's inside, or what such a program writes around everything."""
    message = body.get("message")
    if isinstance(message, dict) and "role" in message and body.get("type") in ("user", "assistant"):
        return True
    return isinstance(body.get("type"), str) and ("leafUuid" in body or {"uuid", "sessionId"} <= body.keys())


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict):
        raise InvalidMessage("a line of a Claude Code transcript is an object, with a type")
    if isinstance(message := body.get("message"), dict):
        try:
            return anthropic.parse(message)
        except InvalidMessage:
            pass  # of a kind that is not known: kept like any other line
    if isinstance(attachment := body.get("attachment"), dict):
        return ParsedMessage("other", tuple(document(attachment, str(attachment.get("type") or "attachment"))))
    told = next(strings(body.get("summary"), body.get("content"), body.get("customTitle")), f"[{body.get('type')}]")
    return ParsedMessage("other", (TextPart(told),))


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    return [_line(message) for message in anthropic.write(said)]


def join(lines: list[Json]) -> list[Json]:
    """As Anthropic wants it, where nothing but messages stands together."""
    if not all(isinstance(line.get("message"), dict) and line.keys() == {"type", "message"} for line in lines):
        return lines
    return [_line(message) for message in anthropic.join([line["message"] for line in lines])]


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    message = call.get("message")
    return [_line(made) for made in anthropic.results(message if isinstance(message, dict) else {}, given)]


def unthought(line: Json) -> Json | None:
    if not isinstance(message := line.get("message"), dict):
        return line
    left = anthropic.unthought(message)
    return line if left is message else None if left is None else line | {"message": left}


def masked(line: Json, lines: Mapping[str, str]) -> Json:
    """The same without the program's own copy of the results next to them."""
    bare = {name: value for name, value in line.items() if name != "toolUseResult"}
    return (
        bare | {"message": anthropic.masked(line["message"], lines)} if isinstance(line.get("message"), dict) else line
    )


def _line(message: Json) -> Json:
    return {"type": message["role"], "message": message}
