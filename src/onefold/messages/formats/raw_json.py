"""Any JSON. A string `role` in an object is taken at its word; there are no tool groups."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.messages.lossless_json import encode
from onefold.messages.parts import ParsedMessage, TextPart
from onefold.model import Json


def parse(body: Json) -> ParsedMessage:
    role = body.get("role") if isinstance(body, dict) else None
    named = isinstance(role, str) and role.isidentifier()
    return ParsedMessage(str(role) if named else "other", (TextPart(_text(body)),))


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    return [{"role": one.role, "content": one.text} for one in said]


def _text(body: Json) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, dict) and isinstance(content := body.get("content"), str):
        return content
    return encode(body)
