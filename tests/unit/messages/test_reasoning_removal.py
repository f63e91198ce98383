"""Messages without what the model thought, in each format: all of it goes, with what refers to it, and nothing else."""

from __future__ import annotations

import copy

import pytest

from onefold import Session, Store
from onefold.journal.journal import Journal
from onefold.messages import codec
from onefold.model import Json
from tests.conftest import running
from tests.support.plans import answer, user

THINKING = {"type": "thinking", "thinking": "hm", "signature": "x"}
TEXT = {"type": "text", "text": "It works."}
SKIP = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def content(*parts: Json) -> Json:
    return {"role": "model", "parts": [*parts]}


def event(*parts: Json) -> Json:
    return {"author": "agent", "invocation_id": "i", "content": content(*parts)}


def response(*parts: Json) -> Json:
    return {"kind": "response", "parts": [*parts]}


def ai(content: Json, **more: Json) -> Json:
    return {"type": "ai", "data": {"content": content, "tool_calls": [], **more}}


CASES: list[tuple[str, Json, Json]] = [
    ("anthropic", {"role": "assistant", "content": [THINKING, TEXT]}, {"role": "assistant", "content": [TEXT]}),
    ("anthropic", {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, None),
    (
        "claude-code",
        {"type": "assistant", "uuid": "u", "message": {"role": "assistant", "content": [THINKING, TEXT]}},
        {"type": "assistant", "uuid": "u", "message": {"role": "assistant", "content": [TEXT]}},
    ),
    ("openai-responses", {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, None),
    (
        "openai-chat",
        {**answer(), "reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        answer(),
    ),
    ("openai-chat", {**answer(), "reasoning_content": "hm"}, {**answer(), "reasoning_content": " "}),
    ("openai-chat", {"role": "assistant", "content": None, "reasoning": "hm"}, None),
    ("gemini", content({"text": "hm", "thought": True}, {"text": "It works."}), content({"text": "It works."})),
    (
        "gemini",
        content(
            {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "abc="},
            {"text": "", "thoughtSignature": "x"},
        ),
        content({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": SKIP}),
    ),
    ("gemini", content({"text": "hm", "thought": True}), None),
    ("google-adk", event({"text": "hm", "thought": True}, {"text": "yes"}), event({"text": "yes"})),
    (
        "pydantic-ai",
        response(
            {"part_kind": "thinking", "content": "hm", "id": "rs_1", "signature": "x"},
            {"part_kind": "text", "content": "yes", "id": "msg_1"},
            {"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "c", "id": "fc_1"},
            {"part_kind": "native-tool-call", "tool_name": "web_search", "tool_call_id": "ws_1", "id": "ws_1",
             "provider_name": "openai"},
        ),
        response(
            {"part_kind": "text", "content": "yes"},
            {"part_kind": "tool-call", "tool_name": "f", "args": "{}", "tool_call_id": "c"},
        ),
    ),
    ("pydantic-ai", response({"part_kind": "thinking", "content": "hm"}), None),
    (
        "langchain",
        ai([{"type": "reasoning", "id": "rs_1", "summary": []}, {"type": "text", "text": "yes", "id": "msg_1"}]),
        ai([{"type": "text", "text": "yes"}]),
    ),
    (
        "langchain",
        ai("yes", additional_kwargs={"reasoning_content": "hm", "refusal": None}),
        ai("yes", additional_kwargs={"reasoning_content": " ", "refusal": None}),
    ),
    ("acp", {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}, None),
]  # fmt: skip

PLAIN: list[tuple[str, Json]] = [
    ("anthropic", {"role": "assistant", "content": "yes"}),
    ("anthropic", {"role": "assistant", "content": [TEXT]}),
    ("openai-chat", answer()),
    ("openai-chat", {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "name": "x"}),
    ("openai-responses", {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}),
    ("gemini", content({"text": "yes"}, {"functionCall": {"name": "f", "args": {}}})),
    ("google-adk", {"author": "agent", "actions": {"state_delta": {}}}),
    ("pydantic-ai", response({"part_kind": "text", "content": "yes", "id": "msg_1"})),
    ("langchain", ai("yes")),
    ("claude-code", {"type": "summary", "summary": "x", "leafUuid": "u"}),
    ("acp", {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "yes"}}),
    ("json", {"role": "assistant", "reasoning": "who knows"}),
]


@pytest.mark.parametrize(("format", "body", "left"), CASES)
def test_all_reasoning_goes_and_what_refers_to_it(format: str, body: Json, left: Json) -> None:
    given = copy.deepcopy(body)

    assert codec(format).unthought(body) == left
    assert body == given, "a codec changes nothing"
    assert left is None or codec(format).unthought(left) == left
    assert left is None or codec(format).header(left).tokens <= codec(format).header(body).tokens


@pytest.mark.parametrize(("format", "body"), PLAIN)
def test_a_message_without_reasoning_stays_the_one_it_is(format: str, body: Json) -> None:
    assert codec(format).unthought(body) is body


@pytest.mark.parametrize(
    ("item", "left"),
    [
        (
            {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ),
        (
            {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]},
        ),
        (
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "web_search {}"}],
            },
        ),
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, ...),
        ({"type": "item_reference", "id": "msg_1"}, ...),
    ],
)  # fmt: skip
def test_an_item_whose_reasoning_is_not_sent_does_not_refer_to_it(item: Json, left: Json) -> None:
    assert codec("openai-responses").adrift(item) == (item if left is ... else left)


def thinking(n: int) -> list[Json]:
    said = [{"type": "output_text", "text": f"answer {n} " + "word " * 30}]
    return [
        {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": f"msg_{n}", "role": "assistant", "content": said},
    ]


def talked(store: Store) -> Session:
    session = store.session("s")
    for n in range(6):
        session.append([user(f"question {n} " + "word " * 30), *thinking(n)], format="openai-responses")
    return session


def test_reasoning_from_before_the_segment_is_left_out_and_what_came_since_stays(
    store: Store, journal: Journal
) -> None:
    session = talked(store)
    assert len([m for m in session.context().messages if m.get("type") == "reasoning"]) == 6

    journal.commit(running(journal), "short", 14)
    session.append([user("and now?"), *thinking(7)], format="openai-responses")

    context = session.context()
    assert [m["id"] for m in context.messages if "id" in m] == ["rs_7", "msg_7"]
    assert context.left_out == (15, 18)
    assert [r.body["id"] for r in session.read(15, 17)] == ["rs_4", "msg_4"], "the journal has all of it"


def test_an_answer_that_a_segment_came_into_does_not_refer_to_reasoning_that_is_left_out(
    store: Store, journal: Journal
) -> None:
    session = talked(store)
    session.append([user("and now?"), thinking(7)[0]], format="openai-responses")
    journal.commit(running(journal), "short", 14)
    session.append(thinking(7)[1], format="openai-responses")
    session.append([user("and then?"), *thinking(8)], format="openai-responses")

    assert [m["id"] for m in session.context().messages if "id" in m] == ["rs_8", "msg_8"]


def test_pinned_and_kept_answers_are_told_without_reasoning_too(store: Store, journal: Journal) -> None:
    session = talked(store)
    assert session.pin(4) == (3, 4)

    journal.commit(running(journal), "short", 14, kept=[7])

    shown = {n: m for n, m in zip(session.context().numbers, session.context().messages, strict=True) if n}
    assert 3 not in shown
    assert ["id" in shown[n] for n in (4, 7)] == [False, False]


def test_what_an_agent_keeps_itself_stays_as_it_is(store: Store) -> None:
    session = talked(store)
    before = session.context().messages

    session.set_compaction_owner("agent")

    assert session.context().messages == before
    assert [m for m in session.fork().context().messages if m.get("type") == "reasoning"] == []


def test_an_answer_whose_reasoning_was_erased_does_not_refer_to_it(store: Store) -> None:
    session = talked(store)

    session.erase(6)

    assert [m["id"] for m in session.context().messages if "id" in m] == []
