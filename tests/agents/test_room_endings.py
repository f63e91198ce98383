"""Rooms that are restarted, closed, and that end by themselves: whoever asks, and however many at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onefold.acp import host, supervisor
from onefold.acp.agent_config import Agent, AgentUnusable, agents
from onefold.acp.host import RoomHost
from onefold.acp.members import Member
from onefold.acp.prompt_queue import SubmittedPrompt
from onefold.acp.room import Room
from onefold.acp.room_errors import RequestRejected
from onefold.acp.send_queue import SendQueue
from onefold.jsonrpc import Frame, notification
from onefold.model import AGENT_ENDED, AGENT_STARTED, COMMITTED, INPUT_QUEUED, TURN_SETTLED, SessionState
from tests.support.acp_clients import Client, Person, Place, Refusal, blocks, is_method, is_update, place
from tests.support.hard_rooms import attached, numbers, told
from tests.support.rooms import kinds, records, run
from tests.support.rooms_again import SOON, became, event

FORBIDDEN = -32001


def alive(folder: Path) -> list[int]:
    """Agents whose command names this folder, and that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if any(word.endswith(b"scripted_agent.py") for word in words[:2]) and str(folder).encode() in b" ".join(
                    words
                ):
                    found.append(int(entry.name))
    return found


def zombies() -> list[int]:
    """Children of this process that nobody has waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state == "Z" and int(parent) == os.getpid():
                    found.append(int(entry.name))
    return found


@asynccontextmanager
async def at_most_one(folder: Path) -> AsyncIterator[None]:
    """While this lasts there are never two agents at the same time."""
    most: list[list[int]] = [[]]

    async def look() -> None:
        while True:
            most.append(await asyncio.to_thread(alive, folder))
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert max(len(pids) for pids in most) <= 1, most


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what nobody tells."""
    async with asyncio.timeout(20):
        while not holds():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)


async def together(*works: Callable[[], Awaitable[Any]]) -> list[Any]:
    """All of them from one barrier."""
    go = asyncio.Event()

    async def one(work: Callable[[], Awaitable[Any]]) -> Any:
        await go.wait()
        return await work()

    tasks = [asyncio.create_task(one(work)) for work in works]
    await asyncio.sleep(0)
    go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def outcomes(there: Place, session: str) -> list[str]:
    return [r.body["outcome"] for r in records(there, session) if r.kind == TURN_SETTLED]


def causes(there: Place, session: str) -> list[str]:
    return [r.body["cause"] for r in records(there, session) if r.kind == AGENT_ENDED]


async def begun(there: Place, tmp: Path, words: str = "[[hang]]") -> tuple[Client, str, asyncio.Future[Any]]:
    """A room whose agent is at work."""
    ann = await there.joined()
    session = next(iter(there.host.rooms))
    ended = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[say:a]] {words}"))
    await ann.until(is_update("agent_message_chunk"))
    return ann, session, ended


# ---------------------------------------------------------------------- restart


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "[[hang]]"), ((), "[[ask:may I?]]"), (("--stubborn",), "[[deaf]]")],
    ids=["works", "asks", "has to be killed"],
)
def test_a_restart_is_a_death_of_the_agent_and_what_waits_goes_on(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state"), *options) as there, at_most_one(tmp_path):
            ann, session, running = await begun(there, tmp_path, words)
            (before,) = alive(tmp_path)
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:b]]"))
            ben, _ = await attached(there, session)

            answer = await ben.ask("onefold/restart", sessionId=session)

            assert answer["agent"] == "scripted"
            with pytest.raises(Refusal, match="restarted it"):
                await running
            assert (await waits)["stopReason"] == "end_turn"
            assert ann.said == ben.said.rjust(2, "a") == "ab"
            assert outcomes(there, session) == ["interrupted", "settled"]
            (cause,) = causes(there, session)
            assert cause.startswith("ben restarted it")
            (now,) = alive(tmp_path)
            assert now != before
            assert zombies() == []
            assert len(there.host.rooms[session].questions) == 0
            how = [r.body["how"] for r in records(there, session) if r.kind == AGENT_STARTED]
            assert how == ["new", "resume"]
            assert there.store.verify().findings == ()

    run(work)


def test_a_waiting_prompt_is_not_given_to_an_agent_that_is_about_to_end(tmp_path: Path) -> None:
    """It answers its turn in its last moment, and the next one would be lost with it."""

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state"), "--stubborn") as there:
            go = tmp_path / "go"
            ann, session, running = await begun(there, tmp_path, f"[[wait:{go}]]")
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:b]]"))
            room = there.host.rooms[session]
            end = room.process._newest.end  # type: ignore[union-attr]

            async def late(grace: float = 5.0, *, why: str = "") -> Any:
                """Its stdin is closed; before it ends, it answers."""
                room.process._newest._close(why)  # type: ignore[union-attr]
                go.touch()
                await running
                return await end(grace, why=why)

            room.process._newest.end = late  # type: ignore[union-attr,method-assign]
            await room.restart("ann")

            assert (await running)["stopReason"] == "end_turn"
            assert (await waits)["stopReason"] == "end_turn"
            assert outcomes(there, session) == ["settled", "settled"]

    run(work)


@pytest.mark.parametrize("phase", ["starting", "taking up", "locked", "down", "given up", "cannot start"])
def test_a_restart_works_in_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", SOON if phase == "given up" else (3600.0,))
    state = ("--state", str(tmp_path / "state"))
    first = {
        "starting": ("--hangs", "initialize"), "taking up": ("--hangs", "session/new"), "locked": ("--locked",),
        "down": ("--dies", "initialize"), "given up": ("--dies", "initialize"), "cannot start": (),
    }[phase]  # fmt: skip
    log = tmp_path / "log"

    async def work() -> None:
        async with place(tmp_path, *state, *first, "--log", str(log)) as there:
            agent = there.host.agents.named(None)
            if phase == "cannot start":
                agent = Agent("scripted", ("no-such-program-anywhere",))
            room = await there.host.open("s", agent, cwd="/")
            is_so = {
                "starting": log.exists,
                "taking up": lambda: log.exists() and "session/new" in log.read_text(),
                "locked": lambda: room.phase == "locked",
                "down": lambda: room.process._again is not None,
                "given up": room._decided.is_set,
                "cannot start": room._decided.is_set,
            }[phase]
            await until(is_so)
            became(there, "s", *state)

            async with at_most_one(tmp_path):
                await together(*[lambda: there.host.restart("s", "ann")] * 3)
                await room.ready()

            assert len(alive(tmp_path)) == 1
            assert zombies() == []
            ben, _ = await attached(there, "s")
            assert (await ben.prompt("s", "[[say:well]]"))["stopReason"] == "end_turn"

    run(work)


def test_an_agent_that_dies_while_it_waits_for_a_login_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", SOON)

    async def work() -> None:
        async with place(tmp_path, "--locked", "--log", str(tmp_path / "log")) as there:
            room = await there.host.open("s", there.host.agents.named(None), cwd="/")
            with pytest.raises(RequestRejected, match="log in"):
                await room.ready()
            became(there, "s")
            (pid,) = alive(tmp_path)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: room.phase == "ready")

    run(work)


@pytest.mark.parametrize("who", ["a restart", "a prompt"])
def test_nothing_is_started_before_what_the_last_one_left_open_is_settled(tmp_path: Path, who: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann, session, running = await begun(there, tmp_path)
            room = there.host.rooms[session]
            settle, reached, go = room.room_journal.settle, threading.Event(), threading.Event()

            def slowly(*given: Any) -> None:
                reached.set()
                go.wait(20)
                settle(*given)

            room.room_journal.settle = slowly  # type: ignore[method-assign,assignment]
            os.kill(alive(tmp_path)[0], signal.SIGKILL)
            assert await asyncio.to_thread(reached.wait, 20)
            if who == "a restart":
                asked = asyncio.ensure_future(room.restart("ann"))
            else:
                asked = asyncio.ensure_future(ann.prompt(session, "[[say:b]]"))
            await asyncio.to_thread(threading.Event().wait, 0.3)  # long enough to start one, if somebody does
            there_were = alive(tmp_path)
            go.set()

            assert there_were == []
            await asked
            await room.ready()
            assert kinds(there, session).count(AGENT_STARTED) == 2
            with pytest.raises(Refusal):
                await running

    run(work)


def test_who_restart_it_at_once_restart_it_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there, at_most_one(tmp_path):
            _, session, running = await begun(there, tmp_path)
            room = there.host.rooms[session]

            done = await together(*[lambda: there.host.restart(session, "ann")] * 8)

            assert done == [room] * 8
            await room.ready()
            assert kinds(there, session).count(AGENT_STARTED) == 2
            assert outcomes(there, session) == ["interrupted"]
            with pytest.raises(Refusal):
                await running

    run(work)


def test_who_asked_for_a_restart_and_goes_takes_it_from_nobody_else(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--stubborn", "--state", str(tmp_path / "state")) as there:
            _, session, running = await begun(there, tmp_path, "[[deaf]]")
            first = asyncio.create_task(there.host.restart(session, "ann"))
            second = asyncio.create_task(there.host.restart(session, "ben"))
            await asyncio.sleep(0)
            first.cancel()

            assert await second is there.host.rooms[session]
            with pytest.raises(Refusal):
                await running
            assert len(causes(there, session)) == 1

    run(work)


# ---------------------------------------------------------------------- close


@pytest.mark.parametrize("options", [(), ("--stubborn",)], ids=["ends", "has to be killed"])
def test_a_closed_room_ends_its_agent_and_the_next_prompt_takes_all_of_it_up_again(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state"), *options) as there, at_most_one(tmp_path):
            ann, session, running = await begun(there, tmp_path, "[[deaf]]")
            ben, _ = await attached(there, session)
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:b]]"))
            await ben.until(is_method("onefold/queue_changed"))

            assert await ben.ask("onefold/close", sessionId=session) == {"closed": True}

            assert alive(tmp_path) == []
            assert zombies() == []
            assert session not in there.host.rooms
            with pytest.raises(Refusal, match="ben closed it"):
                await running
            with pytest.raises(Refusal, match="the prompt waits"):
                await waits
            assert outcomes(there, session) == ["interrupted"]
            assert there.store.session(session).state.pending == 1
            assert await ben.ask("onefold/close", sessionId=session) == {"closed": False}

            assert (await ann.prompt(session, "[[say:c]]"))["stopReason"] == "end_turn"

            assert outcomes(there, session) == ["interrupted", "settled", "settled"]
            await ben.until(event("onefold/turn_settled", outcome="settled"), count=2)
            assert ann.said == ben.said == "abc"
            heard = numbers(ben)
            assert heard == [n for n in told(there, session) if n >= heard[0]], "no gap, no repeat"
            how = [r.body["how"] for r in records(there, session) if r.kind == AGENT_STARTED]
            assert how == ["new", "resume"]
            assert there.store.verify().findings == ()

    run(work)


def test_another_process_may_have_the_session_once_its_room_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann, session, _ = await begun(there, tmp_path)
            other = RoomHost(there.store, tmp_path / "agent.db.frames", there.host.agents)
            with pytest.raises(host.AlreadyHosted):
                await other.shut(session, "not mine")
            assert await there.host.shut(session, "moved")
            await (await other.enter(session)).ready()
            with pytest.raises(Refusal, match="is run by another process"):
                await ann.prompt(session, "[[say:b]]")
            assert await other.shut(session, "and back")
            assert (await ann.prompt(session, "[[say:c]]"))["stopReason"] == "end_turn"
            await other.close()

    run(work)


def test_an_agent_that_no_config_names_is_taken_up_again_by_the_process_that_was_given_it(tmp_path: Path) -> None:
    """As with `onefold run -- COMMAND`: its command stands nowhere but there."""

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            given = there.host.agents.named(None)
            named_by_nobody = Agent("adhoc", given.command)
            there.host.default = "s"
            await there.host.open("s", named_by_nobody, cwd="/")
            ann = await there.joined()
            await there.host.shut("s", "enough")
            ben = await there.joined()  # by the only room there is

            assert (await ben.prompt("s", "[[say:well]]"))["stopReason"] == "end_turn"
            await ann.until(is_update("agent_message_chunk"))

    run(work)


@pytest.mark.parametrize("leaves", ["while its room ends", "while the next one lets it in"])
def test_who_leaves_between_two_rooms_is_in_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            room = there.host.rooms[session]
            ends, join = room.process.end, Room.join

            async def end() -> None:
                assert session not in there.host.rooms
                await ann.ask("session/close", sessionId=session)
                await ends()

            async def let_in(self: Room, member: Member, *given: Any, **named: Any) -> None:
                if member.name == "ann":
                    await ann.ask("session/close", sessionId=session)
                await join(self, member, *given, **named)

            if leaves == "while its room ends":
                monkeypatch.setattr(room.process, "end", end)
            else:
                monkeypatch.setattr(Room, "join", let_in)
            await there.host.shut(session, "enough")
            heard = len(ann.heard)
            ben = there.client(Person("ben"))
            await ben.enter(session)
            assert (await ben.prompt(session, "[[say:for ben]]"))["stopReason"] == "end_turn"

            assert [member.name for member in there.host.rooms[session].members] == ["ben"]
            assert not [f for f in ann.heard[heard:] if not f.is_response]

    run(work)


def test_who_only_looks_on_takes_no_room_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await there.host.shut(session, "enough")
            ben = there.client(Person("ben"))
            with pytest.raises(Refusal, match="no agent runs"):
                await ben.ask("session/attach", sessionId=session, watch=True)
            await ann.put(notification("session/cancel", {"sessionId": session}))
            await ann.put(Frame({"jsonrpc": "2.0", "id": "a question of before", "result": {}}))

            assert there.host.rooms == {}
            assert ann.connection.send_queue.closed is None

    run(work)


def test_a_prompt_that_waits_in_a_closed_room_is_taken_back_without_an_agent(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            running = asyncio.create_task(ann.prompt(session, "[[say:on it]] [[hang]]"))
            await ann.until(is_update("agent_message_chunk"))
            waiting = asyncio.create_task(ann.prompt(session, "[[say:never]]"))
            prompts = there.host.rooms[session].prompts
            await until(lambda: bool(prompts.queued))
            number = prompts.queued[0]["input"]
            await there.host.shut(session, "enough")
            await asyncio.gather(running, waiting, return_exceptions=True)

            asked = {"sessionId": session, "input": number}
            assert await ann.ask("onefold/unqueue", **asked) == {"unqueued": True}
            assert await ann.ask("onefold/unqueue", **asked) == {"unqueued": False}

            assert there.host.rooms == {}
            assert alive(tmp_path) == []

    run(work)


@pytest.mark.parametrize("method", ["onefold/restart", "onefold/close"])
def test_only_who_may_run_agents_restarts_and_closes(tmp_path: Path, method: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            await there.joined()
            session = next(iter(there.host.rooms))
            before = alive(tmp_path), kinds(there, session)
            reader = there.client(Person("reader", ("read", "write", "compact")))
            with pytest.raises(Refusal) as refused:
                await reader.ask(method, sessionId=session)
            assert refused.value.code == FORBIDDEN
            assert (alive(tmp_path), kinds(there, session)) == before
            await there.host.shut(session, "enough")
            with pytest.raises(Refusal) as refused:
                await reader.ask(method, sessionId=session)
            assert refused.value.code == FORBIDDEN
            assert there.host.rooms == {}

    run(work)


# ---------------------------------------------------------------------- by itself


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def idling(tmp: Path, *options: str) -> AsyncIterator[tuple[Place, Clock]]:
    clock = Clock()
    async with place(tmp, "--state", str(tmp / "state"), *options, clock=clock) as there:
        there.host.idle = 600.0
        yield there, clock


async def looked(room: Room) -> None:
    """The room has looked whether it may end, with nothing else in hand."""
    seen, rest = asyncio.Event(), room._rest

    def once(state: SessionState) -> None:
        quiet = room._inbox.empty() and not room._bringing and not room._soon
        rest(state)
        if quiet:
            seen.set()

    room._rest = once  # type: ignore[method-assign]
    try:
        while not seen.is_set():
            room.poke()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(seen.wait(), 0.5)
    finally:
        del room._rest


async def gone(there: Place, room: Room) -> None:
    assert room.phase == "closed"
    await asyncio.gather(*there.host._shutting.values())


def test_a_room_with_nobody_and_nothing_in_it_ends_and_the_next_prompt_takes_it_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with idling(tmp_path) as (there, clock):
            ann = await there.joined()
            (session,) = there.host.rooms
            room = there.host.rooms[session]
            await ann.prompt(session, "[[say:a]]")
            clock.now += 100_000
            await looked(room)
            assert room.phase == "ready", "somebody is here"
            await ann.close()
            clock.now += 599
            await looked(room)
            assert room.phase == "ready", "not yet"
            clock.now += 1
            await looked(room)

            await gone(there, room)
            assert alive(tmp_path) == []
            assert causes(there, session) == ["nobody was here and nothing was to do for 10 minutes"]
            guest = Member("http", SendQueue(), 0.0)
            asked = await there.host.prompt(session, guest, {"prompt": blocks("[[say:b]]")})
            assert (await asked.ended)["stopReason"] == "end_turn"
            assert outcomes(there, session) == ["settled", "settled"]

    run(work)


@pytest.mark.parametrize("what", ["a turn", "a question", "what waits", "a compaction", "a start", "never"])
def test_a_room_in_which_something_goes_on_does_not_end_by_itself(tmp_path: Path, what: str) -> None:
    async def work() -> None:
        async with idling(tmp_path) as (there, clock):
            room = await there.host.open("s", there.host.agents.named(None), cwd="/")
            await room.ready()
            guest = Member("http", SendQueue(), 0.0)
            go = tmp_path / "go"
            if what == "a turn":
                await there.host.prompt("s", guest, {"prompt": blocks("[[hang]]")})
            elif what == "a question":
                await there.host.prompt("s", guest, {"prompt": blocks("[[ask:may I?]]")})
                await until(lambda: len(room.questions) == 1)
            elif what == "what waits":
                turn = await asyncio.to_thread(there.store.session("s").turn, owner="import")
                asked = await there.host.prompt("s", guest, {"prompt": blocks("[[say:a]]")})
                await asked.accepted
            elif what == "a compaction":

                async def not_yet() -> bool:
                    return True

                room.compactions.begin_wanted = not_yet  # type: ignore[method-assign]
                await asyncio.to_thread(there.store.journal.request, "s", trigger="manual")
            elif what == "a start":
                became(there, "s", "--hangs", "initialize", "--log", str(go))
                await room.restart("ann")
            else:
                there.host.idle = 0.0

            for _ in range(3):
                clock.now += 100_000
                await looked(room)

            assert room.phase != "closed"
            assert there.host.rooms == {"s": room}
            if what == "what waits":
                await asyncio.to_thread(turn.end)
                assert (await asked.ended)["stopReason"] == "end_turn"

    run(work)


def test_a_room_that_ended_by_itself_is_opened_for_what_others_ask_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "TICK", 0.05)

    async def work() -> None:
        async with idling(tmp_path) as (there, clock):
            room = await there.host.open("s", there.host.agents.named(None), cwd="/")
            guest = Member("http", SendQueue(), 0.0)
            asked = await there.host.prompt("s", guest, {"prompt": blocks("[[say:a]]")})
            await asked.ended
            clock.now += 1000
            await until(lambda: room.phase == "closed")
            await asyncio.to_thread(there.store.journal.request, "s", trigger="manual")
            await until(lambda: COMMITTED in kinds(there, "s"))
            assert kinds(there, "s").count(AGENT_STARTED) == 2

    run(work)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 1000])
def test_a_prompt_in_the_moment_in_which_a_room_ends_by_itself_is_answered(tmp_path: Path, turns: int) -> None:
    async def work() -> None:
        async with idling(tmp_path) as (there, clock), at_most_one(tmp_path):
            room = await there.host.open("s", there.host.agents.named(None), cwd="/")
            await room.ready()
            await looked(room)
            clock.now += 1000
            ends, rest = asyncio.Event(), there.host.rest

            def resting(room: Room) -> None:
                rest(room)
                ends.set()

            there.host.rest = resting  # type: ignore[method-assign]
            room.poke()
            await ends.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            asked = await there.host.prompt("s", Member("http", SendQueue(), 0.0), {"prompt": blocks("[[say:a]]")})

            assert await asked.accepted
            assert await asked.ended == {"stopReason": "end_turn"}
            assert room.phase == "closed"
            assert outcomes(there, "s") == ["settled"]
            assert zombies() == []

    run(work)


@pytest.mark.parametrize("first", ["the close", "the prompt"])
def test_a_close_and_a_prompt_at_once_leave_no_prompt_behind(tmp_path: Path, first: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there, at_most_one(tmp_path):
            ann, session, running = await begun(there, tmp_path)

            async def prompt() -> Any:
                return await ann.prompt(session, "[[say:b]]")

            async def close() -> Any:
                there.host._begin_to_shut(there.host.rooms[session], "somebody closed it")

            if first == "the close":
                _, answer = await together(close, prompt)
                assert answer == {"stopReason": "end_turn"}
            else:
                answer, _ = await together(prompt, close)
                assert answer == {"stopReason": "end_turn"} or "the prompt waits" in str(answer)
                assert (await ann.prompt(session, "[[say:c]]"))["stopReason"] == "end_turn"
            assert there.store.session(session).state.pending == 0
            with pytest.raises(Refusal, match="closed it"):
                await running

    run(work)


def test_a_prompt_that_came_a_step_before_a_room_would_end_keeps_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with idling(tmp_path) as (there, clock):
            room = await there.host.open("s", there.host.agents.named(None), cwd="/")
            await room.ready()
            await looked(room)
            clock.now += 1000
            loop, rest = asyncio.get_running_loop(), room._rest
            asked = SubmittedPrompt(loop.create_future(), loop.create_future())

            def just_after(state: SessionState) -> None:
                del room._rest
                said = {"prompt": blocks("[[say:a]]")}
                room._inbox.put_nowait(partial(room.prompts.take, Member("http", SendQueue(), 0.0), said, False, asked))
                rest(state)

            room._rest = just_after  # type: ignore[method-assign]
            room.poke()

            assert (await asked.ended)["stopReason"] == "end_turn"
            assert there.host.rooms == {"s": room}

    run(work)


@pytest.mark.parametrize(
    ("said", "minutes"), [({}, 30.0), ({"rooms": {"idle": 5}}, 5.0), ({"rooms": {"idle": 0}}, 0.0)]
)
def test_the_config_says_after_how_many_minutes(said: dict[str, Any], minutes: float) -> None:
    assert agents(said).idle == minutes


@pytest.mark.parametrize("wrong", [-1, "5", True, float("nan"), float("inf")])
def test_what_is_no_number_of_minutes_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(AgentUnusable, match=r"rooms\.idle"):
        agents({"rooms": {"idle": wrong}})
    with pytest.raises(AgentUnusable, match="rooms is a table"):
        agents({"rooms": {"idel": 5}})


# ---------------------------------------------------------------------- all at once


@pytest.mark.parametrize("seed", range(6))
def test_restarts_closes_prompts_and_deaths_at_once_leave_one_agent_and_no_prompt_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF", SOON)
    dice = random.Random(seed)

    async def work() -> None:
        async with idling(tmp_path) as (there, clock), at_most_one(tmp_path):
            await there.host.open("s", there.host.agents.named(None), cwd="/")
            members = [await there.joined("s", Person(f"client {n}")) for n in range(2)]
            accepted: list[int] = []

            async def prompt() -> None:
                guest = Member("http", SendQueue(), 0.0)
                asked = await there.host.prompt("s", guest, {"prompt": blocks("[[say:x]]")})
                number = await asked.accepted
                assert number is not None
                accepted.append(number)
                with contextlib.suppress(RequestRejected):
                    await asked.ended

            async def by_a_client() -> None:
                with contextlib.suppress(Refusal):
                    await dice.choice(members).prompt("s", "[[say:y]] [[tool:read]]")

            async def restart() -> None:
                with contextlib.suppress(RequestRejected):
                    await there.host.restart("s", "ann")

            async def close() -> None:
                await there.host.shut("s", "closed it")

            async def kill() -> None:
                for pid in alive(tmp_path):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

            async def idle() -> None:
                clock.now += 1000
                for room in there.host.rooms.values():
                    room.poke()

            works = [prompt, prompt, by_a_client, restart, restart, close, kill, idle]

            def later(work: Callable[[], Awaitable[None]], steps: int) -> Callable[[], Awaitable[None]]:
                async def one() -> None:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    await work()

                return one

            async with asyncio.timeout(50):
                for _ in range(4):
                    chosen = [later(dice.choice(works), dice.choice((0, 1, 3, 10, 100))) for _ in range(6)]
                    done = await together(*chosen)
                    assert [e for e in done if e is not None] == []
                last = await there.host.prompt("s", Member("http", SendQueue(), 0.0), {"prompt": blocks("[[say:z]]")})
                assert (await last.ended)["stopReason"] == "end_turn"

            assert len(alive(tmp_path)) == 1
            assert zombies() == []
            state = there.store.session("s").state
            assert (state.pending, state.turn) == (0, 0)
            assert set(accepted) <= {r.number for r in records(there, "s") if r.kind == INPUT_QUEUED}
            assert there.store.verify().findings == ()

    run(work)


def test_a_host_that_ends_while_rooms_open_and_close_leaves_no_agent(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            agent = there.host.agents.named(None)
            await there.host.open("a", agent, cwd="/")
            await there.host.open("b", agent, cwd="/")
            ann = await there.joined("a")

            await together(
                lambda: there.host.shut("a", "enough"),
                lambda: there.host.open("c", agent, cwd="/"),
                lambda: there.host.restart("b", "ann"),
                there.host.close,
            )

            assert alive(tmp_path) == []
            assert zombies() == []
            assert ann.connection.send_queue.closed is not None

    run(work)
