"""The real agents as they are, without onefold: that each runs here, answers, compacts, and reaches nothing outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from onefold.model import Json
from tests.real.acp import Client
from tests.real.agents import AGENTS, Agent, codex, hermes, opencode
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.stores import compactions

pytestmark = pytest.mark.timeout(180)


def kinds(client: Client) -> list[Json]:
    return [(u["compactionId"], u["status"]) for u in client.updates("compaction_update")]


@pytest.fixture(params=list(AGENTS))
def agent(request: pytest.FixtureRequest, tmp_path: Path, model: DirectedModel, outside: Outside) -> Agent:
    return AGENTS[request.param](tmp_path, model, outside)


def test_an_agent_answers_calls_a_tool_is_compacted_and_loads_its_session_again(agent: Agent) -> None:
    tools = {"opencode": "bash", "hermes": "terminal", "codex": "exec_command", "claude": "Bash"}
    argument = "cmd" if agent.name == "codex" else "command"
    call = f'{tools[agent.name]} {{"{argument}": "touch made", "description": "makes a file"}}'
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        for number in range(6):
            client.prompt(session, f"number {number} [[say:This is answer {number}.]]")
        client.prompt(session, f"run [[tool:{call}]]")

        client.prompt(session, "/compact")
        client.prompt(session, "after [[say:This came after.]]")

    assert "This is answer 5." in client.text()
    assert "This came after." in client.text()
    assert (agent.folder / "made").exists()

    with agent.start() as again:
        again.initialize()
        again.ask("session/load", sessionId=session, cwd=str(agent.folder), mcpServers=[])
        again.prompt(session, "once more [[say:This came last.]]")
    assert "This came last." in again.text()


def test_codex_tells_a_compaction_of_its_own_accord(tmp_path: Path, model: DirectedModel, outside: Outside) -> None:
    agent = codex(tmp_path, model, outside)
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        client.prompt(session, "big [[say:big]] [[usage:31000]]")
        client.prompt(session, "next [[say:next]]")

    assert [status for _, status in kinds(client)] == ["in_progress", "completed"]
    assert len({id for id, _ in kinds(client)}) == 1


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by rotation"])
def test_hermes_tells_a_compaction_on_stderr(
    tmp_path: Path, model: DirectedModel, outside: Outside, in_place: bool
) -> None:
    agent = hermes(tmp_path, model, outside, in_place=in_place)
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        for number in range(6):
            client.prompt(session, f"number {number} [[words:6000]]")

    told = [line for line in client.lines if "context compression done" in line]
    assert told
    assert (session in told[0]) == in_place


def test_two_compactions_at_once_over_acp_make_two_markers_in_opencode(
    tmp_path: Path, model: DirectedModel, outside: Outside
) -> None:
    """The ill that a room mends: without one, both clients' wishes are taken up."""
    agent = opencode(tmp_path, model, outside)
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        client.prompt(session, "two [[words:300]]")

        compact = {"sessionId": session, "prompt": [{"type": "text", "text": "/compact"}]}
        asked = [client.send("session/prompt", **compact) for _ in range(2)]
        for number in asked:
            client.answer(number)

    assert compactions(agent.store, session).markers == 2
