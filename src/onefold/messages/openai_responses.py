"""Items of the OpenAI Responses API: messages, calls, results and reasoning, each an item of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onefold.errors import InvalidMessage
from onefold.messages.calls import tool_name
from onefold.messages.exact import encode
from onefold.messages.said import ANSWERS, Call, Media, Part, Result, Said, Text, Thought, objects, plain_words, strings
from onefold.model import Json

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_CALLS = frozenset({"function_call", "custom_tool_call", "computer_call", "local_shell_call"})
"""Calls that wait for a result. Those that the provider runs itself are over when they are seen."""
_RESULTS = {"tool_search_call": "tool_search_output"}
"""What a result is called, where that is not the call's name with `_output`."""


_ITEM = re.compile(r"(\w+_)?(call|output)|reasoning|compaction(_\w+)?|mcp_\w+|item_reference|\w+_update|\w+_tools")
"""Types of items. What they are called grows, by the same few words."""


def recognises(body: dict[str, Json]) -> bool:
    """An item with a type of its own, or a message whose content says whether it went in or came out."""
    kind = body.get("type")
    if "role" in body and "content" in body:
        blocks = objects(body["content"])
        marked = [b for b in blocks if str(b.get("type")).startswith(("input_", "output_")) and b["type"] not in b]
        spoken = kind == "message" and all(b.get("type") == "refusal" for b in blocks) and "stop_reason" not in body
        return isinstance(body["role"], str) and body["role"] in _ROLES and bool(marked or spoken)
    if not isinstance(kind, str) or isinstance(body.get("data"), dict):
        return False
    if kind.removesuffix("_output") in _CALLS:
        return isinstance(_answered(body, kind) if kind.endswith("_output") else body.get("call_id"), str)
    named = isinstance(body.get("call_id"), str) or "encrypted_content" in body
    return named or _ITEM.fullmatch(kind) is not None


def takes(body: Json) -> bool:
    return plain_words(body, _ROLES) and isinstance(body["content"], str)


def parse(body: Json) -> Said:
    if not isinstance(body, dict):
        raise InvalidMessage(f"a Responses item is an object, not a {type(body).__name__}")
    kind = body.get("type", "message")
    if not isinstance(kind, str):
        raise InvalidMessage(f"the type of a Responses item is a word, such as 'message', not {kind!r}")
    if kind == "message":
        role = body.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidMessage(f"{role!r} is no role of a message item; use {', '.join(sorted(_ROLES))}")
        content = body.get("content")
        return Said(role, (Text(content),) if isinstance(content, str) else _parts(content))
    if kind == "reasoning":
        texts = [t for part in objects(body.get("summary")) for t in strings(part.get("text"))]
        return Said("reasoning", (Thought("\n".join(texts)),))
    if kind.endswith("_output"):
        answered = _answered(body, kind)
        if isinstance(answered, str):
            return Said("tool", _result(answered, body.get("output")))
        if kind.removesuffix("_output") in _CALLS:
            raise InvalidMessage(f"a {kind} item needs the call_id it answers")
    elif isinstance(body.get("call_id"), str):
        given = body.get("arguments") or body.get("input") or body.get("action")
        arguments = given if isinstance(given, str) else encode(given or {})
        return Said("call", (Call(body["call_id"], str(body.get("name") or kind), arguments),))
    if kind in _CALLS:
        raise InvalidMessage(f"a {kind} item needs a string call_id, which its output names")
    return Said("assistant", (Text(f"[{kind}]"),))


def write(said: Sequence[Said]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        role = one.role if one.role in _ROLES else "assistant" if one.role in ANSWERS else "user"
        content = [c for p in one.parts if (c := _content(p, role)) is not None]
        for part in one.parts:
            if isinstance(part, Result):
                written.append({"type": "function_call_output", "call_id": part.id, "output": part.text})
        if content:
            written.append({"type": "message", "role": role, "content": content})
        for part in one.parts:
            if isinstance(part, Call):
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
    """Without messages that have nothing in them, and without reasoning that nothing of its answer follows."""
    joined: list[Json] = []
    for item in reversed(items):
        if "role" in item and "content" in item and item["content"] in (None, []):
            continue
        if item.get("type") != "reasoning" or (joined and _answering(joined[-1])):
            joined.append(item)
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


def _answering(item: Json) -> bool:
    return item.get("role", "assistant") == "assistant" and not str(item.get("type")).endswith("_output")


def renamed(item: Json, calls: dict[str, str], results: dict[str, str]) -> Json:
    of = results if str(item.get("type")).endswith("_output") else calls
    name = "call_id" if isinstance(item.get("call_id"), str) else "id"
    return item | {name: of.get(item[name], item[name])}


def _answered(item: dict[str, Json], kind: str) -> Json:
    return item.get("call_id") or (item.get("id") if kind == "local_shell_call_output" else None)


def results(call: Json, given: Sequence[Result]) -> list[Json]:
    """Results of an item's own call, as items of the kind that belongs to it."""
    kind = str(call.get("type", "function_call")) if isinstance(call, dict) else "function_call"
    return [{"type": _RESULTS.get(kind, f"{kind}_output"), "call_id": r.id, "output": r.text} for r in given]


def _result(id: str, output: Json) -> tuple[Part, ...]:
    if not isinstance(output, list):
        return (Result(id, output if isinstance(output, str) else encode(output)),)
    parts = _parts(output)
    text = "\n".join(p.text for p in parts if isinstance(p, Text))
    return Result(id, text), *(p for p in parts if isinstance(p, Media))


def _parts(content: Json) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in objects(content):
        match part.get("type"):
            case "input_text" | "output_text" | "refusal" | "text":
                found += [Text(t) for t in strings(part.get("text"), part.get("refusal"))]
            case "input_image":
                url = part.get("image_url")
                found.append(Media("image", url if isinstance(url, str) else None))
            case str(kind):
                found.append(Media(kind.removeprefix("input_")))
    return tuple(found)


def _content(part: Part, role: str) -> Json:
    match part:
        case Text(text):
            return {"type": "output_text" if role == "assistant" else "input_text", "text": text} if text else None
        case Media("image", str(url)):
            return {"type": "input_image", "image_url": url}
        case Media(kind):
            return {"type": "input_text", "text": f"[{kind}]"}
    return None
