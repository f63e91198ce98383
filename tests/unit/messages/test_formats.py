"""Formats: each is understood, stored as given, cut where nothing is torn, and told in every other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import onefold
from onefold import InvalidMessage, Policy, Session, Store
from onefold.messages import FORMATS, codec, convert, decode, detect_format, encode
from onefold.messages.tool_groups import Numbered, group, legal_cuts
from onefold.model import Header, Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.formats import (
    PICTURE,
    TOLD,
    TURNS,
    WITH_CALLS,
    _fuzz,
    check_pairs,
    check_strict,
    context_of,
    in_acp,
    in_anthropic,
    in_chat,
    in_responses,
    mentions,
    told,
)
from tests.support.helpers import thought_in

SYSTEM = {"role": "system", "content": "You mend builds."}
"""Said the same way in chat, Responses and Anthropic sessions; ACP has no such message."""


def prompt(format: str) -> list[Json]:
    return [] if format == "acp" else [SYSTEM]


# ---------------------------------------------------------------------- what a message is

HEADERS: list[tuple[str, Json, Header, str]] = [
    ("openai-responses", in_responses()[0], Header("user", 9), "Why does it fail? "),
    ("openai-responses", in_responses()[1], Header("user", 1004), ""),
    ("openai-responses", in_responses()[2], Header("reasoning", 7), "Look first."),
    ("openai-responses", in_responses()[3], Header("assistant", 6), "I look."),
    ("openai-responses", in_responses()[4], Header("call", 10, ("a0",)), 'read {"path": "a.txt"}'),
    ("openai-responses", in_responses()[6], Header("tool", 6, (), ("a0",)), "log a "),
    ("openai-responses", in_responses()[7], Header("tool", 6, (), ("b0",)), "log b "),
    ("openai-responses", {"role": "developer", "content": "Be brief."}, Header("developer", 7), "Be brief."),
    ("openai-responses", {"type": "web_search_call", "id": "w"}, Header("assistant", 8), "web_search {}"),
    (
        "openai-responses",
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "+1"},
        Header("call", 6, ("c",)),
        "patch +1",
    ),
    (
        "openai-responses",
        {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}},
        Header("call", 12, ("c",)),
        'computer_call {"type":"wait"}',
    ),
    (
        "openai-responses",
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": PICTURE}]},
        Header("tool", 1004, (), ("c",)),
        "",
    ),
    ("anthropic", in_anthropic()[0], Header("user", 9), "Why does it fail? "),
    ("anthropic", in_anthropic()[1], Header("user", 1004), ""),
    (
        "anthropic",
        in_anthropic()[2],
        Header("assistant", 20, ("a0", "b0")),
        'Look first.\nI look.\nread {"path":"a.txt"}\nread {"path":"b.txt"}',
    ),
    ("anthropic", in_anthropic()[3], Header("tool", 8, (), ("a0", "b0")), "log a \nlog b "),
    ("anthropic", {"role": "system", "content": "Be brief."}, Header("system", 7), "Be brief."),
    (
        "anthropic",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": {"url": "x"}}]},
                {"type": "text", "text": "and go on"},
            ],
        },
        Header("tool", 1007, (), ("c",)),
        "and go on",
    ),
    (
        "anthropic",
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "w", "name": "search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "w", "content": []},
                {"type": "tool_use", "id": "c", "name": "read", "input": {}},
            ],
        },
        Header("assistant", 9, ("c",)),
        "search {}\nread {}",
    ),
    ("acp", in_acp()[0], Header("user", 9), "Why does it fail? "),
    ("acp", in_acp()[1], Header("user", 1004), ""),
    ("acp", in_acp()[2], Header("agent", 7), "Look first."),
    ("acp", in_acp()[3], Header("agent", 6), "I look."),
    ("acp", in_acp()[4], Header("agent", 10, ("a0",)), 'read {"path":"a.txt"}'),
    ("acp", in_acp()[5], Header("tool", 4), ""),
    ("acp", in_acp()[7], Header("other", 6), "[plan]"),
    ("acp", in_acp()[8], Header("tool", 10), '{"path":"b.txt"}\nlog b'),
    ("acp", in_acp()[9], Header("tool", 6, (), ("a0",)), "log a "),
    (
        "acp",
        {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "read", "status": "completed", "rawOutput": {"n": 1}},
        Header("agent", 8),
        'read {}\n{"n":1}',
    ),
    (
        "acp",
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "status": "completed",
            "content": [{"type": "diff", "path": "a.py", "oldText": None, "newText": "x = 1"}],
        },
        Header("tool", 7, (), ("c",)),
        "a.py\nx = 1",
    ),
    ("acp", {"sessionId": "s", "prompt": [{"type": "text", "text": "Go on."}]}, Header("user", 6), "Go on."),
    (
        "acp",
        {"prompt": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]},
        Header("user", 9),
        "[file:///a]\ninside",
    ),
]


@pytest.mark.parametrize(("format", "message", "header", "text"), HEADERS)
def test_a_message_is_understood(format: str, message: Json, header: Header, text: str) -> None:
    assert codec(format).header(message) == header
    assert codec(format).text(message) == text


def test_the_arguments_of_a_call_are_json_text_though_they_came_as_an_object() -> None:
    """Some local servers send them so."""
    calls = [{"id": "a", "function": {"name": "read", "arguments": {"path": "a.txt"}}}]
    item = {"type": "function_call", "call_id": "a", "name": "read", "arguments": {"path": "a.txt"}}

    for format, message in (
        ("openai-chat", {"role": "assistant", "content": None, "tool_calls": calls}),
        ("openai-responses", item),
    ):
        assert codec(format).text(message) == 'read {"path":"a.txt"}'


@pytest.mark.parametrize("format", WITH_CALLS)
def test_what_only_one_format_has_is_recognised(format: str) -> None:
    plain = {"role": "user", "content": "Why does it fail? "}

    found = {detect_format(m) for m in TURNS[format](0, "") if m != plain}

    assert found == ({format} if format != "anthropic" else {"anthropic", "openai-chat"})
    # an Anthropic message of text alone is a chat message as well, and means the same there
    assert [detect_format(m) for m in in_anthropic()] == ["openai-chat", *["anthropic"] * 3, "openai-chat"]


def test_a_prompt_over_acp_is_recognised_and_other_prompts_are_not() -> None:
    assert detect_format({"sessionId": "s", "prompt": []}) == "acp"
    assert detect_format({"prompt": []}) == "json"
    assert detect_format({"sessionId": "s", "prompt": "x"}) == "json"


# ---------------------------------------------------------------------- bad input

_NO_WORDS: list[Json] = [None, 5, ["x"], {}]

BAD: list[tuple[str, Json, str]] = [
    *((f, m, "is an object") for f in WITH_CALLS for m in ("text", 5, None, True, ["a"])),
    *(("anthropic", {"role": r, "content": "x"}, "with role") for r in ("tool", None, ["user"], {"a": 1}, 5)),
    ("anthropic", {"role": "user"}, "a string or a list of blocks"),
    ("anthropic", {"role": "user", "content": {"type": "text"}}, "a string or a list of blocks"),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use"}]}, "needs a string id"),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": 5}]}, "needs a string id"),
    ("anthropic", {"role": "user", "content": [{"type": "tool_result"}]}, "needs the tool_use_id"),
    ("anthropic", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": []}]}, "needs the tool_use_id"),
    *(
        ("openai-responses", {"role": r, "content": "x"}, "is not a role")
        for r in ("tool", None, ["user"], {"a": 1}, 5)
    ),
    ("openai-responses", {"type": "message"}, "is not a role"),
    *(("openai-responses", {"type": t, "call_id": "a"}, "the type of a Responses item") for t in _NO_WORDS),
    ("openai-responses", {"type": "function_call_output", "output": "x"}, "needs the call_id"),
    ("openai-responses", {"type": "function_call_output", "call_id": 5}, "needs the call_id"),
    ("openai-responses", {"type": "function_call", "name": "read"}, "needs a string call_id"),
    ("openai-responses", {"type": "custom_tool_call", "call_id": []}, "needs a string call_id"),
    *(("acp", {"sessionUpdate": k}, "is a session update") for k in _NO_WORDS),
    ("acp", {"role": "user", "content": "x"}, "is a session update"),
    ("acp", {"prompt": "x"}, "is a session update"),
    ("acp", {"sessionUpdate": "tool_call", "title": "read"}, "needs its toolCallId"),
    ("acp", {"sessionUpdate": "tool_call_update", "toolCallId": 5}, "needs its toolCallId"),
    ("acp", {"sessionUpdate": "agent_message_chunk"}, "needs its content"),
    ("acp", {"sessionUpdate": "user_message_chunk", "content": "x"}, "needs its content"),
    ("openai-chat", {"role": [], "content": "x"}, "is not a role"),
    ("openai-chat", {"role": "assistant", "tool_calls": {"id": "a"}}, "tool_calls is a list"),
]


@pytest.mark.parametrize(("format", "message", "complaint"), BAD)
def test_what_is_no_message_of_its_format_is_refused_in_words_with_nothing_written(
    session: Session, format: str, message: Json, complaint: str
) -> None:
    before = session.state

    with pytest.raises(InvalidMessage, match=rf"session 's': .*{complaint}"):
        session.append([TURNS[format](0, "")[0], message], format=format)
    with pytest.raises(InvalidMessage, match=rf"session 's': .*{complaint}"):
        session.queue_input(message, format=format)

    assert session.state == before


@pytest.mark.parametrize("format", FORMATS)
@given(body=_fuzz)
@settings(max_examples=400)
@example(body={"role": "call", "content": "x"})
def test_any_json_is_understood_or_refused_in_words_and_what_is_understood_can_be_told(format: str, body: Json) -> None:
    try:
        header = codec(format).header(body)
    except InvalidMessage:
        return

    assert header.tokens >= 4
    assert all(isinstance(id, str) for id in (*header.call_ids, *header.result_ids))
    for other in FORMATS:
        for message in convert([(format, body)], other):
            codec(other).header(message)
            assert decode(encode(message)) == message
    assert detect_format(body) in FORMATS


# ---------------------------------------------------------------------- kept as given, and cut where nothing is torn


@pytest.mark.parametrize("format", WITH_CALLS)
def test_a_conversation_is_stored_and_read_back_equal(store: Store, format: str) -> None:
    session = store.session("s")
    messages = [*prompt(format), *TURNS[format](0, "")]

    session.append(messages, format=format)

    assert [r.body for r in session.read(2)] == messages
    assert {r.format for r in session.read(2)} == {format}
    context = session.context()
    assert context.formats == (format,) * len(messages)
    assert sorted(map(encode, context.messages)) == sorted(map(encode, messages))
    assert session.state.tokens == context.tokens


@pytest.mark.parametrize("format", WITH_CALLS)
@pytest.mark.parametrize("tail", range(1, 14))
def test_wherever_a_conversation_is_cut_nothing_is_torn_apart_f26(format: str, tail: int) -> None:
    policy = Policy(tail_tokens=0, tail_messages=tail, min_shrink=0.01)
    with onefold.open("memory:", policy=policy, clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        session.append(prompt(format), format=format) if prompt(format) else None
        for round in range(3):
            for n in range(3):
                session.append(TURNS[format](10 * round + n, "word " * 40), format=format)

            result = session.compact(lambda material: f"up to {material.records[-1].number}")

            assert result.applied, result.cause
            context = session.context()
            check_pairs(context.messages)
            left_out = [r.header.role for n in context.left_out for r in session.read(n, n + 1) if r.header]
            assert {*left_out} <= {"reasoning", "agent"}
            assert context.numbers.count(0) == bool(context.quotes), "nothing else is made up"
            assert context.messages[: len(prompt(format))] == prompt(format)
            assert session.state.tokens == context.tokens + thought_in(session, context)
            for other in WITH_CALLS:
                check_strict(other, context.to(other))


def test_a_long_turn_of_anthropic_tool_calls_keeps_the_question_it_is_about(store: Store) -> None:
    """Results come in messages of role user there, and are no words of a user."""
    session = store.session("s")
    question = {"role": "user", "content": "Mend the build, and do not push."}
    session.append(question, format="anthropic")
    for n in range(20):
        session.append(in_anthropic(n, "word " * 40)[2:4], format="anthropic")

    assert session.compact(lambda material: "short").applied

    context = session.context()
    assert question in context.messages
    check_pairs(context.messages)


def test_what_an_acp_call_shows_on_its_way_stays_between_the_call_and_its_result(store: Store) -> None:
    session = store.session("s")
    session.append(in_acp(), format="acp")

    shown = session.context().messages

    statuses = [m["status"] for m in shown if m.get("toolCallId") == "a0"]
    assert statuses == ["pending", "in_progress", "completed"]


# ---------------------------------------------------------------------- cuts, for any history


class Item(NamedTuple):
    body: Json
    answer: int
    """Items of one answer have the same number; what is no part of an answer has 0."""


@st.composite
def _responses(draw: st.DrawFn) -> list[Item]:
    history: list[Item] = []
    answer = 0
    for _ in range(draw(st.integers(1, 4))):
        history.append(Item({"role": "user", "content": "please"}, 0))
        for _ in range(draw(st.integers(0, 3))):
            answer += 1
            ids = [f"{answer}.{n}" for n in range(draw(st.integers(0, 3)))]
            items: list[Json] = [{"type": "function_call", "call_id": id, "name": "read"} for id in ids]
            if draw(st.booleans()):
                message = {"type": "message", "role": "assistant", "content": "I look."}
                items.insert(draw(st.integers(0, len(items))), message)
            if draw(st.booleans()) and items:
                items.insert(0, {"type": "reasoning", "summary": []})
            history += [Item(item, answer) for item in items]
            outputs = [
                {"type": "function_call_output", "call_id": id, "output": "x"} for id in draw(st.permutations(ids))
            ]
            history += [Item(output, 0) for output in outputs]
            if not ids:
                break
    return history


@st.composite
def _acp(draw: st.DrawFn) -> list[Item]:
    """Calls that run at the same time, with news of them and of everything else in between, and calls inside calls."""
    history: list[Item] = []
    count = 0
    for _ in range(draw(st.integers(1, 3))):
        history.append(Item({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi"}}, 0))
        running: list[str] = []
        steps = draw(st.lists(st.sampled_from("ccccupptn"), max_size=12))
        for step in [*steps, *["e"] * 12]:
            match step:
                case "c":
                    count += 1
                    running.append(f"c{count}")
                    history.append(Item({"sessionUpdate": "tool_call", "toolCallId": running[-1]}, 0))
                case "u" | "p" | "e" if running:
                    at = draw(st.integers(0, len(running) - 1))
                    status = "in_progress" if step == "u" else "completed"
                    id = running[at] if step == "u" else running.pop(at)
                    history.append(Item({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status}, 0))
                case "t":
                    content = {"type": "text", "text": "on it"}
                    history.append(Item({"sessionUpdate": "agent_message_chunk", "content": content}, 0))
                case "n":
                    history.append(Item({"sessionUpdate": "plan", "entries": []}, 0))
    return history


def numbered(format: str, history: list[Item]) -> list[Numbered]:
    return [(n, codec(format).header(item.body)) for n, item in enumerate(history, start=2)]


def torn(history: list[Item], cut: int) -> Iterator[str]:
    """What a cut would tear apart, read from the messages themselves."""
    before, after = history[: cut - 2], history[cut - 2 :]
    made = {id for item in before for id in mentions(item.body).calls}
    yield from (id for item in after for id in mentions(item.body).results if id in made)
    for answer in {item.answer for item in after} - {0}:
        ahead = [item.body for item in before if item.answer == answer]
        if any(item.get("type") in ("reasoning", "function_call") for item in ahead):
            yield f"answer {answer}"


@pytest.mark.parametrize(("format", "histories"), [("openai-responses", _responses()), ("acp", _acp())])
@given(data=st.data())
@settings(max_examples=150)
def test_no_legal_cut_tears_an_answer_or_a_call_from_its_result_whenever_it_is_made_f26(
    format: str, histories: st.SearchStrategy[list[Item]], data: st.DataObject
) -> None:
    """Also when the rest of the answer, or the result, is still to come."""
    history = data.draw(histories)
    messages = numbered(format, history)

    for until in range(1, len(messages) + 1):
        for cut in legal_cuts(messages[:until]):
            assert list(torn(history, cut)) == []
        assert not any(g.abandoned for g in group(messages[:until]).groups)

    whole = legal_cuts(messages)
    assert [n for n, _ in messages if n not in whole and not [*torn(history, n), *inside(history, n)]] == []


def inside(history: list[Item], cut: int) -> Iterator[str]:
    """Calls that are made before a number and over only after it: to cut there is not asked for."""
    made = [id for item in history[: cut - 2] for id in mentions(item.body).calls]
    over = [id for item in history[: cut - 2] for id in mentions(item.body).results]
    yield from set(made) - set(over)


@pytest.mark.parametrize("format", WITH_CALLS)
@pytest.mark.parametrize("other", WITH_CALLS)
def test_a_context_says_the_same_in_every_other_format(format: str, other: str) -> None:
    context = context_of(format, [*prompt(format), *TURNS[format](0, "")])

    said = context.to(other)

    speaker = "user" if other == "acp" else "system"  # ACP has no system prompt
    assert told(other, convert(zip(context.formats, context.messages, strict=True), other)) == told(other, said)
    if other == format == "acp":
        assert said == context.messages
    else:
        assert told(other, said) == [*((speaker, p["content"]) for p in prompt(format)), *TOLD]
    check_strict(other, said)


@pytest.mark.parametrize("format", WITH_CALLS)
def test_messages_that_are_of_the_format_stay_as_given(format: str) -> None:
    """Signed reasoning, cache marks and whatever a provider adds next come back whole."""
    context = context_of(format, [{**m, "extra": n} for n, m in enumerate(TURNS[format](0, ""))][1:])

    assert context.to(format) == context.messages


@pytest.mark.parametrize("format", WITH_CALLS)
def test_a_summary_is_told_in_every_format(format: str) -> None:
    with onefold.open("memory:", clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        for n in range(8):
            session.append(TURNS[format](n, "word " * 40), format=format)
        assert session.compact(lambda material: "They looked for the fault.").applied

        for other in WITH_CALLS:
            (first, second, *_) = told(other, session.context().to(other))
            assert first[0] == "user"
            assert "They looked for the fault." in f"{first[1]}\n{second[1]}", "behind what is quoted"


def test_all_calls_of_one_answer_are_one_chat_message() -> None:
    for format in ("openai-responses", "acp", "anthropic"):
        said = context_of(format, TURNS[format](0, "")).to("openai-chat")

        assert [m["role"] for m in said] == ["user", "user", "assistant", "tool", "tool", "assistant"]
        assert said[2]["content"] == "I look."
        assert [c["id"] for c in said[2]["tool_calls"]] == ["a0", "b0"]


def test_text_that_an_agent_adds_behind_its_calls_does_not_part_them_from_their_results() -> None:
    call, message = in_responses()[4], in_responses()[3]
    output = in_responses()[6]

    said = context_of("openai-responses", [in_responses()[0], call, message, output]).to("openai-chat")

    assert [m["role"] for m in said] == ["user", "assistant", "tool"]
    assert said[1]["content"] == "I look."


def test_a_call_that_the_provider_ran_itself_comes_before_its_result() -> None:
    answer = {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "w", "name": "search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "w", "content": [{"type": "text", "text": "found"}]},
            {"type": "text", "text": "Found it."},
        ],
    }
    over = {"sessionUpdate": "tool_call", "toolCallId": "w", "title": "search", "status": "completed"}

    for format, message, texts in (("anthropic", answer, ["Found it."]), ("acp", over, [])):
        said = context_of(format, [message]).to("openai-chat")

        assert [m["role"] for m in said] == ["user", "assistant", "tool", *["assistant"] * len(texts)]
        assert [m["content"] for m in said[3:]] == texts
        check_strict("openai-chat", said)
        check_strict("openai-responses", context_of(format, [message]).to("openai-responses"))
    check_strict("anthropic", context_of("acp", [over]).to("anthropic"))


def test_a_picture_in_a_result_is_shown_behind_it() -> None:
    calls, results = in_anthropic()[2:4]
    results["content"][1]["content"] = in_anthropic()[1]["content"]
    context = context_of("anthropic", [calls, results])

    said = context.to("openai-chat")

    assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool", "user"]
    assert said[-1]["content"] == [{"type": "image_url", "image_url": {"url": PICTURE}}]


def test_ids_of_other_providers_are_made_such_that_anthropic_takes_them() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}}
    result = {"role": "function", "name": "read", "content": "log"}

    _, made, answered = context_of("openai-chat", [call, result]).to("anthropic")

    assert made["content"][0]["id"] == answered["content"][0]["tool_use_id"] == "function_read"


def test_no_two_calls_have_one_id_in_a_context() -> None:
    """Neither those that differ only in marks the provider does not take, nor those that had one id in two turns."""
    turn = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ("a:1", "a/1")
            ],
        },
        {"role": "tool", "tool_call_id": "a/1", "content": "two"},
        {"role": "tool", "tool_call_id": "a:1", "content": "one"},
    ]

    said = context_of("openai-chat", [*in_chat()[:1], *turn, *in_chat()[:1], *turn]).to("anthropic")

    made = [b["id"] for m in said for b in m["content"] if isinstance(b, dict) and b["type"] == "tool_use"]
    given = [
        (b["tool_use_id"], b["content"])
        for m in said
        for b in m["content"]
        if isinstance(b, dict) and b["type"] == "tool_result"
    ]
    assert made == ["a_1", "a_1_2", "a_1_3", "a_1_4"]
    assert given == [("a_1_2", "two"), ("a_1", "one"), ("a_1_4", "two"), ("a_1_3", "one")]


def test_what_an_agent_calls_its_tools_is_told_by_a_name_that_providers_take() -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "2nd look: a.txt", "status": "completed"}

    (*_, made, _) = context_of("acp", [call]).to("anthropic")

    assert made["content"][0]["name"] == "_2nd_look_a_txt"


def test_what_the_system_says_later_stands_behind_the_user_in_anthropics_format() -> None:
    later = {"role": "system", "content": "Be brief."}
    messages = [SYSTEM, in_chat()[0], in_chat()[5], later, {"role": "user", "content": "And now?"}, later]

    said = context_of("openai-chat", messages).to("anthropic")

    assert [m["role"] for m in said] == ["system", "user", "assistant", "user", "system"]


@pytest.mark.parametrize("arguments", ['{"path": ', '{"size": NaN}', '{"size": 1e999}', "", "[" * 5000])
def test_arguments_that_are_no_json_are_told_all_the_same(arguments: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": arguments}}
    context = context_of("openai-chat", [{"role": "assistant", "content": None, "tool_calls": [call]}])

    (*_, message) = context.to("anthropic")

    assert message["content"][0]["input"] == {"input": arguments}


@pytest.mark.parametrize("format", WITH_CALLS)
def test_any_format_can_be_told_as_plain_json(format: str) -> None:
    said = context_of(format, TURNS[format](0, "")).to("json")

    text = "\n".join(m["content"] for m in said)
    assert [text.index(t) for t in ("Why", "I look.", "log a", "log b", "It needs")] == sorted(
        text.index(t) for t in ("Why", "I look.", "log a", "log b", "It needs")
    )
    assert {m["role"] for m in said} <= {"user", "assistant", "tool", "reasoning", "other", "agent"}


def test_plain_json_is_told_by_its_role_and_text() -> None:
    context = context_of("json", [{"role": "critic", "content": "y"}, {"role": "assistant", "content": "x"}, ["z"]])

    assert context.to("openai-chat") == [
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": '["z"]'},
    ]


def test_a_session_of_many_formats_is_told_in_one(store: Store) -> None:
    session = store.session("s")
    for n, format in enumerate(WITH_CALLS):
        session.append(TURNS[format](n, ""), format=format)
    context = session.context()

    assert len({*context.formats}) == len(WITH_CALLS)
    for other in WITH_CALLS:
        check_strict(other, context.to(other))


def test_no_format_but_the_known_ones_can_be_told() -> None:
    with pytest.raises(InvalidMessage, match="no message format 'xml'"):
        context_of("openai-chat", in_chat()).to("xml")


def test_telling_a_context_changes_nothing_in_it() -> None:
    for format in WITH_CALLS:
        context = context_of(format, TURNS[format](0, ""))
        before = encode(context.messages)

        for other in FORMATS:
            context.to(other)

        assert encode(context.messages) == before


# ---------------------------------------------------------------------- calls that were given up


def _given_up(format: str) -> list[Json]:
    """Two calls, one result, and the model asked again."""
    turn = TURNS[format](0, "")
    if format == "anthropic":
        turn[3] = {"role": "user", "content": turn[3]["content"][:1]}
        return [turn[0], turn[2], turn[3], {"role": "user", "content": "Go on."}, turn[4]]
    b_is_over = [m for m in turn if "b0" in mentions(m).results]
    before = [m for m in turn[:-1] if m not in b_is_over and m.get("id") != "s0"]
    return [*before, turn[0], turn[-1]]


@pytest.mark.parametrize("format", WITH_CALLS)
def test_a_call_that_was_given_up_has_a_result_that_says_so(store: Store, format: str) -> None:
    session = store.session("s")
    messages = _given_up(format)
    session.append(messages, format=format)

    context = session.context()

    at = context.numbers.index(0)
    made_up = context.messages[at]
    assert context.numbers.count(0) == 1
    assert mentions(made_up).results == ["b0"]
    assert "interrupted" in codec(format).text(made_up)
    assert context.formats[at] == format
    assert len(context.messages) == len(messages) + 1
    check_pairs(context.messages)
    assert session.state.tokens == context.tokens - codec(format).header(made_up).tokens
    for other in WITH_CALLS:
        check_strict(other, context.to(other))


@pytest.mark.parametrize("format", WITH_CALLS)
def test_a_call_that_is_still_waited_for_has_none(store: Store, format: str) -> None:
    session = store.session("s")
    until = next(i for i, m in enumerate(TURNS[format](0, "")) if mentions(m).results)
    session.append(TURNS[format](0, "")[:until], format=format)

    assert 0 not in session.context().numbers


# ---------------------------------------------------------------------- results for calls that get none


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "functions.sh:0", "name": "sh", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "functions.sh:0",
                        "content": "(no result: the turn failed before it came)",
                        "is_error": True,
                    }
                ],
            },
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "…"},
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": "(no result: the turn failed before it came)",
            },
        ),
    ],
    ids=["anthropic", "openai-responses"],
)
def test_a_call_that_gets_no_result_is_answered_by_its_own_id_and_kind_f26(
    session: Session, call: Json, answer: Json
) -> None:
    turn = session.turn()
    turn.append({"role": "user", "content": "go"})
    turn.append(call)

    turn.end("failed")

    assert session.context().messages[-2:] == [call, answer]
    assert session.context().left_out == ()


def test_a_call_that_was_given_up_is_answered_in_the_context_by_its_own_kind_f26(session: Session) -> None:
    thought = {"type": "reasoning", "id": "r", "summary": []}
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "…"}
    session.append([thought, call, {"role": "user", "content": "never mind"}])

    session.append({"role": "assistant", "content": "as you like"})

    made_up = [m for m, n in zip(session.context().messages, session.context().numbers, strict=True) if n == 0]
    assert [m["type"] for m in made_up] == ["custom_tool_call_output"]
