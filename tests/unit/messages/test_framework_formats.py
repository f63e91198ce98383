"""Formats of frameworks: their own shapes are understood, cut at legal places, and told to and from all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import onefold
from onefold import InvalidMessage, Policy, Session, Store
from onefold.messages import codec, encode
from onefold.messages.parts import ToolResult
from onefold.model import Header, Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.formats import TOLD, TURNS, WITH_CALLS, check_strict, context_of, told
from tests.support.framework_formats import in_adk, in_claude, in_langchain
from tests.support.helpers import thought_in

OWN: dict[str, Callable[[int, str], list[Json]]] = {
    "langchain": in_langchain,
    "google-adk": in_adk,
    "claude-code": in_claude,
}


@pytest.mark.parametrize("format", OWN)
@pytest.mark.parametrize("other", [*WITH_CALLS, *OWN])
def test_a_framework_says_the_same_in_every_format(format: str, other: str) -> None:
    said = context_of(format, OWN[format](0, "")).to(other)

    assert told(other, said) == TOLD
    if other in WITH_CALLS:
        check_strict(other, said)


@pytest.mark.parametrize("format", OWN)
@pytest.mark.parametrize("other", WITH_CALLS)
def test_what_a_provider_said_is_told_to_a_framework(format: str, other: str) -> None:
    assert told(format, context_of(other, TURNS[other](0, "")).to(format)) == TOLD


@pytest.mark.parametrize("format", OWN)
@pytest.mark.parametrize("tail", range(1, 8))
def test_wherever_a_framework_s_conversation_is_cut_nothing_is_torn_apart_f26(format: str, tail: int) -> None:
    policy = Policy(tail_tokens=0, tail_messages=tail, min_shrink=0.01)
    with onefold.open("memory:", policy=policy, clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        for round in range(3):
            for n in range(3):
                session.append(OWN[format](10 * round + n, "word " * 40), format=format)

            assert session.compact(lambda material: f"up to {material.records[-1].number}").applied

            context = session.context()
            assert (context.left_out, context.numbers.count(0)) == ((), bool(context.quotes))
            assert session.state.tokens == context.tokens + thought_in(session, context)
            for other in WITH_CALLS:
                check_strict(other, context.to(other))


@pytest.mark.parametrize("format", OWN)
def test_a_framework_s_messages_come_back_equal_and_their_roles_are_known(store: Store, format: str) -> None:
    session = store.session("s")
    messages = OWN[format](0, "")

    session.append(messages, format=format)

    assert [r.body for r in session.read(2)] == messages
    roles = [r.header.role for r in session.read(2) if r.header]
    assert roles[:3] == ["user", "user", "assistant"]
    assert {*roles[3:-1]} == {"tool"}
    assert roles[-1] == "assistant"


@pytest.mark.parametrize("format", OWN)
def test_a_framework_s_call_that_was_given_up_has_a_result_that_says_so(store: Store, format: str) -> None:
    session = store.session("s")
    turn = OWN[format](0, "")
    session.append([turn[0], turn[2], turn[0], turn[-1]], format=format)

    context = session.context()

    made_up = [m for m, number in zip(context.messages, context.numbers, strict=True) if number == 0]
    assert {id for m in made_up for id in codec(format).header(m).result_ids} == {"a0", "b0"}
    assert all("interrupted" in codec(format).text(m) for m in made_up)
    for other in WITH_CALLS:
        check_strict(other, context.to(other))


def test_a_result_of_an_adk_event_is_of_the_same_agent_and_invocation() -> None:
    call = in_adk()[2] | {"branch": "root.mender"}

    (made,) = codec("google-adk").answer(call, [ToolResult("a0", "gone", failed=True)])

    assert made["author"] == "mender"
    assert (made["invocation_id"], made["branch"], made["timestamp"]) == ("i0", "root.mender", 5.0)
    (part,) = made["content"]["parts"]
    assert part["function_response"] == {"id": "a0", "name": "read", "response": {"error": "gone"}}


HEADERS: list[tuple[str, Json, Header, str]] = [
    ("claude-code", {"type": "summary", "summary": "Mending."}, Header("other", 6), "Mending."),
    ("claude-code", {"type": "mode", "mode": "x"}, Header("other", 6), "[mode]"),
    ("claude-code", {"type": "user", "message": {"role": "?"}}, Header("other", 6), "[user]"),
    ("google-adk", {"author": "user", "actions": {"state_delta": {"a": 1}}}, Header("other", 4), ""),
    (
        "google-adk",
        {
            "author": "user",
            "actions": {"compaction": {"compacted_content": {"role": "model", "parts": [{"text": "So far."}]}}},
        },
        Header("user", 6),
        "So far.",
    ),
    (
        "google-adk",
        {"author": "a", "content": {"role": "model", "parts": [{"function_call": {"name": "read"}}]}},
        Header("assistant", 6, ("function:read",)),
        "read {}",
    ),
    ("langchain", {"type": "AIMessageChunk", "data": {"content": "Yes."}}, Header("assistant", 5), "Yes."),
    ("langchain", {"type": "chat", "data": {"role": "critic", "content": "No."}}, Header("critic", 5), "No."),
    (
        "langchain",
        {"type": "ai", "data": {"content": "", "invalid_tool_calls": [{"name": "sh", "args": "{", "id": "x"}]}},
        Header("assistant", 5, ("x",)),
        "sh {",
    ),
]


@pytest.mark.parametrize(("format", "message", "header", "text"), HEADERS)
def test_what_only_a_framework_says_is_understood(format: str, message: Json, header: Header, text: str) -> None:
    assert codec(format).header(message) == header
    assert codec(format).text(message) == text


BAD: list[tuple[str, Json, str]] = [
    *((f, m, "is an object") for f in OWN for m in ("text", 5, None, ["a"])),
    ("langchain", {"type": "ai"}, "fields as data"),
    ("langchain", {"type": "remove", "data": {"content": ""}}, "is not a type"),
    ("langchain", {"type": "tool", "data": {"content": "x"}}, "needs the tool_call_id"),
    ("google-adk", {"content": {"parts": []}}, "with an author"),
]


@pytest.mark.parametrize(("format", "message", "complaint"), BAD)
def test_what_is_no_message_of_a_framework_is_refused_in_words(
    session: Session, format: str, message: Json, complaint: str
) -> None:
    before = session.state

    with pytest.raises(InvalidMessage, match=rf"session 's': .*{complaint}"):
        session.append([OWN[format](0, "")[0], message], format=format)

    assert session.state == before


@pytest.mark.parametrize("format", OWN)
def test_telling_a_framework_s_context_changes_nothing_in_it(format: str) -> None:
    context = context_of(format, OWN[format](0, ""))
    before = encode(context.messages)

    for other in (*WITH_CALLS, *OWN, "json"):
        context.to(other)

    assert encode(context.messages) == before
