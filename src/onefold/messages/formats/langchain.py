"""Messages of LangChain, as its `message_to_dict` writes them: a type, and the message's fields as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.formats.openai_chat import UNTHOUGHT, together
from onefold.messages.lossless_json import decode_or_text, encode
from onefold.messages.parts import (
    ANSWERS,
    DocumentPart,
    MediaPart,
    OpaquePart,
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
from onefold.messages.provider_blocks import passed_on, sealed, settled, told
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Json

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
_THOUGHT = frozenset({"thinking", "reasoning", "redacted_thinking"})
_ITEMS = frozenset({"text", "refusal", "function_call"})
"""Blocks that are items of OpenAI's, and then have its id."""
_REASONING = frozenset({
    "reasoning", "reasoning_content", "reasoning_details", "__openai_function_call_ids__",
    "__gemini_function_call_thought_signatures__",
})  # fmt: skip
_CALLS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "custom_tool_call", "input_json_delta"}
    | {"invalid_tool_call", "server_tool_call_chunk"}
)
"""Blocks that say what stands in `tool_calls` as well."""


def recognises(body: dict[str, Json]) -> bool:
    data, kind = body.get("data"), body.get("type")
    if not isinstance(data, dict) or "content" not in data or not isinstance(kind, str):
        return False
    return kind == "chat" or kind.removesuffix("MessageChunk").lower() in _ROLES


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict) or not isinstance(data := body.get("data"), dict):
        raise InvalidMessage("a LangChain message is an object with a type and its fields as data (message_to_dict)")
    role = _role(body.get("type"), data)
    content = data.get("content")
    own: set[str] = set()
    spoken: list[Part] = [TextPart(content)] if isinstance(content, str) else _parts(content, own)
    if role == "tool":
        if not isinstance(answered := data.get("tool_call_id"), str):
            raise InvalidMessage("a LangChain message of type 'tool' needs the tool_call_id it answers")
        return ParsedMessage("tool", (_result(answered, spoken, failed=data.get("status") == "error"), *_media(spoken)))
    if role == "function":
        return ParsedMessage("function", (_result(f"function:{data.get('name')}", spoken), *_media(spoken)))
    return ParsedMessage(role, (*_beside(data, own), *settled(spoken, own), *_calls(data)))


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        results = [p for p in one.parts if isinstance(p, ToolResult)]
        written += [_message("tool", _of_result(r)) for r in results]
        calls = [p for p in one.parts if isinstance(p, ToolCall)]
        content = _content(one)
        if not calls and not content:
            continue
        if one.role in ANSWERS:
            written.append(_message("ai", {"content": content, "tool_calls": [_call(c) for c in calls]}))
        else:
            kind = "system" if one.role in ("system", "developer") else "human"
            written.append(_message(kind, {"content": content}))
    return written


def join(messages: list[Json]) -> list[Json]:
    """Results stand right behind the answer that called."""
    return together(
        messages,
        lambda m: [c.id for c in _calls(m["data"])],
        lambda m: m["data"].get("tool_call_id") if m.get("type") == "tool" else None,
    )


def unthought(body: Json) -> Json | None:
    """An answer without what the model thought, and without what refers to it: signatures, and the ids by which OpenAI
    knows the items of an answer."""
    data = body["data"]
    content, more = data.get("content"), data.get("additional_kwargs")
    left = dict(data)
    if isinstance(content, list):
        told = [b for b in content if not (isinstance(b, dict) and str(b.get("type")) in _THOUGHT)]
        if len(told) < len(content):
            left["content"] = [_unnamed(block) for block in told]
    if isinstance(more, dict) and not _REASONING.isdisjoint(more):
        left["additional_kwargs"] = {name: value for name, value in more.items() if name not in _REASONING}
        if "reasoning_content" in more:
            left["additional_kwargs"]["reasoning_content"] = UNTHOUGHT
    if left == data:
        return body
    says = left.get("content") or _calls(left)
    return body | {"data": left} if says else None


def masked(body: Json, lines: Mapping[str, str]) -> Json:
    """A result with other words. What a tool keeps for the program next to it stays."""
    data = body["data"]
    words = lines.get(data.get("tool_call_id") or f"function:{data.get('name')}")
    return body if words is None else body | {"data": data | {"content": words}}


def _unnamed(block: Json) -> Json:
    named = isinstance(block, dict) and str(block.get("type")) in _ITEMS and "id" in block
    return {name: value for name, value in block.items() if name != "id"} if named else block


def _role(kind: Json, data: dict[str, Json]) -> str:
    if kind == "chat" and isinstance(role := data.get("role"), str) and role.isidentifier():
        return "user" if role == "tool" else role
    name = kind.removesuffix("MessageChunk").lower() if isinstance(kind, str) else None
    if name not in _ROLES:
        raise InvalidMessage(
            f"{kind!r} is not a type of a LangChain message; use one of {', '.join(sorted(_ROLES))}, chat"
        )
    return _ROLES[name]


def _parts(content: Json, own: set[str]) -> list[Part]:
    found: list[Part] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, str):
            found.append(TextPart(block))
        elif isinstance(block, dict):
            found += _part(block, own)
    return found


def _part(block: dict[str, Json], own: set[str]) -> list[Part]:
    match block.get("type"):
        case "text-plain":  # a file of text
            named = next(strings(block.get("title"), block.get("file_id")), "")
            return [DocumentPart(t, named) for t in strings(block.get("text")) if t]
        case "executable_code":
            own.add("code")
            return [ToolCall("code", "code_execution", encode({"code": block.get("executable_code")}))]
        case "code_execution_result":
            own.add("code")
            return [
                ToolResult("code", told(block.get("code_execution_result")).text, block.get("outcome") not in (None, 1))
            ]
        case str(kind) if kind not in _CALLS:
            return passed_on(block, own)
    return []


def _beside(data: dict[str, Json], own: set[str]) -> list[Part]:
    """What an older version keeps beside the content: reasoning, and what the provider ran."""
    beside = data.get("additional_kwargs")
    if not isinstance(beside, dict):
        return []
    text = next(strings(beside.get("reasoning_content")), "")
    found: list[Part] = [ReasoningPart(text)] if text else []
    if isinstance(reasoning := beside.get("reasoning"), dict):
        found += passed_on({"type": "reasoning", **reasoning}, own)
    for block in objects(beside.get("tool_outputs")):
        found += passed_on(block, own)
    signatures = beside.get("__gemini_function_call_thought_signatures__")
    return [*settled(found, own), *sealed(signatures)]


def _calls(data: dict[str, Json]) -> list[ToolCall]:
    """Those that could not be read count too: the provider is sent them as well, and wants a result."""
    listed = [*objects(data.get("tool_calls")), *objects(data.get("invalid_tool_calls"))]
    return [_called(call) for call in listed]


def _called(call: dict[str, Json]) -> ToolCall:
    name, given, id = str(call.get("name") or ""), call.get("args"), call.get("id")
    arguments = given if isinstance(given, str) else encode({} if given is None else given)
    return ToolCall(id if isinstance(id, str) else f"function:{name}", name, arguments)


def _result(id: str, spoken: list[Part], failed: bool = False) -> ToolResult:
    return ToolResult(id, "\n".join(shown(p) for p in spoken if isinstance(p, TextPart | DocumentPart)), failed)


def _media(parts: list[Part]) -> list[Part]:
    return [p for p in parts if isinstance(p, MediaPart | OpaquePart)]


def _message(kind: str, data: dict[str, Json]) -> Json:
    return {"type": kind, "data": {**data, "type": kind}}


def _of_result(result: ToolResult) -> dict[str, Json]:
    status = "error" if result.failed else "success"
    return {"content": result.text, "tool_call_id": result.id, "status": status}


def _call(call: ToolCall) -> Json:
    given = decode_or_text(call.arguments)
    args = given if isinstance(given, dict) else {"input": given}
    return {"name": tool_name(call.name), "args": args, "id": call.id, "type": "tool_call"}


def _content(said: ParsedMessage) -> Json:
    parts = [p for p in said.parts if isinstance(p, TextPart | MediaPart | DocumentPart)]
    if not any(isinstance(p, MediaPart) for p in parts):
        return "\n".join(map(shown, parts))
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, MediaPart) and part.kind == "image" and part.url is not None and said.role not in ANSWERS:
            blocks.append({"type": "image_url", "image_url": {"url": part.url}})
        else:
            blocks.append({"type": "text", "text": shown(part)})
    return blocks
