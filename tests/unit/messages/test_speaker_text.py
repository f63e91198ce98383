"""What the speaker of a message says in plain words, and where in the body it stands."""

from __future__ import annotations

import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold.messages import FORMATS, codec, encode
from onefold.messages.parts import TextPart
from onefold.messages.program_messages import by_program
from onefold.messages.speaker_text import resolve, spoken
from onefold.model import Json
from tests.support.detection import SHAPES
from tests.support.formats import _fuzz
from tests.support.framework_formats import in_adk, in_claude, in_langchain
from tests.support.provider_blocks import CASES

ODD = "a\x00b\ud800c \u202e~/"
"""A NUL, half a character, a turn of direction, and what pointers escape."""

SPOKEN: list[tuple[str, Json, list[tuple[str, str]]]] = [
    ("openai-chat", {"role": "user", "content": "user"}, [("/content", "user")]),
    ("openai-chat", {"role": "user", "content": ODD}, [("/content", ODD)]),
    (
        "openai-chat",
        {"role": "user", "content": [{"type": "text", "text": "text"}, {"type": "text", "text": "text"}]},
        [("/content/0/text", "text"), ("/content/1/text", "text")],
    ),
    ("openai-chat", {"role": "tool", "tool_call_id": "a", "content": "log"}, []),
    ("openai-chat", {"role": "assistant", "content": "ok", "reasoning_content": "hm"}, [("/content", "ok")]),
    ("openai-responses", {"type": "message", "role": "user", "content": "x"}, [("/content", "x")]),
    (
        "openai-responses",
        {
            "role": "user",
            "content": [
                {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,eA=="},
                {"type": "input_text", "text": "Read it."},
            ],
        },
        [("/content/1/text", "Read it.")],
    ),
    ("openai-responses", {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "never"}, []),
    (
        "anthropic",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "log"}]},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "rules"}},
                {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "rules"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
        [("/content/3/text", "Go on.")],
    ),
    (
        "claude-code",
        {
            "type": "user",
            "message": {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>\n"},
                    {"type": "text", "text": "Why <system-reminder> there?"},
                ],
            },
        },
        [("/message/content/1/text", "Why <system-reminder> there?")],
    ),
    (
        "acp",
        {
            "sessionId": "s",
            "prompt": [
                {"type": "resource", "resource": {"uri": "file:///a", "text": "rules"}},
                {"type": "text", "text": "Read it."},
            ],
        },
        [("/prompt/1/text", "Read it.")],
    ),
    (
        "acp",
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "x"}},
        [("/content/text", "x")],
    ),
    (
        "gemini",
        {"role": "user", "parts": [{"text": "x"}, {"text": "y"}]},
        [("/parts/0/text", "x"), ("/parts/1/text", "y")],
    ),
    ("google-adk", in_adk()[0], [("/content/parts/0/text", "Why does it fail? ")]),
    ("google-adk", in_adk()[2], [("/content/parts/1/text", "I look.")]),
    ("langchain", in_langchain()[0], [("/data/content", "Why does it fail? ")]),
    ("langchain", in_langchain()[2], [("/data/content/1", "I look.")]),
    (
        "pydantic-ai",
        {
            "kind": "request",
            "parts": [
                {"part_kind": "system-prompt", "content": "Be brief."},
                {"part_kind": "user-prompt", "content": ["one", {"kind": "image-url", "url": "u"}, "two"]},
                {"part_kind": "retry-prompt", "content": "no", "tool_name": None},
            ],
        },
        [("/parts/1/content/0", "one"), ("/parts/1/content/2", "two")],
    ),
    ("json", {"role": "critic", "content": "No."}, [("/content", "No.")]),
    ("json", "bare", [("", "bare")]),
    ("json", {"any": "thing"}, []),
    ("xml", {"role": "user", "content": "x"}, []),
    ("openai-chat", {"role": "nobody", "content": "x"}, []),
    ("openai-chat", None, []),
]


@pytest.mark.parametrize(("format", "body", "found"), SPOKEN)
def test_words_are_found_at_their_place(format: str, body: Json, found: list[tuple[str, str]]) -> None:
    assert spoken(format, body) == found
    assert [resolve(body, pointer) for pointer, _ in found] == [text for _, text in found]
    assert all(type(text) is str for _, text in spoken(format, body))


def check(format: str, body: Json) -> None:
    before = encode(body)

    found = spoken(format, body)

    assert encode(body) == before
    assert all(resolve(body, pointer) == text for pointer, text in found)
    assert len({pointer for pointer, _ in found}) == len(found)
    texts = [p.text for p in codec(format).parse(body).parts if isinstance(p, TextPart)] if found else []
    left = iter(texts)
    assert all(any(text == t for t in left) for _, text in found), "in the order in which they are said"


@pytest.mark.parametrize("format", SHAPES)
@given(data=st.data())
@settings(max_examples=150)
def test_every_place_leads_to_its_words(format: str, data: st.DataObject) -> None:
    check(format, data.draw(SHAPES[format]))


@pytest.mark.parametrize("format", FORMATS)
@given(body=_fuzz)
@settings(max_examples=300)
def test_odd_bodies_say_nothing_or_something_and_are_never_an_error(format: str, body: Json) -> None:
    check(format, body)
    by_program(format, body)
    assert spoken(f"{format}?", body) == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.format)
def test_what_a_provider_ran_is_nobodys_words(case: Any) -> None:
    check(case.format, case.body)
    assert not any(words in text for words in case.read for _, text in spoken(case.format, case.body))


@given(words=st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_comes_back_code_point_for_code_point(words: list[str]) -> None:
    body = {"role": "user", "content": [{"type": "text", "text": w} for w in words]}
    places = [f"/content/{n}/text" for n, w in enumerate(words) if w]

    for format in ("openai-chat", "anthropic", "openai-responses"):
        assert spoken(format, body) == [*zip(places, filter(None, words), strict=True)]


@pytest.mark.parametrize(
    "pointer",
    [
        "/content/0",
        "/content/-1/text",
        "/content/00/text",
        "/content/1/text",
        "/content/0/text/0",
        "content",
        "/",
        "/role/x",
    ],
)
def test_a_place_that_is_not_there_or_no_text_is_none(pointer: str) -> None:
    assert resolve({"role": "user", "content": [{"type": "text", "text": "x"}]}, pointer) is None


def test_names_are_escaped_as_pointers_have_it() -> None:
    assert resolve({"a/b": {"m~n": ["x"]}}, "/a~1b/m~0n/0") == "x"


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("anthropic", {"role": "user", "content": [{"type": "text", "text": "same"}] * 100_000}),
        ("openai-chat", {"role": "user", "content": "<system-reminder>" * 60_000}),
        ("claude-code", {"type": "user", "message": {"role": "user", "content": "<system-reminder>" * 60_000}}),
        (
            "claude-code",
            {"type": "user", "message": {"role": "user", "content": "<bash-stdout></bash-stdout>" * 60_000}},
        ),
        ("openai-chat", {"role": "user", "content": "x" * 4_000_000}),
        ("openai-chat", {"role": "user", "content": [[[["x"] * 1000] * 10] * 10]}),
    ],
    ids=["parts", "tags", "open tags", "closed tags", "long", "nested"],
)
def test_a_large_message_costs_what_its_size_is(format: str, body: Json) -> None:
    begun = time.process_time()

    found = spoken(format, body)
    by_program(format, body)

    assert time.process_time() - begun < 10
    assert all(resolve(body, pointer) == text for pointer, text in found[:: max(1, len(found) // 100)])


# ---------------------------------------------------------------------- whose words a user's message is


def line(content: Json, **more: Json) -> Json:
    return {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": content}, **more}


@pytest.mark.parametrize(
    ("format", "body"),
    [
        *(
            ("claude-code", line("Go on.", **{mark: True}))
            for mark in ("isMeta", "isCompactSummary", "isSynthetic", "isVisibleInTranscriptOnly", "isSidechain")
        ),
        ("claude-code", line("x", origin={"kind": "task-notification"})),
        ("claude-code", line("<local-command-stdout>two\nlines</local-command-stdout>")),
        ("claude-code", line("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>")),
        ("claude-code", line([{"type": "text", "text": "<system-reminder>x</system-reminder>"}])),
        ("claude-code", line([{"type": "text", "text": "[Request interrupted by user for tool use]"}])),
        ("google-adk", {"author": "user", "actions": {"compaction": {"compacted_content": {"parts": []}}}}),
        ("langchain", {"type": "human", "data": {"content": "x", "additional_kwargs": {"lc_source": "summarization"}}}),
        ("pydantic-ai", {"kind": "request", "parts": [{"part_kind": "retry-prompt", "content": "no"}]}),
    ],
)
def test_what_a_program_wrote_for_a_user_is_known_by_its_marks(format: str, body: Json) -> None:
    assert by_program(format, body)


@pytest.mark.parametrize(
    ("format", "body"),
    [
        *(("claude-code", message) for message in in_claude()),
        ("claude-code", line("x", isMeta=False, isSidechain=False, origin={"kind": "human"})),
        ("claude-code", line("<bash-input>ls</bash-input>")),
        ("claude-code", line("<system-reminder>x</system-reminder> and what I say")),
        ("claude-code", line("what I say <system-reminder>x</system-reminder>")),
        ("claude-code", line("<system-reminder>x")),
        ("claude-code", {"type": "summary", "summary": "Mending."}),
        *(("google-adk", event) for event in in_adk()),
        *(("langchain", message) for message in in_langchain()),
        ("pydantic-ai", {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "x"}]}),
        ("openai-chat", {"role": "user", "content": "<system-reminder>x</system-reminder>"}),
        ("xml", {"isMeta": True}),
        ("claude-code", None),
        ("claude-code", {"message": {"content": 5}, "origin": {"kind": 5}}),
    ],
)
def test_what_a_person_wrote_is_no_programs_word(format: str, body: Json) -> None:
    assert not by_program(format, body)
