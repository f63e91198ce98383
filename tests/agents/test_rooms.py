"""A room: an agent that many clients share, with everything it says kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from onefold.jsonrpc import Frame, parse, request, text
from onefold.model import AGENT_STARTED, TURN_SETTLED, TURN_STARTED
from tests.support.acp_clients import Person, Refusal, blocks, is_method, is_update, place, texts
from tests.support.rooms import answer, kinds, messages, records, run


def test_a_prompt_is_answered_and_the_whole_of_it_is_in_the_journal(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ended = await ann.prompt(session, "[[say:hello]] [[tool:read]] [[chunks:20]]")

            assert ended["stopReason"] == "end_turn"
            assert ann.said.startswith("hello")
            said = messages(there, session)
            assert said[0]["prompt"][0]["text"].startswith("[[say:hello]]")
            whole = [m for m in said if m.get("sessionUpdate") == "agent_message_chunk"]
            assert len(whole) == 2
            assert "".join(m["content"]["text"] for m in whole) == ann.said
            assert [k for k in kinds(there, session) if k in (TURN_STARTED, TURN_SETTLED)] == [
                TURN_STARTED,
                TURN_SETTLED,
            ]
            assert kinds(there, session).count(AGENT_STARTED) == 1
            assert there.store.verify().findings == ()

    run(work)


# ---------------------------------------------------------------------- many clients


def test_late_joiners_are_in_the_same_session_and_see_what_others_ask_and_get(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = there.client(Person("ben"), session=session)
            assert await ben.enter() == session
            await ann.prompt(session, "[[say:hello]]")

            assert "".join(texts(ben.heard, "user_message_chunk")) == "[[say:hello]]"
            assert ben.said == ann.said == "hello"
            assert list(texts(ann.heard, "user_message_chunk")) == []
            assert all(f.params["sessionId"] == session for f in ben.heard if f.method == "session/update")
            assert not any((f.method or "").startswith("onefold/") for f in ben.heard)

            cid = await there.joined(session, Person("cid"))
            await cid.until(is_update("available_commands_update"))

    run(work)


def test_a_client_that_loads_is_told_the_whole_conversation_before_the_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[think:hm]] [[say:hello]] [[tool:read]]")
            ben = there.client()
            await ben.ask("initialize", protocolVersion=1)
            await ben.ask("session/load", sessionId=session, cwd="/", mcpServers=[])

            told = [f.update["sessionUpdate"] for f in ben.heard if f.update]
            assert told[:5] == [
                "user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call", "tool_call_update",
            ]  # fmt: skip

    run(work)


def test_the_agents_own_id_of_the_session_finds_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--ids", "own") as there:
            await there.joined()
            session = next(iter(there.host.rooms))

            assert there.store.resolve("own-session-1") == session
            ben = there.client()
            await ben.ask("session/resume", sessionId="own-session-1", cwd="/", mcpServers=[])
            assert len(there.host.rooms) == 1

    run(work)


def test_a_question_goes_to_all_and_the_first_answer_wins_f74(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = await there.joined(session, Person("ben"))
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[ask:may I?]]"))
            (for_ann,) = await ann.until(is_method("session/request_permission"))
            (for_ben,) = await ben.until(is_method("session/request_permission"))
            assert for_ann.params["sessionId"] == session
            cid = await there.joined(session, Person("cid"))
            (for_cid,) = await cid.until(is_method("session/request_permission"))

            await ben.put(answer(for_ben, "no"))
            await ann.put(answer(for_ann, "yes"))
            await cid.put(answer(for_cid, "yes"))
            await ended

            assert ann.said == "the answer was no"
            (told,) = await ann.until(is_method("$/cancel_request"))
            assert told.params["requestId"] == for_ann.id
            asked, settled = (r for r in records(there, session) if r.kind.startswith("question."))
            assert (asked.body["method"], asked.turn is not None) == ("session/request_permission", True)
            assert (settled.body["outcome"], settled.actor) == ("answered", "ben")

    run(work)


def test_a_client_that_does_not_know_a_question_does_not_answer_it_for_the_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = await there.joined(session, Person("ben"))
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[unknown:why]]"))
            (for_ann,) = await ann.until(is_method("_scripted/question"))
            await ann.put(Frame({"jsonrpc": "2.0", "id": for_ann.id, "error": {"code": -32601, "message": "what?"}}))
            (for_ben,) = await ben.until(is_method("_scripted/question"))
            assert ben.heard[-1].method != "$/cancel_request"
            await ben.put(Frame({"jsonrpc": "2.0", "id": for_ben.id, "result": {"because": "so"}}))
            await ended

            assert ann.said == "_scripted/question: {'because': 'so'}"
            assert [f.params["news"] for f in await ben.until(is_method("_scripted/news"))] == ["why"]

    run(work)


def test_files_and_terminals_are_refused_and_not_announced(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--log", str(tmp_path / "log")) as there:
            ann = await there.joined(fs={"readTextFile": True}, terminal=True)
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[fs]] [[terminal]]")

            assert "fs/read_text_file: -32601" in ann.said
            assert "terminal/create: -32601" in ann.said
            hello = json.loads((tmp_path / "log").read_text().splitlines()[0])
            able = hello["params"]["clientCapabilities"]
            assert able["fs"] == {"readTextFile": False, "writeTextFile": False}
            assert (able["terminal"], able["session"]) == (False, {"compaction": {}})
            assert not any(is_method("fs/read_text_file")(f) for f in ann.heard)

    run(work)


# ---------------------------------------------------------------------- one prompt at a time


def test_prompts_wait_for_each_other_in_order_and_can_be_taken_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            go = tmp_path / "go"
            prompts = [
                await ann.send("session/prompt", sessionId=session, prompt=blocks(words))
                for words in (f"[[wait:{go}]] [[say:one ]]", "[[say:two ]]", "[[say:three ]]", "[[say:four ]]")
            ]
            state = await ann.ask("session/attach", sessionId=session, history="none")
            while len(state["queue"]) < 3:
                state = await ann.ask("session/attach", sessionId=session, history="none")
            third = next(q["input"] for q in state["queue"] if "three" in q["prompt"][0]["text"])
            assert (await ann.ask("onefold/unqueue", sessionId=session, input=third))["unqueued"] is True
            assert (await ann.ask("onefold/unqueue", sessionId=session, input=third))["unqueued"] is False
            go.touch()
            ended = await asyncio.gather(*prompts)

            assert [e["stopReason"] for e in ended] == ["end_turn", "end_turn", "cancelled", "end_turn"]
            assert ann.said == "one two four "

    run(work)


def test_a_steered_prompt_ends_the_running_turn_and_comes_first(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            first = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:a]] [[hang]]"))
            await ann.until(is_update("agent_message_chunk"))
            later = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:c]]"))
            await ann.ask("onefold/steer", sessionId=session, prompt=blocks("[[say:b]]"))
            await later

            assert (await first)["stopReason"] == "cancelled"
            assert ann.said == "abc"
            outcomes = [r.body["outcome"] for r in records(there, session) if r.kind == TURN_SETTLED]
            assert outcomes == ["cancelled", "settled", "settled"]

    run(work)


def test_a_cancel_settles_the_question_that_waits(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[ask:may I?]]"))
            await ann.until(is_method("session/request_permission"))
            await ann.notify("session/cancel", sessionId=session)

            assert (await ended)["stopReason"] == "cancelled"
            settled = next(r for r in records(there, session) if r.kind == "question.settled")
            assert settled.body["outcome"] == "cancelled"

    run(work)


def test_the_queue_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.prompt_queue.QUEUE", 2)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            go = tmp_path / "go"
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[wait:{go}]]"))
            waiting = [
                await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:x]]")) for _ in range(2)
            ]
            with pytest.raises(Refusal, match="2 prompts wait already"):
                await ann.prompt(session, "one too many")
            go.touch()
            await asyncio.gather(running, *waiting)

    run(work)


def test_the_queue_is_bounded_by_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.prompt_queue.MOST_BYTES", 10_000)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            go = tmp_path / "go"
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[wait:{go}]]"))
            large = await ann.send(
                "session/prompt", sessionId=session, prompt=blocks("x" * 20_000)
            )  # one always passes
            with pytest.raises(Refusal, match=r"the prompts that wait have 20,0\d\d bytes already"):
                await ann.prompt(session, "one too many")
            go.touch()
            await asyncio.gather(running, large)
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


@pytest.mark.parametrize(("bound", "most"), [("MOST", 2), ("MOST_BYTES", 2_500)])
def test_questions_that_wait_are_bounded_and_the_agent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(f"onefold.acp.agent_requests.{bound}", most)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            params = {"sessionId": session, "a": "x" * 1_000}
            asked = [text(request(f"q{n}", "session/request_permission", params)) for n in range(3)]
            (tmp_path / "asked").write_text("\n".join(asked))
            await ann.prompt(session, f"[[raw:{tmp_path / 'asked'}]]")
            answers = [parse(row.text)[0] for row in there.host.frames.read(session, 0, 500) if row.kind == "out"]
            said = {frame.id: frame.body for frame in answers if isinstance(frame.id, str)}

            assert "2 questions wait for an answer already" in said["q2"]["error"]["message"]
            assert said["q0"]["result"] == said["q1"]["result"] == {"outcome": {"outcome": "cancelled"}}

    run(work)


def test_a_prompt_with_a_key_is_one_prompt_however_often_it_is_sent(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            keyed = {"sessionId": session, "prompt": blocks("[[say:once]]"), "_meta": {"onefold": {"key": "k"}}}
            both = await asyncio.gather(ann.ask("session/prompt", **keyed), ann.ask("session/prompt", **keyed))
            again = await ann.ask("session/prompt", **keyed)

            assert [e["stopReason"] for e in (*both, again)] == ["end_turn"] * 3
            assert ann.said == "once"

    run(work)


# ---------------------------------------------------------------------- who may


def test_only_a_token_with_the_scope_prompts_answers_or_cancels(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            eve = await there.joined(session, Person("eve", ("read",)))
            with pytest.raises(Refusal, match="lacks the scope 'agents'"):
                await eve.prompt(session, "[[say:x]]")
            with pytest.raises(Refusal, match="lacks the scope 'compact'"):
                await eve.ask("onefold/compact", sessionId=session)
            with pytest.raises(Refusal, match="lacks the scope 'agents'"):
                await eve.ask("session/set_mode", sessionId=session, modeId="code")
            ended = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[ask:may I?]]"))
            (question,) = await ann.until(is_method("session/request_permission"))
            await eve.notify("session/cancel", sessionId=session)
            await eve.put(answer(question, "yes"))
            await ann.put(answer(question, "no"))
            await ended

            assert ann.said == "the answer was no"
            assert not any(is_method("session/request_permission")(f) for f in eve.heard)
            assert eve.said == ann.said

    run(work)


def test_other_requests_are_passed_on_as_they_are(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.ask("session/set_mode", sessionId=session, modeId="code")
            (told,) = await ann.until(is_update("current_mode_update"))
            assert told.update["currentModeId"] == "code"
            with pytest.raises(Refusal, match="no method session/frobnicate"):
                await ann.ask("session/frobnicate", sessionId=session)
            with pytest.raises(Refusal, match="has not joined"):
                await ann.ask("session/set_mode", sessionId="another", modeId="code")

    run(work)


def test_a_host_that_resumes_opens_the_rooms_in_which_something_waits(tmp_path: Path) -> None:
    state = str(tmp_path / "state")

    async def work() -> None:
        async with place(tmp_path, "--state", state) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            quiet = there.client(Person("ben"), agent="scripted")
            await quiet.enter()
            await ann.send("session/prompt", sessionId=session, prompt=blocks("[[hang]]"))
            await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:it goes on]]"))
            attached = there.client()
            await attached.ask("session/attach", sessionId=session)
            await attached.until(lambda f: f.method == "onefold/turn_started" or bool(f.update))
            while not there.store.session(session).state.pending:
                await there.host.in_thread(lambda: there.store.journal.wait(session, 0, 0.05))
        async with place(tmp_path, "--state", state, resume=True) as there:
            handle = there.store.session(session)
            while not any("it goes on" in str(r.body) for r in handle.read() if "content" in str(r.body)):
                last = handle.state.last
                await there.host.in_thread(lambda after=last: there.store.journal.wait(session, after, 1.0))  # type: ignore[misc]
            assert list(there.host.rooms) == [session]

    run(work)


def test_half_a_frame_of_a_dying_agent_spoils_nothing_before_or_after_it_f29(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            with pytest.raises(Refusal, match="the agent ended"):
                await ann.prompt(session, "[[say:before ]] [[torn]]")
            await ann.prompt(session, "[[say:after]]")

            assert ann.said == "before after"
            kept = there.host.frames.read(session, 0, 1_000)
            assert [row.number for row in kept] == list(range(1, len(kept) + 1))
            assert any(row.kind == "err" and row.text.endswith('{"sessionId":') for row in kept)
            assert [m["content"]["text"] for m in messages(there, session) if "content" in m] == ["before ", "after"]

    run(work)
