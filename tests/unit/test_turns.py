"""Turns between real processes: writers that wait, die, stand still, fork, or have another time."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

import onefold
from onefold import Record, Session, Store, TurnBusy
from onefold.model import Json
from tests.support.helpers import PATIENCE, Child, Clock, await_record, counted, kinds, quick, together

SECONDS = 60.0
"""How long processes write turn after turn into one session, while another one is killed in its turns."""
LEAST_KILLS = 5
LONG = {"turn_lease": 600.0}
SHORT = {"turn_lease": 1.0}
CALLS: list[Json] = [
    {"role": "user", "content": "run both"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "run", "arguments": "{}"}} for id in ("a", "b")
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "b is done"},
]
HOUR = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: str, clock: Clock) -> Iterator[Store]:
    with onefold.open(path, policy=quick(), clock=clock) as opened:
        yield opened
        assert opened.verify().findings == ()


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("s")


def writer(path: str, owner: str, **arguments: Any) -> Child:
    """A process that writes in turns as it is told."""
    return Child("puppet", module="tests.support.turn_children", path=path, session="s", owner=owner, **arguments)


def told(child: Child, word: str, **details: Json) -> dict[str, Json]:
    """Tells a writer something, and gives its answer."""
    child.say(word, **details)
    return child.hear(word)


def said(text: str) -> Json:
    return {"role": "user", "content": text}


def outcomes(session: Session) -> list[str]:
    return [r.body["outcome"] for r in session.read() if r.kind == "turn.settled"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("onefold") and r.levelno >= logging.WARNING]


# ---------------------------------------------------------------------- waiting for another process


def test_a_writer_in_another_process_is_told_that_the_session_is_busy_and_by_whom(path: str, session: Session) -> None:
    with writer(path, "gateway") as first:
        assert told(first, "begin")["error"] is None
        there, last = session.open_turn(), session.state.last

        with pytest.raises(TurnBusy, match="gateway"):
            session.turn(wait=False)

        assert there is not None
        assert (there.owner, there.holder.pid) == ("gateway", first.pid)
        assert session.state.last == last
        assert told(first, "end")["error"] is None


def test_a_writer_gets_the_turn_of_another_process_as_soon_as_that_ends(path: str, session: Session) -> None:
    """The lease has ten minutes left, so it cannot be that."""
    with writer(path, "first", policy=LONG) as first, writer(path, "second", policy=LONG) as second:
        began = told(first, "begin")["number"]
        second.say("begin", wait=PATIENCE)
        told(first, "append", messages=said("one"))
        told(first, "append", messages=said("two"))
        assert second.silent()

        told(first, "end")
        follows = second.hear("begin")

        assert follows["error"] is None
        assert told(second, "append", messages=said("three"))["error"] is None
        assert told(second, "end")["error"] is None
    assert kinds(session, began) == [
        "turn.started", "message", "message", "turn.settled", "turn.started", "message", "turn.settled",
    ]  # fmt: skip


def test_a_writer_that_lives_is_waited_for_however_long_its_turn_takes(path: str, session: Session) -> None:
    """Its process renews the lease, of which more than one passes here."""
    with writer(path, "slow", policy={"turn_lease": 1.2}) as slow:
        told(slow, "begin")

        with pytest.raises(TurnBusy, match="slow"):
            session.turn(wait=3.0)

        assert told(slow, "append", messages=said("still there"))["error"] is None
        assert told(slow, "end")["error"] is None
    assert outcomes(session) == ["settled"]


def test_of_many_processes_that_want_the_turn_at_once_one_gets_it(path: str, session: Session) -> None:
    names = ["one", "two", "three"]
    rounds = 20
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                Child("try_rounds", module="tests.support.turn_children", path=path, session="s", owner=name)
            )
            for name in names
        ]
        for _ in range(rounds):
            for child in children:
                child.say("round")
            together(*children)
            answers = [child.hear("tried")["error"] for child in children]
            for child in children:
                child.say("end")
            for child in children:
                child.hear("ended")

            assert sorted(answers, key=str) == [None, "TurnBusy", "TurnBusy"]
    assert outcomes(session) == ["settled"] * rounds
    assert kinds(session, 2) == ["turn.started", "message", "turn.settled"] * rounds


# ---------------------------------------------------------------------- writers that die or stand still


def test_a_killed_writers_turn_is_settled_as_interrupted_once_its_lease_is_over(
    path: str, session: Session, clock: Clock
) -> None:
    """F26, F41: its open call gets a result that says so, and nobody waits for ever."""
    with writer(path, "dead", elsewhere=True) as dead:
        began = told(dead, "begin")["number"]
        told(dead, "append", messages=CALLS)
        dead.kill()
    with pytest.raises(TurnBusy, match="dead"):
        session.turn(wait=False)

    clock.ahead = 31.0
    with session.turn(wait=False) as turn:
        turn.append(said("go on"))

    assert kinds(session, began) == [
        "turn.started", *["message"] * 4, "turn.settled", "turn.started", "message", "turn.settled",
    ]  # fmt: skip
    result, ended = session.read(began + 4, began + 6)
    assert result.body == {
        "role": "tool", "tool_call_id": "a", "content": "(no result: the turn was interrupted before it came)",
    }  # fmt: skip
    assert ended.body["outcome"] == "interrupted"
    assert f"process {dead.pid} on" in ended.body["cause"]
    assert session.context().numbers == (began + 1, began + 2, began + 3, began + 4, began + 7)


def test_whoever_waits_takes_a_killed_writers_turn_over_when_the_lease_ends(path: str, session: Session) -> None:
    with writer(path, "dead", policy=SHORT, elsewhere=True) as dead:
        told(dead, "begin")
        dead.kill()
    start = time.monotonic()

    session.turn(wait=PATIENCE).end()

    assert time.monotonic() - start < 10
    assert outcomes(session) == ["interrupted", "settled"]


@pytest.mark.parametrize("how", ["taken over", "stopped from outside", "rewound"])
def test_a_writer_that_stood_still_and_lost_its_turn_is_refused_with_nothing_written(
    path: str, session: Session, clock: Clock, how: str
) -> None:
    """F04, for turns: the process wakes up after its lease, its next message is on the way, and does not land."""
    with writer(path, "slow") as slow:
        told(slow, "begin")
        before = told(slow, "append", messages=said("in time"), key="k")
        session.queue_input(said("an input"))
        session.context()
        slow.stop()
        match how:
            case "taken over":
                clock.ahead = 31.0
                second = session.turn(owner="second", wait=False)
            case "stopped from outside":
                session.stop_turn("enough")
            case _:
                session.rewind(1)
        journal = list(session.read())
        slow.resume()

        refused = told(slow, "append", messages=[said("too late"), said("this too")])
        taken = told(slow, "take")
        ended = told(slow, "end")
        again = told(slow, "append", messages=said("in time"), key="k")

        assert refused["error"] == taken["error"] == ended["error"] == "TurnLost"
        assert "nothing was written" in refused["text"]
        assert (again["error"], again["duplicate"], again["numbers"]) == (None, True, before["numbers"])
        assert list(session.read()) == journal
    if how == "taken over":
        second.end()


def test_a_writer_that_leaves_its_store_ends_its_turn_at_once(path: str, session: Session) -> None:
    with writer(path, "first", policy=LONG) as first:
        told(first, "begin")
        first.say("leave")
        first.hear("left")

    session.turn(wait=False).end()

    assert outcomes(session) == ["interrupted", "settled"]


# ---------------------------------------------------------------------- inputs, each for one turn


def test_each_input_is_taken_by_one_turn_of_one_process(path: str, session: Session) -> None:
    session.append([said(f"message {n} " + "word " * 30) for n in range(10)])
    assert session.compact(lambda _: "what was said", follow_up=said("the follow-up")).applied
    for n in range(40):
        session.queue_input(said(f"input {n}"))

    with ExitStack() as stack:
        children = [
            stack.enter_context(
                Child("take_all", module="tests.support.turn_children", path=path, session="s", owner=f"taker {n}")
            )
            for n in range(3)
        ]
        together(*children)
        got = sorted(taken for child in children for taken in child.hear("done")["got"])

    assert [text for _, text, _ in got] == ["the follow-up", *(f"input {n}" for n in range(40))]
    assert len({turn for _, _, turn in got}) == 41
    assert counted(session, "input.taken") == 41
    assert session.state.pending == 0


def test_the_same_key_takes_the_same_input_from_another_process(path: str, session: Session) -> None:
    """The first one died after it took the input, and before anybody knew."""
    session.queue_input(said("an input"))
    session.queue_input(said("another"))
    with writer(path, "first") as first:
        told(first, "begin")
        taken = told(first, "take", key="k")["number"]
        first.kill()
    session.stop_turn()

    with writer(path, "second") as second:
        told(second, "begin")
        assert told(second, "take", key="k")["number"] == taken
        assert told(second, "take", key="another key")["number"] == session.state.last
        told(second, "end")
    assert session.state.pending == 0


# ---------------------------------------------------------------------- a lease part that does not work


@pytest.mark.parametrize("broken", ["missing", "AttributeError", "OSError"])
def test_processes_without_a_working_lease_still_write_one_at_a_time(
    path: str, store: Store, clock: Clock, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """F03: others wait as long as the first lease said; whoever is taken over after that is refused."""
    session = store.session("s")
    if broken == "missing":
        connection = apsw.Connection(path)
        connection.execute("drop table turn_leases")
        connection.close()
    raising = None if broken == "missing" else broken

    with writer(path, "first", broken=raising) as first, writer(path, "second", broken=raising, ahead=31.0) as second:
        began = told(first, "begin")["number"]
        assert told(first, "append", messages=said("one"))["error"] is None
        with pytest.raises(TurnBusy, match="first"):
            session.turn(wait=False)
        assert told(second, "begin")["error"] is None
        refused = told(first, "append", messages=said("two"))
        assert told(second, "append", messages=said("three"))["error"] is None
        assert told(second, "end")["error"] is None
        said_so = []
        for child in (first, second):
            child.say("leave")
            said_so.append(child.hear("left")["warnings"])

    assert refused["error"] == "TurnLost"
    assert kinds(session, began) == [
        "turn.started", "message", "turn.settled", "turn.started", "message", "turn.settled",
    ]  # fmt: skip
    for texts in said_so:
        assert len(texts) == 1
        assert "onefold verify --fix" in texts[0]
    store.verify(fix=True)
    caplog.clear()
    with session.turn(wait=False):
        clock.ahead = 1.0
    assert warnings(caplog) == []


# ---------------------------------------------------------------------- forks


def test_a_turn_belongs_to_the_process_that_began_it(path: str, session: Session) -> None:
    with Child("fork_in_turn", module="tests.support.turn_children", path=path) as child:
        done = child.hear("done")

    append, take, end, let_go, begin = done["told"]
    for answer in (append, take, end):
        assert "belongs to process" in answer
    assert let_go == "nothing"
    assert begin.startswith("TurnBusy")
    assert (done["status"], done["last"]) == (0, 3)
    assert kinds(session) == ["segment.opened", "turn.started", "message", "message", "turn.settled"]
    assert outcomes(session) == ["settled"]


# ---------------------------------------------------------------------- many turns


class Story:
    """What writers noted, and what the journal says."""

    def __init__(self, session: Session, notes: list[Path]) -> None:
        lines = [json.loads(line) for file in notes for line in file.read_text().splitlines()]
        self.written = {line["text"]: line["number"] for line in lines if line["what"] == "written"}
        self.refused = {line["text"] for line in lines if line["what"] == "refused"}
        self.lost = sum(line["what"] == "lost" for line in lines)
        self.records: dict[int, Record] = {record.number: record for record in session.read()}
        self.messages = [r for r in self.records.values() if r.kind == "message"]
        self.texts = [r.body["content"] for r in self.messages]
        self.turns: list[list[Record]] = []

    def check(self, unanswered: int = 0) -> None:
        """Every acknowledged append is there, nothing twice, nothing refused, no turn in another one. As many as
        `unanswered` may be there without an answer: those of killed processes."""
        assert {t: self.records[n].body["content"] for t, n in self.written.items()} == {t: t for t in self.written}
        assert len(self.texts) == len({*self.texts})
        assert self.refused.isdisjoint(self.texts)
        assert len({*self.texts} - self.written.keys()) <= unanswered
        for record in self.records.values():
            if record.kind == "turn.started":
                assert not self.turns or self.turns[-1][-1].kind == "turn.settled", record
                self.turns.append([])
            if self.turns:
                self.turns[-1].append(record)
        for start, *inside, end in self.turns:
            assert (start.kind, end.kind) == ("turn.started", "turn.settled")
            assert {r.kind for r in inside} <= {"message"}
            assert {r.turn for r in (start, *inside, end)} == {start.turn}
            steps = [r.body["content"].rsplit("/", 1) for r in inside]
            assert len({name for name, _ in steps}) <= 1
            assert [int(step) for _, step in steps] == [*range(len(steps))]

    def ended(self, outcome: str) -> int:
        return sum(turn[-1].body["outcome"] == outcome for turn in self.turns)


def test_processes_whose_clocks_are_hours_apart_never_write_in_one_anothers_turns(
    path: str, session: Session, tmp_path: Path
) -> None:
    """Each takes the others' leases for over, and their turns. That costs turns, and mixes nothing."""
    clocks = [0.0, 6 * HOUR, -6 * HOUR]
    notes = [tmp_path / f"notes-{n}" for n in range(len(clocks))]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                Child(
                    "write_turns", module="tests.support.turn_children", path=path, session="s", owner=f"writer {n}",
                    notes=str(notes[n]), seconds=20.0, most=40, appends=6, ahead=ahead,
                )
            )
            for n, ahead in enumerate(clocks)
        ]  # fmt: skip
        together(*children)
        for child in children:
            child.hear("done")

    session.stop_turn()
    story = Story(session, notes)
    story.check()
    assert story.lost > 0
    assert story.ended("settled") > 0
    assert story.ended("interrupted") <= story.lost


@pytest.mark.first
@pytest.mark.timeout(180)
def test_two_processes_write_turns_for_a_minute_while_a_third_is_killed_in_its_own(
    path: str, session: Session, tmp_path: Path
) -> None:
    """Whatever happens, the journal is a row of whole turns, each with its end and with its own messages alone."""
    notes = [tmp_path / f"notes-{n}" for n in range(3)]
    chance = random.Random(12)
    kills = 0

    def start(n: int, **arguments: Any) -> Child:
        return Child(
            "write_turns", module="tests.support.turn_children", path=path, session="s", owner=f"writer {n}",
            notes=str(notes[n]), policy=SHORT, **arguments,
        )  # fmt: skip

    with start(0, seconds=SECONDS) as one, start(1, seconds=SECONDS) as two:
        together(one, two)
        ends = time.monotonic() + SECONDS - 5
        while time.monotonic() < ends:
            with start(2, appends=1_000_000, aloud=True) as doomed:
                together(doomed)
                for _ in range(chance.randint(1, 30)):
                    doomed.hear("written", "refused", "lost")  # the last two where the machine stood still for long
                doomed.kill()
                kills += 1
        one.hear("done")
        two.hear("done")

    with session.turn(wait=PATIENCE):
        pass  # the last one that was killed is settled on the way
    story = Story(session, notes)
    story.check(unanswered=kills)
    assert kills >= LEAST_KILLS
    assert LEAST_KILLS <= story.ended("interrupted") <= kills + story.lost
    assert story.ended("settled") > kills
    owners = [turn[0].body["owner"] for turn in story.turns]
    assert {a for a, b in pairwise(owners) if a != b} >= {"writer 0", "writer 1", "writer 2"}


def test_what_a_turn_writes_is_followed_in_another_process_as_it_comes(path: str, session: Session) -> None:
    """F74: whoever watches knows of the turn, its messages and its end."""
    with writer(path, "gateway") as first:
        told(first, "begin")
        started = await_record(session, "turn.started")
        told(first, "append", messages=said("one"))
        message = await_record(session, "message")
        told(first, "end")
        settled = await_record(session, "turn.settled")

    assert started.body["owner"] == "gateway"
    assert {r.turn for r in (started, message, settled)} == {started.turn}
