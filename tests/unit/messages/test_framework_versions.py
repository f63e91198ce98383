"""Messages as frameworks write them: what belongs together in them, and how they are told in other formats."""

from __future__ import annotations

from typing import Any

import pytest

import onefold
from onefold import InvalidMessage
from onefold.messages import codec, convert, detect_format
from onefold.model import Header, Json


def request(*parts: Json) -> Json:
    return {"kind": "request", "parts": list(parts)}


def response(*parts: Json) -> Json:
    return {"kind": "response", "parts": list(parts)}


def prompt(content: Json) -> Json:
    return {"part_kind": "user-prompt", "content": content}


def system(content: str) -> Json:
    return {"part_kind": "system-prompt", "content": content}


def called(id: str, args: Json = None) -> Json:
    return {"part_kind": "tool-call", "tool_name": "read", "args": args, "tool_call_id": id}


def returned(id: str, content: Json = "x", **more: Json) -> Json:
    return {"part_kind": "tool-return", "tool_name": "read", "content": content, "tool_call_id": id, **more}


def text(content: str) -> Json:
    return {"part_kind": "text", "content": content}


def head(body: Json) -> Header:
    return codec("pydantic-ai").header(body)


@pytest.mark.parametrize(
    ("body", "role", "opens", "closes"),
    [
        (request(prompt("Why?")), "user", (), ()),
        (request(system("Be brief.")), "system", (), ()),
        (request(system("Be brief."), prompt("Why?")), "user", (), ()),
        (request(returned("a"), returned("b")), "tool", (), ("a", "b")),
        (request(returned("a"), prompt("And?")), "user", (), ("a",)),
        (
            request({"part_kind": "retry-prompt", "content": "no", "tool_name": "read", "tool_call_id": "a"}),
            "tool", (), ("a",),
        ),
        (request({"part_kind": "retry-prompt", "content": "no", "tool_name": None}), "user", (), ()),
        (response(text("It fails.")), "assistant", (), ()),
        (response({"part_kind": "thinking", "content": "Hm."}, called("a"), called("b")), "assistant", ("a", "b"), ()),
        (response({"part_kind": "builtin-tool-call", "tool_name": "web", "tool_call_id": "n"}), "assistant", (), ()),
    ],
)  # fmt: skip
def test_a_message_of_pydantic_ai_says_who_speaks_and_what_it_calls_and_answers(
    body: Json, role: str, opens: tuple[str, ...], closes: tuple[str, ...]
) -> None:
    assert (head(body).role, head(body).call_ids, head(body).result_ids) == (role, opens, closes)
    assert detect_format(body) == "pydantic-ai"


def test_the_system_prompt_that_each_run_gives_anew_is_not_counted() -> None:
    alone = request(prompt("Why?"))

    assert head(request(system("Be brief. " * 500), prompt("Why?"))).tokens == head(alone).tokens


def test_a_picture_counts_and_a_tools_own_data_is_read_as_json() -> None:
    shown = [{"kind": "image-url", "url": "https://example.org/a.png"}, {"kind": "binary", "media_type": "image/png"}]

    assert head(request(prompt(["Look.", *shown]))).tokens > 2_000
    assert codec("pydantic-ai").text(request(returned("a", {"kind": "cat", "lives": 9}))) == '{"kind":"cat","lives":9}'


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ({"role": "user", "content": "x"}, "of the kind 'request' or 'response', not None"),
        ([], "not None"),
        (response({"part_kind": "tool-call", "tool_name": "read"}), "needs a string tool_call_id"),
        (request({"part_kind": "tool-return", "tool_name": "read"}), "needs the tool_call_id it answers"),
    ],
)
def test_what_is_no_message_of_pydantic_ai_is_refused(body: Json, match: str) -> None:
    with pytest.raises(InvalidMessage, match=match):
        head(body)


def test_a_conversation_of_pydantic_ai_is_told_in_other_formats_and_back() -> None:
    talk = [
        request(system("Be brief."), prompt("Why?")),
        response(text("I look."), called("a", {"path": "log"})),
        request(returned("a", "no network")),
        response(text("The network.")),
    ]

    chat = convert([("pydantic-ai", body) for body in talk], "openai-chat")
    assert [m["role"] for m in chat] == ["user", "assistant", "tool", "assistant"]
    assert chat[1]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"log"}'}

    back = convert([("openai-chat", m) for m in chat], "pydantic-ai")
    assert [[p["part_kind"] for p in m["parts"]] for m in back] == [
        ["user-prompt"], ["text", "tool-call"], ["tool-return"], ["text"]
    ]  # fmt: skip
    assert back[2]["parts"][0]["tool_name"] == "read"


def test_results_stand_behind_their_call_though_another_provider_answered_in_between() -> None:
    served = [
        {"type": "server_tool_use", "id": "w", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "w", "content": []},
        {"type": "text", "text": "found"},
    ]
    talk: list[tuple[str, Json]] = [
        ("pydantic-ai", response(called("a"))),
        ("anthropic", {"role": "assistant", "content": served}),
        ("pydantic-ai", request(returned("a"), prompt("And?"))),
    ]

    told = convert(talk, "pydantic-ai")

    assert [[p.get("tool_call_id", p["part_kind"]) for p in m["parts"]] for m in told] == [
        ["a"], ["a", "user-prompt"], ["w"], ["w"], ["text"]
    ]  # fmt: skip


def test_a_call_that_was_given_up_gets_a_result_of_its_own_tool() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        session.append([request(prompt("Why?")), response(called("a"), called("b")), request(returned("a"))])
        session.append([request(prompt("Never mind.")), response(text("Fine."))])

        messages: list[Any] = session.context().messages

    made = messages[3]["parts"]
    assert [(p["part_kind"], p["tool_name"], p["tool_call_id"], p["outcome"]) for p in made] == [
        ("tool-return", "read", "b", "failed")
    ]


# ---------------------------------------------------------------------- items of the OpenAI Agents SDK


def test_results_that_the_provider_gave_itself_name_no_call() -> None:
    found: Json = {"type": "tool_search_output", "call_id": None, "tools": [], "execution": "server"}

    assert codec("openai-responses").header(found).role == "assistant"


def test_a_local_shells_result_names_its_call_by_id() -> None:
    done = {"type": "local_shell_call_output", "id": "call-1", "output": "x"}

    assert codec("openai-responses").header(done).result_ids == ("call-1",)


def test_a_search_for_tools_that_was_given_up_gets_a_result_of_its_kind() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        search = {"type": "tool_search_call", "call_id": "t1", "arguments": {}, "execution": "client"}
        said = {"type": "message", "role": "user", "content": "x"}
        answer = {"type": "message", "role": "assistant", "content": "y"}
        session.append([said, search, said, answer], format="openai-responses")

        messages: list[Any] = session.context().messages

    assert [m["type"] for m in messages] == [
        "message", "tool_search_call", "tool_search_output", "message", "message"
    ]  # fmt: skip
