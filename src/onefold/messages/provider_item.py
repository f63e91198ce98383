"""Items in which a provider compacted a conversation: OpenAI's `compaction` items, Anthropic's `compaction` blocks, and
both where a framework carries them as a part of an answer.

An item stands for all that its provider was sent before it. Some can be read, and some are sealed. None is ever
changed: a message has its item whole, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onefold.messages.codecs import PLAIN
from onefold.messages.parts import objects
from onefold.model import Json

_TYPES = frozenset({"compaction", "compaction_summary"})


@dataclass(frozen=True, slots=True)
class Item:
    """What a provider made of a conversation's past."""

    text: str | None
    """As it can be read; None if only the provider can."""
    rest: Json
    """The message without it; None if there is nothing else in it."""


def item(format: str | None, body: Json) -> Item | None:
    """The item that a message has, if it has one. Of several the last counts. One in which a provider says that it
    failed, with nothing in it, is none."""
    find = _FORMATS.get(format or PLAIN)
    return find(body) if find is not None and isinstance(body, dict) else None


def without(format: str | None, body: Json) -> Json | None:
    """A message without its item; None if there is nothing else in it. One that has none is the same object."""
    found = item(format, body)
    return body if found is None else found.rest


def _responses(body: dict[str, Json]) -> Item | None:
    return Item(None, None) if body.get("type") in _TYPES and _words(body.get("encrypted_content")) else None


def _anthropic(body: dict[str, Json]) -> Item | None:
    return _in(body, "content", lambda block: block.get("type") in _TYPES, lambda block: block.get("content"))


def _claude_code(body: dict[str, Json]) -> Item | None:
    message = body.get("message")
    found = _anthropic(message) if isinstance(message, dict) else None
    if found is None:
        return None
    return Item(found.text, None if found.rest is None else body | {"message": found.rest})


def _langchain(body: dict[str, Json]) -> Item | None:
    if not isinstance(data := body.get("data"), dict):
        return None
    found = _in(data, "content", _passed_on, _of_either)
    if found is None:
        return None
    rest = data | {"content": ""} if found.rest is None and data.get("tool_calls") else found.rest
    return Item(found.text, None if rest is None else body | {"data": rest})


def _pydantic_ai(body: dict[str, Json]) -> Item | None:
    return _in(body, "parts", lambda part: part.get("part_kind") == "compaction", _of_part)


_SEALED = object()


def _in(
    body: dict[str, Json], name: str, is_item: Callable[[dict[str, Json]], bool],
    says: Callable[[dict[str, Json]], object],
) -> Item | None:  # fmt: skip
    """The last item with something in it among the pieces of a message."""
    pieces: Json = body.get(name)
    said = [says(piece) for piece in objects(pieces) if is_item(piece)]
    made = [one for one in said if one is _SEALED or _words(one)]
    if not made:
        return None
    left = [piece for piece in pieces if not (isinstance(piece, dict) and is_item(piece))]
    return Item(made[-1] if isinstance(made[-1], str) else None, body | {name: left} if left else None)


def _passed_on(block: dict[str, Json]) -> bool:
    return _bare(block).get("type") in _TYPES


def _bare(block: dict[str, Json]) -> dict[str, Json]:
    inner = block.get("value")
    return inner if block.get("type") == "non_standard" and isinstance(inner, dict) else block


def _of_either(block: dict[str, Json]) -> object:
    """A block of OpenAI's has no words; one of Anthropic's that has none failed."""
    bare = _bare(block)
    if "content" in bare:
        return bare["content"]
    return _SEALED if _words(bare.get("encrypted_content")) else None


def _of_part(part: dict[str, Json]) -> object:
    if _words(part.get("content")) or part.get("provider_name") == "anthropic":
        return part.get("content")
    details = part.get("provider_details")
    return _SEALED if isinstance(details, dict) and _words(details.get("encrypted_content")) else None


def _words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


_FORMATS: dict[str, Callable[[dict[str, Json]], Item | None]] = {
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "claude-code": _claude_code,
    "langchain": _langchain,
    "pydantic-ai": _pydantic_ai,
}
