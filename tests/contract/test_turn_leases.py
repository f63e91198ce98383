"""The contract on every kind of store: a turn's lease, clocks that jump, a lease part that does not work."""

from __future__ import annotations

import builtins
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import onefold
from onefold import Session, Store, Turn, TurnBusy, TurnLost
from onefold.compaction.material import load_material
from onefold.journal import turns
from onefold.journal.journal import Journal
from onefold.model import ClaimDenied, Json, Lease, TurnClaim
from onefold.storage.memory import MemoryLeases
from onefold.storage.postgres.transaction import PostgresLeases
from onefold.storage.sqlite.transaction import SqliteLeases
from tests.conftest import StoppedClock, running, said, who
from tests.support.helpers import PATIENCE, kinds, quick
from tests.support.turn_histories import (
    CHAT,
    HOUR,
    LEASE,
    assert_a_provider_takes,
    chat_call,
    forgotten,
    nothing_written,
    one_at_a_time,
    outcomes,
    warnings,
)
from verification.operations import talk

# ---------------------------------------------------------------------- leases and clocks


def test_the_handle_renews_its_lease_and_so_keeps_the_turn(
    address: str, opened: Callable[..., Store], clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = 0.3
    store = opened(address, policy=quick(turn_lease=lease))
    session, other = store.session("s"), store.session("s")
    renewed = threading.Semaphore(0)
    renew = turns.renew

    def noticed(journal: Journal, turn: TurnClaim) -> float | None:
        until = renew(journal, turn)
        renewed.release()
        return until

    monkeypatch.setattr(turns, "renew", noticed)
    with session.turn() as turn:
        for _ in range(4):
            clock.advance(lease * 0.7)
            while (there := session.open_turn()) is not None and there.until != clock.now + lease:
                assert renewed.acquire(timeout=PATIENCE)
            with pytest.raises(TurnBusy):
                other.turn(wait=False)
        turn.append(said(1))

    assert outcomes(session) == ["settled"]
    assert kinds(session) == ["segment.opened", "turn.started", "message", "turn.settled"]


def test_a_renewal_that_fails_is_said_and_tried_again(
    address: str, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)
    renew = turns.renew

    def failing_once(journal: Journal, turn: TurnClaim) -> float | None:
        tried.release()
        if not warnings(caplog):
            raise OSError("the disk is away")
        return renew(journal, turn)

    session = opened(address, policy=quick(turn_lease=0.06)).session("s")
    monkeypatch.setattr(turns, "renew", failing_once)
    with session.turn() as turn:
        for _ in range(3):
            assert tried.acquire(timeout=PATIENCE)
        turn.append(said(1))

    assert outcomes(session) == ["settled"]
    assert len(warnings(caplog)) == 1
    assert "the disk is away" in warnings(caplog)[0]


def test_a_silent_writer_is_left_alone_to_the_end_of_its_lease_and_no_longer(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    silent = forgotten(journal)
    clock.advance(LEASE - 0.001)
    with nothing_written(session), pytest.raises(TurnBusy):
        session.turn(wait=False)

    clock.advance(0.001)
    turn = session.turn(wait=False)

    assert outcomes(session) == ["interrupted"]
    assert turn.number == session.state.turn
    with nothing_written(session), pytest.raises(TurnLost):
        journal.append("s", session.drafts(said(7), None, None), turn=silent)


# ---------------------------------------------------------------------- turns that are dropped without an end


def of_turns() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("onefold-turn")}


@pytest.mark.parametrize("in_a_ring", [False, True], ids=["at once", "by the collector"])
def test_a_turn_that_is_dropped_without_an_end_is_interrupted_and_renewed_no_more(
    session: Session, other: Session, caplog: pytest.LogCaptureFixture, in_a_ring: bool
) -> None:
    """Whoever waits for it would wait for ever: its program lives, and nobody is left who could end it."""
    before = of_turns()
    turn = session.turn(owner="forgetful")
    turn.append(CHAT.calls)
    number, (thread,) = turn.number, of_turns() - before
    if in_a_ring:
        turn.itself = turn  # type: ignore[attr-defined]

    del turn
    gc.collect()

    with other.turn(wait=PATIENCE) as next_one:
        next_one.append(said(8))
    thread.join(PATIENCE)
    assert not thread.is_alive()
    ended = [r for r in session.read(number) if r.kind == "turn.settled"]
    assert [r.body["outcome"] for r in ended] == ["interrupted", "settled"]
    assert ended[0].body["cause"] == "its program dropped it without an end"
    assert_a_provider_takes(session.context())
    (warning,) = warnings(caplog)
    assert f"the turn that began at record {number} was dropped without an end" in warning


def test_a_turn_that_is_dropped_right_before_its_store_is_closed_is_ended_all_the_same(
    address: str, opened: Callable[..., Store]
) -> None:
    for n in range(20):
        store = opened(address)
        store.session(f"s{n}").turn()
        store.close()
        if address != "memory:":
            with onefold.open(address) as again:
                assert outcomes(again.session(f"s{n}")) == ["interrupted"]


def test_a_turn_that_ended_and_is_dropped_then_is_not_said_to_be_dropped(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    before = of_turns()

    def lose(turn: Turn) -> None:
        session.stop_turn()
        with pytest.raises(TurnLost):
            turn.append(said(9))

    ends: list[Callable[[Turn], object]] = [
        lambda turn: turn.end(),
        lambda turn: turn.__exit__(None, None, None),
        lambda turn: turn.abandon("a test"),
        lose,
    ]
    for end in ends:
        turn = session.turn()
        threads = of_turns() - before
        end(turn)
        del turn
        gc.collect()
        for thread in threads:
            thread.join(PATIENCE)
        assert not of_turns() - before

    assert outcomes(session) == ["settled", "settled", "interrupted", "cancelled"]
    assert warnings(caplog) == []


def test_a_lease_that_is_over_takes_nothing_from_its_writer_until_somebody_wants_the_turn(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    slow = forgotten(journal)
    clock.advance(HOUR)

    journal.append("s", session.drafts(said(7), None, None), turn=slow)
    turns.end(journal, slow)

    assert outcomes(session) == ["settled"]


@pytest.mark.parametrize("jump", [6 * HOUR, -6 * HOUR, -1.0], ids=["ahead", "back", "a little back"])
def test_a_clock_that_jumps_never_opens_two_turns(
    session: Session, other: Session, clock: StoppedClock, jump: float
) -> None:
    """A turn may be taken over early by that; its writer is told at its next append, and nothing is mixed."""
    turn = session.turn(owner="first")
    turn.append(said(7))

    clock.advance(jump)
    second = other.turn(owner="second", wait=False)

    with nothing_written(session), pytest.raises(TurnLost):
        turn.append(said(8))
    second.append(said(9))
    clock.advance(-jump)
    second.append(said(10))
    second.end()
    assert outcomes(session) == ["interrupted", "settled"]
    assert one_at_a_time(session)


def test_a_lease_with_more_time_left_than_its_own_length_is_over(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    """Nobody has to wait for six hours because the clock was once six hours ahead."""
    clock.advance(6 * HOUR)
    forgotten(journal)
    clock.advance(-6 * HOUR)

    there = session.open_turn()
    assert there is not None
    assert there.until <= clock.now
    session.turn(wait=False).end()

    assert outcomes(session) == ["interrupted", "settled"]


def test_a_clock_that_went_back_is_mended_by_the_next_renewal(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    claim = forgotten(journal)
    clock.advance(-HOUR)

    assert turns.renew(journal, claim) == clock.now + LEASE

    with pytest.raises(TurnBusy):
        session.turn(wait=False)


# ---------------------------------------------------------------------- a lease part that does not work


def break_turn_leases(
    monkeypatch: pytest.MonkeyPatch, store: Store, error: str, uses: Sequence[str] = ("get", "put", "drop")
) -> None:
    """Makes the leases of turns raise, and those of compactions not."""
    room = getattr(store.journal.backend, "_room", None)

    def standing_before(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *arguments: Any) -> Any:
            if getattr(self, "_what", None) == "turn_lease" or (room is not None and self is room.turn_leases):
                raise getattr(builtins, error)("no such thing")
            return original(self, *arguments)

        return called

    for leases in (SqliteLeases, PostgresLeases, MemoryLeases):
        for use in uses:
            monkeypatch.setattr(leases, use, standing_before(getattr(leases, use)))


@pytest.fixture(params=["get", "put", "drop", "get put drop"])
def broken_leases(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    break_turn_leases(monkeypatch, store, "AttributeError", request.param.split())


@pytest.mark.usefixtures("broken_leases")
def test_a_turn_goes_on_without_a_working_lease_and_says_so_once(
    store: Store, session: Session, other: Session, clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """F03: an error of the lock is no reason to stop, to loop, or to mix two writers."""
    with session.turn(owner="first") as turn:
        turn.append(said(7))
        turns.renew(store.journal, turn.claim)
        clock.advance(store.policy.turn_lease - 0.001)
        with pytest.raises(TurnBusy):
            other.turn(wait=False)
        turn.append(said(8))
    with other.turn(wait=False) as following:
        following.append(said(9))

    assert outcomes(session) == ["settled", "settled"]
    assert one_at_a_time(session)
    assert len(warnings(caplog)) == 1
    for words in ("AttributeError", "take a turn from each other", "onefold verify --fix"):
        assert words in warnings(caplog)[0]


def test_without_a_working_lease_others_wait_as_long_as_the_first_one_said(
    store: Store, session: Session, other: Session, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No renewal can be read, so a long turn may be taken over. Its writer is refused then, like any other."""
    break_turn_leases(monkeypatch, store, "OSError")
    turn = session.turn(owner="first")
    clock.advance(store.policy.turn_lease / 2)
    turns.renew(store.journal, turn.claim)
    there = session.open_turn()
    assert there is not None
    assert there.until == there.since + store.policy.turn_lease

    clock.advance(store.policy.turn_lease / 2)
    with other.turn(owner="second", wait=False) as second:
        second.append(said(9))
        with nothing_written(session), pytest.raises(TurnLost, match="second has it"):
            turn.append(said(8))

    assert outcomes(session) == ["interrupted", "settled"]
    assert one_at_a_time(session)


def test_a_lease_of_another_turn_is_not_taken_for_this_ones(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    """A version that does not know turns may leave an old row behind."""
    claim = forgotten(journal)
    stale = Lease("another", claim.number - 1, clock.now + 10 * HOUR, 10 * HOUR)
    journal.backend.write("s", lambda tx: tx.turn_leases.put("s", stale))

    held = turns.start(journal, "s", who("second"))

    assert isinstance(held, ClaimDenied)
    assert held.until == clock.now + LEASE


# ---------------------------------------------------------------------- a turn that is compacted


def tool_loop(count: int, *, start: int = 1) -> list[Json]:
    """So many calls of a tool, each with its result."""
    loop: list[Json] = []
    for n in range(start, start + count):
        loop.append({"role": "assistant", "content": f"step {n}", "tool_calls": [chat_call(f"call-{n}")]})
        loop.append(CHAT.never(f"call-{n}", f"result {n}: " + "word " * 20))
    return loop


OPENING = {"role": "user", "content": "make the tests pass, and do not push"}
STEERING = {"role": "user", "content": "and leave the docs alone"}


def test_a_turn_that_is_compacted_keeps_the_message_that_opened_it_and_its_end(session: Session) -> None:
    """F27: with a second message of the user in mid turn, the first one is still the order."""
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        turn.append(tool_loop(10))
        steering = turn.append(STEERING).numbers[0]
        turn.append(tool_loop(10, start=11))

        assert session.compact(lambda _: "what was said").changed

        context = session.context()
        assert session.segments()[-1].kept == (opening, steering)
        assert session.state.cut > steering
        assert context.numbers[1:3] == (opening, steering)
        assert context.messages[1:3] == [OPENING, STEERING]
        assert context.messages[-2:] == tool_loop(1, start=20)
        assert_a_provider_takes(context)
        turn.append({"role": "assistant", "content": "done"})

    assert outcomes(session) == ["settled"]
    assert session.context().messages[1:3] == [OPENING, STEERING]


def test_a_turn_that_is_compacted_again_and_again_keeps_the_message_that_opened_it(session: Session) -> None:
    system = {"role": "system", "content": "you are careful"}
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        for n in range(5):
            turn.append(tool_loop(10, start=10 * n + 1))
            turn.append({"role": "user", "content": f"steering {n}"})
            turn.append(tool_loop(10, start=10 * n + 101))
            assert session.compact(lambda _, n=n: f"summary {n}").changed  # type: ignore[misc]

            context = session.context()
            assert context.messages.count(OPENING) == 1
            assert opening in session.segments()[-1].kept
            assert {"role": "user", "content": f"steering {n}"} in context.messages
            assert context.messages[-2:] == tool_loop(1, start=10 * n + 110)
            assert_a_provider_takes(context)
        turn.append({"role": "assistant", "content": "done"})

    session.append([system, *talk(20, start=101)])
    assert session.compact(lambda _: "the turn is over").changed
    assert OPENING not in session.context().messages  # once it is over, it goes the way of all messages
    assert session.state.committed == 6


def test_a_compaction_of_an_open_turn_knows_which_one_it_is(session: Session, journal: Journal) -> None:
    """What an earlier turn left open counts as closed; what this one did may still be answered."""
    with session.turn() as before:
        earlier = before.append(CHAT.calls).numbers[0]
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        now = turn.append({"role": "assistant", "content": None, "tool_calls": [chat_call("open")]}).numbers[0]

        known = load_material(journal, running(journal)).turns

    assert known.opening == opening
    assert earlier in known.over
    assert now not in known.over


def test_a_commit_in_mid_turn_takes_the_turn_from_nobody(session: Session, journal: Journal) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        journal.commit(running(journal), "what was said", 5)
        turn.append(said(8))

    assert outcomes(session) == ["settled"]
    assert session.context().messages[-2:] == [said(7), said(8)]
