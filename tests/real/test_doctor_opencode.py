"""The doctor and OpenCode: no false alarm on what the program made, and the program goes on with what was mended."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real.agents import Agent, opencode
from tests.real.conftest import Doctor
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.stores import Compactions, compactions, count

COMPACT = [{"type": "text", "text": "/compact"}]


def answer_to_the_next_prompt(agent: Agent, session: str) -> str:
    """What a user gets who comes back to a session and asks."""
    with agent.start() as client:
        client.initialize()
        client.ask("session/load", sessionId=session, cwd=str(agent.folder), mcpServers=[])
        replayed = len(client.text())
        client.prompt(session, "Are you there? [[say:I am.]]")
        return client.text()[replayed:]


def twin(agent: Agent, store: Path) -> Agent:
    """The same agent on a copy of its store, with what the last write left beside it."""
    for end in ("", "-wal"):
        if (file := agent.store.with_name(agent.store.name + end)).exists():
            shutil.copy(file, store.with_name(store.name + end))
    return replace(agent, store=store, environment={**agent.environment, "OPENCODE_DB": str(store)})


@pytest.mark.timeout(900)
def test_a_store_with_a_thousand_messages_and_ten_compactions_of_its_own_is_healthy(
    tmp_path: Path, model: DirectedModel, outside: Outside, doctor: Doctor
) -> None:
    agent = opencode(tmp_path, model, outside, window=200_000)
    note = agent.folder / "note.txt"
    note.write_text("a note\n")
    read = f"[[tool:read {json.dumps({'filePath': str(note)})}]] [[times:9]]"

    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        for compaction in range(10):
            for number in range(9):
                client.prompt(session, f"number {compaction} {number} {read}")
            big = f"big {compaction} [[say:big]] [[usage:199000]]"
            client.prompt(session, "/compact" if compaction % 2 else big)
        while count(agent.store, "message") < 1000:
            client.prompt(session, f"and more {read}")

    assert compactions(agent.store, session) == Compactions(10, 10)
    assert doctor(agent.store)["findings"] == []


@pytest.mark.timeout(200)
def test_a_session_killed_in_the_middle_of_its_summary_answers_again_once_it_is_mended(
    tmp_path: Path, model: DirectedModel, outside: Outside, doctor: Doctor
) -> None:
    agent = opencode(tmp_path, model, outside)
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        client.prompt(session, "two [[words:300]]")
        model.hold_summaries()
        client.send("session/prompt", sessionId=session, prompt=COMPACT)
        assert model.holding.wait(60)
        client.process.kill()
        client.process.wait(10)
    model.release()
    unmended = twin(agent, tmp_path / "unmended.db")

    found = doctor(agent.store)["findings"]
    assert {f["kind"] for f in found} == {"armed-marker", "unfinished-summary"}
    assert doctor(agent.store, "--fix")["left"] == []

    assert answer_to_the_next_prompt(agent, session) == "I am."
    assert compactions(agent.store, session) == Compactions(0, 0)
    assert doctor(agent.store)["findings"] == []
    assert answer_to_the_next_prompt(unmended, session) != "I am."


@pytest.mark.timeout(200)
def test_a_session_that_was_compacted_twice_at_once_answers_once_it_is_mended(
    tmp_path: Path, model: DirectedModel, outside: Outside, doctor: Doctor
) -> None:
    agent = opencode(tmp_path, model, outside)
    with agent.start() as client:
        client.initialize()
        session = client.new(agent.folder)
        client.prompt(session, "two [[words:300]]")
        asked = [client.send("session/prompt", sessionId=session, prompt=COMPACT) for _ in range(2)]
        for number in asked:
            client.answer(number)
    assert compactions(agent.store, session).markers == 2

    assert doctor(agent.store)["findings"]
    assert doctor(agent.store, "--fix")["left"] == []

    assert compactions(agent.store, session) == Compactions(1, 1)
    assert answer_to_the_next_prompt(agent, session) == "I am."
    assert doctor(agent.store)["findings"] == []
