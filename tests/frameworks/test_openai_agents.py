"""The OpenAI Agents SDK with a session of ours: what went in comes out, it compacts by itself, processes share it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, SessionSettings, SQLiteSession, function_tool
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession
from agents.memory import Session as SdkSession
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import Response, ResponseCompactionItem, ResponseCompletedEvent

import onefold
from onefold import aio
from onefold.integrations.openai_agents import OnefoldSession, summarize_with
from onefold.model import Json
from tests.frameworks.environments import FRAMEWORKS, ROOT
from tests.frameworks.trying import bodies, every_call_has_its_result, one_line, run_example, said
from tests.support.helpers import Child, at_barrier, quick, say, together
from tests.support.pages import run_page

HERE = FRAMEWORKS["openai-agents"]
QUIET = RunConfig(tracing_disabled=True)
SMALL = quick(limits=onefold.Limits(1_500, 100, soft=0.6, hard=0.9), tail_tokens=200)

EVERY_KIND: list[Json] = [
    {"role": "user", "content": "Why does the build fail? 🦊"},
    {"role": "user", "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "x"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "The log knows."}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}', "id": "fc_1"},
    {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path": "b"}', "id": "fc_2"},
    {"type": "function_call_output", "call_id": "c1", "output": "no network"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "nothing"}]},
    {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}, "id": "sh_1", "status": "completed"},
    {"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "a", "outcome": {"type": "exit"}}]},
    {"type": "local_shell_call", "call_id": "c4", "id": "ls_1", "action": {"type": "exec"}, "status": "completed"},
    {"type": "local_shell_call_output", "id": "c4", "output": "b"},
    {"type": "tool_search_call", "call_id": None, "arguments": {}, "execution": "server", "status": "completed"},
    {"type": "tool_search_output", "call_id": None, "tools": [], "execution": "server", "status": "completed"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "mcp_approval_request", "id": "ar_1", "name": "push", "server_label": "git", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "ar_1", "approve": True},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A test needs the network.", "annotations": [], "logprobs": []}],
    },
]


@function_tool
def read(path: str) -> str:
    """Reads a file."""
    return f"{path}: " + "word " * 40


def long_run(steps: int, tag: str = "") -> list[Any]:
    """A model that calls a tool so many times and then answers."""
    called = [[function_call("read", {"path": f"{tag}{n}"}, call_id=f"{tag}call-{n}")] for n in range(steps)]
    return [*called, [assistant_message(f"{tag}Read {steps} files.")]]


def agent(model: ScriptedModel) -> Agent[Any]:
    return Agent(name="builder", instructions="Be brief.", model=model, tools=[read])


def run(work: Callable[[], Any]) -> Any:
    return asyncio.run(work())


def sent(model: ScriptedModel) -> list[int]:
    """How many tokens each call of the model was sent, by the measure of the library."""
    parse = onefold.messages.codec("openai-responses").header
    return [sum(parse(item).tokens for item in call.input) for call in model.calls]


# ---------------------------------------------------------------------- drop-in


def test_a_session_is_one_of_the_sdk(tmp_path: Path) -> None:
    session: SdkSession = OnefoldSession("s", tmp_path / "a.db")

    assert isinstance(session, SdkSession)


def test_items_of_every_kind_go_in_and_come_out_equal(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await session.add_items(EVERY_KIND)
            assert await session.get_items() == EVERY_KIND
        async with OnefoldSession("s", tmp_path / "a.db") as again:
            assert await again.get_items() == EVERY_KIND
            assert [await again.pop_item() for _ in EVERY_KIND] == EVERY_KIND[::-1]
            assert await again.pop_item() is None

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        every_call_has_its_result(said(store.session("s")))


def test_whatever_is_done_to_it_it_gives_what_the_sdks_own_session_gives(tmp_path: Path) -> None:
    theirs, ours = SQLiteSession("s", tmp_path / "theirs.db"), OnefoldSession("s", tmp_path / "ours.db")

    given = [asyncio.run(_lived(theirs)), asyncio.run(_lived(ours))]
    theirs.close()
    ours.close()

    assert len(given[0]) > 100
    assert given[0] == given[1]


async def _lived(session: SQLiteSession | OnefoldSession) -> list[Json]:
    """What a session gives in the course of a life: always the same one."""
    chance = random.Random(7)
    given: list[Json] = []
    for n in range(300):
        act = chance.choice(["add", "add", "add", "pop", "pop", "all", "limit"]) if n % 60 else "clear"
        if act == "add":
            call: Json = {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"}
            done: Json = {"type": "function_call_output", "call_id": f"c{n}", "output": "x"}
            spoken: list[Json] = [{"role": "user", "content": f"{n}.{m}"} for m in range(chance.randrange(4))]
            await session.add_items([*spoken, *([call, done] if chance.random() < 0.4 else [])])
        elif act == "pop":
            given.append(await session.pop_item())
            if given[-1] and given[-1].get("type") == "function_call_output":  # a call alone gets a result of ours
                given.append(await session.pop_item())
        elif act == "clear":
            await session.clear_session()
        else:
            limit = chance.choice([0, 1, 3, 1000, -1]) if act == "limit" else None
            given.append(_whole(await session.get_items(limit)))
    return given


def _whole(items: list[Any]) -> list[Any]:
    """Without outputs whose call is not there: ours gives none."""
    called = {i["call_id"] for i in items if i.get("type") == "function_call"}
    return [i for i in items if i.get("type") != "function_call_output" or i["call_id"] in called]


def test_a_limit_never_gives_a_part_of_what_belongs_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await session.add_items(EVERY_KIND[:9])
            for limit in range(10):
                items: list[Any] = await session.get_items(limit)
                assert len(items) <= limit
                assert items == _whole(items)
                assert all(i.get("type") != "function_call" for i in items) or EVERY_KIND[2] in items

    run(story)


def test_an_output_without_its_call_is_given_by_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            spoken: Any = {"role": "user", "content": "Hello"}
            output: Any = {"type": "function_call_output", "call_id": "nobodys", "output": "x"}
            await session.add_items([spoken, output])
            assert await session.get_items() == await session.get_items(5) == [spoken]
            assert await session.pop_item() == spoken
            assert await session.pop_item() is None
            assert await session.get_items() == []

    run(story)


@pytest.mark.parametrize("settings", [{"limit": 2}, SessionSettings(limit=2)])
def test_settings_may_be_a_dict_as_for_the_sdks_own_sessions(tmp_path: Path, settings: Any) -> None:
    async def story() -> None:
        model = ScriptedModel([[assistant_message(f"{n}")] for n in range(3)])
        async with OnefoldSession("s", tmp_path / "a.db", session_settings=settings) as session:
            for n in range(3):
                await Runner.run(agent(model), f"Question {n}?", session=session, run_config=QUIET)
            assert len(model.calls[-1].input) == 3
            session.session_settings = {"limit": 1}
            assert len(await session.get_items()) == 1
            session.session_settings = None
            assert len(await session.get_items()) == 6

    run(story)


# ---------------------------------------------------------------------- items that are none of the SDK's


@pytest.mark.parametrize("limit", [None, 5])
def test_an_encrypted_session_around_it_keeps_what_only_it_can_read(tmp_path: Path, limit: int | None) -> None:
    async def story() -> None:
        model, plain = (ScriptedModel([s for n in range(12) for s in long_run(1, f"{n}-")]) for _ in range(2))
        for said_by, inside in (
            (model, OnefoldSession("s", tmp_path / "a.db", policy=SMALL)),
            (plain, SQLiteSession("s", tmp_path / "theirs.db")),
        ):
            session = EncryptedSession("s", cast(Any, inside), "a key that nobody knows")
            session.session_settings = SessionSettings(limit=limit)
            for n in range(12):
                await Runner.run(agent(said_by), f"Read {n}.", session=session, run_config=QUIET)
            inside.close()
        assert [_timeless(call.input) for call in model.calls] == [_timeless(call.input) for call in plain.calls]
        again = OnefoldSession("s", tmp_path / "a.db")
        opened = EncryptedSession("s", cast(Any, again), "a key that nobody knows")
        assert len(await opened.get_items()) == 48
        newest: Any = await opened.pop_item()
        assert newest["content"][0]["text"] == "11-Read 1 files."
        with pytest.raises(onefold.CompactionDisabled):
            await again.compact()
        again.close()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        assert not any("Read" in str(r.body) for r in said(store.session("s")))
        assert one_line(store.session("s")) == 0


def _timeless(items: Any) -> list[Json]:
    return [{k: v for k, v in item.items() if k != "id"} for item in items]


def test_items_that_are_added_together_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            nobodys: Any = {"type": "function_call_output", "output": "of no call"}
            with pytest.raises(onefold.InvalidMessage, match="needs the call_id"):
                await session.add_items([{"role": "user", "content": "Hello"}, nobodys])
            assert await session.get_items() == []

    run(story)


def test_a_run_goes_on_where_another_object_left_off(tmp_path: Path) -> None:
    async def story() -> None:
        model = ScriptedModel([*long_run(2), [assistant_message("Yes.")]])
        async with OnefoldSession("s", tmp_path / "a.db") as first:
            await Runner.run(agent(model), "Read them.", session=first, run_config=QUIET)
        async with OnefoldSession("s", tmp_path / "a.db") as second:
            await Runner.run(agent(model), "Sure?", session=second, run_config=QUIET)
        texts = [i.get("content") or i.get("output") or i.get("name") for i in model.calls[-1].input]
        assert texts[0] == "Read them."
        assert texts[-1] == "Sure?"
        assert len(texts) == 7

    run(story)


def test_a_run_without_an_event_loop_and_a_streamed_one_share_a_session(tmp_path: Path) -> None:
    model = ScriptedModel([[assistant_message("One.")], [assistant_message("Two.")]])
    session = OnefoldSession("s", tmp_path / "a.db")

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # else the SDK makes one, and leaves it open
    Runner.run_sync(agent(model), "First?", session=session, run_config=QUIET)
    asyncio.set_event_loop(None)
    loop.close()

    async def streamed() -> None:
        result = Runner.run_streamed(agent(model), "Second?", session=session, run_config=QUIET)
        async for _ in result.stream_events():
            pass

    run(streamed)
    session.close()
    with onefold.open(tmp_path / "a.db") as store:
        assert [r.header.role for r in said(store.session("s")) if r.header] == ["user", "assistant"] * 2


def test_a_limit_gives_the_latest_items_and_compacts_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        settings = SessionSettings(limit=2)
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL, session_settings=settings) as session:
            items: list[Any] = [{"role": "user", "content": f"{n} " + "word " * 60} for n in range(40)]
            await session.add_items(items)
            assert await session.get_items() == items[-2:]
            assert (await (await session.opened()).state).compactions == 0

    run(story)


def test_a_store_that_is_open_already_stays_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.open(tmp_path / "a.db") as store:
            async with OnefoldSession("s", store) as session:
                await session.add_items([{"role": "user", "content": "Hello"}])
            assert (await (await store.session("s")).state).messages == 1
        with onefold.open(tmp_path / "a.db") as sync_store:
            assert await OnefoldSession("s", sync_store).get_items() == [{"role": "user", "content": "Hello"}]

    run(story)


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        session = OnefoldSession("s", tmp_path / "a.db")
        await session.get_items()
        session.close()
        with pytest.raises(onefold.StoreError, match="was closed here"):
            await session.get_items()

    run(story)


def test_pop_and_clear_take_back_and_delete_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await session.add_items(EVERY_KIND)
            await session.pop_item()
            await session.clear_session()
            assert await session.get_items() == []
            await session.add_items([{"role": "user", "content": "Anew."}])
            assert await session.get_items() == [{"role": "user", "content": "Anew."}]

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        assert bodies(said(store.session("s"))) == [*EVERY_KIND, {"role": "user", "content": "Anew."}]


# ---------------------------------------------------------------------- compaction


def test_a_long_conversation_compacts_by_itself_and_the_journal_keeps_everything(tmp_path: Path) -> None:
    async def story() -> ScriptedModel:
        model = ScriptedModel([step for n in range(30) for step in long_run(1, f"{n}-")])
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL) as session:
            for n in range(30):
                await Runner.run(agent(model), f"Read {n}.", session=session, run_config=QUIET)
        return model

    model = run(story)

    assert max(sent(model)) < 1_500
    with onefold.open(tmp_path / "a.db") as store:
        session = store.session("s")
        assert one_line(session) > 1
        every_call_has_its_result(said(session))
        asked = [r.body["content"] for r in said(session) if r.header and r.header.role == "user"]
        assert asked == [f"Read {n}." for n in range(30)]


def test_one_long_run_stays_within_its_limit_with_the_input_filter(tmp_path: Path) -> None:
    async def story() -> ScriptedModel:
        model = ScriptedModel(long_run(30))
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL) as session:
            config = RunConfig(call_model_input_filter=session.fit, tracing_disabled=True)
            result = await Runner.run(agent(model), "Read all.", session=session, run_config=config, max_turns=40)
            assert result.final_output == "Read 30 files."
        return model

    model = run(story)

    assert max(sent(model)) <= SMALL.of(None).hard_tokens
    for call in model.calls:
        answered = {i["call_id"] for i in call.input if i.get("type") == "function_call_output"}
        assert {i["call_id"] for i in call.input if i.get("type") == "function_call"} == answered
        assert any(i.get("content") == "Read all." for i in call.input)


def in_place(item: Any) -> Any:
    item["output"] = f"{item['output']} (seen)"
    return item


def copied(item: Any) -> Any:
    return {**item, "output": f"{item['output']} (seen)"}


def cut_short(item: Any) -> Any:
    return {**item, "output": item["output"][:70]}


@pytest.mark.parametrize("change", [in_place, copied, cut_short])
def test_what_stands_for_a_masked_result_is_never_written(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    def merged(history: list[Any], new: list[Any]) -> list[Any]:
        return [*(change(i) if "is left out" in str(i.get("output")) else i for i in history), *new]

    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await Runner.run(agent(ScriptedModel(long_run(4))), "Read.", session=session, run_config=QUIET)
        with onefold.open(tmp_path / "a.db") as store:
            before = bodies(said(store.session("s")))
            results = [r.number for r in said(store.session("s")) if r.header and r.header.result_ids]
            store.session("s").mask(*results[:3])
        for n in range(3):  # each of them another process, as far as the session knows
            async with OnefoldSession("s", tmp_path / "a.db") as session:
                model = ScriptedModel(long_run(1, f"later-{n}-"))
                config = RunConfig(session_input_callback=merged, tracing_disabled=True)
                await Runner.run(agent(model), [{"role": "user", "content": "On."}], session=session, run_config=config)
                assert "is left out" in str(model.calls[0].input)
        with onefold.open(tmp_path / "a.db") as store:
            kept = said(store.session("s"))
            assert bodies(kept)[: len(before)] == before
            assert "is left out" not in str(bodies(kept))
            answered = [r.body["call_id"] for r in kept if r.header and r.header.result_ids]
            assert len(answered) == len({*answered}) == 4 + 3

    run(story)


def test_an_input_that_is_not_of_the_session_is_left_alone(tmp_path: Path) -> None:
    async def story() -> None:
        model = ScriptedModel([[assistant_message("Yes.")]])
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await session.add_items([{"role": "user", "content": "Of the session."}])
            config = RunConfig(call_model_input_filter=session.fit, tracing_disabled=True)
            await Runner.run(agent(model), "Not of it.", run_config=config)
        assert [i["content"] for i in model.calls[0].input] == ["Not of it."]

    run(story)


def test_the_frameworks_own_model_writes_the_summary(tmp_path: Path) -> None:
    async def story() -> None:
        writer = ScriptedModel([[assistant_message("## Goal\nRead the files.\n## State\nEight were read.")]])
        summarizer = summarize_with(writer, name="small-model", run_config=QUIET)
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL, summarizer=summarizer) as session:
            await session.add_items([{"role": "user", "content": f"{n} " + "word " * 60} for n in range(8)])
            assert (await session.compact()).applied
            items: list[Any] = await session.get_items()
            assert "Eight were read." in str(items)
            assert [s["by"] for s in await _summaries(session)] == ["small-model"]
        assert writer.calls[0].system_instructions is not None
        assert "3 word word" in str(writer.calls[0].input)

    run(story)


async def _summaries(session: OnefoldSession) -> list[Json]:
    opened = await session.opened()
    return [r.body async for r in opened.read() if r.kind == "segment.opened" and r.body.get("summary")]


# ---------------------------------------------------------------------- failure paths


def down(material: onefold.SummaryInput) -> str:
    raise ConnectionError("no answer")


def test_a_summarizer_that_fails_stops_no_run_until_the_hard_limit_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        model = ScriptedModel([[assistant_message(f"{n} " + "word " * 60)] for n in range(40)])
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL, summarizer=down) as session:

            async def many() -> None:
                for n in range(40):
                    await Runner.run(agent(model), f"Question {n}?", session=session, run_config=QUIET)

            with pytest.raises(onefold.ContextTooLarge, match="and compaction"):
                await many()
            assert SMALL.of(None).soft_tokens < max(sent(model)) <= SMALL.of(None).hard_tokens
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL) as mended:
            assert (await mended.compact()).applied
            await Runner.run(agent(model), "And now?", session=mended, run_config=QUIET)

    run(story)


def test_a_store_that_cannot_be_written_is_an_error_and_not_a_run_without_memory(tmp_path: Path) -> None:
    async def story() -> None:
        model = ScriptedModel(long_run(0))
        async with OnefoldSession("s", tmp_path / "no" / "such" / "folder" / "a.db") as session:
            with pytest.raises(onefold.StoreError):
                await Runner.run(agent(model), "Hello?", session=session, run_config=QUIET)
        assert model.calls == ()

    run(story)


def test_an_append_whose_answer_was_lost_is_repeated_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = aio.Session.append, [True]

    async def loses(self: aio.Session, messages: Json, **options: Json) -> onefold.AppendResult:
        done = await real(self, messages, **options)
        if lost and lost.pop():
            raise onefold.OutcomeUnknown("the disk does not answer")
        return done

    monkeypatch.setattr(aio.Session, "append", loses)

    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db") as session:
            await session.add_items(EVERY_KIND)
            assert await session.get_items() == EVERY_KIND

    run(story)
    assert lost == []


def test_the_event_loop_goes_on_while_a_summary_is_waited_for(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(material: onefold.SummaryInput) -> str:
        begun.set()
        assert go_on.wait(20)
        return "They talked."

    async def story() -> None:
        async with OnefoldSession("s", tmp_path / "a.db", policy=SMALL, summarizer=slow) as session:
            await session.add_items([{"role": "user", "content": f"{n} " + "word " * 60} for n in range(30)])
            waiting = asyncio.create_task(session.get_items())
            assert await asyncio.to_thread(begun.wait, 20)
            assert not waiting.done()
            go_on.set()  # only a loop that is free gets here
            assert "They talked." in str(await waiting)

    run(story)


# ---------------------------------------------------------------------- compactions that the provider makes


class Compacts:
    """A client of OpenAI's as far as `responses.compact` goes: people's words come back, and an item for the rest."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None, *also: Json) -> None:
        self.responses = self
        self.given: list[list[Json]] = []
        self.windows: list[list[Json]] = []
        self._meanwhile, self._also = meanwhile, also

    async def compact(self, *, model: str, input: list[Json]) -> SimpleNamespace:
        self.given.append(list(input))
        if self._meanwhile is not None:
            await self._meanwhile()
        spoken = [item for item in input if item.get("role") == "user"]
        item = {"type": "compaction", "id": f"cmp_{len(self.given)}", "encrypted_content": f"seal {len(self.given)}"}
        self.windows.append([*spoken, item])
        return SimpleNamespace(output=[*spoken, *self._also, item], usage=None)

    def around(self, session: OnefoldSession) -> OpenAIResponsesCompactionSession:
        return OpenAIResponsesCompactionSession(
            session.session_id, cast(Any, session), client=cast(Any, self), should_trigger_compaction=lambda _: False
        )


NOW: Any = {"force": True, "compaction_mode": "input"}
ELSEWHERE = onefold.Origin("anthropic", model="claude-opus-5-5")
MORE: Json = {"role": "user", "content": "More."}


def test_a_window_of_the_provider_takes_the_place_of_the_past_and_clears_nothing(tmp_path: Path) -> None:
    path, client = tmp_path / "a.db", Compacts()

    async def story() -> None:
        model = ScriptedModel([step for n in range(4) for step in long_run(2, f"{n}-")])
        ours = OnefoldSession("s", path)
        session = client.around(ours)
        for n in range(2):
            await Runner.run(agent(model), f"Read {n}.", session=session, run_config=QUIET)
        before = await ours.get_items()
        await session.run_compaction(NOW)
        assert client.given == [before]
        assert await ours.get_items() == await session.get_items(1000) == client.windows[0]

        await Runner.run(agent(model), "Read 2.", session=session, run_config=QUIET)
        assert model.calls[-1].input[:3] == client.windows[0]
        assert len(model.calls[-1].input) == len(client.windows[0]) + 5, "the window and this run, each once"
        async with OnefoldSession("s", path, origin=ELSEWHERE) as other:
            plain: list[Any] = await other.get_items()
            assert plain[: len(before)] == before
            assert len(plain) == 3 * 6

        await session.run_compaction(NOW)
        assert client.given[1][:3] == client.windows[0]
        assert await ours.get_items() == client.windows[1]
        ours.close()
        async with OnefoldSession("s", path) as again:
            assert await again.get_items() == client.windows[1]
        async with OnefoldSession("s", path, origin=None) as other:
            assert await other.get_items() == plain

    run(story)
    with onefold.open(path) as store:
        records = said(store.session("s"))
        every_call_has_its_result(records)
        assert len(records) == 3 * 6 + len(client.windows[0]) + len(client.windows[1])
        assert [s.source for s in store.session("s").segments()].count("provider") == 2
        assert store.verify().findings == ()


def test_what_somebody_else_wrote_while_the_provider_compacted_stands_behind_its_window(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    written: list[Any] = [{"role": "user", "content": "Stop."}, *EVERY_KIND[3:7]]

    async def another() -> None:
        async with OnefoldSession("s", path) as other:
            await other.add_items(written)

    async def story() -> None:
        client = Compacts(another)
        async with OnefoldSession("s", path) as ours:
            session = client.around(ours)
            model = ScriptedModel(long_run(1))
            await Runner.run(agent(model), "Read.", session=session, run_config=QUIET)
            await session.run_compaction(NOW)
            assert await ours.get_items() == [*client.windows[0], *written]

    run(story)


def test_a_clear_is_one_unless_a_window_follows_it_from_the_same_hands(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    spoken: list[Any] = [{"role": "user", "content": "Hello"}]
    window: list[Any] = [*spoken, {"type": "compaction", "id": "cmp_1", "encrypted_content": "seal"}]

    async def story() -> None:
        async with OnefoldSession("s", path) as session:
            await session.add_items(EVERY_KIND)
            await session.get_items()
            await session.clear_session()
        async with OnefoldSession("s", path) as again:  # the one before died right here
            assert await again.get_items() == []
            await again.clear_session()
            await again.add_items(window)
            assert await again.get_items() == window
            await again.clear_session()
            await again.add_items(spoken)
            assert await again.get_items() == spoken
            await again.add_items([cast(Any, MORE)])
            await again.clear_session()
            await again.add_items(spoken)
            assert await again.get_items() == spoken, "what was given before is not all that was there"

    run(story)
    with onefold.open(path) as store:
        assert bodies(said(store.session("s"))) == [*EVERY_KIND, *window, *spoken, MORE, *spoken]
        assert "provider" not in [s.source for s in store.session("s").segments()]


def test_a_window_that_cannot_be_written_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    client = Compacts(None, {"type": "function_call_output", "output": "of no call"})

    async def story() -> None:
        async with OnefoldSession("s", path, policy=SMALL) as ours:
            session = client.around(ours)
            await ours.add_items([{"role": "user", "content": f"{n} " + "word " * 60} for n in range(20)])
            before = await ours.get_items()
            with pytest.raises(onefold.InvalidMessage, match="needs the call_id"):
                await session.run_compaction(NOW)
            assert await ours.get_items() == before

    run(story)
    with onefold.open(path) as store:
        assert len(said(store.session("s"))) == 20, "nothing that was rendered is in the journal"
        assert one_line(store.session("s")) == 1


def completed(output: list[Any]) -> Any:
    response = Response.model_construct(id="resp-1", output=output, usage=None)
    return ResponseCompletedEvent.model_construct(type="response.completed", response=response, sequence_number=0)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_item_in_an_answer_is_adopted_with_what_was_sent(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "a.db"
    made = ResponseCompactionItem(id="cmp_1", encrypted_content="seal", type="compaction")
    item = {"id": "cmp_1", "encrypted_content": "seal", "type": "compaction"}

    async def asks(model: ScriptedModel, prompt: str, session: OnefoldSession) -> None:
        if not streamed:
            await Runner.run(agent(model), prompt, session=session, run_config=QUIET)
            return
        async for _ in Runner.run_streamed(agent(model), prompt, session=session, run_config=QUIET).stream_events():
            pass

    async def story() -> None:
        output: Any = [made, function_call("read", {"path": "b"}, call_id="late")]
        compacted = ModelStep.stream([completed(output)], output=output)
        model = ScriptedModel([*long_run(1), compacted, [assistant_message("Both.")], [assistant_message("Yes.")]])
        async with OnefoldSession("s", path) as session:
            await asks(model, "Read a.", session)
            await asks(model, "Read b.", session)
            await asks(model, "Sure?", session)
        kinds = [i.get("type") or i["role"] for i in model.calls[-1].input]
        assert model.calls[-1].input[0] == item
        assert kinds.count("function_call") == kinds.count("function_call_output") == 1
        async with OnefoldSession("s", path, origin=ELSEWHERE) as other:
            plain: list[Any] = await other.get_items()
        assert item not in plain
        assert [i["content"] for i in plain if i.get("role") == "user"] == ["Read a.", "Read b.", "Sure?"]

    run(story)
    with onefold.open(path) as store:
        assert [s.source for s in store.session("s").segments()] == ["created", "provider"]
        assert len(said(store.session("s"))) == 4 + 5 + 2


def test_an_item_is_adopted_in_a_long_run_that_was_compacted_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made = ResponseCompactionItem(id="cmp_1", encrypted_content="seal", type="compaction")

    async def story() -> None:
        output: Any = [made, function_call("read", {"path": "b"}, call_id="late")]
        model = ScriptedModel([*long_run(14)[:-1], output, [assistant_message("All.")]])
        async with OnefoldSession("s", path, policy=SMALL) as session:
            config = RunConfig(tracing_disabled=True, call_model_input_filter=session.fit)
            await Runner.run(agent(model), "Read.", session=session, run_config=config, max_turns=30)
        assert model.calls[-1].input[0] == {"id": "cmp_1", "encrypted_content": "seal", "type": "compaction"}
        assert len(model.calls[-1].input) == 3, "the item, and the call that came with it"

    run(story)
    with onefold.open(path) as store:
        sources = [s.source for s in store.session("s").segments()]
        assert "compaction" in sources
        assert sources[-1] == "provider"
        every_call_has_its_result(said(store.session("s")))
        assert store.verify().findings == ()


# ---------------------------------------------------------------------- several processes


def runs(path: str, tag: str, count: int) -> None:
    """A process that runs an agent on the session again and again, and compacts."""

    async def work() -> None:
        model = ScriptedModel([step for n in range(count) for step in long_run(2, f"{tag}{n}-")])
        async with OnefoldSession("shared", path, policy=SMALL) as session:
            at_barrier()
            for n in range(count):
                await Runner.run(agent(model), f"{tag}{n}", session=session, run_config=QUIET)
        for call in model.calls:
            calls = [i["call_id"] for i in call.input if i.get("type") == "function_call"]
            results = [i["call_id"] for i in call.input if i.get("type") == "function_call_output"]
            assert sorted(calls) == sorted(results)
            assert len(calls) == len(set(calls))

    asyncio.run(work())
    say("done")


def test_two_processes_on_one_session_lose_nothing_and_never_fork(tmp_path: Path) -> None:
    path, count = str(tmp_path / "a.db"), 6
    here = "tests.frameworks.test_openai_agents"
    with (
        Child("runs", module=here, path=path, tag="a", count=count) as one,
        Child("runs", module=here, path=path, tag="b", count=count) as other,
    ):
        together(one, other)
        one.hear("done")
        other.hear("done")

    with onefold.open(path) as store:
        session = store.session("shared")
        assert one_line(session) > 1
        records = said(session)
        every_call_has_its_result(records)
        called = {r.body["call_id"]: r.number for r in records if r.body.get("type") == "function_call"}
        answered = {r.body["call_id"]: r.number for r in records if r.body.get("type") == "function_call_output"}
        assert answered == {id: number + 1 for id, number in called.items()}
        for tag in ("a", "b"):
            mine = [what for r in records if (what := _what(r.body)).startswith(tag)]
            assert mine == [w for n in range(count) for w in _of_a_run(f"{tag}{n}")]
        assert len(records) == 2 * count * 6
        assert store.verify().findings == ()


def _what(item: Json) -> str:
    content = item.get("content")
    return str(item.get("call_id") or (content if isinstance(content, str) else content[0]["text"]))


def _of_a_run(tag: str) -> list[str]:
    called = [f"{tag}-call-{n}" for n in (0, 0, 1, 1)]
    return [tag, *called, f"{tag}-Read 2 files."]


# ---------------------------------------------------------------------- pages and examples


@pytest.mark.parametrize("page", HERE.pages)
def test_the_page_is_true(page: str, tmp_path: Path) -> None:
    run_page(ROOT / page, tmp_path)


@pytest.mark.parametrize("example", HERE.examples)
def test_the_example_runs_offline(example: str, tmp_path: Path) -> None:
    assert "compactions" in run_example(example, tmp_path)
