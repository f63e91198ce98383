"""The doctor and OpenViking: no false alarm on what the program made, and the program goes on with what was mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold.model import Json
from tests.real.conftest import Doctor
from tests.real.model import DirectedModel
from tests.real.openviking import NOTHING_TO_LEARN, OpenViking
from tests.real.outside import Outside

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def model() -> Iterator[DirectedModel]:
    with DirectedModel(summary=NOTHING_TO_LEARN) as made:
        yield made


@pytest.fixture
def viking(tmp_path: Path, model: DirectedModel, outside: Outside) -> OpenViking:
    return OpenViking(tmp_path, model, outside)


def texts(first: int, count: int) -> list[str]:
    return [f"message {number}" for number in range(first, first + count)]


def live(viking: OpenViking, session: str) -> list[str]:
    return [m["parts"][0]["text"] for m in viking.context(session)["messages"]]


def archived(viking: OpenViking, session: str, number: int) -> list[str]:
    file = viking.sessions / session / f"history/archive_{number:03}/messages.jsonl"
    return [json.loads(line)["parts"][0]["text"] for line in file.read_text().split("\n") if line]


WAYS: list[Json] = [
    {"keep_recent_count": 10},
    {"keep_recent_count": 0},
    {"keep_recent_count": 10, "enable_working_memory": True},
    {"retention_mode": "turn_budget", "keep_recent_turn_count": 3},
    {"keep_recent_count": 25},
]


def test_a_workspace_with_a_thousand_messages_and_ten_commits_of_its_own_is_healthy(
    viking: OpenViking, doctor: Doctor
) -> None:
    with viking:
        viking.create("long")
        for number in range(10):
            viking.add("long", texts(100 * number, 100))
            assert viking.commit("long", **WAYS[number % len(WAYS)])["status"] == "completed"
        viking.create("short")
        viking.add("short", texts(0, 10))

    examined = doctor(viking.workspace)
    assert examined["units"] == 2
    assert examined["findings"] == []


def test_a_session_whose_archived_messages_live_again_is_mended_loaded_and_committed(
    viking: OpenViking, doctor: Doctor
) -> None:
    file = viking.sessions / "lost/messages.jsonl"
    with viking:
        viking.create("lost")
        viking.add("lost", texts(0, 60))
        before = file.read_bytes()
        viking.commit("lost", keep_recent_count=10)
    file.write_bytes(before)  # the write that empties the live file was lost

    found = doctor(viking.workspace)["findings"]
    assert [f["kind"] for f in found if f["mendable"]] == ["stale-messages"]
    assert doctor(viking.workspace, "--fix")["left"] == []

    with viking:
        assert live(viking, "lost") == texts(50, 10)
        viking.add("lost", texts(60, 40))
        assert viking.commit("lost", keep_recent_count=10)["status"] == "completed"
        assert live(viking, "lost") == texts(90, 10)
    assert archived(viking, "lost", 1) == texts(0, 50)
    assert archived(viking, "lost", 2) == texts(50, 40)
    assert doctor(viking.workspace)["findings"] == []
