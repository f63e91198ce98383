"""Compacting through `Session.compact`, on every kind of store: who pays, who waits, and what a failure leaves."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable

import pytest

from onefold import CompactResult, Policy, Session, Store, Summary, SummaryInput
from onefold.compaction.material import load_material
from onefold.compaction.summarizer import Made
from onefold.model import ClaimDenied
from tests.conftest import StoppedClock, claimed, running, said, who
from tests.support.engines import Counting, blocked
from tests.support.helpers import PATIENCE, await_record, counted, kinds, quick
from verification.operations import talk

Opened = Callable[..., Store]


# ---------------------------------------------------------------------- one compaction, from beginning to end


def test_compacting_makes_the_context_smaller_and_says_so(session: Session) -> None:
    before = session.context()

    result = session.compact(lambda m: "short")

    (done,) = session.compactions()
    assert result == CompactResult(
        id=done.id, state="committed", changed=True, joined=False, applied=True, cause=None, segment=session.head
    )
    after = session.context()
    assert after.tokens < before.tokens
    assert after.summary == "short"
    assert session.compaction_holder() is None
    assert kinds(session, 8) == [
        "compaction.requested",
        "compaction.started",
        "compaction.committed",
        "segment.opened",
    ]


def test_an_async_summarizer_is_awaited(session: Session) -> None:
    async def summarize(material: SummaryInput) -> Summary:
        return Summary("made by a coroutine", by="a model")

    assert session.compact(summarize).applied

    assert session.context().summary == "made by a coroutine"


def test_without_a_summarizer_the_stores_is_used_or_one_that_needs_no_model(address: str, opened: Opened) -> None:
    own = Counting()
    store = opened(address, summarizer=own)
    session = store.session("s")
    session.append(talk(6))
    assert session.compact().applied
    assert own.calls == 1

    other = opened("memory:").session("s")
    other.append(talk(6))
    assert other.compact().applied
    assert "message 1" in str(other.context().summary)


def test_the_material_has_the_previous_summary_and_only_what_is_cut(session: Session) -> None:
    first, second = Counting(lambda m: "the first summary"), Counting(lambda m: "the second summary")
    session.compact(first, instructions="keep the paths")
    cut = session.state.cut
    session.append([said(n) for n in range(7, 13)])
    session.compact(second)

    (one,), (two,) = first.given, second.given
    assert (one.session, one.previous, one.instructions, one.attempt) == ("s", None, "keep the paths", 1)
    assert [r.number for r in one.records] == list(range(2, cut))
    assert one.messages == [r.body for r in session.read(2, cut)]
    assert (two.previous, two.instructions) == ("the first summary", None)
    again = session.state.cut
    assert two.messages == [r.body for r in session.read(cut, again) if r.kind == "message"]
    assert session.context().summary == "the second summary"


def test_an_attempt_works_with_nothing_that_came_after_its_claim_f20(session: Session, store: Store) -> None:
    claim = running(store.journal)
    session.append(said(7))

    work = load_material(store.journal, claim)

    assert [r.number for r in work.messages] == [2, 3, 4, 5, 6, 7]


def test_context_variables_of_the_caller_reach_the_summarizer(session: Session) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    trace.set("of the caller")

    async def summarize(material: SummaryInput) -> str:
        return f"trace: {trace.get()}"

    session.compact(summarize)

    assert session.context().summary == "trace: of the caller"


def test_the_callers_own_list_is_never_touched(session: Session) -> None:
    mine = session.context().messages
    copy = [dict(m) for m in mine]

    session.compact(lambda m: "short")

    assert mine == copy


# ---------------------------------------------------------------------- whoever comes second


def test_whoever_comes_second_pays_nothing_and_is_told(store: Store, session: Session) -> None:
    late = store.session("s")
    measured = late.context()
    session.compact(lambda m: "short")
    unused = Counting()

    result = late.compact(unused)

    assert unused.calls == 0
    assert (result.changed, result.joined, result.applied, result.state) == (True, True, False, "committed")
    assert result.id == session.compactions()[0].id
    assert result.segment == session.head
    assert counted(session, "compaction.requested") == 1
    assert len(measured.messages) == 6


def test_a_loop_of_compact_while_too_big_ends_after_one_round(store: Store, session: Session) -> None:
    late = store.session("s")
    limit = late.context().tokens - 1
    session.compact(lambda m: "short")
    unused, rounds = Counting(), 0
    measured = session.context(segment=1)

    while measured.tokens > limit:
        rounds += 1
        late.compact(unused, trigger="threshold")
        measured = late.context()

    assert (rounds, unused.calls) == (1, 0)


def test_a_caller_that_joins_gets_the_summary_of_the_one_that_runs(store: Store, session: Session) -> None:
    unused, results = Counting(), []
    with blocked() as slow:
        session.compact(slow, wait=False)
        assert slow.begun.wait(PATIENCE)
        joiner = threading.Thread(target=lambda: results.append(store.session("s").compact(unused, trigger="overflow")))
        joiner.start()
        await_record(session, "compaction.joined")
        slow.go.set()
        joiner.join(PATIENCE)

    (result,) = results
    assert (result.changed, result.joined, result.applied, unused.calls) == (True, True, False, 0)
    assert session.context().summary == "a slow summary"
    assert session.compactions()[0].requests == 2


def test_a_waiter_takes_over_what_its_holder_gave_up(store: Store, session: Session) -> None:
    claim = running(store.journal)
    results: list[CompactResult] = []
    waiter = threading.Thread(target=lambda: results.append(session.compact(lambda m: "taken over")))
    waiter.start()
    await_record(session, "compaction.joined")

    store.journal.fail(claim, "gave up", retry_after=0)
    waiter.join(PATIENCE)

    assert (results[0].applied, results[0].joined) == (True, True)
    assert session.context().summary == "taken over"


# ---------------------------------------------------------------------- waiting


def test_without_waiting_the_call_returns_at_once_and_the_summary_lands_later(session: Session) -> None:
    with blocked() as slow:
        result = session.compact(slow, wait=False)

        assert (result.state, result.changed, result.applied, result.segment) == ("running", False, False, 1)
        session.append(said(7))
        slow.go.set()
        await_record(session, "segment.opened", times=2)

    context = session.context()
    assert (context.summary, context.messages[-1]) == ("a slow summary", said(7))


def test_a_wait_that_runs_out_returns_unchanged_and_the_work_goes_on(session: Session) -> None:
    with blocked() as slow:
        result = session.compact(slow, wait=0.05)

        assert slow.begun.wait(PATIENCE)
        assert (result.state, result.changed) == ("running", False)
        holder = session.compaction_holder()
        assert holder is not None
        again = session.compact(Counting(), wait=0.05)
        assert (again.state, again.joined, again.id) == ("running", True, result.id)
        slow.go.set()
        await_record(session, "segment.opened", times=2)

    assert session.compactions()[0].state == "committed"
    assert slow.calls == 1


def test_waiting_for_true_is_bounded_by_the_policy(address: str, opened: Opened) -> None:
    session = opened(address, policy=quick(wait_timeout=0.05)).session("s")
    session.append(talk(6))
    with blocked() as slow:
        assert session.compact(slow, wait=True).state == "running"
        slow.go.set()
        await_record(session, "segment.opened", times=2)


def test_closing_the_store_hands_the_claim_back_and_drops_what_is_still_made(durable: str, opened: Opened) -> None:
    store, other = opened(durable), opened(durable)
    session = store.session("s")
    session.append(talk(6))
    with blocked() as slow:
        session.compact(slow, wait=False)
        assert slow.begun.wait(PATIENCE)

        store.close()

        mine = other.session("s")
        (handed_back,) = mine.compactions()
        assert (handed_back.state, handed_back.cause) == ("requested", "its process closed the store")
        assert mine.compaction_holder() is None
        assert mine.compact(lambda m: "by the next one").applied
    assert mine.context().summary == "by the next one"


# ---------------------------------------------------------------------- failure means no change


def boom(material: SummaryInput) -> Made:
    raise RuntimeError("the model is gone")


async def cancelled(material: SummaryInput) -> Made:
    raise asyncio.CancelledError("timed out")


def garbage(value: object) -> Callable[[SummaryInput], Made]:
    return lambda m: value  # type: ignore[return-value]


async def async_garbage(material: SummaryInput) -> Made:
    return 5  # type: ignore[return-value]


BAD: dict[str, tuple[Callable[[SummaryInput], object], str]] = {
    "raises": (boom, "RuntimeError: the model is gone"),
    "is cancelled": (cancelled, "CancelledError"),
    "exits": (lambda m: sys.exit("enough"), "SystemExit: enough"),
    "none": (garbage(None), "TypeError: a summarizer returns a str or a Summary, not a NoneType"),
    "number": (garbage(5), "TypeError: a summarizer returns a str or a Summary, not a int"),
    "bytes": (garbage(b"text"), "TypeError: a summarizer returns a str or a Summary, not a bytes"),
    "message": (garbage({"content": "x"}), "TypeError: a summarizer returns a str or a Summary, not a dict"),
    "async number": (async_garbage, "TypeError: a summarizer returns a str or a Summary, not a int"),
    "empty, F60": (lambda m: " \n", "the summary is empty"),
    "cut off, F60": (lambda m: Summary("I was about to", cut_off=True), "the summary was cut off before its end"),
    "cut off in code, F60": (lambda m: "```\ncode", "the summary was cut off inside a code block"),
    "error text, F60": (lambda m: "Error: 429 too many requests", "the summary is an error text"),
    "too long, F42": (lambda m: "word " * 5000, "no progress"),
}


@pytest.mark.parametrize(("summarizer", "cause"), BAD.values(), ids=BAD)
def test_a_bad_summary_changes_nothing_is_tried_three_times_and_recorded(
    session: Session, summarizer: Callable[[SummaryInput], Made], cause: str
) -> None:
    before = session.context()
    counting = Counting(summarizer)

    result = session.compact(counting)

    assert (result.state, result.changed, result.applied) == ("failed", False, False)
    assert str(result.cause).startswith(cause)
    assert counting.calls == 3
    assert [m.attempt for m in counting.given] == [1, 2, 3]
    assert session.context().messages == before.messages
    assert counted(session, "compaction.failed") == 3
    assert session.compaction_holder() is None
    assert session.compact(lambda m: "short").changed


def test_the_same_summary_as_the_last_is_refused_f63(session: Session) -> None:
    session.compact(lambda m: "All is well.")
    session.append([said(n) for n in range(7, 15)])
    before = session.context()

    result = session.compact(lambda m: "  all is\nWELL. ")

    assert (result.state, result.cause) == ("failed", "the summary is the same as the one before")
    assert session.context().messages == before.messages


def test_the_second_attempt_may_succeed(session: Session) -> None:
    def second_time(material: SummaryInput) -> str:
        return "short" if material.attempt == 2 else ""

    result = session.compact(second_time)

    assert (result.state, result.applied, result.cause) == ("committed", True, None)
    assert session.compactions()[0].attempts == 2


def test_a_caller_waits_out_the_time_after_a_failure_without_asking_all_the_while(
    address: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(address, policy=quick(backoff=(60.0,), wait_timeout=0.3))
    session = store.session("s")
    session.append(talk(6))
    claimable = store.journal.claimable
    asked: list[str] = []

    def counting(session: str, compaction: str) -> ClaimDenied | None:
        asked.append(compaction)
        return claimable(session, compaction)

    monkeypatch.setattr(store.journal, "claimable", counting)

    result = session.compact(boom)

    assert (result.state, result.cause) == ("requested", "RuntimeError: the model is gone")
    assert len(asked) < 10


def test_nothing_to_cut_is_no_progress_and_costs_no_summary_f42(store: Store) -> None:
    session = store.session("s")
    session.append(said(1))
    unused = Counting()

    result = session.compact(unused)

    assert (result.state, result.changed, unused.calls) == ("skipped", False, 0)
    assert "no progress" in str(result.cause)


def test_an_empty_session_has_nothing_to_compact(store: Store) -> None:
    result = store.session("s").compact(Counting())

    assert (result.state, result.changed) == ("skipped", False)
    assert "nothing to compact" in str(result.cause)


def test_when_nothing_shrinks_a_loop_of_automatic_triggers_pays_a_bounded_number_of_times_f42(session: Session) -> None:
    useless = Counting(lambda m: "word " * 5000)
    limit, states = session.context().tokens - 1, []

    for _ in range(200):
        if session.context().tokens <= limit:
            break
        states.append(session.compact(useless, trigger="threshold").state)

    assert states == ["failed"] * 3 + ["held back"] * 197
    assert useless.calls == 9
    assert session.state.last < 40


def test_a_loop_that_looks_at_changed_ends_at_once_when_nothing_shrinks_f42(session: Session) -> None:
    useless, rounds = Counting(lambda m: "word " * 5000), 0
    limit = session.context().tokens - 1

    while session.context().tokens > limit:
        rounds += 1
        if not session.compact(useless, trigger="threshold").changed:
            break

    assert rounds == 1


def test_the_bound_on_automatic_failures_survives_reopening_f42_f43(durable: str, opened: Opened) -> None:
    useless = Counting(lambda m: "word " * 5000)
    states = []
    for _ in range(6):
        store = opened(durable)
        session = store.session("s")
        if session.state.messages == 0:
            session.append(talk(6))
        states.append(session.compact(useless, trigger="threshold").state)
        store.close()

    assert states == ["failed"] * 3 + ["held back"] * 3
    assert useless.calls == 9
    rescued = opened(durable).session("s").compact(lambda m: "short", trigger="manual")
    assert rescued.applied


def test_attempts_and_waits_survive_reopening(durable: str, opened: Opened, clock: StoppedClock) -> None:
    store = opened(durable)
    store.session("s").append(talk(6))
    store.journal.request("s", trigger="threshold", attempts=2)
    store.journal.fail(claimed(store.journal), "no answer", retry_after=60)
    store.close()

    journal = opened(durable).journal

    assert journal.claim("s", who()) == ClaimDenied("waiting", clock.now + 60)
    clock.advance(60)
    last = claimed(journal)
    assert last.attempt == 2
    assert journal.fail(last, "no answer", retry_after=60).state == "failed"


def test_an_unfinished_attempt_is_retried_after_reopening(durable: str, opened: Opened, clock: StoppedClock) -> None:
    store = opened(durable)
    store.session("s").append(talk(6))
    unfinished = running(store.journal)
    store.close()
    clock.advance(60)

    session = opened(durable).session("s")
    result = session.compact(lambda m: "after the restart", base=1)

    assert (result.id, result.joined, result.applied) == (unfinished.compaction, True, True)
    again = session.compact(Counting(), base=1)
    assert (again.joined, again.segment) == (True, result.segment)


# ---------------------------------------------------------------------- a thousand in a row


def test_a_thousand_compactions_in_a_row_keep_the_context_small_and_every_record_readable(
    address: str, opened: Opened
) -> None:
    # where each is some sixty exchanges with a server, or a dozen syncs of files, a fifth of them has to do
    times = 1000 if address.endswith(".db") else 200
    store = opened(address, policy=Policy(tail_tokens=60, backoff=(0.0,)))
    session = store.session("s")
    written = [{"role": "system", "content": "Be brief."}]
    sizes = []
    session.append(written)

    for n in range(times):
        more = talk(4, start=4 * n + 1)
        written += more
        session.append(more)
        result = session.compact(lambda m, n=n: f"summary number {n} of what was said, " + "and so on " * 10)  # type: ignore[misc]
        assert result.applied, result
        sizes.append(session.context().tokens)

    assert len(session.segments()) == times + 1
    assert max(sizes[10:]) <= 1.1 * min(sizes[10:])
    assert [r.body for r in session.read() if r.kind == "message"] == written
    assert session.context().messages[0] == written[0]
    assert session.context(segment=1).messages == written
