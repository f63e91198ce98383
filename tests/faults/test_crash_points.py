"""Killed with SIGKILL before and after every statement: it is the old state or the new one, never between.

Item 7 of the core's promises, and the part of item 15 that is about dying in the middle of a migration.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from onefold.model import INPUT_QUEUED, SEGMENT_OPENED
from tests.support.crash_children import MOST, first_schema_only
from tests.support.fault_injection import open_store
from tests.support.helpers import Child, counted, kinds, quick, together
from verification.operations import ONE_BY_ONE, OPERATIONS, SECRET, rows, talk

HERE = "tests.support.crash_children"


def _crash(tmp_path: Path, operation: str, first: int = 1) -> list[Path]:
    """Every store that a killed process left behind, in order; the last one's operation had returned."""
    left: list[Path] = []
    with Child("crash_everywhere", module=HERE, folder=str(tmp_path), name=operation, first=first) as child:
        returned = False
        while not returned:
            heard = child.hear("killed")
            left.append(Path(heard["path"]))
            returned = heard["returned"]
    return left


def _reopened(path: Path) -> dict[str, list[Any]]:
    """What a store says after the crash, once it is opened, and that it has no complaint."""
    with open_store(path) as store:
        assert store.verify().findings == ()
    return rows(path)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_at_any_statement_leaves_the_old_state_or_the_new_one(tmp_path: Path, operation: str) -> None:
    """Item 7; F23 (cleared, then crashed), F24 (closed, then crashed), F25 (summary without its follow-up).

    `renew` writes no record and `heal` finds the damage again: both have two states all the same.
    """
    left = _crash(tmp_path, operation)

    if operation == "heal":
        healed = [_healed(path) for path in left]
        assert all(h == healed[0] for h in healed)
        return
    states = [_reopened(path) for path in left]

    old, new = states[0], states[-1]
    assert old != new
    assert all(state in (old, new) for state in states)
    turned = [state == new for state in states]
    assert turned == sorted(turned), "once new, never old again"
    assert len(states) >= 4, "there was a statement to be killed at"


@pytest.mark.parametrize("operation", ONE_BY_ONE)
def test_a_crash_between_a_session_and_its_forks_is_mended_by_saying_it_again(tmp_path: Path, operation: str) -> None:
    """Each session is its own transaction: at every statement so many of them are done, and the rest is as before."""
    left = _crash(tmp_path, operation)
    states = [_reopened(path) for path in left]

    begins = [n for n, state in enumerate(states) if n == 0 or state != states[n - 1]]

    assert len(begins) == 4, "none of the three is done, one, two, all of them"
    assert [SECRET in repr(states[n]) for n in begins] == [True, True, True, False]
    shown = [_said_again(left[n], operation) for n in begins]
    assert all(s == shown[-1] for s in shown)


def _said_again(path: Path, operation: str) -> dict[str, list[Any]]:
    """What sessions show once the operation that was killed is repeated; nothing of the secret is left by then."""
    with open_store(path) as store:
        assert ONE_BY_ONE[operation](store) == ("f", "g")
        assert store.verify().findings == ()
        shown = {s.id: store.session(s.id).context().messages for s in store.sessions()}
    assert SECRET not in repr(rows(path))
    assert [f.name for f in path.parent.glob(f"{path.name}*") if SECRET.encode() in f.read_bytes()] == []
    return shown


def _healed(path: Path) -> dict[str, list[Any]]:
    """A store whose healing was killed, healed by whoever comes next: once, whether the first one got there or not."""
    with open_store(path) as store:
        session = store.session("a")
        assert store.verify().findings == ()
        assert counted(session, "healed") == 1
        assert session.head == session.segments()[-1].number
    return rows(path, ("segments", "compactions", "keys", "inputs"))


def test_f25_no_crash_point_has_a_summary_without_its_cut_and_follow_up(tmp_path: Path) -> None:
    """Item 7, F25, F08: whatever statement the commit died at, summary, cut, state and follow-up stand together."""
    left = _crash(tmp_path, "commit with follow-up")

    for path in left:
        with open_store(path) as store:
            session = store.session("a")
            opened = [r for r in session.read() if r.kind == SEGMENT_OPENED]
            waiting = [r.body["content"] for r in session.read() if r.kind == INPUT_QUEUED]
            context = session.context()
            if context.summary == "a new summary":
                assert opened[-1].body["cut"] == session.state.cut
                assert waiting == ["later", "go on"]
                assert session.state.open is None
                assert {c.state for c in session.compactions()} == {"committed"}
            else:
                assert context.summary == "what was said"
                assert waiting == ["later"]
                assert session.state.open is not None
            assert path != left[-1] or context.summary == "a new summary"


def test_f25_the_follow_up_of_a_commit_that_crashed_right_after_is_taken_once(tmp_path: Path) -> None:
    """Item 7: after the restart two processes race for it from a barrier, and one of them gets it, once."""
    (committed,) = _crash(tmp_path, "commit with follow-up", first=MOST - 1)

    with (
        Child("take_at_once", module=HERE, path=str(committed)) as one,
        Child("take_at_once", module=HERE, path=str(committed)) as two,
    ):
        together(one, two)
        got = one.hear("took")["got"] + two.hear("took")["got"]

    assert sorted(got) == ["go on", "later"]
    with open_store(committed) as store:
        session = store.session("a")
        assert session.take_input() is None
        assert session.state.pending == 0
        assert counted(session, "input.taken") == 2
        assert store.verify().healthy


def test_a_manual_compaction_without_follow_up_leaves_no_input(tmp_path: Path) -> None:
    """Item 7: a person who compacts has asked for nothing else."""
    with open_store(tmp_path / "store.db") as store:
        store.policy = quick()
        session = store.session("a")
        session.append(talk(20))

        result = session.compact()

        assert result.state == "committed"
        assert INPUT_QUEUED not in kinds(session)
        assert session.take_input() is None


def test_f25_a_compaction_with_follow_up_leaves_exactly_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        store.policy = quick()
        session = store.session("a")
        session.append(talk(20))

        session.compact(follow_up={"role": "user", "content": "go on"})
        taken = [session.take_input(), session.take_input()]

        assert [t and t.body["content"] for t in taken] == ["go on", None]
        assert session.context().messages[-1]["content"] == "go on"


def test_a_crash_while_a_store_is_made_leaves_a_path_that_opens(tmp_path: Path) -> None:
    """Item 15: an unfinished beginning is finished by whoever comes next, with one generation from then on."""
    left = _crash(tmp_path, "opening a new store")

    assert len(left) >= 10
    for path in left:
        _works(path)


def test_a_crash_in_the_middle_of_migrating_leaves_the_old_schema_or_the_new_one(tmp_path: Path) -> None:
    """Item 15: migrated in one transaction, so nothing of the session is touched by dying in it."""
    left = _crash(tmp_path, "migrating an older store")
    first_schema_only(str(tmp_path / "older.db"))
    journal = rows(tmp_path / "older.db", ("records", "keys", "inputs"))

    half = [set(rows(path)) for path in left]

    assert len(left) >= 5
    assert "leases" not in half[0]
    assert "leases" in half[-1]
    for path in left:
        with open_store(path) as store:
            assert store.verify().findings == ()
        assert rows(path, tuple(journal)) == journal
        assert "leases" in rows(path)


def test_two_processes_that_open_an_older_store_at_once_migrate_it_once(tmp_path: Path) -> None:
    """Item 15, F44."""
    path = tmp_path / "older.db"
    first_schema_only(str(path))
    before = rows(path, ("records",))

    with (
        Child("open_at_once", module=HERE, path=str(path)) as one,
        Child("open_at_once", module=HERE, path=str(path)) as two,
    ):
        together(one, two)
        generations = {one.hear("opened")["generation"], two.hear("opened")["generation"]}
        assert (one.end(), two.end()) == (0, 0)

    assert len(generations) == 1
    with open_store(path) as store:
        assert store.verify().findings == ()
        assert store.session("a").state.last == len(before["records"]) + 2


def test_two_processes_that_make_a_store_at_once_make_one(tmp_path: Path) -> None:
    """Item 15: nobody's session is made twice, and both know the store by the same generation."""
    path = tmp_path / "new.db"

    with (
        Child("open_at_once", module=HERE, path=str(path)) as one,
        Child("open_at_once", module=HERE, path=str(path)) as two,
    ):
        together(one, two)
        generations = {one.hear("opened")["generation"], two.hear("opened")["generation"]}
        assert (one.end(), two.end()) == (0, 0)

    assert len(generations) == 1
    with open_store(path) as store:
        assert kinds(store.session("a")) == ["segment.opened", "message", "message"]


def test_f24_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    """F24: whatever a dead process held, the next append goes through."""
    left = _crash(tmp_path, "append one")

    for path in left:
        _works(path)


def _works(path: Path) -> None:
    with open_store(path) as store:
        session = store.session("a")
        before = session.state.last
        session.append({"role": "user", "content": "still here"})
        assert session.state.last == before + 1
        assert store.verify().findings == ()
        generation = store.generation
    shutil.copy(path, path.with_suffix(".copy"))
    with open_store(path.with_suffix(".copy")) as store:
        assert store.generation == generation
