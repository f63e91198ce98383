"""The contract on every kind of store: how a compaction ends, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onefold import (
    CommitRefused,
    Compaction,
    CompactionCancelled,
    CompactionSuperseded,
    MessageTooLarge,
    OnefoldError,
    Session,
    StaleHandle,
    StoreDamaged,
    Summary,
)
from onefold.journal import undo
from onefold.journal.journal import SUMMARY_LIMIT, Journal
from onefold.model import Claim, ClaimDenied
from tests.conftest import NOON, StoppedClock, claimed, running, said, who
from tests.support.helpers import kinds

HOUR = 3600.0


def now(journal: Journal, claim: Claim) -> Compaction:
    return journal.compaction(claim.session, claim.compaction)


# ---------------------------------------------------------------------- commit


def test_a_commit_moves_the_boundary_and_no_message(session: Session, journal: Journal, clock: StoppedClock) -> None:
    before = list(session.read())
    tokens = session.state.tokens
    claim = running(journal)
    clock.advance(20)

    segment = journal.commit(claim, Summary("short", by="a model"), 5, kept=[2])

    assert (segment.base, segment.cut, segment.source, segment.at) == (1, 5, "compaction", clock.now)
    assert (segment.compaction, segment.summary, segment.kept) == (claim.compaction, segment.number, (2,))
    assert (segment.tokens_before, segment.tokens_after) == (tokens, session.state.tokens)
    assert segment.tokens_after < tokens
    assert list(session.read(1, 8)) == before
    current = now(journal, claim)
    assert (current.state, current.segment, current.settled_at) == ("committed", segment.number, clock.now)
    assert session.context().numbers == (segment.number, 2, 5, 6, 7)


def test_what_arrives_while_the_summary_is_written_is_in_the_next_context_in_order_f20_f08(
    session: Session, journal: Journal
) -> None:
    claim = running(journal)
    session.append([said(7), said(8)])

    segment = journal.commit(claim, "short", claim.fence)

    assert segment.cut == claim.fence
    context = session.context()
    assert context.messages[1:] == [said(7), said(8)]


@pytest.mark.parametrize("cut", [-1, 0, 1, 10, 11, 1000])
def test_a_cut_out_of_range_is_refused_with_nothing_written(session: Session, journal: Journal, cut: int) -> None:
    claim = running(journal)
    session.append([said(7), said(8)])
    before = session.state

    with pytest.raises(CommitRefused, match=f"its cut {cut} lies outside 2…9") as refused:
        journal.commit(claim, "short", cut)

    assert type(refused.value) is CommitRefused
    assert (refused.value.session, refused.value.compaction) == ("s", claim.compaction)
    assert session.state == before
    assert now(journal, claim).state == "running"


@pytest.mark.parametrize("cut", [2, 9])
def test_a_cut_at_either_end_of_the_range_is_taken(session: Session, journal: Journal, cut: int) -> None:
    assert journal.commit(running(journal), "short", cut).cut == cut


def test_the_next_cut_lies_beyond_the_last_one(session: Session, journal: Journal) -> None:
    journal.commit(running(journal), "short", 5)
    claim = running(journal)

    with pytest.raises(CommitRefused, match="its cut 5 lies outside 6…"):
        journal.commit(claim, "shorter", 5)

    assert journal.commit(claim, "shorter", 6).cut == 6


@pytest.mark.parametrize("kept", [[5], [2, 6], [1], [8], [0], [99], [2, 2]])
def test_only_a_message_before_the_cut_can_be_kept_by_name(session: Session, journal: Journal, kept: list[int]) -> None:
    claim = running(journal)
    before = session.state

    with pytest.raises(CommitRefused, match="not all it keeps"):
        journal.commit(claim, "short", 5, kept=kept)

    assert session.state == before


@pytest.mark.parametrize("summary", ["", " \n\t", Summary("")])
def test_an_empty_summary_is_refused_f60(session: Session, journal: Journal, summary: str | Summary) -> None:
    claim = running(journal)

    with pytest.raises(CommitRefused, match="empty"):
        journal.commit(claim, summary, 5)

    assert now(journal, claim).state == "running"


def test_a_summary_over_a_mebibyte_is_too_large(session: Session, journal: Journal) -> None:
    claim = running(journal)
    before = session.state

    with pytest.raises(MessageTooLarge, match="1 MiB"):
        journal.commit(claim, "é" * (SUMMARY_LIMIT // 2 + 1), 5)

    assert session.state == before
    assert journal.commit(claim, "é" * (SUMMARY_LIMIT // 2), 5).cut == 5


def test_a_claim_the_store_does_not_know_commits_nothing(session: Session, journal: Journal) -> None:
    claim = running(journal)
    before = session.state

    for wrong in (
        replace(claim, compaction="unknown"),
        replace(claim, fence=999),
        replace(claim, fence=5),
        replace(claim, fence=claim.fence - 1),
    ):
        with pytest.raises(CommitRefused):
            journal.commit(wrong, "short", 4)

    assert session.state == before


def test_the_claim_of_another_process_is_not_ours_to_use(session: Session, journal: Journal) -> None:
    foreign = replace(running(journal), pid=-1)

    for use in (
        lambda: journal.commit(foreign, "short", 5),
        lambda: journal.fail(foreign, "no answer", 0),
        lambda: journal.renew(foreign),
    ):
        with pytest.raises(OnefoldError, match="belongs to process -1"):
            use()

    assert now(journal, foreign).state == "running"


def test_a_repeated_commit_returns_the_same_segment_f09(session: Session, journal: Journal) -> None:
    claim = running(journal)
    segment = journal.commit(claim, "short", 5)
    before = session.state

    assert journal.commit(claim, "short", 5) == segment
    assert journal.commit(claim, "another text", 6) == segment

    assert session.state == before
    journal.commit(running(journal), "shorter", 6)
    assert journal.commit(claim, "short", 5) == segment


def test_a_late_commit_is_refused_with_nothing_written_f04(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    slow = running(journal)
    clock.advance(60)
    quick = claimed(journal, name="other")
    segment = journal.commit(quick, "the quick one's", 5)
    before = session.state

    with pytest.raises(CompactionSuperseded, match="committed already; nothing was written"):
        journal.commit(slow, "the slow one's", 5)

    assert session.state == before
    assert session.head == segment.number
    assert session.context().summary == "the quick one's"


def test_an_older_attempt_that_finishes_first_wins_and_the_newer_is_refused_f04(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    older = running(journal)
    clock.advance(60)
    newer = claimed(journal, name="other")

    segment = journal.commit(older, "the older one's", 5)

    with pytest.raises(CompactionSuperseded):
        journal.commit(newer, "the newer one's", 5)
    assert journal.holder("s") is None
    assert journal.commit(older, "the older one's", 5) == segment
    current = now(journal, older)
    assert (current.state, current.fence, current.attempts) == ("committed", older.fence, 2)
    assert [s.base for s in session.segments()] == [None, 1]


def test_an_older_attempt_may_not_cut_beyond_what_it_claimed(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    older = running(journal)
    session.append(said(7))
    clock.advance(60)
    newer = claimed(journal, name="other")

    with pytest.raises(CommitRefused, match="lies outside"):
        journal.commit(older, "short", older.fence + 1)

    assert journal.commit(newer, "short", older.fence + 1).cut == older.fence + 1


def test_a_cancelled_compaction_is_not_committed(session: Session, journal: Journal) -> None:
    claim = running(journal)
    journal.cancel("s")
    before = session.state

    with pytest.raises(CompactionCancelled, match="it was cancelled; nothing was written"):
        journal.commit(claim, "short", 5)

    assert session.state == before


def test_a_failed_compaction_is_not_committed(session: Session, journal: Journal) -> None:
    claim = running(journal)
    journal.fail(claim, "no progress", retry_after=None)

    with pytest.raises(CompactionSuperseded, match="failed already"):
        journal.commit(claim, "short", 5)


def test_the_claim_of_a_settled_compaction_is_worth_nothing_to_the_next_one(session: Session, journal: Journal) -> None:
    old = running(journal)
    journal.cancel("s")
    new = running(journal)

    for stale in (old, replace(old, compaction=new.compaction), replace(new, fence=old.fence)):
        with pytest.raises(CommitRefused):
            journal.commit(stale, "short", 5)

    assert journal.commit(new, "short", 5).base == 1


def test_no_state_closes_a_session_f23_f24(session: Session, journal: Journal) -> None:
    """Nothing is cleared and nothing is closed: between any two steps the session reads and writes as ever."""

    def still_whole(n: int) -> None:
        session.append(said(n))
        assert session.context().messages[-1] == said(n)
        assert [r.body for r in session.read(2, 8)] == [said(n) for n in range(1, 7)]

    journal.request("s")
    still_whole(10)
    claim = claimed(journal)
    still_whole(11)
    journal.fail(claim, "crash", retry_after=0)
    still_whole(12)
    journal.commit(claimed(journal), "short", 5)
    still_whole(13)
    running(journal)
    journal.cancel("s")
    still_whole(14)


# ---------------------------------------------------------------------- fail


def test_a_failed_attempt_is_retried_after_its_wait(session: Session, journal: Journal, clock: StoppedClock) -> None:
    failed = journal.fail(running(journal), "no answer", retry_after=15)

    assert (failed.state, failed.cause, failed.not_before) == ("requested", "no answer", NOON + 15)
    assert journal.claim("s", who()) == ClaimDenied("waiting", NOON + 15)
    assert journal.holder("s") is None
    clock.advance(15)
    assert claimed(journal).attempt == 2


def test_the_last_attempts_failure_settles_the_compaction(session: Session, journal: Journal) -> None:
    journal.request("s", attempts=2)
    journal.fail(claimed(journal), "first", retry_after=0)

    failed = journal.fail(claimed(journal), "second", retry_after=0)

    assert (failed.state, failed.cause, failed.attempts) == ("failed", "second", 2)
    assert session.state.open is None
    assert journal.request("s").outcome == "opened"


def test_a_failure_without_a_retry_settles_at_once(session: Session, journal: Journal) -> None:
    assert journal.fail(running(journal), "no progress", retry_after=None).state == "failed"

    assert journal.claim("s", who()) == ClaimDenied("nothing open")


def test_a_repeated_failure_is_harmless(session: Session, journal: Journal) -> None:
    claim = running(journal)
    first = journal.fail(claim, "no answer", retry_after=15)
    before = session.state

    assert journal.fail(claim, "no answer", retry_after=99) == first
    assert journal.fail(claim, "no answer", retry_after=None) == first

    assert session.state == before


def test_only_the_newest_claim_can_fail_its_compaction(session: Session, journal: Journal, clock: StoppedClock) -> None:
    older = running(journal)
    clock.advance(60)
    newer = claimed(journal, name="other")
    before = session.state

    assert journal.fail(older, "too late", retry_after=None).state == "running"

    assert session.state == before
    assert journal.commit(newer, "short", 5).cut == 5


@pytest.mark.parametrize("trigger", ["manual", "threshold"])
def test_a_dead_last_attempt_is_settled_by_the_next_request_which_starts_afresh(
    session: Session, journal: Journal, clock: StoppedClock, trigger: str
) -> None:
    dead = running(journal, attempts=1)
    assert journal.request("s", trigger=trigger).outcome == "joined"
    clock.advance(60)

    asked = journal.request("s", trigger=trigger)

    settled = now(journal, dead)
    assert settled.state == "failed"
    assert "attempt 1 of 1 ended without a word" in str(settled.cause)
    assert asked.outcome == "opened"
    assert asked.compaction is not None
    assert (asked.compaction.attempts, asked.compaction.requests) == (0, 1)
    assert kinds(session, 10) == ["compaction.joined", "compaction.failed", "compaction.requested"]


def test_a_dead_last_attempt_is_settled_by_the_next_claim(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    dead = running(journal, attempts=1, trigger="threshold")
    assert journal.claim("s", who("other")) == ClaimDenied("held", dead.until)
    clock.advance(60)

    assert journal.claim("s", who("other")) == ClaimDenied("nothing open")

    assert now(journal, dead).state == "failed"
    assert session.state.open is None
    assert session.state.failures == 1
    with pytest.raises(CompactionSuperseded):
        journal.commit(dead, "short", 5)


def test_a_last_attempt_that_outlived_its_lease_but_was_not_met_may_still_commit(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    slow = running(journal, attempts=1)
    clock.advance(HOUR)

    assert journal.commit(slow, "short", 5).cut == 5


# ---------------------------------------------------------------------- cancel


def test_cancelling_ends_what_is_open_whoever_works_on_it(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    claim = running(journal)
    clock.advance(1)

    cancelled = journal.cancel("s", actor="me")

    assert cancelled is not None
    assert (cancelled.id, cancelled.state, cancelled.settled_at) == (claim.compaction, "cancelled", clock.now)
    assert session.compaction_holder() is None
    assert journal.claim("s", who()) == ClaimDenied("nothing open")
    assert list(session.read())[-1].actor == "me"


def test_cancelling_with_nothing_open_changes_nothing(session: Session, journal: Journal) -> None:
    assert journal.cancel("s") is None
    assert session.state.last == 7


def test_cancelling_what_is_settled_returns_it_as_it_is(session: Session, journal: Journal) -> None:
    claim = running(journal)
    journal.commit(claim, "short", 5)
    running(journal)
    before = session.state

    settled = journal.cancel("s", claim.compaction)

    assert settled == now(journal, claim)
    assert settled.state == "committed"
    assert session.state == before


def test_cancelling_a_compaction_that_never_was_is_an_error(session: Session, journal: Journal) -> None:
    with pytest.raises(OnefoldError, match="no compaction 'unknown'"):
        journal.cancel("s", "unknown")


@pytest.mark.parametrize("ending", ["committed", "failed", "cancelled", "superseded"])
def test_a_final_state_stays_final(session: Session, journal: Journal, clock: StoppedClock, ending: str) -> None:
    claim = running(journal)
    if ending == "committed":
        journal.commit(claim, "short", 5)
    elif ending == "failed":
        journal.fail(claim, "no progress", retry_after=None)
    elif ending == "cancelled":
        journal.cancel("s")
    else:
        undo.restore(journal, "s", 1, expect_head=1)
    settled = now(journal, claim)
    assert settled.state == ending

    journal.fail(claim, "late", retry_after=0)
    journal.cancel("s", claim.compaction)
    journal.renew(claim)
    if ending != "committed":
        with pytest.raises(CommitRefused):
            journal.commit(claim, "short", 5)
    journal.request("s")
    clock.advance(HOUR)
    claimed(journal)
    journal.cancel("s")

    assert now(journal, claim) == settled


# ---------------------------------------------------------------------- restore


def test_restoring_opens_a_new_segment_with_an_older_boundary(session: Session, journal: Journal) -> None:
    whole = session.context()
    compacted = journal.commit(running(journal), "short", 5)
    assert session.context().messages != whole.messages

    undone = undo.restore(journal, "s", 1, expect_head=compacted.number)

    assert (undone.base, undone.cut, undone.source) == (compacted.number, 1, "restored")
    assert session.context().messages == whole.messages
    assert session.state.tokens == whole.tokens
    redone = undo.restore(journal, "s", compacted.number, expect_head=undone.number)
    assert (redone.summary, redone.cut) == (compacted.number, 5)
    assert session.context().summary == "short"
    assert session.state.tokens == compacted.tokens_after


def test_restoring_is_refused_if_the_head_moved(session: Session, journal: Journal) -> None:
    segment = journal.commit(running(journal), "short", 5)
    before = session.state

    with pytest.raises(StaleHandle, match=f"at segment {segment.number}, not 1"):
        undo.restore(journal, "s", 1, expect_head=1)

    assert session.state == before


def test_restoring_supersedes_the_compaction_that_is_open(session: Session, journal: Journal) -> None:
    claim = running(journal)

    undo.restore(journal, "s", 1, expect_head=1)

    assert now(journal, claim).state == "superseded"
    assert session.state.open is None
    assert session.compaction_holder() is None
    before = session.state
    with pytest.raises(CompactionSuperseded):
        journal.commit(claim, "short", 5)
    assert session.state == before


def test_restoring_a_segment_that_never_was_is_an_error_of_the_caller(session: Session, journal: Journal) -> None:
    with pytest.raises(OnefoldError, match="no segment 5") as error:
        undo.restore(journal, "s", 5, expect_head=1)

    assert not isinstance(error.value, StoreDamaged)
    assert session.state.last == 7


def test_every_segment_has_one_successor(session: Session, journal: Journal) -> None:
    for cut in (3, 4, 5):
        journal.commit(running(journal), f"summary up to {cut}", cut)
        undo.restore(journal, "s", 1, expect_head=session.head)
        session.append(said(cut))

    chain = session.segments()

    assert [s.base for s in chain] == [None, *(s.number for s in chain[:-1])]
