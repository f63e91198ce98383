"""Rooms under strain: frames of any size, floods, clients that do not read, many clients, and lines that are cut."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import tracemalloc
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

import onefold
from onefold.acp.agent_config import Agent
from onefold.acp.client_connection import ClientConnection
from onefold.acp.members import Member, Members
from onefold.acp.pipes import CHUNK
from onefold.acp.room import AT_ONCE
from onefold.acp.send_queue import SendQueue
from onefold.errors import StoreError
from onefold.jsonrpc import Frame, notification, parse, text
from onefold.model import TURN_SETTLED
from tests.support.acp_clients import (
    Client,
    Person,
    Ran,
    Refusal,
    Remote,
    blocks,
    is_method,
    is_update,
    place,
    texts,
)
from tests.support.hard_rooms import attached, kept, numbers, told
from tests.support.rooms import messages, records, run
from tests.support.servers import TOKEN, Served

MEGA = 1_000_000


# ---------------------------------------------------------------------- what an agent says


def test_noise_and_arrays_are_kept_and_harm_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(
                session, '[[noise:Loading…]] [[noise:{"a":]] [[noise:7]] [[array]] [[noise:[] ]] [[say:!]]'
            )

            assert ann.said == "onetwo!"
            lines = [line for _, line in kept(there, session, "err")]
            assert lines == ["Loading…", '{"a":', "7", "[] "]

    run(work)


def test_frames_of_many_megabytes_go_both_ways_and_let_nobody_go(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            ended = await ann.prompt(session, "[[say:first]] [[big:7000000]] [[say:last]] " + "y" * 20 * MEGA)

            assert ended["stopReason"] == "end_turn"
            await ben.until(is_method("onefold/turn_settled"))
            for client in (ann, ben):
                said = list(texts(client.heard, "agent_message_chunk"))
                assert [len(s) for s in said] == [5, 7 * MEGA, 4]
                assert client.connection.send_queue.closed is None
            whole = [m["content"]["text"] for m in messages(there, session) if "content" in m]
            assert sum(len(w) for w in whole) == 7 * MEGA + 9
            assert len(messages(there, session)[0]["prompt"][0]["text"]) > 20 * MEGA
            # One who was away while it was said gets past it, too.
            cid, _ = await attached(there, session, after=numbers(ben)[0])
            await cid.until(is_method("onefold/turn_settled"))
            assert numbers(cid) == numbers(ben)[1:]

    run(work)


def test_a_prompt_over_the_limit_is_refused_and_the_room_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.acp.room_journal.MESSAGE_LIMIT", 1000)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            with pytest.raises(Refusal, match="over the limit of 1,000"):
                await ann.prompt(session, "x" * 1000)
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


def test_a_flood_of_stderr_loses_nothing_and_delays_nobody_long(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            started = asyncio.get_running_loop().time()
            flood = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[stderr:50000]] [[say:done]]"))
            await ann.until(is_update("agent_message_chunk"))
            first = asyncio.get_running_loop().time() - started
            await flood
            await ann.prompt(session, "[[say:again]]")
            lines = [line for _, line in kept(there, session, "err")]
            while len(lines) < 50_000:
                await there.host.in_thread(lambda: threading.Event().wait(0.01))
                lines = [line for _, line in kept(there, session, "err")]

            assert lines == [f"line {n}" for n in range(50_000)]
            assert first < 15

    run(work)


def test_a_call_that_is_never_over_is_in_the_journal_when_its_turn_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:a]] [[call:build]] [[say:b]]")
            await ann.prompt(session, "[[say:c]]")

            said = [m for m in messages(there, session) if "sessionUpdate" in m]
            assert [m["sessionUpdate"] for m in said] == [
                "agent_message_chunk", "tool_call", "agent_message_chunk", "tool_call_update", "agent_message_chunk",
            ]  # fmt: skip
            assert said[3]["content"][0]["content"]["text"] == "build goes on"
            assert there.store.verify().findings == ()

    run(work)


def test_an_agent_that_stops_reading_stops_nobody_else(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            other = there.client(agent="scripted")
            elsewhere = await other.enter()
            go = tmp_path / "go"
            deaf = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[slow:{go}]] [[say:x]]"))
            await ann.until(is_update("agent_message_chunk"))
            waiting = [
                await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:y]]" + "z" * MEGA))
                for _ in range(3)
            ]
            await other.prompt(elsewhere, "[[say:meanwhile]]")
            assert other.said == "meanwhile"
            assert elsewhere != session
            go.touch()
            await asyncio.gather(deaf, *waiting)
            assert ann.said == "xyyy"

    run(work)


def test_a_question_that_the_agent_takes_back_is_withdrawn(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[withdraw:q7]] [[hang]]"))
            (asked,) = await ann.until(is_method("session/request_permission"))
            (gone, *_) = await ann.until(is_method("$/cancel_request"))
            await ben.until(is_method("onefold/question_settled"))

            assert gone.params["requestId"] == asked.id
            assert there.host.rooms[session].standing()["questions"] == []
            await ann.notify("session/cancel", sessionId=session)
            await ended

    run(work)


WEIRD = [
    {"sessionUpdate": {"a": 1}},
    {"sessionUpdate": ["a"]},
    {"sessionUpdate": None},
    {"sessionUpdate": "agent_message_chunk"},
    {"sessionUpdate": "agent_message_chunk", "content": "words"},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 7}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": ["x"]}, "messageId": {"a": 1}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "lone \ud800 half"}},
    {"sessionUpdate": "tool_call", "toolCallId": {"a": 1}},
    {"sessionUpdate": "tool_call", "toolCallId": "t1", "status": {"a": 1}, "content": 7, "kind": ["x"]},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": ["x"]},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t2", "status": "completed", "content": {"a": 1}},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t3", "status": "completed", "content": "x", "rawOutput": 1},
    {"sessionUpdate": "compaction_update", "compactionId": {"a": 1}, "status": "completed", "summary": 7},
    {"sessionUpdate": "compaction_update", "compactionId": "c", "status": {"a": 1}},
    {"sessionUpdate": "usage_update", "used": "x", "size": -1},
    {"sessionUpdate": "available_commands_update", "availableCommands": {"a": 1}},
    {"sessionUpdate": "session_info_update", "_meta": "x"},
    {"sessionUpdate": "plan", "entries": 7},
    7,
]  # fmt: skip


@pytest.mark.parametrize("family", ["acp", "hermes", "qwen", "vibe", "opencode"])
def test_updates_of_any_shape_cost_the_frames_around_them_nothing(
    tmp_path: Path, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with place(tmp_path, "--family", family) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            own = there.host.rooms[session].process.session
            lines = tmp_path / "lines"
            lines.write_text(
                "".join(
                    f"{json.dumps(_update(own, weird))}\n{json.dumps(_update(own, _spoken(f'<{n}>')))}\n"
                    for n, weird in enumerate(WEIRD)
                )
            )  # fmt: skip
            await ann.prompt(session, f"[[raw:{lines}]] [[say:the end]]")
            await ben.until(is_method("onefold/turn_settled"))
            cid, _ = await attached(there, session, after=0)
            await cid.until(is_method("onefold/turn_settled"))

            said = "".join(
                b.get("text") or ""
                for m in messages(there, session)
                if m.get("sessionUpdate") == "agent_message_chunk"
                for b in (m["content"] if isinstance(m["content"], list) else [m["content"]])
                if isinstance(b.get("text"), str)
            )
            for n in range(len(WEIRD)):
                assert f"<{n}>" in said
                for client in (ann, ben, cid):
                    assert any(f"<{n}>" in text(f) for f in client.heard)
            assert numbers(ben) == [n for n in told(there, session) if n >= numbers(ben)[0]]
            assert there.store.verify().findings == ()

    with caplog.at_level(logging.ERROR, "onefold.acp"):
        run(work)
    assert [r.getMessage() for r in caplog.records] == []


def _update(session: str | None, update: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}}


def _spoken(words: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": words}}


# ---------------------------------------------------------------------- those who listen


def test_a_client_that_never_reads_is_let_go_and_costs_the_others_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            box = SendQueue(most_bytes=100_000)
            deaf = Client(ClientConnection(there.host, Person("deaf"), send_queue=box))
            await deaf.connection.take(text(notification("initialize", {})))
            await deaf.send("session/attach", sessionId=session)
            room = there.host.rooms[session]
            ben, _ = await attached(there, session)
            await ben.until(lambda f: f.method == "onefold/presence" and "deaf" in str(f.params))
            await ann.prompt(session, "[[chunks:2000]]")

            assert box.closed is not None
            assert "deaf" not in str(room.members.names())
            assert ann.said == "".join(f"word{n} " for n in range(2000))
            await ben.until(is_method("onefold/turn_settled"))
            assert ben.said == ann.said
            (left, *_) = await ben.until(lambda f: f.method == "onefold/presence" and "deaf" not in str(f.params))
            assert left.params["clients"]
            await deaf.connection.close()

    run(work)


def test_a_send_queue_is_bounded_and_lets_one_frame_over_the_bound_through() -> None:
    async def work() -> None:
        box = SendQueue(most_bytes=1000, most_frames=10)
        assert box.give("x" * 100_000)
        assert box.give("y")
        assert box.give("z" * 100_000)
        assert await box.next() == "x" * 100_000
        for _ in range(2):
            assert box.give("w" * 249)
        assert box.give("w" * 200)
        assert not box.give("w" * 600)
        assert box.closed is not None
        assert await box.next() is None
        await box.room()

    run(work)


def test_one_who_catches_up_waits_for_its_own_reading_and_is_not_let_go(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[chunks:3000]]")
            slow = Client(ClientConnection(there.host, Person("slow"), send_queue=SendQueue(most_frames=50))).start()
            await slow.ask("session/attach", sessionId=session, after=1)
            await slow.until(is_method("onefold/turn_settled"))

            assert numbers(slow) == [n for n in told(there, session) if n > 1]
            await slow.close()

    run(work)


def test_a_long_conversation_is_loaded_whole_by_a_client_with_little_room(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[tool:read]]" * 100)
            slow = Client(ClientConnection(there.host, Person("slow"), send_queue=SendQueue(most_frames=20))).start()
            await slow.ask("session/load", sessionId=session, cwd="/", mcpServers=[])

            assert len([f for f in slow.heard if is_update("tool_call")(f)]) == 100
            await slow.close()

    run(work)


def test_fifty_clients_of_a_chatty_room_get_everything_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            crowd = [(await attached(there, session))[0] for _ in range(50)]
            began = asyncio.get_running_loop().time()
            await ann.prompt(session, "[[chunks:2000]]")
            for one in crowd:
                await one.until(is_method("onefold/turn_settled"))
            took = asyncio.get_running_loop().time() - began
            print(f"50 clients, 2,000 chunks: {took:.2f} s")

            mine = told(there, session)
            for one in crowd:
                assert one.said == ann.said
                heard = numbers(one)
                assert heard == [n for n in mine if n >= heard[0]]

    run(work)


# ---------------------------------------------------------------------- attaching


def history(shot: Any) -> list[str]:
    return [
        h["update"]["content"]["text"]
        for h in shot["history"]
        if h["update"]["sessionUpdate"] in ("agent_message_chunk", "user_message_chunk")
    ]


def test_history_is_given_as_it_is_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:one]]")
            await ann.prompt(session, "[[compact]]")
            await ann.prompt(session, "[[say:two]]")
            hanging = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[ask:may I?]]"))
            await ann.until(is_method("session/request_permission"))

            _, everything = await attached(there, session, history="all")
            assert history(everything) == ["[[say:one]]", "one", "[[compact]]", "[[say:two]]", "two", "[[ask:may I?]]"]
            _, newest = await attached(there, session, history="all", order="newest")
            assert history(newest) == history(everything)[::-1]
            _, segment = await attached(there, session, history="segment")
            assert history(segment) == ["[[compact]]", "[[say:two]]", "two", "[[ask:may I?]]"]
            for wanted in ("none", "pending"):
                client, shot = await attached(there, session, history=wanted)
                assert shot["history"] == []
                assert len(shot["questions"]) == 1
                await client.until(is_method("session/request_permission"))
                await client.until(is_update("available_commands_update"))
            with pytest.raises(Refusal, match="history is one of"):
                await attached(there, session, history="some")
            await ann.notify("session/cancel", sessionId=session)
            await hanging

    run(work)


def test_one_answer_holds_a_page_of_history_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            for n in range(6):
                await ann.prompt(session, f"[[say:{n}]]")
            monkeypatch.setattr("onefold.acp.replay.MOST", 4)
            _, shot = await attached(there, session, history="all")
            assert history(shot) == ["[[say:4]]", "4", "[[say:5]]", "5"]
            monkeypatch.setattr("onefold.acp.replay.MOST_BYTES", 150)
            _, shot = await attached(there, session, history="all")
            assert history(shot) == ["[[say:5]]", "5"]

    run(work)


def test_a_number_that_is_forgotten_or_was_never_given_is_refused_and_said_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[chunks:300]]")
            with pytest.raises(Refusal, match="no frame 100000 to go on from"):
                await attached(there, session, after=100_000)
            for wrong in (-1, True, "7", 1.5):
                with pytest.raises(Refusal, match="number of a frame"):
                    await attached(there, session, after=wrong)
            await there.host.in_thread(lambda: there.host.frames.retain(there.host.clock() + 60))
            with pytest.raises(Refusal, match="no frame 3 to go on from"):
                await attached(there, session, after=3)
            last = there.host.frames.last(session)
            ben, _ = await attached(there, session, after=last)
            await ann.prompt(session, "[[say:on]]")
            await ben.until(is_method("onefold/turn_settled"))
            assert numbers(ben)[0] == last + 1

    run(work)


def test_history_and_frames_meet_without_a_gap_or_an_overlap_at_any_moment(tmp_path: Path) -> None:
    """Whoever comes in the middle has, with its history and its frames, everything once."""

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            script = "[[chunks:5]] [[call:x]] [[chunks:4]] [[tool:y]] [[think:hm]] [[chunks:3]]" * 150
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(script))
            came: list[tuple[Client, Any]] = []
            while not running.done():
                came.append(await attached(there, session, history="all"))
                loader = there.client(Person("cid"))
                await loader.ask("session/load", sessionId=session, cwd="/", mcpServers=[])
                came.append((loader, None))
            await running
            whole = "".join(texts(ann.heard, "agent_message_chunk"))
            assert len(came) > 2

            for client, shot in came:
                if shot is not None:
                    before = "".join(
                        h["update"]["content"]["text"]
                        for h in shot["history"]
                        if h["update"]["sessionUpdate"] == "agent_message_chunk"
                    )
                    if before != whole:  # else it may have come after the end, which is not told again
                        await client.until(is_method("onefold/turn_settled"))
                    assert before + client.said == whole
                    calls = [h["update"] for h in shot["history"]] + [f.update for f in client.heard]
                    begun = [c["toolCallId"] for c in calls if c.get("sessionUpdate") == "tool_call"]
                    assert len(begun) == len(set(begun)) == 300
                else:
                    await client.until(lambda f: f.update.get("sessionUpdate") == "usage_update")
                    assert client.said == whole

    run(work)


@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_is_cut_at_random_frames_loses_nothing_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            heard: list[int] = []
            goal: asyncio.Future[int] = asyncio.get_running_loop().create_future()

            def there_yet(number: int) -> bool:
                return goal.done() and number >= goal.result()

            async def listen() -> None:
                while not there_yet(heard[-1] if heard else 0):
                    client = there.client(Person("cut"))
                    await client.ask("session/attach", sessionId=session, after=heard[-1] if heard else 0)
                    some = chance.choice((1, 2, 7, 40, 150))
                    while len(got := numbers(client)) < some and not there_yet(got[-1] if got else 0):
                        client._news.clear()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(client._news.wait(), 0.1)
                    heard.extend(numbers(client)[: chance.choice((some, 10_000))])
                    await client.close()

            listening = asyncio.create_task(listen())
            await ann.prompt(session, "[[chunks:400]] [[tool:x]]")
            with pytest.raises(Refusal, match="the agent ended"):
                await ann.prompt(session, "[[chunks:200]] [[die]]")
            await ann.prompt(session, "[[chunks:200]]")
            goal.set_result(told(there, session)[-1])
            await listening
            assert heard == told(there, session)
            assert len(heard) > 800

    run(work)


def test_one_connection_can_be_in_two_rooms_and_attach_again_to_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            both = there.client(agent="scripted")
            one = await both.enter()
            two = str((await both.ask("session/new", cwd="/", mcpServers=[]))["sessionId"])
            assert one != two
            for session in (one, two, one):
                await both.ask("session/attach", sessionId=session, history="none")
            ended = await asyncio.gather(both.prompt(one, "[[say:1]]"), both.prompt(two, "[[say:2]]"))
            assert [e["stopReason"] for e in ended] == ["end_turn"] * 2
            await both.until(is_method("onefold/turn_settled"), count=2)

            said = [(f.params["sessionId"], f.update["content"]["text"]) for f in both.heard if _is_said(f)]
            assert sorted(said) == sorted([(one, "1"), (two, "2")])
            assert len(there.host.rooms[one].members) == 1

    run(work)


def _is_said(frame: Frame) -> bool:
    return frame.update.get("sessionUpdate") == "agent_message_chunk"


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "[1]",
        '{"jsonrpc":"2.0"}',
        '{"id":1,"method":"session/attach","params":[1]}',
        '{"id":1,"method":"session/attach","params":{"sessionId":7}}',
        '{"id":1,"method":"session/prompt","params":{"prompt":"x"}}',
        '{"id":1,"method":"session/new","params":{"cwd":null,"mcpServers":{}}}',
        '{"id":1,"method":"onefold/unqueue","params":{"input":[]}}',
        '{"id":1,"method":"initialize","params":{"clientInfo":7,"clientCapabilities":[]}}',
        '{"id":1,"method":"session/load","params":{"sessionId":"\\ud800"}}',
        '{"id":1,"method":"nobody/knows","params":null}',
    ],
)
def test_whatever_a_client_sends_is_answered(tmp_path: Path, line: str) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            client = there.client(agent="scripted")
            await client.connection.take(line)
            (answer,) = await client.until(lambda f: "error" in f.body or "result" in f.body)
            assert answer.body.get("id") in (1, None)

    run(work)


# ---------------------------------------------------------------------- those who leave


def test_prompts_of_a_client_that_left_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            go = tmp_path / "go"
            ben, _ = await attached(there, session)
            for words in (f"[[say:a]] [[wait:{go}]] [[say:b]]", "[[say:c]]", "[[say:d]]"):
                await ann.send("session/prompt", sessionId=session, prompt=blocks(words))
            await ben.until(lambda f: f.method == "onefold/queue_changed" and len(f.params["queue"]) == 2)
            await ben.until(is_update("agent_message_chunk"))
            await ann.close()
            go.touch()
            await ben.until(is_method("onefold/turn_settled"), count=3)

            assert ben.said == "abcd"
            settled = [r for r in records(there, session) if r.kind == TURN_SETTLED]
            assert [r.body["outcome"] for r in settled] == ["settled"] * 3

    run(work)


def test_a_room_that_is_closed_refuses_and_hangs_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            room = there.host.rooms[session]
            await there.host.shut(session, "enough")
            member = Member("x", SendQueue(), 0.0)
            with pytest.raises(Exception, match="is closed"):
                await room.prompt(member, {"prompt": blocks("x")})
            with pytest.raises(Exception, match="is closed"):
                await room.join(member, lambda: None)
            assert ann.connection.send_queue.closed is None, "it is in the next room of the session"

    run(work)


# ---------------------------------------------------------------------- a store that fails for a while


@pytest.mark.parametrize("what", ["the frames", "the journal"])
@pytest.mark.parametrize("end", ["[[say:b]]", "[[die]]"])
def test_a_full_disk_loses_nothing_and_the_turn_ends_when_there_is_room_again(
    tmp_path: Path, what: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.acp.prompt_queue.AGAIN", 0.05)
    monkeypatch.setattr("onefold.acp.room.AGAIN", 0.05)

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            room, go = there.host.rooms[session], tmp_path / "go"
            ended = await ann.send(
                "session/prompt", sessionId=session, prompt=blocks(f"[[say:a]] [[wait:{go}]] [[chunks:9]] {end}")
            )
            await ben.until(is_update("agent_message_chunk"))
            full, failed = StoreError("there is no room on the disk"), asyncio.Event()
            loop = asyncio.get_running_loop()

            def refused(*given: Any, **more: Any) -> Any:
                loop.call_soon_threadsafe(failed.set)
                raise full

            def refused_later(*given: Any, **more: Any) -> Any:
                failed.set()
                wrong: Future[int] = Future()
                wrong.set_exception(full)
                return wrong

            with monkeypatch.context() as broken:
                if what == "the frames":
                    broken.setattr(there.host.frames, "append", refused_later)
                else:
                    broken.setattr(room.room_journal, "say", refused)
                    broken.setattr(room.room_journal, "settle", refused)
                go.touch()
                for _ in range(3):
                    failed.clear()
                    await failed.wait()
                assert not ended.done()
            await ben.until(is_method("onefold/turn_settled"))
            with contextlib.suppress(Refusal):
                await ended

            words = "a" + "".join(f"word{n} " for n in range(9)) + ("b" if "say" in end else "")
            assert ben.said == ann.said == words
            said = "".join(m["content"]["text"] for m in messages(there, session) if "content" in m)
            assert said == words
            assert numbers(ben) == [n for n in told(there, session) if n >= numbers(ben)[0]][: len(numbers(ben))]
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


@pytest.mark.parametrize("what", ["the frames", "the journal"])
def test_while_nothing_can_be_kept_the_agent_waits_and_clients_are_told_why(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty megabytes that an agent says while the disk is full are not held in memory, and none of it is lost."""
    count, size, bound = 4_000, 10_000, 2 * MEGA
    monkeypatch.setattr("onefold.acp.prompt_queue.AGAIN", 0.05)
    monkeypatch.setattr("onefold.acp.backpressure.AGAIN", 0.05)
    monkeypatch.setattr("onefold.acp.recorder.HEAVY", bound)

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            room, go = there.host.rooms[session], tmp_path / "go"
            words = f"[[say:a]][[wait:{go}]]" + f"[[big:{size}]]" * count + "[[say:b]]"
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks(words))
            await ann.until(is_update("agent_message_chunk"))
            full, failed = StoreError("there is no room on the disk"), asyncio.Event()
            loop = asyncio.get_running_loop()

            def refused(*given: Any, **more: Any) -> Any:
                loop.call_soon_threadsafe(failed.set)
                raise full

            def refused_later(*given: Any, **more: Any) -> Any:
                failed.set()
                wrong: Future[int] = Future()
                wrong.set_exception(full)
                return wrong

            with monkeypatch.context() as broken:
                if what == "the frames":
                    broken.setattr(there.host.frames, "append", refused_later)
                else:
                    broken.setattr(room.room_journal, "say", refused)
                go.touch()
                child, waited = room.process._newest, 0
                assert child is not None
                while waited < 5:
                    failed.clear()
                    await failed.wait()
                    waited = waited + 1 if room._inbox.empty() and child._stdout.held >= CHUNK // 2 else 0
                    assert room.recorder._waiting + room.recorder._unsaid < bound + AT_ONCE * (size + 200) + CHUNK
                    assert sum(len(row.text) for row in room.recorder._rows) == room.recorder._waiting
                with pytest.raises(Refusal, match="takes nothing now: there is no room on the disk"):
                    await ann.prompt(session, "[[say:x]]")
                assert "there is no room on the disk" in str(room.standing()["agent"])
                assert not ended.done()
            await ended

            assert room.standing()["agent"] == {"name": "scripted", "phase": "ready", "trouble": None}
            assert len(ann.said) == count * size + 2
            said = [m["content"]["text"] for m in messages(there, session) if "content" in m]
            assert sum(map(len, said)) == count * size + 2
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


@pytest.mark.parametrize("kind", ["notification", "request", "prompt"])
def test_what_is_refused_is_let_go_of_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A refusal and the calls that it came through refer to each other: forty megabytes of refused frames would stay
    until the garbage collector looks."""
    monkeypatch.setattr("onefold.acp.agent_subprocess.MOST_WAITING", 1)
    monkeypatch.setattr("onefold.acp.prompt_queue.QUEUE", 0)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            child = there.host.rooms[session].process._newest
            assert child is not None
            os.kill(child.pid, signal.SIGSTOP)  # it does not read
            await ann.notify("_x/first", sessionId=session, d="x" * (1 << 20))
            tasks = ann.connection._tasks

            async def refused(n: int) -> None:
                params = {"sessionId": session, "d": "x" * MEGA, "prompt": []}
                if kind == "notification":
                    await ann.notify("_x/y", **params)
                    await ann.until(lambda frame: "error" in frame.body, count=n)
                else:
                    with pytest.raises(Refusal, match=r"does not read|0 prompts wait"):
                        await ann.ask("_x/y" if kind == "request" else "session/prompt", **params)
                await asyncio.gather(*tasks)

            await refused(1)
            gc.collect()
            gc.disable()
            tracemalloc.start()
            try:
                for n in range(2, 42):
                    await refused(n)
                assert tracemalloc.get_traced_memory()[0] < 5 * MEGA
            finally:
                tracemalloc.stop()
                gc.enable()
                os.kill(child.pid, signal.SIGCONT)

    run(work)


def test_a_frame_that_was_read_to_one_who_catches_up_is_not_told_again() -> None:
    async def work() -> None:
        members = Members("s", lambda member: None)
        member = Member("x", SendQueue(), 0.0, attached=True, last=5)
        members.add(member)
        for number in (4, 5, 6):
            members.tell(notification("session/update", {"n": number}), number)
        (only,) = parse(await member.send_queue.next() or "")
        assert only.params["n"] == 6
        member.send_queue.close("over")
        assert await member.send_queue.next() is None

    run(work)


# ---------------------------------------------------------------------- many rooms

TINY = """
import json, sys
def send(**frame):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    frame = json.loads(line)
    method = frame.get("method")
    if method == "initialize":
        send(id=frame["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=frame["id"], result={"sessionId": "always-the-same"})
    elif method == "session/prompt":
        for n in range(int(frame["params"]["prompt"][-1]["text"])):
            said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"word{n} "}}
            send(method="session/update", params={"sessionId": "always-the-same", "update": said})
        send(id=frame["id"], result={"stopReason": "end_turn"})
"""


def tiny(folder: Path) -> tuple[str, ...]:
    script = folder / "tiny.py"
    script.write_text(TINY)
    return sys.executable, "-S", "-E", str(script)


def test_agents_that_call_all_their_sessions_the_same_have_rooms_of_their_own(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            agent = Agent("tiny", tiny(tmp_path))
            for session in ("one", "two"):
                await there.host.open(session, agent, cwd="/")
            for session in ("one", "two"):
                client, _ = await attached(there, session)
                assert (await client.prompt(session, "3"))["stopReason"] == "end_turn"
                assert client.said == "word0 word1 word2 "

    run(work)


def test_a_slow_journal_in_one_room_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    async def work() -> None:
        async with place(tmp_path) as there:
            agent = Agent("tiny", tiny(tmp_path))
            for session in ("stuck", "free"):
                await there.host.open(session, agent, cwd="/")
            stuck, _ = await attached(there, "stuck")
            free, _ = await attached(there, "free")
            room_journal = there.host.rooms["stuck"].room_journal
            say = room_journal.say
            monkeypatch.setattr(room_journal, "say", lambda *given: (go.wait(20), say(*given))[1])
            waiting = await stuck.send("session/prompt", sessionId="stuck", prompt=blocks("5"))
            for _ in range(5):
                await free.prompt("free", "20")
            assert not waiting.done()
            go.set()
            await waiting

    run(work)


def test_over_the_network_too_a_large_prompt_and_a_large_answer_pass(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path) as served:
            ann = Remote(served)
            try:
                await ann.prompt("s", "[[say:a]] [[big:7000000]] [[say:b]] " + "y" * 15 * MEGA)
                assert [len(s) for s in texts(ann.heard, "agent_message_chunk")] == [1, 7 * MEGA, 1]
                assert len(ann.shots) == 1
            finally:
                await ann.close()

    run(work)


class Visitor(Remote):
    """Over a WebSocket, in a session that is made for it."""

    async def _once(self) -> None:
        address = f"ws://127.0.0.1:{self.served.port}/acp?agent=tiny"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with connect(address, additional_headers=headers, max_size=None, open_timeout=60) as socket:
            self._socket = socket
            self._news.set()
            async for line in socket:
                for frame in parse(line):
                    self.take(frame)


def test_a_hundred_rooms_chat_at_once_in_less_than_a_gigabyte(tmp_path: Path) -> None:
    rooms, chunks = 100, 100
    (tmp_path / "onefold").mkdir()
    command = ", ".join(f'"{word}"' for word in tiny(tmp_path))
    (tmp_path / "onefold" / "config.toml").write_text(f"[agents.tiny]\ncommand = [{command}]\nfolders = ['/']\n")

    async def work() -> None:
        onefold.open(tmp_path / "agent.db").close()
        with Served(str(tmp_path / "agent.db"), tmp_path) as served:
            empty = served.memory
            clients = [Visitor(served) for _ in range(rooms)]
            try:
                began = asyncio.get_running_loop().time()
                opened = await asyncio.gather(*(c.ask("session/new", cwd="/", mcpServers=[]) for c in clients))
                ready = asyncio.get_running_loop().time()
                sessions = [o["sessionId"] for o in opened]
                await asyncio.gather(*(c.prompt(s, str(chunks)) for c, s in zip(clients, sessions, strict=True)))
                done = asyncio.get_running_loop().time()
                print(
                    f"{rooms} rooms: {ready - began:.1f} s to open, {done - ready:.1f} s for {chunks} chunks each, "
                    f"{empty >> 20} MiB before, {served.memory >> 20} MiB now"
                )

                assert len(set(sessions)) == rooms
                words = "".join(f"word{n} " for n in range(chunks))
                assert all(c.said == words for c in clients)
                assert served.memory < 1 << 30
            finally:
                for client in clients:
                    await client.close()

    run(work)
