"""Messages of the Anthropic API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from onefold.errors import InvalidMessage
from onefold.messages.lossless_json import decode_or_text, encode
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
)
from onefold.messages.provider_blocks import cited, document, read, thought
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Json

_ROLES = frozenset({"user", "assistant", "system"})
_THOUGHT = frozenset({"thinking", "redacted_thinking"})
_SERVED = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls that the provider runs itself. Their results stand behind them in the answer, or in the next one."""
_SHARED = frozenset({"text", "refusal"})
"""Types of blocks that other formats have too."""


def recognises(body: dict[str, Json]) -> bool:
    """A message with a block that keeps what it holds under other names than its type, as chat's do, and does not say
    whether it went in or came out, as those of Responses do; or a whole answer of the API."""
    blocks = objects(body.get("content"))
    if not isinstance(role := body.get("role"), str) or role not in _ROLES or "tool_calls" in body:
        return False
    return any(map(_own, blocks)) or (body.get("type") == "message" and "stop_reason" in body)


def _own(block: dict[str, Json]) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _SHARED:
        return "citations" in block
    if kind in _THOUGHT:
        return not isinstance(block.get("thinking"), list)  # as one that speaks chat has it
    return not (kind in block or kind.startswith(("input_", "output_")))


def takes(body: Json) -> bool:
    return plain_words(body, _ROLES)


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict) or body.get("role") not in ("user", "assistant", "system"):
        raise InvalidMessage("an Anthropic message is an object with role 'user' or 'assistant' and content")
    content = body.get("content")
    if isinstance(content, str):
        return ParsedMessage(body["role"], (TextPart(content),))
    if not isinstance(content, list):
        raise InvalidMessage("the content of an Anthropic message is a string or a list of blocks")
    parts = tuple(p for block in objects(content) for p in _parts(block))
    answers = body["role"] == "user" and any(isinstance(p, ToolResult) for p in parts)
    return ParsedMessage(
        "tool" if answers else body["role"], parts
    )  # results are no words of a user's, though he brings them


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    """System prompts go as they are: the API takes them apart from the messages, as its `system`."""
    written: list[Json] = []
    for one in said:
        role = "assistant" if one.role in ANSWERS else "system" if one.role in ("system", "developer") else "user"
        parts = sorted(one.parts, key=lambda p: isinstance(p, ToolCall))  # a call is the last thing an answer says
        blocks = [b for part in parts if (b := _block(part, role)) is not None]
        if blocks:
            written.append({"role": role, "content": blocks})
    return written


def join(messages: list[Json]) -> list[Json]:
    """All calls of one answer stand in one message, all their results in the next, before anything else there.

    No block is empty, no answer ends in thought, and the last one not in white space. What the system says later in a
    conversation stands behind what the user says with it, since it may follow a user only; the system's words before
    all others are for the API's `system`.
    """
    worded = _served([m for message in messages if (m := _worded(message)) is not None])
    opening = next((n for n, m in enumerate(worded) if m["role"] != "system"), len(worded))
    joined: list[Json] = []
    for answers, run in groupby(worded[opening:], key=lambda m: m["role"] == "assistant"):
        if answers:
            joined.append(_one([*run]))
            continue
        said = [*run]
        asked = [m for m in said if m["role"] == "user"]
        told = [m for m in said if m["role"] == "system"]
        joined.append(_one(asked) if asked else _one(told) | {"role": "user"})
        joined += [_one(told)] if asked and told else []
    if any(_thoughtful(m) for m in joined):
        return worded[:opening] + join([_thoughtless(m) if _thoughtful(m) else m for m in joined])
    if joined and joined[-1]["role"] == "assistant":
        joined[-1] = _trimmed(joined[-1])
    return worded[:opening] + joined


def _served(messages: list[Json]) -> list[Json]:
    """The same with results of the provider's own calls in the answer that made them, where others spoke in between."""
    made: dict[str, int] = {}
    late: dict[str, Json] = {}
    asked = -1
    for n, message in enumerate(messages):
        asked = asked if message["role"] == "assistant" else n
        for block in objects(message["content"]):
            if block.get("type") in _SERVED:
                made[block["id"]] = n
            elif _serves(block) and made.get(block["tool_use_id"], n) < asked:
                late[block["tool_use_id"]] = block
    if not late:
        return messages
    whole: list[Json] = []
    for message in messages:
        blocks: list[Json] = []
        for block in _blocks(message):
            known = isinstance(block, dict)
            if not (known and _serves(block) and late.get(block["tool_use_id"]) is block):
                blocks.append(block)
            if known and block.get("type") in _SERVED and block["id"] in late:
                blocks.append(late[block["id"]])
        whole += [message if blocks == message["content"] else message | {"content": blocks}] if blocks else []
    return whole


def _serves(block: dict[str, Json]) -> bool:
    return str(block.get("type")).endswith("_tool_result")


def _worded(message: Json) -> Json | None:
    """Without texts that are nothing but white space; None if there is nothing else."""
    content = message["content"]
    if isinstance(content, str):
        return message if content.strip() else None
    worded = [b for b in content if not _blank(b)]
    return None if not worded else message if len(worded) == len(content) else message | {"content": worded}


def _blank(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text", "")).strip()


def _one(messages: list[Json]) -> Json:
    if len(messages) == 1 and not isinstance(messages[0]["content"], list):
        return messages[0]
    blocks = [b for m in messages for b in _blocks(m)]
    ordered = sorted(blocks, key=lambda b: not (isinstance(b, dict) and b.get("type") == "tool_result"))
    if messages[0]["role"] != "user":
        ordered = blocks
    return messages[0] if ordered == messages[0]["content"] else messages[0] | {"content": ordered}


def _thoughtful(message: Json) -> bool:
    last = _blocks(message)[-1]
    return message["role"] == "assistant" and isinstance(last, dict) and last.get("type") in _THOUGHT


def _thoughtless(message: Json) -> Json:
    blocks = [*_blocks(message)]
    while blocks and isinstance(blocks[-1], dict) and blocks[-1].get("type") in _THOUGHT:
        blocks.pop()
    return message | {"content": blocks}


def _trimmed(message: Json) -> Json:
    content = message["content"]
    if isinstance(content, str):
        return message if content == content.rstrip() else message | {"content": content.rstrip()}
    last = content[-1]
    if not isinstance(last, dict) or last.get("type") != "text" or last["text"] == last["text"].rstrip():
        return message
    return message | {"content": [*content[:-1], last | {"text": last["text"].rstrip()}]}


def renamed(message: Json, calls: dict[str, str], results: dict[str, str]) -> Json:
    """A message with other ids for its calls and results."""
    return message | {"content": [_renamed(b, calls, results) for b in message["content"]]}


def _renamed(block: Json, calls: dict[str, str], results: dict[str, str]) -> Json:
    if not isinstance(block, dict):
        return block
    made, answered = block.get("id"), block.get("tool_use_id")
    if isinstance(answered, str):
        return block | {"tool_use_id": results.get(answered, answered)}
    return block | {"id": calls.get(made, made)} if isinstance(made, str) else block


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    """Results of a message's own calls, by the ids that it gave them. Those of the provider's own calls are blocks of
    an answer, each of its own type."""
    served = {b.get("id"): b for b in objects(call.get("content")) if b.get("type") in _SERVED}
    failed = [_unavailable(served[r.id], r) for r in given if r.id in served]
    blocks = [
        {"type": "tool_result", "tool_use_id": r.id, "content": r.text, "is_error": r.failed}
        for r in given
        if r.id not in served
    ]
    made = (("assistant", failed), ("user", blocks))
    return [{"role": role, "content": content} for role, content in made if content]


def _unavailable(call: dict[str, Json], result: ToolResult) -> dict[str, Json]:
    if call["type"] == "mcp_tool_use":
        content: Json = [{"type": "text", "text": result.text}]
        return {"type": "mcp_tool_result", "tool_use_id": result.id, "is_error": True, "content": content}
    name = str(call.get("name"))
    kind = f"{'tool_search' if name.startswith('tool_search') else name}_tool_result"
    return {
        "type": kind,
        "tool_use_id": result.id,
        "content": {"type": f"{kind}_error", "error_code": "unavailable"},
    }


def unthought(message: Json) -> Json | None:
    """A message without what the model thought; None if that is all there is."""
    if not isinstance(content := message.get("content"), list):
        return message
    left = [b for b in content if not (isinstance(b, dict) and str(b.get("type")) in _THOUGHT)]
    if len(left) == len(content):
        return message
    return message | {"content": left} if left else None


def masked(message: Json, lines: Mapping[str, str]) -> Json:
    """A message with other words in place of results."""
    return message | {"content": [_masked(block, lines) for block in _blocks(message)]}


def _masked(block: Json, lines: Mapping[str, str]) -> Json:
    if not isinstance(block, dict) or block.get("type") != "tool_result" or block["tool_use_id"] not in lines:
        return block
    words = lines[block["tool_use_id"]]
    return block | {"content": words if isinstance(block.get("content"), str) else [{"type": "text", "text": words}]}


def _blocks(message: dict[str, Json]) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _parts(block: dict[str, Json]) -> Iterator[Part]:
    match block.get("type"):
        case "text":
            text = block.get("text", "")
            yield TextPart(text if isinstance(text, str) else str(text))
            if "citations" in block:
                yield from cited(block["citations"])
        case "thinking" | "redacted_thinking":
            yield from thought(block)
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            if not isinstance(block.get("id"), str):
                raise InvalidMessage("a tool_use block needs a string id, which its tool_result names as tool_use_id")
            yield ToolCall(block["id"], str(block.get("name") or ""), encode(block.get("input", {})))
        case str(kind) if kind.endswith("tool_result"):
            if not isinstance(block.get("tool_use_id"), str):
                raise InvalidMessage("a tool_result block needs the tool_use_id it answers")
            found = read(block.get("content"))
            failed = bool(block.get("is_error")) or _is_error(block.get("content"))
            yield ToolResult(block["tool_use_id"], found.text, failed)
            yield from found.more
        case "fallback":
            pass  # a mark for the API, which no model is shown
        case str(kind):
            yield from document(block, kind)


def _block(part: Part, role: str) -> dict[str, Json] | None:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text} if text else None
        case ToolCall(id, name, arguments):
            given = decode_or_text(arguments)
            given = given if isinstance(given, dict) else {"input": given}
            return {"type": "tool_use", "id": id, "name": tool_name(name), "input": given}
        case ToolResult(id, text, failed):
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": id, "content": text}
            return block | {"is_error": True} if failed else block
        case MediaPart("image", str(url)) if role == "user":
            if url.startswith("data:") and ";base64," in url:
                kind, _, data = url.removeprefix("data:").partition(";base64,")
                return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            return {"type": "image", "source": {"type": "url", "url": url}}
        case MediaPart() | DocumentPart():
            return {"type": "text", "text": shown(part)}
    return None


def _is_error(content: Json) -> bool:
    return isinstance(content, dict) and str(content.get("type")).endswith("_error")
