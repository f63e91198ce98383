"""Messages of Pydantic AI, as its type adapter writes them: requests, with prompts and results, and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.lossless_json import encode
from onefold.messages.parts import (
    ANSWERS,
    DocumentPart,
    MediaPart,
    ParsedMessage,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    objects,
    shown,
    strings,
)
from onefold.messages.provider_blocks import COMPACTED, attached, document, read, sealed, settled
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Json

_SYSTEM = "system-prompt"
_ANEW = (_SYSTEM, "instruction", "instruction-baseline")
"""What each run gives again."""
_ASKS = ("user-prompt", "speech", "retry-prompt", "retry-feedback", "compaction")
"""What is sent as a user's words."""
_PIECES = ("binary", "uploaded-file", "text-content", "structured-content")
_SIGNATURE = "thought_signature"


def recognises(body: dict[str, Json]) -> bool:
    return body.get("kind") in ("request", "response") and any("part_kind" in p for p in objects(body.get("parts")))


def parse(body: Json) -> ParsedMessage:
    """A system prompt that opens a request with more in it is the agent's: each run gives it again, so it is no part of
    what was said."""
    kind = body.get("kind") if isinstance(body, dict) else None
    if kind not in ("request", "response"):
        raise InvalidMessage(f"a message of Pydantic AI is of the kind 'request' or 'response', not {kind!r}")
    parts = objects(body.get("parts"))
    if kind == "response":
        own: set[str] = set()
        return ParsedMessage("assistant", tuple(settled((p for part in parts for p in _answered(part, own)), own)))
    said = [part for part in parts if part.get("part_kind") not in _ANEW]
    told = tuple(p for part in said or parts for p in _asked(part))
    if any(map(_returns, said)) and not any(map(_speaks, said)):
        return ParsedMessage("tool", told)
    return ParsedMessage("user" if said or not told else "system", told)


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        if one.role in ANSWERS:
            parts = [part for p in one.parts for part in _answer(p)]
            kind = "response"
        else:
            asks = _SYSTEM if one.role in ("system", "developer") else "user-prompt"
            parts = [_returned(p, p.name) for p in one.parts if isinstance(p, ToolResult)]
            if content := [c for p in one.parts if (c := _content(p)) is not None]:
                plain = all(isinstance(c, str) for c in content)
                parts.append({"part_kind": asks, "content": "\n".join(content) if plain else content})
            kind = "request"
        if parts:
            written.append({"kind": kind, "parts": parts})
    return written


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    """Results of a response's own calls, in one request, with the names of their tools."""
    names = {str(part.get("tool_call_id")): str(part.get("tool_name")) for part in objects(call.get("parts"))}
    return [{"kind": "request", "parts": [_returned(r, names.get(r.id, "")) for r in given]}]


def _returns(part: dict[str, Json]) -> bool:
    return part.get("part_kind") in ("tool-return", "retry-prompt") and bool(part.get("tool_name"))


def _speaks(part: dict[str, Json]) -> bool:
    return part.get("part_kind") in _ASKS and not _returns(part)


def unthought(body: Json) -> Json | None:
    """A response without what the model thought, and without what refers to it: signatures, and the ids by which OpenAI
    knows the items of an answer. What OpenAI ran itself has to have its id, so that it goes with its reasoning."""
    if body.get("kind") != "response" or not isinstance(parts := body.get("parts"), list):
        return body
    thought = any(part.get("part_kind") == "thinking" for part in objects(parts))
    left = [told for part in parts if (told := _unthought(part, thought)) is not None]
    if len(left) == len(parts) and all(a is b for a, b in zip(left, parts, strict=True)):
        return body
    return body | {"parts": left} if left else None


def _unthought(part: Json, thought: bool) -> Json | None:
    if not isinstance(part, dict):
        return part
    if part.get("part_kind") == "thinking":
        return None
    left = part
    details = part.get("provider_details")
    if isinstance(details, dict) and _SIGNATURE in details:
        left = left | {"provider_details": {n: v for n, v in details.items() if n != _SIGNATURE} or None}
    if not thought or "id" not in part:
        return left
    if "tool-" in str(part["part_kind"]) and part["part_kind"] != "tool-call" and part.get("provider_name") == "openai":
        return None
    return {name: value for name, value in left.items() if name != "id"}


def masked(body: Json, lines: Mapping[str, str]) -> Json:
    """A request with other words in place of what tools returned."""
    return body | {"parts": [_masked(part, lines) for part in body["parts"]]}


def _masked(part: Json, lines: Mapping[str, str]) -> Json:
    known = isinstance(part, dict) and _returns(part) and part.get("tool_call_id") in lines
    return part | {"content": lines[part["tool_call_id"]]} if known else part


def _asked(part: dict[str, Json]) -> list[Part]:
    content = part.get("content")
    match part.get("part_kind"):
        case "tool-return" | "retry-prompt" if part.get("tool_name"):
            if not isinstance(answered := part.get("tool_call_id"), str):
                raise InvalidMessage(f"a {part['part_kind']} part needs the tool_call_id it answers")
            failed = part["part_kind"] == "retry-prompt" or part.get("outcome") not in (None, "success")
            text, files = _returned_text(content)
            return [ToolResult(answered, text, failed), *files]
        case "user-prompt":
            return _prompt(content)
        case "system-prompt" | "instruction" | "instruction-baseline":
            return [TextPart(_text(content))]
        case "retry-prompt" | "retry-feedback":  # the framework's word, which nobody said
            return [DocumentPart(text)] if (text := _text(content)) else []
        case "speech":
            return _spoken(part)
        case str(kind):
            return document({k: v for k, v in part.items() if k not in _APART}, kind)
    return []


_APART = ("timestamp", "provider_name", "id", "tool_call_id")
"""What says nothing of what a part says."""


def _prompt(content: Json) -> list[Part]:
    if not isinstance(content, list):
        return [TextPart(content)] if isinstance(content, str) else [TextPart(_text(content)), *_files([content])]
    found: list[Part] = []
    for one in content:
        if isinstance(one, str):
            found.append(TextPart(one))
        elif isinstance(one, dict) and _kind(one) == "text-content":
            found += [TextPart(t) for t in strings(one.get("content"))]
        elif isinstance(one, dict) and one.get("kind") != "cache-point":
            found += _files([one]) or document(one, str(one.get("kind") or "content"))
    return found


def _spoken(part: dict[str, Json]) -> list[Part]:
    return [*(TextPart(t) for t in strings(part.get("transcript"))), *_files([part.get("audio")])]


def _answered(part: dict[str, Json], own: set[str]) -> list[Part]:
    """What a part of a response says. Ids of calls that the provider ran are added to its `own`."""
    content = part.get("content")
    match part.get("part_kind"):
        case "text":
            return [TextPart(t) for t in strings(content)]
        case "thinking":
            text = content if isinstance(content, str) else ""
            return [ReasoningPart(text), *sealed(part.get("signature"), _details(part), beside=text)]
        case "tool-call":
            if not isinstance(id := part.get("tool_call_id"), str):
                raise InvalidMessage("a tool-call part needs a string tool_call_id, which its result names")
            return [_call(part, id)]
        case "file":
            return _files([content])
        case "speech":
            return _spoken(part)
        case str(kind) if kind.endswith(("-call", "-return")):
            id = next(strings(part.get("tool_call_id")), str(part.get("tool_name") or kind))
            own.add(id)
            if kind.endswith("-call"):
                return [_call(part, id)]
            found, name = read(content), str(part.get("tool_name") or kind)
            return [ToolResult(id, found.text, part.get("outcome") not in (None, "success"), name), *found.more]
        case "compaction":
            summed: list[Part] = [DocumentPart(t, COMPACTED) for t in strings(content) if t]
            return [*summed, *sealed(_details(part))]
        case str(kind):
            return document({k: v for k, v in part.items() if k not in _APART}, kind)
    return []


def _details(part: dict[str, Json]) -> Json:
    """What a provider gave beside a part, to get it back."""
    details = part.get("provider_details")
    return [v for v in details.values() if isinstance(v, str | list | dict)] if isinstance(details, dict) else None


def _call(part: dict[str, Json], id: str) -> ToolCall:
    given = part.get("args") or {}
    return ToolCall(id, str(part.get("tool_name") or ""), given if isinstance(given, str) else encode(given))


def _returned_text(content: Json) -> tuple[str, list[Part]]:
    """What a tool gave, with the texts of its files."""
    files = _files(content if isinstance(content, list) else [content])
    texts = [_text(content), *(f.text for f in files if isinstance(f, DocumentPart))]
    return "\n".join(filter(None, texts)), [f for f in files if not isinstance(f, DocumentPart)]


def _text(content: Json) -> str:
    """What a person would read: a text, those of a list, or a tool's own data as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and any(isinstance(c, str) or _kind(c) for c in content):
        return "\n".join(t for c in content for t in strings(c, c.get("content") if isinstance(c, dict) else None))
    return "" if content is None or _kind(content) else encode(content)


def _files(contents: list[Json]) -> list[Part]:
    """Pictures, sounds and files among pieces of the framework's own; files of text are read."""
    found: list[Part] = []
    for one in contents:
        kind = _kind(one)
        if kind.endswith("-url"):
            found.append(MediaPart(kind.removesuffix("-url"), str(one["url"])))
        elif kind in ("binary", "uploaded-file"):
            file = attached(one)
            found.append(file or MediaPart(str(one.get("media_type") or "file").partition("/")[0]))
    return found


def _kind(content: Json) -> str:
    """What a piece of a prompt is, if it is one of the framework's and no data of a tool's own."""
    kind = content.get("kind") if isinstance(content, dict) else None
    known = isinstance(kind, str) and (kind in _PIECES or "url" in content)
    return str(kind) if known else ""


def _returned(result: ToolResult, name: str) -> Json:
    outcome = "failed" if result.failed else "success"
    return {
        "part_kind": "tool-return",
        "tool_name": tool_name(name),
        "tool_call_id": result.id,
        "content": result.text,
        "outcome": outcome,
    }


def _content(part: Part) -> Json:
    match part:
        case TextPart(text):
            return text or None
        case MediaPart("image", str(url)):
            return {"kind": "image-url", "url": url}
        case MediaPart() | DocumentPart():
            return shown(part)
    return None


def _answer(part: Part) -> list[Json]:
    match part:
        case TextPart(text):
            return [{"part_kind": "text", "content": text}] if text else []
        case ToolCall(id, name, arguments):
            return [{"part_kind": "tool-call", "tool_name": tool_name(name), "args": arguments, "tool_call_id": id}]
        case MediaPart() | DocumentPart():
            return [{"part_kind": "text", "content": shown(part)}]
    return []
