"""Messages of the Anthropic API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.exact import decode_or_text, encode
from onefold.messages.said import ANSWERS, Call, Media, Part, Result, Said, Text, Thought, objects
from onefold.model import Json


def parse(body: Json) -> Said:
    if not isinstance(body, dict) or body.get("role") not in ("user", "assistant", "system"):
        raise InvalidMessage("an Anthropic message is an object with role 'user' or 'assistant' and content")
    content = body.get("content")
    if isinstance(content, str):
        return Said(body["role"], (Text(content),))
    if not isinstance(content, list):
        raise InvalidMessage("the content of an Anthropic message is a string or a list of blocks")
    parts = tuple(p for block in objects(content) for p in _parts(block))
    answers = body["role"] == "user" and any(isinstance(p, Result) for p in parts)
    return Said("tool" if answers else body["role"], parts)  # results are no words of a user's, though he brings them


def write(said: Sequence[Said]) -> list[Json]:
    """System prompts go as they are: the API takes them apart from the messages, as its `system`."""
    written: list[Json] = []
    for one in said:
        role = "assistant" if one.role in ANSWERS else "system" if one.role in ("system", "developer") else "user"
        blocks = [b for part in one.parts if (b := _block(part)) is not None]
        if blocks:
            written.append({"role": role, "content": blocks})
    return written


def join(messages: list[Json]) -> list[Json]:
    """All calls of one answer stand in one message, all their results in the next, before anything else there."""
    joined: list[Json] = []
    for message in messages:
        role = message["role"]
        if joined and role != "system" and joined[-1]["role"] == role:
            blocks = _blocks(joined[-1]) + _blocks(message)
            if role == "user":
                blocks.sort(key=lambda b: not (isinstance(b, dict) and b.get("type") == "tool_result"))
            joined[-1] = joined[-1] | {"content": blocks}
        else:
            joined.append(message)
    return joined


def results(call: Json, given: Sequence[Result]) -> list[Json]:
    """Results of a message's own calls, by the ids that it gave them."""
    blocks = [{"type": "tool_result", "tool_use_id": r.id, "content": r.text, "is_error": r.failed} for r in given]
    return [{"role": "user", "content": blocks}]


def _blocks(message: dict[str, Json]) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _parts(block: dict[str, Json]) -> Iterator[Part]:
    match block.get("type"):
        case "text":
            yield Text(str(block.get("text", "")))
        case "thinking" | "redacted_thinking":
            yield Thought(str(block.get("thinking", "")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            if not isinstance(block.get("id"), str):
                raise InvalidMessage("a tool_use block needs a string id, which its tool_result names as tool_use_id")
            yield Call(block["id"], str(block.get("name") or ""), encode(block.get("input", {})))
        case str(kind) if kind.endswith("tool_result"):
            if not isinstance(block.get("tool_use_id"), str):
                raise InvalidMessage("a tool_result block needs the tool_use_id it answers")
            yield Result(block["tool_use_id"], _text(block.get("content")), bool(block.get("is_error")))
            shown = (p for inner in objects(block.get("content")) for p in _parts(inner))
            yield from (p for p in shown if isinstance(p, Media))
        case "image" | "document":
            yield Media(str(block["type"]), _url(block.get("source")))


def _block(part: Part) -> dict[str, Json] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text else None
        case Call(id, name, arguments):
            given = decode_or_text(arguments)
            given = given if isinstance(given, dict) else {"input": given}
            return {"type": "tool_use", "id": _id(id), "name": name, "input": given}
        case Result(id, text, failed):
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": _id(id), "content": text}
            return block | {"is_error": True} if failed else block
        case Media("image", str(url)):
            if url.startswith("data:") and ";base64," in url:
                kind, _, data = url.removeprefix("data:").partition(";base64,")
                return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Media(kind):
            return {"type": "text", "text": f"[{kind}]"}
    return None


def _id(id: str) -> str:
    """An id of another provider, as this one takes it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", id)


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(b["text"]) for b in objects(content) if isinstance(b.get("text"), str))


def _url(source: Json) -> str | None:
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    url = source.get("url")
    return url if isinstance(url, str) else None
