"""What is particular to Anthropic's models."""

from __future__ import annotations

import json
import os

import pytest

from onefold.errors import SummarizerFailed
from onefold.model import Json, Usage
from onefold.summarizers import AnthropicSummarizer
from tests.support.model_server import ModelServer, Reply, breaks, cuts, fails, material, raw, says

GOOD = "## Goal\nMend the build.\n\n## Next step\nRun the tests."


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor a key of whoever runs the tests."""
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)


def events(*bodies: Json) -> Reply:
    return raw("".join(f"event: {b['type']}\ndata: {json.dumps(b)}\n\n" for b in bodies).encode())


START = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "usage": {"input_tokens": 10, "output_tokens": 1},
}


def test_a_request_has_the_model_a_limit_and_the_rules_as_system_prompt() -> None:
    with ModelServer(says(GOOD)) as server:
        AnthropicSummarizer("m", base_url=server.anthropic, body={"temperature": 0})(material("Mend it."))

    sent = server.requests[0]
    assert sent.path == "/v1/messages"
    assert [m["role"] for m in sent.body["messages"]] == ["user"]
    assert "Mend it." not in sent.body["system"]
    assert (sent.body["max_tokens"], sent.body["stream"], sent.body["temperature"]) == (4_400, True, 0)


def test_a_key_in_the_environment_is_used_for_anthropic_and_sent_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "for-anthropic-only")
    with ModelServer(says(GOOD), says(GOOD)) as server:
        AnthropicSummarizer("m", base_url=server.anthropic)(material("Mend it."))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic)
        AnthropicSummarizer("m")(material("Mend it."))

    assert ["for-anthropic-only" in str(r.headers) for r in server.requests] == [False, True]


def test_what_was_read_from_a_cache_is_counted_as_input() -> None:
    cached = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3_000}
    reply = events(
        {"type": "message_start", "message": {**START, "usage": {**cached, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": GOOD}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 30}},
        {"type": "message_stop"},
    )
    with ModelServer(reply) as server:
        made = AnthropicSummarizer("m", base_url=server.anthropic, price=(1.0, 10.0))(material("Mend it."))

    assert made.spent == Usage(1, 3_210, 30, 0.00351)


def test_what_the_model_thinks_is_no_part_of_the_summary() -> None:
    reply = events(
        {"type": "message_start", "message": START},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "What do they want?"},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": GOOD}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 30}},
    )
    with ModelServer(reply) as server:
        assert AnthropicSummarizer("m", base_url=server.anthropic)(material("Mend it.")).text == GOOD


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_an_answer_that_ran_out_of_room_is_marked(reason: str) -> None:
    with ModelServer(says("## Goal", stop=reason)) as server:
        assert AnthropicSummarizer("m", base_url=server.anthropic)(material("Mend it.")).cut_off


def test_a_connection_that_was_cut_has_its_input_counted_as_the_provider_said() -> None:
    with ModelServer(cuts("word " * 8)) as server, pytest.raises(SummarizerFailed) as caught:
        AnthropicSummarizer("m", base_url=server.anthropic, retries=0)(material("Mend it."))

    assert (caught.value.kind, caught.value.spent) == ("unavailable", Usage(1, 100, 10))


@pytest.mark.parametrize(
    ("code", "kind", "final"),
    [
        ("overloaded_error", "unavailable", False),
        ("rate_limit_error", "rate limit", False),
        ("authentication_error", "setup", True),
        ("request_too_large", "overflow", True),
    ],
)
def test_an_error_in_mid_stream_is_sorted_by_its_name(code: str, kind: str, final: bool) -> None:
    with ModelServer(otherwise=breaks("## Go", code=code)) as server, pytest.raises(SummarizerFailed) as caught:
        AnthropicSummarizer("m", base_url=server.anthropic, retries=0)(material("Mend it."))

    assert (caught.value.kind, caught.value.final) == (kind, final)


def test_an_account_without_credit_is_final_though_it_comes_as_a_bad_request() -> None:
    with (
        ModelServer(fails(400, "Your credit balance is too low", code="invalid_request_error")) as server,
        pytest.raises(SummarizerFailed, match="see to the account") as caught,
    ):
        AnthropicSummarizer("m", base_url=server.anthropic)(material("Mend it."))

    assert caught.value.final


def test_no_key_is_said_at_once() -> None:
    with pytest.raises(SummarizerFailed, match="set ANTHROPIC_API_KEY") as caught:
        AnthropicSummarizer("m")(material("Mend it."))

    assert (caught.value.kind, caught.value.final) == ("setup", True)
