"""Messages of the OpenAI chat API, which most other providers and local servers speak too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.lossless_json import encode
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
    estimate,
    objects,
    plain_header,
    plain_words,
    shown,
    strings,
)
from onefold.messages.provider_blocks import cited, document, ran, sealed, thought
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Header, Json

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
SPEAKERS = _ROLES - {"tool", "function"}
_SAYS = frozenset({"content", "tool_calls", "function_call", "tool_call_id", "refusal", "audio"})
"""What a chat message has one of at least, beside its role."""
BESIDE = frozenset(
    {"reasoning_content", "reasoning", "reasoning_details", "executed_tools", "annotations", "images"}
) | {
    *("refusal", "audio"),
}
"""What answers have beside their content, with one provider or another."""


_THOUGHT = frozenset({"thinking", "reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
UNTHOUGHT = " "
"""What stands for reasoning where a server wants the field in every answer, and takes none that is empty."""


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict):
        raise InvalidMessage(f"a chat message is an object with a role, not a {type(body).__name__}")
    role = body.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessage(
            f"{role!r} is not a role of a chat message; use one of {', '.join(sorted(_ROLES))}, "
            "or format='json' for other shapes"
        )
    content = body.get("content")
    spoken: list[Part] = [TextPart(content)] if isinstance(content, str) else _parts(content)
    if role == "tool":
        if not isinstance(answered := body.get("tool_call_id"), str):
            raise InvalidMessage("a message with role 'tool' needs the tool_call_id it answers")
        return ParsedMessage("tool", (ToolResult(answered, _plain(spoken)), *_media(spoken), *_calls(body)))
    if role == "function":
        return ParsedMessage("function", (ToolResult(f"function:{body.get('name')}", _plain(spoken)), *_media(spoken)))
    if role == "assistant" and not BESIDE.isdisjoint(body):
        made = (*_thought(body), *_ran(body), *spoken, *_more(body), *cited(_links(body)))
        return ParsedMessage(role, (*made, *_calls(body)))
    return ParsedMessage(role, (*spoken, *_calls(body)))


def recognises(body: dict[str, Json]) -> bool:
    """A role, and what chat messages say something by. It is tried last: so it is the one for plain words."""
    return "role" in body and ("parts" not in body or not body.keys().isdisjoint(_SAYS))


def takes(body: Json) -> bool:
    return plain_words(body, SPEAKERS)


def quick(body: Json) -> Header | None:
    """The header of a message that is plain text, as most are, without taking it apart."""
    if type(body) is dict and len(body) == 2 and "content" in body and "role" in body:
        role, text = body["role"], body["content"]
        if type(text) is str and type(role) is str and role in SPEAKERS:
            return plain_header(role, estimate(text))
    return None


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    written: list[Json] = []
    for one in said:
        results = [p for p in one.parts if isinstance(p, ToolResult)]
        written += [{"role": "tool", "tool_call_id": r.id, "content": r.text} for r in results]
        calls = [p for p in one.parts if isinstance(p, ToolCall)]
        role = one.role if one.role in ("system", "developer") else "assistant" if one.role in ANSWERS else "user"
        content = _content(one, role)
        if not calls and not content:
            continue
        message: dict[str, Json] = {"role": role, "content": content or None}
        if calls:
            message["tool_calls"] = [_call(c) for c in calls]
        written.append(message)
    return written


def join(messages: list[Json]) -> list[Json]:
    """Results stand right behind the answer that called, and an answer that has neither words nor calls is none."""
    said = [m for m in messages if any(m.get(name) is not None for name in _SAYS)]
    return together(said, _made, lambda m: m.get("tool_call_id") if m.get("role") == "tool" else None)


def unthought(body: Json) -> Json | None:
    """A message without what servers of this API add to it of what the model thought."""
    content = body.get("content")
    left = {name: value for name, value in body.items() if name not in _THOUGHT}
    if "reasoning_content" in body:
        left["reasoning_content"] = UNTHOUGHT
    if isinstance(content, list):
        told = [b for b in content if not (isinstance(b, dict) and str(b.get("type")) in _THOUGHT)]
        if len(told) < len(content):
            left["content"] = told or None
    if left == body:
        return body
    return left if any(left.get(name) is not None for name in _SAYS) else None


def masked(body: Json, lines: Mapping[str, str]) -> Json:
    """A result with other words. One without an id answers by the name of its function."""
    id = body.get("tool_call_id") if body["role"] == "tool" else f"function:{body.get('name')}"
    return body | {"content": lines[id]} if id in lines else body


def together(
    messages: list[Json], calls: Callable[[Json], Iterable[str]], answers: Callable[[Json], str | None]
) -> list[Json]:
    """The same with the results of a message's calls right behind it."""
    ordered: list[Json] = []
    moved: set[int] = set()
    for at, message in enumerate(messages):
        if at in moved:
            continue
        ordered.append(message)
        due = {*calls(message)}
        behind = at + 1
        while due and behind < len(messages):
            if behind not in moved and (id := answers(messages[behind])) in due:
                due.discard(str(id))
                moved.add(behind)
                ordered.append(messages[behind])
            behind += 1
    return ordered


def _made(message: Json) -> list[str]:
    return [c["id"] for c in objects(message.get("tool_calls")) if isinstance(c.get("id"), str)]


def _parts(content: Json) -> list[Part]:
    found: list[Part] = []
    for part in objects(content):
        match part.get("type"):
            case "text" | "refusal":
                found += [TextPart(t) for t in strings(part.get("text"), part.get("refusal"))]
            case "thinking" | "reasoning":
                found += thought(part)
            case str(kind):
                found += document(part, kind)
    return found


def _thought(body: dict[str, Json]) -> list[Part]:
    """Reasoning, as those write it who speak chat and have some."""
    text = next(strings(body.get("reasoning_content"), body.get("reasoning")), "")
    details = [d.get(name) for d in objects(body.get("reasoning_details")) for name in ("data", "signature")]
    return [*([ReasoningPart(text)] if text else ()), *sealed(*details, beside=text)]


def _ran(body: dict[str, Json]) -> list[Part]:
    """What the provider ran by itself before it answered."""
    tools = objects(body.get("executed_tools"))
    named = [
        tool | {"id": f"executed:{n}", "name": tool.get("name") or tool.get("type")} for n, tool in enumerate(tools)
    ]
    return [part for tool in named for part in ran(tool, "tool")]


def _more(body: dict[str, Json]) -> list[Part]:
    """What an answer says beside its content."""
    audio = body.get("audio")
    heard = audio.get("transcript") if isinstance(audio, dict) else None
    return [*(TextPart(t) for t in strings(body.get("refusal"), heard)), *_parts(body.get("images"))]


def _links(body: dict[str, Json]) -> Json:
    return [a["url_citation"] for a in objects(body.get("annotations")) if isinstance(a.get("url_citation"), dict)]


def _calls(body: dict[str, Json]) -> list[Part]:
    calls = body.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidMessage("tool_calls is a list of calls")
    made: list[Part] = []
    for call in calls:
        if not (isinstance(call, dict) and isinstance(call.get("id"), str)):
            raise InvalidMessage("each of tool_calls needs a string id, which its result names as tool_call_id")
        made.append(_called(call["id"], call.get("function") or call.get("custom")))
    if isinstance(legacy := body.get("function_call"), dict):
        made.append(_called(f"function:{legacy.get('name')}", legacy))
    return made


def _called(id: str, what: Json) -> ToolCall:
    what = what if isinstance(what, dict) else {}
    given = what.get("arguments") or what.get("input") or ""
    return ToolCall(id, str(what.get("name") or ""), given if isinstance(given, str) else encode(given))


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": tool_name(call.name), "arguments": call.arguments}}


def _content(said: ParsedMessage, role: str) -> Json:
    told = [p for p in said.parts if isinstance(p, TextPart | MediaPart | DocumentPart)]
    if not any(isinstance(p, MediaPart) for p in told):
        return "\n".join(map(shown, told))
    parts: list[Json] = []
    for part in told:
        if isinstance(part, MediaPart) and part.kind == "image" and part.url is not None and role != "assistant":
            parts.append({"type": "image_url", "image_url": {"url": part.url}})
        else:
            parts.append({"type": "text", "text": shown(part)})
    return parts


def _media(parts: list[Part]) -> list[Part]:
    return [p for p in parts if isinstance(p, MediaPart | OpaquePart)]


def _plain(parts: list[Part]) -> str:
    return "\n".join(shown(p) for p in parts if isinstance(p, TextPart | DocumentPart))
