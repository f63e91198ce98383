"""What agents say over the Agent Client Protocol: session updates, and the prompts they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.lossless_json import decode_or_text, encode
from onefold.messages.parts import (
    AGENT,
    ANSWERS,
    DocumentPart,
    MediaPart,
    OpaquePart,
    ParsedMessage,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolProgress,
    ToolResult,
    objects,
    shown,
)
from onefold.messages.provider_blocks import document, told
from onefold.model import Json

_OVER = frozenset({"completed", "failed"})


def recognises(body: dict[str, Json]) -> bool:
    return "sessionUpdate" in body or ("sessionId" in body and isinstance(body.get("prompt"), list))


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict):
        raise InvalidMessage(f"an ACP message is an object, not a {type(body).__name__}")
    if isinstance(body.get("prompt"), list):
        return ParsedMessage("user", tuple(p for b in objects(body["prompt"]) for p in _parts(b)))
    kind = body.get("sessionUpdate")
    match kind:
        case "user_message_chunk":
            return ParsedMessage("user", _content(body))
        case "agent_message_chunk":
            return ParsedMessage(AGENT, _content(body))
        case "agent_thought_chunk":
            texts = [p.text for p in _content(body) if isinstance(p, TextPart)]
            return ParsedMessage(AGENT, (ReasoningPart("\n".join(texts)),))
        case "tool_call" | "tool_call_update":
            return _tool(body, kind)
        case str():
            return ParsedMessage(
                "other", (ReasoningPart(f"[{kind}]"),)
            )  # plans, modes, usage: for clients, not for models
    raise InvalidMessage("an ACP message is a session update (with sessionUpdate) or a prompt (a list of blocks)")


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        chunk = "agent_message_chunk" if one.role in ANSWERS else "user_message_chunk"
        for part in one.parts:
            match part:
                case TextPart(text):
                    written.append({"sessionUpdate": chunk, "content": {"type": "text", "text": text}})
                case ToolCall(id, name, arguments):
                    written.append(
                        {
                            "sessionUpdate": "tool_call",
                            "toolCallId": id,
                            "title": name,
                            "status": "pending",
                            "rawInput": decode_or_text(arguments),
                        }
                    )
                case ToolResult(id, text, failed):
                    block = {"type": "content", "content": {"type": "text", "text": text}}
                    status = "failed" if failed else "completed"
                    written.append(
                        {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": [block]}
                    )
                case MediaPart() | DocumentPart():
                    written.append({"sessionUpdate": chunk, "content": _block(part)})
    return written


def unthought(body: Json) -> Json | None:
    return None if body.get("sessionUpdate") == "agent_thought_chunk" else body


def masked(body: Json, lines: Mapping[str, str]) -> Json:
    """How a call ended, with other words."""
    if (words := lines.get(body["toolCallId"])) is None:
        return body
    bare = {name: value for name, value in body.items() if name != "rawOutput"}
    return bare | {"content": [{"type": "content", "content": {"type": "text", "text": words}}]}


def _block(part: MediaPart | DocumentPart) -> Json:
    url = part.url if isinstance(part, MediaPart) and part.kind == "image" else None
    if url is not None and url.startswith("data:") and ";base64," in url:
        type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "image", "mimeType": type, "data": data}
    return {"type": "text", "text": shown(part)}


def _tool(body: dict[str, Json], kind: str) -> ParsedMessage:
    id = body.get("toolCallId")
    if not isinstance(id, str):
        raise InvalidMessage(f"a {kind} needs its toolCallId")
    blocks = [p for block in objects(body.get("content")) for p in _shown(block)]
    text = "\n".join(shown(p) for p in blocks if isinstance(p, TextPart | DocumentPart))
    files: list[Part] = [p for p in blocks if isinstance(p, MediaPart | OpaquePart)]
    if not text and body.get("rawOutput") is not None:
        raw = told(body["rawOutput"])
        text, files = raw.text, files or [*raw.more]
    given = body.get("rawInput")
    parts: list[Part] = []
    if kind == "tool_call":
        parts.append(ToolCall(id, str(body.get("title") or body.get("kind") or "tool"), encode(given or {})))
        given = None
    status = body.get("status")
    over = isinstance(status, str) and status in _OVER
    if given is not None or (text and not over):
        parts.append(ToolProgress(id, "" if over else text, None if given is None else encode(given)))
    if over:
        parts += [ToolResult(id, text, status == "failed"), *files]
    return ParsedMessage(AGENT if kind == "tool_call" else "tool", tuple(parts))


def _shown(block: dict[str, Json]) -> list[Part]:
    """What a call shows: a block of content, or how a file was changed."""
    if isinstance(inner := block.get("content"), dict):
        return _parts(inner)
    if isinstance(block.get("newText"), str):
        return [TextPart(f"{block.get('path')}\n{block['newText']}")]
    return []


def _content(body: dict[str, Json]) -> tuple[Part, ...]:
    content = body.get("content")
    if not isinstance(content, dict | list):
        raise InvalidMessage(f"a {body['sessionUpdate']} needs its content, a block")
    return tuple(p for b in objects(content if isinstance(content, list) else [content]) for p in _parts(b))


def _parts(block: dict[str, Json]) -> list[Part]:
    if isinstance(block.get("text"), str):
        return [TextPart(block["text"])]
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return [DocumentPart(resource["text"], str(resource.get("uri") or "resource"))]
    if block.get("type") == "resource_link":
        named = [str(block[name]) for name in ("uri", "name") if isinstance(block.get(name), str)]
        return [DocumentPart("", named[0] if named else "resource_link")]
    return document(block, str(block.get("type") or "content"))
