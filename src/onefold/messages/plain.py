"""Any JSON. A string `role` in an object is taken at its word; there are no tool groups."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.messages.exact import encode
from onefold.messages.said import Said, Text
from onefold.model import Json


def parse(body: Json) -> Said:
    role = body.get("role") if isinstance(body, dict) else None
    named = isinstance(role, str) and role.isidentifier()
    return Said(str(role) if named else "other", (Text(_text(body)),))


def write(said: Sequence[Said]) -> list[Json]:
    return [{"role": one.role, "content": one.text} for one in said]


def _text(body: Json) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, dict) and isinstance(content := body.get("content"), str):
        return content
    return encode(body)
