"""Tool results as one line: what stands for old large ones, so that a context has room for what is new.

A mask is rendered and never stored. What comes out is looked at again by the format's own codec: if anything but the
words of results is another, or a result holds more than words, the message is not masked.
"""

from __future__ import annotations

import re
from dataclasses import replace

from onefold.errors import InvalidMessage
from onefold.messages.codecs import FORMATS, PLAIN
from onefold.messages.parts import Part, TextPart, ToolCall, ToolResult, estimate
from onefold.model import Json

_LINE = re.compile(r"\[The result #\d+, of about [\d,]+ tokens, is left out here to save room\. .*\]")

_BEGINS = re.compile(r"\[The result #\d+, of about [\d,]+ tokens, is left out")


def line(number: int, tokens: int) -> str:
    """What stands for a result: its number, its size, and how to read it again."""
    return (
        f"[The result #{number}, of about {tokens:,} tokens, is left out here to save room. It is kept whole: if there "
        f"is a tool recall_read, call it with first={number} to read it again; else make the call again if you need "
        "it.]"
    )


def is_line(text: object) -> bool:
    """Whether a text is what stands for a result."""
    return isinstance(text, str) and _LINE.fullmatch(text) is not None


def was_line(text: object) -> bool:
    """Whether a text is what stands for a result, or was made of that: somebody may have added to it, or cut it
    short."""
    return isinstance(text, str) and _BEGINS.search(text) is not None


def is_rendered(format: str | None, body: Json) -> bool:
    """Whether a message is results alone, and one of them is what stands for one, or was made of that."""
    codec = FORMATS.get(format or PLAIN)
    try:
        parts = codec.parse(body).parts if codec is not None else ()
    except InvalidMessage:
        return False
    return all(isinstance(p, ToolResult) for p in parts) and any(
        isinstance(p, ToolResult) and was_line(p.text) for p in parts
    )


def masked(format: str | None, body: Json, number: int) -> Json | None:
    """A message with a line in place of each result that is longer than one; None if there is none, or if that cannot
    be done without losing more than words."""
    codec = FORMATS.get(format or PLAIN)
    if codec is None or codec.masked is None:
        return None
    try:
        said = codec.parse(body)
        lines = {
            p.id: made for p in said.parts if isinstance(p, ToolResult) and (made := _instead(p, number)) is not None
        }
        if not lines or not all(isinstance(p, TextPart | ToolCall | ToolResult) for p in said.parts):
            return None
        made = codec.masked(body, lines)
        there = codec.parse(made)
    except InvalidMessage:
        return None
    same = there.role == said.role and len(there.parts) == len(said.parts)
    return (
        made if same and all(_stands_for(*pair, lines) for pair in zip(there.parts, said.parts, strict=True)) else None
    )


def _instead(result: ToolResult, number: int) -> str | None:
    """The line for a result that is longer than it, and no line itself."""
    made = line(number, estimate(result.text))
    return made if len(made) < len(result.text) and _LINE.search(result.text) is None else None


def _stands_for(now: Part, before: Part, lines: dict[str, str]) -> bool:
    if not (isinstance(before, ToolResult) and before.id in lines):
        return now == before
    if not isinstance(now, ToolResult) or lines[before.id] not in now.text or len(now.text) >= len(before.text):
        return False
    return replace(now, text="") == replace(before, text="")
