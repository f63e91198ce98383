"""An agent's own compactions: noticed once, whoever tells of them, and asked for once, whoever asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import onefold
from onefold.model import COMMITTED, FAILED, JOINED, MESSAGE, SEGMENT_OPENED
from tests.support.acp_clients import Client, Person, Place, blocks, is_method, is_update, place
from tests.support.histories import check
from tests.support.room_compactions import boundaries, compactions, prompts
from tests.support.rooms import records, run

FAMILIES = ("acp", "hermes", "hermes-rotate", "qwen", "vibe", "opencode")
BY_THEMSELVES = ("acp", "hermes", "hermes-rotate", "vibe")
"""Those that tell of a compaction that nobody asked for."""


async def attached(there: Place, session: str, who: Person | None = None) -> Client:
    client = there.client(who)
    await client.ask("initialize", protocolVersion=1)
    await client.ask("session/attach", sessionId=session)
    return client


@pytest.mark.parametrize("family", BY_THEMSELVES)
def test_what_an_agent_compacts_by_itself_is_one_mark_and_one_segment_f71(tmp_path: Path, family: str) -> None:
    async def work() -> None:
        async with place(tmp_path, "--family", family) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            watcher = await attached(there, session)
            await ann.prompt(session, "[[say:before]] [[usage:9000]]")
            await ann.prompt(session, "[[say:a]] [[compact:twice]] [[say:b]]")
            await watcher.until(is_method("onefold/head_changed"))

            assert compactions(there, session) == [("committed", "observed")]
            (mark,) = boundaries(there, session)
            assert mark["cut"] == 1
            assert mark["witnesses"]
            assert "summary" not in mark
            for told in ("onefold/compaction_started", "onefold/compaction_done", "onefold/head_changed"):
                assert len([f for f in watcher.heard if f.method == told]) == 1
            await ann.prompt(session, "[[say:c]] [[compact]]")
            await watcher.until(is_method("onefold/head_changed"), count=2)
            assert compactions(there, session) == [("committed", "observed")] * 2
            assert there.store.verify().findings == ()

    run(work)


def test_a_boundary_stands_between_what_was_said_before_and_after_it_f73(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:before]] [[compact]] [[say:after]]")

            order = [
                r.body["content"]["text"] if r.kind == MESSAGE else "|"
                for r in records(there, session)
                if (r.kind == MESSAGE and "content" in r.body) or (r.kind == SEGMENT_OPENED and r.body.get("by"))
            ]
            assert order == ["before", "|", "after"]
            ben = there.client()
            shot = await ben.ask("session/attach", sessionId=session, history="segment")
            shown = [h["update"]["content"]["text"] for h in shot["history"]]
            assert shown[-2:] == ["before", "after"]  # the turn that crosses it, from its beginning on
            assert shown[0].startswith("[[say:before]]")

    run(work)


@pytest.mark.parametrize("family", FAMILIES)
def test_everybody_who_asks_at_once_is_one_request_to_the_agent(tmp_path: Path, family: str) -> None:
    async def work() -> None:
        log = tmp_path / "log"
        async with place(tmp_path, "--family", family, "--log", str(log)) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = await there.joined(session, Person("ben"))
            go = tmp_path / "go"
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[say:x]] [[wait:{go}]]"))
            await ann.until(is_update("agent_message_chunk"))
            asked = [
                await ann.send("session/prompt", sessionId=session, prompt=blocks("/compact")),
                await ben.send("session/prompt", sessionId=session, prompt=blocks("/compress")),
                await ben.send("onefold/compact", sessionId=session),
            ]
            handle = there.store.session(session)
            by_library = asyncio.create_task(asyncio.to_thread(handle.compact, trigger="threshold", wait=20))
            while [r.kind for r in handle.read()].count(JOINED) < 3:
                await there.host.in_thread(lambda: there.store.journal.wait(session, handle.state.last, 1))
            go.touch()
            await running
            answers = await asyncio.gather(*asked)
            result = await by_library

            assert [a["_meta"]["onefold"]["state"] for a in answers] == ["committed"] * 3
            assert (result.state, result.changed, result.applied) == ("committed", True, False)
            assert len([p for p in prompts(log) if p.startswith("/")]) == 1
            assert [c[0] for c in compactions(there, session)] == ["committed"]
            assert len(boundaries(there, session)) == 1
            state = await ann.ask("_test/state", sessionId=session)
            assert state["compactions"] == 1

    run(work)


@pytest.mark.parametrize("how", ["fail", "nodone"])
def test_one_that_does_not_work_out_ends_as_failed_f40(tmp_path: Path, how: str) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, f"[[compact:{how}]]")
            asked = await ann.prompt(session, f"/compact {how}")

            assert asked["_meta"]["onefold"]["state"] == "failed"
            assert ann.said.startswith("The context was not compacted: ")
            assert compactions(there, session) == [("failed", "observed"), ("failed", "manual")]
            assert boundaries(there, session) == []
            assert there.store.session(session).state.open is None
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


def test_an_agent_that_has_no_command_for_it_is_not_asked(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--family", "plain") as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            asked = await ann.prompt(session, "/compact")

            assert "knows no command" in asked["_meta"]["onefold"]["cause"]
            assert ann.said == f"The context was not compacted: {asked['_meta']['onefold']['cause']}."
            ben = await attached(there, session)
            told = await ben.ask("session/prompt", sessionId=session, prompt=blocks("/compress"))
            assert told == asked | {
                "_meta": {"onefold": asked["_meta"]["onefold"] | {"compaction": told["_meta"]["onefold"]["compaction"]}}
            }
            assert ben.said == ""
            assert ann.said == f"The context was not compacted: {asked['_meta']['onefold']['cause']}."
            ben = await attached(there, session)
            told = await ben.ask("session/prompt", sessionId=session, prompt=blocks("/compress"))
            assert told == asked | {
                "_meta": {"onefold": asked["_meta"]["onefold"] | {"compaction": told["_meta"]["onefold"]["compaction"]}}
            }
            assert ben.said == ""
            assert (await ann.prompt(session, "[[say:on]]"))["stopReason"] == "end_turn"

    run(work)


def test_a_log_line_that_a_prompt_wrote_counts_for_nothing_f72(tmp_path: Path) -> None:
    line = (
        "2026-01-01 00:00:00 [INFO] agent.conversation_compression: context compression done: session=scripted "
        "messages=9->4 rough_tokens=~100 awaiting_real_usage=true"
    )

    async def work() -> None:
        async with place(tmp_path, "--family", "hermes") as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, f"[[forge:{line}]] [[forge:{line.replace('done', 'started')}]] [[say:x]]")
            await ann.prompt(session, "[[say:y]]")

            assert compactions(there, session) == []

    run(work)


def test_a_client_that_knows_no_compactions_is_shown_a_tool_call(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = await there.joined(session, Person("ben"), session={"compaction": {}})
            await ann.prompt(session, "[[compact]]")

            shown = [f.update["sessionUpdate"] for f in ann.heard if f.update.get("toolCallId")]
            assert shown == ["tool_call", "tool_call_update"]
            assert not any(is_update("compaction_update")(f) for f in ann.heard)
            assert len(await ben.until(is_update("compaction_update"), count=2)) == 2

    run(work)


def test_a_policy_asks_once_when_the_context_is_nearly_full(tmp_path: Path) -> None:
    async def work() -> None:
        log = tmp_path / "log"
        async with place(tmp_path, "--log", str(log), compact_at=0.8) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            watcher = await attached(there, session)
            await ann.prompt(session, "[[usage:79000]]")
            assert compactions(there, session) == []
            await ann.prompt(session, "[[usage:81000]] [[usage:82000]] [[usage:83000]]")
            await watcher.until(is_method("onefold/compaction_done"))

            assert compactions(there, session) == [("committed", "threshold")]
            assert prompts(log).count("/compact") == 1

    run(work)


def test_a_replay_on_load_is_no_compaction(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def work() -> None:
        async with place(tmp_path, "--without", "resume", "--state", str(state)) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            watcher = await attached(there, session)
            await ann.prompt(session, "[[say:a]] [[compact]]")
            before = len([r for r in records(there, session) if r.kind == MESSAGE])
            with pytest.raises(Exception, match="the agent ended"):
                await ann.prompt(session, "[[die]]")
            await watcher.until(lambda f: f.method == "onefold/agent_started" and f.params["how"] == "load")
            await ann.prompt(session, "[[say:b]]")

            assert compactions(there, session) == [("committed", "observed")]
            said = [r.body for r in records(there, session) if r.kind == MESSAGE]
            assert len(said) == before + 3  # two prompts and an answer
            assert ann.said == "ab"

    run(work)


def test_a_compaction_ends_when_its_agent_dies_in_the_middle_f40(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            watcher = await attached(there, session)
            with pytest.raises(Exception, match="the agent ended"):
                await ann.prompt(session, "[[die:compacting]]")
            await watcher.until(lambda f: f.method == "onefold/agent_started" and f.params["how"] == "resume")

            assert compactions(there, session) == [("failed", "observed")]
            kinds = [r.kind for r in records(there, session)]
            assert kinds.count(FAILED) == 1
            assert COMMITTED not in kinds
            await ann.prompt(session, "/compact")
            assert compactions(there, session)[-1] == ("committed", "manual")

    run(work)


# ---------------------------------------------------------------------- what a provider compacted inside an agent

READABLE = {"type": "compaction", "content": "A garden is planned. The shed stays.", "encrypted_content": "b3BhcXVl"}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB" + "Zk9x" * 100}


def test_what_a_provider_compacted_inside_an_agent_is_the_agents_own(tmp_path: Path) -> None:
    them = onefold.Origin("anthropic", model="claude-opus-5-5")

    def told(session: onefold.Session) -> str:
        context = session.context(origin=them)
        check(context)
        return str(context.to("openai-chat"))

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = there.store.session(next(iter(there.host.rooms)))
            updates = [{"sessionUpdate": "agent_message_chunk", "content": c} for c in (READABLE, SEALED)]
            params = [{"sessionId": session.aliases()[0], "update": update} for update in updates]
            frames = [{"jsonrpc": "2.0", "method": "session/update", "params": p} for p in params]
            (tmp_path / "raw").write_text("\n".join(map(json.dumps, frames)))
            await ann.prompt(session.id, f"[[say:before]] [[raw:{tmp_path / 'raw'}]] [[say:after]]")

            items = [r for r in session.read() if r.kind == MESSAGE and "compaction" in str(r.body)]
            assert [b for r in items for b in r.body["content"]] == [READABLE, SEALED], "as the agent said it"
            assert "The shed stays." in told(session)
            with pytest.raises(onefold.OnefoldError, match="is compacted by its agent, which keeps what its provider"):
                session.adopt(items[-1].number, origin=them, covers=session.context())

            session.set_compaction_owner("onefold")

            assert "The shed stays." in told(session)
            assert not any(seal in told(session) for seal in ("b3BhcXVl", "gAAAAAB")), "what nobody can read"
            with pytest.raises(onefold.OnefoldError, match="has no compaction of a provider's in it"):
                session.adopt(items[-1].number, origin=them, covers=session.context())
            ended = await ann.prompt(session.id, "[[say:goes on]]")
            assert ended["stopReason"] == "end_turn"
            assert there.store.verify().findings == ()

    run(work)
