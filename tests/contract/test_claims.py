"""The contract on every kind of store: asking for a compaction, and who works on it."""

from __future__ import annotations

import pytest

from onefold import (
    Compaction,
    OnefoldError,
    Session,
    StaleHandle,
)
from onefold.journal import undo
from onefold.journal.journal import Journal
from onefold.model import Claim, ClaimDenied
from tests.conftest import NOON, StoppedClock, claimed, running, said, who
from tests.support.helpers import kinds

HOUR = 3600.0


def now(journal: Journal, claim: Claim) -> Compaction:
    return journal.compaction(claim.session, claim.compaction)


# ---------------------------------------------------------------------- request


def test_a_request_opens_a_compaction_of_the_head(session: Session, journal: Journal, clock: StoppedClock) -> None:
    asked = journal.request("s", trigger="threshold", base=1, instructions="keep the paths", attempts=2, actor="me")

    assert (asked.outcome, asked.head) == ("opened", 1)
    assert asked.compaction is not None
    assert asked.compaction == Compaction(
        id=asked.compaction.id, session="s", base=1, trigger="threshold", state="requested", requested_at=clock.now,
        attempts_allowed=2, instructions="keep the paths",
    )  # fmt: skip
    assert session.state.open == asked.compaction.id
    (record,) = session.read(8)
    assert (record.kind, record.actor) == ("compaction.requested", "me")


def test_overlapping_triggers_join_the_one_that_is_open_and_are_counted_f06(session: Session, journal: Journal) -> None:
    first = journal.request("s", trigger="threshold")

    others = [journal.request("s", trigger=t) for t in ("overflow", "manual")]

    assert [o.outcome for o in others] == ["joined", "joined"]
    assert {o.compaction and o.compaction.id for o in others} == {first.compaction and first.compaction.id}
    (only,) = session.compactions()
    assert (only.requests, only.trigger) == (3, "threshold")
    assert kinds(session, 8) == ["compaction.requested", "compaction.joined", "compaction.joined"]


def test_a_request_joins_a_compaction_that_runs(session: Session, journal: Journal) -> None:
    claim = running(journal)

    asked = journal.request("s", trigger="overflow", base=1)

    assert asked.outcome == "joined"
    assert now(journal, claim).state == "running"


def test_a_request_measured_on_an_old_segment_opens_nothing_and_returns_the_successor_f02(
    session: Session, journal: Journal
) -> None:
    claim = running(journal)
    segment = journal.commit(claim, "short", 5)
    before = session.state

    asked = journal.request("s", base=1)

    assert (asked.outcome, asked.head) == ("moved on", segment.number)
    assert asked.compaction is not None
    assert (asked.compaction.id, asked.compaction.segment) == (claim.compaction, segment.number)
    assert session.state == before


def test_a_request_on_a_segment_several_compactions_ago_is_told_the_newest_head(
    session: Session, journal: Journal
) -> None:
    first = journal.commit(running(journal), "short", 3)
    second = journal.commit(running(journal), "shorter", 5)

    asked = journal.request("s", base=1)

    assert (asked.outcome, asked.head) == ("moved on", second.number)
    assert asked.compaction is not None
    assert asked.compaction.segment == first.number


def test_a_request_on_a_segment_that_was_restored_away_is_told_so(session: Session, journal: Journal) -> None:
    restored = undo.restore(journal, "s", 1, expect_head=1)

    asked = journal.request("s", base=1)

    assert (asked.compaction, asked.outcome, asked.head) == (None, "moved on", restored.number)


def test_a_request_on_a_segment_that_never_was_is_an_error(session: Session, journal: Journal) -> None:
    with pytest.raises(StaleHandle, match="no segment 3"):
        journal.request("s", base=3)

    assert session.state.last == 7


@pytest.mark.parametrize("attempts", [0, -1])
def test_a_request_for_no_attempts_is_refused_since_nobody_could_ever_end_it(
    session: Session, journal: Journal, attempts: int
) -> None:
    with pytest.raises(OnefoldError, match="at least one attempt"):
        journal.request("s", attempts=attempts)

    assert session.state.last == 7


def test_a_person_passes_the_wait_after_a_failure_but_not_the_count_of_attempts(
    session: Session, journal: Journal
) -> None:
    journal.fail(running(journal, attempts=2, trigger="threshold"), "no answer", retry_after=60)
    assert journal.claim("s", who()) == ClaimDenied("waiting", NOON + 60)
    journal.request("s", trigger="overflow")
    assert journal.claim("s", who()) == ClaimDenied("waiting", NOON + 60)

    journal.request("s", trigger="manual")

    last = claimed(journal)
    assert (last.attempt, last.attempts_allowed) == (2, 2)
    assert journal.fail(last, "no answer", retry_after=0).state == "failed"


def exhausted(journal: Journal, trigger: str = "threshold") -> None:
    journal.fail(running(journal, attempts=1, trigger=trigger), "no answer", retry_after=0)


def test_automatic_failures_are_bounded_until_a_person_asks_f42(session: Session, journal: Journal) -> None:
    for _ in range(3):
        exhausted(journal)
    before = session.state

    held = journal.request("s", trigger="threshold")

    assert (held.compaction, held.outcome) == (None, "held back")
    assert "grown by a fifth or is full, or a person asks" in str(held.cause)
    assert session.state == before
    assert journal.request("s", trigger="manual").outcome == "opened"


def test_the_bound_on_automatic_failures_ends_when_the_context_has_grown_by_a_fifth(
    session: Session, journal: Journal
) -> None:
    for _ in range(3):
        exhausted(journal)
    session.append(said(7))
    assert journal.request("s", trigger="threshold").outcome == "held back"

    session.append(said(8))

    assert session.state.tokens >= session.state.failed_tokens * 1.2
    assert journal.request("s", trigger="threshold").outcome == "opened"


def test_the_bound_counts_again_after_each_failure_of_the_larger_context(session: Session, journal: Journal) -> None:
    for _ in range(3):
        exhausted(journal)
    session.append([said(7), said(8)])
    exhausted(journal)

    assert journal.request("s", trigger="threshold").outcome == "held back"


def test_the_bound_is_per_segment(session: Session, journal: Journal) -> None:
    for _ in range(3):
        exhausted(journal)
    journal.commit(running(journal), "short", 5)
    exhausted(journal)

    assert journal.request("s", trigger="threshold").outcome == "opened"


def test_failures_that_a_person_asked_for_are_not_held_against_automatic_ones(
    session: Session, journal: Journal
) -> None:
    for _ in range(5):
        exhausted(journal, "manual")

    assert journal.request("s", trigger="threshold").outcome == "opened"


# ---------------------------------------------------------------------- claim


def test_a_claim_is_a_record_and_its_number_is_the_fence(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    journal.request("s")
    clock.advance(3)

    claim = claimed(journal, lease=60, life=600)

    assert (claim.fence, claim.upto, claim.base, claim.attempt) == (9, 8, 1, 1)
    assert claim.until == clock.now + 60
    (record,) = session.read(9)
    assert record.kind == "compaction.started"
    current = now(journal, claim)
    assert (current.state, current.attempts, current.fence) == ("running", 1, 9)
    assert (current.started_at, current.holder) == (clock.now, who())


def test_with_nothing_open_there_is_nothing_to_claim(session: Session, journal: Journal) -> None:
    assert journal.claim("s", who()) == ClaimDenied("nothing open")
    journal.commit(running(journal), "short", 5)
    before = session.state

    assert journal.claim("s", who()) == ClaimDenied("nothing open")

    assert session.state == before


def test_a_claim_for_one_compaction_does_not_take_another(session: Session, journal: Journal) -> None:
    journal.request("s")

    assert journal.claim("s", who(), compaction="another") == ClaimDenied("nothing open")

    assert session.state.last == 8


def test_a_claim_that_is_held_is_not_granted_and_nothing_is_written(session: Session, journal: Journal) -> None:
    claim = running(journal)
    before = session.state

    assert journal.claim("s", who("other")) == ClaimDenied("held", claim.until)

    assert session.state == before


def test_a_claim_is_taken_over_when_its_lease_ends_f41(session: Session, journal: Journal, clock: StoppedClock) -> None:
    first = running(journal)
    clock.advance(59.999)
    assert isinstance(journal.claim("s", who("other")), ClaimDenied)

    clock.advance(0.001)
    second = claimed(journal, name="other")

    assert (second.compaction, second.attempt) == (first.compaction, 2)
    assert second.fence > first.fence
    assert now(journal, second).holder == who("other")


@pytest.mark.parametrize("jump", [HOUR, 24 * HOUR, -HOUR, -24 * HOUR, -61.0])
def test_a_clock_that_jumps_ends_the_lease_and_nothing_is_stuck(
    session: Session, journal: Journal, clock: StoppedClock, jump: float
) -> None:
    running(journal)

    clock.advance(jump)

    assert journal.holder("s") is None
    second = claimed(journal, name="other")
    assert journal.commit(second, "short", 5).cut == 5


def test_a_lease_with_more_time_left_than_its_own_length_counts_as_over(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    clock.advance(HOUR)
    first = running(journal)
    clock.advance(100)
    assert journal.renew(first) == clock.now + 60
    clock.advance(-50)  # back, but still within the attempt's life: 110 s are left of a lease of 60

    assert journal.holder("s") is None
    assert claimed(journal, name="other").attempt == 2


@pytest.mark.parametrize("jump", [-HOUR, -0.5])
def test_a_wait_longer_than_it_was_set_for_counts_as_over(
    session: Session, journal: Journal, clock: StoppedClock, jump: float
) -> None:
    journal.fail(running(journal), "no answer", retry_after=60)

    clock.advance(jump)

    assert claimed(journal).attempt == 2


# ---------------------------------------------------------------------- renew and holder


def test_renewing_extends_the_lease(session: Session, journal: Journal, clock: StoppedClock) -> None:
    claim = running(journal)
    before = session.state
    clock.advance(50)

    assert journal.renew(claim) == NOON + 110

    clock.advance(59)
    assert journal.claim("s", who("other")) == ClaimDenied("held", NOON + 110)
    assert session.state == before


def test_no_renewal_goes_beyond_the_attempts_longest_life_f45(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    journal.request("s")
    claim = claimed(journal, lease=60, life=100)
    clock.advance(50)
    assert journal.renew(claim) == NOON + 100

    clock.advance(49)
    assert journal.renew(claim) == NOON + 100
    clock.advance(1)

    assert journal.renew(claim) is None
    assert journal.holder("s") is None
    assert claimed(journal, name="other").attempt == 2


def test_a_clock_set_back_gives_no_attempt_a_longer_life_f45(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    claim = running(journal)
    clock.advance(-HOUR)

    assert journal.renew(claim) is None


def test_a_wedged_worker_that_renews_for_ever_is_taken_over_f45(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    wedged = running(journal)

    for _ in range(60):
        clock.advance(15)
        journal.renew(wedged)
        got = journal.claim("s", who("other"))
        if isinstance(got, Claim):
            break

    assert isinstance(got, Claim)
    assert clock.now == NOON + 600
    assert journal.renew(wedged) is None
    assert journal.commit(got, "short", 5).cut == 5


def test_a_lease_longer_than_the_attempts_life_ends_with_it(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    journal.request("s")

    assert claimed(journal, lease=600, life=10).until == clock.now + 10


def test_a_claim_that_was_taken_over_cannot_be_renewed(session: Session, journal: Journal, clock: StoppedClock) -> None:
    first = running(journal)
    clock.advance(60)
    second = claimed(journal, name="other")

    assert journal.renew(first) is None

    holder = journal.holder("s")
    assert holder is not None
    assert (holder.agent, holder.until) == ("other", second.until)


def test_a_lease_that_ran_out_unnoticed_can_be_renewed(session: Session, journal: Journal, clock: StoppedClock) -> None:
    claim = running(journal)
    clock.advance(70)

    assert journal.renew(claim) == clock.now + 60
    assert isinstance(journal.claim("s", who("other")), ClaimDenied)


@pytest.mark.parametrize("ending", ["commit", "fail", "cancel"])
def test_nothing_is_renewed_after_the_end(session: Session, journal: Journal, ending: str) -> None:
    claim = running(journal)
    if ending == "commit":
        journal.commit(claim, "short", 5)
    elif ending == "fail":
        journal.fail(claim, "no answer", retry_after=0)
    else:
        journal.cancel("s")

    assert journal.renew(claim) is None
    assert journal.holder("s") is None


def test_the_holder_is_who_works_now_since_when_and_until_when(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    assert session.compaction_holder() is None
    journal.request("s")
    assert session.compaction_holder() is None
    clock.advance(1)
    claim = claimed(journal, name="first")
    clock.advance(10)
    journal.renew(claim)

    holder = session.compaction_holder()

    assert holder is not None
    assert (holder.host, holder.pid, holder.thread, holder.agent) == ("here", 1, "main", "first")
    assert (holder.since, holder.until) == (NOON + 1, NOON + 71)


def test_nothing_says_active_after_a_crash_f40(session: Session, journal: Journal, clock: StoppedClock) -> None:
    running(journal)

    clock.advance(60)

    assert session.compaction_holder() is None
