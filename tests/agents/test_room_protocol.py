"""What a room has in common with others that share an agent: the proposed names, requests that are taken back, history
by pages; and what is told of a compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from onefold.acp.room_journal import RoomJournal
from tests.support.acp_clients import Place, Refusal, blocks, is_method, place
from tests.support.rooms import messages, run


def waiting(there: Place, session: str) -> list[int]:
    return [one["input"] for one in there.host.rooms[session].prompts.queued]


@pytest.mark.parametrize(("policy", "told"), [("full", 2), ("after_message", 2), ("pending_only", 0), ("none", 0)])
def test_history_is_asked_for_by_its_proposed_name_too(tmp_path: Path, policy: str, told: int) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:hello]]")
            ben = there.client()
            hello = await ben.ask("initialize", protocolVersion=1)
            shot = await ben.ask("session/attach", sessionId=session, historyPolicy=policy)

            assert hello["agentCapabilities"]["sessionCapabilities"]["attach"] == {}
            assert len(shot["history"]) == told
            assert shot["historyPolicy"] == ("full" if told else policy)
            assert shot["clientId"] == ben.connection._name
            with pytest.raises(Refusal, match="historyPolicy is one of"):
                await ben.ask("session/attach", sessionId=session, historyPolicy="some")

    run(work)


def test_who_detaches_hears_nothing_more_and_the_room_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben = await there.joined(session)

            await ben.ask("session/detach", sessionId=session)
            await ann.prompt(session, "[[say:hello]]")

            assert ben.said == ""
            assert len(there.host.rooms[session].members) == 1

    run(work)


def test_a_prompt_that_waits_is_taken_back_and_one_that_runs_is_stopped(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            runs = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:begun]] [[hang]]"))
            await ann.until(lambda f: "begun" in str(f.body))
            first = ann._ids
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:never]]"))

            await ann.notify("$/cancel_request", requestId=first + 1)
            assert await waits == {"stopReason": "cancelled"}
            await ann.notify("$/cancel_request", requestId=first)
            assert (await runs)["stopReason"] == "cancelled"

            assert "never" not in ann.said
            assert waiting(there, session) == []
            await ann.notify("$/cancel_request", requestId=first)  # it is over: nothing happens
            assert (await ann.prompt(session, "[[say:again]]"))["stopReason"] == "end_turn"

    run(work)


def test_any_other_request_that_is_taken_back_is_answered_as_cancelled(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            hangs = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[say:begun]] [[hang]]"))
            await ann.until(lambda f: "begun" in str(f.body))
            compacts = await ann.send("onefold/compact", sessionId=session)

            await ann.notify("$/cancel_request", requestId=ann._ids)

            with pytest.raises(Refusal, match="was cancelled") as refused:
                await compacts
            assert refused.value.code == -32800
            await ann.notify("session/cancel", sessionId=session)
            await hangs

    run(work)


def test_what_was_said_before_is_read_by_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.replay.MOST", 3)

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            for n in range(4):
                await ann.prompt(session, f"[[say:answer {n}]]")
            shot = await ann.ask("session/attach", sessionId=session, history="all")
            pages = [shot["history"]]
            while pages[-1]:
                before = pages[-1][0]["number"]
                page = await ann.ask("onefold/history", sessionId=session, before=before)
                pages.append(page["history"])

            numbers = [one["number"] for page in reversed(pages) for one in page]
            assert [len(page) for page in pages] == [3, 3, 2, 0]
            assert numbers == sorted(set(numbers))
            assert len(numbers) == len(messages(there, session))

    run(work)


def test_how_sure_a_compaction_is_stands_in_what_is_told_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--family", "acp") as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.ask("session/attach", sessionId=session, history="none")
            await ann.prompt(session, "[[compact]]")
            await ann.prompt(session, "/compact")
            by_itself, asked = await ann.until(is_method("onefold/compaction_done"), count=2)

            assert [f.params["confidence"] for f in (by_itself, asked)] == ["high", "high"]
            before = RoomJournal(there.store, session).observed()
            assert (before.by_itself, before.asked) == (frozenset({"acp"}), frozenset({"acp"}))

    run(work)
