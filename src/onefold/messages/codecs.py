"""One codec per message format. A codec understands messages and can write them; it never changes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import orjson

from onefold.errors import InvalidMessage
from onefold.messages import (
    acp,
    anthropic,
    claude_code,
    google_adk,
    langchain,
    openai_chat,
    openai_responses,
    plain,
    pydantic_ai,
)
from onefold.messages.exact import encode
from onefold.messages.openai_chat import SPEAKERS
from onefold.messages.said import Result, Said, estimate, in_turn, objects, plain_header
from onefold.model import MESSAGE, Draft, Header, Ids, Json

OPENAI_CHAT = "openai-chat"
PLAIN = "json"

_SHORT = 1 << 20  # so that no limit on a message's size is near
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document"})


@dataclass(frozen=True, slots=True)
class Codec:
    """What the engine asks of a format."""

    name: str
    parse: Callable[[Json], Said]
    """What a body says. Raises `InvalidMessage` for one that is not of this format."""
    write: Callable[[Sequence[Said]], list[Json]]
    """Messages of this format that say the same."""
    quick: Callable[[Json], Header | None] = lambda _: None
    """The header, where it can be told without taking the message apart."""
    join: Callable[[list[Json]], list[Json]] = lambda messages: messages
    """Messages of this format with those made one that have to be."""
    results: Callable[[Json, Sequence[Result]], list[Json]] | None = None
    """Results of a message's own calls, where they are not written like those of another format's."""

    def header(self, body: Json) -> Header:
        """Role, tool calls and size."""
        return self.quick(body) or self.parse(body).header()

    def answer(self, call: Json, results: Sequence[Result]) -> list[Json]:
        """Messages that answer the calls of another one."""
        return self.results(call, results) if self.results else self.write([Said("tool", tuple(results))])

    def text(self, body: Json) -> str:
        """What a person would read in it."""
        return self.parse(body).text


FORMATS: dict[str, Codec] = {
    c.name: c
    for c in (
        Codec(OPENAI_CHAT, openai_chat.parse, openai_chat.write, openai_chat.quick),
        Codec("openai-responses", openai_responses.parse, openai_responses.write, results=openai_responses.results),
        Codec("anthropic", anthropic.parse, anthropic.write, join=anthropic.join, results=anthropic.results),
        Codec("acp", acp.parse, acp.write),
        Codec("pydantic-ai", pydantic_ai.parse, pydantic_ai.write, results=pydantic_ai.results),
        Codec("claude-code", claude_code.parse, claude_code.write, join=claude_code.join, results=claude_code.results),
        Codec("google-adk", google_adk.parse, google_adk.write, results=google_adk.results),
        Codec("langchain", langchain.parse, langchain.write),
        Codec(PLAIN, plain.parse, plain.write),
    )
}


def codec(format: str) -> Codec:
    try:
        return FORMATS[format]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise InvalidMessage(f"no message format {format!r}; there are: {known}") from None


def recognise(body: Json) -> str:
    """The format of a message that came without one, by what only that format has."""
    if not isinstance(body, dict):
        return PLAIN
    if "sessionUpdate" in body or ("sessionId" in body and isinstance(body.get("prompt"), list)):
        return "acp"
    if body.get("kind") in ("request", "response") and any("part_kind" in p for p in objects(body.get("parts"))):
        return "pydantic-ai"
    kinds = {str(block.get("type")) for block in objects(body.get("content"))}
    if kinds & _ANTHROPIC_BLOCKS or any("source" in b for b in objects(body.get("content"))):
        return "anthropic"
    item = body.get("type")
    if any(k.startswith(("input_", "output_")) for k in kinds) or (
        isinstance(item, str) and (item == "reasoning" or (item.endswith(("_call", "_output")) and "call_id" in body))
    ):
        return "openai-responses"
    return OPENAI_CHAT if "role" in body else PLAIN


def convert(messages: Iterable[tuple[str, Json]], format: str) -> list[Json]:
    """Messages, each with its own format, as one format says the same. Those that are of that format stay as given."""
    to = codec(format)
    written: list[Json] = []
    for there, some in groupby(messages, key=lambda m: m[0] == format):
        if there:
            written += [body for _, body in some]
        else:
            written += to.write(in_turn(codec(name).parse(body) for name, body in some))
    return to.join(written)


def no_results(format: str, call: Json, ids: Iterable[str], why: str) -> list[Json]:
    """Results for the calls of a message that will get none, in its format: no provider takes a call without one."""
    never = tuple(Result(id, f"(no result: {why})", failed=True) for id in ids)
    return codec(format).answer(call, never)


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
    data = encode(body)
    header = openai_chat.quick(body) if format in (None, OPENAI_CHAT) else None  # as most are: plain words of somebody
    if header is not None:  # and without the call that a named tuple's constructor is
        return tuple.__new__(Draft, (ids(), kind, body, data, OPENAI_CHAT, header, key, turn, actor))
    name = format or recognise(body)
    return Draft(ids(), kind, body, data, name, codec(name).header(body), key, turn, actor)


def plain_draft(body: dict[str, Json], ids: Ids) -> Draft | None:
    """The same for a chat message of plain words, as most are, and None for any other. In one piece: it is part of
    every append, and after a wait for the disk each call is slow."""
    try:
        role, text = body["role"], body["content"]
        if len(body) != 2 or type(text) is not str or type(role) is not str or role not in SPEAKERS:
            return None
        data = orjson.dumps(body).decode()
    except (KeyError, orjson.JSONEncodeError):  # the second: half a character, or a key that is more than a string
        return None
    size = len(text)
    if size > _SHORT:
        return None
    if not text.isascii():
        size = len(text.encode())
    header = plain_header(role, (size + 3) // 4)
    return tuple.__new__(Draft, (ids(), MESSAGE, body, data, OPENAI_CHAT, header, None, None, None))


__all__ = [
    "FORMATS",
    "OPENAI_CHAT",
    "PLAIN",
    "Codec",
    "codec",
    "convert",
    "draft",
    "estimate",
    "no_results",
    "plain_draft",
    "recognise",
]
