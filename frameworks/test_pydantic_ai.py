"""Pydantic AI with a capability of ours: runs go on anywhere, contexts compact, and a run is a turn of its session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ImageUrl
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import onefold
from frameworks.environments import FRAMEWORKS, ROOT
from frameworks.trying import every_call_has_its_result, one_line, run_example, said
from onefold import aio
from onefold.integrations.pydantic_ai import OnefoldHistory, summarize_with
from onefold.messages import codec
from onefold.model import Json
from tests.helpers import Child, at_barrier, quick, say, together
from tests.pages import run_page

HERE = FRAMEWORKS["pydantic-ai"]
SMALL = quick(limits=onefold.Limits(1_500, 100, soft=0.6, hard=0.9), tail_tokens=200)
Answer = Callable[[list[ModelMessage]], ModelResponse]


class Model:
    """A model that answers what it is told to, and remembers what it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.sent: list[list[ModelMessage]] = []
        self.tokens: list[int] = []
        """How many tokens each request had, by the measure of the library."""
        self._answer = answer

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self._hear(messages)
        answer = self._answer(messages)
        answer.usage = RequestUsage(input_tokens=self.tokens[-1], output_tokens=1)
        return answer

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self._hear(messages)
        for part in self._answer(messages).parts:
            if isinstance(part, TextPart):
                yield part.content

    def _hear(self, messages: list[ModelMessage]) -> None:
        self.sent.append(list(messages))
        dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        self.tokens.append(sum(codec("pydantic-ai").header(body).tokens for body in dumped))

    def agent(self, history: OnefoldHistory, **options: Any) -> Agent[None, Any]:
        model = FunctionModel(self, stream_function=self.stream)
        agent: Agent[None, Any] = Agent(
            model, capabilities=[history], system_prompt="You mend builds.", tools=[read], **options
        )
        return agent


def read(path: str) -> str:
    """Reads a file."""
    return f"{path}: " + "word " * 40


def says(text: str) -> Answer:
    return lambda messages: ModelResponse(parts=[TextPart(text)])


def reads(files: int, tag: str = "") -> Answer:
    """Reads so many files for each prompt, one after the other, and then answers."""
    counted = [0]

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        done, counted[0] = counted[0] % (files + 1), counted[0] + 1
        if done == files:
            return ModelResponse(parts=[TextPart(f"{tag}Read {files} files.")])
        return ModelResponse(parts=[ToolCallPart("read", {"path": "a"}, tool_call_id=f"{tag}call-{counted[0]}")])

    return answer


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await story()

    return asyncio.run(main())


def kinds(messages: Sequence[ModelMessage]) -> list[str]:
    return [part.part_kind for message in messages for part in message.parts]


def paired(messages: Sequence[ModelMessage]) -> None:
    """Every call in what a model was sent has its result right behind it."""
    for call, result in zip(messages, [*messages[1:], None], strict=True):
        wanted = {p.tool_call_id for p in call.parts if isinstance(p, ToolCallPart)}
        given = {p.tool_call_id for p in (result.parts if result else ()) if isinstance(p, ToolReturnPart)}
        assert wanted == given


# ---------------------------------------------------------------------- the record

EVERY_KIND: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("You mend builds."), UserPromptPart("Why does it fail? 🦊")]),
    ModelResponse(parts=[ThinkingPart("The log knows.", signature="EqoB"), TextPart("I look.")]),
    ModelRequest(
        parts=[
            UserPromptPart(
                ["Look:", ImageUrl(url="https://example.org/a.png"), BinaryContent(b"\x00", media_type="text/csv")]
            )
        ]
    ),
    ModelResponse(
        parts=[
            ToolCallPart("read", {"path": "a"}, tool_call_id="c1"),
            ToolCallPart("read", '{"path": "b"}', tool_call_id="c2"),
            NativeToolCallPart("web_search", {"query": "x"}, tool_call_id="n1"),
            NativeToolReturnPart("web_search", {"found": 0}, tool_call_id="n1"),
        ],
        usage=RequestUsage(input_tokens=12, output_tokens=3),
        model_name="m",
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("read", {"lines": [1, 2]}, tool_call_id="c1"),
            ToolReturnPart("read", "no such file", tool_call_id="c2", outcome="retried"),
            UserPromptPart("And?"),
        ]
    ),
    ModelResponse(parts=[TextPart("A test needs the network.")]),
]


def test_messages_of_every_kind_are_kept_equal_and_calls_with_their_results(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        await model.agent(history).run("Sure?", conversation_id="s", message_history=EVERY_KIND)
        await history.aclose()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        records = said(store.session("s"))
        kept = ModelMessagesTypeAdapter.validate_python([r.body for r in records])
        assert kept[:-2] == EVERY_KIND
        every_call_has_its_result(records)
        assert [r.header.role for r in records if r.header] == [
            "user", "assistant", "user", "assistant", "user", "assistant", "user", "assistant"
        ]  # fmt: skip


def test_what_a_message_leaves_empty_is_not_written_and_what_a_tool_leaves_empty_is(tmp_path: Path) -> None:
    data: dict[str, Json] = {"found": None, "lines": 0, "names": [], "open": False, "said": ""}
    given: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("")], metadata={"by": None}),
        ModelResponse(
            parts=[
                TextPart(""),
                ToolCallPart("read", data, tool_call_id="c1"),
                ToolCallPart("read", tool_call_id="c2"),
            ],
            usage=RequestUsage(output_tokens=3, details={"cached": 0}),
        ),
        ModelRequest(
            parts=[ToolReturnPart("read", data, tool_call_id="c1"), ToolReturnPart("read", None, tool_call_id="c2")]
        ),
        ModelResponse(parts=[TextPart("So.")]),
    ]

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        await Model(says("Yes.")).agent(history).run("Sure?", conversation_id="s", message_history=given)
        await history.aclose()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        bodies = [r.body for r in said(store.session("s"))][:4]
    assert ModelMessagesTypeAdapter.validate_python(bodies) == given
    assert (bodies[1]["parts"][1]["args"], bodies[2]["parts"][0]["content"]) == (data, data)
    assert bodies[1]["usage"] == {"output_tokens": 3, "details": {"cached": 0}}
    assert {*bodies[3]} == {"parts", "usage", "timestamp", "kind", "state"}


def test_a_record_is_read_once_a_run_however_often_the_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Json] = []

    class Counting:
        dump_python = staticmethod(ModelMessagesTypeAdapter.dump_python)

        @staticmethod
        def validate_python(bodies: list[Json]) -> list[ModelMessage]:
            read.extend(bodies)
            return ModelMessagesTypeAdapter.validate_python(bodies)

    monkeypatch.setattr("onefold.integrations.pydantic_ai.ModelMessagesTypeAdapter", Counting)
    model = Model(reads(5))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        await model.agent(history).run("Read.", conversation_id="s")
        read.clear()
        await model.agent(history).run("Read again.", conversation_id="s")
        await history.aclose()

    run(story)
    assert len(model.sent[-1]) == len(read) == 12 + 11  # the first run, and this one but for its answer


def test_a_run_goes_on_where_another_agent_left_off_and_has_one_system_prompt(tmp_path: Path) -> None:
    first, second = Model(reads(2)), Model(says("Yes."))

    async def story() -> None:
        for model, asked in ((first, "Read."), (second, "Sure?"), (second, "Really?")):
            history = OnefoldHistory(tmp_path / "a.db")
            await model.agent(history, instructions="Be brief.").run(asked, conversation_id="s")
            await history.aclose()

    run(story)
    assert kinds(second.sent[1]) == [
        "system-prompt", "user-prompt", "tool-call", "tool-return", "tool-call", "tool-return", "text", "user-prompt",
        "text", "user-prompt",
    ]  # fmt: skip


def test_a_history_that_is_passed_in_is_taken_over_once(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        agent = model.agent(history)
        one = await agent.run("Second?", conversation_id="s", message_history=EVERY_KIND)
        await agent.run("Third?", conversation_id="s", message_history=one.all_messages())
        await history.aclose()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        assert store.session("s").state.messages == len(EVERY_KIND) + 4


def test_a_response_is_on_disk_before_its_tools_run(tmp_path: Path) -> None:
    history = OnefoldHistory(tmp_path / "a.db")
    seen: list[list[str]] = []

    async def story() -> None:
        async with aio.open(tmp_path / "a.db") as store:

            async def spy(path: str) -> str:
                records = [r async for r in (await store.session("s")).read() if r.kind == "message"]
                seen.append([r.header.role for r in records if r.header])
                return "x"

            looking: Agent[None, str] = Agent(FunctionModel(Model(reads(1))), capabilities=[history])
            looking.tool_plain(name="read")(spy)
            await looking.run("Read.", conversation_id="s")
        await history.aclose()

    run(story)
    assert seen == [["user", "assistant"]]


def test_a_streamed_run_one_with_typed_output_and_one_without_a_loop_are_recorded_whole(tmp_path: Path) -> None:
    class Found(BaseModel):
        files: int

    def typed(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"files": 3}, tool_call_id="o1")])

    history = OnefoldHistory(tmp_path / "a.db", session="s")
    model = Model(says("Yes."))
    finder: Agent[None, Found] = Agent(FunctionModel(typed), output_type=Found, capabilities=[history])

    async def story() -> None:
        async with model.agent(history).run_stream("Stream.") as streamed:
            assert await streamed.get_output() == "Yes."
        assert (await finder.run("How many?")).output.files == 3

    run(story)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    model.agent(history).run_sync("And now?")
    asyncio.set_event_loop(None)
    loop.close()
    history.close()

    with onefold.open(tmp_path / "a.db") as store:
        records = said(store.session("s"))
        roles = [r.header.role for r in records if r.header]
        assert roles == ["user", "assistant", "user", "assistant", "tool", "user", "assistant"]
        every_call_has_its_result(records)


# ---------------------------------------------------------------------- compaction


def test_a_long_conversation_compacts_by_itself_and_the_journal_keeps_everything(tmp_path: Path) -> None:
    model = Model(reads(1))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db", policy=SMALL)
        for n in range(30):
            await model.agent(history).run(f"Read {n}.", conversation_id="s")
        await history.aclose()

    run(story)
    assert max(model.tokens) <= SMALL.of(None).hard_tokens
    for sent in model.sent:
        paired(sent)
        assert kinds(sent).count("system-prompt") == 1
    with onefold.open(tmp_path / "a.db") as store:
        session = store.session("s")
        assert one_line(session) > 1
        assert len(said(session)) == 30 * 4


def test_one_long_run_compacts_on_its_way_and_keeps_what_it_was_asked(tmp_path: Path) -> None:
    model = Model(reads(40))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db", policy=SMALL)
        result = await model.agent(history).run("Read them all.", conversation_id="s")
        assert result.output == "Read 40 files."
        await history.aclose()

    run(story)
    assert max(model.tokens) <= SMALL.of(None).hard_tokens
    for sent in model.sent:
        paired(sent)
        assert "Read them all." in str(sent)


def test_the_frameworks_own_model_writes_the_summary(tmp_path: Path) -> None:
    writer = Model(says("## Goal\nRead the files.\n## State\nEight were read."))
    model = Model(reads(1))

    async def story() -> None:
        summarizer = summarize_with(FunctionModel(writer), name="small-model")
        history = OnefoldHistory(tmp_path / "a.db", policy=SMALL, summarizer=summarizer)
        for n in range(20):
            await model.agent(history).run(f"Read {n}.", conversation_id="s")
        await history.aclose()

    run(story)
    assert "Eight were read." in str(model.sent[-1])
    assert "Read 0." in str(writer.sent[0])
    with onefold.open(tmp_path / "a.db") as store:
        opened = [r.body for r in store.session("s").read() if r.kind == "segment.opened" and r.body.get("summary")]
        assert {body["by"] for body in opened} == {"small-model"}


def test_a_context_that_the_provider_refuses_for_its_size_is_sent_again_smaller(tmp_path: Path) -> None:
    refused: list[int] = []

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        if model.tokens[-1] > 600:
            refused.append(model.tokens[-1])
            body = {"error": {"code": "context_length_exceeded", "message": "maximum context length is 600 tokens"}}
            raise ModelHTTPError(400, "m", body)
        return ModelResponse(parts=[TextPart("word " * 60)])

    model = Model(answer)

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db", policy=quick(tail_tokens=100))
        for n in range(12):
            await model.agent(history).run(f"Question {n}?", conversation_id="s")
        await history.aclose()

    run(story)
    assert refused
    with onefold.open(tmp_path / "a.db") as store:
        session = store.session("s")
        assert "overflow" in {c.trigger for c in session.compactions()}
        assert len(said(session)) == 24


# ---------------------------------------------------------------------- failure paths


def down(material: onefold.Material) -> str:
    raise ConnectionError("no answer")


def test_a_summarizer_that_fails_stops_no_run_until_the_hard_limit_and_loses_nothing(tmp_path: Path) -> None:
    model = Model(says("word " * 60))

    async def story() -> None:
        broken = OnefoldHistory(tmp_path / "a.db", policy=SMALL, summarizer=down)
        agent = model.agent(broken)

        async def many() -> None:
            for n in range(40):
                await agent.run(f"Question {n}?", conversation_id="s")

        with pytest.raises(onefold.TooLarge, match="and compaction"):
            await many()
        await broken.aclose()
        assert SMALL.of(None).soft_tokens < max(model.tokens) <= SMALL.of(None).hard_tokens
        mended = OnefoldHistory(tmp_path / "a.db", policy=SMALL)
        assert (await mended.compact("s")).applied
        await model.agent(mended).run("And now?", conversation_id="s")
        await mended.aclose()

    run(story)


def test_a_run_that_fails_in_a_tool_keeps_what_others_gave_and_the_next_one_goes_on(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    def two(messages: list[ModelMessage]) -> ModelResponse:
        names = ("read", "breaks")
        return ModelResponse(parts=[ToolCallPart(name, {"path": "a"}, tool_call_id=name) for name in names])

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        breaking: Agent[None, str] = Agent(FunctionModel(Model(two)), capabilities=[history])
        done = asyncio.Event()

        @breaking.tool_plain
        async def breaks(path: str) -> str:
            await done.wait()
            raise RuntimeError("the disk is gone")

        @breaking.tool_plain(name="read")
        async def reads_first(path: str) -> str:
            asyncio.get_running_loop().call_later(0.05, done.set)
            return "test_fetch"

        with pytest.raises(RuntimeError, match="the disk is gone"):
            await breaking.run("Read.", conversation_id="s")
        await model.agent(history).run("Try again.", conversation_id="s")
        await history.aclose()

    run(story)
    results = [p for m in model.sent[0] for p in m.parts if isinstance(p, ToolReturnPart)]
    assert {p.tool_call_id for p in results} == {"read", "breaks"}
    assert "test_fetch" in str(results)
    assert "no result" in str(results)


def test_a_cancelled_run_ends_its_turn_and_the_next_one_begins_at_once(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db", wait=5.0)
        begun = asyncio.Event()
        hanging: Agent[None, str] = Agent(FunctionModel(Model(reads(1))), capabilities=[history])

        @hanging.tool_plain(name="read")
        async def hangs(path: str) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        task = asyncio.create_task(hanging.run("Read.", conversation_id="s"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.agent(history).run("Never mind.", conversation_id="s")
        await history.aclose()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        settled = [r.body["outcome"] for r in store.session("s").read() if r.kind == "turn.settled"]
        assert settled == ["cancelled", "settled"]
        every_call_has_its_result(said(store.session("s")))


def test_a_second_run_on_a_session_waits_its_turn_or_is_told_that_it_is_busy(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    async def story() -> None:
        patient = OnefoldHistory(tmp_path / "a.db", session="s")
        hasty = OnefoldHistory(tmp_path / "a.db", session="s", wait=False)
        begun, go_on = asyncio.Event(), asyncio.Event()
        slow: Agent[None, str] = Agent(FunctionModel(Model(reads(1))), capabilities=[patient])

        @slow.tool_plain(name="read")
        async def waits(path: str) -> str:
            begun.set()
            await go_on.wait()
            return "x"

        first = asyncio.create_task(slow.run("Read."))
        await begun.wait()
        with pytest.raises(onefold.Busy):
            await model.agent(hasty).run("Now?")
        second = asyncio.create_task(model.agent(patient).run("Then?"))
        go_on.set()
        await asyncio.gather(first, second)
        await patient.aclose()
        await hasty.aclose()

    run(story)
    assert kinds(model.sent[-1]) == ["system-prompt", "user-prompt", "tool-call", "tool-return", "text", "user-prompt"]


def test_a_store_that_cannot_be_opened_is_an_error_and_not_a_run_without_memory(tmp_path: Path) -> None:
    model = Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "no" / "such" / "a.db")
        with pytest.raises(onefold.StoreError):
            await model.agent(history).run("Hello?", conversation_id="s")

    run(story)
    assert model.sent == []


def test_an_append_whose_answer_was_lost_is_repeated_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = aio.Turn.append, [True]

    async def loses(self: aio.Turn, messages: Json, **options: Json) -> onefold.Appended:
        done = await real(self, messages, **options)
        if lost and lost.pop():
            raise onefold.OutcomeUnknown("the disk does not answer")
        return done

    monkeypatch.setattr(aio.Turn, "append", loses)

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        await Model(says("Yes.")).agent(history).run("Hello?", conversation_id="s")
        await history.aclose()

    run(story)
    assert lost == []
    with onefold.open(tmp_path / "a.db") as store:
        assert len(said(store.session("s"))) == 2


def test_the_event_loop_goes_on_while_a_summary_is_waited_for(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(material: onefold.Material) -> str:
        begun.set()
        assert go_on.wait(20)
        return "They talked."

    model = Model(says("Yes."))

    async def story() -> None:
        with onefold.open(tmp_path / "a.db", policy=SMALL) as store:
            store.session("s").append([{"role": "user", "content": f"{n} " + "word " * 60} for n in range(30)])
            running = asyncio.create_task(
                model.agent(OnefoldHistory(store, summarizer=slow)).run("And?", conversation_id="s")
            )
            assert await asyncio.to_thread(begun.wait, 20)
            assert not running.done()
            go_on.set()  # only a loop that is free gets here
            await running

    run(story)
    assert "They talked." in str(model.sent[0])


# ---------------------------------------------------------------------- several processes


def runs(path: str, tag: str, count: int) -> None:
    """A process that runs an agent on the session again and again, and compacts."""
    model = Model(reads(2, tag))

    async def work() -> None:
        history = OnefoldHistory(path, session="shared", policy=SMALL)
        await history.opened("shared")
        at_barrier()
        for n in range(count):
            await model.agent(history).run(f"{tag}{n}")
        await history.aclose()

    asyncio.run(work())
    for sent in model.sent:
        paired(sent)
    say("done")


def hangs(path: str) -> None:
    """A process that is in the middle of a tool when it is killed."""
    hanging: Agent[None, str] = Agent(
        FunctionModel(Model(reads(1))),
        capabilities=[OnefoldHistory(path, session="shared", policy=quick(turn_lease=1.0))],
    )

    @hanging.tool_plain(name="read")
    async def stays(path: str) -> str:
        say("in the tool")
        await asyncio.Event().wait()
        return ""

    asyncio.run(hanging.run("Read."))


def test_two_processes_on_one_session_lose_nothing_and_never_fork(tmp_path: Path) -> None:
    path, count, here = str(tmp_path / "a.db"), 6, "frameworks.test_pydantic_ai"
    with (
        Child("runs", module=here, path=path, tag="a", count=count) as one,
        Child("runs", module=here, path=path, tag="b", count=count) as other,
    ):
        together(one, other)
        one.hear("done")
        other.hear("done")

    with onefold.open(path) as store:
        session = store.session("shared")
        assert one_line(session) > 0
        records = said(session)
        every_call_has_its_result(records)
        assert len(records) == 2 * count * 6
        for tag in ("a", "b"):
            asked = [p["content"] for r in records for p in r.body["parts"] if p["part_kind"] == "user-prompt"]
            assert [a for a in asked if a.startswith(tag)] == [f"{tag}{n}" for n in range(count)]
        turns = [r.turn for r in records]
        assert [t for n, t in enumerate(turns) if n == 0 or turns[n - 1] != t] == list(dict.fromkeys(turns))
        assert store.verify().findings == ()


def test_a_process_that_is_killed_in_a_tool_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    model = Model(says("Yes."))
    with Child("hangs", module="frameworks.test_pydantic_ai", path=path) as child:
        child.hear("in the tool")
        child.kill()

    async def story() -> None:
        history = OnefoldHistory(path, session="shared", wait=20.0)
        await model.agent(history).run("What happened?")
        await history.aclose()

    run(story)
    paired(model.sent[0])
    assert "no result" in str(model.sent[0])


# ---------------------------------------------------------------------- pages and examples


@pytest.mark.parametrize("page", HERE.pages)
def test_the_page_is_true(page: str, tmp_path: Path) -> None:
    run_page(ROOT / page, tmp_path)


@pytest.mark.parametrize("example", HERE.examples)
def test_the_example_runs_offline(example: str, tmp_path: Path) -> None:
    assert "compactions" in run_example(example, tmp_path)
