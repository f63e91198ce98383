"""Forks, on every kind of store: a past that is shared and not copied, and a life that touches nobody else's."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from onefold import CompactionDisabled, KeyConflict, OnefoldError, Record, Session, Store
from onefold.journal.journal import Journal
from onefold.model import ForkKind
from tests.conftest import running, said
from tests.support.children import open_store as open_in_child
from tests.support.engines import Counting
from tests.support.fault_injection import open_store
from tests.support.forks import all_of, own_records
from tests.support.helpers import PATIENCE, Child, at_barrier, hear, said_in, say, together
from tests.support.plans import answer, calls, result, user
from tests.support.undone_views import fold, looked, nothing_changes
from verification.operations import damage, rows

FORKS: tuple[ForkKind, ...] = get_args(ForkKind)


def fold_in(journal: Journal, session: str, text: str, cut: int | None = None) -> int:
    return journal.commit(running(journal, session), text, cut).number


def texts(session: Session) -> list[int]:
    """Which of the numbered messages a session shows, the summary aside."""
    context = session.context()
    return [
        int(m["content"].split()[1])
        for n, m in zip(context.numbers, context.messages, strict=True)
        if n not in (0, context.segment)
    ]


# ---------------------------------------------------------------------- a past by reference


@pytest.mark.parametrize("kind", FORKS)
def test_a_fork_shows_what_its_parent_showed_and_copies_nothing(
    session: Session, journal: Journal, kind: ForkKind
) -> None:
    fold(journal, "the first four", 6)
    session.pin(3)
    session.note("rule", "do not push")
    before = session.context()

    child = session.fork(kind)

    context = child.context()
    assert (context.notes, context.pinned, context.summary) == (before.notes, before.pinned, before.summary)
    assert context.messages[-2:] == [m for n, m in zip(before.numbers, before.messages, strict=True) if n in (6, 7)]
    assert {*before.numbers} >= {3, 6, 7} <= {*context.numbers}
    assert child.state.tokens == said_in(context)[1], "what was marked since stands in front of it"
    assert [r.kind for r in own_records(journal, child.id)] == ["fork", "segment.opened"]
    assert child.state.parent == "s"
    assert own_records(journal, child.id)[0].body["kind"] == kind


def test_the_numbers_of_a_fork_go_on_where_it_left_its_parent(session: Session, journal: Journal) -> None:
    child = session.fork()

    assert child.append(said(7)).numbers == (10,)
    assert (child.state.forked_at, child.state.last) == (7, 10)
    assert [r.number for r in child.read()] == [*range(1, 11)]
    assert [r.number for r in own_records(journal, child.id)] == [8, 9, 10]
    assert [r.number for r in child.read(5, 9)] == [5, 6, 7, 8]


def test_a_fork_sees_its_parent_as_it_was_whatever_that_does_since(session: Session, journal: Journal) -> None:
    fold(journal, "the first two", 4)
    child = session.fork()
    before, seen = looked(child), child.context()

    steps: list[Callable[[], object]] = [
        lambda: session.append([said(7), said(8)]),
        lambda: session.pin(2),
        lambda: session.note("rule", "do not push"),
        lambda: fold(journal, "all eight"),
        session.undo,
        session.redo,
        lambda: session.rewind(3),
        lambda: session.set_compaction_owner("agent"),
        lambda: session.record_agent_compaction("a hook"),
        lambda: session.queue_input(said(9)),
        session.take_input,
    ]
    for step in steps:
        step()
        assert looked(child) == before
        assert child.context() == seen


def test_a_parent_sees_nothing_of_what_its_fork_does(session: Session, journal: Journal) -> None:
    child = session.fork()
    before = all_of(journal, "s")

    child.append([said(7), said(8)])
    child.pin(2)
    child.note("rule", "do not push")
    fold_in(journal, child.id, "all of it")
    child.undo()
    child.undo()
    child.queue_input(said(9))
    child.alias("another name")
    with child.turn() as turn:
        turn.take_input()

    assert all_of(journal, "s") == before


def test_forks_of_forks_see_all_of_their_past(store: Store, session: Session) -> None:
    line = [session]
    for n in range(7, 15, 2):
        line.append(line[-1].fork())
        line[-1].append([said(n), said(n + 1)])

    for depth, some in enumerate(line):
        assert texts(some) == [*range(1, 7 + 2 * depth)]
        assert [r.number for r in some.read()] == [*range(1, some.state.last + 1)]
    assert [f.id for f in store.forks("s")] == [line[1].id]
    assert store.forks(line[-1].id) == []


def test_two_forks_of_one_session_do_not_see_each_other(store: Store, session: Session) -> None:
    one, other = session.fork(id="one"), session.fork("subagent", id="other")
    one.append(said(7))
    other.append(said(8))

    assert (texts(one)[-1], texts(other)[-1], texts(session)[-1]) == (7, 8, 6)
    assert [f.id for f in store.forks("s")] == ["one", "other"]


# ---------------------------------------------------------------------- at an older record


def test_a_fork_at_a_record_before_the_last_compaction_has_the_boundary_of_then(
    session: Session, journal: Journal
) -> None:
    first = fold(journal, "the first two", 4)
    session.append([said(7), said(8)])
    then = session.state.last
    fold(journal, "all eight")

    whole, early = session.fork(at=5), session.fork(at=then)

    assert (texts(whole), whole.context().summary) == ([1, 2, 3, 4], None)
    assert (texts(early), early.context().summary) == ([3, 4, 5, 6, 7, 8], "the first two")
    assert early.segments()[-1].summary == first.number
    for child in (whole, early):
        assert child.state.tokens == child.context().tokens


def test_a_fork_at_a_record_before_an_undo_has_what_was_undone(session: Session) -> None:
    session.undo()
    session.append([said(7), said(8)])

    before, after = session.fork(at=7), session.fork()

    assert texts(before) == [1, 2, 3, 4, 5, 6]
    assert texts(after) == [1, 2, 3, 4, 7, 8]


def test_a_fork_of_a_fork_may_begin_before_the_first_fork_did(session: Session, journal: Journal) -> None:
    child = session.fork(id="child")
    child.append([said(7), said(8)])

    grandchild = child.fork(at=5)
    grandchild.append([said(9), said(10)])

    assert texts(grandchild) == [1, 2, 3, 4, 9, 10]
    assert (grandchild.state.parent, grandchild.state.forked_at) == ("child", 5)
    assert grandchild.state.tokens == grandchild.context().tokens
    fold_in(journal, grandchild.id, "one to four and nine", 9)
    grandchild.undo()
    assert texts(grandchild) == [1, 2, 3, 4]


def test_pins_and_notes_of_a_later_time_are_not_inherited(session: Session, journal: Journal) -> None:
    session.pin(2)
    session.note("rule", "one")
    then = session.state.last
    session.pin(4)
    session.note("rule", "two")
    session.unpin(2)

    child = session.fork(at=then)

    assert (child.pins(), [n.text for n in child.notes()]) == ((2,), ["one"])
    assert (session.pins(), [n.text for n in session.notes()]) == ((4,), ["one", "two"])
    assert child.state.tokens == child.context().tokens


def test_a_fork_lands_before_a_call_whose_results_come_later_f26(store: Store) -> None:
    session = store.session("s")
    session.append([user(), calls("a", "b"), result("b"), user("wait"), result("a"), answer()])

    landed = {at: session.fork(at=at).state.forked_at for at in range(1, 8)}

    assert landed == {1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 6, 7: 7}


def test_a_fork_lands_by_what_was_in_view_at_that_record_and_not_by_what_is_now(store: Store) -> None:
    session = store.session("s")
    session.append([user(), calls("a"), result("a"), answer()])
    session.rewind(2)

    child = session.fork(at=3)

    assert child.state.forked_at == 2
    assert child.context().messages == [user()]


def test_a_fork_in_the_middle_of_a_turn_has_no_call_without_its_result(session: Session) -> None:
    turn = session.turn()
    turn.append([user("look it up"), calls("a")])

    child = session.fork()
    turn.append([result("a"), answer()])

    assert child.context().messages[-1] == user("look it up")
    assert child.state.turn == 0
    assert child.open_turn() is None
    turn.end()


@pytest.mark.parametrize("at", [0, -1, 8])
def test_a_fork_at_a_record_that_never_was_is_refused(store: Store, session: Session, at: int) -> None:
    with pytest.raises(OnefoldError, match="records 1 to 7; it cannot be forked at"):
        session.fork(at=at)

    assert [s.id for s in store.sessions()] == ["s"]


# ---------------------------------------------------------------------- a life of its own


@pytest.mark.parametrize("kind", ["branch", "subagent"])
def test_a_fork_compacts_its_inherited_past(session: Session, journal: Journal, kind: ForkKind) -> None:
    child = session.fork(kind)
    child.append([said(7), said(8)])
    summarizer = Counting()
    before = all_of(journal, "s")

    done = child.compact(summarizer)

    assert done.state == "committed"
    assert summarizer.given[0].messages[:4] == [said(n) for n in range(1, 5)]
    assert child.context().summary == "summary for attempt 1"
    assert child.state.tokens == child.context().tokens
    assert all_of(journal, "s") == before


def test_the_summary_of_a_fork_builds_on_the_one_it_inherited(session: Session, journal: Journal) -> None:
    fold(journal, "of the parent", 6)
    child = session.fork()
    child.append([said(n) for n in range(7, 13)])
    summarizer = Counting()

    child.compact(summarizer)

    assert summarizer.given[0].previous == "of the parent"
    assert summarizer.given[0].messages[:2] == [said(5), said(6)]


def test_a_fork_undoes_across_the_point_where_it_began(session: Session, journal: Journal) -> None:
    fold(journal, "the first two", 4)
    session.append([said(7), said(8)])
    fold(journal, "all eight")
    child = session.fork()
    child.append([said(9), said(10)])
    fold_in(journal, child.id, "all ten")
    before, parent = looked(child), all_of(journal, "s")

    child.undo()
    assert child.context().summary == "all eight"
    child.undo()
    assert (texts(child), child.context().summary) == ([3, 4, 5, 6], "the first two")
    child.undo()
    assert texts(child) == [3, 4]
    child.undo()
    assert (texts(child), child.context().summary) == ([], "the first two")
    child.undo()
    assert (texts(child), child.context().summary, child.state.tokens) == ([], None, 0)

    for _ in range(5):
        child.redo()
    assert looked(child) == before
    assert all_of(journal, "s") == parent


def test_a_fork_does_not_redo_what_its_parent_undid(session: Session) -> None:
    session.undo()
    child = session.fork()

    nothing_changes(child, child.redo, OnefoldError, "nothing to redo")
    session.redo()

    assert texts(child) == [1, 2, 3, 4]


def test_an_inherited_message_is_pinned_in_the_fork_alone(session: Session, journal: Journal) -> None:
    child = session.fork()

    assert child.pin(3) == (3,)
    fold_in(journal, child.id, "short")

    assert said_in(child.context())[0][0] == said(2)
    assert child.context().pinned == (3,)
    assert session.pins() == ()
    assert child.state.tokens == said_in(child.context())[1]


def test_an_inherited_pin_is_let_go_in_the_fork_alone(session: Session) -> None:
    session.pin(3)
    child = session.fork()

    child.unpin(3)

    assert (child.pins(), session.pins()) == ((), (3,))


def test_a_fork_is_followed_from_its_parents_first_record_to_its_own_newest(store: Store, session: Session) -> None:
    child = session.fork()
    seen: list[Record] = []
    inherited = threading.Event()

    def follow() -> None:
        for record in store.session(child.id).follow(0, idle=PATIENCE):
            seen.append(record)
            if record.kind == "segment.opened" and record.number == child.head:
                inherited.set()
            if record.body == said(8):
                return

    follower = threading.Thread(target=follow)
    follower.start()
    assert inherited.wait(PATIENCE)
    session.append(said(99))
    child.append(said(7))
    child.append(said(8))
    follower.join(PATIENCE)

    assert [r.number for r in seen] == [*range(1, 12)]
    assert seen == list(child.read())
    assert said(99) not in [r.body for r in seen]


def test_keys_other_ids_and_waiting_inputs_are_not_inherited(store: Store, session: Session) -> None:
    session.append(said(7), key="once")
    session.alias("another name")
    session.queue_input(said(9))

    child = session.fork()

    assert child.append(said(8), key="once").duplicate is False
    with pytest.raises(KeyConflict):
        session.append(said(8), key="once")
    assert (child.aliases(), store.resolve("another name")) == ([], "s")
    assert child.take_input() is None
    assert (session.state.pending, child.state.pending) == (1, 0)
    taken = session.take_input()
    assert taken is not None
    assert taken.body == said(9)


def test_a_compaction_that_is_open_is_its_parents_alone(session: Session, journal: Journal) -> None:
    claim = running(journal)
    child = session.fork()

    assert (child.state.open, child.compactions(), child.compaction_holder()) == (None, [], None)
    journal.commit(claim, "short", 5)

    assert (session.context().summary, child.context().summary) == ("short", None)


# ---------------------------------------------------------------------- said again, and ids that are taken


def test_the_same_fork_said_again_is_the_same(session: Session, journal: Journal) -> None:
    child = session.fork("subagent", at=5, id="child")
    child.append(said(7))
    before = all_of(journal, "child")
    session.append(said(8))

    assert session.fork("subagent", at=5, id="child").state == child.state
    assert session.fork("subagent", id="child").state == child.state
    assert all_of(journal, "child") == before


def test_a_fork_that_landed_earlier_is_the_same_when_said_again(store: Store) -> None:
    session = store.session("s")
    session.append([user(), calls("a"), result("a"), answer()])
    child = session.fork(at=3, id="child")

    assert child.state.forked_at == 2
    assert session.fork(at=3, id="child").state == child.state
    for other in (1, 4, 99):
        with pytest.raises(OnefoldError, match="exists already and is another one"):
            session.fork(at=other, id="child")


def test_an_id_that_is_taken_is_refused_with_nothing_written(store: Store, session: Session) -> None:
    other = store.session("other")
    other.append(said(1))
    other.alias("by another name")
    session.fork("branch", at=5, id="child")
    store.session("gone").append(said(1))
    store.delete("gone")
    before = sorted(store.sessions())

    wrong: list[Callable[[], object]] = [
        lambda: session.fork(id="s"),
        lambda: session.fork(id="other"),
        lambda: session.fork(id="by another name"),
        lambda: session.fork(id="gone"),
        lambda: session.fork("review", at=5, id="child"),
        lambda: session.fork("branch", at=4, id="child"),
        lambda: other.fork("branch", id="child"),
        lambda: session.fork(id=""),
        lambda: session.fork("twig"),  # type: ignore[arg-type]
    ]
    for fork in wrong:
        with pytest.raises(OnefoldError):
            fork()

    assert sorted(store.sessions()) == before


# ---------------------------------------------------------------------- reviews


@pytest.mark.parametrize("trigger", ["manual", "threshold", "idle", "limit", "overflow", "erase"])
def test_a_review_does_not_compact_whatever_the_trigger_f05(session: Session, trigger: str) -> None:
    review = session.fork("review")
    review.append([said(n) for n in range(7, 13)])

    for _ in range(3):
        nothing_changes(
            review,
            lambda: review.compact(lambda m: pytest.fail("it was paid for"), trigger=trigger),
            CompactionDisabled,
            "review of session 's' and does not compact",
        )

    assert review.compactions() == []
    assert session.compact(lambda m: "short").state == "committed"


def test_a_review_writes_to_itself_and_its_parent_is_not_touched_f05(session: Session, journal: Journal) -> None:
    session.queue_input(said(50))
    theirs = session.turn(owner="gateway")
    running(journal)
    before = all_of(journal, "s")

    review = session.fork("review")
    with review.turn() as turn:
        turn.append([user("Review this conversation."), answer("It is fine.")])
    review.pin(2)
    review.note("finding", "no tests")
    review.undo()

    assert all_of(journal, "s") == before
    theirs.end()


def test_a_review_leaves_every_byte_of_its_parent_as_it_was_f05(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    def of_the_parent() -> dict[str, list[Any]]:
        return {table: [r for r in found if r[0] == "s"] for table, found in rows(path).items()}

    with open_store(path) as store:
        session = store.session("s")
        session.append([said(n) for n in range(1, 7)], key="k")
        session.alias("other")
        fold(store.journal, "short", 5)
        before = of_the_parent()
        assert all(before[table] for table in ("records", "sessions", "segments", "compactions", "keys"))

        review = session.fork("review")
        review.append([user("Review this conversation."), answer("It is fine.")])
        review.undo()

        assert of_the_parent() == before


def test_a_branch_of_a_review_compacts(session: Session) -> None:
    branch = session.fork("review").fork("branch")

    assert branch.compact(lambda m: "short").state == "committed"


def test_erasing_in_the_past_of_a_review_asks_for_no_compaction_of_it(session: Session, journal: Journal) -> None:
    fold(journal, "knows message 1", 5)
    review = session.fork("review")

    session.erase(2)

    assert session.state.open is not None
    assert review.state.open is None
    assert texts(review) == [2, 3, 4, 5, 6]


# ---------------------------------------------------------------------- at the same time


@pytest.mark.parametrize("same", [True, False])
def test_threads_that_fork_at_once_make_each_fork_once(store: Store, session: Session, same: bool) -> None:
    start = threading.Barrier(4)
    made: list[str] = []

    def fork(n: int) -> None:
        handle = store.session("s")
        start.wait(PATIENCE)
        child = handle.fork(id="child" if same else f"child {n}")
        made.append(child.id)
        child.append(said(10 + n))

    threads = [threading.Thread(target=fork, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert len(made) == 4
    assert len(store.forks("s")) == (1 if same else 4)
    for child in store.forks("s"):
        assert len(texts(store.session(child.id))) == (10 if same else 7)
    assert texts(session) == [1, 2, 3, 4, 5, 6]


def fork_in_a_child(path: str) -> None:
    """Round after round: forks at the same time as the other one, which appends to the parent as well."""
    with open_in_child(path) as store:
        session = store.session("s")
        while (told := hear())["word"] == "round":
            at_barrier()
            child = session.fork(id=told["id"])
            session.append(said(99))
            child.append(said(7))
            say("done", at=child.state.forked_at, parent=child.state.parent)


def test_processes_that_fork_at_once_agree_on_one_fork(durable: str, opened: Callable[..., Store]) -> None:
    store = opened(durable)
    store.session("s").append([said(n) for n in range(1, 7)])

    with (
        Child("fork_in_a_child", module="tests.contract.test_forks", path=durable) as one,
        Child("fork_in_a_child", module="tests.contract.test_forks", path=durable) as other,
    ):
        for n in range(10):
            for child in (one, other):
                child.say("round", id=f"child {n}")
            together(one, other)
            answers = [child.hear("done") for child in (one, other)]

            assert answers[0] == answers[1]
            forked = store.session(f"child {n}", create=False)
            assert texts(forked)[-2:] == [7, 7]
            assert forked.state.forked_at == answers[0]["at"]
        for child in (one, other):
            child.say("end")
            assert child.end() == 0

    assert len(store.forks("s")) == 10
    assert store.verify().healthy


# ---------------------------------------------------------------------- healing


HARM = {
    "both rows altered": "update sessions set tokens = 7, head = 1",
    "the child's row gone": "delete from sessions where id = 'child'",
    "the parent's row gone": "delete from sessions where id = 's'",
    "all rows gone": "delete from sessions",
    "segments gone": "delete from segments",
}


@pytest.mark.parametrize("harm", HARM)
def test_opening_a_fork_heals_it_and_its_parent_f22(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "agent.db"
    with open_store(path) as store:
        session = store.session("s")
        session.append([said(n) for n in range(1, 7)])
        fold(store.journal, "the first two", 4)
        child = session.fork(id="child")
        child.append([said(7), said(8)])
        child.pin(3)
        before, states = looked(child), (session.state, child.state)
    damage(path, HARM[harm])

    with open_store(path) as store:
        child = store.session("child", create=False)

        assert looked(child) == before
        for state, then in zip((store.journal.state("s"), child.state), states, strict=True):
            same = {"last", "touched_at"}
            assert {k: v for k, v in state._asdict().items() if k not in same} == {
                k: v for k, v in then._asdict().items() if k not in same
            }
        assert store.verify().healthy


@pytest.mark.parametrize("harm", HARM)
def test_verify_mends_a_fork_and_its_parent_f22(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "agent.db"
    with open_store(path) as store:
        session = store.session("s")
        session.append([said(n) for n in range(1, 7)])
        child = session.fork(id="child").fork(id="grandchild")
        child.append([said(7), said(8)])
        before = looked(child)
    damage(path, HARM[harm])

    with open_store(path) as store:
        assert not store.verify().healthy
        assert all(f.repaired for f in store.verify(fix=True).findings)

        assert store.verify().healthy
        assert looked(store.session("grandchild", create=False)) == before


def test_a_long_line_of_forks_needs_no_deep_chain_of_calls(store: Store, session: Session) -> None:
    """As a program makes it that branches off at every step: opening, reading and erasing go through it one by one."""
    deepest = session
    for n in range(120):
        deepest = deepest.fork(id=f"f{n}")
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        found = store.session(deepest.id, create=False)
        before = found.context().messages
        erased = session.erase(2)
        after, _ = said_in(found.context())
    finally:
        sys.setrecursionlimit(usual)

    assert before == [said(n) for n in range(1, 7)]
    assert len(erased.forks) == 120
    assert after == before[1:]
