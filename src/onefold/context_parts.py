"""What each message of a context is: a record as it stands, or something that no record holds in this form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from onefold.compaction.context import Context
from onefold.messages.context_text import EARLIER, FACTS, NOTES, PINNED, PINNED_END, QUOTES
from onefold.model import Json

PartKind: TypeAlias = Literal["record", "masked", "summary", "notes", "quotes", "facts", "earlier", "line", "no result"]


class ContextPart(NamedTuple):
    """One message of a context. `number` is its record's; 0 if it was made for this context."""

    kind: PartKind
    number: int
    body: Json
    format: str


def parts(context: Context) -> Iterator[ContextPart]:
    """All of a context's messages, in their order."""
    for number, body, format in zip(context.numbers, context.messages, context.formats, strict=True):
        yield ContextPart(_kind(context, number, body), number, body, format)


def _kind(context: Context, number: int, body: Json) -> PartKind:
    if number:
        return "summary" if number == context.segment else "masked" if number in context.masked else "record"
    text = body.get("content") if isinstance(body, dict) and body.get("role") == "user" else None
    if not isinstance(text, str):
        return "no result"
    if text in (PINNED, PINNED_END):
        return "line"
    blocks: dict[str, PartKind] = {NOTES: "notes", QUOTES: "quotes", FACTS: "facts", EARLIER: "earlier"}
    return next((kind for begins, kind in blocks.items() if text.startswith(begins)), "no result")
