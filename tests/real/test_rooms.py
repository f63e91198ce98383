"""Real agents behind onefold, shared by real clients."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold.model import Json
from tests.real.acp import Client
from tests.real.agents import AGENTS, hermes
from tests.real.conftest import Doctor
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.rooms import SESSION, Room, said
from tests.real.stores import Compactions, compactions, only_session

pytestmark = pytest.mark.timeout(300)


def joined(room: Room) -> Client:
    """A client that is in the room."""
    client = room.join()
    client.initialize()
    assert client.new(room.agent.folder) == SESSION
    return client


def segments(room: Room) -> list[Json]:
    """The segments that an observed compaction opened."""
    opened = [r for r in room.records() if r["kind"] == "segment.opened"]
    return [r for r in opened if r["body"]["source"] == "observed"]


def asked(room: Room) -> list[str]:
    """The prompts that the journal has."""
    return [r["body"]["prompt"][0]["text"] for r in _messages(room, "user")]


def answered(room: Room) -> list[str]:
    """What the journal has of the agent's words."""
    return [r["body"]["content"]["text"] for r in _messages(room, "agent") if "content" in r["body"]]


def _messages(room: Room, role: str) -> list[Json]:
    return [r for r in room.records() if r["kind"] == "message" and r["header"]["role"] == role]


@pytest.fixture
def make(tmp_path: Path, model: DirectedModel, outside: Outside) -> Callable[[str], Room]:
    return lambda name: Room(AGENTS[name](tmp_path, model, outside), tmp_path)


def test_two_clients_compact_at_once_and_opencode_does_it_once(make: Callable[[str], Room]) -> None:
    room = make("opencode")
    with room, joined(room) as one, joined(room) as other:
        one.prompt(SESSION, "two [[words:300]]")
        both = threading.Barrier(2)

        def compact(client: Client) -> None:
            both.wait(30)
            client.prompt(SESSION, "/compact", 120)

        threads = [threading.Thread(target=compact, args=(client,)) for client in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
        other.prompt(SESSION, "after [[say:This came after.]]")
        one.await_frame(lambda f: "This came after." in str(f))

    assert compactions(room.agent.store, only_session(room.agent.store)) == Compactions(1, 1)
    assert len(segments(room)) == 1


def test_the_sdks_over_websocket_and_acpx_over_stdio_share_one_room(make: Callable[[str], Room]) -> None:
    room = make("codex")
    with room, joined(room) as watcher:
        by_python = room.python_sdk("one [[say:Hello Python.]]")
        by_header = room.typescript_sdk("two [[say:Hello TypeScript.]]", headers=True)
        by_protocol = room.typescript_sdk("three [[say:Hello browser.]]", headers=False)
        by_acpx = room.acpx("four [[say:Hello acpx.]]")
        watcher.await_frame(lambda f: "Hello acpx." in str(f))

    answers = {"Hello Python.": by_python, "Hello TypeScript.": by_header, "Hello browser.": by_protocol}
    for text, result in answers.items():
        assert result["session"] == SESSION
        assert result["stops"] == ["end_turn"]
        assert text in said(result["updates"])
    assert "Hello acpx." in by_acpx
    assert [text.partition(" ")[0] for text in asked(room)] == ["one", "two", "three", "four"]
    kept = answered(room)
    for text in ("Hello Python.", "Hello TypeScript.", "Hello browser.", "Hello acpx."):
        assert watcher.text().count(text) == 1
        assert sum(text in words for words in kept) == 1


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_compaction_by_hand_is_one_segment(make: Callable[[str], Room], name: str) -> None:
    room = make(name)
    with room, joined(room) as client:
        for number in range(8):
            client.prompt(SESSION, f"number {number} [[words:400]]")
        client.prompt(SESSION, "/compact")
        client.prompt(SESSION, "after [[say:This came after.]]")

    assert "This came after." in client.text()
    assert len(segments(room)) == 1


def test_a_compaction_of_its_own_accord_is_one_segment_codex(make: Callable[[str], Room]) -> None:
    room = make("codex")
    with room, joined(room) as client:
        client.prompt(SESSION, "big [[say:big]] [[usage:31000]]")
        client.prompt(SESSION, "next [[say:next]]")

    assert len(segments(room)) == 1


def test_a_compaction_of_its_own_accord_is_one_segment_claude(make: Callable[[str], Room]) -> None:
    room = make("claude")
    with room, joined(room) as client:
        client.prompt(SESSION, "some [[words:300]]")
        client.prompt(SESSION, "big [[say:big]] [[usage:990000]]")
        client.prompt(SESSION, "next [[say:next]]")

    assert len(segments(room)) == 1


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by rotation"])
def test_a_compaction_of_its_own_accord_is_one_segment_hermes(
    tmp_path: Path, model: DirectedModel, outside: Outside, in_place: bool
) -> None:
    room = Room(hermes(tmp_path, model, outside, in_place=in_place), tmp_path)
    with room, joined(room) as client:
        for number in range(12):
            client.prompt(SESSION, f"number {number} [[words:6000]]")
            if model.summaries:
                break
        client.prompt(SESSION, "after [[say:This came after.]]")

    assert "This came after." in client.text()
    assert len(segments(room)) == model.summaries == 1


# ---------------------------------------------------------------------- death

DEADLY = {"in a turn": "two [[say:never]] [[hold]]", "in a compaction": "/compact"}
SAID = {"in a turn": ["one", "two", "three"], "in a compaction": ["one", "three"]}


def kill_agent(room: Room) -> None:
    room.kill_agent()


def kill_onefold(room: Room) -> None:
    room.stop(signal.SIGKILL, rest=False)
    room.start()


def kill_both(room: Room) -> None:
    room.stop(signal.SIGKILL)
    room.start()


@pytest.mark.parametrize("kill", [kill_agent, kill_onefold, kill_both])
@pytest.mark.parametrize(
    ("name", "when"),
    [*((name, "in a turn") for name in AGENTS), ("codex", "in a compaction"), ("claude", "in a compaction")],
)
def test_a_conversation_outlives_its_processes(
    make: Callable[[str], Room], model: DirectedModel, name: str, kill: Callable[[Room], None], when: str
) -> None:
    room = make(name)
    with room:
        with joined(room) as client:
            client.prompt(SESSION, "one [[say:This is the first.]]")
            if when == "in a compaction":
                model.hold_summaries()
            client.send("session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": DEADLY[when]}])
            assert model.holding.wait(60)
            kill(room)
            model.release()

        with joined(room) as again:
            again.prompt(SESSION, "three [[say:This is the last.]]", 120)
            assert again.text().endswith("This is the last.")

    answers = answered(room)
    assert [text.partition(" ")[0] for text in asked(room)] == SAID[when]
    assert sum("This is the first." in text for text in answers) == 1
    assert sum("This is the last." in text for text in answers) == 1
    kinds = Counter(r["kind"] for r in room.records())
    assert kinds["turn.started"] == kinds["turn.settled"] == 3
    assert kinds["compaction.started"] == kinds["compaction.failed"] == (when == "in a compaction")
    assert kinds["segment.opened"] == 1


def test_opencode_killed_in_a_compaction_answers_in_its_room_once_the_doctor_mended_it(
    make: Callable[[str], Room], model: DirectedModel, doctor: Doctor
) -> None:
    """By itself it would take the compaction up again at the next prompt, and answer that with the summary."""
    room = make("opencode")
    with room, joined(room) as client:
        client.prompt(SESSION, "one [[say:This is the first.]]")
        model.hold_summaries()
        client.send("session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "/compact"}])
        assert model.holding.wait(60)
        room.stop(signal.SIGKILL)
        model.release()

        assert {f["kind"] for f in doctor(room.agent.store)["findings"]} == {"armed-marker", "unfinished-summary"}
        assert doctor(room.agent.store, "--fix")["left"] == []

        room.start()
        with joined(room) as again:
            again.prompt(SESSION, "three [[say:This is the last.]]", 120)
            assert again.text().endswith("This is the last.")

    assert [text.partition(" ")[0] for text in asked(room)] == ["one", "three"]
    assert segments(room) == []
