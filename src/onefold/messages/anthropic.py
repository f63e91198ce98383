"""Messages of the Anthropic API."""

from __future__ import annotations

from collections.abc import Sequence

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
    return Said(body["role"], tuple(p for block in objects(content) if (p := _part(block)) is not None))


def write(said: Sequence[Said]) -> list[Json]:
    """System prompts go as they are: the API takes them apart from the messages, as its `system`."""
    written: list[Json] = []
    for one in said:
        role = "assistant" if one.role in ANSWERS else "system" if one.role in ("system", "developer") else "user"
        blocks = [b for part in one.parts if (b := _block(part)) is not None]
        if not blocks:
            continue
        if written and written[-1]["role"] == role:
            # All calls of one answer stand in one message, all their results in the next, before anything else there.
            joined = written[-1]["content"] + blocks
            written[-1]["content"] = sorted(joined, key=lambda b: b["type"] != "tool_result")
        else:
            written.append({"role": role, "content": blocks})
    return written


def _part(block: dict[str, Json]) -> Part | None:
    match block.get("type"):
        case "text":
            return Text(str(block.get("text", "")))
        case "thinking":
            return Thought(str(block.get("thinking", "")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            if not isinstance(block.get("id"), str):
                raise InvalidMessage("a tool_use block needs a string id, which its tool_result names as tool_use_id")
            return Call(block["id"], str(block.get("name")), encode(block.get("input", {})))
        case str(kind) if kind.endswith("tool_result"):
            if not isinstance(block.get("tool_use_id"), str):
                raise InvalidMessage("a tool_result block needs the tool_use_id it answers")
            return Result(block["tool_use_id"], _text(block.get("content")), bool(block.get("is_error")))
        case "image" | "document":
            return Media(str(block["type"]), _url(block.get("source")))
    return None


def _block(part: Part) -> dict[str, Json] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text else None
        case Call(id, name, arguments):
            given = decode_or_text(arguments)
            given = given if isinstance(given, dict) else {"input": given}
            return {"type": "tool_use", "id": id, "name": name, "input": given}
        case Result(id, text, failed):
            block: dict[str, Json] = {"type": "tool_result", "tool_use_id": id, "content": text}
            return block | {"is_error": True} if failed else block
        case Media("image", str(url)):
            if url.startswith("data:") and ";base64," in url:
                kind, _, data = url.removeprefix("data:").partition(";base64,")
                return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Media(kind):
            return {"type": "text", "text": f"[{kind}]"}
    return None


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
