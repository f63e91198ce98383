"""Pydantic AI with a capability of ours: runs go on anywhere, contexts compact, and a run is a turn of its session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ImageUrl,
    RunContext,
    capture_run_messages,
)
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import (
    CompactionPart,
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
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.usage import RequestUsage

import onefold
from onefold import aio
from onefold.integrations.pydantic_ai import (
    OnefoldHistory,
    RetryModelRequest,
    _bare,
    _body,
    _messages,
    open_end,
    summarize_with,
)
from onefold.messages import codec
from onefold.model import Json
from tests.frameworks.environments import FRAMEWORKS, ROOT
from tests.frameworks.trying import every_call_has_its_result, one_line, run_example, said
from tests.support.helpers import Child, at_barrier, quick, say, together
from tests.support.pages import run_page

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
    assert len(model.sent[-1]) == 12 + 11  # the first run, and this one but for its answer
    assert len(read) == 12  # this one's are the framework's own objects


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


# ---------------------------------------------------------------------- a history that is passed in


def asked(text: str, **more: Any) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)], **more)


def calling(*ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("read", {"path": id}, tool_call_id=id) for id in ids])


def returned(*ids: str) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("read", f"{id} is empty", tool_call_id=id) for id in ids])


ANSWERED = ModelResponse(parts=[TextPart("A test needs the network.")])
OLD_RUN: dict[str, Any] = {"run_id": "an-earlier-run", "conversation_id": "elsewhere"}
HISTORIES: dict[str, list[ModelMessage]] = {
    "a question": [asked("Why?")],
    "a question of an earlier run": [asked("Why?", **OLD_RUN)],
    "a system prompt and a question": [
        ModelRequest(parts=[SystemPromptPart("You mend builds."), UserPromptPart("Why?")])
    ],
    "another system prompt": [ModelRequest(parts=[SystemPromptPart("You sing."), UserPromptPart("Why?")]), ANSWERED],
    "an answer": [asked("Why?"), ANSWERED],
    "a question after an answer": [asked("Why?"), ANSWERED, asked("Which?", **OLD_RUN)],
    "two questions": [asked("Why?"), asked("Which?")],
    "calls": [asked("Why?"), calling("c1", "c2")],
    "calls of an earlier run": [asked("Why?", **OLD_RUN), replace(calling("c1"), **OLD_RUN)],
    "results": [asked("Why?"), calling("c1"), returned("c1")],
    "some results": [asked("Why?"), calling("c1", "c2"), returned("c1")],
    "a call after a call": [asked("Why?"), calling("c1"), returned("c1"), calling("c2")],
    "an answer in the middle": [asked("Why?"), ANSWERED, asked("Which?"), calling("c1"), returned("c1")],
    "every kind": EVERY_KIND,
    "nothing": [],
}


def of_runs(typed: bool = False) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """What two runs without us give: all of their messages, and those of the second."""

    def found(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(
            parts=[ToolCallPart(info.output_tools[0].name, {"files": 3}, tool_call_id=f"o{len(messages)}")]
        )

    class Found(BaseModel):
        files: int

    async def story() -> tuple[list[ModelMessage], list[ModelMessage]]:
        agent: Agent[None, Any] = Agent(
            FunctionModel(found if typed else Model(reads(1))),
            tools=[read],
            system_prompt="You mend builds.",
            output_type=Found if typed else str,
        )
        one = await agent.run("First.")
        two = await agent.run("Second.", message_history=one.all_messages())
        return two.all_messages(), two.new_messages()

    return run(story)


HISTORIES["all messages of two runs"], HISTORIES["new messages of the second"] = of_runs()
HISTORIES["messages of runs with a typed answer"], _ = of_runs(typed=True)
HISTORIES["a run that was cut short"] = HISTORIES["all messages of two runs"][:-1]
HISTORIES["a run that was cut short in a call"] = HISTORIES["all messages of two runs"][:-2]


def seen(sent: Sequence[Sequence[ModelMessage]]) -> list[Json]:
    """What a model was sent, but for when and in which run it was said."""
    return [_timeless(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")) for messages in sent]


def _timeless(dumped: Json) -> Json:
    if isinstance(dumped, dict):
        hidden = ("timestamp", "run_id", "conversation_id")
        return {k: _timeless(v) for k, v in dumped.items() if k not in hidden}
    return [_timeless(one) for one in dumped] if isinstance(dumped, list) else dumped


async def lived(
    capabilities: list[Any], *runs: tuple[str | None, Sequence[ModelMessage] | None], instructions: str | None
) -> tuple[list[Json], list[str], list[ModelMessage]]:
    """What the model of an agent was sent in its last run, what came out, and all that the framework recorded."""
    model, came = Model(says("Yes.")), ""
    messages: list[ModelMessage] = []
    agent: Agent[None, Any] = Agent(
        FunctionModel(model), capabilities=capabilities, system_prompt="You mend builds.", tools=[read],
        instructions=instructions,
    )  # fmt: skip
    for prompt, history in runs:
        model.sent.clear()
        try:
            result = await agent.run(prompt, message_history=history, conversation_id="s")
            messages, came = result.all_messages(), str(result.output)
        except UserError as error:
            came = f"UserError: {error}"
    return seen(model.sent), [came], messages


@pytest.mark.parametrize("instructions", [None, "Be brief."])
@pytest.mark.parametrize("prompt", [None, "And?"])
@pytest.mark.parametrize("history", HISTORIES)
def test_a_model_is_sent_what_it_would_be_without_us_whatever_history_a_new_session_is_given(
    tmp_path: Path, history: str, prompt: str | None, instructions: str | None
) -> None:
    async def story() -> None:
        given = HISTORIES[history]
        plain, said_plainly, _ = await lived([], (prompt, given), instructions=instructions)
        ours = OnefoldHistory(tmp_path / "a.db")
        told, came, recorded = await lived([ours], (prompt, given), instructions=instructions)
        assert (told, came) == (plain, said_plainly)
        if not came[0].startswith("UserError"):
            session = await ours.opened("s")
            kept = [r.body async for r in session.read() if r.kind == "message"]
            wanted = [_timeless(_body(m)) for m in recorded if m.parts]
            assert [_timeless(body) for body in kept] == wanted
        await ours.aclose()

    run(story)


@pytest.mark.parametrize("instructions", [None, "Be brief."])
@pytest.mark.parametrize("prompt", [None, "And?"])
@pytest.mark.parametrize("history", [name for name in HISTORIES if name != "nothing"])
def test_a_session_that_has_messages_goes_on_with_them_and_with_the_open_end_of_a_history(
    tmp_path: Path, history: str, prompt: str | None, instructions: str | None
) -> None:
    async def story() -> None:
        given = HISTORIES[history]
        *_, before = await lived([], ("Begin.", None), instructions=instructions)
        refused = (await lived([], (prompt, given), instructions=instructions))[1][0].startswith("UserError")
        wanted = given if refused else [*before, *(map(_bare, open_end(given)) if prompt is None else ())]
        plain, said_plainly, _ = await lived([], (prompt, wanted), instructions=instructions)
        ours = OnefoldHistory(tmp_path / "a.db")
        told, came, _ = await lived([ours], ("Begin.", None), (prompt, given), instructions=instructions)
        if plain or told:
            assert (told, came) == (plain, said_plainly)
        await ours.aclose()

    run(story)


def test_a_run_that_failed_is_gone_on_with_and_its_question_is_not_asked_twice(tmp_path: Path) -> None:
    def breaks(messages: list[ModelMessage]) -> ModelResponse:
        raise ConnectionError("no answer")

    broken, model = Model(breaks), Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        with capture_run_messages() as messages, pytest.raises(ConnectionError):
            await broken.agent(history).run("Why?", conversation_id="s")
        await model.agent(history).run(message_history=messages, conversation_id="s")
        await model.agent(history).run(message_history=messages, conversation_id="s")
        await history.aclose()

    run(story)
    assert kinds(model.sent[0]) == ["system-prompt", "user-prompt"]
    assert kinds(model.sent[1]) == ["system-prompt", "user-prompt", "text", "user-prompt"]  # asked again by hand


def test_calls_that_somebody_else_has_to_do_are_gone_on_with_when_their_results_come(tmp_path: Path) -> None:
    waits, model = Model(lambda _: calling("c1")), Model(says("Yes."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")

        async def later(answering: Model, *args: Any, **options: Any) -> Any:
            agent: Agent[None, Any] = Agent(
                FunctionModel(answering), capabilities=[history], output_type=[str, DeferredToolRequests],
                toolsets=[ExternalToolset([ToolDefinition(name="read")])],
            )  # fmt: skip
            return await agent.run(*args, conversation_id="s", **options)

        asked = await later(waits, "Read.")
        results = DeferredToolResults(calls={"c1": "It is empty."})
        await later(model, message_history=asked.all_messages(), deferred_tool_results=results)
        await later(model, "And now?")
        await history.aclose()

    run(story)
    assert kinds(model.sent[-1]) == ["user-prompt", "tool-call", "tool-return", "text", "user-prompt"]
    assert "It is empty." in str(model.sent[0])


# ---------------------------------------------------------------------- processors of history


def last_two(messages: list[ModelMessage]) -> list[ModelMessage]:
    return messages[-2:] if isinstance(messages[-2:][0], ModelResponse) else messages[-1:]


def redacted(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Copies every message, without what is secret."""

    def without(part: Any) -> Any:
        return replace(part, content=part.content.replace("4711", "####")) if hasattr(part, "content") else part

    made: list[Any] = list(messages)
    return [replace(m, parts=[without(p) for p in m.parts]) for m in made]


def anew(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Makes every request anew, and adds something."""
    made = [ModelRequest(parts=[*m.parts]) if isinstance(m, ModelRequest) else m for m in messages]
    return [asked("By the way."), *made]


def of_run(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(getattr(p, "content", "")) or p.part_kind for m in messages for p in m.parts]


@pytest.mark.parametrize("first", [True, False], ids=["first in the list", "last in the list"])
@pytest.mark.parametrize("processor", [last_two, redacted, anew])
def test_processors_have_their_effect_on_what_is_sent_and_none_on_what_is_kept(
    tmp_path: Path, processor: Callable[[list[ModelMessage]], list[ModelMessage]], first: bool
) -> None:
    model, plain = Model(reads(2)), Model(reads(2))

    async def story() -> None:
        history, processing = OnefoldHistory(tmp_path / "a.db"), ProcessHistory[None](processor)
        capabilities: list[Any] = [history, processing] if first else [processing, history]
        agent: Agent[None, str] = Agent(FunctionModel(model), capabilities=capabilities, tools=[read])
        without: Agent[None, str] = Agent(FunctionModel(plain), capabilities=[processing], tools=[read])
        before: list[ModelMessage] = []
        for n in range(3):
            await agent.run(f"My number is 4711: {n}", conversation_id="s")
            before = (await without.run(f"My number is 4711: {n}", message_history=before)).all_messages()
        await history.aclose()

    run(story)
    if processor is not anew:  # it adds to what it added before, where the framework keeps that
        assert [of_run(m) for m in model.sent] == [of_run(m) for m in plain.sent]
    assert ("By the way." in of_run(model.sent[-1])) == (processor is anew)
    with onefold.open(tmp_path / "a.db") as store:
        records = said(store.session("s"))
        roles = [r.header.role for r in records if r.header]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"] * 3
        assert [r.body["parts"][0]["content"] for r in records[::6]] == [f"My number is 4711: {n}" for n in range(3)]
        every_call_has_its_result(records)


def scribbled(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Changes every result in place."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                part.content = f"{part.content} (seen)"
    return messages


def copied(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Copies every request, with every result changed."""

    def changed(part: Any) -> Any:
        return replace(part, content=f"{part.content} (seen)") if isinstance(part, ToolReturnPart) else part

    return [ModelRequest(parts=[*map(changed, m.parts)]) if isinstance(m, ModelRequest) else m for m in messages]


@pytest.mark.parametrize("first", [True, False], ids=["first in the list", "last in the list"])
@pytest.mark.parametrize("passed", [False, True], ids=["alone", "with its history passed in"])
@pytest.mark.parametrize("processor", [scribbled, copied])
def test_what_stands_for_a_masked_result_is_never_written(
    tmp_path: Path, processor: Callable[[list[ModelMessage]], list[ModelMessage]], passed: bool, first: bool
) -> None:
    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        await Model(reads(4)).agent(history).run("Read.", conversation_id="s")
        await history.aclose()
        with onefold.open(tmp_path / "a.db") as store:
            before = [r.body for r in said(store.session("s"))]
            results = [r.number for r in said(store.session("s")) if r.header and r.header.result_ids]
            store.session("s").mask(*results[:3])
        came: list[ModelMessage] | None = None
        for n in range(3):  # each of them another process, as far as the capability knows
            history, processing = OnefoldHistory(tmp_path / "a.db"), ProcessHistory[None](processor)
            model = Model(reads(2, f"later-{n}-"))
            capabilities: list[Any] = [history, processing] if first else [processing, history]
            agent: Agent[None, str] = Agent(FunctionModel(model), capabilities=capabilities, tools=[read])
            result = await agent.run("On.", conversation_id="s", message_history=came)
            came = result.all_messages() if passed else None
            assert "is left out" in str(model.sent[0])
            await history.aclose()
        with onefold.open(tmp_path / "a.db") as store:
            kept = said(store.session("s"))
            assert [r.body for r in kept][: len(before)] == before
            assert "is left out" not in str([r.body for r in kept])
            every_call_has_its_result(kept)
            assert len([r for r in kept if r.header and r.header.result_ids]) == 4 + 3 * 2

    run(story)


@pytest.mark.parametrize("processor", [scribbled, copied])
def test_a_run_that_failed_is_gone_on_with_and_what_stands_for_its_results_is_not_written(
    tmp_path: Path, processor: Callable[[list[ModelMessage]], list[ModelMessage]]
) -> None:
    def away(messages: list[ModelMessage]) -> ModelResponse:
        if len(messages) > 8:
            raise ModelHTTPError(503, "a-model")
        return four(messages)

    four = reads(6)

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        with pytest.raises(ModelHTTPError):
            await Model(away).agent(history).run("Read.", conversation_id="s")
        await history.aclose()
        with onefold.open(tmp_path / "a.db") as store:
            before = [r.body for r in said(store.session("s"))]
            results = [r.number for r in said(store.session("s")) if r.header and r.header.result_ids]
            store.session("s").mask(*results[:2])
            shown = ModelMessagesTypeAdapter.validate_python(store.session("s").context().messages)
        again = OnefoldHistory(tmp_path / "a.db")
        changed = [processor([m])[0] if "is left out" in str(m) else m for m in shown]
        model = Model(says("Read."))
        await model.agent(again).run(message_history=changed, conversation_id="s")
        assert "is left out" in str(model.sent[0])
        await again.aclose()
        with onefold.open(tmp_path / "a.db") as store:
            kept = [r.body for r in said(store.session("s"))]
            assert kept[: len(before)] == before
            assert len(kept) == len(before) + 1
            assert "is left out" not in str(kept)

    run(story)


def test_a_context_that_is_sent_again_smaller_goes_through_the_processors_too(tmp_path: Path) -> None:
    refused: list[int] = []

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        if model.tokens[-1] > 600:
            refused.append(model.tokens[-1])
            body = {"error": {"code": "context_length_exceeded", "message": "maximum context length is 600 tokens"}}
            raise ModelHTTPError(400, "m", body)
        return ModelResponse(parts=[TextPart("4711 " + "word " * 60)])

    model = Model(answer)

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db", policy=quick(tail_tokens=100))
        agent: Agent[None, str] = Agent(FunctionModel(model), capabilities=[history, ProcessHistory(redacted)])
        for n in range(12):
            await agent.run(f"Question {n} on 4711?", conversation_id="s")
        await history.aclose()

    run(story)
    assert refused
    assert "4711" not in str([of_run(messages) for messages in model.sent])
    assert any("####" in str(of_run(messages)) for messages in model.sent)


def shouts(messages: list[ModelMessage]) -> ModelResponse:
    if "Loud." in str(messages):
        return ModelResponse(parts=[TextPart("Done.")])
    return ModelResponse(parts=[ToolCallPart("shout", {}, tool_call_id="s1")])


def test_what_somebody_adds_while_a_request_is_prepared_is_kept(tmp_path: Path) -> None:
    class Reminds(AbstractCapability[None]):
        async def before_model_request(self, ctx: RunContext[None], request_context: Any) -> Any:
            if ctx.run_step == 2:
                ctx.enqueue("Be quick.")
            return request_context

    model = Model(reads(2))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        agent: Agent[None, str] = Agent(FunctionModel(model), capabilities=[history, Reminds()], tools=[read])

        @agent.tool
        async def shout(ctx: RunContext[None]) -> str:
            ctx.enqueue("It shouts.")
            return "Loud."

        await agent.run("Read.", conversation_id="s")
        shouting = Model(shouts)
        with agent.override(model=FunctionModel(shouting)):
            await agent.run("Shout.", conversation_id="s")
        await history.aclose()
        assert "Be quick." in str(model.sent[-1])
        assert "It shouts." in str(shouting.sent[-1])

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        texts = str([r.body for r in said(store.session("s"))])
        assert (texts.count("Be quick."), texts.count("It shouts.")) == (2, 1)


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


def down(material: onefold.SummaryInput) -> str:
    raise ConnectionError("no answer")


def test_a_summarizer_that_fails_stops_no_run_until_the_hard_limit_and_loses_nothing(tmp_path: Path) -> None:
    model = Model(says("word " * 60))

    async def story() -> None:
        broken = OnefoldHistory(tmp_path / "a.db", policy=SMALL, summarizer=down)
        agent = model.agent(broken)

        async def many() -> None:
            for n in range(40):
                await agent.run(f"Question {n}?", conversation_id="s")

        with pytest.raises(onefold.ContextTooLarge, match="and compaction"):
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
        with pytest.raises(onefold.TurnBusy):
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

    async def loses(self: aio.Turn, messages: Json, **options: Json) -> onefold.AppendResult:
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

    def slow(material: onefold.SummaryInput) -> str:
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


# ---------------------------------------------------------------------- compactions that the provider makes

READABLE = CompactionPart("A garden is planned. The shed stays.", provider_name="function")
SEALED = CompactionPart(id="cmp_1", provider_name="function", provider_details={"encrypted_content": "seal"})


def first(messages: Sequence[ModelMessage]) -> list[str]:
    return [part.part_kind for message in messages[:2] for part in message.parts]


def plans(*parts: Any) -> Answer:
    """Answers, the second time with what it compacted before that."""
    counted = [0]

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        counted[0] += 1
        return ModelResponse(parts=[*(parts if counted[0] == 2 else ()), TextPart(f"Answer {counted[0]}.")])

    return answer


@pytest.mark.parametrize("part", [READABLE, SEALED], ids=["readable", "sealed"])
def test_an_item_in_an_answer_takes_the_place_of_the_past_for_the_model_that_made_it(
    tmp_path: Path, part: CompactionPart
) -> None:
    model, other = Model(plans(part)), Model(says("Elsewhere."))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        agent = model.agent(history)
        for n in range(3):
            await agent.run(f"Question {n}?", conversation_id="s")
        await agent.run("Elsewhere?", model=FunctionModel(other, model_name="another"), conversation_id="s")
        await agent.run("Back?", conversation_id="s")
        await history.aclose()

    run(story)
    assert first(model.sent[1])[:2] == ["system-prompt", "user-prompt"]
    for sent in model.sent[2:]:
        assert first(sent) == ["system-prompt", "compaction", "text"]
        assert "Question 0?" not in str(sent)
        assert "Question 1?" not in str(sent)
    assert "compaction" not in [p.part_kind for m in other.sent[0] for p in m.parts]
    past = str(other.sent[0])
    assert "seal" not in past
    assert ("The shed stays." in past) == (part is READABLE)
    assert ("Question 0?" in past) == (part is SEALED)
    with onefold.open(tmp_path / "a.db") as store:
        assert [s.source for s in store.session("s").segments()].count("provider") == 1
        assert len(said(store.session("s"))) == 10
        assert store.verify().findings == ()


def test_a_run_that_asks_two_models_tells_each_of_them_what_is_for_it(tmp_path: Path) -> None:
    model = Model(plans(READABLE))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        for n in range(2):
            await model.agent(history).run(f"Question {n}?", conversation_id="s")
        session = await history.opened("s")
        whose = onefold.Origin("function", model=FunctionModel(model, stream_function=model.stream).model_name)
        read: dict[tuple[int, int], ModelMessage] = {}
        native = _messages(await session.context(origin=whose), read)
        plain = _messages(await session.context(), read)
        assert [p.part_kind for m in native for p in m.parts] == ["compaction", "text"]
        assert [p.part_kind for m in plain for p in m.parts] == ["user-prompt", "text"]
        await history.aclose()

    run(story)


@pytest.mark.parametrize("kept", [True, False])
def test_an_item_that_stands_for_less_than_what_is_known_is_a_message(tmp_path: Path, kept: bool) -> None:
    """A processor of history sent less than the session has: for what the item stands, nobody knows."""
    model = Model(plans(SEALED))

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        shorter: Any = ProcessHistory(lambda messages: messages if kept else messages[-1:])
        agent: Agent[None, Any] = Agent(FunctionModel(model), capabilities=[history, shorter])
        for n in range(2):
            await agent.run(f"Question {n}?", conversation_id="s")
        await history.aclose()

    run(story)
    with onefold.open(tmp_path / "a.db") as store:
        adopted = "provider" in [s.source for s in store.session("s").segments()]
        assert adopted == (kept and RetryModelRequest is not None), "older versions do not show what is sent"


class Compacting(AbstractCapability[Any]):
    """As the framework's own for OpenAI works without state: before a request, all but that is compacted."""

    def __init__(self, at: int) -> None:
        self.at, self.given = at, list[list[ModelMessage]]()

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if len(request_context.messages) > self.at:
            self.given.append(request_context.messages[:-1])
            messages = [ModelResponse(parts=[SEALED]), request_context.messages[-1]]
            request_context.messages = messages.copy()
            ctx.messages[:] = messages
        return request_context


def test_what_a_capability_has_compacted_before_a_request_is_kept_and_not_paid_for_again(tmp_path: Path) -> None:
    model, other, compacting = Model(says("Yes.")), Model(says("Elsewhere.")), Compacting(4)

    async def story() -> None:
        history = OnefoldHistory(tmp_path / "a.db")
        agent: Agent[None, Any] = Agent(FunctionModel(model), capabilities=[history, compacting])
        for n in range(4):
            await agent.run(f"Question {n}?", conversation_id="s")
        await other.agent(history).run("Elsewhere?", model=FunctionModel(other, model_name="x"), conversation_id="s")
        await history.aclose()

    run(story)
    assert len(compacting.given) == 1, "the next request begins with what was made"
    assert kinds(model.sent[2]) == ["compaction", "user-prompt"]
    assert kinds(model.sent[3]) == ["compaction", "user-prompt", "text", "user-prompt"]
    asked = [str(p.content) for m in other.sent[0] for p in m.parts if isinstance(p, UserPromptPart)]
    assert asked == [*(f"Question {n}?" for n in range(4)), "Elsewhere?"]
    with onefold.open(tmp_path / "a.db") as store:
        assert len(said(store.session("s"))) == 11
        assert store.verify().findings == ()


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
    path, count, here = str(tmp_path / "a.db"), 6, "tests.frameworks.test_pydantic_ai"
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
    with Child("hangs", module="tests.frameworks.test_pydantic_ai", path=path) as child:
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
