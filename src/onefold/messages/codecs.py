"""One codec per message format. A codec understands messages and can write them; it never changes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import orjson

from onefold.errors import InvalidMessage
from onefold.messages.formats import (
    acp,
    anthropic,
    claude_code,
    gemini,
    google_adk,
    langchain,
    openai_chat,
    openai_responses,
    pydantic_ai,
    raw_json,
)
from onefold.messages.formats.openai_chat import SPEAKERS
from onefold.messages.lossless_json import encode
from onefold.messages.parts import (
    ANSWERS,
    ParsedMessage,
    ToolCall,
    ToolResult,
    estimate,
    merge_into_turns,
    plain_header,
)
from onefold.messages.program_messages import by_program
from onefold.messages.tool_call_ids import CallIds, Shape, any_id, short_id, word_id
from onefold.model import MESSAGE, PROGRAM, Draft, Header, Ids, Json

OPENAI_CHAT = "openai-chat"
PLAIN = "json"

_CHAT_ONLY = frozenset({"tool_calls", "tool_call_id"})
_SHORT = 1 << 20  # so that no limit on a message's size is near


@dataclass(frozen=True, slots=True)
class Codec:
    """What the engine asks of a format."""

    name: str
    parse: Callable[[Json], ParsedMessage]
    """What a body says. Raises `InvalidMessage` for one that is not of this format."""
    write: Callable[[Sequence[ParsedMessage]], list[Json]]
    """Messages of this format that say the same."""
    quick: Callable[[Json], Header | None] = lambda _: None
    """The header, where it can be told without taking the message apart."""
    join: Callable[[list[Json]], list[Json]] = lambda messages: messages
    """A whole conversation of this format, such that its provider takes it: with those made one that have to be, and
    without what is empty."""
    takes: Callable[[Json], bool] = lambda _: False
    """Whether a message of another format is, as it stands, one of this format too, and says the same in it."""
    recognises: Callable[[dict[str, Json]], bool] = lambda _: False
    """Whether an object has what only messages of this format have."""
    id: Shape = any_id
    """What the ids of calls look like, where the provider asks for more than a string."""
    renamed: Callable[[Json, dict[str, str], dict[str, str]], Json] | None = None
    """A message with other ids for its calls and results, where the provider wants no two calls of one id."""
    results: Callable[[Json, Sequence[ToolResult]], list[Json]] | None = None
    """Results of a message's own calls, where they are not written like those of another format's."""
    unthought: Callable[[Json], Json | None] = lambda body: body
    """A message without what the model thought, signatures included; None if that is all there is in it. One that has
    no reasoning is the same object."""
    adrift: Callable[[Json], Json] = lambda body: body
    """An item of an answer whose reasoning is not sent any more, where an item refers to it: without that."""
    masked: Callable[[Json, Mapping[str, str]], Json] | None = None
    """A message with other words in place of results, by the ids of their calls; where it cannot say so, as it is."""

    def header(self, body: Json) -> Header:
        """Role, tool calls and size."""
        return self.quick(body) or self.parse(body).header()

    def answer(self, call: Json, results: Sequence[ToolResult]) -> list[Json]:
        """Messages that answer the calls of another one."""
        return self.results(call, results) if self.results else self.write([ParsedMessage("tool", tuple(results))])

    def text(self, body: Json) -> str:
        """What a person would read in it."""
        return self.parse(body).text


FORMATS: dict[str, Codec] = {
    c.name: c
    for c in (
        Codec("acp", acp.parse, acp.write, recognises=acp.recognises, unthought=acp.unthought, masked=acp.masked),
        Codec(
            "pydantic-ai",
            pydantic_ai.parse,
            pydantic_ai.write,
            recognises=pydantic_ai.recognises,
            id=word_id,
            results=pydantic_ai.results,
            unthought=pydantic_ai.unthought,
            masked=pydantic_ai.masked,
        ),
        Codec(
            "langchain",
            langchain.parse,
            langchain.write,
            join=langchain.join,
            recognises=langchain.recognises,
            id=word_id,
            unthought=langchain.unthought,
            masked=langchain.masked,
        ),
        Codec(
            "claude-code",
            claude_code.parse,
            claude_code.write,
            join=claude_code.join,
            recognises=claude_code.recognises,
            id=word_id,
            results=claude_code.results,
            unthought=claude_code.unthought,
            masked=claude_code.masked,
        ),
        Codec(
            "google-adk",
            google_adk.parse,
            google_adk.write,
            join=google_adk.join,
            recognises=google_adk.recognises,
            results=google_adk.results,
            unthought=google_adk.unthought,
            masked=google_adk.masked,
        ),
        Codec(
            "gemini",
            gemini.parse,
            gemini.write,
            join=gemini.join,
            recognises=gemini.recognises,
            results=gemini.results,
            unthought=gemini.unthought,
            masked=gemini.masked,
        ),
        Codec(
            "openai-responses",
            openai_responses.parse,
            openai_responses.write,
            join=openai_responses.join,
            takes=openai_responses.takes,
            recognises=openai_responses.recognises,
            id=short_id(64),
            renamed=openai_responses.renamed,
            results=openai_responses.results,
            unthought=openai_responses.unthought,
            adrift=openai_responses.adrift,
            masked=openai_responses.masked,
        ),
        Codec(
            "anthropic",
            anthropic.parse,
            anthropic.write,
            join=anthropic.join,
            takes=anthropic.takes,
            recognises=anthropic.recognises,
            id=word_id,
            renamed=anthropic.renamed,
            results=anthropic.results,
            unthought=anthropic.unthought,
            masked=anthropic.masked,
        ),
        Codec(
            OPENAI_CHAT,
            openai_chat.parse,
            openai_chat.write,
            openai_chat.quick,
            join=openai_chat.join,
            takes=openai_chat.takes,
            recognises=openai_chat.recognises,
            id=short_id(40),
            unthought=openai_chat.unthought,
            masked=openai_chat.masked,
        ),
        Codec(PLAIN, raw_json.parse, raw_json.write),
    )
}
"""In the order in which a message is tried for their marks: those that are surest first."""


def codec(format: str) -> Codec:
    try:
        return FORMATS[format]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise InvalidMessage(f"no message format {format!r}; there are: {known}") from None


def detect_format(body: Json) -> str:
    """The format of a message that came without one, by what only that format has."""
    if not isinstance(body, dict):
        return PLAIN
    if "role" in body and (
        not body.keys().isdisjoint(_CHAT_ONLY) or (type(body.get("content")) is str and "type" not in body)
    ):
        return OPENAI_CHAT  # as most are that say nothing of their format
    return next((c.name for c in FORMATS.values() if c.recognises(body)), PLAIN)


def convert(messages: Iterable[tuple[str, Json]], format: str) -> list[Json]:
    """Messages, each with its own format, as one format says the same. Those that are of that format stay as given, but
    for what its provider would refuse: an id that another call has, a text without words, an order it does not take."""
    to = codec(format)
    ids = CallIds(to.id)
    written: list[Json] = []
    told = [(name == format, _told(name, body)) for name, body in messages]
    for there, some in groupby(_in_time(told), key=lambda m: m[0]):
        if there:
            written += [_given(to, one, ids) for _, one in some]
        else:
            answers = ids.of(merge_into_turns(one for _, one in some))
            for taken, alike in groupby(answers, key=lambda s: s.source is not None and to.takes(s.source)):
                run = [*alike]
                written += [s.source for s in run] if taken else to.write(run)
    return to.join(written)


def _told(name: str, body: Json) -> ParsedMessage:
    said = codec(name).parse(body)
    return ParsedMessage(said.role, said.parts, body)


def _in_time(told: list[tuple[bool, ParsedMessage]]) -> Iterable[tuple[bool, ParsedMessage]]:
    """The same, where messages that stay as they are stand among others: one of those others that has calls and their
    results in one, as a provider runs them, is told when what was called before it is answered."""
    if len({stays for stays, _ in told}) < 2:
        yield from told
        return
    waiting: set[str] = set()
    held: list[tuple[bool, ParsedMessage]] = []
    for stays, one in told:
        made = {p.id for p in one.parts if isinstance(p, ToolCall)}
        over = {p.id for p in one.parts if isinstance(p, ToolResult)}
        if waiting and made and made <= over and not stays and one.role in ANSWERS:
            held.append((stays, one))
            continue
        yield stays, one
        waiting = (waiting | made) - over
        if not waiting:
            yield from held
            held.clear()
    yield from held


def _given(to: Codec, one: ParsedMessage, ids: CallIds) -> Json:
    calls, results = ids.given(one, stays=to.renamed is None)
    return to.renamed(one.source, calls, results) if to.renamed is not None and (calls or results) else one.source


def placeholder_results(format: str, call: Json, ids: Iterable[str], why: str) -> list[Json]:
    """Results for the calls of a message that will get none, in its format: no provider takes a call without one."""
    never = tuple(ToolResult(id, f"(no result: {why})", failed=True) for id in ids)
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
    program: bool = False,
) -> Draft:
    """A message made ready for the journal. `program`: no person says it, though it stands in a user's place."""
    data = encode(body)
    header = openai_chat.quick(body) if format in (None, OPENAI_CHAT) else None  # as most are: plain words of somebody
    if header is not None and not program:  # and without the call that a named tuple's constructor is
        return tuple.__new__(Draft, (ids(), kind, body, data, OPENAI_CHAT, header, key, turn, actor))
    name = format or detect_format(body)
    header = codec(name).header(body)
    if header.role == "user" and (program or by_program(name, body)):
        header = replace(header, role=PROGRAM)
    return Draft(ids(), kind, body, data, name, header, key, turn, actor)


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
    "detect_format",
    "draft",
    "estimate",
    "placeholder_results",
    "plain_draft",
]
