"""The contract on every kind of store: turns, one writer at a time, and the inputs that wait for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onefold import KeyConflict, OnefoldError, Session, Store, StoreError, TurnBusy, TurnLost
from onefold.journal import turns
from onefold.journal.journal import Journal
from onefold.model import Lease, Outcome, Record
from tests.conftest import StoppedClock, running, said, who
from tests.support.helpers import PATIENCE, kinds
from tests.support.turn_histories import (
    CHAT,
    LEASE,
    Waiting,
    assert_a_provider_takes,
    forgotten,
    lease_of,
    nothing_written,
    one_at_a_time,
    outcomes,
)
from verification.operations import talk

# ---------------------------------------------------------------------- one writer at a time


def test_a_turn_is_begun_written_in_and_settled(store: Store, session: Session) -> None:
    with session.turn(owner="gateway") as turn:
        there = session.open_turn()
        done = turn.append([said(7), said(8)])

    assert there is not None
    assert (there.id, there.number, there.owner) == (turn.id, turn.number, "gateway")
    assert (there.since, there.until) == (there.since, there.since + store.policy.turn_lease)
    assert kinds(session, turn.number) == ["turn.started", "message", "message", "turn.settled"]
    assert done.numbers == (turn.number + 1, turn.number + 2)
    assert {r.turn for r in session.read(turn.number)} == {turn.id}
    assert [r.turn for r in session.read(1, turn.number)] == [None] * 7
    assert (session.open_turn(), session.state.turn, lease_of(store)) == (None, 0, None)
    assert outcomes(session) == ["settled"]


@pytest.mark.parametrize("wait", [False, 0, 0.01])
def test_a_second_writer_is_told_who_has_the_turn_and_what_to_do(
    session: Session, other: Session, wait: bool | float
) -> None:
    with session.turn(owner="gateway"), nothing_written(session):
        with pytest.raises(TurnBusy) as refused:
            other.turn(wait=wait)

        for words in ("'s'", "gateway", "nothing was written", "wait=", "session.queue_input(message)"):
            assert words in str(refused.value)


def test_a_writer_without_a_name_is_known_by_its_process(session: Session, other: Session) -> None:
    with session.turn():
        there = session.open_turn()
        assert there is not None
        with pytest.raises(TurnBusy, match=f"process {there.holder.pid}"):
            other.turn(wait=False)


def test_a_second_writer_gets_the_turn_as_soon_as_the_first_ends(
    store: Store, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still, so it cannot be the lease that ended."""
    first = session.turn(owner="first")
    second = Waiting(store, other, monkeypatch)
    first.append(said(7))

    first.end()
    turn = second.turn()

    assert turn.number > first.number
    turn.append(said(8))
    turn.end()
    assert outcomes(session) == ["settled", "settled"]
    assert one_at_a_time(session)


def test_those_who_wait_for_a_turn_only_look(
    store: Store, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write takes the store's lock: a waiter that asked by writing would spin, and keep the turn's owner out."""
    backend = store.journal.backend
    write, writes = backend.write, []

    def counting(*args: Any, **options: Any) -> Any:
        writes.append(threading.current_thread())
        return write(*args, **options)

    with session.turn():
        monkeypatch.setattr(backend, "write", counting)
        with pytest.raises(TurnBusy):
            other.turn(wait=0.2)
        assert writes == []


def test_many_writers_at_once_get_the_turn_one_after_another(store: Store, session: Session) -> None:
    start = threading.Barrier(6)
    inside: list[str] = []
    overlaps: list[tuple[str, ...]] = []

    def work(name: str) -> None:
        mine = store.session("s")
        start.wait(PATIENCE)
        for n in range(5):
            with mine.turn(owner=name) as turn:
                inside.append(name)
                turn.append({"role": "user", "content": f"{name} asks {n}"})
                turn.append({"role": "assistant", "content": f"{name} is answered {n}"})
                if len(inside) > 1:
                    overlaps.append(tuple(inside))
                inside.remove(name)

    threads = [threading.Thread(target=work, args=(f"writer {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert overlaps == []
    assert outcomes(session) == ["settled"] * 30
    assert one_at_a_time(session)
    assert session.state.messages == 6 + 60


def test_an_input_that_cannot_wait_is_queued_for_the_next_turn(session: Session, other: Session) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        other.queue_input(said(9))
        turn.append(said(8))
        assert said(9) not in session.context().messages

    with other.turn() as following:
        taken = following.take_input()
        assert following.take_input() is None

    assert taken is not None
    assert (taken.body, taken.turn) == (said(9), following.id)
    assert session.context().messages[-3:] == [said(7), said(8), said(9)]


def test_appends_without_a_turn_stay_possible_beside_an_open_one(session: Session, other: Session) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        free = other.append(said(9))
        later = turn.append(said(8))

    assert free.numbers[0] + 1 == later.numbers[0]
    (between,) = session.read(free.numbers[0], free.numbers[0] + 1)
    assert (between.turn, between.body) == (None, said(9))
    assert outcomes(session) == ["settled"]


def test_turns_of_two_sessions_do_not_meet(store: Store, session: Session) -> None:
    with session.turn(), store.session("another").turn(wait=False) as turn:
        turn.append(said(1))

    assert outcomes(store.session("another")) == ["settled"]


@pytest.mark.parametrize("lease", [0, -1.0])
def test_a_lease_is_some_time(session: Session, journal: Journal, lease: float) -> None:
    with nothing_written(session), pytest.raises(OnefoldError, match="above 0"):
        turns.start(journal, "s", who(), lease=lease)


# ---------------------------------------------------------------------- a turn that was lost


@dataclass(frozen=True)
class Loss:
    """A way to lose a turn, and how it ended by that."""

    take_away: Callable[[Session, Journal, StoppedClock], Any]
    outcome: Outcome
    words: str = "it is over"


def _take_over(session: Session, journal: Journal, clock: StoppedClock) -> None:
    clock.advance(LEASE)
    forgotten(journal, owner="successor")


def _rewind(session: Session, journal: Journal, clock: StoppedClock) -> None:
    session.rewind(5)


LOSSES = {
    "taken over after its lease": Loss(_take_over, "interrupted", "successor has it since record"),
    "stopped from outside": Loss(lambda session, *_: session.stop_turn("enough"), "cancelled"),
    "rewound": Loss(_rewind, "cancelled"),
    "undone": Loss(lambda session, *_: session.undo(), "cancelled"),
}


@pytest.fixture(params=list(LOSSES))
def loss(request: pytest.FixtureRequest) -> Loss:
    return LOSSES[request.param]


def test_a_writer_that_lost_its_turn_is_refused_with_nothing_written(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    turn = session.turn(owner="slow")
    turn.append(said(7))
    session.queue_input(said(9))
    loss.take_away(session, journal, clock)

    with nothing_written(session):
        with pytest.raises(TurnLost) as refused:
            turn.append([said(8), said(10)])
        with pytest.raises(TurnLost):
            turn.take_input()
        with pytest.raises(TurnLost):
            turn.end()

    for words in ("'s'", "slow", f"record {turn.number}", loss.words, "nothing was written", "begin a new turn"):
        assert words in str(refused.value)
    assert outcomes(session) == [loss.outcome]
    assert session.state.pending == 1


def test_leaving_the_block_of_a_lost_turn_tells_of_the_loss(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            loss.take_away(session, journal, clock)

    with pytest.raises(TurnLost):
        work()

    assert outcomes(session) == [loss.outcome]


def test_leaving_the_block_of_a_lost_turn_with_an_error_keeps_that_error(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            loss.take_away(session, journal, clock)
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        work()

    assert outcomes(session) == [loss.outcome]


def test_a_lost_turn_that_was_noticed_inside_the_block_raises_once(session: Session) -> None:
    def work() -> None:
        with session.turn() as turn:
            session.stop_turn()
            turn.append(said(7))

    with pytest.raises(TurnLost) as refused:
        work()

    assert refused.value.__context__ is None


def test_a_lost_turn_renews_nothing_of_the_one_that_has_it_now(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    old = forgotten(journal)
    clock.advance(LEASE)
    new = forgotten(journal, lease=50.0)
    before = lease_of(store)

    assert turns.renew(journal, old) is None

    assert lease_of(store) == before == Lease(new.id, new.number, clock.now + 50.0, 50.0)


def test_a_turn_of_a_closed_store_is_interrupted_and_its_writer_told(
    durable: str, opened: Callable[..., Store]
) -> None:
    store = opened(durable)
    turn = store.session("s").turn(owner="gateway")
    turn.append([said(1), *CHAT.calls])
    store.close()

    for attempt in (lambda: turn.append(said(2)), turn.take_input, turn.end):
        with pytest.raises(TurnLost, match="closed the store"):
            attempt()

    again = opened(durable)
    session = again.session("s")
    assert outcomes(session) == ["interrupted"]
    assert kinds(session) == ["segment.opened", "turn.started", *["message"] * 5, "turn.settled"]
    assert [*session.read()][-1].body["cause"] == "its process closed the store"
    assert_a_provider_takes(session.context())
    with session.turn(wait=False) as following:
        following.append(said(3))
    assert again.verify().healthy


def test_a_block_whose_store_was_closed_inside_it_tells_of_the_loss(address: str, opened: Callable[..., Store]) -> None:
    store = opened(address)
    session = store.session("s")

    with pytest.raises(TurnLost, match="closed the store"), session.turn():
        store.close()


def test_a_block_that_failed_because_its_store_was_closed_keeps_that_error(
    address: str, opened: Callable[..., Store]
) -> None:
    store = opened(address)
    session = store.session("s")

    def work() -> None:
        with session.turn():
            store.close()
            session.append(said(1))

    with pytest.raises(StoreError, match="closed"):
        work()


def test_stopping_a_turn_says_whose_it_was_and_why(session: Session, other: Session) -> None:
    turn = session.turn(owner="gateway")

    stopped = other.stop_turn("the user pressed stop")

    assert stopped is not None
    assert (stopped.id, stopped.owner) == (turn.id, "gateway")
    ended = [*session.read()][-1]
    assert (ended.kind, ended.turn) == ("turn.settled", turn.id)
    assert ended.body == {"outcome": "cancelled", "cause": "the user pressed stop"}
    with nothing_written(session):
        assert other.stop_turn() is None


# ---------------------------------------------------------------------- how a turn ends


class Stopped(BaseException):
    """What a framework may raise to end a task."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("no \ud800 such model"), "failed"),
        (TurnBusy("something else"), "failed"),
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError("timeout"), "cancelled"),
        (SystemExit(1), "cancelled"),
        (Stopped(), "cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_an_exception_ends_the_turn_and_passes_through(
    session: Session, error: BaseException, outcome: Outcome
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            raise error

    with pytest.raises(type(error)) as raised:
        work()

    assert raised.value is error
    ended = [*session.read()][-1]
    assert ended.body["outcome"] == outcome
    assert ended.body["cause"].startswith(f"{type(error).__name__}: ")
    assert session.open_turn() is None


@pytest.mark.parametrize("outcome", ["settled", "failed", "cancelled", "interrupted"])
def test_a_turn_is_ended_once_however_often_it_is_said(session: Session, outcome: Outcome) -> None:
    with session.turn() as turn:
        turn.append(CHAT.calls)
        turn.end(outcome, "said first")
        with nothing_written(session):
            turn.end(outcome, "said again")

    assert outcomes(session) == [outcome]
    assert [*session.read()][-1].body["cause"] == "said first"


def test_a_turn_that_ended_is_not_ended_in_another_way(session: Session) -> None:
    turn = session.turn()
    turn.end()

    with nothing_written(session), pytest.raises(TurnLost):
        turn.end("failed")


def test_a_cancelled_turn_may_be_cancelled_by_its_writer_too(session: Session) -> None:
    turn = session.turn()
    session.stop_turn()

    with nothing_written(session):
        turn.end("cancelled")


def test_the_end_of_a_long_turn_is_found_however_much_came_before_and_after_it(session: Session) -> None:
    turn = session.turn()
    turn.append(talk(600))
    turn.end()
    session.append(talk(600))

    with nothing_written(session):
        turn.end()
        with pytest.raises(TurnLost):
            turn.end("failed")


# ---------------------------------------------------------------------- saying it again


def test_an_append_that_was_written_before_the_turn_was_lost_is_found_by_its_key(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    """The answer got lost, then the turn. What happened is that it was written, and that is what the writer learns."""
    turn = session.turn()
    first = turn.append([said(7), said(8)], key="k")
    loss.take_away(session, journal, clock)

    with nothing_written(session):
        again = turn.append([said(7), said(8)], key="k")
        with pytest.raises(KeyConflict):
            turn.append(said(8), key="k")
        with pytest.raises(TurnLost):
            turn.append(said(9), key="another")

    assert (again.numbers, again.duplicate, first.duplicate) == (first.numbers, True, False)


def test_taking_again_by_the_same_key_gives_the_same_input(session: Session) -> None:
    session.queue_input(said(7))
    session.queue_input(said(9))
    turn = session.turn()
    first = turn.take_input(key="k")

    with nothing_written(session):
        assert turn.take_input(key="k") == first
    second = turn.take_input(key="another")
    session.stop_turn()
    with nothing_written(session):
        assert turn.take_input(key="k") == session.take_input(key="k") == first

    assert first is not None
    assert second is not None
    assert (first.body, second.body) == (said(7), said(9))


def test_a_key_of_an_append_takes_nothing(session: Session) -> None:
    session.queue_input(said(7))
    turn = session.turn()
    turn.append(said(8), key="k")

    with nothing_written(session), pytest.raises(KeyConflict):
        turn.take_input(key="k")


def test_queueing_again_by_the_same_key_queues_once(session: Session) -> None:
    first = session.queue_input(said(7), key="k")

    with nothing_written(session):
        assert session.queue_input(said(7), key="k") == first
        with pytest.raises(KeyConflict):
            session.queue_input(said(9), key="k")
        with pytest.raises(KeyConflict):
            session.append(said(7), key="k")

    assert session.state.pending == 1


# ---------------------------------------------------------------------- inputs, each for one turn


def test_each_input_is_taken_by_exactly_one_of_many_turns(store: Store, session: Session, journal: Journal) -> None:
    claim = running(journal)
    follow_up = session.drafts({"role": "user", "content": "the follow-up"}, None, None)[0]
    journal.commit(claim, "what was said", 5, follow_up=follow_up)
    for n in range(20):
        session.queue_input({"role": "user", "content": f"input {n}"})
    start = threading.Barrier(4)
    taken: list[Record] = []

    def work(name: str) -> None:
        mine = store.session("s")
        start.wait(PATIENCE)
        while True:
            with mine.turn(owner=name) as turn:
                if (got := turn.take_input()) is None:
                    return
                taken.append(got)

    threads = [threading.Thread(target=work, args=(f"writer {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert [r.body["content"] for r in sorted(taken, key=lambda r: r.number)] == [
        "the follow-up", *(f"input {n}" for n in range(20)),
    ]  # fmt: skip
    assert len({r.turn for r in taken}) == 21
    assert session.state.pending == 0
    assert one_at_a_time(session)


def test_an_input_that_an_undone_turn_took_is_not_given_out_again(session: Session) -> None:
    session.queue_input(said(7))
    with session.turn() as turn:
        turn.take_input()
        turn.append(said(8))

    session.undo()

    assert session.take_input() is None
    assert session.context().messages == [said(n) for n in range(1, 7)]
