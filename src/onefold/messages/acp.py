"""What agents say over the Agent Client Protocol: session updates, and the prompts they answer."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import InvalidMessage
from onefold.messages.exact import decode_or_text, encode
from onefold.messages.said import ANSWERS, Call, Media, Part, Result, Said, Text, Thought, objects
from onefold.model import Json

_OVER = frozenset({"completed", "failed"})


def parse(body: Json) -> Said:
    if not isinstance(body, dict):
        raise InvalidMessage(f"an ACP message is an object, not a {type(body).__name__}")
    if isinstance(body.get("prompt"), list):
        return Said("user", tuple(_part(b) for b in objects(body["prompt"])))
    kind = body.get("sessionUpdate")
    match kind:
        case "user_message_chunk":
            return Said("user", _content(body))
        case "agent_message_chunk":
            return Said("assistant", _content(body))
        case "agent_thought_chunk":
            texts = [p.text for p in _content(body) if isinstance(p, Text)]
            return Said("assistant", (Thought("\n".join(texts)),))
        case "tool_call" | "tool_call_update":
            return _tool(body, kind)
        case str():
            return Said("assistant", (Text(f"[{kind}]"),))
    raise InvalidMessage("an ACP message is a session update (with sessionUpdate) or a prompt (a list of blocks)")


def write(said: Sequence[Said]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        chunk = "agent_message_chunk" if one.role in ANSWERS else "user_message_chunk"
        for part in one.parts:
            match part:
                case Text(text):
                    written.append({"sessionUpdate": chunk, "content": {"type": "text", "text": text}})
                case Call(id, name, arguments):
                    written.append(
                        {
                            "sessionUpdate": "tool_call",
                            "toolCallId": id,
                            "title": name,
                            "status": "pending",
                            "rawInput": decode_or_text(arguments),
                        }
                    )
                case Result(id, text, failed):
                    block = {"type": "content", "content": {"type": "text", "text": text}}
                    status = "failed" if failed else "completed"
                    written.append(
                        {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": [block]}
                    )
                case Media(kind):
                    note = {"type": "text", "text": f"[{kind}]"}
                    written.append({"sessionUpdate": chunk, "content": note})
    return written


def _tool(body: dict[str, Json], kind: str) -> Said:
    id = body.get("toolCallId")
    if not isinstance(id, str):
        raise InvalidMessage(f"a {kind} needs its toolCallId")
    texts = [
        str(inner["text"])
        for block in objects(body.get("content"))
        if isinstance(inner := block.get("content"), dict) and isinstance(inner.get("text"), str)
    ]
    if not texts and "rawOutput" in body:
        texts = [encode(body["rawOutput"])]
    over = body.get("status") in _OVER
    parts: list[Part] = []
    if kind == "tool_call":
        parts.append(Call(id, str(body.get("title") or body.get("kind")), encode(body.get("rawInput", {}))))
    if over:
        parts.append(Result(id, "\n".join(texts), body["status"] == "failed"))
    elif texts:
        parts.append(Text("\n".join(texts)))
    return Said("call" if kind == "tool_call" else "tool", tuple(parts))


def _content(body: dict[str, Json]) -> tuple[Part, ...]:
    content = body.get("content")
    blocks = objects(content) if isinstance(content, list) else objects([content])
    return tuple(_part(b) for b in blocks)


def _part(block: dict[str, Json]) -> Part:
    if isinstance(block.get("text"), str):
        return Text(block["text"])
    if block.get("type") == "image" and isinstance(block.get("data"), str):
        return Media("image", f"data:{block.get('mimeType')};base64,{block['data']}")
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return Text(resource["text"])
    return Media(str(block.get("uri") or block.get("type")))
