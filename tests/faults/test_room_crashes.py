"""Whatever dies, and when: the conversation is whole, every client goes on from its number, nothing comes twice."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold.acp.frame_log import FrameLog
from onefold.jsonrpc import parse
from onefold.model import AGENT_STARTED, MESSAGE, TURN_SETTLED, Record
from onefold.storage.locations import sidecar_path
from tests.support.acp_clients import Ran, Remote, blocks, is_method, is_update
from tests.support.agent_children import alive
from tests.support.rooms import run

LONG = "[[chunks:60]]"


def journal(folder: Path) -> list[Record]:
    with onefold.open(folder / "agent.db") as store:
        assert store.verify().findings == ()
        return list(store.session("s", create=False).read())


def told(folder: Path) -> list[int]:
    """The frames that every client has to have heard, by number."""
    frames = FrameLog(str(sidecar_path(str(folder / "agent.db"), "frames")))
    try:
        found, after = [], 0
        while rows := frames.read("s", after, 500):
            after = rows[-1].number
            for row in rows:
                if row.kind in ("in", "note") and any(f.is_notification for f in parse(row.text)):
                    found.append(row.number)
        return found
    finally:
        frames.close()


def agent_pid(folder: Path) -> int:
    started = [r for r in journal(folder) if r.kind == AGENT_STARTED]
    pid: int = started[-1].body["pid"]
    return pid


async def settled(client: Remote, count: int) -> None:
    await client.until(is_method("onefold/turn_settled"), count=count)


@pytest.mark.parametrize("what", ["turn", "compaction"])
@pytest.mark.parametrize("who", ["the agent", "onefold", "both"])
def test_nothing_is_lost_or_comes_twice_when_somebody_is_killed(tmp_path: Path, who: str, what: str) -> None:
    killed(tmp_path, who, what)


def test_nothing_is_lost_or_comes_twice_in_a_store_of_plain_files_either(tmp_path: Path) -> None:
    onefold.open(f"{tmp_path / 'agent.db'}/").close()
    killed(tmp_path, "both", "compaction")


def killed(tmp_path: Path, who: str, what: str) -> None:
    middle = "[[hang]]" if what == "turn" else f"[[compact:wait:{tmp_path / 'never'}]]"

    async def work() -> None:
        served = Ran(tmp_path, "--state", str(tmp_path / "state"))
        with served:
            ann, ben = Remote(served, name="ann"), Remote(served, name="ben")
            try:
                await ann.prompt("s", f"{LONG} [[tool:read]]")
                await settled(ben, 1)
                await ann.send("session/prompt", sessionId="s", prompt=blocks(f"{LONG} {middle}"))
                await ben.until(is_update("agent_message_chunk"), count=120)
                if what == "compaction":
                    await ben.until(is_method("onefold/compaction_started"))
                pid = agent_pid(tmp_path)
                starts = [len([f for f in c.heard if f.method == "onefold/agent_started"]) for c in (ann, ben)]
                if who != "onefold":
                    os.kill(pid, signal.SIGKILL)
                if who != "the agent":
                    served.again()
                for client, before in zip((ann, ben), starts, strict=True):
                    await client.until(is_method("onefold/agent_started"), count=before + 1)
                await ann.prompt("s", f"{LONG} [[say:the end]]")
                await ann.until(is_update("agent_message_chunk"), count=181)
                await ben.until(is_update("agent_message_chunk"), count=181)
                everybody = told(tmp_path)
                for client in (ann, ben):
                    await client.until(
                        lambda f: f.method == "onefold/turn_settled" and f.params["outcome"] == "settled", count=2
                    )
                    mine = [n for n in everybody if n >= client.numbers[0]]
                    assert client.numbers == mine
            finally:
                await ann.close()
                await ben.close()

        records = journal(tmp_path)
        outcomes = [r.body["outcome"] for r in records if r.kind == TURN_SETTLED]
        assert outcomes == ["settled", "interrupted", "settled"]
        words = "".join(f"word{n} " for n in range(60))
        spoken = [
            said(r) for r in records if r.kind == MESSAGE and r.body.get("sessionUpdate") == "agent_message_chunk"
        ]
        assert "".join(spoken) == words + words + words + "the end"
        states = [r.kind for r in records if r.kind.startswith("compaction.")]
        expected = ["compaction.requested", "compaction.started", "compaction.failed"] if what == "compaction" else []
        assert states == expected

    run(work)


def said(record: Record) -> str:
    content: Any = record.body["content"]
    return str(content["text"])


def test_the_queue_goes_on_after_a_restart_and_questions_do_not_f74(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path, "--state", str(tmp_path / "state")) as served:
            ann = Remote(served)
            try:
                await ann.send("session/prompt", sessionId="s", prompt=blocks("[[ask:may I?]]"))
                await ann.until(is_method("session/request_permission"))
                await ann.send("session/prompt", sessionId="s", prompt=blocks("[[say:queued]]"))
                await ann.until(lambda f: f.method == "onefold/queue_changed" and "queued" in str(f.params["queue"]))
                served.again()
                await ann.until(is_update("agent_message_chunk"))
                await settled(ann, 1)

                shot = ann.shots[-1]
                assert shot["questions"] == []
                assert ann.said == "queued"
            finally:
                await ann.close()
        records = journal(tmp_path)
        (withdrawn,) = (r for r in records if r.kind == "question.settled")
        assert withdrawn.body["outcome"] == "withdrawn"
        assert [r.body["outcome"] for r in records if r.kind == TURN_SETTLED] == ["interrupted", "settled"]

    run(work)


def test_an_agent_that_cannot_take_its_session_up_is_told_the_conversation(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        with Ran(tmp_path, "--without", "load,resume", "--log", str(log)) as served:
            ann = Remote(served)
            try:
                await ann.prompt("s", "[[say:the password is swordfish]]")
                os.kill(agent_pid(tmp_path), signal.SIGKILL)
                await ann.until(lambda f: f.method == "onefold/agent_started" and f.params["how"] == "handover")
                await ann.prompt("s", "[[say:on]]")
                await ann.prompt("s", "[[say:and on]]")
            finally:
                await ann.close()
        handed = [line for line in log.read_text().splitlines() if "session/prompt" in line][1:]
        assert "the password is swordfish" in handed[0]
        assert "[[say:on]]" in handed[0]
        assert "swordfish" not in handed[1]

    run(work)


def test_a_sigterm_ends_the_agent_and_its_children_and_settles_what_is_open(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path, "--state", str(tmp_path / "state")) as served:
            ann = Remote(served)
            try:
                await ann.send("session/prompt", sessionId="s", prompt=blocks("[[grandchild]] [[hang]]"))
                await ann.until(is_update("agent_message_chunk"))
                child = int(ann.said.split()[-1])
                served.signal(signal.SIGTERM)
                assert await asyncio.to_thread(served.ended) == 0
            finally:
                await ann.close()
        assert not alive(child)
        records = journal(tmp_path)
        assert [r.body["outcome"] for r in records if r.kind == TURN_SETTLED] == ["interrupted"]
        assert records[-1].kind == "agent.ended"

    run(work)
