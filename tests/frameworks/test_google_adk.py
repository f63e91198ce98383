"""OnefoldSessionService under real runners of ADK. The model is as strict as a provider about calls and results."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

import onefold
import onefold.aio
from onefold.integrations.google_adk import OnefoldSessionService, left_out
from tests.support.helpers import Child, at_barrier, restless, say
from tests.support.pages import run_page

ROOT = Path(__file__).parent.parent.parent
LONG = "word " * 60
SMALL = onefold.Policy(limits=onefold.Limits(1_500, 100, soft=0.5, hard=0.9), tail_tokens=300, backoff=(0.0,))
WHO: dict[str, Any] = {"app_name": "app", "user_id": "anna", "session_id": "talk"}
IN_JOURNAL = "app/anna/talk"


class Strict(BaseLlm):
    """Calls `look` for each question and then answers. Refuses what a provider would: a call without its results."""

    model: str = "strict"
    seen: list[list[types.Content]] = []  # noqa: RUF012  of pydantic: each model has its own
    summaries: list[str] = []  # noqa: RUF012
    fails: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        system, contents = str(llm_request.config.system_instruction or ""), llm_request.contents
        asked = words(contents[-1])
        if "You write the summary" in system or "conversation history" in asked:
            if self.fails:
                raise ValueError("the model is away")
            self.summaries.append(asked)
            yield _says(types.Part(text=f"They looked {len(self.summaries)} times, and found nothing so far."))
            return
        check_pairs(contents)
        self.seen.append(list(contents))
        answers = [p.function_response for p in contents[-1].parts or () if p.function_response]
        if answers:
            yield _says(types.Part(text=f"It is so: {answers[0].response}"))
        else:
            call = types.FunctionCall(name="look", args={"at": asked[:20]})
            yield _says(types.Part(text="I look."), types.Part(function_call=call))


def _says(*parts: types.Part) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=list(parts)))


def words(content: types.Content) -> str:
    return "".join(p.text or "" for p in content.parts or ())


def check_pairs(contents: list[types.Content]) -> None:
    waiting = 0
    for content in contents:
        results = sum(1 for p in content.parts or () if p.function_response)
        assert results == waiting, f"{waiting} calls wait, and {results} results come: {content}"
        waiting = sum(1 for p in content.parts or () if p.function_call)
    assert waiting == 0


def look(at: str) -> str:
    """Looks at something."""
    return f"{at} {LONG}"


def runner_of(service: BaseSessionService, model: BaseLlm, *tools: Any) -> Runner:
    agent = LlmAgent(name="looker", model=model, instruction="You look at things.", tools=list(tools) or [look])
    return Runner(app_name="app", agent=agent, session_service=service)


async def ask(runner: Runner, text: str) -> list[Event]:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    return [e async for e in runner.run_async(user_id="anna", session_id="talk", new_message=message)]


async def get(service: BaseSessionService, config: GetSessionConfig | None = None) -> Session:
    session = await service.get_session(**WHO, config=config)
    assert session is not None
    return session


def own(events: list[Event]) -> list[Event]:
    return [e for e in events if not e.id.startswith("onefold-")]


# ---------------------------------------------------------------------- the framework's own errors and habits


def test_a_late_event_of_a_deleted_session_is_refused_as_adk_refuses_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSessionService(tmp_path / "a.db") as service:
            session = await service.create_session(**WHO)
            await service.append_event(session, Event(author="user", invocation_id="1"))
            await service.delete_session(**WHO)
            never = Session(app_name="app", user_id="anna", id="never")

            for gone in (session, never):
                before = list(gone.events)
                with pytest.raises(SessionNotFoundError, match=gone.id):
                    await service.append_event(gone, Event(author="user", invocation_id="2"))
                assert gone.events == before

    asyncio.run(story())


def test_it_is_closed_at_once_awaited_or_at_the_end_of_a_block(tmp_path: Path) -> None:
    async def story() -> None:
        async with OnefoldSessionService(tmp_path / "a.db") as block:
            await block.create_session(**WHO)
        awaited, at_once = OnefoldSessionService(tmp_path / "a.db"), OnefoldSessionService(tmp_path / "a.db")
        for service in (awaited, at_once):
            await get(service)
        await awaited.close()
        at_once.close()
        for closed in (block, awaited, at_once):
            with pytest.raises(onefold.StoreError, match="was closed here"):
                await closed.get_session(**WHO)

    asyncio.run(story())


def text_of(event: Event) -> str:
    return words(event.content) if event.content else ""


def run(story: Callable[[OnefoldSessionService], Awaitable[None]], service: OnefoldSessionService) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story(service)

    asyncio.run(bounded())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[onefold.Store]:
    with onefold.open(path, policy=SMALL) as opened:
        yield opened


# ---------------------------------------------------------------------- the same as ADK's own


def event(n: int, text: str = "", *, author: str = "looker", at: float | None = None, **delta: Any) -> Event:
    return Event(
        id=f"e{n}",
        author=author,
        invocation_id=f"i{n}",
        timestamp=at if at is not None else 1000.0 + n,
        content=types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)]),
        actions=EventActions(state_delta={k.replace("__", ":"): v for k, v in delta.items()}),
    )


async def _state_goes_where_its_prefix_says(service: BaseSessionService) -> AsyncIterator[Any]:
    first = await service.create_session(**WHO, state={"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4})
    yield first.state
    yield await service.append_event(first, event(1, "x", a=None, e=[1], user__b=5, app__f=6, temp__g=7))
    yield first.state
    yield (await get(service)).state
    yield (await get(service)).events
    other = await service.create_session(app_name="app", user_id="anna", session_id="other")
    yield other.state
    stranger = await service.create_session(app_name="app", user_id="berta", session_id="talk")
    yield stranger.state
    yield await service.get_user_state(app_name="app", user_id="anna")
    yield await service.get_user_state(app_name="app", user_id="nobody")
    listed = (await service.list_sessions(app_name="app")).sessions
    yield sorted((s.user_id, s.id, s.events, sorted(s.state)) for s in listed)


async def _events_come_back_equal(service: BaseSessionService) -> AsyncIterator[Any]:
    session = await service.create_session(**WHO)
    call = types.FunctionCall(id="c", name="look", args={"at": None, "n": [1, None]})
    signed = types.Part(text="hm", thought=True, thought_signature=b"\x00\xff")
    picture = types.Part(inline_data=types.Blob(data=b"\xfb\xff\x00", mime_type="image/png"))
    for made in (
        event(1, "Ü", author="user"),
        Event(id="e2", author="looker", timestamp=1002.0, content=types.Content(parts=[signed, picture])),
        Event(
            id="e3",
            author="looker",
            timestamp=1003.0,
            content=types.Content(role="model", parts=[types.Part(function_call=call)]),
            long_running_tool_ids={"c"},
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=5),
        ),
        Event(id="e4", author="looker", timestamp=1004.0, partial=True, content=types.Content(parts=[])),
    ):
        yield await service.append_event(session, made)
    yield session.events
    yield session.last_update_time
    stored = await get(service)
    yield stored.events
    yield stored.last_update_time


async def _some_of_the_events(service: BaseSessionService) -> AsyncIterator[Any]:
    session = await service.create_session(**WHO)
    for n in range(8):
        await service.append_event(session, event(n, f"text {n}"))
    for recent in (None, 0, 1, 3, 50):
        for after in (None, 1003.0, 1003.5, 5000.0):
            config = GetSessionConfig(num_recent_events=recent, after_timestamp=after)
            if recent is None or after is None:  # ADK's own services do not agree on both at once
                yield [e.id for e in (await get(service, config)).events]


async def _what_is_not_there(service: BaseSessionService) -> AsyncIterator[Any]:
    yield await service.get_session(**WHO)
    yield (await service.list_sessions(app_name="app")).sessions
    await service.delete_session(**WHO)
    session = await service.create_session(app_name="app", user_id="anna", session_id=" talk ")
    yield session.id
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO)
    await service.append_event(session, event(1, "x"))
    await service.append_event(session, event(1, "x"))
    yield [e.id for e in session.events]
    yield [e.id for e in (await get(service)).events]
    await service.delete_session(**WHO)
    yield await service.get_session(**WHO)
    with pytest.raises(Exception, match="talk"):
        await service.append_event(session, event(2, "late"))
    yield (await service.list_sessions(app_name="app")).sessions


async def _lists_are_in_order(service: BaseSessionService) -> AsyncIterator[Any]:
    for n, name in enumerate(("a", "b", "c/d")):
        session = await service.create_session(app_name="app", user_id="u%/1", session_id=name)
        await service.append_event(session, event(n, "x", at=5e9 - n))
    await service.create_session(app_name="app2", user_id="u%/1", session_id="a")
    yield [s.id for s in (await service.list_sessions(app_name="app", user_id="u%/1")).sessions]
    yield [s.id for s in (await service.list_sessions(app_name="app", user_id="u")).sessions]
    yield [s.id for s in (await service.list_sessions(app_name="app")).sessions]


Story = Callable[[BaseSessionService], AsyncIterator[Any]]
STORIES: list[Story] = [
    _state_goes_where_its_prefix_says,
    _events_come_back_equal,
    _some_of_the_events,
    _what_is_not_there,
    _lists_are_in_order,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.__name__)
def test_it_does_what_adk_s_own_service_does(store: onefold.Store, story: Story) -> None:
    async def both() -> tuple[list[Any], list[Any]]:
        theirs = [step async for step in story(InMemorySessionService())]
        ours = [step async for step in story(OnefoldSessionService(store))]
        return ours, theirs

    ours, theirs = asyncio.run(both())

    assert ours == theirs


def test_an_id_of_a_deleted_session_stays_taken(store: onefold.Store) -> None:
    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO)
        await service.delete_session(**WHO)
        with pytest.raises(AlreadyExistsError, match="stays taken"):
            await service.create_session(**WHO)

    run(story, OnefoldSessionService(store))


def test_two_events_with_one_id_are_a_conflict_and_the_first_counts(store: onefold.Store) -> None:
    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        await service.append_event(session, event(1, "first"))
        with pytest.raises(onefold.KeyConflict):
            await service.append_event(session, event(1, "second"))
        assert [text_of(e) for e in (await get(service)).events] == ["first"]
        assert [text_of(e) for e in session.events] == ["first"]

    run(story, OnefoldSessionService(store))


# ---------------------------------------------------------------------- under a runner


def test_a_conversation_goes_on_where_any_process_left_off(path: Path) -> None:
    async def first() -> list[Event]:
        service = OnefoldSessionService(path)
        await service.create_session(**WHO)
        await ask(runner_of(service, Strict(seen=[])), "Is the door open?")
        events = (await get(service)).events
        service.close()
        return events

    async def second() -> None:
        model = Strict(seen=[])
        service = OnefoldSessionService(path)
        await ask(runner_of(service, model), "And the window?")

        assert [words(c) for c in model.seen[0]] == ["Is the door open?", "I look.", "", came[-1], "And the window?"]
        assert (await get(service)).events[:4] == before
        service.close()

    before = asyncio.run(first())
    came = [text_of(e) for e in before]
    assert [e.author for e in before] == ["user", "looker", "looker", "looker"]
    asyncio.run(second())


@pytest.mark.parametrize("by", ["model", "ADK's own summarizer"])
def test_it_compacts_by_itself_and_all_events_are_still_there(store: onefold.Store, by: str) -> None:
    model = Strict(seen=[], summaries=[])

    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO)
        runner = runner_of(service, model)

        for n in range(12):
            await ask(runner, f"Question {n}: {LONG}")

        events = own((await get(service)).events)
        assert [text_of(e).split(":")[0] for e in events if e.author == "user"] == [f"Question {n}" for n in range(12)]
        assert len({e.id for e in events}) == len(events) == 48
        assert "They looked" in words(model.seen[-1][0])
        assert len(model.seen[-1]) < 20
        for seen in model.seen:
            assert sum(len(c.model_dump_json(exclude_none=True)) for c in seen) // 4 < SMALL.of().window

    asks = {"summarizer": LlmEventSummarizer(llm=model)} if by != "model" else {"model": model}
    run(story, OnefoldSessionService(store, **asks))

    state = store.session(IN_JOURNAL).state
    assert state.committed > 1
    assert len(model.summaries) >= state.committed


def test_what_a_provider_says_of_a_context_is_not_held_against_an_older_one(path: Path) -> None:
    """Far from any limit no context is read, so the last one that was is of another time."""
    policy = onefold.Policy(limits=onefold.Limits(20_000, 1_000))

    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        await service.append_event(await get(service), event(0, "Hello?", author="user"))
        await service.append_event(session, event(1, "Are you there?", author="user"))  # has to read what came before
        for n in range(2, 20, 2):
            answer = event(n, "word " * 400)
            used = opened.session(IN_JOURNAL).state.tokens
            answer.usage_metadata = types.GenerateContentResponseUsageMetadata(prompt_token_count=used)
            await service.append_event(session, answer)
            await service.append_event(session, event(n + 1, "word " * 400, author="user"))

    with onefold.open(path, policy=policy) as opened:
        run(story, OnefoldSessionService(opened))

        session = opened.session(IN_JOURNAL)
        assert policy.of().soft_tokens / 2 < session.state.tokens < policy.of().soft_tokens
        assert session.compactions() == []


def test_a_long_run_of_tool_calls_is_compacted_on_its_way(store: onefold.Store) -> None:
    class TurnBusy(Strict):
        """Looks thirty times before it answers."""

        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            check_pairs(llm_request.contents)
            self.seen.append(list(llm_request.contents))
            call = types.FunctionCall(name="look", args={"at": f"place {len(self.seen)}"})
            yield _says(types.Part(function_call=call) if len(self.seen) < 30 else types.Part(text="Nothing."))

    model = TurnBusy(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO)
        came = await ask(runner_of(service, model), "Where is it?")
        assert text_of(came[-1]) == "Nothing."

    run(story, OnefoldSessionService(store, summarizer=lambda m: f"They looked, up to {m.records[-1].number}."))

    assert store.session(IN_JOURNAL).state.committed > 1
    assert len(model.seen[-1]) < 30
    assert any("Where is it?" in words(c) for c in model.seen[-1])


@pytest.mark.parametrize("new_id", [False, True], ids=["the same id", "a new id"])
def test_what_stands_for_a_masked_result_is_never_written(path: Path, new_id: bool) -> None:
    def scribble(callback_context: Any, llm_request: LlmRequest) -> None:
        for content in llm_request.contents:
            for part in content.parts or ():
                if part.function_response and part.function_response.response:
                    part.function_response.response["result"] += " (seen)"

    async def story() -> None:
        async with OnefoldSessionService(path) as service:
            await service.create_session(**WHO)
            for n in range(4):
                await ask(runner_of(service, Strict(seen=[])), f"Question {n}?")
        with onefold.open(path) as store:
            before = [r.body for r in store.session(IN_JOURNAL).read() if r.kind == "message"]
            results = [r.number for r in store.session(IN_JOURNAL).read() if r.header and r.header.result_ids]
            store.session(IN_JOURNAL).mask(*results[:3])
        for n in range(3):  # each of them another process, as far as the service knows
            async with OnefoldSessionService(path) as service:
                model = Strict(seen=[])
                agent = LlmAgent(name="looker", model=model, tools=[look], before_model_callback=scribble)
                await ask(Runner(app_name="app", agent=agent, session_service=service), f"Later {n}?")
                assert "is left out here" in str(model.seen[0])
                session = await get(service)
                for shown in [e for e in session.events if "is left out here" in str(e)]:
                    changed = shown.model_copy(update={"id": Event.new_id()} if new_id else {}, deep=True)
                    with contextlib.suppress(onefold.OnefoldError):
                        await service.append_event(session, changed)
        with onefold.open(path) as store:
            kept = [r.body for r in store.session(IN_JOURNAL).read() if r.kind == "message"]
            assert kept[: len(before)] == before
            assert "is left out here" not in str(kept)
            assert len(kept) == 7 * 4

    asyncio.run(story())


def test_notes_and_pins_are_in_what_the_model_is_sent(store: onefold.Store) -> None:
    model = Strict(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO)
        runner = runner_of(service, model)
        await ask(runner, "The key is under the mat.")
        journal = store.session(IN_JOURNAL)
        journal.note("rule", "do not go in")
        journal.pin(next(r.number for r in journal.read() if r.header and r.header.role == "user"))
        await ask(runner, "Is the door open?")
        assert "do not go in" in words(model.seen[-1][0])
        for n in range(8):
            await ask(runner, f"Question {n}: {LONG}")

    run(story, OnefoldSessionService(store, summarizer=lambda m: f"They looked, up to {m.records[-1].number}."))

    said = [words(c) for c in model.seen[-1]]
    assert sum("do not go in" in text for text in said) == 1
    assert any("under the mat" in text for text in said)
    assert store.session(IN_JOURNAL).state.committed > 0


def test_what_adk_rewinds_is_in_no_summary(store: onefold.Store) -> None:
    model = Strict(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO, state={"count": 1})
        runner = runner_of(service, model)
        await ask(runner, "Is the door open?")
        came = await ask(runner, "The secret is 4711.")
        session = await get(service)
        await service.append_event(session, event(99, "x", count=2))
        await runner.rewind_async(user_id="anna", session_id="talk", rewind_before_invocation_id=came[0].invocation_id)
        assert not any("4711" in text_of(e) for e in (await get(service)).events)
        assert (await get(service)).state["count"] == 1
        for n in range(10):
            await ask(runner, f"Question {n}: {LONG}")

    heard: list[str] = []

    def summarize(material: onefold.SummaryInput) -> str:
        heard.extend(material.text(r) for r in material.records)
        return f"They looked, up to {material.records[-1].number}."

    run(story, OnefoldSessionService(store, summarizer=summarize))

    assert heard
    assert not any("4711" in text for text in heard)
    assert not any("4711" in words(c) for c in model.seen[-1])
    assert any("4711" in str(r.body) for r in store.session(IN_JOURNAL).read())


def test_a_call_whose_run_died_is_not_sent_to_the_model(store: onefold.Store) -> None:
    model = Strict(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        call = types.FunctionCall(id="c", name="look", args={"at": "door"})
        await service.append_event(session, event(1, "Is the door open?", author="user"))
        parts = [types.Part(function_call=call)]
        dies = Event(id="e2", author="looker", invocation_id="i1", content=types.Content(role="model", parts=parts))
        await service.append_event(session, dies)
        runner = runner_of(service, model)
        for n in range(12):
            assert text_of((await ask(runner, f"Well, {n}? {LONG}"))[-1]).startswith("It is so:")
        assert (await get(service)).events[1] == dies

    run(story, OnefoldSessionService(store, summarizer=lambda m: f"They looked, up to {m.records[-1].number}."))

    assert store.session(IN_JOURNAL).state.committed > 0


def test_what_a_person_takes_back_is_gone_from_events_and_state(store: onefold.Store) -> None:
    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO, state={"count": 1})
        await service.append_event(session, event(1, "One.", author="user"))
        await service.append_event(session, event(2, "Two.", author="user", count=2))
        store.session(IN_JOURNAL).undo()
        read = await get(service)
        assert [e.id for e in read.events] == ["e1"]
        assert read.state == {"count": 1}

    run(story, OnefoldSessionService(store))


def test_a_late_answer_of_a_long_running_tool_is_kept_beside_the_first(store: onefold.Store) -> None:
    def start(at: str) -> dict[str, str]:
        """Begins to look."""
        return {"status": "pending"}

    class Starts(Strict):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            self.seen.append(list(llm_request.contents))
            asked = words(llm_request.contents[-1])
            call = types.FunctionCall(name="start", args={"at": "door"})
            yield _says(types.Part(function_call=call) if asked == "Begin." else types.Part(text="Well."))

    model = Starts(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        for n in range(20):
            await service.append_event(session, event(n, f"text {n} {LONG}", author="user" if n % 2 else "looker"))
        assert store.session(IN_JOURNAL).state.committed > 0
        runner = runner_of(service, model, LongRunningFunctionTool(func=start))
        (call, *_) = [c for e in await ask(runner, "Begin.") for c in e.get_function_calls()]
        answer = types.FunctionResponse(id=call.id, name="start", response={"status": "the door is open"})
        message = types.Content(role="user", parts=[types.Part(function_response=answer)])
        async for _ in runner.run_async(user_id="anna", session_id="talk", new_message=message):
            pass
        await ask(runner, "And?")
        for seen in model.seen[-2:]:
            told = [p.function_response for c in seen for p in c.parts or () if p.function_response]
            assert [t.response for t in told] == [{"status": "the door is open"}]

    run(story, OnefoldSessionService(store, summarizer=lambda m: f"They looked, up to {m.records[-1].number}."))


# ---------------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("gone", "shown", "stretches"),
    [
        ([], [1.0], []),
        ([1.0, 2.0, 3.0], [4.0], [(1.0, 3.0)]),
        ([1.0, 2.0, 4.0], [3.0, 5.0], [(1.0, 2.0), (4.0, 4.0)]),
        ([1.0, 2.0], [2.0, 3.0], [(1.0, 1.0)]),
        ([2.0], [1.0, 2.0], []),
        ([1.0, 1.0, 2.0], [], [(1.0, 2.0)]),
    ],
)
def test_stretches_of_time_hide_what_is_gone_and_nothing_else(
    gone: list[float], shown: list[float], stretches: list[tuple[float, float]]
) -> None:
    assert left_out(gone, shown) == stretches


def test_an_event_of_a_process_whose_clock_is_behind_is_not_hidden_by_a_summary(store: onefold.Store) -> None:
    model = Strict(seen=[])

    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        for n in range(20):
            await service.append_event(session, event(n, f"text {n} {LONG}", author="user" if n % 2 else "looker"))
        assert store.session(IN_JOURNAL).state.committed > 0
        await service.append_event(session, event(50, "I am late.", author="user", at=1000.5))
        await ask(runner_of(service, model), "Is the door open?")

    run(story, OnefoldSessionService(store, summarizer=lambda m: f"They looked, up to {m.records[-1].number}."))

    said = [words(c) for c in model.seen[0]]
    assert any("I am late." in text for text in said)
    assert not any("text 3 " in text for text in said)


# ---------------------------------------------------------------------- when something fails


def test_a_summarizer_that_fails_costs_nothing_until_the_context_is_full_and_then_says_why(
    store: onefold.Store,
) -> None:
    model = Strict(seen=[], summaries=[], fails=True)

    async def story(service: OnefoldSessionService) -> None:
        await service.create_session(**WHO)
        runner = runner_of(service, model)
        with pytest.raises(onefold.ContextTooLarge, match="the model is away"):
            [await ask(runner, f"Question {n}: {LONG}") for n in range(12)]
        assert len(model.seen) > 4
        kept = own((await get(service)).events)
        assert len({e.id for e in kept}) == len(kept)
        model.fails = False
        store.session(IN_JOURNAL).compact(onefold.extractive_summary)
        assert text_of((await ask(runner, "And now?"))[-1]).startswith("It is so:")

    run(story, OnefoldSessionService(store, model))


def test_a_store_that_is_away_is_said_and_the_session_in_memory_is_as_it_was(store: onefold.Store) -> None:
    async def story(service: OnefoldSessionService) -> None:
        session = await service.create_session(**WHO)
        store.close()
        with pytest.raises(onefold.StoreError):
            await service.append_event(session, event(1, "x", a=1))
        assert (session.events, session.state) == ([], {})

    run(story, OnefoldSessionService(store))


def test_an_answer_of_the_store_that_is_lost_writes_nothing_twice(
    store: onefold.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot tell whether it wrote, each time: it is asked again."""
    backend = store.journal.backend
    write, lost = type(backend).write, [False]

    def forgetful(self: Any, session: str, work: Any, **options: Any) -> Any:
        done = write(self, session, work, **options)
        lost[0] = isinstance(done, onefold.AppendResult) and not lost[0]
        if lost[0]:
            raise onefold.OutcomeUnknown("the disk answers nothing; repeat with the same key")
        return done

    async def story(service: OnefoldSessionService) -> None:
        monkeypatch.setattr(type(backend), "write", forgetful)
        session = await service.create_session(**WHO, state={"user:a": 0})
        await service.append_event(session, event(1, "x", user__a=1, b=2))
        assert [e.id for e in (await get(service)).events] == ["e1"] == [e.id for e in session.events]
        assert (await get(service)).state == session.state == {"b": 2, "user:a": 1}

    run(story, OnefoldSessionService(store))

    assert store.session("app/anna").state.messages == 2


def test_the_loop_goes_on_while_a_summary_is_written(store: onefold.Store) -> None:
    async def story(_: OnefoldSessionService) -> None:
        ticks = asyncio.Event()

        async def summarize(material: onefold.SummaryInput) -> str:
            ticks.clear()
            await asyncio.wait_for(ticks.wait(), 10)  # set by another task of this loop
            return f"They looked, up to {material.records[-1].number}."

        async def tick() -> None:
            while True:
                ticks.set()
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        service = OnefoldSessionService(store, summarizer=summarize)
        await service.create_session(**WHO)
        runner = runner_of(service, Strict(seen=[]))
        for n in range(6):
            await ask(runner, f"Question {n}: {LONG}")
        ticking.cancel()
        assert store.session(IN_JOURNAL).state.committed > 0

    run(story, OnefoldSessionService(store))


# ---------------------------------------------------------------------- two processes


def talk(path: str, name: str, rounds: int, in_turns: bool) -> None:
    """What each of two processes does: a run of its own, at the same time as the other's, again and again."""
    model = Strict(seen=[], summaries=[])

    async def story(service: OnefoldSessionService) -> None:
        runner = runner_of(service, model)
        journal = await onefold.aio.Store(opened).session(IN_JOURNAL)
        for n in range(rounds):
            await asyncio.to_thread(at_barrier)
            async with journal.turn(owner=name) if in_turns else contextlib.nullcontext():
                await ask(runner, f"{name} {n}: {LONG}")

    with onefold.open(path, policy=SMALL) as opened:
        run(story, OnefoldSessionService(opened, model))
    say("done")


@pytest.mark.parametrize("in_turns", [False, True], ids=["as they come", "in turns"])
def test_two_processes_in_one_session_lose_nothing_and_make_no_fork(
    path: Path, store: onefold.Store, in_turns: bool
) -> None:
    rounds, names = 3, ("anna", "berta")
    made: Coroutine[Any, Any, Session] = OnefoldSessionService(store).create_session(**WHO)
    asyncio.run(made)
    children = [Child("talk", module=__name__, path=str(path), name=n, rounds=rounds, in_turns=in_turns) for n in names]
    with children[0], children[1]:
        for _ in range(rounds):
            for child in children:
                child.hear("ready")
            for child in children:
                child.say("go")
        for child in children:
            child.hear("done")

    events = own(asyncio.run(get(OnefoldSessionService(store))).events)
    assert len({e.id for e in events}) == len(events)
    for name in names:
        questions = [text_of(e).split(":")[0] for e in events if e.author == "user" and text_of(e).startswith(name)]
        assert questions == [f"{name} {n}" for n in range(rounds)]
    calls = [c.id for e in events for c in e.get_function_calls()]
    results = [r.id for e in events for r in e.get_function_responses()]
    assert sorted(map(str, calls)) == sorted(map(str, results))
    assert len({*calls}) == len(calls) > 0
    if in_turns:
        assert [e.author == "user" for e in events] == [True, False, False, False] * 2 * rounds
    session = store.session(IN_JOURNAL)
    segments = session.segments()
    assert [s.base for s in segments[1:]] == [s.number for s in segments[:-1]]
    assert session.state.committed > 0
    assert store.verify().healthy


def test_all_sessions_are_listed_while_each_of_them_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{n:02}" for n in range(8)]
    monkeypatch.setattr("onefold.store._PAGE", 2)

    async def story(service: OnefoldSessionService) -> None:
        for name in names:
            await service.create_session(app_name="app", user_id="anna", session_id=name, state={"user:a": 1})
        await service.create_session(app_name="app", user_id="ann", session_id="another")
        with restless(store, [f"app/anna/{name}" for name in names]):
            both = [(await service.list_sessions(app_name="app", user_id=who)).sessions for who in ("anna", None)]
        assert sorted(s.id for s in both[0]) == names
        assert sorted(s.id for s in both[1]) == [*names, "another"]
        monkeypatch.setattr(store, "walk", lambda after, page: _and_deletes(store, walk(after, page=page)))
        assert sorted(s.id for s in (await service.list_sessions(app_name="app")).sessions) == [*names[1:], "another"]

    with onefold.open("memory:") as store:
        walk = store.walk
        monkeypatch.setattr(store, "walk", lambda after, page: walk(after, page=2))
        run(story, OnefoldSessionService(store))


def _and_deletes(store: onefold.Store, walk: Iterator[onefold.SessionState]) -> Iterator[onefold.SessionState]:
    states = [*walk]
    store.delete("app/anna/00")
    yield from states


# ---------------------------------------------------------------------- what is shown to people


def test_the_page_holds(tmp_path: Path) -> None:
    run_page(ROOT / "docs/how-to/google-adk.md", tmp_path)


def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/google_adk.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "in the journal" in done.stdout
