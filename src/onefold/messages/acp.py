"""What agents say over the Agent Client Protocol: session updates, and the prompts they answer."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import InvalidMessage
from onefold.messages.exact import decode_or_text, encode
from onefold.messages.said import AGENT, ANSWERS, Call, Media, Part, Progress, Result, Said, Text, Thought, objects
from onefold.model import Json

_OVER = frozenset({"completed", "failed"})


def recognises(body: dict[str, Json]) -> bool:
    return "sessionUpdate" in body or ("sessionId" in body and isinstance(body.get("prompt"), list))


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
            return Said(AGENT, _content(body))
        case "agent_thought_chunk":
            texts = [p.text for p in _content(body) if isinstance(p, Text)]
            return Said(AGENT, (Thought("\n".join(texts)),))
        case "tool_call" | "tool_call_update":
            return _tool(body, kind)
        case str():
            return Said("other", (Thought(f"[{kind}]"),))  # plans, modes, usage: for clients, not for models
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
                case Media(kind, url):
                    written.append({"sessionUpdate": chunk, "content": _block(kind, url)})
    return written


def unthought(body: Json) -> Json | None:
    return None if body.get("sessionUpdate") == "agent_thought_chunk" else body


def _block(kind: str, url: str | None) -> Json:
    if kind == "image" and url is not None and url.startswith("data:") and ";base64," in url:
        type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "image", "mimeType": type, "data": data}
    return {"type": "text", "text": f"[{kind}]"}


def _tool(body: dict[str, Json], kind: str) -> Said:
    id = body.get("toolCallId")
    if not isinstance(id, str):
        raise InvalidMessage(f"a {kind} needs its toolCallId")
    shown = [_part(inner) for block in objects(body.get("content")) if (inner := _shown(block)) is not None]
    text = "\n".join(p.text for p in shown if isinstance(p, Text))
    if not text and body.get("rawOutput") is not None:
        text = encode(body["rawOutput"])
    given = body.get("rawInput")
    parts: list[Part] = []
    if kind == "tool_call":
        parts.append(Call(id, str(body.get("title") or body.get("kind") or "tool"), encode(given or {})))
        given = None
    status = body.get("status")
    over = isinstance(status, str) and status in _OVER
    if given is not None or (text and not over):
        parts.append(Progress(id, "" if over else text, None if given is None else encode(given)))
    if over:
        parts += [Result(id, text, status == "failed"), *(p for p in shown if isinstance(p, Media))]
    return Said(AGENT if kind == "tool_call" else "tool", tuple(parts))


def _shown(block: dict[str, Json]) -> dict[str, Json] | None:
    """What a call shows: a block of content, or how a file was changed."""
    inner = block.get("content")
    if isinstance(inner, dict):
        return inner
    return {"text": f"{block.get('path')}\n{block['newText']}"} if isinstance(block.get("newText"), str) else None


def _content(body: dict[str, Json]) -> tuple[Part, ...]:
    content = body.get("content")
    if not isinstance(content, dict | list):
        raise InvalidMessage(f"a {body['sessionUpdate']} needs its content, a block")
    return tuple(_part(b) for b in objects(content if isinstance(content, list) else [content]))


def _part(block: dict[str, Json]) -> Part:
    if isinstance(block.get("text"), str):
        return Text(block["text"])
    if block.get("type") == "image" and isinstance(block.get("data"), str):
        return Media("image", f"data:{block.get('mimeType')};base64,{block['data']}")
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return Text(resource["text"])
    return Media(str(block.get("uri") or block.get("type")))
