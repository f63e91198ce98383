"""What stands for a result that is masked, in every format: one line, and everything else as it was."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.messages import FORMATS, convert
from onefold.messages.parts import ToolCall, ToolResult
from onefold.messages.result_mask import is_line, is_rendered, line, masked
from onefold.model import Json

LONG = "a line of what the tool said\n" * 40
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def adk(response: Json, **more: Json) -> Json:
    answer = {"id": "c1", "name": "look", "response": response, **more}
    return {"author": "model", "content": {"role": "user", "parts": [{"function_response": answer}]}}


RESULTS: dict[str, tuple[str, Json]] = {
    "chat": ("openai-chat", {"role": "tool", "tool_call_id": "c1", "content": LONG}),
    "chat, in parts": (
        "openai-chat",
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": LONG}, {"type": "text", "text": "b"}],
        },
    ),
    "chat, by a function's name": ("openai-chat", {"role": "function", "name": "look", "content": LONG}),
    "responses": ("openai-responses", {"type": "function_call_output", "call_id": "c1", "output": LONG}),
    "responses, in parts": (
        "openai-responses",
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": LONG}]},
    ),
    "responses, custom": ("openai-responses", {"type": "custom_tool_call_output", "call_id": "c1", "output": LONG}),
    "responses, a shell": (
        "openai-responses",
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": LONG, "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}],
        },
    ),
    "anthropic": (
        "anthropic",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": LONG, "is_error": True}]},
    ),
    "anthropic, in blocks": (
        "anthropic",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": LONG}]},
                {"type": "tool_result", "tool_use_id": "c2", "content": "short"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ),
    "claude code": (
        "claude-code",
        {
            "type": "user",
            "uuid": "u1",
            "sessionId": "s",
            "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": LONG}]},
            "toolUseResult": {"stdout": LONG},
        },
    ),
    "langchain": (
        "langchain",
        {
            "type": "tool",
            "data": {
                "type": "tool",
                "content": LONG,
                "tool_call_id": "c1",
                "status": "error",
                "id": "m1",
                "artifact": [1],
            },
        },
    ),
    "pydantic ai": (
        "pydantic-ai",
        {
            "kind": "request",
            "parts": [
                {"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "c1", "content": LONG},
                {"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "c2", "content": {"rows": [LONG]}},
            ],
        },
    ),
    "pydantic ai, a retry": (
        "pydantic-ai",
        {
            "kind": "request",
            "parts": [{"part_kind": "retry-prompt", "tool_name": "look", "tool_call_id": "c1", "content": LONG}],
        },
    ),
    "adk": ("google-adk", adk({"result": LONG})),
    "adk, data of its own": ("google-adk", adk({"rows": [LONG, LONG], "next": None})),
    "adk, an error": ("google-adk", adk({"error": LONG})),
    "gemini": (
        "gemini",
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": LONG}}}]},
    ),
    "acp": (
        "acp",
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c1",
            "status": "failed",
            "content": [{"type": "content", "content": {"type": "text", "text": LONG}}],
            "rawOutput": {"text": LONG},
        },
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_line_stands_for_the_words_of_a_result_and_all_else_stays(name: str) -> None:
    format, body = RESULTS[name]
    codec, before = FORMATS[format], deepcopy(body)
    made = masked(format, body, 45)
    assert made is not None
    assert body == before, "what is stored is not touched"
    was, now = codec.parse(body), codec.parse(made)
    header = codec.header(made)
    assert (now.role, header.result_ids, header.call_ids) == (
        was.role,
        codec.header(body).result_ids,
        codec.header(body).call_ids,
    )
    assert header.tokens < codec.header(body).tokens / 2
    for one, other in zip(was.parts, now.parts, strict=True):
        if isinstance(one, ToolResult) and one.text != "short":
            assert isinstance(other, ToolResult)
            assert (one.id, one.failed, one.name) == (other.id, other.failed, other.name)
            assert "#45" in other.text
            assert "first=45" in other.text
            assert "of what the tool said" not in other.text
        else:
            assert one == other
    assert masked(format, made, 45) is None, "a line stands for itself"


@pytest.mark.parametrize("name", RESULTS)
def test_what_stands_for_a_result_is_known_also_if_somebody_changed_it(name: str) -> None:
    format, body = RESULTS[name]
    made = masked(format, body, 45)
    assert made is not None
    changed = json.loads(json.dumps(made).replace("[The result", "Seen: [The result").replace(" to save room", ""))
    alone = name != "anthropic, in blocks"  # a person's words are beside the results, and they are heard
    assert is_rendered(format, made) == is_rendered(format, changed) == alone
    assert not is_rendered(format, body)


def test_words_of_a_person_and_of_a_format_that_nobody_knows_are_no_line() -> None:
    said = line(45, 1_000)
    assert not is_rendered("openai-chat", {"role": "user", "content": said})
    assert not is_rendered("of-tomorrow", {"role": "tool", "content": said})
    assert not is_rendered("openai-chat", {"content": said})


@pytest.mark.parametrize("name", RESULTS)
def test_a_masked_result_is_told_in_every_other_format(name: str) -> None:
    format, body = RESULTS[name]
    made = masked(format, body, 45)
    assert made is not None
    for other in FORMATS:
        told = str(convert([(format, made)], other))
        assert "#45" in told
        assert "of what the tool said" not in told


WHOLE: dict[str, tuple[str, Json]] = {
    "short": ("openai-chat", {"role": "tool", "tool_call_id": "c1", "content": "42"}),
    "an image": (
        "anthropic",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": LONG}, IMAGE]}
            ],
        },
    ),
    "an image beside it": (
        "anthropic",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": LONG}, IMAGE]},
    ),
    "an image in chat": (
        "openai-chat",
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [
                {"type": "text", "text": LONG},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
    ),
    "a screenshot": (
        "openai-responses",
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="},
        },
    ),
    "a file with a function's answer": (
        "google-adk",
        adk({"result": LONG}, parts=[{"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}}]),
    ),
    "a picture of pydantic's": (
        "pydantic-ai",
        {
            "kind": "request",
            "parts": [
                {
                    "part_kind": "tool-return",
                    "tool_name": "look",
                    "tool_call_id": "c1",
                    "content": [LONG, {"kind": "image-url", "url": "https://example.org/a.png"}],
                }
            ],
        },
    ),
    "words of a user": ("openai-chat", {"role": "user", "content": LONG}),
    "any JSON": ("json", {"role": "tool", "content": LONG}),
    "a format that nobody knows": ("of-tomorrow", {"role": "tool", "content": LONG}),
    "what is none of its format": ("openai-chat", {"content": LONG}),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_long_text_of_a_tool_is_not_masked(name: str) -> None:
    assert masked(*WHOLE[name], 45) is None


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_line_is_known_for_one(number: int, tokens: int) -> None:
    said = line(number, tokens)
    assert is_line(said)
    assert not is_line(said + "x")
    assert not is_line({"text": said})


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(RESULTS)), JSONS)
def test_whatever_a_tool_gives_is_masked_or_left_as_it_is(name: str, content: Json) -> None:
    """Whatever stands where the words would be: never an error, and what comes out answers the same calls."""
    format, body = deepcopy(RESULTS[name])
    for holder in (
        body,
        body.get("data"),
        *body.get("parts", ()),
        *([body["content"]] if isinstance(body.get("content"), dict) else ()),
    ):
        for key in ("content", "output", "response"):
            if isinstance(holder, dict) and key in holder and not isinstance(holder[key], dict):
                holder[key] = content
    made = masked(format, body, 7)
    if made is not None:
        was, now = FORMATS[format].parse(body), FORMATS[format].parse(made)
        ids = [[p.id for p in said.parts if isinstance(p, ToolResult | ToolCall)] for said in (was, now)]
        assert ids[0] == ids[1]
