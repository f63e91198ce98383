"""Races between real processes: compacting, asking, appending and following at once. Nothing here ends by luck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import apsw
import pytest

import onefold
from onefold import Store
from onefold.model import AppendResult, Lease, Segment
from onefold.storage.sqlite import SqliteBackend, fair_lock
from onefold.storage.sqlite.backend import connect
from tests.support.helpers import PATIENCE, Child, await_record, contents, converse, counted, kinds, quick, together
from verification.operations import talk

ROUNDS = 200


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def store(path: str) -> Iterator[Store]:
    with onefold.open(path, policy=quick()) as opened:
        yield opened


def lease_of(store: Store, session: str) -> Lease | None:
    return store.journal.backend.read(lambda tx: tx.leases.get(session))


def forked(segments: list[Segment]) -> bool:
    """Whether a segment has two successors, or one lies beside the line."""
    return [s.base for s in segments] != [None, *(s.number for s in segments[:-1])]


# ---------------------------------------------------------------------- compacting at once


def test_two_processes_compact_at_once_and_each_round_has_one_segment_and_one_bill(path: str, store: Store) -> None:
    """Item 1. F01: no second child of a segment. F07: merging is in the store. F40: nobody is left "compacting"."""
    session = store.session("s")

    with Child("compact_rounds", path=path, session="s") as a, Child("compact_rounds", path=path, session="s") as b:
        for n in range(ROUNDS):
            converse(session, 6, start=6 * n + 1)
            for child in (a, b):
                child.say("round")
            together(a, b, overlap="joins" if n % 4 == 0 else None)
            one, other = a.hear("done"), b.hear("done")

            assert one["result"]["id"] == other["result"]["id"]
            assert one["paid"] + other["paid"] == 1
            assert [one["result"]["applied"], other["result"]["applied"]] == [bool(one["paid"]), bool(other["paid"])]
            assert one["result"]["segment"] == other["result"]["segment"] == session.head
            assert session.state.committed == n + 1
            assert (session.state.open, session.compaction_holder(), lease_of(store, "s")) == (None, None, None)
        assert one["warnings"] == other["warnings"] == []

    assert counted(session, "compaction.joined") >= ROUNDS // 4
    assert len(session.segments()) == ROUNDS + 1
    assert not forked(session.segments())
    assert [c.state for c in session.compactions()] == ["committed"] * ROUNDS
    assert [r.body for r in session.read() if r.kind == "message"] == talk(6 * ROUNDS)
    assert store.verify().healthy


@pytest.mark.parametrize("when", ["while it runs", "when it is done"])
def test_whoever_comes_second_pays_nothing_and_its_loop_ends_after_one_round(
    path: str, store: Store, when: str
) -> None:
    """Item 2. F06, F42: the loop "compact while too big" of the second one does not go round and round."""
    session = store.session("s")
    converse(session, 20)
    limit = 500

    with Child("compact_while_too_big", path=path, session="s", limit=limit) as second:
        second.hear("ready")
        before = session.context()
        with Child("hold", path=path, session="s") as first:
            first.hear("summarizing")
            if when == "while it runs":
                second.say("go")
                await_record(session, "compaction.joined")
            first.say("finish")
            won = first.hear("done")["result"]
        if when == "when it is done":
            second.say("go")
        told = second.hear("done")

    assert before.tokens > limit > session.context().tokens
    assert (told["called"], told["unchanged"], told["too_big"]) == ([], True, False)
    assert len(told["rounds"]) == 1
    (result,) = told["rounds"]
    assert (result["id"], result["segment"]) == (won["id"], won["segment"])
    assert (result["joined"], result["applied"]) == (True, False)
    assert len(session.compactions()) == 1
    assert counted(session, "segment.opened") == 2


def test_three_triggers_at_once_are_one_compaction_with_three_requests(path: str, store: Store) -> None:
    """Item 6. F06, F07: a person, a threshold and an overflow, each in a process of its own."""
    session = store.session("s")
    converse(session, 20)
    triggers = ["manual", "threshold", "overflow"]

    with ExitStack() as stack:
        children = [
            stack.enter_context(Child("trigger_one", path=path, session="s", trigger=t, requests=3)) for t in triggers
        ]
        together(*children)
        told = [child.hear("done") for child in children]

    (only,) = session.compactions()
    assert (only.state, only.requests, only.attempts) == ("committed", 3, 1)
    assert {t["result"]["id"] for t in told} == {only.id}
    assert sorted(t["result"]["joined"] for t in told) == [False, True, True]
    assert sum(len(t["called"]) for t in told) == 1
    asked = [r.body["trigger"] for r in session.read() if r.kind in ("compaction.requested", "compaction.joined")]
    assert sorted(asked) == sorted(triggers)
    assert counted(session, "compaction.requested") == counted(session, "segment.opened") - 1 == 1


def test_a_request_measured_on_an_old_segment_opens_nothing_and_returns_the_successor(path: str, store: Store) -> None:
    """Item 9, F02 in this and in a later process: the number that was measured is all that has to be remembered."""
    stale = store.session("s")
    converse(stale, 20)
    measured = stale.context().segment
    with Child("compact_when_told", path=path, session="s") as other:
        together(other)
        done = other.hear("done")["result"]
    converse(stale, 4, start=21)
    last = stale.state.last

    here = stale.compact(lambda _: "never made")
    with Child("compact_when_told", path=path, session="s", base=measured) as restarted:
        together(restarted)
        told = restarted.hear("done")

    for result in (onefold.CompactResult(**told["result"]), here):
        assert (result.id, result.segment, result.state) == (done["id"], done["segment"], "committed")
        assert (result.joined, result.applied) == (True, False)
    assert told["paid"] == []
    assert stale.state.last == last
    assert len(stale.compactions()) == 1


# ---------------------------------------------------------------------- what arrives in mid compaction


def test_a_user_message_in_mid_compaction_neither_owns_the_summary_nor_is_swallowed(path: str, store: Store) -> None:
    """Item 8. F08: the next prompt is answered. F20: it is not archived. F73: its segment is told by its number."""
    session = store.session("s")
    said = converse(session, 20)
    prompt = {"role": "user", "content": "and what about the tests?"}

    with Child("hold", path=path, session="s", text="they spoke of words") as holder:
        given = holder.hear("summarizing")["messages"]
        number = session.append(prompt).numbers[0]
        holder.say("finish")
        holder.hear("done")

    context = session.context()
    assert prompt not in given
    assert given == said[: len(given)]
    assert context.messages[-1] == prompt
    assert context.numbers[-1] == number
    assert context.messages[1:] == [*said[len(given) :], prompt]
    assert "they spoke of words" in context.messages[0]["content"]
    (committed,) = [s for s in session.segments() if s.source == "compaction"]
    opened = next(r for r in session.read(committed.number) if r.kind == "segment.opened")
    assert opened.body["summary"] == "they spoke of words"
    assert committed.cut <= number < committed.number
    assert (opened.turn, opened.header) == (None, None)


def test_appends_during_a_slow_summary_return_while_it_is_still_being_made(path: str, store: Store) -> None:
    """Item 11. F21: not refused and not delayed. F20: not lost, and in order."""
    session = store.session("s")
    said = converse(session, 20)

    with Child("hold", path=path, session="s") as holder:
        given = holder.hear("summarizing")["messages"]
        more = talk(60, start=21)
        numbers = [session.append(message).numbers[0] for message in more]

        # All of them are durable, and the summarizer has not even been told to go on.
        held = session.compaction_holder()
        assert held is not None
        assert held.pid == holder.pid
        assert holder.silent()
        assert session.state.committed == 0
        assert numbers == list(range(numbers[0], numbers[0] + 60))

        holder.say("finish")
        holder.hear("done")

    assert session.context().messages[1:] == [*said[len(given) :], *more]
    assert session.context().numbers[-60:] == tuple(numbers)
    assert [r.body for r in session.read() if r.kind == "message"] == [*said, *more]


def test_a_follower_in_another_process_sees_a_compaction_as_it_happens(path: str, store: Store) -> None:
    """Item 10. F70: nobody has to reload to see that it began, and that it is over."""
    session = store.session("s")
    converse(session, 20)
    last = session.state.last
    story = ["compaction.requested", "compaction.started"]
    end = ["compaction.committed", "segment.opened"]

    with Child("follow", path=path, session="s", after=last, until="segment.opened") as follower:
        follower.hear("following")
        with Child("hold", path=path, session="s") as holder:
            holder.hear("summarizing")
            live = [follower.hear("record") for _ in story]
            assert [r["kind"] for r in live] == story
            assert follower.silent()
            holder.say("finish")
            live += [follower.hear("record") for _ in end]
        follower.hear("done")
    with Child("follow", path=path, session="s", after=last, until="segment.opened") as latecomer:
        latecomer.hear("following")
        late = [latecomer.hear("record") for _ in (*story, *end)]

    assert [r["kind"] for r in live] == [*story, *end]
    assert [r["number"] for r in live] == list(range(last + 1, last + 5))
    assert late == live


# ---------------------------------------------------------------------- appending at once


@pytest.mark.parametrize("sessions", [["one"], ["one", "two", "three"]], ids=["one session", "several"])
def test_processes_and_threads_append_at_once_and_every_message_stands_once(
    path: str, store: Store, sessions: list[str]
) -> None:
    """Numbers without gaps, nothing lost, nothing twice; a follower sees the same, no gap and no repeat."""
    processes, threads = 4, 3
    count = 24 // len(sessions)
    total = processes * threads * count
    for id in sessions:
        store.session(id)

    with ExitStack() as stack:
        follower = stack.enter_context(Child("follow", path=path, session=sessions[-1], last=total + 1))
        children = [
            stack.enter_context(
                Child("append_many", path=path, sessions=sessions, threads=threads, count=count, who=f"p{n}")
            )
            for n in range(processes)
        ]
        follower.hear("following")
        together(*children)
        told = [child.hear("done") for child in children]
        seen = [follower.hear("record") for _ in range(total + 1)]
        follower.hear("done")

    assert [t["failed"] for t in told] == [[]] * processes
    for id in sessions:
        records = list(store.session(id).read())
        assert [r.number for r in records] == list(range(1, total + 2))
        stand = {r.number: r.body["content"] for r in records if r.kind == "message"}
        assert stand == {number: text for t in told for number, text in t["got"][id]}
        assert len(set(stand.values())) == total
        for n in range(processes):
            for thread in range(threads):
                own = [text for text in stand.values() if text.startswith(f"p{n}/{thread}/")]
                assert own == [f"p{n}/{thread}/{i}" for i in range(count)]
    assert [(r["number"], r["id"]) for r in seen] == [(r.number, r.id) for r in store.session(sessions[-1]).read()]
    assert store.verify().healthy


def test_a_keyed_append_by_two_processes_at_once_stands_once(path: str, store: Store) -> None:
    """F10: what is sent again after a lost answer is not there twice."""
    session = store.session("s")
    rounds = 40

    with Child("append_keyed", path=path, session="s") as a, Child("append_keyed", path=path, session="s") as b:
        for n in range(rounds):
            for child in (a, b):
                child.say("round", key=f"key {n}")
            together(a, b)
            one, other = a.hear("done"), b.hear("done")

            assert one["numbers"] == other["numbers"]
            assert sorted([one["duplicate"], other["duplicate"]]) == [False, True]

    expected = [f"key {n}, part {part}" for n in range(rounds) for part in (1, 2)]
    assert contents([r.body for r in session.read() if r.kind == "message"]) == expected


def test_processes_that_make_the_same_store_and_session_at_once_get_the_same(tmp_path: Path) -> None:
    """The one that came second finds what the first one made, half made or whole."""
    names = ["a", "b", "c"]

    with ExitStack() as stack:
        children = [stack.enter_context(Child("create_rounds", who=name)) for name in names]
        for n in range(20):
            path = str(tmp_path / f"{n}.db")
            for child in children:
                child.say("round", path=path)
            together(*children)
            told = [child.hear("done") for child in children]

            assert len({t["generation"] for t in told}) == 1
            with onefold.open(path, create=False) as store:
                session = store.session("same", create=False)
                assert kinds(session) == ["segment.opened", "message", "message", "message"]
                by_number = {t["number"]: name for t, name in zip(told, names, strict=True)}
                assert [r.body["content"] for r in session.read(2)] == [by_number[i] for i in (2, 3, 4)]
                assert store.verify().healthy


def test_a_store_that_another_process_is_just_making_is_waited_for(path: str) -> None:
    """SQLite refuses to switch a file to WAL while another one is at it, at once and without waiting."""
    with Child("lock_when_told", path=path) as child:
        child.hear("ready")
        seen: list[str] = []

        def watched(path: str) -> apsw.Connection:
            connection = connect(path)

            def trace(_: object, statement: str, __: object) -> bool:
                seen.append(statement)
                if "journal_mode" in statement and "locked" not in seen:
                    child.say("lock")
                    seen.append(child.hear("locked")["word"])
                elif statement == "begin exclusive" and "locked" in seen:
                    child.say("let go")
                return True

            connection.exec_trace = trace
            return connection

        with Store(SqliteBackend(path, connect=watched)) as store:
            store.session("s").append({"role": "user", "content": "first"})

    assert "begin exclusive" in seen[seen.index("locked") :]
    with onefold.open(path, create=False) as store:
        assert kinds(store.session("s")) == ["segment.opened", "message"]


# ---------------------------------------------------------------------- dying at a bad moment


def append_in_thread(store: Store, text: str) -> tuple[threading.Thread, SimpleQueue[Any]]:
    """An append that is under way while the test goes on; its answer or its error comes out of the queue."""
    answers: SimpleQueue[Any] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(store.session("s").append({"role": "user", "content": text}))
        except Exception as error:
            answers.put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, answers


@pytest.mark.parametrize("held", ["hold_gate", "hold_transaction"])
def test_a_process_that_dies_with_the_lock_in_its_hands_stops_nobody(path: str, store: Store, held: str) -> None:
    """F46: whoever waits goes on as soon as it is dead, and nothing of its half done work is there."""
    session = store.session("s")
    session.append({"role": "user", "content": "first"})
    arguments = {"session": "s"} if held == "hold_transaction" else {}

    with Child(held, path=path, **arguments) as child:
        child.hear("holding")
        thread, answers = append_in_thread(store, "second")
        assert session.state.messages == 1
        child.kill()
        answer = answers.get(timeout=PATIENCE)
        thread.join(PATIENCE)

    assert answer == AppendResult((3,))
    assert contents([r.body for r in session.read(2)]) == ["first", "second"]
    assert store.verify().healthy


def test_a_process_that_is_stopped_with_the_gate_in_its_hands_delays_others_but_stops_nobody(
    path: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is for fairness: after a while one goes without, and takes turns again when it is free."""
    monkeypatch.setattr(fair_lock, "PATIENCE", 0.05)
    session = store.session("s")

    with Child("hold_gate", path=path) as child:
        child.hear("holding")
        child.stop()
        first = session.append({"role": "user", "content": "first"})
        second = session.append({"role": "user", "content": "second"})
    third = session.append({"role": "user", "content": "third"})

    assert (first.numbers, second.numbers, third.numbers) == ((2,), (3,), (4,))
