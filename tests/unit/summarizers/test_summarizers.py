"""The summarizer that needs no model, and how any summarizer is called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold import Record, Summary, SummaryInput, extractive_summary
from onefold.compaction.summarizer import budget, call
from onefold.messages import codec
from onefold.messages.codecs import estimate
from onefold.model import Json


def material(messages: list[Json], *, previous: str | None = None, max_tokens: int = 400) -> SummaryInput:
    records = tuple(
        Record(n, f"id-{n}", "message", 0.0, m, "openai-chat", codec("openai-chat").header(m))
        for n, m in enumerate(messages, start=2)
    )
    return SummaryInput("s", previous, records, None, max_tokens, 1)


def said(text: str, role: str = "user") -> Json:
    return {"role": role, "content": text}


# ---------------------------------------------------------------------- extract


def test_an_extract_has_the_beginning_of_each_message_with_its_role_and_number() -> None:
    made = extractive_summary(material([said("Fix the build"), said("It is fixed", "assistant")]))

    assert made == Summary("- user (#2): Fix the build\n- assistant (#3): It is fixed", by="extract")


def test_an_extract_carries_the_old_summary_first_and_does_not_pile_up_headings() -> None:
    first = extractive_summary(material([said("one")]))
    second = extractive_summary(material([said("two")], previous=first.text))
    third = extractive_summary(material([said("three")], previous=second.text))

    assert third.text.startswith("Earlier:\n- user (#2): one")
    assert third.text.count("Earlier:") == 1
    assert third.text.endswith("- user (#2): three")


def test_an_extract_is_always_the_same() -> None:
    given = material([said(f"message {n} " * 50) for n in range(30)], previous="before")

    assert extractive_summary(given) == extractive_summary(given)


def test_an_extract_shows_tool_calls_and_results_as_a_person_would_read_them() -> None:
    calls = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "run", "arguments": '{"x": 1}'}}]}

    made = extractive_summary(material([calls, {"role": "tool", "tool_call_id": "a", "content": "42"}]))

    assert made.text == '- assistant (#2): run {"x": 1}\n- tool (#3): 42'


@given(
    st.lists(st.text(st.characters(codec=None), max_size=200), min_size=1, max_size=40),
    st.one_of(st.none(), st.text(st.characters(codec=None), min_size=1)),
    st.integers(16, 500),
)
@settings(max_examples=200)
def test_an_extract_of_anything_keeps_to_its_room(texts: list[str], previous: str | None, room: int) -> None:
    made = extractive_summary(material([said(t) for t in texts], previous=previous, max_tokens=room))

    assert made.text.strip()
    assert estimate(made.text) <= room + 12  # one short line says where it stopped


# ---------------------------------------------------------------------- calling


async def coroutine(given: SummaryInput) -> str:
    await asyncio.sleep(0)
    return "a string"


class Promise:
    """Awaitable, but no coroutine."""

    def __await__(self) -> Generator[None, None, Summary]:
        yield
        return Summary("a string")


class Callable_:
    def __call__(self, given: SummaryInput) -> Awaitable[str]:
        return coroutine(given)


@pytest.mark.parametrize(
    "summarizer",
    [lambda m: "a string", lambda m: Summary("a string"), coroutine, lambda m: Promise(), Callable_()],
    ids=["str", "Summary", "async", "awaitable", "object"],
)
def test_a_summarizer_of_any_shape_is_called(summarizer) -> None:  # type: ignore[no-untyped-def]
    assert call(summarizer, material([said("x")])) == Summary("a string")


@pytest.mark.parametrize("value", [None, 5, b"x", ["x"], {"content": "x"}])
def test_what_is_no_summary_is_named_by_its_type(value: object) -> None:
    async def later(given: SummaryInput) -> object:
        return value

    for summarizer in (lambda m: value, later):
        with pytest.raises(TypeError, match=f"a summarizer returns a str or a Summary, not a {type(value).__name__}"):
            call(summarizer, material([said("x")]))  # type: ignore[arg-type]


def test_what_a_summarizer_raises_comes_through() -> None:
    async def later(given: SummaryInput) -> str:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        call(later, material([said("x")]))


def test_the_messages_of_a_material_are_the_bodies_of_its_records() -> None:
    given = material([said("one"), said("two")])

    assert given.messages == [said("one"), said("two")]
    assert [given.text(r) for r in given.records] == ["one", "two"]


@pytest.mark.parametrize(("removed", "wanted", "room"), [(30_000, 4_000, 4_000), (3_000, 4_000, 1_000), (0, 4_000, 16)])
def test_a_summary_has_room_in_proportion_to_what_it_replaces(removed: int, wanted: int, room: int) -> None:
    assert budget(removed, wanted) == room
