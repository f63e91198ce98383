"""Messages of the Anthropic API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from onefold.errors import InvalidMessage
from onefold.messages.calls import tool_name
from onefold.messages.exact import decode_or_text, encode
from onefold.messages.said import ANSWERS, Call, Media, Part, Result, Said, Text, Thought, objects, plain_words
from onefold.model import Json

_ROLES = frozenset({"user", "assistant", "system"})
_THOUGHT = frozenset({"thinking", "redacted_thinking"})
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
    return kind in _THOUGHT or not (kind in block or kind.startswith(("input_", "output_")))


def takes(body: Json) -> bool:
    return plain_words(body, _ROLES)


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
        parts = sorted(one.parts, key=lambda p: isinstance(p, Call))  # a call is the last thing an answer says
        blocks = [b for part in parts if (b := _block(part)) is not None]
        if blocks:
            written.append({"role": role, "content": blocks})
    return written


def join(messages: list[Json]) -> list[Json]:
    """All calls of one answer stand in one message, all their results in the next, before anything else there.

    No block is empty, no answer ends in thought, and the last one not in white space. What the system says later in a
    conversation stands behind what the user says with it, since it may follow a user only; the system's words before
    all others are for the API's `system`.
    """
    worded = [m for message in messages if (m := _worded(message)) is not None]
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


def results(call: Json, given: Sequence[Result]) -> list[Json]:
    """Results of a message's own calls, by the ids that it gave them."""
    blocks = [{"type": "tool_result", "tool_use_id": r.id, "content": r.text, "is_error": r.failed} for r in given]
    return [{"role": "user", "content": blocks}]


def unthought(message: Json) -> Json | None:
    """A message without what the model thought; None if that is all there is."""
    if not isinstance(content := message.get("content"), list):
        return message
    left = [b for b in content if not (isinstance(b, dict) and str(b.get("type")) in _THOUGHT)]
    if len(left) == len(content):
        return message
    return message | {"content": left} if left else None


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
            return {"type": "tool_use", "id": id, "name": tool_name(name), "input": given}
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
