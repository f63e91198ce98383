"""Messages of Pydantic AI, as its type adapter writes them: requests, with prompts and results, and responses."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import InvalidMessage
from onefold.messages.calls import tool_name
from onefold.messages.exact import encode
from onefold.messages.said import ANSWERS, Call, Media, Part, Result, Said, Text, Thought, objects, strings
from onefold.model import Json

_SYSTEM = "system-prompt"
_SIGNATURE = "thought_signature"


def recognises(body: dict[str, Json]) -> bool:
    return body.get("kind") in ("request", "response") and any("part_kind" in p for p in objects(body.get("parts")))


def parse(body: Json) -> Said:
    """A system prompt that opens a request with more in it is the agent's: each run gives it anew, so it is no part of
    what was said."""
    kind = body.get("kind") if isinstance(body, dict) else None
    if kind not in ("request", "response"):
        raise InvalidMessage(f"a message of Pydantic AI is of the kind 'request' or 'response', not {kind!r}")
    parts = objects(body.get("parts"))
    if kind == "response":
        return Said("assistant", tuple(p for part in parts for p in _answered(part)))
    said = [part for part in parts if part.get("part_kind") != _SYSTEM]
    told = tuple(p for part in said or parts for p in _asked(part))
    if any(isinstance(p, Text | Media) for p in told):
        return Said("user" if said else "system", told)
    return Said("tool" if told else "user", told)


def write(said: Sequence[Said]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        if one.role in ANSWERS:
            parts = [part for p in one.parts for part in _answer(p)]
            kind = "response"
        else:
            asks = _SYSTEM if one.role in ("system", "developer") else "user-prompt"
            parts = [_returned(p, p.name) for p in one.parts if isinstance(p, Result)]
            if content := [c for p in one.parts if (c := _content(p)) is not None]:
                plain = all(isinstance(c, str) for c in content)
                parts.append({"part_kind": asks, "content": "\n".join(content) if plain else content})
            kind = "request"
        if parts:
            written.append({"kind": kind, "parts": parts})
    return written


def results(call: Json, given: Sequence[Result]) -> list[Json]:
    """Results of a response's own calls, in one request, with the names of their tools."""
    names = {str(part.get("tool_call_id")): str(part.get("tool_name")) for part in objects(call.get("parts"))}
    return [{"kind": "request", "parts": [_returned(r, names.get(r.id, "")) for r in given]}]


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


def _asked(part: dict[str, Json]) -> list[Part]:
    match part.get("part_kind"):
        case "tool-return" | "retry-prompt" if part.get("tool_name"):
            if not isinstance(answered := part.get("tool_call_id"), str):
                raise InvalidMessage(f"a {part['part_kind']} part needs the tool_call_id it answers")
            failed = part["part_kind"] == "retry-prompt" or part.get("outcome") not in (None, "success")
            return [Result(answered, _text(part.get("content")), failed), *_media(part.get("content"))]
        case "user-prompt" | "system-prompt" | "retry-prompt" | "retry-feedback":
            content = part.get("content")
            return [Text(_text(content)), *_media(content)]
    return []


def _answered(part: dict[str, Json]) -> list[Part]:
    match part.get("part_kind"):
        case "text":
            return [Text(t) for t in strings(part.get("content"))]
        case "thinking":
            return [Thought(t) for t in strings(part.get("content"))]
        case "tool-call":
            if not isinstance(id := part.get("tool_call_id"), str):
                raise InvalidMessage("a tool-call part needs a string tool_call_id, which its result names")
            given = part.get("args") or {}
            return [Call(id, str(part.get("tool_name") or ""), given if isinstance(given, str) else encode(given))]
        case "file" | "speech":
            return [Media(str(part["part_kind"]))]
        case str(kind):
            return [Text(f"[{part.get('tool_name') or kind}]")]
    return []


def _text(content: Json) -> str:
    """What a person would read: a text, those of a list, or a tool's own data as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and any(isinstance(c, str) or _kind(c) for c in content):
        return "\n".join(t for c in content for t in strings(c, c.get("content") if isinstance(c, dict) else None))
    return "" if content is None or _kind(content) else encode(content)


def _media(content: Json) -> list[Part]:
    found: list[Part] = []
    for one in content if isinstance(content, list) else [content]:
        kind = _kind(one)
        if kind.endswith("-url"):
            found.append(Media(kind.removesuffix("-url"), str(one["url"])))
        elif kind in ("binary", "uploaded-file"):
            found.append(Media(str(one.get("media_type") or "file").partition("/")[0]))
    return found


def _kind(content: Json) -> str:
    """What a piece of a prompt is, if it is one of the framework's and no data of a tool's own."""
    kind = content.get("kind") if isinstance(content, dict) else None
    known = isinstance(kind, str) and (kind in ("binary", "uploaded-file", "text-content") or "url" in content)
    return str(kind) if known else ""


def _returned(result: Result, name: str) -> Json:
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
        case Text(text):
            return text or None
        case Media("image", str(url)):
            return {"kind": "image-url", "url": url}
        case Media(kind):
            return f"[{kind}]"
    return None


def _answer(part: Part) -> list[Json]:
    match part:
        case Text(text):
            return [{"part_kind": "text", "content": text}] if text else []
        case Call(id, name, arguments):
            return [{"part_kind": "tool-call", "tool_name": tool_name(name), "args": arguments, "tool_call_id": id}]
        case Media(kind):
            return [{"part_kind": "text", "content": f"[{kind}]"}]
    return []
