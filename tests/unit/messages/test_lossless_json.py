"""Messages: what goes in comes out equal, on every kind of store, or is refused with nothing written."""

from __future__ import annotations

import datetime
import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import onefold
from onefold import InvalidMessage, MessageTooLarge, OnefoldError, Session, Store
from onefold.messages import codec, decode, detect_format, digest, encode
from onefold.messages.codecs import estimate
from onefold.model import Header, Json
from tests.conftest import CountedIds, StoppedClock, said

_ODD = ["\x00", "a\x00b", "\ud800", "\udfff\ud800", "\u2028\u2029\x85", "\ufeff", "😀", "\x1b[31m", ""]
_text = st.one_of(st.text(st.characters(codec=None), max_size=20), st.sampled_from(_ODD))
_numbers = st.one_of(
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 2**64, 2**64 - 1, 10**40, -(10**40)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 1.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e22]),
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_text, inner, max_size=4)),
    max_leaves=20,
)


def same(one: Json, other: Json) -> bool:
    """Equal, and of the same types all the way down: 1, 1.0 and True are three things."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (one != 0 or math.copysign(1, one) == math.copysign(1, other))


def nested(depth: int) -> Json:
    value: Json = "the middle"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


# ---------------------------------------------------------------------- what goes in comes out equal


@given(_json)
@settings(max_examples=300)
@example({"a": "\ud800", "b": 2**70, "c": [1.0, True, None, 1]})
def test_any_json_comes_back_equal_from_its_text(value: Json) -> None:
    text = encode(value)

    assert same(decode(text), value)
    text.encode()  # and the text itself is whole: no store has to carry half a character
    assert "\x00" not in text
    assert "\n" not in text


@given(values=st.lists(_json, min_size=1, max_size=5))
@settings(max_examples=50)
def test_any_json_comes_back_equal_from_a_store(values: list[Json], tmp_path_factory: pytest.TempPathFactory) -> None:
    for address in ("memory:", str(tmp_path_factory.mktemp("any") / "agent.db")):
        with onefold.open(address, clock=StoppedClock(), ids=CountedIds()) as store:
            session = store.session("s")
            session.append([{"role": "user", "content": "x", "extra": v} for v in values], key="k")
            session.append(values, format="json")

            read = [r.body for r in session.read(2)]
            again = session.append([{"extra": v, "content": "x", "role": "user"} for v in values], key="k")

            assert same(read, [*({"role": "user", "content": "x", "extra": v} for v in values), *values])
            assert same(session.context().messages, read)
            assert again.duplicate


def test_odd_text_survives_everywhere_it_may_stand(session: Session) -> None:
    odd = " ".join(_ODD)
    calls = {
        "role": "assistant",
        "content": odd,
        "tool_calls": [{"id": odd, "type": "function", "function": {"name": odd, "arguments": odd}}],
    }
    result = {"role": "tool", "tool_call_id": odd, "content": odd}

    session.append([calls, result])

    assert [r.body for r in session.read(8)] == [calls, result]
    assert session.context().messages[-2:] == [calls, result]


def test_odd_text_survives_in_summaries_and_instructions_and_a_cause_can_be_logged(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    odd = " ".join(_ODD)

    def summarizer(material: onefold.SummaryInput) -> str:
        assert material.instructions == odd
        if material.attempt == 1:
            raise RuntimeError(odd)
        return odd

    assert session.compact(summarizer, instructions=odd).applied

    assert session.context().summary == odd
    (failed,) = [r for r in session.read() if r.kind == "compaction.failed"]
    assert failed.body["cause"].startswith("RuntimeError: \x00 a\x00b ?")
    assert all(record.getMessage().encode() for record in caplog.records)


def test_a_history_of_odd_text_is_compacted_without_a_model_too(session: Session) -> None:
    session.append([{"role": "user", "content": f"{odd} " * 30} for odd in _ODD])
    session.append([{"role": "user", "content": odd} for odd in _ODD])
    session.append([said(n) for n in range(10)])

    assert session.compact().applied
    session.append([said(n) for n in range(10)])
    assert session.compact().applied


@pytest.mark.parametrize("depth", [100, 250, 300, 390])
def test_deep_nesting_comes_back_equal(session: Session, depth: int) -> None:
    message = {"role": "user", "content": "x", "deep": nested(depth)}

    session.append(message, key="deep")

    assert session.append(message, key="deep").duplicate
    (record,) = session.read(8)
    assert record.body == message


def test_what_is_nested_too_deeply_is_refused_in_words(session: Session) -> None:
    with pytest.raises(InvalidMessage, match="nested too deeply"):
        session.append({"role": "user", "content": "x", "deep": nested(5000)})
    with pytest.raises(InvalidMessage, match="nested too deeply"):
        session.append({"role": "user", "content": "x", "deep": nested(5000)}, key="deep")

    assert session.state.last == 7


def test_mappings_that_are_no_dicts_come_back_as_equal_dicts(session: Session) -> None:
    session.append([OrderedDict(role="user", content="x"), MappingProxyType({"role": "user", "content": "y"})])

    assert [r.body for r in session.read(8)] == [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]


# ---------------------------------------------------------------------- what JSON cannot carry is refused

_CYCLE: list[Json] = []
_CYCLE.append(_CYCLE)


class Colour(enum.Enum):
    RED = "red"


REFUSED: dict[str, tuple[Json, str]] = {
    "nan": (math.nan, r"message\.deep\[1\]\.here: nan is not JSON"),
    "infinity": (math.inf, r"message\.deep\[1\]\.here: inf is not JSON"),
    "minus infinity": (-math.inf, r"message\.deep\[1\]\.here: -inf is not JSON"),
    "tuple": ((1, 2), r"message\.deep\[1\]\.here: a tuple is not JSON"),
    "set": ({1, 2}, r"message\.deep\[1\]\.here: a set is not JSON"),
    "bytes": (b"x", r"message\.deep\[1\]\.here: a bytes is not JSON"),
    "date": (datetime.date(2026, 1, 1), r"message\.deep\[1\]\.here: a date is not JSON"),
    "path": (Path("x"), r"message\.deep\[1\]\.here: a \w*Path is not JSON"),
    "enum": (Colour.RED, r"message\.deep\[1\]\.here: a Colour is not JSON"),
    "object": (object(), r"message\.deep\[1\]\.here: a object is not JSON"),
    "number as key": ({1: "x"}, r"message\.deep\[1\]\.here: the key 1 is not a string"),
    "none as key": ({None: "x"}, r"message\.deep\[1\]\.here: the key None is not a string"),
    "tuple as key": ({(1, 2): "x"}, r"message\.deep\[1\]\.here: the key \(1, 2\) is not a string"),
    "nan beside odd text": (["\ud800", math.nan], r"message\.deep\[1\]\.here\[1\]: nan is not JSON"),
    "split surrogate pair": ("\ud800" + "\udc00", r"message\.deep\[1\]\.here: two surrogates side by side"),
    "split pair as key": ({"\ud800" + "\udc00": 1}, r"message\.deep\[1\]\.here: two surrogates side by side"),
    "cycle": (_CYCLE, "nested too deeply"),
}


@pytest.mark.parametrize(("value", "complaint"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("format", [None, "json"])
def test_what_would_not_come_back_equal_is_refused_and_the_place_is_named(
    session: Session, value: Json, complaint: str, format: str | None
) -> None:
    before = session.state

    with pytest.raises(InvalidMessage, match=rf"session 's': .*({complaint})"):
        session.append([said(1), {"role": "user", "content": "x", "deep": [0, {"here": value}]}], format=format)
    with pytest.raises(InvalidMessage):
        session.queue_input({"role": "user", "content": "x", "deep": [0, {"here": value}]})
    with pytest.raises(InvalidMessage):
        session.compact(lambda m: "short", follow_up={"role": "user", "content": [value]})

    assert session.state == before


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "nobody", "content": "x"}, r"'nobody' is not a role of a chat message; use one of assistant, .*json"),
        ({"role": None, "content": "x"}, "None is not a role"),
        ({"role": ["user"], "content": "x"}, "is not a role"),
        ({"role": {"a": 1}, "content": "x"}, "is not a role"),
        ({"role": "tool", "content": "x"}, "needs the tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": 5}, "needs the tool_call_id"),
        ({"role": "assistant", "tool_calls": "run"}, "tool_calls is a list"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "needs a string id"),
        ({"role": "assistant", "tool_calls": ["run"]}, "needs a string id"),
    ],
)
def test_a_message_that_is_none_is_refused_with_nothing_written(
    session: Session, message: Json, complaint: str
) -> None:
    with pytest.raises(InvalidMessage, match=rf"session 's': .*{complaint}"):
        session.append([said(1), message])

    assert session.state.last == 7


@pytest.mark.parametrize("message", ["text", 5, None, True, ["a", "list"]])
def test_what_is_no_object_is_no_chat_message_but_may_be_kept_as_json(session: Session, message: Json) -> None:
    with pytest.raises(InvalidMessage, match="a chat message is an object"):
        session.append([message], format="openai-chat")

    session.append([message])

    (record,) = session.read(8)
    assert (record.body, record.format) == (message, "json")


def test_an_unknown_format_is_refused(session: Session) -> None:
    with pytest.raises(InvalidMessage, match=r"no message format 'xml'; there are: acp, anthropic, .*json, .*openai-"):
        session.append(said(7), format="xml")


def test_a_message_over_the_limit_is_refused_and_one_at_the_limit_is_kept(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.session.MESSAGE_LIMIT", 200)
    room = 200 - len(encode({"role": "user", "content": ""}))

    for content in ("x" * (room + 1), "é" * (room // 2 + 1)):
        with pytest.raises(
            MessageTooLarge, match=r"'s': a message of 20\d bytes is over the limit of 200; nothing was written"
        ):
            session.append([said(1), {"role": "user", "content": content}])
        with pytest.raises(MessageTooLarge):
            session.queue_input({"role": "user", "content": content})

    assert session.state.last == 7
    assert session.append({"role": "user", "content": "x" * room}).numbers == (8,)


def test_the_limit_is_64_mebibytes() -> None:
    assert onefold.session.MESSAGE_LIMIT == 64 * 1024 * 1024


def test_the_callers_list_and_dicts_are_never_changed_nor_kept(session: Session) -> None:
    inner = {"type": "text", "text": "hello"}
    message = {"role": "user", "content": [inner]}
    messages = [message]

    session.append(messages, key="k")

    assert messages == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    inner["text"] = "changed afterwards"
    messages.clear()
    (record,) = session.read(8)
    assert record.body == {"role": "user", "content": [{"type": "text", "text": "hello"}]}


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", "x" * 10_000, ""])
def test_an_actor_or_agent_that_cannot_be_shown_is_refused(session: Session, name: str) -> None:
    with pytest.raises(OnefoldError, match=r"actor .* is invalid"):
        session.append(said(7), actor=name)
    with pytest.raises(OnefoldError, match=r"agent .* is invalid"):
        onefold.open("memory:", agent=name)

    assert session.state.last == 7


# ---------------------------------------------------------------------- what the engine derives from a message


@pytest.mark.parametrize(
    ("message", "header"),
    [
        ({"role": "user", "content": "x" * 40}, Header("user", 14)),
        ({"role": "user", "content": None}, Header("user", 4)),
        ({"role": "user", "content": [{"type": "text", "text": "x" * 40}]}, Header("user", 14)),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, Header("user", 1004)),
        ({"role": "user", "content": [5, None, {"type": None}]}, Header("user", 4)),
        ({"role": "assistant", "tool_calls": None, "content": ""}, Header("assistant", 4)),
        ({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}, Header("assistant", 4, ("a", "b"))),
        ({"role": "tool", "tool_call_id": "a", "content": ""}, Header("tool", 4, (), ("a",))),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
            Header("assistant", 5, ("function:f",)),
        ),
        ({"role": "function", "name": "f", "content": ""}, Header("function", 4, (), ("function:f",))),
    ],
)
def test_the_header_of_a_chat_message(message: Json, header: Header) -> None:
    assert codec("openai-chat").header(message) == header


def test_the_arguments_of_a_call_count_as_text() -> None:
    small = {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    large = {"id": "a", "type": "function", "function": {"name": "run", "arguments": "x" * 4000}}
    header = codec("openai-chat").header

    assert header({"role": "assistant", "tool_calls": [large]}).tokens > 1000
    assert header({"role": "assistant", "tool_calls": [small]}).tokens < 20


@pytest.mark.parametrize(
    ("body", "role"),
    [
        ({"role": "critic", "content": "x"}, "critic"),
        ({"role": 5}, "other"),
        ({"role": "a b"}, "other"),
        ("x", "other"),
    ],
)
def test_plain_json_is_taken_at_its_word(body: Json, role: str) -> None:
    header = codec("json").header(body)

    assert (header.role, header.call_ids, header.result_ids) == (role, (), ())


@pytest.mark.parametrize(
    ("body", "format"),
    [
        ({"role": "user"}, "openai-chat"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "openai-chat"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "image", "source": {}}]}, "anthropic"),
        ({"type": "function_call", "call_id": "a"}, "openai-responses"),
        ({"type": "reasoning", "summary": []}, "openai-responses"),
        ({"type": "message", "role": "user", "content": [{"type": "input_text"}]}, "openai-responses"),
        ({"sessionUpdate": "plan"}, "acp"),
        ({"content": "x"}, "json"),
        ("x", "json"),
        ([], "json"),
    ],
)
def test_a_message_is_recognised_by_what_only_its_format_has(body: Json, format: str) -> None:
    assert detect_format(body) == format


def test_the_estimate_counts_bytes_not_characters() -> None:
    assert [estimate(t) for t in ("", "abcd", "abcde", "éé", "\ud800")] == [0, 1, 2, 1, 1]


@given(_json, _json)
@settings(max_examples=100)
def test_two_bodies_have_the_same_digest_exactly_if_they_are_the_same(one: Json, other: Json) -> None:
    equal = digest("", "message", "json", one) == digest("", "message", "json", other)

    assert equal == same(one, other)


def test_a_digest_depends_on_what_came_before_and_on_kind_and_format() -> None:
    given = [
        digest("", "message", "json", {}),
        digest("x", "message", "json", {}),
        digest("", "note", "json", {}),
        digest("", "message", None, {}),
        digest("", "messagejson", "", {}),
    ]

    assert len(set(given)) == len(given)


def test_reading_needs_no_more_room_than_writing_did(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message written with a deep stack below it is read back with a deeper one."""
    session = store.session("s")
    deepest = next(d for d in range(900, 300, -10) if _fits(lambda d=d: session.append(_deep(d))))  # type: ignore[misc]

    def read_below(frames: int) -> Json:
        return read_below(frames - 1) if frames else next(session.read(2, 3)).body

    assert read_below(200) == _deep(deepest)


def _deep(depth: int) -> Json:
    return {"role": "user", "content": "x", "deep": nested(depth)}


def _fits(append: Callable[[], object]) -> bool:
    try:
        append()
    except InvalidMessage:
        return False
    return True
