"""Items of the OpenAI Responses API: messages, calls, results and reasoning, each an item of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.parts import (
    ANSWERS,
    DocumentPart,
    MediaPart,
    ParsedMessage,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
    objects,
    plain_words,
    shown,
    strings,
)
from onefold.messages.provider_blocks import attached, cited, document, given, ran, read, thought, told
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Json

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_CALLS = frozenset({"function_call", "custom_tool_call", "computer_call", "local_shell_call"})
"""Calls that wait for a result. Those that the provider runs itself are over when they are seen."""
_RESULTS = {"tool_search_call": "tool_search_output"}
"""What a result is called, where that is not the call's name with `_output`."""
_APPROVAL, _APPROVED = "mcp_approval_request", "mcp_approval_response"
"""A call that waits for a word of its user, and that word."""
_OUTPUTS = ("output", "result", "tools")
_OF_MESSAGES = ("summary_text", "reasoning_text", "computer_screenshot")


_ITEM = re.compile(r"(\w+_)?(call|output)|reasoning|compaction(_\w+)?|mcp_\w+|item_reference|\w+_update|\w+_tools")
"""Types of items. What they are called grows, by the same few words."""


def recognises(body: dict[str, Json]) -> bool:
    """An item with a type of its own, or a message whose content says whether it went in or came out."""
    kind = body.get("type")
    if "role" in body and "content" in body:
        blocks = objects(body["content"])
        marked = any(_marked(b) for b in blocks)
        spoken = kind == "message" and all(b.get("type") == "refusal" for b in blocks) and "stop_reason" not in body
        return isinstance(body["role"], str) and body["role"] in _ROLES and bool(marked or spoken)
    if not isinstance(kind, str) or isinstance(body.get("data"), dict):
        return False
    if kind.removesuffix("_output") in _CALLS:
        return isinstance(_answered(body, kind) if kind.endswith("_output") else body.get("call_id"), str)
    named = isinstance(body.get("call_id"), str) or "encrypted_content" in body
    return named or _ITEM.fullmatch(kind) is not None


def _marked(block: dict[str, Json]) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str) or kind in block:
        return False
    return kind.startswith(("input_", "output_")) or kind in _OF_MESSAGES


def takes(body: Json) -> bool:
    return plain_words(body, _ROLES) and isinstance(body["content"], str)


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict):
        raise InvalidMessage(f"a Responses item is an object, not a {type(body).__name__}")
    kind = body.get("type", "message")
    if not isinstance(kind, str):
        raise InvalidMessage(f"the type of a Responses item is a word, such as 'message', not {kind!r}")
    if kind == "message":
        role = body.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidMessage(f"{role!r} is not a role of a message item; use {', '.join(sorted(_ROLES))}")
        content = body.get("content")
        return ParsedMessage(role, (TextPart(content),) if isinstance(content, str) else _parts(content))
    if kind == "reasoning":
        return ParsedMessage("reasoning", tuple(thought(body)))
    answered = _answered(body, kind)
    if isinstance(answered, str):
        return ParsedMessage("tool", _result(answered, body))
    if kind.endswith("_output") and kind.removesuffix("_output") in _CALLS:
        raise InvalidMessage(f"a {kind} item needs the call_id it answers")
    if isinstance(made := _made(body, kind), str):
        return ParsedMessage("call", (ToolCall(made, str(body.get("name") or kind), given(body)),))
    if kind in _CALLS:
        raise InvalidMessage(f"a {kind} item needs a string call_id, which its output names")
    if kind.endswith("_call"):
        return ParsedMessage("assistant", tuple(ran(body, kind)))
    role = body.get("role")
    return ParsedMessage(role if isinstance(role, str) and role in _ROLES else "assistant", tuple(document(body, kind)))


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        role = one.role if one.role in _ROLES else "assistant" if one.role in ANSWERS else "user"
        content = [c for p in one.parts if (c := _content(p, role)) is not None]
        for part in one.parts:
            if isinstance(part, ToolResult):
                written.append({"type": "function_call_output", "call_id": part.id, "output": part.text})
        if content:
            written.append({"type": "message", "role": role, "content": content})
        for part in one.parts:
            if isinstance(part, ToolCall):
                written.append(
                    {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": tool_name(part.name),
                        "arguments": part.arguments,
                    }
                )
    return written


def join(items: list[Json]) -> list[Json]:
    """Without messages that have nothing in them, and without reasoning that nothing of its answer follows. What the
    provider compacted is not an answer, and parts none from its reasoning."""
    joined: list[Json] = []
    goes_on = False
    for item in reversed(items):
        if "role" in item and "content" in item and item["content"] in (None, []):
            continue
        if item.get("type") != "reasoning" or goes_on:
            joined.append(item)
            goes_on = goes_on if str(item.get("type")).startswith("compaction") else _answering(item)
    return joined[::-1]


def unthought(item: Json) -> Json | None:
    return None if item.get("type") == "reasoning" else item


def adrift(item: Json) -> Json:
    """An item of an answer whose reasoning is not sent. By its id the provider would know that there was some, and
    refuse it. What the provider ran itself has to have its id: so that is told in words."""
    kind = str(item.get("type", "message"))
    if "id" not in item or kind == "item_reference" or kind.startswith("compaction"):
        return item
    if kind == "message" or isinstance(item.get("call_id"), str):
        return {name: value for name, value in item.items() if name != "id"}
    words = parse(item).text or f"[{kind}]"
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def masked(item: Json, lines: Mapping[str, str]) -> Json:
    """A result with other words: in place of a text, of a list of texts, or of what a shell printed."""
    if (words := lines.get(str(_answered(item, str(item.get("type")))))) is None:
        return item
    name = next((n for n in _OUTPUTS if item.get(n) is not None), "")
    match item.get(name):
        case str():
            return item | {name: words}
        case [{"text": str()} as first, *_]:
            return item | {name: [{"type": first.get("type", "input_text"), "text": words}]}
        case [{"stdout": str()} as first, *rest]:
            ended = [one | {"stdout": "", "stderr": ""} for one in objects(rest)]
            return item | {name: [first | {"stdout": words, "stderr": ""}, *ended]}
    return item


def _answering(item: Json) -> bool:
    return item.get("role", "assistant") == "assistant" and not str(item.get("type")).endswith(("_output", _APPROVED))


def renamed(item: Json, calls: dict[str, str], results: dict[str, str]) -> Json:
    kind = str(item.get("type"))
    of = results if isinstance(_answered(item, kind), str) else calls
    fields = ("approval_request_id",) if kind == _APPROVED else ("call_id", "id")
    name = next((n for n in fields if isinstance(item.get(n), str)), None)
    return item if name is None else item | {name: of.get(item[name], item[name])}


def _answered(item: dict[str, Json], kind: str) -> Json:
    """The id of the call that an item answers."""
    if kind == _APPROVED:
        return item.get("approval_request_id")
    if not kind.endswith("_output"):
        return None
    return item.get("call_id") or (item.get("id") if kind == "local_shell_call_output" else None)


def _made(item: dict[str, Json], kind: str) -> Json:
    """The id of the call that an item makes, if somebody else is to answer it."""
    return item.get("id") if kind == _APPROVAL else None if kind.endswith("_output") else item.get("call_id")


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    """Results of an item's own call, as items of the kind that belongs to it."""
    kind = str(call.get("type", "function_call")) if isinstance(call, dict) else "function_call"
    return [_own(kind, r) for r in given]


def _own(kind: str, result: ToolResult) -> Json:
    made: dict[str, Json] = {"type": _RESULTS.get(kind, f"{kind}_output"), "call_id": result.id, "output": result.text}
    match kind:
        case "mcp_approval_request":
            return {
                "type": _APPROVED,
                "approval_request_id": result.id,
                "approve": not result.failed,
                "reason": result.text,
            }
        case "shell_call":
            ended = {"type": "exit", "exit_code": int(result.failed)}
            return made | {"output": [{"stdout": result.text, "stderr": "", "outcome": ended}]}
        case "apply_patch_call":
            return made | {"status": "failed" if result.failed else "completed"}
        case "tool_search_call":
            return {"type": _RESULTS[kind], "call_id": result.id, "tools": [], "execution": "client"}
        case "local_shell_call":
            return {"type": "local_shell_call_output", "id": result.id, "output": result.text}
        case "program":
            return {"type": "program_output", "call_id": result.id, "result": result.text, "status": "incomplete"}
    return made


def _result(id: str, item: dict[str, Json]) -> tuple[Part, ...]:
    if item.get("type") == _APPROVED:
        approved = item.get("approve") is True
        word = "approved" if approved else "not approved"
        return (ToolResult(id, ": ".join([word, *filter(None, strings(item.get("reason")))]), not approved),)
    output = next((item[n] for n in _OUTPUTS if item.get(n) is not None), None)
    blocks = isinstance(output, list) or (isinstance(output, dict) and attached(output) is not None)
    found = read(output) if blocks else told(output)
    return ToolResult(id, found.text, item.get("status") == "failed"), *found.more


def _parts(content: Json) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in objects(content):
        match part.get("type"):
            case "input_text" | "output_text" | "refusal" | "text" | "summary_text" | "reasoning_text":
                found += [TextPart(t) for t in strings(part.get("text"), part.get("refusal"))]
                found += cited(part["annotations"]) if part.get("annotations") else ()
            case str(kind):
                found += document(part, kind.removeprefix("input_"))
    return tuple(found)


def _content(part: Part, role: str) -> Json:
    match part:
        case TextPart(text):
            return {"type": "output_text" if role == "assistant" else "input_text", "text": text} if text else None
        case MediaPart("image", str(url)) if role != "assistant":
            return {"type": "input_image", "image_url": url}
        case MediaPart() | DocumentPart():
            return {"type": "output_text" if role == "assistant" else "input_text", "text": shown(part)}
    return None
