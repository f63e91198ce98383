"""The model that tests use, asked by the real clients of OpenAI and Anthropic in every dialect it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest
from anthropic.types import Message
from openai.types.responses import Response

from tests.support.model_server import Call, ModelServer, calls, says

CALL = Call("look", {"where": "here"})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(says("Hel", "lo", usage=(7, 3)), calls(CALL, usage=(9, 4))) as made:
        yield made


@pytest.fixture
def gpt(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.openai, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server: ModelServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.anthropic, api_key="k", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_responses_are_said_called_and_counted(gpt: openai.OpenAI, streams: bool) -> None:
    made: list[Response] = []
    for _ in range(2):
        if streams:
            with gpt.responses.stream(model="m", input="hello") as stream:
                made.append(stream.get_final_response())
        else:
            made.append(gpt.responses.create(model="m", input="hello"))

    said, called = made
    assert said.output_text == "Hello"
    assert said.status == "completed"
    assert said.usage is not None
    assert (said.usage.input_tokens, said.usage.output_tokens) == (7, 3)
    (item,) = called.output
    assert item.type == "function_call"
    assert (item.name, item.arguments, item.call_id) == ("look", '{"where": "here"}', "call_1")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_chats_call_tools(gpt: openai.OpenAI, streams: bool) -> None:
    gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
    if streams:
        with gpt.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hello"}]) as stream:
            choice = stream.get_final_completion().choices[0]
            call = (choice.message.tool_calls or [])[0]
            name, arguments, reason = call.function.name, call.function.arguments, choice.finish_reason
    else:
        whole = gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}]).choices[0]
        made = (whole.message.tool_calls or [])[0]
        assert made.type == "function"
        name, arguments, reason = made.function.name, made.function.arguments, whole.finish_reason

    assert (name, arguments, reason) == ("look", '{"where": "here"}', "tool_calls")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_messages_call_tools_and_tokens_are_counted(
    claude: anthropic.Anthropic, server: ModelServer, streams: bool
) -> None:
    counted = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hello"}])
    claude.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}])
    message: Message
    if streams:
        with claude.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}]) as stream:
            message = stream.get_final_message()
    else:
        message = claude.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}])

    assert counted.input_tokens > 0
    assert message.stop_reason == "tool_use"
    call = message.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("look", {"where": "here"})
    assert len(server.requests) == 2


def test_models_and_vectors_are_there_for_who_asks(gpt: openai.OpenAI, server: ModelServer) -> None:
    assert [model.id for model in gpt.models.list()] == ["model"]
    vectors = gpt.embeddings.create(model="m", input=["a", "b"], dimensions=4, encoding_format="float")

    assert [len(v.embedding) for v in vectors.data] == [4, 4]
    assert server.looked == ["/v1/models"]
    assert server.requests == []
