"""One codec per message format: it derives the header that the engine plans with, and never changes a message."""

from __future__ import annotations

from typing import Protocol

from onefold.errors import InvalidMessage
from onefold.messages.exact import encode
from onefold.model import MESSAGE, Draft, Header, Ids, Json

OPENAI_CHAT = "openai-chat"
PLAIN = "json"

_CHAT_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PER_MESSAGE = 4
_PER_IMAGE = 1000


class Codec(Protocol):
    """What the engine asks of a format."""

    name: str

    def header(self, body: Json) -> Header:
        """Role, tool calls and size. Raises `InvalidMessage` for a body that is not of this format."""

    def text(self, body: Json) -> str:
        """What a person would read in it."""


def estimate(text: str) -> int:
    """Tokens of a text, roughly: four bytes each, which errs on the safe side for prose in most languages."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


class OpenAIChat:
    """Messages of the OpenAI chat API, which most other providers and local servers speak too."""

    name = OPENAI_CHAT

    def header(self, body: Json) -> Header:
        if not isinstance(body, dict):
            raise InvalidMessage(f"a chat message is an object with a role, not a {type(body).__name__}")
        role = body.get("role")
        if not isinstance(role, str) or role not in _CHAT_ROLES:
            raise InvalidMessage(
                f"{role!r} is no role of a chat message; use one of {', '.join(sorted(_CHAT_ROLES))}, "
                "or format='json' for other shapes"
            )
        content = body.get("content")
        if isinstance(content, str) and role != "tool" and len(body) == 2:
            return Header(role, _PER_MESSAGE + estimate(content))  # most messages, and the quick way
        opens = [call["id"] for call in _calls(body)]
        if isinstance(legacy := body.get("function_call"), dict):
            opens.append(f"function:{legacy.get('name')}")
        closes: tuple[str, ...] = ()
        if role == "tool":
            if not isinstance(answered := body.get("tool_call_id"), str):
                raise InvalidMessage("a message with role 'tool' needs the tool_call_id it answers")
            closes = (answered,)
        elif role == "function":
            closes = (f"function:{body.get('name')}",)
        images = sum(1 for part in _parts(body) if "image" in str(part.get("type")))
        tokens = _PER_MESSAGE + estimate(self.text(body)) + images * _PER_IMAGE
        return Header(role, tokens, tuple(opens), closes)

    def text(self, body: Json) -> str:
        content = body.get("content")
        pieces = [content] if isinstance(content, str) else []
        pieces += [t for part in _parts(body) if isinstance(t := part.get("text") or part.get("refusal"), str)]
        called = [call.get("function") or call.get("custom") for call in _calls(body)]
        for call in [*called, body.get("function_call")]:
            if isinstance(call, dict):
                pieces.append(f"{call.get('name')} {call.get('arguments') or call.get('input')}")
        return "\n".join(pieces)


class Plain:
    """Any JSON. A string `role` in an object is taken at its word; there are no tool groups."""

    name = PLAIN

    def header(self, body: Json) -> Header:
        role = body.get("role") if isinstance(body, dict) else None
        if not isinstance(role, str) or not role.isidentifier():
            role = "other"
        return Header(role, _PER_MESSAGE + estimate(self.text(body)))

    def text(self, body: Json) -> str:
        if isinstance(body, str):
            return body
        if isinstance(body, dict) and isinstance(content := body.get("content"), str):
            return content
        return encode(body)


FORMATS: dict[str, Codec] = {c.name: c for c in (OpenAIChat(), Plain())}


def codec(format: str) -> Codec:
    try:
        return FORMATS[format]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise InvalidMessage(f"no message format {format!r}; there are: {known}") from None


def recognise(body: Json) -> str:
    """The format of a message that came without one: whatever has a role is a chat message."""
    return OPENAI_CHAT if isinstance(body, dict) and "role" in body else PLAIN


def draft(
    body: Json,
    ids: Ids,
    *,
    format: str | None = None,
    kind: str = MESSAGE,
    key: str | None = None,
    turn: str | None = None,
    actor: str | None = None,
) -> Draft:
    """A message made ready for the journal."""
    name = format or recognise(body)
    data = encode(body)
    return Draft(ids(), kind, body, data, name, codec(name).header(body), key, turn, actor)


def _parts(body: Json) -> list[dict[str, Json]]:
    content = body.get("content")
    return [p for p in content if isinstance(p, dict)] if isinstance(content, list) else []


def _calls(body: Json) -> list[dict[str, Json]]:
    calls = body.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidMessage("tool_calls is a list of calls")
    for call in calls:
        if not (isinstance(call, dict) and isinstance(call.get("id"), str)):
            raise InvalidMessage("each of tool_calls needs a string id, which its result names as tool_call_id")
    return calls
