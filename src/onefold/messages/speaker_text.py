"""Where in a message its speaker's own words stand.

A place is a JSON pointer (RFC 6901) into the body as it is stored, so that words can be quoted without a copy. Nothing
here knows a format's shape: each string of a body is marked with its place, the format's own codec reads the marked
body, and what comes out of it as plain text still has its mark, unless the codec made it from pieces.
"""

from __future__ import annotations

import re
from typing import Self

from onefold.errors import InvalidMessage
from onefold.messages.codecs import FORMATS, OPENAI_CHAT, PLAIN
from onefold.messages.formats.openai_chat import BESIDE, SPEAKERS
from onefold.messages.parts import TextPart
from onefold.messages.program_messages import CLAUDE_CODE, of_program
from onefold.model import Json


def spoken(format: str | None, body: Json) -> list[tuple[str, str]]:
    """What the speaker of a message says in plain words, each with its place in the body, in order: no calls, results,
    reasoning, documents or files. Nothing for a body that is not of its format, or a format that nobody knows."""
    if (codec := FORMATS.get(format or PLAIN)) is None:
        return []
    if format == OPENAI_CHAT and isinstance(body, dict):  # as most are
        content = body.get("content")
        if isinstance(content, str):
            return [("/content", content)] if content and body.get("role") in SPEAKERS else []
        if content is None and BESIDE.isdisjoint(body):
            return []  # nothing but calls
    try:
        parts = codec.parse(_marked(body)).parts
    except InvalidMessage:
        return []
    found = [p.text for p in parts if isinstance(p, TextPart) and isinstance(p.text, _Marked) and p.text]
    return [(text.place, text[:]) for text in found if not (format == CLAUDE_CODE and of_program(text))]


def resolve(body: Json, pointer: str) -> str | None:
    """The string at a place in a body, or None if there is none."""
    if pointer == "/content" and isinstance(body, dict) and isinstance(said := body.get("content"), str):
        return said  # as most are
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


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


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
