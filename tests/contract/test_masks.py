"""Masking, on every kind of store: old large tool results are one line each, no model is asked, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import onefold
from onefold import (
    CommitRefused,
    CompactionDisabled,
    Compactor,
    ContextTooLarge,
    Limits,
    NotNow,
    OnefoldError,
    Policy,
    Session,
    StaleHandle,
    Store,
    Summary,
    SummaryInput,
)
from onefold.journal import masks, replication
from onefold.journal.journal import Journal
from onefold.model import Json
from onefold.recall import Recall
from onefold.recall.agent_tools import RecallTools
from onefold.worker import Worker
from tests.conftest import KINDS, StoppedClock, running
from tests.support.helpers import PATIENCE, Child, await_record, counted, kinds, quick, together
from tests.support.undone_views import looked, nothing_changes

LIMITS = Limits(window=20_000, output=1_000, soft=0.5, hard=0.9)
RESULT = 400  # tokens
Opened = Callable[..., Store]


def words(n: int) -> str:
    return f"result {n}: " + "x " * (2 * RESULT)


def step(n: int, content: Json | None = None) -> list[Json]:
    """A call and its result."""
    call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": f'{{"n": {n}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": words(n) if content is None else content},
    ]


def work(session: Session, count: int, start: int = 1) -> list[int]:
    """So many steps; the numbers of their results."""
    return [session.append(step(n)).numbers[1] for n in range(start, start + count)]


@pytest.fixture
def session(store: Store) -> Session:
    made = store.session("s")
    made.append({"role": "user", "content": "look at everything"})
    return made


def policy(**changes: Json) -> Policy:
    return quick(**{"limits": LIMITS, "quote_tokens": 0, "mask_newest": 3, **changes})


@dataclass
class Never:
    """A summarizer that nobody should ask."""

    calls: int = 0

    def __call__(self, material: SummaryInput) -> Summary:
        self.calls += 1
        raise AssertionError("a model was asked")


@dataclass
class Sluggish:
    """A summarizer that takes 20 seconds."""

    calls: int = 0

    def __call__(self, material: SummaryInput) -> Summary:
        self.calls += 1
        threading.Event().wait(20)
        return Summary("What was looked at.")


@dataclass
class Slow:
    """A summarizer that answers when it may."""

    gate: threading.Event = field(default_factory=threading.Event)
    seen: list[str] = field(default_factory=list)

    def __call__(self, material: SummaryInput) -> Summary:
        self.seen += [material.text(r) for r in material.records]
        assert self.gate.wait(PATIENCE)
        return Summary("What was looked at.")


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.gate.set()


# ---------------------------------------------------------------------- what is seen


def test_old_large_results_are_one_line_and_the_newest_stay(session: Session) -> None:
    results = work(session, 14)
    session.append(step(15, "short"))
    before = session.state.tokens
    opened = session.mask()
    assert [n for n, _ in opened.masked] == results[:5], "all but the ten newest"
    context = session.context()
    assert (context.masked, opened.source, opened.origin) == (tuple(results[:5]), "masked", opened.base)
    shown = dict(zip(context.numbers, context.messages, strict=True))
    for n, number in enumerate(results, start=1):
        body = shown[number]
        assert body["tool_call_id"] == f"c{n}"
        assert (body["content"] == words(n)) == (n > 5)
    assert f"#{results[0]}" in shown[results[0]]["content"]
    assert opened.tokens_after == session.state.tokens == context.tokens
    assert (opened.tokens_before, before - context.tokens) == (before, sum(saves for _, saves in opened.masked))
    looked(session)


def test_the_journal_has_the_whole_result_and_recall_reads_it(session: Session, store: Store) -> None:
    results = work(session, 12)
    session.mask()
    assert [r.body["content"] for r in session.read(results[0], results[0] + 1)] == [words(1)]
    recall = Recall(store)
    (hit,) = recall.search("result 1:", session="s", limit=1)
    assert (hit.number, hit.place) == (results[0], "masked")
    assert words(1)[:200] in RecallTools(recall, "s").call("recall_read", {"first": results[0], "last": results[0]})


def test_what_was_said_since_is_behind_it_and_stays(session: Session) -> None:
    work(session, 12)
    session.mask()
    (later,) = work(session, 1, start=20)
    session.append({"role": "user", "content": "go on"})
    context = session.context()
    assert context.messages[-1]["content"] == "go on"
    assert dict(zip(context.numbers, context.messages, strict=True))[later]["content"] == words(20)
    assert session.state.tokens == context.tokens


@pytest.mark.parametrize("what", ["pinned", "open", "image", "user"])
def test_what_may_not_be_masked_is_left_as_it_is(session: Session, what: str) -> None:
    numbers = work(session, 2)
    if what == "pinned":
        session.pin(numbers[0])
    elif what == "open":
        call = step(7)[0]
        call["tool_calls"].append({"id": "c8", "type": "function", "function": {"name": "look", "arguments": "{}"}})
        numbers[:1] = [session.append([call, step(7)[1]]).numbers[1]]
    elif what == "image":
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        said = [{"type": "text", "text": words(7)}, picture]
        numbers[:1] = [session.append(step(7, said)).numbers[1]]
    else:
        numbers[:1] = [session.append({"role": "user", "content": words(7)}).numbers[0]]
    assert [n for n, _ in session.mask(*numbers).masked] == numbers[1:]
    nothing_changes(session, lambda: session.mask(numbers[0]), OnefoldError, "nothing was written")


def test_what_is_not_in_view_or_is_one_line_already_is_not_masked(session: Session, journal: Journal) -> None:
    results = work(session, 6)
    journal.commit(running(journal), "a summary", results[2] - 1)
    session.append({"role": "user", "content": "and then?"})
    (undone,) = work(session, 1, start=30)
    session.undo()
    session.mask(results[2])
    for number in (results[0], undone, results[2]):
        nothing_changes(session, partial(session.mask, number), OnefoldError, "nothing was written")


def test_where_onefold_may_not_compact_it_does_not_mask(session: Session) -> None:
    (result,) = work(session, 1)
    review = session.fork("review", id="r")
    nothing_changes(review, lambda: review.mask(result), CompactionDisabled, "does not compact")
    session.set_compaction_owner("agent")
    nothing_changes(session, lambda: session.mask(result), OnefoldError, "compacted by its agent")


def test_nothing_to_mask_writes_nothing(session: Session) -> None:
    nothing_changes(session, session.mask, OnefoldError, "nothing was written")
    work(session, 10)
    nothing_changes(session, session.mask, OnefoldError, "nothing was written")


def test_a_message_that_is_pinned_later_is_shown_from_the_next_segment_on(session: Session) -> None:
    first, *_ = work(session, 12)
    session.mask()
    session.pin(first)
    again = work(session, 12, start=30)
    session.mask()
    context = session.context()
    assert first not in context.masked
    assert again[0] in context.masked
    assert dict(zip(context.numbers, context.messages, strict=True))[first]["content"] == words(1)
    assert session.state.tokens == context.tokens


# ---------------------------------------------------------------------- the cheapest step that is enough


def test_where_a_mask_is_enough_no_model_is_asked_and_no_turn_waits(session: Session, store: Store) -> None:
    never = Never()
    compactor = Compactor(store, never, policy())
    for n in range(1, 90):
        session.append(step(n))
        context = compactor.before_turn(session)
        assert context.tokens <= LIMITS.soft_tokens
    assert never.calls == 0
    assert counted(session, "compaction.requested") == 0
    masked = [s for s in session.segments() if s.source == "masked"]
    assert 1 < len(masked) < 20, "each makes room for many turns"
    assert all(s.tokens_after <= 0.8 * s.tokens_before for s in masked)


def test_a_summarizer_that_takes_20_seconds_holds_nobody_up_where_masks_are_enough(
    session: Session, store: Store
) -> None:
    sluggish = Sluggish()
    compactor = Compactor(store, sluggish, policy())
    slowest = 0.0
    for n in range(1, 90):
        session.append(step(n))
        began = time.monotonic()
        (compactor.before_turn if n % 4 == 1 else compactor.mid_turn)(session)
        slowest = max(slowest, time.monotonic() - began)
    work(session, 45, start=100)
    assert session.state.tokens > LIMITS.hard_tokens
    began = time.monotonic()
    compactor.before_turn(session)
    slowest = max(slowest, time.monotonic() - began)

    assert sluggish.calls == 0
    assert counted(session, "compaction.requested") == 0
    assert slowest < 10


def test_where_a_mask_is_not_enough_a_summary_is_made(session: Session, store: Store, slow: Slow) -> None:
    slow.gate.set()
    compactor = Compactor(store, slow, policy())
    for n in range(40):
        session.append(
            [{"role": "user", "content": f"question {n} " + "y " * 600}, {"role": "assistant", "content": "ok"}]
        )
        compactor.before_turn(session)
    await_record(session, "compaction.committed")
    assert not any(s.source == "masked" for s in session.segments())


def test_masks_may_be_switched_off(session: Session, store: Store, slow: Slow) -> None:
    slow.gate.set()
    compactor = Compactor(store, slow, policy(mask_tokens=0))
    for n in range(1, 60):
        session.append(step(n))
        compactor.before_turn(session)
    assert not any(s.source == "masked" for s in session.segments())
    await_record(session, "compaction.committed")


def test_a_mask_that_saves_too_little_is_not_made(session: Session, store: Store, slow: Slow) -> None:
    compactor = Compactor(store, slow, policy(mask_newest=20))
    work(session, 24)  # four may be masked, and they are less than a fifth
    compactor.before_turn(session)
    assert not any(s.source == "masked" for s in session.segments())
    assert counted(session, "compaction.requested") == 1


def test_at_the_hard_limit_a_mask_spares_the_wait(session: Session, store: Store, slow: Slow) -> None:
    work(session, 45)
    assert session.state.tokens > LIMITS.hard_tokens
    context = Compactor(store, slow, policy()).before_turn(session)
    assert context.tokens <= LIMITS.soft_tokens
    assert counted(session, "compaction.requested") == 0


def test_a_context_that_a_mask_only_gets_below_the_hard_limit_is_sent_and_a_summary_is_begun(
    session: Session, store: Store, slow: Slow
) -> None:
    session.append([{"role": "assistant", "content": "z " * 2 * 9_600}, {"role": "user", "content": "go on"}])
    work(session, 22)
    session.append({"role": "user", "content": "and now?"})
    context = Compactor(store, slow, policy(tail_tokens=200)).before_turn(session)
    assert LIMITS.soft_tokens < context.tokens <= LIMITS.hard_tokens
    assert counted(session, "compaction.requested") == 1
    slow.gate.set()
    await_record(session, "compaction.committed")
    assert any("result 1: x x" in text for text in slow.seen), "a summarizer reads the whole result"
    assert session.context().summary == "What was looked at."
    looked(session)


def test_in_mid_turn_the_agent_stays_on_what_its_provider_knows(session: Session, store: Store) -> None:
    never = Never()
    compactor = Compactor(store, never, policy())
    work(session, 20)
    first = compactor.before_turn(session)
    work(session, 5, start=30)
    second = compactor.mid_turn(session)
    assert session.segments()[-1].source == "masked"
    assert second.messages[: len(first.messages)] == first.messages
    work(session, 15, start=40)
    third = compactor.mid_turn(session)
    assert third.masked == (), "still what it had: it fits"
    work(session, 5, start=60)
    assert compactor.mid_turn(session).masked, "the newest, once the other does not fit"
    assert compactor.before_turn(session).masked
    assert never.calls == 0


def test_after_an_overflow_a_mask_is_tried_first(session: Session, store: Store) -> None:
    never = Never()
    compactor = Compactor(store, never, policy())
    work(session, 22)
    compactor.before_turn(session)
    smaller = compactor.after_overflow(session)
    assert smaller.masked
    assert never.calls == 0


def test_the_upkeep_and_a_worker_mask_before_they_ask_anybody(store: Store, session: Session) -> None:
    never = Never()
    compactor = Compactor(store, never, policy())
    session.go_by(LIMITS)
    work(session, 30)
    assert compactor.compact_idle(idle=0) == {}
    assert session.segments()[-1].source == "masked"
    other = store.session("t")
    other.go_by(LIMITS)
    work(other, 30)
    Worker(store, never, policy(), upkeep=0).run(threading.Event(), once=True)
    assert other.segments()[-1].source == "masked"
    assert never.calls == 0


# ---------------------------------------------------------------------- beside a compaction


def mask_all(journal: Journal, session: Session, *, full: bool = False, by_hand: bool = False) -> onefold.Segment:
    results = [r.number for r in session.read() if r.header is not None and r.header.result_ids]
    return masks.mask(journal, session.id, results, expect_head=session.state.head, full=full, by_hand=by_hand)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_mask_never_gives_up_a_compaction_that_somebody_works_on(
    session: Session, journal: Journal, full: bool, by_hand: bool
) -> None:
    work(session, 4)
    claim = running(journal, trigger="threshold")
    nothing_changes(session, lambda: mask_all(journal, session, full=full, by_hand=by_hand), NotNow, "is open")
    journal.commit(claim, "a summary")
    assert session.context().summary == "a summary"


def test_one_that_waits_is_given_up_by_a_full_context_and_not_otherwise(session: Session, journal: Journal) -> None:
    work(session, 4)
    journal.request("s", trigger="threshold")
    nothing_changes(session, lambda: mask_all(journal, session), NotNow, "is open")
    nothing_changes(session, lambda: mask_all(journal, session, by_hand=True), NotNow, "is open")
    nothing_changes(session, lambda: mask_all(journal, session, full=True, by_hand=True), NotNow, "is open")
    mask_all(journal, session, full=True)
    assert session.state.open is None
    assert kinds(session)[-2:] == ["compaction.superseded", "segment.opened"]


def test_what_a_person_asked_for_is_never_given_up(session: Session, journal: Journal) -> None:
    work(session, 4)
    journal.request("s", trigger="manual")
    nothing_changes(session, lambda: mask_all(journal, session, full=True), NotNow, "is open")


def test_a_person_who_measured_before_the_mask_is_heard(session: Session, journal: Journal) -> None:
    work(session, 4)
    measured = session.state.head
    mask_all(journal, session)
    assert journal.request("s", trigger="threshold", base=measured).outcome == "moved on"
    assert journal.request("s", trigger="manual", base=measured).outcome == "opened"


def test_a_compaction_that_commits_after_a_mask_keeps_what_was_said_and_what_is_masked(
    session: Session, journal: Journal
) -> None:
    results = work(session, 6)
    session.mask(*results[:4])
    claim = running(journal)
    work(session, 1, start=20)
    opened = journal.commit(claim, "a summary", results[2] - 1)
    assert [n for n, _ in opened.masked] == results[2:4]
    context = session.context()
    assert context.masked == tuple(results[2:4])
    assert context.messages[-1]["content"] == words(20)
    assert opened.tokens_after == session.state.tokens == context.tokens


def test_failures_payments_and_rests_outlive_a_mask(session: Session, journal: Journal) -> None:
    work(session, 6)
    for _ in range(3):
        journal.fail(running(journal, attempts=1, trigger="threshold"), "it did not work", None)
    before = session.state
    assert before.failures == 3
    mask_all(journal, session)
    after = session.state
    assert (after.failures, after.failed_tokens, after.paid, after.rests) == (
        before.failures, before.failed_tokens, before.paid, before.rests,
    )  # fmt: skip
    assert journal.request("s", trigger="threshold").outcome == "held back"
    assert journal.request("s", trigger="limit").outcome == "opened"


def test_a_deterministic_summary_that_was_refused_is_not_made_again_after_a_mask(store: Store) -> None:
    session = store.session("t")
    session.append({"role": "user", "content": "hello"})
    work(session, 6)

    def says_nothing(material: SummaryInput) -> Summary:
        return Summary("x", cut_off=True)

    says_nothing.deterministic = True  # type: ignore[attr-defined]
    first = session.compact(says_nothing, policy=policy())
    assert first.state == "failed", first
    session.mask(*[r.number for r in session.read() if r.header is not None and r.header.result_ids][:4])
    assert session.compact(says_nothing, policy=policy()).state == "skipped"


def test_two_mask_at_once_and_there_is_one_segment(session: Session, journal: Journal, store: Store) -> None:
    work(session, 20)
    compactor = Compactor(store, Never(), policy())
    handles = [store.session("s") for _ in range(4)]
    start = threading.Barrier(4)
    done: list[bool] = []

    def go(handle: Session) -> None:
        start.wait(PATIENCE)
        done.append(compactor.mask(handle, full=True))

    threads = [threading.Thread(target=go, args=(h,)) for h in handles]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert [s.source for s in session.segments()] == ["created", "masked"]
    assert any(done)


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_that_mask_at_once_make_one_segment(durable: str, opened: Opened, processes: int) -> None:
    rounds = 5
    store = opened(durable)
    for n in range(rounds):
        session = store.session(f"s{n}")
        session.append({"role": "user", "content": "look at everything"})
        work(session, 45)
    limits = [LIMITS.window, LIMITS.output]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                Child(
                    "mask",
                    module="tests.support.compactor_children",
                    path=durable,
                    session="s",
                    limits=limits,
                    rounds=rounds,
                )
            )
            for _ in range(processes)
        ]
        for n in range(rounds):
            together(*children)
            said = [child.hear("masked") for child in children]
            session = store.session(f"s{n}")
            assert [s.source for s in session.segments()] == ["created", "masked"]
            assert [(s["tokens"], s["masked"]) for s in said] == [(session.state.tokens, 42)] * processes
            assert counted(session, "compaction.requested") == 0


def test_a_worker_whose_lease_ran_out_commits_too_late_after_a_mask(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    work(session, 6)
    claim = running(journal, trigger="threshold")
    session.append({"role": "user", "content": "and then?"})
    clock.advance(100_000)
    nothing_changes(session, lambda: mask_all(journal, session), NotNow, "is open")
    mask_all(journal, session, full=True)
    before = looked(session)
    with pytest.raises(CommitRefused):
        journal.commit(claim, "too late")
    assert looked(session) == before
    assert session.context().messages[-1]["content"] == "and then?"


def test_what_failed_and_can_be_redone_outlives_a_mask_and_a_restart(durable: str, opened: Opened) -> None:
    store = opened(durable)
    session = store.session("s")
    results = work(session, 6)
    session.append({"role": "user", "content": "and then?"})
    session.undo()
    for _ in range(3):
        store.journal.fail(running(store.journal, attempts=1, trigger="limit"), "it did not work", None)
    session.mask(*results[:2])
    store.close()

    store = opened(durable)
    session = store.session("s")
    assert session.state.failures == 3
    assert store.journal.request("s", trigger="threshold").outcome == "held back"
    session.redo()
    context = session.context()
    assert context.messages[-1]["content"] == "and then?"
    assert context.masked == tuple(results[:2])


def test_a_mask_of_a_head_that_moved_is_refused(session: Session, journal: Journal) -> None:
    results = work(session, 6)
    head = session.state.head
    session.mask(results[0])
    nothing_changes(
        session, lambda: masks.mask(journal, "s", results[1:3], expect_head=head), StaleHandle, "look at it again"
    )


# ---------------------------------------------------------------------- going back


def test_what_one_masked_is_shown_again_and_masked_again_by_an_undo(session: Session) -> None:
    results = work(session, 6)
    before = looked(session)
    one = session.mask(*results[:2])
    two = session.mask(*results[2:4])
    session.unfold(one.number)
    assert session.context().masked == tuple(results[2:4])
    session.undo()
    assert session.context().masked == tuple(results[:4])
    session.unfold(one.number)
    session.unfold(two.number)
    assert looked(session) == before
    nothing_changes(session, lambda: session.unfold(two.number), OnefoldError, "is masked now")


def test_an_unfold_that_would_be_too_large_says_what_a_mask_would_save(session: Session, journal: Journal) -> None:
    work(session, 45)
    made = journal.commit(running(journal), "a summary")
    session.go_by(LIMITS)
    with pytest.raises(ContextTooLarge, match=r"Masking old tool results would save about 1\d,\d\d\d of them"):
        session.unfold(made.number)


def test_after_an_undo_and_an_unfold_automatic_masks_wait_until_the_context_is_full(
    session: Session, journal: Journal
) -> None:
    results = work(session, 6)
    session.append({"role": "user", "content": "and then?"})
    session.undo()
    nothing_changes(session, lambda: mask_all(journal, session), NotNow, "went back")
    session.redo()
    session.mask(results[0])
    nothing_changes(session, lambda: mask_all(journal, session), NotNow, "went back")
    assert mask_all(journal, session, full=True).source == "masked"


def test_a_redo_outlives_a_mask(session: Session, journal: Journal) -> None:
    results = work(session, 6)
    session.append({"role": "user", "content": "and then?"})
    session.undo()
    session.mask(*results[:2])
    session.redo()
    context = session.context()
    assert context.messages[-1]["content"] == "and then?"
    assert context.masked == tuple(results[:2])


def test_an_undo_of_an_unfold_outlives_a_mask(session: Session, journal: Journal) -> None:
    work(session, 6)
    journal.commit(running(journal), "a summary")
    work(session, 6, start=10)
    session.unfold()
    mask_all(journal, session, by_hand=True)
    session.undo()
    assert session.context().summary == "a summary"
    session.redo()
    assert session.context().summary is None


@pytest.mark.parametrize("deep", [1, 2])
def test_a_fork_has_the_masks_of_its_parent_and_goes_its_own_way(session: Session, deep: int) -> None:
    results = work(session, 6)
    session.mask(*results[:2])
    child = session
    for n in range(deep):
        child = child.fork(id=f"f{n}")
    assert child.context().masked == tuple(results[:2])
    assert looked(child)[0] == looked(session)[0]
    child.mask(*results[2:4])
    assert session.context().masked == tuple(results[:2])
    earlier = session.fork(id="earlier", at=results[5])
    assert earlier.context().masked == ()


def test_erasing_a_masked_result_leaves_nothing_of_it(session: Session, store: Store) -> None:
    results = work(session, 6)
    session.mask(*results[:3])
    session.erase(results[0])
    context = session.context()
    assert context.masked == tuple(results[1:3])
    assert f"#{results[0]}," not in str(context.messages)
    assert store.verify().findings == ()


@pytest.mark.parametrize("kind", list(KINDS))
def test_masks_survive_a_copy_to_every_kind_of_store(
    kind: str, session: Session, store: Store, opened: Opened, tmp_path: Path
) -> None:
    results = work(session, 6)
    session.mask(*results[:3])
    before = looked(session)
    (tmp_path / "copy").mkdir()
    target = opened(KINDS[kind](tmp_path / "copy"))
    backend = store.journal.backend
    assert [*replication.copy(backend, target.journal, replication.wanted(backend, ()), lambda records: None)]
    assert looked(target.session("s", create=False)) == before
    assert target.verify().findings == ()


def test_a_mask_on_a_mask_stands_on_the_segment_that_does_more(session: Session) -> None:
    created = session.state.head
    for n in range(5):
        (number,) = work(session, 1, start=n)
        assert session.mask(number).origin == created
