"""Messages of every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import hypothesis.strategies as st

import onefold
from onefold import Context
from onefold.messages import codec
from onefold.messages.parts import MediaPart, TextPart, ToolCall, ToolResult
from onefold.model import Json
from tests.conftest import CountedIds, StoppedClock

PICTURE = "data:image/png;base64,iVBORw0KGgo="
WITH_CALLS = ["openai-chat", "openai-responses", "anthropic", "acp"]
"""Those of providers. Those of frameworks are in test_formats_frameworks.py."""


# ---------------------------------------------------------------------- one conversation, as each format says it


def in_chat(n: int = 0, pad: str = "") -> list[Json]:
    def made(id: str, path: str) -> Json:
        return {"id": id, "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{path}"}}'}}

    return [
        {"role": "user", "content": f"Why does it fail? {pad}"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [made(f"a{n}", "a.txt"), made(f"b{n}", "b.txt")]},
        {"role": "tool", "tool_call_id": f"a{n}", "content": f"log a {pad}"},
        {"role": "tool", "tool_call_id": f"b{n}", "content": f"log b {pad}"},
        {"role": "assistant", "content": "It needs the network."},
    ]


def in_responses(n: int = 0, pad: str = "") -> list[Json]:
    def made(id: str, path: str) -> Json:
        return {"type": "function_call", "call_id": id, "name": "read", "arguments": f'{{"path": "{path}"}}'}

    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Why does it fail? {pad}"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]},
        {"type": "reasoning", "id": f"r{n}", "summary": [{"type": "summary_text", "text": "Look first."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        made(f"a{n}", "a.txt"),
        made(f"b{n}", "b.txt"),
        {"type": "function_call_output", "call_id": f"a{n}", "output": f"log a {pad}"},
        {
            "type": "function_call_output",
            "call_id": f"b{n}",
            "output": [{"type": "input_text", "text": f"log b {pad}"}],
        },
        {"type": "reasoning", "id": f"s{n}", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It needs the network."}]},
    ]


def in_anthropic(n: int = 0, pad: str = "") -> list[Json]:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    return [
        {"role": "user", "content": f"Why does it fail? {pad}"},
        {"role": "user", "content": [{"type": "image", "source": source}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look first.", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": f"a{n}", "name": "read", "input": {"path": "a.txt"}},
                {"type": "tool_use", "id": f"b{n}", "name": "read", "input": {"path": "b.txt"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": f"a{n}", "content": f"log a {pad}"},
                {"type": "tool_result", "tool_use_id": f"b{n}", "content": [{"type": "text", "text": f"log b {pad}"}]},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It needs the network."}]},
    ]


def in_acp(n: int = 0, pad: str = "") -> list[Json]:
    def chunk(kind: str, text: str) -> Json:
        return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}

    def update(id: str, status: str, *texts: str, **more: Json) -> Json:
        content = [{"type": "content", "content": {"type": "text", "text": text}} for text in texts]
        shown = {"content": content} if texts else {}
        return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, **shown, **more}

    return [
        chunk("user_message_chunk", f"Why does it fail? {pad}"),
        {
            "sessionUpdate": "user_message_chunk",
            "content": {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
        },
        chunk("agent_thought_chunk", "Look first."),
        chunk("agent_message_chunk", "I look."),
        {
            "sessionUpdate": "tool_call",
            "toolCallId": f"a{n}",
            "title": "read",
            "status": "pending",
            "rawInput": {"path": "a.txt"},
        },
        update(f"a{n}", "in_progress"),
        {"sessionUpdate": "tool_call", "toolCallId": f"b{n}", "title": "read", "status": "pending"},
        {"sessionUpdate": "plan", "entries": []},
        update(f"b{n}", "in_progress", f"log b {pad}", rawInput={"path": "b.txt"}),
        update(f"a{n}", "completed", f"log a {pad}"),
        update(f"b{n}", "completed"),
        chunk("agent_message_chunk", "It needs the network."),
    ]


TURNS: dict[str, Callable[[int, str], list[Json]]] = {
    "openai-chat": in_chat,
    "openai-responses": in_responses,
    "anthropic": in_anthropic,
    "acp": in_acp,
}


TOLD = [
    ("user", "Why does it fail? "),
    ("picture", PICTURE),
    ("assistant", "I look."),
    ("call", "a0", "read", {"path": "a.txt"}),
    ("call", "b0", "read", {"path": "b.txt"}),
    ("result", "a0", "log a "),
    ("result", "b0", "log b "),
    ("assistant", "It needs the network."),
]

_SPEAKERS = {"agent": "assistant", "call": "assistant", "reasoning": "assistant", "tool": "user", "developer": "system"}


def told(format: str, messages: list[Json]) -> list[tuple[Json, ...]]:
    """Everything that is said in messages of one format, in order, with reasoning left out."""
    events: list[tuple[Json, ...]] = []
    for said in map(codec(format).parse, messages):
        for part in said.parts:
            match part:
                case TextPart(text):
                    events.append((_SPEAKERS.get(said.role, said.role), text))
                case ToolCall(id, name, arguments):
                    events.append(("call", id, name, json.loads(arguments)))
                case ToolResult(id, text):
                    events.append(("result", id, text))
                case MediaPart(_, url):
                    events.append(("picture", url))
    return events


class Mentions(NamedTuple):
    calls: list[str]
    results: list[str]


def mentions(message: Json) -> Mentions:
    """The calls a message makes and answers, read without a codec: by the fields that each provider documents."""
    content = message.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    kind, update = message.get("type"), message.get("sessionUpdate")
    calls = [c["id"] for c in message.get("tool_calls", ())]
    calls += [b["id"] for b in blocks if b.get("type") == "tool_use"]
    calls += [message["call_id"]] if kind == "function_call" else []
    calls += [message["toolCallId"]] if update == "tool_call" else []
    results = [message["tool_call_id"]] if message.get("role") == "tool" else []
    results += [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
    results += [message["call_id"]] if kind == "function_call_output" else []
    over = message.get("status") in ("completed", "failed")
    results += [message["toolCallId"]] if update == "tool_call_update" and over else []
    return Mentions(calls, results)


def check_pairs(messages: list[Json]) -> None:
    """Every call has exactly one result, after it; and reasoning is followed by what it led to."""
    made: list[str] = []
    answered: list[str] = []
    for message, behind in zip(messages, [*messages[1:], None], strict=True):
        calls, results = mentions(message)
        made += calls
        answered += results
        assert {*results} <= {*made}
        if message.get("type") == "reasoning":
            assert behind is not None
            assert behind.get("type") == "function_call" or behind.get("role") == "assistant"
    assert sorted(made) == sorted(answered)
    assert len({*made}) == len(made)


def check_strict(format: str, messages: list[Json]) -> None:
    """Results come right behind the answer that called, as the provider of this format demands."""
    check_pairs(messages)
    waiting: list[str] = []
    for message in messages:
        calls, results = mentions(message)
        if format in ("openai-chat", "anthropic"):
            assert not waiting or results, "the results come before anything else"
        if format == "anthropic":
            assert sorted(results) == sorted(waiting), "all results of one answer are in the next message"
            kinds = [b["type"] == "tool_result" for b in message["content"] if isinstance(b, dict)]
            assert kinds == sorted(kinds, reverse=True), "and stand first there"
        waiting = [*(id for id in waiting if id not in results), *calls]
    if format == "anthropic":
        roles = [m["role"] for m in messages if m["role"] != "system"]
        assert all(one != other for one, other in pairwise(roles))


_WORDS = [
    *("user", "assistant", "system", "tool", "function", "message", "reasoning", "text", "image", "image_url"),
    *("function_call", "function_call_output", "tool_use", "tool_result", "thinking", "document", "input_image"),
    *("tool_call", "tool_call_update", "agent_message_chunk", "agent_thought_chunk", "plan", "completed", "failed"),
    *("base64", "", "\ud800", "data:;base64,"),
]
_KEYS = [
    *("role", "content", "type", "text", "id", "name", "input", "output", "arguments", "call_id", "tool_calls", "url"),
    *("function", "function_call", "tool_call_id", "tool_use_id", "source", "data", "image_url", "summary", "action"),
    *("sessionUpdate", "toolCallId", "status", "title", "rawInput", "rawOutput", "prompt", "resource", "newText"),
]
_shapes = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(_WORDS),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, min_size=1, max_size=5)
    ),
    max_leaves=15,
)
_openings = st.sampled_from(
    [
        *({"role": role} for role in ("user", "assistant", "tool", "function", "system")),
        *({"type": kind, "call_id": "a"} for kind in ("function_call", "function_call_output", "computer_call")),
        *({"type": kind} for kind in ("reasoning", "web_search_call")),
        *({"sessionUpdate": kind} for kind in ("agent_message_chunk", "agent_thought_chunk", "plan")),
        *({"sessionUpdate": kind, "toolCallId": "a"} for kind in ("tool_call", "tool_call_update")),
    ]
)
_fuzz = st.one_of(
    _shapes,
    st.builds(
        lambda body, opening: {**body, **opening},
        st.dictionaries(st.sampled_from(_KEYS), _shapes, max_size=5),
        _openings,
    ),
)


# ---------------------------------------------------------------------- told in another format


def context_of(format: str, messages: list[Json]) -> Context:
    with onefold.open("memory:", clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        session.append(messages, format=format)
        return session.context()
