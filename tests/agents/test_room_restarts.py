"""Agents that die, hang, want somebody to log in; turns that others hold; and one host a session."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onefold.acp import prompt_queue, supervisor
from onefold.acp.agent_config import Agent
from onefold.acp.host import AlreadyHosted, RoomHost
from onefold.jsonrpc import notification
from onefold.model import AGENT_ENDED, AGENT_STARTED, TURN_SETTLED, TURN_STARTED
from tests.support.acp_clients import AGENT, PATIENCE, Person, Place, Ran, Refusal, blocks, is_method, is_update, place
from tests.support.hard_rooms import attached
from tests.support.rooms import kinds, messages, records, run
from tests.support.rooms_again import SOON, became, event


async def killed(there: Place, session: str) -> None:
    pids = [r.body["pid"] for r in records(there, session) if r.kind == AGENT_STARTED]
    os.kill(pids[-1], signal.SIGKILL)


# ---------------------------------------------------------------------- logging in


@pytest.mark.parametrize("way", ["the only room", "by name"])
def test_an_agent_that_wants_a_login_gets_it_from_a_client_and_goes_on(tmp_path: Path, way: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--locked") as there:
            if way == "the only room":
                there.host.default = (await there.host.open("s", there.host.agents.named(None), cwd="/")).session
            ann = there.client(agent="scripted" if way == "by name" else None)
            await ann.ask("initialize", protocolVersion=1)
            with pytest.raises(Refusal, match="log in first") as refused:
                await ann.ask("session/new", cwd="/", mcpServers=[])
            assert refused.value.code == -32000
            (session,) = there.host.rooms
            assert there.host.rooms[session].phase == "locked"
            await ann.ask("authenticate", methodId="key")
            opened = await ann.ask("session/new", cwd="/", mcpServers=[])

            assert opened["sessionId"] == session
            assert list(there.host.rooms) == [session]
            assert (await ann.prompt(session, "[[say:in]]"))["stopReason"] == "end_turn"

    run(work)


def test_a_load_after_a_login_is_a_replay_and_nothing_new(tmp_path: Path) -> None:
    async def work() -> None:
        state = ("--state", str(tmp_path / "state"), "--without", "resume")
        async with place(tmp_path, *state) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            await ann.prompt(session, "[[say:once]]")
            before = messages(there, session)
            became(there, session, *state, "--locked")
            await killed(there, session)
            await ben.until(event("onefold/agent_ended"))
            waiting = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:twice]]"))
            room = there.host.rooms[session]
            with pytest.raises(Exception, match="log in first"):
                await room.ready()
            cid = there.client(session=session)
            await cid.ask("authenticate", methodId="key")
            await ben.until(event("onefold/agent_started", how="load"))
            await waiting

            assert len(messages(there, session)) == len(before) + 2
            assert ben.said == "oncetwice"

    run(work)


# ---------------------------------------------------------------------- dying


def test_it_is_started_again_ever_later_and_then_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            loop = asyncio.get_running_loop()
            later = loop.call_later

            def at_once(delay: float, call: Callable[..., Any], *given: Any, **more: Any) -> asyncio.TimerHandle:
                if getattr(call, "__name__", "") == "rise":
                    waits.append(delay)
                    delay = 0.0
                return later(delay, call, *given, **more)

            monkeypatch.setattr(loop, "call_later", at_once)
            became(there, session, "--dies", "initialize")
            await killed(there, session)
            await ben.until(is_method("onefold/agent_ended"), count=supervisor.GIVE_UP)
            assert waits == list(supervisor.BACKOFF[1 : supervisor.GIVE_UP])
            assert waits == sorted(waits)
            room = there.host.rooms[session]
            assert room.phase == "down"
            with pytest.raises(Exception, match=r"is not there: .*code 3"):
                await room.ready()
            await ben.until(is_method("onefold/agent_ended"), count=supervisor.GIVE_UP + 1)

            became(there, session)
            assert (await ann.prompt(session, "[[say:back]]"))["stopReason"] == "end_turn"
            assert ann.said == "back"

    run(work)


def test_one_that_has_lived_long_is_started_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", (0.0, 500.0))
    now = [1_000_000.0]

    async def work() -> None:
        async with place(tmp_path, clock=lambda: now[0]) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            now[0] += supervisor.STEADY + 1
            await killed(there, session)
            await ben.until(is_method("onefold/agent_started"))
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


def test_one_that_hangs_in_its_beginning_does_not_count_as_steady(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "ANSWER", 0.3)
    monkeypatch.setattr(supervisor, "BACKOFF", SOON)
    monkeypatch.setattr(supervisor, "GIVE_UP", 1)
    monkeypatch.setattr(supervisor, "STEADY", 0.1)

    async def work() -> None:
        async with place(tmp_path) as there:
            room = await there.host.open(
                "s", Agent("hung", (sys.executable, str(AGENT), "--hangs", "initialize")), cwd="/"
            )
            with pytest.raises(Exception, match="did not answer within"):
                await room.ready()
            assert room.phase == "down"
            assert AGENT_STARTED not in kinds(there, "s")

    run(work)


@pytest.mark.parametrize("when", ["session/load", "session/resume"])
def test_one_that_dies_while_it_takes_its_session_up_is_started_again(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", SOON)

    async def work() -> None:
        state = ("--state", str(tmp_path / "state"), "--without", "resume" if when == "session/load" else "load")
        async with place(tmp_path, *state) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            await ann.prompt(session, "[[say:a]]")
            became(there, session, *state, "--dies", when)
            await killed(there, session)
            await ben.until(is_method("onefold/agent_ended"), count=3)
            became(there, session, *state)
            await ben.until(event("onefold/agent_started", how=when.removeprefix("session/")))
            await ann.prompt(session, "[[say:b]]")

            assert ann.said == "ab"
            found = kinds(there, session)
            assert (found.count(AGENT_STARTED), found.count(AGENT_ENDED)) == (2, 1)

    run(work)


def test_one_that_cannot_read_its_session_gets_a_new_one_and_the_conversation(tmp_path: Path) -> None:
    async def work() -> None:
        options = ("--without", "taking", "--state", str(tmp_path / "state"), "--log", str(tmp_path / "log"))
        async with place(tmp_path, *options) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            await ann.prompt(session, "[[say:the plan is seven]]")
            await killed(there, session)
            await ben.until(event("onefold/agent_started", how="handover"))
            await ann.prompt(session, "[[say:on]]")

            (handed,) = (line for line in (tmp_path / "log").read_text().splitlines() if "[[say:on]]" in line)
            assert "the plan is seven" in handed
            assert ann.said.endswith("on")

    run(work)


def test_a_prompt_while_it_is_down_waits_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", (0.0, 500.0))

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            with pytest.raises(Refusal, match="the agent ended") as refused:
                await ann.prompt(session, "[[die]]")
            assert refused.value.code != -32000  # which would have its person log in
            assert (await ann.prompt(session, "[[say:alive]]"))["stopReason"] == "end_turn"

    run(work)


# ---------------------------------------------------------------------- turns of others


def test_a_prompt_waits_for_the_turn_of_another_writer_and_runs_right_after_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            held = await asyncio.to_thread(there.store.session(session).turn, owner="import")
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:mine]]"))
            steered = await ann.send("onefold/steer", sessionId=session, prompt=blocks("[[say:first ]]"))
            room = there.host.rooms[session]
            while len(room.prompts.queued) < 2:
                await there.host.in_thread(lambda: there.store.journal.wait(session, room.recorder.record, 0.05))
            await asyncio.to_thread(held.end)
            began = asyncio.get_running_loop().time()
            await asyncio.gather(ended, steered)
            took = asyncio.get_running_loop().time() - began

            assert took < 4  # told by the journal, and not only by the clock
            assert ann.said == "first mine"
            owners = [r.body["owner"] for r in records(there, session) if r.kind == TURN_STARTED]
            assert owners == ["import", "ann", "ann"]

    run(work)


def test_a_turn_that_is_stopped_from_outside_is_cancelled_at_the_agent(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:a]] [[hang]]"))
            await ann.until(is_update("agent_message_chunk"))
            began = asyncio.get_running_loop().time()
            await asyncio.to_thread(there.store.session(session).stop_turn, "enough")

            assert (await ended)["stopReason"] == "cancelled"
            assert asyncio.get_running_loop().time() - began < 4
            (settled,) = (r for r in records(there, session) if r.kind == TURN_SETTLED)
            assert (settled.body["outcome"], settled.body["cause"]) == ("cancelled", "enough")
            assert [m["content"]["text"] for m in messages(there, session) if "content" in m] == ["a"]
            assert (await ann.prompt(session, "[[say:b]]"))["stopReason"] == "end_turn"

    run(work)


@pytest.mark.parametrize("options", [(), ("--stubborn",)], ids=["ends", "has to be killed"])
@pytest.mark.parametrize("outside", [False, True], ids=["by a client", "from outside"])
def test_an_agent_that_does_not_stop_is_ended_with_what_it_started_and_what_waits_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], outside: bool
) -> None:
    monkeypatch.setattr(prompt_queue, "OBEYS", 0.1)

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state"), *options) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            deaf = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[grandchild]] [[deaf]]"))
            await ann.until(is_update("agent_message_chunk"))
            grandchild = os.pidfd_open(int(ann.said.removeprefix("grandchild ")))
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:, and on]]"))
            if outside:
                await asyncio.to_thread(there.store.session(session).stop_turn, "enough")
            else:
                await ann.put(notification("session/cancel", {"sessionId": session}))

            with pytest.raises(Refusal, match="it went on for 0 seconds after it was asked to stop"):
                await deaf
            assert (await waits)["stopReason"] == "end_turn"
            assert ann.said.endswith(", and on")
            first, second = (r.body["outcome"] for r in records(there, session) if r.kind == TURN_SETTLED)
            assert (first, second) == ("cancelled" if outside else "interrupted", "settled")
            assert kinds(there, session).count(AGENT_STARTED) == 2
            assert select.select([grandchild], [], [], PATIENCE)[0], "it lives on"
            os.close(grandchild)
            assert there.store.verify().findings == ()

    run(work)


def test_an_agent_that_stops_in_time_is_not_ended_for_it_in_a_later_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_queue, "OBEYS", 0.5)
    looked = asyncio.Event()
    look = prompt_queue.PromptQueue._obeyed

    async def seen(self: prompt_queue.PromptQueue, turn: prompt_queue.RunningTurn) -> None:
        await look(self, turn)
        looked.set()

    monkeypatch.setattr(prompt_queue.PromptQueue, "_obeyed", seen)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            first = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:a]] [[hang]]"))
            await ann.until(is_update("agent_message_chunk"))
            await ann.put(notification("session/cancel", {"sessionId": session}))
            assert (await first)["stopReason"] == "cancelled"
            go = tmp_path / "go"
            second = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[wait:{go}]] [[say:b]]"))
            await looked.wait()
            go.touch()

            assert (await second)["stopReason"] == "end_turn"
            assert kinds(there, session).count(AGENT_STARTED) == 1

    run(work)


# ---------------------------------------------------------------------- one host a session


def test_a_second_host_of_a_session_is_refused_and_can_take_over_when_the_first_is_killed(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path, "--state", str(tmp_path / "state")) as served:
            async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
                agent = there.host.agents.named(None)
                with pytest.raises(AlreadyHosted, match=f"is run by another process \\({served.process.pid}\\)"):  # type: ignore[union-attr]
                    await there.host.open("s", agent, cwd="/")
                with pytest.raises(Refusal, match="is run by another process"):
                    await attached(there, "s")
                await asyncio.to_thread(served.kill)
                room = await there.host.open("s", agent, cwd="/")
                await room.ready()
                ben, _ = await attached(there, "s")
                assert (await ben.prompt("s", "[[say:mine now]]"))["stopReason"] == "end_turn"

    run(work)


def test_a_room_that_is_shut_can_be_opened_by_another_host(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            await there.joined()
            session = next(iter(there.host.rooms))
            other = RoomHost(there.store, tmp_path / "agent.db.frames", there.host.agents)
            with pytest.raises(AlreadyHosted):
                await other.enter(session)
            await there.host.shut(session, "moved")
            room = await other.enter(session)
            await room.ready()
            await other.close()
            with pytest.raises(Exception, match="about to end"):
                await other.open("another", there.host.agents.named(None), cwd="/")

    run(work)


# ---------------------------------------------------------------------- restarts


def test_turns_and_the_queue_go_on_with_the_same_ids_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        state = ("--state", str(tmp_path / "state"))
        async with place(tmp_path, *state) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:0]] [[hang]]"))
            await ben.until(is_update("agent_message_chunk"))
            for n in (1, 2, 3):
                await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[say:{n}]]"))
            await ben.until(lambda f: f.method == "onefold/queue_changed" and len(f.params["queue"]) == 3)
            shown = there.host.rooms[session].prompts.queued
            told = [f.params["turn"] for f in await ben.until(is_method("onefold/turn_started"))]
        async with place(tmp_path, *state) as there:
            late = there.client(Person("late"))
            await late.ask("session/attach", sessionId=session, after=1)
            await late.until(is_method("onefold/turn_settled"), count=4)

            turns = [r for r in records(there, session) if r.kind == TURN_STARTED]
            assert turns[0].turn == told[0]
            assert [f.params["turn"] for f in late.heard if f.method == "onefold/turn_started"] == [
                r.turn for r in turns
            ]
            assert late.said == "0123"
            taken = [r.body["input"] for r in records(there, session) if r.kind == "input.taken"]
            assert taken[1:] == [q["input"] for q in shown]

    run(work)
