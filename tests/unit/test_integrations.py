"""What integrations share: a store that is opened at first use, an append that is safe to repeat, summaries by a
framework's model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

import onefold
from onefold import aio
from onefold.integrations.common import LazyStore, ModelReply, append, below, by_model, latest, overflowed
from onefold.integrations.dedup import append_new, without_lines
from onefold.integrations.new_messages import NewMessages
from onefold.messages import codec
from onefold.messages.result_mask import line
from onefold.model import AppendResult, Json
from tests.support.helpers import quick, restless
from tests.support.model_server import material

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------------- a place


async def test_an_address_is_opened_at_first_use_once_and_closed_for_good(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    place = LazyStore(path, quick())
    assert not path.exists()

    one, other = await place.store(), await place.store()
    assert one is other
    assert one.policy == quick()

    await place.aclose()
    with pytest.raises(onefold.StoreError, match="was closed here; make a new object"):
        await place.store()
    with pytest.raises(onefold.StoreError):
        await one.session("s")


async def test_the_sessions_below_an_id_are_met_once_each_while_they_are_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"app/{n:02}" for n in range(12)]
    monkeypatch.setattr("onefold.store._PAGE", 2)
    with onefold.open("memory:") as store:
        for name in ("app", "app-2/00", *names, "app0", "apq", "ap/00"):
            store.session(name)
        walk = store.walk
        monkeypatch.setattr(store, "walk", lambda after, page: walk(after, page=2))
        with restless(store, names) as written:
            found = [state.id async for state in below(aio.Store(store), "app")]

    assert found == names
    assert len(written) > len(names) / 2


async def test_many_who_come_first_at_once_open_one_store(tmp_path: Path) -> None:
    place, got = LazyStore(tmp_path / "a.db"), []

    async def come() -> None:
        got.append(await place.store())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(come)

    assert len({id(store) for store in got}) == 1
    await place.aclose()


async def test_a_store_of_somebody_else_is_left_open(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as store:
        await LazyStore(store).aclose()
        place = LazyStore(aio.Store(store))
        await place.aclose()
        await (await place.store()).session("s")
        assert store.session("s").state.messages == 0


# ---------------------------------------------------------------------- an append


class Unsure:
    """A writer whose store does not say, so many times, whether it wrote."""

    def __init__(self, times: int) -> None:
        self.keys: list[str | None] = []
        self._times = times

    async def append(self, messages: Json | Sequence[Json], *, key: str | None, format: str | None) -> AppendResult:
        self.keys.append(key)
        if len(self.keys) <= self._times:
            raise onefold.OutcomeUnknown("the disk does not answer")
        return AppendResult((1,), duplicate=True)


async def test_an_append_whose_outcome_is_unknown_is_said_again_with_its_key() -> None:
    writer = Unsure(1)

    assert (await append(writer, [{}], "json")).duplicate
    assert len(writer.keys) == 2
    assert len(set(writer.keys)) == 1


async def test_an_append_that_cannot_be_told_twice_says_so() -> None:
    with pytest.raises(onefold.OutcomeUnknown):
        await append(Unsure(2), [{}], "json")


# ---------------------------------------------------------------------- the latest so many

ITEMS: list[Json] = [
    {"role": "user", "content": "Why?"},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
    {"type": "function_call", "call_id": "b", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "1"},
    {"role": "user", "content": "Wait."},
    {"type": "function_call_output", "call_id": "b", "output": "2"},
    {"role": "assistant", "content": "So."},
    {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize(
    ("most", "given"),
    [(0, ()), (1, (9,)), (2, (8, 9)), (3, (7, 8, 9)), (4, (7, 8, 9)), (5, (5, 7, 8, 9)), (6, (5, 7, 8, 9))]
    + [(most, (5, 7, 8, 9)) for most in (7, 8)]
    + [(most, tuple(range(10 - most, 10))) for most in (9, 10)]
    + [(11, tuple(range(10)))],
)
def test_the_latest_so_many_have_no_part_of_what_belongs_together(most: int, given: tuple[int, ...]) -> None:
    assert latest(ITEMS, most, "openai-responses") == [ITEMS[n] for n in given]


# ---------------------------------------------------------------------- messages with ids of their own


def answered(words: str, at: str, *more: str) -> Json:
    calls = [{"name": "look", "args": {"at": at}, "id": id, "type": "tool_call"} for id in more]
    return {"type": "ai", "data": {"type": "ai", "id": "a", "content": words, "tool_calls": calls}}


def result(words: str) -> Json:
    return {"type": "tool", "data": {"type": "tool", "id": "r", "content": words, "tool_call_id": "c"}}


def test_a_message_that_was_changed_is_written_again_but_never_a_call_or_a_result() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        for key, body in (
            ("a", answered("I see.", "the door")),
            ("a", answered("I look.", "the door", "c")),  # a change that makes a call
            ("a", answered("I look.", "the gate", "c")),  # the same call, changed
            ("r", result("open")),
            ("r", result("(cut)")),
            ("a", answered("I see nothing.", "the door")),
        ):
            append_new(session, [(key, body)], "langchain", changes=True)

        kept = [r.body["data"] for r in session.read() if r.kind == "message"]
        assert [data["content"] for data in kept] == ["I see.", "I look.", "open", "I see nothing."]
        assert [data["tool_calls"][0]["args"] for data in kept if data.get("tool_calls")] == [{"at": "the door"}]
        closed = [id for m in session.context().to("langchain") for id in codec("langchain").header(m).result_ids]
        assert closed == ["c"]


def test_a_masked_result_that_comes_back_under_another_id_is_not_written() -> None:
    rendered = result(f"Seen: {line(3, 900)}")
    with onefold.open("memory:") as store:
        session = store.session("s")
        append_new(session, [("a", answered("I look.", "the door", "c")), ("r", result("open"))], "langchain")

        assert append_new(session, [("r2", rendered), (None, rendered)], "langchain", changes=True) == ()
        assert without_lines(session, [rendered, result("open")], "langchain") == [result("open")]
        child = session.fork()
        assert append_new(child, [("r3", rendered)], "langchain") == (), "its parent has the result"


def test_a_tool_that_says_what_stands_for_a_result_is_heard() -> None:
    """A search in this conversation may well find such a line."""
    found = result(f"Seen: {line(3, 900)}")
    call = answered("I look.", "the door", "c")
    with onefold.open("memory:") as store:
        session = store.session("s")
        append_new(session, [("a", call), ("r", found)], "langchain")
        append_new(session, [("b", {**call, "data": {**call["data"], "id": "b"}}), ("r2", found)], "langchain")

        assert without_lines(store.session("t"), [call, found], "langchain") == [call, found]
        kept = [r.body["type"] for r in session.read() if r.kind == "message"]
        assert kept == ["ai", "tool", "ai", "tool"], "the call was made again under the same id, and has a result again"


# ---------------------------------------------------------------------- what a framework recorded


@dataclass
class Said:
    """A message of a framework."""

    kind: str
    parts: list[str]
    timestamp: int | None = None
    run_id: str | None = "this"


def story() -> tuple[NewMessages[Said], list[Said]]:
    """A run that was asked, answered with a call, and has the result in its list, which others are to have next."""
    recorded: NewMessages[Said] = NewMessages("this")
    messages = [Said("request", ["Why?"], 1), Said("response", ["call"], 2)]
    assert recorded.new(messages) == messages
    messages.append(Said("request", ["result"], 3))
    assert recorded.new(messages) == messages[2:]
    recorded.hand_out(messages[-1])
    return recorded, messages


def kept(messages: list[Said]) -> list[Said]:
    return messages[-1:]


def copied(messages: list[Said]) -> list[Said]:
    return [replace(m, parts=["####"]) for m in messages]


def made_anew(messages: list[Said]) -> list[Said]:
    return [Said("request", ["Ah."], run_id=None), *messages[:-1], replace(messages[-1], parts=["####"], timestamp=9)]


def left_alone(messages: list[Said]) -> list[Said]:
    return messages


@pytest.mark.parametrize("rewritten", [left_alone, kept, copied, made_anew])
def test_what_a_framework_adds_is_new_once_whatever_others_make_of_its_list(
    rewritten: Callable[[list[Said]], list[Said]],
) -> None:
    recorded, messages = story()
    answer = Said("response", ["Because."], 2)  # a provider that counts in seconds

    messages[:] = [*rewritten(messages), answer]

    assert recorded.new(messages) == [answer]
    assert recorded.new(messages) == []
    messages.append(Said("request", ["And?"], 4))
    assert recorded.new(messages) == messages[-1:]


@pytest.mark.parametrize("grown", [left_alone, lambda messages: [replace(m) for m in messages]])
def test_what_is_added_to_a_request_while_it_is_prepared_is_new_too(grown: Callable[[list[Said]], list[Said]]) -> None:
    recorded, messages = story()
    answer, late = Said("response", ["Because."], 5), Said("request", ["Oh."], 4)

    messages[:] = grown(messages)
    messages[-1].parts = [*messages[-1].parts, "Be quick."]
    messages += [late, answer]

    assert recorded.new(messages) == [replace(messages[2], parts=["Be quick."]), late, answer]


# ---------------------------------------------------------------------- summaries by a framework's model


async def test_a_frameworks_model_is_asked_in_the_event_loop_and_what_it_took_is_counted() -> None:
    where: list[threading.Thread] = []

    async def ask(system: str, user: str, limit: int) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        where.append(threading.current_thread())
        assert "Look at log 3." in user
        return ModelReply("They looked at logs.", 120, 7)

    made = await _awaited(by_model("small", ask), *(f"Look at log {n}." for n in range(5)))

    assert (made.text, made.by, made.spent) == ("They looked at logs.", "small", onefold.Usage(1, 120, 7))
    assert where == [threading.current_thread()]


async def test_an_answer_that_was_cut_off_says_so() -> None:
    async def ask(system: str, user: str, limit: int) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        return ModelReply("They looked", cut_off=True)

    assert (await _awaited(by_model("small", ask), "Look.")).cut_off


class TooLong(Exception):
    status_code = 400

    def __str__(self) -> str:
        return "prompt is too long: 9000 tokens > 4000 maximum"


async def test_a_prompt_that_is_too_long_is_split() -> None:
    prompts: list[str] = []

    async def ask(system: str, user: str, limit: int) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        prompts.append(user)
        if len(user) > 6_000:
            raise TooLong
        return ModelReply(f"Part {len(prompts)}.")

    made = await _awaited(by_model("small", ask, window=20_000), *(f"{n} " + "word " * 100 for n in range(30)))

    assert made.text.startswith("Part")
    assert len(prompts) > 3


@pytest.mark.parametrize(
    ("words", "told", "final"),
    [
        ("the framework is confused", "small failed: RuntimeError: the framework is confused", False),
        ("No API key was found", "small cannot be asked: No API key was found; give its client a key", True),
    ],
)
async def test_an_error_of_the_framework_is_a_failed_attempt_and_speaks_of_a_key_only_if_that_does(
    words: str, told: str, final: bool
) -> None:
    async def ask(system: str, user: str, limit: int) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        raise RuntimeError(words)

    with pytest.raises(onefold.SummarizerFailed) as caught:
        await _awaited(by_model("small", ask), "Look.")

    assert (str(caught.value), caught.value.final) == (told, final)


async def test_a_call_that_nobody_waits_for_any_more_is_ended() -> None:
    stopped = threading.Event()
    ended: list[str] = []

    async def ask(system: str, user: str, limit: int) -> ModelReply:
        stopped.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        raise AssertionError

    with anyio.fail_after(20), pytest.raises(onefold.SummarizerFailed, match="nobody waits"):
        await _awaited(by_model("small", ask), "Look.", stopped=stopped)

    assert len(ended) == 1


async def _awaited(
    summarizer: onefold.Summarizer, *said: str, stopped: threading.Event | None = None
) -> onefold.Summary:
    made = summarizer(material(*said, stopped=stopped.is_set if stopped else bool))
    assert not isinstance(made, str | onefold.Summary)
    answer = await made
    assert isinstance(answer, onefold.Summary)
    return answer


@pytest.mark.parametrize(
    ("error", "is_one"),
    [(TooLong(), True), (RuntimeError("prompt is too long"), False), (KeyboardInterrupt(), False)],
)
def test_a_refusal_for_size_is_told_from_other_errors(error: BaseException, is_one: bool) -> None:
    assert overflowed(error) == is_one
