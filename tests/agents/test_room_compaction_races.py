"""Compactions of an agent that come at awkward times: wanted while one runs, never ended, several in a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onefold.acp import compaction_correlator
from onefold.model import COMMITTED, SEGMENT_OPENED
from tests.support.acp_clients import Person, Refusal, blocks, is_method, is_update, place
from tests.support.hard_rooms import attached
from tests.support.room_compactions import boundaries, compactions, prompts
from tests.support.rooms import records, run
from tests.support.scripted_agent import SUMMARY


@pytest.mark.parametrize("family", ["acp", "hermes", "vibe"])
def test_a_wish_while_the_agent_compacts_by_itself_is_that_compaction(tmp_path: Path, family: str) -> None:
    async def work() -> None:
        log, go = tmp_path / "log", tmp_path / "go"
        async with place(tmp_path, "--family", family, "--log", str(log)) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[compact:wait:{go}]]"))
            await ben.until(is_method("onefold/compaction_started"))
            wishes = [await c.send("session/prompt", sessionId=session, prompt=blocks("/compact")) for c in (ann, ben)]
            wishes.append(await ben.send("onefold/compact", sessionId=session))
            later = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:on]]"))
            await ben.until(lambda f: f.method == "onefold/queue_changed" and "say:on" in str(f.params))
            go.touch()
            await asyncio.gather(running, *wishes, later)

            assert [w.result()["_meta"]["onefold"]["state"] for w in wishes] == ["committed"] * 3
            assert compactions(there, session) == [("committed", "observed")]
            assert len(boundaries(there, session)) == 1
            assert not [p for p in prompts(log) if p.startswith("/")]

    run(work)


@pytest.mark.parametrize("family", ["acp", "hermes", "vibe"])
def test_a_wish_that_waits_is_settled_by_the_next_compaction_that_is_seen(tmp_path: Path, family: str) -> None:
    """One wish, one compaction: the agent did it before it could be asked."""

    async def work() -> None:
        log, go = tmp_path / "log", tmp_path / "go"
        async with place(tmp_path, "--family", family, "--log", str(log)) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            running = await ann.send(
                "session/prompt", sessionId=session, prompt=blocks(f"[[say:a]] [[wait:{go}]] [[compact]] [[say:b]]")
            )
            await ann.until(is_update("agent_message_chunk"))
            wish = await ann.send("session/prompt", sessionId=session, prompt=blocks("/compact"))
            handle = there.store.session(session)
            while handle.state.open is None:
                await there.host.in_thread(lambda: there.store.journal.wait(session, handle.state.last, 0.1))
            go.touch()
            await running
            assert (await wish)["_meta"]["onefold"]["state"] == "committed"
            await ann.prompt(session, "[[say:on]]")

            assert compactions(there, session) == [("committed", "manual")]
            assert len(boundaries(there, session)) == 1
            assert not [p for p in prompts(log) if p.startswith("/")]
            # The next wish is another one.
            await ann.prompt(session, "/compact")
            assert compactions(there, session) == [("committed", "manual")] * 2

    run(work)


def test_one_that_never_ends_has_failed_when_its_bound_has_passed(tmp_path: Path) -> None:
    now = [1_000_000.0]

    async def work() -> None:
        async with place(tmp_path, clock=lambda: now[0]) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            never = tmp_path / "never"
            running = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[compact:wait:{never}]]"))
            await ben.until(is_method("onefold/compaction_started"))
            wish = await ben.send("onefold/compact", sessionId=session)
            now[0] += compaction_correlator.BOUND - 1
            there.host.rooms[session].poke()
            await ben.ask("_test/state", sessionId=session)
            assert not any(is_method("onefold/compaction_done")(f) for f in ben.heard)
            now[0] += 2
            there.host.rooms[session].poke()
            (done,) = await ben.until(is_method("onefold/compaction_done"))

            assert (done.params["state"], done.params["cause"]) == ("failed", "it did not end within 600 seconds")
            assert (await wish)["_meta"]["onefold"]["state"] == "failed"
            assert compactions(there, session) == [("failed", "observed")]
            await ann.notify("session/cancel", sessionId=session)
            await running

    run(work)


@pytest.mark.parametrize("family", ["acp", "hermes", "hermes-rotate", "vibe"])
def test_several_in_one_turn_are_several_and_the_counts_agree_after_restarts(tmp_path: Path, family: str) -> None:
    async def work() -> None:
        options = ("--family", family, "--state", str(tmp_path / "state"))
        session = ""
        for round in (1, 2):
            async with place(tmp_path, *options) as there:
                ann = there.client() if session else await there.joined()
                session = session or next(iter(there.host.rooms))
                await ann.ask("session/attach", sessionId=session)
                await ann.prompt(
                    session, "[[say:a]] [[usage:9000]] [[compact]] [[say:b]] [[usage:8000]] [[compact:twice]]"
                )
                await ann.until(is_method("onefold/compaction_done"), count=2)
                await ann.prompt(session, "[[say:c]]")

                handle = there.store.session(session)
                found = records(there, session)
                assert compactions(there, session) == [("committed", "observed")] * 2 * round
                assert len(boundaries(there, session)) == 2 * round
                assert handle.state.committed == [r.kind for r in found].count(COMMITTED) == 2 * round
                ids = [c.id for c in handle.compactions()]
                marks = [r.body["compaction"] for r in found if r.kind == SEGMENT_OPENED and r.body.get("by")]
                assert sorted(ids) == sorted(marks)
                assert len(set(ids)) == 2 * round
                assert there.store.verify().findings == ()

    run(work)


def test_what_the_agent_says_of_its_compaction_is_kept_for_people(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:a]] [[compact]]")
            (mark,) = boundaries(there, session)

            assert mark["said"] == SUMMARY
            assert (mark["by"], mark["cut"]) == (mark["witnesses"][0], 1)

    run(work)


def test_a_token_that_may_only_write_cannot_compact_by_words_either(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            await there.joined()
            session = next(iter(there.host.rooms))
            eve = await there.joined(session, Person("eve", ("read", "agents")))
            with pytest.raises(Refusal, match="lacks the scope `compact`"):
                await eve.prompt(session, "/compact")
            await eve.prompt(session, "[[say:hello]]")
            assert compactions(there, session) == []

    run(work)
