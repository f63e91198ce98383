"""A message that came without a format is told in its own as it was given, whatever its shape."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import onefold
from onefold.messages import FORMATS, detect_format
from onefold.model import Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.detection import SHAPES


def told(format: str, *messages: Json) -> list[Json]:
    """A conversation without a word on its format, told in it; without the line before what a model said first."""
    with onefold.open("memory:", clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        session.append(list(messages))
        return session.context().to(format)[-len(messages) :]


def test_every_format_but_any_json_has_its_shapes_here() -> None:
    assert {*SHAPES} == {*FORMATS} - {"json"}


@pytest.mark.parametrize("format", SHAPES)
@given(data=st.data())
@settings(max_examples=150)
def test_a_message_without_a_format_is_told_in_its_own_as_it_was_given(format: str, data: st.DataObject) -> None:
    body = data.draw(SHAPES[format])

    assert told(format, body) == [body], f"taken for {detect_format(body)}"


CALLS: list[tuple[str, Json, Json]] = [
    (
        "openai-chat",
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
    ),
    (
        "openai-chat",
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ),
    *(
        (
            "openai-responses",
            {"type": kind, "call_id": "a", "id": "i_1", "status": "completed", "name": "f", "action": {}},
            {"type": f"{kind}_output", "call_id": "a", "output": "x"},
        )
        for kind in (
            "function_call",
            "custom_tool_call",
            "computer_call",
            "shell_call",
            "apply_patch_call",
            "local_shell_call",
        )
    ),
    (
        "openai-responses",
        {"type": "program", "id": "p_1", "call_id": "a", "code": "1", "fingerprint": "x"},
        {"type": "program_output", "id": "o_1", "call_id": "a", "result": "1", "status": "completed"},
    ),
    (
        "openai-responses",
        {"type": "tool_search_call", "call_id": "a", "arguments": {}, "execution": "client"},
        {"type": "tool_search_output", "call_id": "a", "tools": [], "execution": "client"},
    ),
    (
        "openai-responses",
        {"type": "mcp_approval_request", "id": "a", "name": "f", "arguments": "{}", "server_label": "s"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    ),
    ("openai-responses", {"type": "reasoning", "summary": []}, {"type": "web_search_call", "id": "ws_1"}),
    (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
    ),
    (
        "gemini",
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"n": 1}}}]},
    ),
]


@pytest.mark.parametrize(("format", "call", "result"), CALLS)
def test_a_call_and_its_result_without_a_format_are_told_as_they_were_given(
    format: str, call: Json, result: Json
) -> None:
    assert told(format, call, result) == [call, result]


@pytest.mark.parametrize(
    "body",
    [
        {"type": "order", "id": "o_1", "total": 5},
        {"type": "function_call", "name": "f"},
        {"type": "function_call_output", "output": "x"},
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"author": "somebody", "text": "a review"},
        {"type": "human", "data": {"age": 3}},
        {"message": "hello", "type": "user"},
        {"parts": []},
        {"type": ["reasoning"]},
    ],
)
def test_what_has_the_marks_of_no_format_is_kept_as_any_json(body: Json) -> None:
    assert detect_format(body) == "json"
