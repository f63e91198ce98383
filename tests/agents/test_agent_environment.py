"""A store that somebody gives you: nothing in it decides what is run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import onefold
from onefold.acp.agent_config import Agent, Agents, AgentUnusable
from onefold.acp.frame_log import FrameLog, RoomRow
from onefold.acp.host import RoomHost
from onefold.journal import undo
from tests.support.acp_clients import AGENT, Refusal, config
from tests.support.rooms import run
from tests.support.server_rooms import Server, client, onefold_run
from tests.support.servers import Served

HOSTILE = "no t; touch OWNED"
"""An id, which a person may copy into a shell."""


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A store with a prompt that waits, and beside it a room whose command leaves a file."""
    with onefold.open(tmp_path / "agent.db") as store:
        for session in ("notes", HOSTILE):
            store.session(session).queue_input({"sessionUpdate": "user_message_chunk", "content": []})
    frames = FrameLog(str(tmp_path / "agent.db.frames"))
    for session in ("notes", HOSTILE):
        command = ["/bin/sh", "-c", f"touch '{tmp_path}/OWNED'; sleep 1"]
        frames.put_room(RoomRow(session, "scripted", command, str(tmp_path), None, 0.0, None))
    frames.close()
    return tmp_path


def test_a_server_runs_no_command_that_stands_in_a_store(given: Path) -> None:
    with Served(str(given / "agent.db"), given) as served:
        server = Server(served, "")

        refused = server.post("prompt", "notes", text="hello")

        assert refused.status_code == 409
        assert "a command is never taken from a store" in refused.json()["error"]["message"]
        for method in ("session/attach", "session/load", "session/resume"):
            with client(server, "") as lost, pytest.raises(Refusal, match="never taken from a store"):
                lost.ask(method, sessionId="notes", cwd="/", mcpServers=[])
        with client(server, "session=notes") as lost, pytest.raises(Refusal, match=r"\[agents\.scripted\]"):
            lost.ask("initialize", protocolVersion=1)
        assert server.get("rooms").json()["rooms"] == []
        assert server.snapshot("notes")["agent"]["name"] == "scripted"
        served.signal()
        assert served.ended() == 0
        assert any("could not be reopened" in line["message"] for line in served.lines())
    assert not (given / "OWNED").exists()


def test_a_prompt_that_waits_in_a_store_starts_nothing(given: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        with onefold.open(given / "agent.db") as store:
            host = RoomHost(store, given / "agent.db.frames", resume=True)
            host.start()
            assert host._resuming is not None
            await host._resuming

            assert host.rooms == {}
            with pytest.raises(AgentUnusable, match="never taken from a store"):
                await host.enter("notes")
            await host.close()
            assert all(store.session(s).state.pending for s in ("notes", HOSTILE))

    run(work)

    assert caplog.text.count("a room could not be reopened") == 2
    assert not (given / "OWNED").exists()


def test_run_with_a_session_wants_the_command_again_or_a_name_of_the_config(given: Path) -> None:
    config(given, another=[sys.executable, str(AGENT)])

    done = onefold_run(given, "--port", "0", "--session", "notes")

    assert (done.returncode, done.stdout) == (2, "")
    assert "had the agent 'scripted', which the config file does not name" in done.stderr
    assert "`onefold run --session notes -- COMMAND`" in done.stderr
    hostile = onefold_run(given, "--port", "0", "--session", HOSTILE)
    assert f"`onefold run --session '{HOSTILE}' -- COMMAND`" in hostile.stderr
    assert not (given / "OWNED").exists()


def test_a_room_is_taken_up_by_its_agents_name_with_the_command_of_the_config(given: Path) -> None:
    async def work() -> None:
        with onefold.open(given / "agent.db") as store:
            mine = Agents({"scripted": Agent("scripted", (sys.executable, str(AGENT)))})
            host = RoomHost(store, given / "agent.db.frames", mine, resume=True)
            host.start()
            assert host._resuming is not None
            await host._resuming

            assert sorted(host.rooms) == sorted(["notes", HOSTILE])
            await asyncio.gather(*(room.ready() for room in host.rooms.values()))
            assert host.rooms["notes"].process.agent.command == (sys.executable, str(AGENT))
            await host.close()

    run(work)

    assert not (given / "OWNED").exists()


def test_what_a_person_is_told_to_type_is_quoted_for_a_shell(given: Path) -> None:
    """An id may come with a store, and its hint may be copied as it is."""

    class Here(Served):
        verb = "run"

    with Here(str(given / "agent.db"), given, "--session", HOSTILE, "--", sys.executable, str(AGENT)) as served:
        assert served.process is not None
        assert served.process.stdout is not None
        joins = next(line for line in served.process.stdout if line.startswith("join it: "))
        served.signal()
        served.ended()

    assert joins.rstrip().endswith(f"onefold attach --stdio '{HOSTILE}'")
    with onefold.open(given / "agent.db") as store:
        head = store.session(HOSTILE).state.head
        with pytest.raises(onefold.OnefoldError, match=f"`onefold show '{HOSTILE}'` lists them"):
            undo.restore(store.journal, HOSTILE, 99, expect_head=head)
