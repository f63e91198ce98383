"""Events of the Google Agent Development Kit, as JSON with the names its Python classes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.errors import InvalidMessage
from onefold.messages.lossless_json import decode_or_text, encode
from onefold.messages.parts import (
    ANSWERS,
    DocumentPart,
    MediaPart,
    ParsedMessage,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    objects,
    shown,
)
from onefold.messages.provider_blocks import attached, document, sealed, settled, told
from onefold.messages.tool_call_ids import tool_name
from onefold.model import Json

_RESPONSE = ("function_response", "functionResponse")
_KNOWN = frozenset({"text", "thought", "thought_signature", "function_call", "function_response"}) | {
    *("inline_data", "file_data", "video_metadata", "media_resolution", "part_metadata"),
    *("executable_code", "code_execution_result", "tool_call", "tool_response"),
}
_SIGNATURE = ("thought_signature", "thoughtSignature")
_UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""What the API takes for the signature of a call that has none: `skip_thought_signature_validator`, as base64."""


def recognises(body: dict[str, Json]) -> bool:
    """An author, and what events have next to it."""
    if not isinstance(body.get("author"), str) or "role" in body:
        return False
    content = body.get("content")
    parts = isinstance(content, dict) and isinstance(content.get("parts"), list)
    return parts or isinstance(_field(body, "invocation_id"), str) or isinstance(body.get("actions"), dict)


def parse(body: Json) -> ParsedMessage:
    if not isinstance(body, dict) or not isinstance(author := body.get("author"), str):
        raise InvalidMessage("an ADK event is an object with an author and, mostly, content")
    content = body.get("content") or _compacted(body)
    if not isinstance(content, dict):
        return ParsedMessage("other")  # it changes state, or routes to another agent: nothing that a model is sent
    own: set[str] = set()
    parts = tuple(settled((p for part in objects(content.get("parts")) for p in _parts(part, own)), own))
    if any(isinstance(p, ToolResult) and p.id not in own for p in parts):
        return ParsedMessage("tool", parts)
    asks = not own and (author == "user" or content.get("role") == "user")
    return ParsedMessage("user" if asks else "assistant", parts)


def write(said: Sequence[ParsedMessage]) -> list[Json]:
    """A system prompt becomes a user's words: ADK takes an agent's instructions apart from events."""
    written: list[Json] = []
    for one in said:
        speaks = one.role in ANSWERS
        results = [p for p in one.parts if isinstance(p, ToolResult)]
        if results:
            written.append(_event("model", "user", [_response(r, r.name) for r in results]))
        parts = [made for p in one.parts if not isinstance(p, ToolResult) and (made := _part(p)) is not None]
        if parts:
            written.append(_event("model" if speaks else "user", "model" if speaks else "user", parts))
    return written


def join(events: list[Json]) -> list[Json]:
    """What a model says in one go is one content, calls included; and the results of all its calls are the next one."""
    joined: list[Json] = []
    last: int | None = None  # that says something
    for event in filter(None, map(_worded, events)):
        if last is not None and _goes_on(before := joined[last], event):
            content = before["content"]
            parts = [*content["parts"], *event["content"]["parts"]]
            joined[last] = before | event | {"content": content | {"parts": parts}}
            continue
        if _shown(event):
            last = len(joined)
        joined.append(event)
    return joined


def _worded(event: dict[str, Json]) -> dict[str, Json] | None:
    """Without texts that are empty or white space; None if a message has nothing else."""
    content = event.get("content")
    if not isinstance(content, dict) or not isinstance(parts := content.get("parts"), list):
        return event
    worded = [p for p in parts if not _blank(p)]
    if len(worded) == len(parts):
        return event if parts or not event.keys() <= {"author", "content"} else None
    if not worded and event.keys() <= {"author", "content"}:
        return None
    return event | {"content": content | {"parts": worded}}


def _blank(part: Json) -> bool:
    return isinstance(part, dict) and part.keys() == {"text"} and not str(part["text"]).strip()


def _goes_on(before: Json, event: Json) -> bool:
    if _role(before) == _role(event) == "model":
        return before["author"] == event["author"] or "model" in (before["author"], event["author"])
    first, second = ({k for p in _shown(e) for k in p} for e in (before, event))
    return bool(first and second) and first <= {*_RESPONSE} and second <= {*_RESPONSE}


def _shown(event: Json) -> list[dict[str, Json]]:
    content = event.get("content")
    return objects(content.get("parts")) if isinstance(content, dict) else []


def _role(event: Json) -> Json:
    content = event.get("content")
    return content.get("role") if isinstance(content, dict) else None


def results(call: Json, given: Sequence[ToolResult]) -> list[Json]:
    """Results of an event's own calls: of the same agent, in the same branch and at the same time."""
    names = {c.id: c.name for c in parse(call).parts if isinstance(c, ToolCall)}
    made = _event(call["author"], "user", [_response(r, names.get(r.id, "")) for r in given])
    kept = ("invocation_id", "branch", "isolation_scope", "timestamp")
    return [made | {name: call[name] for name in kept if name in call}]


def unthought(event: Json) -> Json | None:
    """An event without what the model thought and without its signatures; None if nothing is left to be said."""
    content = event.get("content")
    if not isinstance(content, dict) or not isinstance(parts := content.get("parts"), list):
        return event
    left = [told for part in parts if (told := _unthought(part)) is not None]
    if len(left) == len(parts) and all(a is b for a, b in zip(left, parts, strict=True)):
        return event
    return event | {"content": content | {"parts": left}} if left else None


def _unthought(part: Json) -> Json | None:
    """Newer models reject a call of the present turn that has lost its signature. For one that is not there, the API
    has a word of its own."""
    if not isinstance(part, dict) or part.get("thought"):
        return None if isinstance(part, dict) else part
    signed = next((name for name in _SIGNATURE if name in part), None)
    if signed is None:
        return part
    left = {name: value for name, value in part.items() if name not in _SIGNATURE}
    if isinstance(_field(part, "function_call"), dict):
        return left | {signed: _UNSIGNED}
    return left if any(value != "" for value in left.values()) else None


def masked(event: Json, lines: Mapping[str, str]) -> Json:
    """An event with other words in place of what functions gave."""
    content = event["content"]
    return event | {"content": content | {"parts": [_masked(part, lines) for part in content["parts"]]}}


def _masked(part: Json, lines: Mapping[str, str]) -> Json:
    name = next((n for n in _RESPONSE if isinstance(part, dict) and isinstance(part.get(n), dict)), None)
    if name is None or (id := _id(part[name], str(part[name].get("name") or ""))) not in lines:
        return part
    failed = isinstance(part[name].get("response"), dict) and "error" in part[name]["response"]
    return part | {name: part[name] | {"response": {"error" if failed else "result": lines[id]}}}


def _compacted(body: dict[str, Json]) -> Json:
    """What a summary of ADK's own stands for."""
    actions = body.get("actions")
    compaction = actions.get("compaction") if isinstance(actions, dict) else None
    return compaction.get("compacted_content") if isinstance(compaction, dict) else None


def _parts(part: dict[str, Json], own: set[str]) -> list[Part]:
    """What a part says. Ids of calls that the provider ran are added to its `own`."""
    found: list[Part] = []
    if isinstance(text := part.get("text"), str) and text:
        found.append(ReasoningPart(text) if part.get("thought") else TextPart(text))
    if len(part) == len(found):
        return found
    if isinstance(call := _field(part, "function_call"), dict):
        name = str(call.get("name") or "")
        found.append(ToolCall(_id(call, name), name, encode(call.get("args") or {})))
    if isinstance(answer := _field(part, "function_response"), dict):
        found += _answered(answer)
    for kind in ("inline_data", "file_data"):
        if isinstance(data := _field(part, kind), dict):
            found.append(_media(data))
    for kind, of in (("executable_code", "code"), ("tool_call", "args")):
        if isinstance(call := _field(part, kind), dict):
            own.add(id := _own(call, kind))
            found.append(
                ToolCall(id, _tool(call), encode({"code": call.get(of)} if of == "code" else call.get(of) or {}))
            )
    for kind, of in (("code_execution_result", "output"), ("tool_response", "response")):
        if isinstance(ran := _field(part, kind), dict):
            own.add(id := _own(ran, kind))
            output, failed = told(ran.get(of)), ran.get("outcome") not in (None, "OUTCOME_OK")
            found += [ToolResult(id, output.text, failed, _tool(ran)), *output.more]
    more = {k: v for k, v in part.items() if v is not None and k not in _KNOWN and _snake(k) not in _KNOWN}
    if more:
        found += document(more, next(iter(more)))
    thought = found[0].text if found and isinstance(found[0], ReasoningPart) else ""
    return [*found, *sealed(*(part.get(name) for name in _SIGNATURE if part.get(name) != _UNSIGNED), beside=thought)]


def _answered(answer: dict[str, Json]) -> list[Part]:
    """A function's result, and the files that came with it."""
    found = told(_response_of(answer.get("response")))
    files = [_media(d) for p in objects(answer.get("parts")) if isinstance(d := _field(p, "inline_data"), dict)]
    id = _id(answer, str(answer.get("name") or ""))
    texts = [found.text, *(f.text for f in files if isinstance(f, DocumentPart))]
    return [
        ToolResult(id, "\n".join(filter(None, texts))),
        *found.more,
        *(f for f in files if isinstance(f, MediaPart)),
    ]


def _own(of: dict[str, Json], kind: str) -> str:
    return of["id"] if isinstance(of.get("id"), str) else "code" if "code" in kind else _tool(of)


def _tool(of: dict[str, Json]) -> str:
    kind = _field(of, "tool_type") or of.get("name")
    return kind.lower() if isinstance(kind, str) and kind else "code_execution"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _field(of: dict[str, Json], name: str) -> Json:
    """By its name in Python, or in the API's JSON."""
    first, *rest = name.split("_")
    return of[name] if name in of else of.get(first + "".join(word.capitalize() for word in rest))


def _id(of: dict[str, Json], name: str) -> str:
    return of["id"] if isinstance(of.get("id"), str) else f"function:{name}"


def _response_of(response: Json) -> Json:
    if isinstance(response, dict) and response.keys() == {"result"} and isinstance(response["result"], str):
        return response["result"]
    return response


def _media(data: dict[str, Json]) -> MediaPart | DocumentPart:
    if isinstance(file := attached(data), DocumentPart):
        return file
    mime, link = _field(data, "mime_type"), _field(data, "file_uri")
    kind = str(mime or "file").partition("/")[0]
    if isinstance(inside := data.get("data"), str):
        standard = inside.replace("-", "+").replace("_", "/")
        return MediaPart(kind, f"data:{mime};base64,{standard}")
    return MediaPart(kind, link if isinstance(link, str) else None)


def _event(author: str, role: str, parts: list[Json]) -> dict[str, Json]:
    return {"author": author, "content": {"role": role, "parts": parts}}


def _response(result: ToolResult, name: str) -> Json:
    said = {"error" if result.failed else "result": result.text}
    return {"function_response": {"id": result.id, "name": tool_name(name), "response": said}}


def _part(part: Part) -> Json:
    match part:
        case TextPart(text):
            return {"text": text} if text else None
        case ToolCall(id, name, arguments):
            given = decode_or_text(arguments)
            return {
                "function_call": {
                    "id": id,
                    "name": tool_name(name),
                    "args": given if isinstance(given, dict) else {"input": given},
                }
            }
        case MediaPart(kind, str(url)):
            if url.startswith("data:") and ";base64," in url:
                mime, _, data = url.removeprefix("data:").partition(";base64,")
                return {"inline_data": {"mime_type": mime, "data": data.replace("+", "-").replace("/", "_")}}
            return {"file_data": {"mime_type": f"{kind}/*", "file_uri": url}}
        case MediaPart() | DocumentPart():
            return {"text": shown(part)}
    return None
