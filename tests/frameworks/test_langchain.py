"""OnefoldMiddleware in real agents of LangChain. The model is as strict as a provider about calls and results."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.chat_models import BaseChatModel
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

import onefold
from onefold.integrations.dedup import append_new
from onefold.integrations.langchain import OnefoldMiddleware, record
from onefold.integrations.seen_cache import SeenCache
from tests.support.helpers import Child, at_barrier, say
from tests.support.pages import run_page

ROOT = Path(__file__).parent.parent.parent
LONG = "word " * 60
SMALL = onefold.Policy(limits=onefold.Limits(1_500, 100, soft=0.5, hard=0.9), tail_tokens=300, backoff=(0.0,))
Agent = Any


class Strict(BaseChatModel):
    """Calls `look` for each question and then answers. Refuses what a provider would: a call without its results."""

    seen: list[list[BaseMessage]] = []  # noqa: RUF012  of pydantic: each model has its own
    summaries: list[str] = []  # noqa: RUF012
    most: int = 10_000_000
    fails: bool = False
    who: str = "call"

    @property
    def _llm_type(self) -> str:
        return "strict"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        if isinstance(messages[0], SystemMessage) and "You write the summary" in messages[0].text:
            if self.fails:
                raise ValueError("the model is away")
            self.summaries.append(messages[1].text)
            return _said(AIMessage(f"They looked {len(self.summaries)} times, and found nothing so far."))
        check_pairs(messages)
        if sum(len(m.text) for m in messages) > self.most:
            raise ContextOverflowError("prompt is too long")
        self.seen.append(list(messages))
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return _said(AIMessage(f"It is so: {last.text}"))
        call = {"name": "look", "args": {"at": last.text}, "id": f"{self.who}-{len(self.seen)}", "type": "tool_call"}
        return _said(AIMessage("I look.", tool_calls=[call]))


def _said(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def check_pairs(messages: Sequence[BaseMessage]) -> None:
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, f"a result without its call: {message}"
            waiting.discard(message.tool_call_id)
            continue
        assert not waiting, f"calls without results: {waiting}"
        made = (*message.tool_calls, *message.invalid_tool_calls) if isinstance(message, AIMessage) else ()
        waiting = {str(call["id"]) for call in made}
    assert not waiting


@tool
def look(at: str) -> str:
    """Looks at something."""
    return f"{at[:20]} {LONG}"


def agent_of(model: Strict, middleware: OnefoldMiddleware, **more: Any) -> Agent:
    return create_agent(model, tools=[look], middleware=[middleware], system_prompt="You look at things.", **more)


def ask(agent: Agent, words: str, id: str | None = None) -> list[BaseMessage]:
    came = agent.invoke({"messages": [HumanMessage(words, id=id)]}, {"configurable": {"thread_id": "talk"}})
    return list(came["messages"])


def said(store: onefold.Store, session: str = "talk") -> list[BaseMessage]:
    """Every message that was ever written to the journal."""
    bodies = [r.body for r in store.session(session).read() if r.kind == "message"]
    return messages_from_dict(bodies)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[onefold.Store]:
    with onefold.open(path, policy=SMALL) as opened:
        yield opened


# ---------------------------------------------------------------------- the journal is the record


def test_a_conversation_goes_on_where_any_process_left_off(path: Path) -> None:
    first, second = Strict(seen=[]), Strict(seen=[])
    middleware = OnefoldMiddleware(path)
    came = ask(agent_of(first, middleware), "Is the door open?")
    middleware.close()

    with onefold.open(path) as store:
        again = ask(agent_of(second, OnefoldMiddleware(store)), "And the window?")

        assert [m.type for m in came] == ["human", "ai", "tool", "ai"]
        assert again[:4] == came
        assert second.seen[0][1:] == again[:5]
        assert said(store) == again


def test_what_comes_out_equals_what_went_in(store: onefold.Store) -> None:
    model = Strict(seen=[])
    middleware = OnefoldMiddleware(store, session="s")
    messages: list[Any] = [
        HumanMessage([{"type": "text", "text": "Ü \ud800"}, {"type": "image_url", "image_url": {"url": "x"}}], id="1"),
        AIMessage(
            [{"type": "thinking", "thinking": "…", "signature": "x"}, {"type": "text", "text": "Yes."}],
            id="2",
            usage_metadata={"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
            response_metadata={"finish_reason": "stop", "n": 2**70},
            tool_calls=[{"name": "look", "args": {"at": None}, "id": "c", "type": "tool_call"}],
        ),
        ToolMessage("none", tool_call_id="c", id="3", artifact={"rows": [1, 2]}, status="error"),
        HumanMessage("Well?", id="4"),
    ]

    came = create_agent(model, middleware=[middleware]).invoke({"messages": messages})

    assert came["messages"][:4] == messages
    assert model.seen[0] == messages
    assert said(store, "s")[:4] == messages


def test_a_message_that_comes_twice_is_written_once_and_one_that_was_changed_counts_as_it_is_now(
    store: onefold.Store,
) -> None:
    model = Strict(seen=[])
    agent = agent_of(model, OnefoldMiddleware(store))
    ask(agent, "Is the door open?", id="q1")
    before = store.session("talk").state.messages

    ask(agent, "Is the door open?", id="q1")
    ask(agent, "Is the gate open?", id="q1")

    questions = [m.text for m in said(store) if m.type == "human"]
    assert questions == ["Is the door open?", "Is the gate open?"]
    assert [m.text for m in model.seen[-1] if m.type == "human"] == ["Is the gate open?"]
    assert before == 4


def test_what_a_tool_keeps_for_the_program_alone_stays_in_the_state(store: onefold.Store) -> None:
    @tool(response_format="content_and_artifact")
    def look(at: str) -> tuple[str, object]:
        """Looks at something."""
        return "seen", threading.Lock()

    middleware = OnefoldMiddleware(store, session="s")
    came = create_agent(Strict(seen=[]), tools=[look], middleware=[middleware]).invoke(
        {"messages": [HumanMessage("Look.", id="1")]}
    )

    assert came["messages"][2].artifact is not None
    (result,) = [m for m in said(store, "s") if isinstance(m, ToolMessage)]
    assert (result.text, result.artifact) == ("seen", None)


def test_without_a_session_nothing_is_asked(store: onefold.Store) -> None:
    model = Strict(seen=[])

    with pytest.raises(onefold.OnefoldError, match="which session this run belongs to"):
        agent_of(model, OnefoldMiddleware(store)).invoke({"messages": [HumanMessage("?")]})

    assert model.seen == []


# ---------------------------------------------------------------------- calls and results


def results_of(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(m.tool_call_id, m.text) for m in messages if isinstance(m, ToolMessage)]


class Edits(AgentMiddleware[Any, Any]):
    """Edits in place what LangChain hands it."""

    def __init__(self, edit: Callable[[Any], None]) -> None:
        super().__init__()
        self._edit = edit

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._edit(request)
        return handler(request)


def its_arguments(request: Any) -> None:
    request.tool_call["args"]["at"] = "the gate"


def its_message(request: Any) -> None:
    request.state["messages"][-1].content = "I look elsewhere."
    request.state["messages"][-1].tool_calls[0]["args"] = {"at": "the gate"}


@pytest.mark.parametrize("saver", [None, InMemorySaver], ids=["alone", "with a checkpointer"])
@pytest.mark.parametrize("edit", [its_arguments, its_message])
def test_a_call_that_is_changed_on_its_way_to_its_tool_is_written_once_and_has_one_result(
    store: onefold.Store, edit: Callable[[Any], None], saver: Callable[[], Any] | None
) -> None:
    model = Strict(seen=[])
    middleware: list[Any] = [OnefoldMiddleware(store), Edits(edit)]
    agent: Agent = create_agent(model, tools=[look], middleware=middleware, checkpointer=saver() if saver else None)
    for n in range(3):
        ask(agent, f"Is door {n} open?")
    later = ask(agent_of(Strict(seen=[], who="later"), OnefoldMiddleware(store)), "Well?")

    kept = said(store)
    assert [m.type for m in kept] == ["human", "ai", "tool", "ai"] * 4
    assert len({m.id for m in kept}) == len(kept)
    for sent in (*model.seen, later):
        check_pairs(sent)
        assert not any("no result" in text for _, text in results_of(sent))
    bodies = store.session("talk").context().to("langchain")
    assert results_of(messages_from_dict(bodies)) == results_of(kept)


def test_a_result_that_is_changed_later_stays_one(store: onefold.Store) -> None:
    class Shortens(AgentMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            for message in state["messages"]:
                if isinstance(message, ToolMessage):
                    message.content = "(cut)"

    agent = create_agent(Strict(seen=[]), tools=[look], middleware=[OnefoldMiddleware(store), Shortens()])
    for n in range(3):
        ask(agent, f"Is door {n} open?")

    kept = said(store)
    assert [m.type for m in kept] == ["human", "ai", "tool", "ai"] * 3
    assert all("word" in text for _, text in results_of(kept))


class Scribbles(AgentMiddleware[Any, Any]):
    """Changes every result that it is shown: in place, as copies with the same ids, or as copies with new ones."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        results = [m for m in state["messages"] if isinstance(m, ToolMessage)]
        if self.how == "in place":
            for message in results:
                message.content = f"{message.text} (seen)"
            return None
        changed = [
            m if m not in results else m.model_copy(update={"content": f"{m.text} (seen)"} | self._id())
            for m in state["messages"]
        ]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *changed]}

    def _id(self) -> dict[str, Any]:
        return {"id": None} if self.how == "with new ids" else {}


@pytest.mark.parametrize("how", ["in place", "copied", "with new ids"])
def test_what_stands_for_a_masked_result_is_never_written(path: Path, how: str) -> None:
    saver = InMemorySaver()
    with onefold.open(path) as store:
        agent = agent_of(Strict(seen=[]), OnefoldMiddleware(store), checkpointer=saver)
        for n in range(4):
            ask(agent, f"Question {n}?")
        before = [m.text for m in said(store) if isinstance(m, ToolMessage)]
        results = [r.number for r in store.session("talk").read() if r.header is not None and r.header.result_ids]
        store.session("talk").mask(*results[:3])

    with onefold.open(path) as store:  # the checkpointer's state has the whole results, and then the lines
        for n in range(3):
            model = Strict(seen=[], who=f"later-{n}")
            middleware = [OnefoldMiddleware(store), Scribbles(how)]
            agent = create_agent(model, tools=[look], middleware=middleware, checkpointer=saver)
            ask(agent, f"Later {n}?")
            assert any("is left out here" in m.text for m in model.seen[0])

        texts = [m.text for m in said(store) if isinstance(m, ToolMessage)]
        assert not any("is left out here" in text for text in texts)
        assert texts[:4] == before
        assert store.verify().findings == ()


def test_two_copies_of_a_call_that_a_journal_has_from_before_get_one_result(store: onefold.Store) -> None:
    def of(at: str) -> AIMessage:
        return AIMessage("", id="a", tool_calls=[{"name": "look", "args": {"at": at}, "id": "c", "type": "tool_call"}])

    bodies = [message_to_dict(m) for m in (HumanMessage("Look.", id="q"), of("a"), of("b"))]
    bodies.append(message_to_dict(ToolMessage("seen", tool_call_id="c", id="r")))
    store.session("talk").append(bodies, format="langchain")

    came = ask(agent_of(Strict(seen=[]), OnefoldMiddleware(store)), "Well?")

    assert results_of(came)[0] == ("c", "seen")
    assert [m.type for m in came[:4]] == ["human", "ai", "tool", "human"]


class Malformed(Strict):
    """Answers the first question with a call that cannot be read, beside one that can if it is told to."""

    beside: bool = False

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        if self.seen:
            return super()._generate(messages)
        self.seen.append(list(messages))
        bad = {"name": "look", "args": '{"at": "the d', "id": "bad", "error": None, "type": "invalid_tool_call"}
        good = {"name": "look", "args": {"at": "the door"}, "id": "good", "type": "tool_call"}
        return _said(AIMessage("I look.", invalid_tool_calls=[bad], tool_calls=[good] if self.beside else []))


@pytest.mark.parametrize("beside", [True, False], ids=["beside a good one", "alone"])
def test_a_model_learns_that_its_call_could_not_be_read(store: onefold.Store, beside: bool) -> None:
    model = Malformed(seen=[], beside=beside)
    agent = agent_of(model, OnefoldMiddleware(store))

    ask(agent, "Is the door open?")
    ask(agent, "Well?")

    for sent in model.seen[1:]:
        answers = [text for id, text in results_of(sent) if id == "bad"]
        assert len(answers) == 1
        assert "malformed" in answers[0]
        assert "another run" not in answers[0]
    assert not any(id == "bad" for id, _ in results_of(said(store)))


# ---------------------------------------------------------------------- what is known to be written


@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["alone", "with a checkpointer"])
def test_only_what_is_new_is_looked_for_in_the_journal(
    path: Path, checkpointer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str | None] = []

    def counting(session: onefold.Session, messages: Sequence[Any], *args: Any, **options: Any) -> Any:
        looked.extend(key for key, _ in messages)
        return append_new(session, messages, *args, **options)

    monkeypatch.setattr("onefold.integrations.langchain.append_new", counting)
    with onefold.open(path) as store:
        agent = agent_of(Strict(seen=[]), OnefoldMiddleware(store), checkpointer=checkpointer)
        for n in range(5):
            looked.clear()
            came = ask(agent, f"Question {n}")

        assert looked == [f"message-{m.id}" for m in came[-4:]]
        assert said(store) == came


def in_place(message: BaseMessage) -> None:
    message.content = "Is the gate open?"


def deep_inside(message: BaseMessage) -> None:
    message.additional_kwargs["at"]["door"] = 2.0


@pytest.mark.parametrize("edit", [in_place, deep_inside])
def test_a_message_that_another_middleware_changes_in_place_is_noticed_in_the_same_run(
    store: onefold.Store, edit: Callable[[BaseMessage], None]
) -> None:
    class Edits(AgentMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            if len(state["messages"]) == 3:
                edit(state["messages"][0])

    agent = create_agent(Strict(seen=[]), tools=[look], middleware=[OnefoldMiddleware(store, session="s"), Edits()])
    agent.invoke({"messages": [HumanMessage("Is it open?", id="q", additional_kwargs={"at": {"door": 2}})]})

    kept = [m for m in said(store, "s") if m.id == "q"]
    expected = HumanMessage("Is it open?", id="q", additional_kwargs={"at": {"door": 2}})
    before = repr(expected)
    edit(expected)
    assert [repr(m) for m in kept] == [before, repr(expected)]


def test_a_message_that_was_taken_out_and_comes_again_is_written_once(store: onefold.Store) -> None:
    session, written = store.session("s"), SeenCache()
    first, second = HumanMessage("One.", id="1"), HumanMessage("Two.", id="2")

    for state in ([first], [first, second], [second], [first, second]):
        record(session, state, written)

    assert said(store, "s") == [first, second]


def test_what_another_process_wrote_does_not_hide_a_change_of_ones_own(store: onefold.Store) -> None:
    here, there = SeenCache(), SeenCache()
    one, other, third = (HumanMessage(words, id="1") for words in ("One.", "Another.", "A third."))

    for message, written in ((one, here), (one, there), (other, there), (one, here), (other, here), (third, here)):
        record(store.session("s"), [message], written)

    assert said(store, "s") == [one, other, third]


def test_what_could_not_be_written_is_not_taken_for_written(
    store: onefold.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, written, message = store.session("s"), SeenCache(), HumanMessage("One.", id="1")

    def away(*_: Any, **__: Any) -> Any:
        raise onefold.StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.journal.backend), "write", away)
        with pytest.raises(onefold.StoreUnavailable):
            record(session, [message], written)
    record(session, [message], written)

    assert said(store, "s") == [message]


def test_what_is_known_of_sessions_that_nobody_uses_any_more_is_forgotten() -> None:
    written = SeenCache(most=2)

    for session in ("a", "b", "a", "c"):
        written.keep(session, {"1": 5})

    assert [session for session in "abc" if written.of(session)] == ["a", "c"]


# ---------------------------------------------------------------------- it compacts by itself


@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["alone", "with a checkpointer"])
def test_it_compacts_by_itself_with_the_model_it_was_given_and_nothing_is_lost(
    store: onefold.Store, checkpointer: Any
) -> None:
    model = Strict(seen=[], summaries=[])
    agent = agent_of(model, OnefoldMiddleware(store, model), checkpointer=checkpointer)

    for n in range(12):
        came = ask(agent, f"Question {n}: {LONG}")

    state = store.session("talk").state
    everything = said(store)
    assert state.committed > 1
    assert len(model.summaries) >= state.committed
    assert [m.text.split(":")[0] for m in everything if m.type == "human"] == [f"Question {n}" for n in range(12)]
    assert len({m.id for m in everything}) == len(everything) == 48
    assert len(came) < 48
    assert "They looked" in came[0].text
    assert came[-1].text.startswith("It is so: Question 11")
    for seen in model.seen:
        assert sum(len(m.text) for m in seen) // 4 < SMALL.of().hard_tokens + 200


def test_the_state_of_a_checkpointer_is_made_small_too(store: onefold.Store) -> None:
    model, saver = Strict(seen=[], summaries=[]), InMemorySaver()
    agent = agent_of(model, OnefoldMiddleware(store, model), checkpointer=saver)

    for n in range(12):
        ask(agent, f"Question {n}: {LONG}")

    kept = agent.get_state({"configurable": {"thread_id": "talk"}}).values["messages"]
    assert len(kept) < 24
    assert len(said(store)) == 48


def test_a_window_that_the_model_is_known_to_have_is_kept(path: Path) -> None:
    model = Strict(seen=[], summaries=[], profile={"max_input_tokens": 2_000})
    with onefold.open(path) as store:
        agent = agent_of(model, OnefoldMiddleware(store, model))

        for n in range(12):
            ask(agent, f"Question {n}: {LONG}")

        assert store.session("talk").state.committed > 0


def test_a_context_that_the_provider_refuses_is_made_smaller_and_asked_again(path: Path) -> None:
    model = Strict(seen=[], most=3_000)
    with onefold.open(path, policy=onefold.Policy(tail_tokens=200, backoff=(0.0,))) as store:
        agent = agent_of(
            model, OnefoldMiddleware(store, summarizer=lambda m: f"They looked up to {m.records[-1].number}.")
        )

        for n in range(6):
            came = ask(agent, f"Question {n}: {LONG}")

        assert store.session("talk").state.committed > 0
        assert came[-1].text.startswith("It is so: Question 5")
        assert len(said(store)) == 24


# ---------------------------------------------------------------------- with an event loop


def test_everything_is_the_same_when_awaited_and_the_loop_goes_on_meanwhile(store: onefold.Store) -> None:
    async def main() -> None:
        model, ticks = Strict(seen=[]), asyncio.Event()

        async def summarize(material: onefold.SummaryInput) -> str:
            ticks.clear()
            await asyncio.wait_for(ticks.wait(), 10)  # set by another task of this loop
            return f"They looked, up to {material.records[-1].number}, and found nothing."

        async def tick() -> None:
            while True:
                ticks.set()
                await asyncio.sleep(0)

        agent = agent_of(model, OnefoldMiddleware(store, summarizer=summarize))
        ticking = asyncio.create_task(tick())
        for n in range(8):
            given = {"messages": [HumanMessage(f"Question {n}: {LONG}")]}
            came = await agent.ainvoke(given, {"configurable": {"thread_id": "talk"}})
        ticking.cancel()

        assert came["messages"][-1].text.startswith("It is so: Question 7")
        assert len(said(store)) == 32
        assert store.session("talk").state.committed > 0

    asyncio.run(main())


def test_a_summary_is_not_streamed_as_if_the_agent_had_said_it(store: onefold.Store) -> None:
    async def main() -> list[str]:
        model = Strict(seen=[], summaries=[])
        agent = agent_of(model, OnefoldMiddleware(store, model))
        streamed: list[str] = []
        for n in range(8):
            given = {"messages": [HumanMessage(f"Question {n}: {LONG}")]}
            config = {"configurable": {"thread_id": "talk"}}
            async for chunk, _ in agent.astream(given, config, stream_mode="messages"):
                streamed += [chunk.text] if isinstance(chunk, AIMessage) and chunk.id else []
        assert model.summaries
        return streamed

    streamed = asyncio.run(main())

    assert any(text.startswith("It is so") for text in streamed)
    assert not any(text.startswith("They looked") for text in streamed)


# ---------------------------------------------------------------------- when something fails


def test_a_summarizer_that_fails_costs_nothing_until_the_context_is_full_and_then_says_why(
    store: onefold.Store,
) -> None:
    model = Strict(seen=[], summaries=[], fails=True)
    agent = agent_of(model, OnefoldMiddleware(store, model))

    with pytest.raises(onefold.ContextTooLarge, match="the model is away"):
        [ask(agent, f"Question {n}: {LONG}") for n in range(12)]

    assert len(model.seen) > 4
    written = said(store)
    assert len({m.id for m in written}) == len(written)
    model.fails = False
    store.session("talk").compact(onefold.extractive_summary)
    assert ask(agent, "And now?")[-1].text.startswith("It is so: And now?")


def test_a_store_that_is_away_is_said_before_the_model_is_asked(tmp_path: Path) -> None:
    model = Strict(seen=[])
    agent = agent_of(model, OnefoldMiddleware(tmp_path / "nowhere" / "agent.db"))

    with pytest.raises(onefold.StoreError):
        ask(agent, "Is the door open?")

    assert model.seen == []


def test_an_answer_of_the_store_that_is_lost_writes_nothing_twice(
    store: onefold.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot tell whether it wrote, each time: it is asked again."""
    backend = store.journal.backend
    write, lost = type(backend).write, [False]

    def forgetful(self: Any, session: str, work: Any, **options: Any) -> Any:
        done = write(self, session, work, **options)
        lost[0] = type(done) is tuple and not lost[0]
        if lost[0]:
            raise onefold.OutcomeUnknown("the disk answers nothing; repeat with the same key")
        return done

    monkeypatch.setattr(type(backend), "write", forgetful)

    ask(agent_of(Strict(seen=[]), OnefoldMiddleware(store)), "Is the door open?")

    assert [m.type for m in said(store)] == ["human", "ai", "tool", "ai"]


def test_a_call_whose_run_died_gets_a_result_that_says_so(store: onefold.Store) -> None:
    class Dies(AgentMiddleware[Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            raise SystemError("killed")

    model = Strict(seen=[])
    dying = create_agent(model, tools=[look], middleware=[OnefoldMiddleware(store, session="talk"), Dies()])
    with pytest.raises(SystemError):
        dying.invoke({"messages": [HumanMessage("Is the door open?", id="q")]})

    came = ask(agent_of(model, OnefoldMiddleware(store)), "Well?")

    (call,) = [m for m in came if isinstance(m, ToolMessage) and m.tool_call_id == "call-1"]
    assert "no result" in call.text
    assert not any("no result" in m.text for m in said(store))


# ---------------------------------------------------------------------- two processes


def talk(path: str, name: str, rounds: int, in_turns: bool) -> None:
    """What each of two processes does: a run of its own agent, at the same time as the other's, again and again."""
    model = Strict(seen=[], summaries=[], who=name)
    with onefold.open(path, policy=SMALL) as store:
        session = store.session("talk")
        agent = agent_of(model, OnefoldMiddleware(store, model))
        for n in range(rounds):
            at_barrier()
            with session.turn(owner=name) if in_turns else contextlib.nullcontext():
                ask(agent, f"{name} {n}: {LONG}", id=f"{name}-question-{n}")
        say("done")


@pytest.mark.parametrize("in_turns", [False, True], ids=["as they come", "in turns"])
def test_two_processes_in_one_session_lose_nothing_and_make_no_fork(path: Path, in_turns: bool) -> None:
    rounds, names = 4, ("anna", "berta")
    with onefold.open(path, policy=SMALL) as store:
        session = store.session("talk")
        children = [
            Child("talk", module=__name__, path=str(path), name=n, rounds=rounds, in_turns=in_turns) for n in names
        ]
        with children[0], children[1]:
            for _ in range(rounds):
                for child in children:
                    child.hear("ready")
                for child in children:
                    child.say("go")
            for child in children:
                child.hear("done")

        written = said(store)
        assert len({m.id for m in written}) == len(written)
        for name in names:
            questions = [m.id for m in written if m.type == "human" and str(m.id).startswith(name)]
            assert questions == [f"{name}-question-{n}" for n in range(rounds)]
        calls = [str(c["id"]) for m in written if isinstance(m, AIMessage) for c in m.tool_calls]
        results = [m.tool_call_id for m in written if isinstance(m, ToolMessage)]
        assert sorted(calls) == sorted(results)
        assert len({*calls}) == len(calls) >= 2 * rounds
        if in_turns:
            assert [m.type for m in written] == ["human", "ai", "tool", "ai"] * 2 * rounds
        segments = session.segments()
        assert [s.base for s in segments[1:]] == [s.number for s in segments[:-1]]
        assert session.state.committed > 0
        assert store.verify().healthy


# ---------------------------------------------------------------------- what is shown to people


def test_the_page_holds(tmp_path: Path) -> None:
    run_page(ROOT / "docs/how-to/langchain.md", tmp_path)


def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/langchain_agent.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "in the journal" in done.stdout
