"""The contract on every kind of store: a walk meets every session once, whatever is written meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onefold import SessionState, Store
from tests.conftest import StoppedClock, said
from tests.support.helpers import PATIENCE, restless

NAMES = [f"{n:02}" for n in range(12)]


@pytest.fixture
def full(store: Store, clock: StoppedClock) -> Store:
    """A store with twelve sessions, the oldest first."""
    for name in NAMES:
        store.session(name).append(said(1))
        clock.advance(1)
    return store


def ids(states: Iterator[SessionState]) -> list[str]:
    return [state.id for state in states]


# ---------------------------------------------------------------------- every session, once


def test_a_walk_meets_every_session_in_the_order_of_ids(store: Store) -> None:
    odd = ["a", "B", "ä", "a/b", "a b", "a-b", "aa", "\uff5a", "\U0001d11e", "A", "~", "0"]
    for name in odd:
        store.session(name)

    assert ids(store.walk()) == sorted(odd)
    assert ids(store.walk(page=1)) == sorted(odd)
    assert list(store.walk()) == [store.session(name).state for name in sorted(odd)]


def test_a_walk_goes_on_behind_any_id_whether_it_is_there_or_not(full: Store) -> None:
    assert ids(full.walk("07", page=2)) == ["08", "09", "10", "11"]
    assert ids(full.walk("075", page=2)) == ["08", "09", "10", "11"]
    assert ids(full.walk("11")) == []


def test_a_session_that_is_written_to_between_two_pages_is_met_all_the_same(
    full: Store, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list by activity loses the one that moved to its front: that one is for looking, and says so."""
    monkeypatch.setattr("onefold.store._PAGE", 3)
    looking, walking = full.sessions(), full.walk(page=3)
    begun = [[next(states).id for _ in range(3)] for states in (looking, walking)]
    clock.advance(1)

    full.session("00").append(said(2))
    full.session("11").append(said(2))

    assert begun[0] + ids(looking) == [name for name in reversed(NAMES) if name != "00"]
    assert begun[1] + ids(walking) == NAMES
    assert "for looking" in (Store.sessions.__doc__ or "")


@pytest.mark.parametrize("page", [1, 2, 5, 500])
def test_a_walk_in_which_every_look_is_followed_by_a_write_is_whole(
    full: Store, clock: StoppedClock, page: int
) -> None:
    with restless(full, NAMES, lambda: clock.advance(1)) as written:
        met = ids(full.walk(page=page))

    assert met == NAMES
    assert written[: len(NAMES) // page] == list(itertools.islice(itertools.cycle(NAMES), len(NAMES) // page))


def test_walks_while_all_sessions_are_written_to_meet_each_once(full: Store, clock: StoppedClock) -> None:
    writers, walks = 3, 10
    barrier = threading.Barrier(writers + 1)
    over = threading.Event()
    written = [0] * writers
    failed: list[BaseException] = []

    def write(mine: int) -> None:
        try:
            sessions = [full.session(name) for name in NAMES[mine::writers]]
            barrier.wait(PATIENCE)
            for session in itertools.cycle(reversed(sessions)):
                if over.is_set():
                    return
                clock.advance(0.1)
                session.append(said(1))
                written[mine] += 1
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    barrier.wait(PATIENCE)
    met: list[list[str]] = []
    during = 0
    try:
        while during < walks and not failed:
            before = sum(written)
            met.append(ids(full.walk(page=1)))
            during += sum(written) > before
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)

    assert all(each == NAMES for each in met)
    assert failed == []


_STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "create", "delete", "turn a page"]), st.integers(0, 9)), max_size=30
)
_STORIES = itertools.count()


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(first=st.sets(st.integers(0, 9), max_size=8), page=st.integers(1, 4), steps=_STEPS)
def test_whatever_happens_between_two_pages_a_walk_is_whole(
    store: Store, clock: StoppedClock, first: set[int], page: int, steps: list[tuple[str, int]]
) -> None:
    story = f"{next(_STORIES):04}"
    names = [f"{story}-{n}" for n in range(10)]
    for n in sorted(first, reverse=True):
        store.session(names[n]).append(said(1))
    there, ever = {names[n] for n in first}, {names[n] for n in first}
    stayed = set(there)
    met: list[str] = []
    walk = (state.id for state in store.walk(story, page=page))

    for step, n in steps:
        clock.advance(1)
        match step:
            case "append" if names[n] in there:
                store.session(names[n]).append(said(2))
            case "create" if names[n] not in ever:
                store.session(names[n])
                there.add(names[n])
                ever.add(names[n])
            case "delete" if names[n] in there:
                store.delete(names[n])
                there.remove(names[n])
                stayed.discard(names[n])
            case "turn a page":
                met += itertools.islice(walk, page)
    met += walk

    assert met == sorted({*met}), "twice, or out of order"
    assert stayed <= {*met}, "passed over"
    assert {*met} <= ever, "never there"
    assert {*ids(store.walk(story))} == there


# ---------------------------------------------------------------------- sessions that come and go


def test_a_session_that_is_deleted_or_made_during_a_walk_is_no_trouble(full: Store) -> None:
    walk = full.walk(page=2)
    begun = [next(walk).id, next(walk).id]

    full.delete("05")
    full.session("055")
    full.session("000")

    assert begun + ids(walk) == sorted({*NAMES, "055"} - {"05"})


def test_a_list_by_activity_has_nothing_twice_though_a_clock_was_set_back(
    full: Store, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.store._PAGE", 3)
    listed = full.sessions()
    begun = [next(listed).id for _ in range(3)]
    clock.advance(-1000)

    full.session("11").note("rule", "be brief")

    assert begun + ids(listed) == NAMES[::-1]
    assert ids(full.sessions(limit=12))[-1] == "11"


def test_verify_passes_over_a_session_that_is_deleted_meanwhile(full: Store) -> None:
    seen: list[str] = []

    def progress(session: str, records: int) -> None:
        seen.append(session)
        if len(seen) == 1:
            full.delete("11")

    report = full.verify(progress=progress)

    assert report.findings == ()
    assert report.sessions == len(seen) == 11
