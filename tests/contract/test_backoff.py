"""What counts against a compaction and what does not, on every kind of store: plans, hand-backs, bounds.

A healthy summarizer is reached in the end, a broken one costs little, and nothing to compact is no failure.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import onefold
from onefold import Compactor, CompactResult, Limits, Policy, Session, Store, Summary, SummaryInput
from onefold.compaction.material import load_material
from onefold.compaction.summarizer import Made
from onefold.errors import SummarizerFailed
from onefold.journal import turns
from onefold.journal.backoff import AGAIN, AGAIN_AT_MOST, AUTOMATIC_FAILURES
from onefold.journal.journal import Journal
from onefold.model import Claim, Json, TurnClaim
from tests.conftest import StoppedClock, claimed, running, said, who
from tests.support.helpers import PATIENCE, Child, converse, counted, kinds, quick, say
from verification.operations import talk

LIMITS = Limits(window=1_000, output=100, soft=0.5, hard=0.9)
HARD = 28  # messages, of about 33 tokens each


def policy(**changes: Json) -> Policy:
    return quick(**{"limits": LIMITS, "quote_tokens": 0, **changes})


def fine(material: SummaryInput) -> str:
    return f"A summary of {len(material.records)} messages, up to #{material.records[-1].number}."


def broken(material: SummaryInput) -> str:
    raise RuntimeError("the model is gone")


# ---------------------------------------------------------------------- what is over is decided by what was claimed


def call(id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def in_a_turn(journal: Journal) -> TurnClaim:
    turn = turns.start(journal, "s", who(), lease=60)
    assert isinstance(turn, TurnClaim)
    return turn


@pytest.mark.parametrize("outcome", ["settled", "failed"])
def test_a_call_that_was_open_when_it_was_claimed_is_not_cut_from_its_result(
    store: Store, journal: Journal, outcome: str
) -> None:
    """Its result comes and its turn ends between the claim and the plan: that changes nothing for this attempt."""
    session = store.session("s")
    with session.turn() as turn:
        turn.append({"role": "user", "content": "look at the log " * 20})
        turn.append({"role": "assistant", "content": None, "tool_calls": [call("c1")]})
        session.append([said(n) for n in range(1, 12, 2)])  # the user types while the tool runs
        claim = running(journal)
        turn.append({"role": "tool", "tool_call_id": "c1", "content": "DISK FAILURE in bay 7"})
        turn.end(outcome)  # type: ignore[arg-type]

    planned = load_material(journal, claim).plan(quick(tail_tokens=1, tail_messages=1, min_shrink=0.01))

    opened = next(r.number for r in session.read() if r.header is not None and r.header.call_ids)
    assert getattr(planned, "cut", 0) <= opened


def test_a_call_that_was_given_up_by_then_may_be_cut(store: Store, journal: Journal) -> None:
    session = store.session("s")
    with session.turn() as turn:
        turn.append({"role": "user", "content": "look at the log " * 20})
        turn.append({"role": "assistant", "content": None, "tool_calls": [call("c1")]})
    session.append([said(n) for n in range(1, 12, 2)])
    claim = running(journal)

    planned = load_material(journal, claim).plan(quick(tail_tokens=1, tail_messages=1, min_shrink=0.01))

    opened = next(r.number for r in session.read() if r.header is not None and r.header.call_ids)
    assert getattr(planned, "cut", 0) > opened


# ---------------------------------------------------------------------- nothing to compact


def short(store: Store) -> Session:
    """A session whose only message is the newest, which stays."""
    session = store.session("s")
    session.append(said(1))
    return session


def test_with_nothing_to_compact_nothing_is_written_and_nothing_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    session = short(store)
    before, records = session.state, kinds(session)

    with caplog.at_level(logging.INFO, "onefold"):
        results = [session.compact(fine, trigger=trigger) for trigger in ("manual", "threshold", "limit")]

    assert {(r.id, r.state, r.changed, r.segment) for r in results} == {(None, "skipped", False, before.head)}
    assert all("less than a cut would have to save" in str(r.cause) for r in results)
    assert (session.state, kinds(session)) == (before, records)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_what_somebody_else_asked_for_in_vain_is_skipped_and_rests_until_the_context_has_grown(
    store: Store, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    session = short(store)
    journal.request("s", trigger="upkeep")

    result = session.compact(fine, trigger="upkeep")

    assert (result.state, result.joined, result.changed) == ("skipped", True, False)
    (skipped,) = session.compactions()
    assert (skipped.state, skipped.open, skipped.spent.calls) == ("skipped", False, 0)
    assert (session.state.failures, session.state.rests) == (0, session.state.tokens)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
    held = journal.request("s", trigger="upkeep")
    assert (held.outcome, held.compaction) == ("held back", None)
    assert "nothing to compact" in str(held.cause)
    session.append([said(n) for n in range(2, 5)])
    assert journal.request("s", trigger="upkeep").outcome == "opened"


def test_a_rest_keeps_neither_a_person_nor_a_full_context_from_asking(session: Session, journal: Journal) -> None:
    for trigger in ("manual", "limit", "overflow"):
        assert journal.request("s", trigger=trigger).outcome == "opened"
        journal.skip(claimed(journal), "there is nothing to compact")

    assert journal.request("s", trigger="threshold").outcome == "held back"


def test_a_skip_of_a_claim_that_is_over_changes_nothing(session: Session, journal: Journal) -> None:
    claim = running(journal)
    journal.cancel("s")
    before = session.state

    assert journal.skip(claim, "late").state == "cancelled"
    assert journal.hand_back(claim, "late", asked=True).state == "cancelled"

    assert session.state == before


class TooMuch:
    """A summarizer that always says the same of the same, and too much."""

    deterministic = True

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, material: SummaryInput) -> Made:
        self.calls.append(tuple(r.number for r in material.records))
        return "word " * 4_000


@pytest.mark.parametrize("trigger", ["manual", "threshold", "limit"])
def test_a_deterministic_summarizer_is_never_asked_twice_for_the_same(session: Session, trigger: str) -> None:
    session.append(talk(30))
    summarizer = TooMuch()

    first = session.compact(summarizer, trigger=trigger)
    again = [session.compact(summarizer, trigger=trigger) for _ in range(4)]

    assert first.state == "failed"
    assert {r.state for r in again} <= {"skipped", "held back"}
    assert len(summarizer.calls) == 1
    for n in range(40):
        session.append(talk(2, start=40 + n))
        session.compact(summarizer, trigger=trigger)
    assert len(summarizer.calls) == len(set(summarizer.calls)) > 1, "other messages are another question"


def test_a_summarizer_that_may_answer_otherwise_is_asked_again(session: Session) -> None:
    session.append(talk(30))
    answers = iter(["word " * 4_000, "Short this time."])

    result = session.compact(lambda m: next(answers), policy=quick(backoff=(0.0,)))

    assert (result.state, session.context().summary) == ("committed", "Short this time.")


# ---------------------------------------------------------------------- what is handed back


def test_what_is_handed_back_is_no_attempt_and_no_failure_but_paid(session: Session, journal: Journal) -> None:
    journal.request("s", trigger="threshold", attempts=1)
    for n in range(1, 6):
        given_back = journal.hand_back(claimed(journal), "its process closed the store", asked=n > 3)
        assert (given_back.state, given_back.attempts, given_back.asked) == ("requested", 0, 0)

    assert (session.state.paid, session.state.failures) == (2, 0)
    assert claimed(journal).attempt == 1


def test_after_so_many_paid_calls_the_soft_trigger_rests_and_a_full_context_does_not(
    session: Session, journal: Journal
) -> None:
    journal.request("s", trigger="threshold", attempts=3)
    for _ in range(3):
        journal.hand_back(claimed(journal), "closed", asked=True)
    before = session.state

    held = journal.request("s", trigger="threshold", attempts=3)

    assert (held.outcome, held.compaction) == ("held back", None)
    assert "not brought to their end" in str(held.cause)
    assert session.state == before
    assert journal.request("s", trigger="limit", attempts=3).outcome == "joined"
    assert journal.request("s", trigger="manual", attempts=3).outcome == "joined"
    journal.commit(claimed(journal), "made at last")
    assert session.state.paid == 0
    assert journal.request("s", trigger="threshold").outcome == "opened"


def test_a_call_that_failed_before_a_summarizer_was_asked_is_held_against_nobody(
    session: Session, journal: Journal
) -> None:
    journal.request("s", trigger="threshold", attempts=2)
    journal.fail(claimed(journal), "the disk did not answer", 0.0, asked=False)
    ended = journal.fail(claimed(journal), "the disk did not answer", 0.0, asked=False)

    assert (ended.state, ended.asked) == ("failed", 0)
    assert (session.state.failures, session.state.rests) == (0, session.state.tokens)


def test_an_attempt_that_died_may_have_asked(session: Session, journal: Journal, clock: StoppedClock) -> None:
    journal.request("s", trigger="threshold", attempts=2)
    for _ in range(2):
        assert isinstance(journal.claim("s", who(), lease=10, life=20), Claim)
        clock.advance(30)

    journal.claim("s", who())

    assert session.compactions()[0].asked == 2
    assert session.state.failures == 1


# ---------------------------------------------------------------------- failures, and who is heard again


def worn_out(journal: Journal) -> None:
    for _ in range(AUTOMATIC_FAILURES):
        journal.request("s", trigger="threshold", attempts=1)
        journal.fail(claimed(journal), "no answer", None)


def test_a_full_context_is_heard_again_after_failures_at_a_bounded_rate(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    worn_out(journal)
    assert journal.request("s", trigger="limit", attempts=1).outcome == "opened", "the first time at once"
    journal.fail(claimed(journal), "no answer", None)
    waited = []
    for _ in range(6):
        held = journal.request("s", trigger="limit", attempts=1)
        assert (held.outcome, held.compaction) == ("held back", None)
        assert held.retry_at is not None
        waited.append(held.retry_at - clock.now)
        clock.advance(waited[-1] - 1)
        assert journal.request("s", trigger="overflow").outcome == "held back"
        clock.advance(1)
        assert journal.request("s", trigger="threshold").outcome == "held back"
        assert journal.request("s", trigger="limit", attempts=1).outcome == "opened"
        journal.fail(claimed(journal), "no answer", None)

    assert waited == [AGAIN, 2 * AGAIN, 4 * AGAIN, 8 * AGAIN, AGAIN_AT_MOST, AGAIN_AT_MOST]


def test_a_clock_that_jumped_back_makes_no_full_context_wait(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    worn_out(journal)
    journal.request("s", trigger="limit", attempts=1)
    journal.fail(claimed(journal), "no answer", None)
    assert journal.request("s", trigger="limit").outcome == "held back"
    clock.advance(-86_400)

    assert journal.request("s", trigger="limit").outcome == "opened"


def test_at_the_hard_limit_a_summarizer_that_works_again_is_reached(
    store: Store, session: Session, clock: StoppedClock
) -> None:
    converse(session, HARD)
    failing = Compactor(store, broken, policy(attempts=1))
    for _ in range(AUTOMATIC_FAILURES + 2):
        with pytest.raises(onefold.ContextTooLarge):
            failing.before_turn(session)
    assert session.state.failures == AUTOMATIC_FAILURES

    clock.advance(AGAIN)

    assert Compactor(store, fine, policy()).before_turn(session).tokens <= LIMITS.hard_tokens


def test_a_huge_result_in_a_turn_leaves_the_session_usable_once_it_is_over(store: Store, session: Session) -> None:
    """Nothing can be cut while the turn is at it; that is no failure, and the next turn compacts."""
    compactor = Compactor(store, fine, policy())
    with session.turn() as turn:
        turn.append({"role": "user", "content": "read the log"})
        turn.append({"role": "assistant", "content": None, "tool_calls": [call("c1")]})
        turn.append({"role": "tool", "tool_call_id": "c1", "content": "line of the log\n" * 400})
        for _ in range(5):
            with pytest.raises(onefold.ContextTooLarge, match="there is nothing to compact"):
                compactor.mid_turn(session)
    assert session.compactions() == []

    session.append([{"role": "assistant", "content": "It is fine."}, {"role": "user", "content": "Good. And now?"}])

    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens


def test_a_summarizer_that_always_says_the_same_leaves_no_agent_stuck(store: Store) -> None:
    session, compactor = store.session("s"), Compactor(store, lambda m: "[earlier messages are left out]", policy())
    for n in range(1, 200):
        session.append(said(n))
        assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens
        store.finish(PATIENCE)

    assert session.state.committed > 2


@pytest.mark.parametrize("wished", [86_400.0, float("inf"), float("nan"), -5.0, 0.0, 100.0])
def test_a_providers_wish_to_be_left_alone_has_a_bound_in_the_policy(
    store: Store, session: Session, clock: StoppedClock, wished: float
) -> None:
    session.append(talk(30))

    def limited(material: SummaryInput) -> str:
        raise SummarizerFailed("daily quota", kind="rate limit", retry_after=wished)

    session.compact(limited, wait=False, policy=policy(attempts=2, backoff=(7.0,), longest_wait=50.0))
    store.finish(PATIENCE)

    (waiting,) = session.compactions()
    assert waiting.state == "requested"
    assert waiting.not_before == clock.now + (50.0 if 50 <= wished < float("inf") else 7.0)


# ---------------------------------------------------------------------- processes that end


def test_short_processes_with_a_summary_slower_than_a_turn_are_refused_no_turn(durable: str) -> None:
    """One process a turn, closed properly; each summary is slower than its turn, and asked for all the same."""
    release, asked = threading.Event(), threading.Event()
    refused, calls, sent = 0, 0, 0

    def slow(material: SummaryInput) -> Summary:
        nonlocal calls
        calls += 1
        asked.set()
        release.wait(PATIENCE)
        return Summary(f"Summary {calls}, up to #{material.records[-1].number}.")

    for turn in range(200):
        with onefold.open(durable, policy=policy(quote_tokens=0)) as store:
            session, compactor = store.session("s"), Compactor(store, slow)
            session.append(said(2 * turn + 1))
            full = session.state.tokens > LIMITS.hard_tokens
            (release.set if full else release.clear)()
            asked.clear()
            try:
                context = compactor.before_turn(session)
            except onefold.ContextTooLarge:
                refused += 1
                continue
            sent += context.tokens <= LIMITS.hard_tokens
            if session.state.open is not None and session.compaction_holder() is not None:
                assert asked.wait(PATIENCE)  # paid, and handed back a moment later
            session.append(said(2 * turn + 2))
        release.set()

    with onefold.open(durable) as store:
        session = store.session("s")
        committed = session.state.committed
        assert (refused, sent) == (0, 200)
        assert committed > 5
        assert calls <= (policy().attempts + 1) * (committed + 1), "three in vain, then one that is waited for"
        assert counted(session, "compaction.joined") <= (policy().attempts + 1) * (committed + 1)


def test_real_processes_of_one_turn_each_are_refused_none(tmp_path: Path) -> None:
    """Nothing is known to the next one but what the journal says. Every other one does not close its store."""
    turns = 200 if "ONEFOLD_STEPS" in os.environ else 60
    attempts, path = policy().attempts, str(tmp_path / "agent.db")
    with Child(
        "short_lives", module="tests.support.compactor_children", path=path, session="s", limits=[1_000, 100],
        turns=turns,
    ) as child:  # fmt: skip
        ended = [child.hear("lived")["ended"] for _ in range(turns)]

    assert [n for n, code in enumerate(ended) if code not in (0, 2)] == [], "turns that were refused"
    with onefold.open(path) as store:
        session = store.session("s")
        committed = session.state.committed
        assert committed >= 3
        assert 3 <= ended.count(2) <= attempts * (committed + 1), "some were begun in vain, and not without a bound"
        assert {c.state for c in session.compactions()} <= {"committed", "requested"}
        assert session.compaction_holder() is None
        assert store.verify().findings == ()


def test_the_summary_is_waited_for_to_its_end_where_others_were_begun_in_vain(store: Store, session: Session) -> None:
    """However short a caller waits as a rule: it would pay again and again for nothing."""
    converse(session, HARD)
    store.journal.request("s", trigger="threshold", attempts=3)
    for _ in range(3):
        store.journal.hand_back(claimed(store.journal), "closed", asked=True)
    compactor = Compactor(store, fine, policy(wait_timeout=0.0))

    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens


def test_closing_with_patience_brings_a_summary_to_its_end(durable: str) -> None:
    go = threading.Event()

    def slow(material: SummaryInput) -> str:
        assert go.wait(PATIENCE)
        return fine(material)

    store = onefold.open(durable)
    session = store.session("s")
    session.append(talk(30))
    session.compact(slow, wait=False)
    assert not store.finish(0.01)
    assert not Compactor(store, slow).finish(0.01)
    threading.Timer(0.05, go.set).start()

    store.close(wait=PATIENCE)

    with onefold.open(durable) as store:
        assert [c.state for c in store.session("s").compactions()] == ["committed"]


def test_a_process_that_ends_without_closing_hands_its_summary_back(durable: str) -> None:
    with Child("ends_in_mid_summary", module="tests.contract.test_backoff", address=durable) as child:
        child.hear("asked")
        assert child.end() == 0

    with onefold.open(durable) as store:
        session = store.session("s")
        (left,) = session.compactions()
        assert (left.state, left.attempts, left.cause) == ("requested", 0, "its process ended")
        assert session.compaction_holder() is None
        result: CompactResult = session.compact(fine)
        assert (result.applied, result.state) == (True, "committed")


def ends_in_mid_summary(address: str) -> None:
    """A program that forgets to close its store."""
    asked = threading.Event()

    def slow(material: SummaryInput) -> str:
        asked.set()
        threading.Event().wait(PATIENCE)
        return fine(material)

    session = onefold.open(address).session("s")
    session.append(talk(30))
    session.compact(slow, wait=False)
    assert asked.wait(PATIENCE)
    say("asked")


# ---------------------------------------------------------------------- the limits that a session goes by


def test_a_session_says_which_limits_its_agent_goes_by(store: Store, session: Session) -> None:
    assert (session.limits(), session.state.window) == (None, 0)
    small = Limits(500, 50)
    compactor = Compactor(store, fine, policy(models={"small": small}))

    compactor.before_turn(session)
    compactor.before_turn(session)
    compactor.mid_turn(session)

    assert (session.limits(), session.state.window) == (LIMITS, 1_000)
    assert counted(session, "limits") == 1
    compactor.before_turn(session, model="small")
    compactor.mid_turn(session, model="small")
    assert (session.limits(), session.state.window) == (small, 500)
    assert counted(session, "limits") == 2
    assert [r.body["limits"]["model"] for r in session.read() if r.kind == "limits"] == [None, "small"]


def test_whoever_spoke_last_is_the_one_a_session_goes_by(store: Store, session: Session) -> None:
    one, two = (Compactor(store, fine, policy(limits=Limits(window, 50))) for window in (1_000, 2_000))
    for compactor, window in ((one, 1_000), (two, 2_000), (one, 1_000), (one, 1_000)):
        compactor.before_turn(session)
        assert session.state.window == window

    assert counted(session, "limits") == 3


def test_a_fork_goes_by_what_its_parent_did_wherever_it_branched_off(store: Store, session: Session) -> None:
    early = session.state.last
    session.go_by(LIMITS, "a model")

    forks = [session.fork(), session.fork(at=early), session.fork().fork("review")]

    assert [f.limits() for f in forks] == [LIMITS] * 3
    assert {f.state.window for f in forks} == {1_000}
    store.delete("s")
    assert [f.limits() for f in forks] == [LIMITS] * 3


def test_upkeep_goes_by_the_sessions_record_and_guesses_nothing(store: Store, clock: StoppedClock) -> None:
    unknown, small, large = (store.session(id) for id in ("unknown", "small", "large"))
    for session in (unknown, small, large):
        session.append(talk(40))
    small.go_by(Limits(1_000, 100))
    large.go_by(Limits(1_000_000, 100))
    clock.advance(600)

    assert [s.id for s in Compactor(store, fine, quick()).due_sessions(300)] == ["small"]
    assert {s.id for s in Compactor(store, fine, policy()).due_sessions(300)} == {"small", "unknown"}
    assert Compactor(store, fine, quick()).limits_of(unknown.state) is None
    assert Compactor(store, fine, quick(window=5_000)).limits_of(unknown.state) == Limits(5_000, 625)


@pytest.mark.parametrize("window", [1e6, 1 << 53], ids=str)
def test_any_window_that_limits_take_is_one_that_a_store_takes(store: Store, session: Session, window: Json) -> None:
    compactor = Compactor(store, fine, policy(limits=Limits(window, 50)))

    compactor.before_turn(session)
    compactor.before_turn(session)

    assert (session.limits(), session.state.window) == (Limits(window, 50), int(window))
    assert counted(session, "limits") == 1
    assert store.verify().findings == ()


NONSENSE: list[Json] = [
    {"window": 1_000}, {"window": "many", "output": 100, "soft": 0.5, "hard": 0.9}, {},
    {"window": 1e300, "output": 100, "soft": 0.5, "hard": 0.9},
    {"window": 1_000, "output": 100, "soft": 7, "hard": 0.9},
]  # fmt: skip


@pytest.mark.parametrize("said", NONSENSE, ids=str)
def test_limits_that_make_no_sense_are_as_good_as_none_and_nobody_elses_trouble(
    store: Store, clock: StoppedClock, said: Json
) -> None:
    """Written by hand, or by a program of another kind."""
    for id in ("odd", "other"):
        session = store.session(id)
        session.append(talk(40))
        session.go_by(Limits(1_000, 100))
    odd = store.session("odd")
    store.journal.append("odd", [store.journal.draft("limits", {"limits": said})])
    clock.advance(600)

    assert odd.limits() is None
    assert [s.id for s in Compactor(store, fine, quick()).due_sessions(300)] == ["other"]
    assert {s.id for s in Compactor(store, fine, policy()).due_sessions(300)} == {"odd", "other"}
    assert store.verify().findings == ()
    odd.go_by(LIMITS)
    assert odd.limits() == LIMITS


def test_limits_come_along_with_a_copy_and_a_reopened_store(durable: str, tmp_path: Path) -> None:
    with onefold.open(durable) as store:
        store.session("s").go_by(LIMITS, "a model")

    with onefold.open(durable) as store:
        assert store.session("s").limits() == LIMITS
        assert store.verify().findings == ()
