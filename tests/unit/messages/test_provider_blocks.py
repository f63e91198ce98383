"""What a provider ran or brought along itself: read where it can be read, counted by its size where it cannot, in every
format, and never taken for anybody's words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from anthropic.types.beta.beta_content_block_param import BetaContentBlockParam
from hypothesis import given, settings
from openai.types.responses.response_input_item_param import ResponseInputItemParam

import onefold
from onefold import Session
from onefold.messages import FORMATS, codec, convert, detect_format
from onefold.messages.parts import DocumentPart, MediaPart, ReasoningPart, TextPart, ToolCall, ToolResult
from onefold.model import Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.provider_blocks import (
    ANTHROPIC,
    BLOB,
    CASES,
    PICTURE,
    PYDANTIC,
    RESPONSES,
    Ran,
    _answer,
    _asks,
    _content,
    _item,
    _langchain,
    _plain,
    _pydantic,
)
from tests.support.provider_rules import RULES

LONG = "word " * 8000


def _told(format: str, *bodies: Json) -> Iterator[tuple[str, list[Json]]]:
    """A conversation in every format, after a user's words."""
    with onefold.open("memory:", clock=StoppedClock(), ids=CountedIds()) as store:
        session = store.session("s")
        session.append({"role": "user", "content": "Look it up."})
        for body in bodies:
            session.append(body, format=format)
        context = session.context()
        assert 0 not in context.numbers, "nothing is waited for, and nothing was made up"
        for other in FORMATS:
            yield other, context.to(other)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.format}-{json.dumps(c.body)[:60]}")
def test_what_the_provider_ran_is_read_counted_told_and_nobodys_words(case: Ran) -> None:
    said = codec(case.format).parse(case.body)
    header = codec(case.format).header(case.body)

    assert all(words in said.text for words in case.read), said.text
    assert not any(
        words in p.text for words in case.read for p in said.parts if isinstance(p, TextPart | ReasoningPart)
    )
    assert (header.call_ids, header.result_ids) == ((), ()), "it is over when it is seen"
    assert header.role != "tool"
    for other, messages in _told(case.format, case.body):
        read = "\n".join(codec(other).text(message) for message in messages)
        assert all(words in read for words in case.read), f"in {other}: {messages}"
        if other in RULES and case.body.get("type") != "attachment":
            assert RULES[other](messages).wrong == [], f"in {other}: {messages}"


@pytest.mark.parametrize("format", RULES)
def test_what_is_of_its_format_stays_as_it_was_given(format: str) -> None:
    for case in CASES:
        if case.format == format and not (format == "claude-code" and case.body["type"] == "attachment"):
            last = dict(_told(format, case.body))[format][-1]
            told, body = (m.get("message", m) for m in (last, case.body))
            if body.get("role") == "user" and format in ("anthropic", "claude-code"):  # with what was asked before
                assert told["content"][-len(body["content"]) :] == body["content"]
            else:
                assert last == case.body


# ---------------------------------------------------------------------- sizes


def _size(format: str, body: Json) -> int:
    return codec(format).header(body).tokens


SIZES: list[tuple[str, Json, int]] = [
    ("openai-responses", _item("mcp_call", name="f", arguments="{}", output=LONG, server_label="s"), 10_000),
    ("openai-responses", _item("code_interpreter_call", code=LONG, outputs=[{"type": "logs", "logs": LONG}]), 20_000),
    ("openai-responses", {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": BLOB}, 10_000),
    ("openai-responses", {"type": "compaction", "id": "c", "encrypted_content": BLOB}, 10_000),
    ("openai-responses", _item("image_generation_call", result=PICTURE), 1_000),
    (
        "openai-responses",
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PICTURE}"},
        },
        1_000,
    ),
    (
        "openai-responses",
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": LONG, "stderr": ""}]},
        10_000,
    ),
    (
        "openai-responses",
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "create_file", "path": "a", "diff": LONG}},
        10_000,
    ),
    ("openai-responses", {"type": "program_output", "call_id": "c", "result": LONG}, 10_000),
    ("anthropic", _answer({"type": "redacted_thinking", "data": BLOB}), 10_000),
    ("anthropic", _answer({"type": "thinking", "thinking": "", "signature": BLOB}), 10_000),
    ("anthropic", _answer({"type": "thinking", "thinking": LONG, "signature": BLOB}), 10_000),
    ("anthropic", _answer({"type": "compaction", "content": LONG}), 10_000),
    ("anthropic", ANTHROPIC[0], 10_000),
    ("openai-responses", RESPONSES[6], 10_000),
    ("pydantic-ai", PYDANTIC[0], 10_000),
    (
        "anthropic",
        _asks({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}),
        1_000,
    ),
    (
        "anthropic",
        _asks({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": BLOB}}),
        1_000,
    ),
    ("anthropic", _asks({"type": "some_later_block", "encrypted_content": BLOB}), 10_000),
    (
        "anthropic",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [_plain(LONG)]}]},
        10_000,
    ),
    ("openai-chat", {"role": "assistant", "content": "ok", "reasoning_content": LONG}, 10_000),
    (
        "openai-chat",
        {"role": "assistant", "content": "ok", "reasoning_details": [{"type": "reasoning.encrypted", "data": BLOB}]},
        10_000,
    ),
    (
        "openai-chat",
        {"role": "user", "content": [{"type": "file", "file": {"file_data": f"data:application/pdf;base64,{BLOB}"}}]},
        1_000,
    ),
    ("gemini", {"role": "model", "parts": [{"text": "ok", "thought_signature": BLOB}]}, 10_000),
    ("gemini", {"role": "model", "parts": [{"functionCall": {"name": "f"}, "thoughtSignature": BLOB}]}, 10_000),
    (
        "gemini",
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"shot": PICTURE, "n": 1}}}]},
        1_000,
    ),
    ("langchain", _langchain({"type": "thinking", "thinking": "", "signature": BLOB}), 10_000),
    ("langchain", _langchain({"type": "reasoning", "summary": [], "encrypted_content": BLOB}), 10_000),
    ("langchain", _langchain({"type": "image", "base64": PICTURE, "mime_type": "image/png"}, kind="human"), 1_000),
    ("langchain", _langchain(additional_kwargs={"reasoning_content": LONG}), 10_000),
    ("pydantic-ai", _pydantic({"part_kind": "thinking", "content": "", "signature": BLOB}), 10_000),
    ("pydantic-ai", _pydantic({"part_kind": "compaction", "provider_details": {"encrypted_content": BLOB}}), 10_000),
    (
        "pydantic-ai",
        _pydantic({"part_kind": "file", "content": {"kind": "binary", "media_type": "image/png", "data": PICTURE}}),
        1_000,
    ),
    ("acp", {"sessionId": "s", "prompt": [{"type": "audio", "mimeType": "audio/wav", "data": BLOB}]}, 1_000),
    (
        "acp",
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "status": "completed",
            "rawOutput": {"content": [{"type": "image", "mimeType": "image/png", "data": PICTURE}]},
        },
        1_000,
    ),
]


@pytest.mark.parametrize(("format", "body", "tokens"), SIZES, ids=lambda v: str(v)[:40])
def test_what_cannot_be_read_counts_by_its_size_and_a_picture_as_one(format: str, body: Json, tokens: int) -> None:
    assert tokens <= _size(format, body) <= tokens + 60


def test_a_tools_own_data_is_told_as_it_is_though_it_names_files_and_signatures() -> None:
    listed = {"entries": [{"type": "file", "name": "a.py", "url": "https://x/y"}], "signature": "f(x)"}
    body = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": listed}

    assert json.loads(codec("acp").text(body)) == listed


def test_where_an_answer_has_something_from_is_read() -> None:
    cited = {"type": "text", "text": "17.", "citations": [{"type": "web_search_result_location", "url": "https://x/y"}]}
    noted = {"type": "output_text", "text": "17.", "annotations": [{"type": "url_citation", "url": "https://x/y"}]}

    for format, body in (
        ("anthropic", {"role": "assistant", "content": [cited]}),
        ("openai-responses", {"type": "message", "role": "assistant", "content": [noted]}),
    ):
        assert codec(format).parse(body).parts == (TextPart("17."), DocumentPart("https://x/y", "sources"))


def test_a_picture_that_the_provider_made_is_shown_behind_its_call() -> None:
    item = _item("image_generation_call", revised_prompt="a pump", result=PICTURE)

    for other, messages in _told("openai-responses", item):
        if other in ("openai-chat", "anthropic", "langchain"):
            assert PICTURE in json.dumps(messages[-1]), other
            assert RULES[other](messages).wrong == []


# ---------------------------------------------------------------------- calls that others answer


@pytest.fixture
def session() -> Iterator[Session]:
    with onefold.open("memory:", clock=StoppedClock(), ids=CountedIds()) as store:
        yield store.session("s")


def test_an_approval_belongs_to_what_it_approves() -> None:
    asked = _item("mcp_approval_request", name="wipe", arguments='{"disk": 1}', server_label="s")
    given = {
        "type": "mcp_approval_response",
        "approval_request_id": "x_1",
        "approve": False,
        "reason": "Not that disk.",
    }

    assert codec("openai-responses").parse(asked).parts == (ToolCall("x_1", "wipe", '{"disk": 1}'),)
    assert codec("openai-responses").parse(given).parts == (
        ToolResult("x_1", "not approved: Not that disk.", failed=True),
    )
    for other, messages in _told("openai-responses", asked, given):
        assert other not in RULES or RULES[other](messages).wrong == []
        if other == "openai-responses":
            assert messages[-2:] == [asked, given]


def test_approvals_of_one_id_are_told_apart() -> None:
    asked = _item("mcp_approval_request", name="wipe", arguments="{}", server_label="s")
    given = {"type": "mcp_approval_response", "approval_request_id": "x_1", "approve": True}

    told: list[Any] = convert([("openai-responses", m) for m in (asked, given, asked, given)], "openai-responses")

    ids = [m.get("approval_request_id") or m["id"] for m in told]
    assert ids == ["x_1", "x_1", "x_1_2", "x_1_2"]


def test_a_result_of_the_providers_stands_in_the_answer_that_called_though_somebody_spoke_in_between() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    talk = [_asks(), {"role": "assistant", "content": [use]}, _asks(), _answer(found)]

    told: list[Any] = convert([("anthropic", m) for m in talk], "anthropic")

    assert RULES["anthropic"](told).wrong == []
    assert [m["content"] for m in told] == [_asks()["content"], [use, found], _asks()["content"], _answer()["content"]]


def test_an_approval_that_nobody_gave_is_none(session: Session) -> None:
    asked = _item("mcp_approval_request", name="wipe", arguments="{}", server_label="s")
    session.append([asked, {"type": "message", "role": "user", "content": "Wait."}], format="openai-responses")
    session.append({"type": "message", "role": "assistant", "content": "I do."}, format="openai-responses")

    made_up = [m for m, n in zip(session.context().messages, session.context().numbers, strict=True) if n == 0]

    answers: list[Any] = [m for m in made_up if "approve" in m]
    assert [(a["type"], a["approval_request_id"], a["approve"]) for a in answers] == [
        ("mcp_approval_response", "x_1", False)
    ]


@pytest.mark.parametrize("name", ["web_search", "tool_search_tool_bm25", "code_execution", None])
def test_a_call_of_the_providers_that_got_no_result_is_answered_by_one_of_its_own_kind(
    session: Session, name: str | None
) -> None:
    use: Json = {"type": "server_tool_use", "id": "s1", "name": name, "input": {}}
    if name is None:
        use = {"type": "mcp_tool_use", "id": "s1", "name": "f", "server_name": "s", "input": {}}
    session.append([_asks(), {"role": "assistant", "content": [use]}, _asks(), _answer()], format="anthropic")

    told = session.context().to("anthropic")

    assert RULES["anthropic"](told).wrong == []
    blocks = [b for m in told for b in m["content"] if isinstance(b, dict)]
    (answer,) = (b for b in blocks if b.get("tool_use_id") == "s1")
    kinds = {"tool_search_tool_bm25": "tool_search_tool_result", None: "mcp_tool_result"}
    assert answer["type"] == kinds.get(name, f"{name}_tool_result")


def test_an_answer_that_the_provider_paused_goes_on_in_the_next(session: Session) -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    paused, resumed = {"role": "assistant", "content": [use]}, _answer(found)
    session.append([_asks(), paused, resumed], format="anthropic")

    context = session.context()

    assert (context.left_out, 0 in context.numbers) == ((), False)
    for other, rule in RULES.items():
        assert rule(context.to(other)).wrong == []


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
        ),
        ({"type": "local_shell_call", "id": "i", "action": {"command": ["ls"]}}, "x"),
        ({"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}, "x"),
        ({"type": "custom_tool_call", "name": "f", "input": "y"}, "x"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_a_made_up_output_has_the_shape_of_its_kind(call: Json, output: Json) -> None:
    (made,) = codec("openai-responses").answer({**call, "call_id": "c"}, [ToolResult("c", "x", failed=True)])

    assert (made["type"], made["output"]) == (f"{call['type']}_output", output)
    assert codec("openai-responses").header(made).result_ids == ("c",)


# ---------------------------------------------------------------------- what nobody knows


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=30)
names = st.from_regex(r"later_[a-z]{2,6}", fullmatch=True)
values = st.recursive(
    WORDS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
UNKNOWN: dict[str, Any] = {
    "anthropic": lambda kind, fields: _answer({"type": kind, **fields}),
    "openai-responses": lambda kind, fields: {"type": kind, "encrypted_content": "", **fields},
    "openai-chat": lambda kind, fields: {"role": "user", "content": [{"type": kind, **fields}]},
    "langchain": lambda kind, fields: _langchain({"type": kind, **fields}),
    "gemini": lambda kind, fields: _content(fields),
    "google-adk": lambda kind, fields: {"author": "agent", "content": _content(fields)},
    "pydantic-ai": lambda kind, fields: _pydantic({"part_kind": kind, **fields}),
    "claude-code": lambda kind, fields: {"type": "assistant", "message": _answer({"type": kind, **fields})},
    "acp": lambda kind, fields: {"sessionUpdate": "agent_message_chunk", "content": {"type": kind, **fields}},
}


def _words(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (w for v in value.values() for w in _words(v))
        case list():
            yield from (w for v in value for w in _words(v))


@pytest.mark.parametrize("format", UNKNOWN)
@given(kind=names, fields=st.dictionaries(names, values, min_size=1, max_size=4))
@settings(max_examples=100)
def test_a_block_that_nobody_knows_is_read_and_counts_in_every_format(format: str, kind: str, fields: Json) -> None:
    body = UNKNOWN[format](kind, fields)
    found = [w for w in _words(fields) if w.strip()]

    said = codec(format).parse(body)

    assert all(w in said.text for w in found)
    assert not any(w == p.text for w in found for p in said.parts if isinstance(p, TextPart))
    assert codec(format).header(body).tokens >= 4 + sum(len(w.encode()) for w in found) // 4
    for other in FORMATS:
        told = [codec(other).text(m) for m in convert([(format, body)], other)]
        assert all(any(w in t for t in told) for w in found), other


@pytest.mark.parametrize(
    "body",
    [
        {"role": "assistant", "content": [{"type": "later", "text": "x"}] * 100_000},
        _answer(*({"type": "server_tool_use", "id": f"s{n}", "name": "f", "input": {}} for n in range(100_000))),
        _answer({"type": "later", "of": [{"n": n, "text": "x"} for n in range(100_000)]}),
    ],
    ids=["blocks", "calls", "one block"],
)
def test_a_message_of_very_many_parts_costs_what_its_parts_cost(body: Json) -> None:
    assert codec("anthropic").header(body).tokens >= 50_000


# ---------------------------------------------------------------------- recognised by what the providers' own types are


def _kinds(union: Any) -> set[str]:
    """The types of all that a union of an SDK has."""
    found: set[str] = set()
    for one in get_args(union):
        named = getattr(one, "__annotations__", {}).get("type")
        found |= _kinds(one) if named is None else {*re.findall(r"""["']([a-z_]+)["']""", str(named))}
    return found


ITEMS = sorted(_kinds(ResponseInputItemParam) - {"message"})
BLOCKS = sorted(_kinds(BetaContentBlockParam) - {"text"})


def test_the_sdks_have_the_types_that_are_tried_here() -> None:
    assert {"mcp_call", "web_search_call", "compaction", "item_reference", "shell_call_output"} <= {*ITEMS}
    assert {"server_tool_use", "document", "search_result", "compaction", "container_upload"} <= {*BLOCKS}


@pytest.mark.parametrize("kind", ITEMS)
def test_every_item_of_responses_is_recognised_without_a_format(kind: str) -> None:
    body = {"type": kind, "id": "x_1", "call_id": "c_1"}
    bare = {"type": kind, "id": "x_1"}

    assert detect_format(body) == "openai-responses"
    named = kind.removesuffix("_output") in ("function_call", "custom_tool_call", "computer_call", "local_shell_call")
    assert detect_format(bare) == "openai-responses" or named or kind == "program", "without its call_id it is none"


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_every_block_of_anthropics_is_recognised_without_a_format(kind: str, role: str) -> None:
    body = {"role": role, "content": [{"type": "text", "text": "x"}, {"type": kind, "id": "x", "tool_use_id": "x"}]}

    assert detect_format(body) == "anthropic"


def test_thought_that_one_who_speaks_chat_has_is_chat() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    body = {"role": "assistant", "content": [thought, {"type": "text", "text": "17"}]}

    assert detect_format(body) == "openai-chat"
    assert codec("openai-chat").parse(body).parts == (ReasoningPart("Hm."), TextPart("17"))


def test_a_wrong_guess_loses_nothing_that_can_be_read(session: Session) -> None:
    session.append({"type": "phone_call", "number": "+49 30 1234", "note": "He wants two.", "minutes": 3})

    for other in RULES:
        told = json.dumps(session.context().to(other))
        assert "+49 30 1234" in told
        assert "He wants two." in told


def test_pictures_are_still_pictures() -> None:
    shown = {"type": "input_image", "image_url": "https://x/y.png"}
    body = {"role": "user", "content": [shown]}

    assert codec("openai-responses").parse(body).parts == (MediaPart("image", "https://x/y.png"),)
