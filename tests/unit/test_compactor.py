"""The compactor: what an agent is given to send, when a summary is made, and how it ends when nothing helps."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

import onefold
from onefold import Compactor, Context, Limits, Policy, Session, Store, Summary, SummaryInput
from onefold.errors import OnefoldError, SummarizerFailed
from onefold.journal.backoff import AUTOMATIC_FAILURES
from onefold.journal.process_liveness import MACHINE
from onefold.model import Json, Usage
from tests.conftest import StoppedClock, claimed
from tests.support.helpers import PATIENCE, Child, Clock, Elsewhere, await_record, converse, counted, kinds, quick
from verification.operations import talk

LIMITS = Limits(window=1_000, output=100, soft=0.5, hard=0.9)
SOFT = 16  # messages, of about 33 tokens each
HARD = 28


def policy(**changes: Json) -> Policy:
    """Without quotes: these tests are about sizes, and what is quoted of made-up words is no part of them."""
    return quick(**{"limits": LIMITS, "quote_tokens": 0, **changes})


@dataclass
class Model:
    """A summarizer that counts what it is asked, and answers when it may."""

    gate: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)
    calls: int = 0

    def __call__(self, material: SummaryInput) -> Summary:
        self.calls += 1
        self.began.set()
        assert self.gate.wait(PATIENCE)
        return Summary(f"Summary {self.calls} of {len(material.records)} messages.", spent=Usage(1, 100, 10, 0.5))


@pytest.fixture
def model() -> Iterator[Model]:
    """One that answers when its gate is opened, at the latest when the test is over."""
    made = Model()
    yield made
    made.gate.set()


@pytest.fixture
def ready(model: Model) -> Model:
    """One that answers at once."""
    model.gate.set()
    return model


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("s")


@pytest.fixture
def compactor(store: Store, model: Model) -> Compactor:
    return Compactor(store, model, policy())


def settled(session: Session) -> None:
    """Waits until nobody works on a summary."""
    started = max((r.number for r in session.read() if r.kind == "compaction.started"), default=0)
    if started:
        ends = ("compaction.committed", "compaction.failed")
        assert any(r.kind in ends for r in session.follow(started, idle=PATIENCE))


@contextmanager
def behind(work: Callable[[], object]) -> Iterator[list[object]]:
    """Does something in a thread, and waits for it at the end of the block."""
    done: list[object] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield done
    thread.join(PATIENCE)
    assert done


def whole(context: Context) -> bool:
    """Whether every call in it has its result right behind it, and no result stands alone."""
    waiting: set[str] = set()
    for message in context.messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return False
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return not waiting


# ---------------------------------------------------------------------- before a turn


def test_under_the_soft_limit_a_context_is_sent_as_it_is_and_nothing_is_written(
    session: Session, compactor: Compactor, model: Model
) -> None:
    converse(session, 10)
    compactor.before_turn(session)  # the first look: from then on the session says what its agent goes by
    before = session.state

    assert compactor.before_turn(session) == compactor.mid_turn(session) == session.context()
    assert compactor.compact_idle(0) == {}
    assert (session.state, model.calls) == (before, 0)


def test_at_the_soft_limit_nobody_waits_for_a_summarizer_however_long_it_takes(
    session: Session, compactor: Compactor, model: Model
) -> None:
    """The summarizer is held until long after: what comes back while it is held has waited for nothing."""
    converse(session, SOFT)
    before = session.context()

    began = time.monotonic()
    sent = compactor.before_turn(session)
    waited = time.monotonic() - began

    assert sent.messages == before.messages
    assert model.began.wait(PATIENCE)
    assert not model.gate.is_set()
    assert waited < 2.0, "seconds, on whatever machine; of the summarizer's 20 it is none"
    model.gate.set()
    await_record(session, "compaction.committed")
    small = compactor.before_turn(session)
    assert small.tokens < before.tokens / 2
    assert (small.summary, model.calls) == ("Summary 1 of 14 messages.", 1)
    assert [c.trigger for c in session.compactions()] == ["threshold"]


def test_while_somebody_is_at_it_every_other_turn_writes_nothing(
    store: Store, session: Session, compactor: Compactor, model: Model
) -> None:
    converse(session, SOFT)
    compactor.before_turn(session)
    assert model.began.wait(PATIENCE)
    before = kinds(session)

    for _ in range(5):
        compactor.before_turn(session)
        compactor.mid_turn(session)
        compactor.before_turn(store.session("s"))
        assert compactor.compact_idle(0) == {}

    assert kinds(session) == before
    assert before[-2:] == ["compaction.requested", "compaction.started"]


def test_at_the_hard_limit_callers_wait_for_the_one_that_runs(
    session: Session, compactor: Compactor, model: Model
) -> None:
    converse(session, SOFT)
    compactor.before_turn(session)
    converse(session, HARD - SOFT, start=SOFT + 1)
    assert session.context().tokens > LIMITS.hard_tokens

    with behind(lambda: compactor.before_turn(session)) as sent:
        await_record(session, "compaction.joined")
        assert sent == []
        model.gate.set()

    (context,) = sent
    assert isinstance(context, Context)
    assert context.tokens <= LIMITS.hard_tokens
    assert (model.calls, session.state.committed) == (1, 1)
    assert [r.body["trigger"] for r in session.read() if r.kind == "compaction.joined"] == ["limit"]


def test_at_the_hard_limit_with_nothing_prepared_a_summary_is_made_and_waited_for(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, HARD)

    context = compactor.before_turn(session)

    assert context.tokens <= LIMITS.hard_tokens
    assert context == session.context()
    assert [(c.trigger, c.state) for c in session.compactions()] == [("limit", "committed")]


def test_a_summarizer_that_always_says_the_same_keeps_an_agent_going(store: Store, session: Session) -> None:
    compactor = Compactor(store, lambda material: "[Earlier messages were left out.]", policy())

    for round in range(4):
        converse(session, HARD)
        sent = compactor.before_turn(session)
        assert sent.tokens <= LIMITS.soft_tokens, round

    assert (counted(session, "compaction.committed"), counted(session, "compaction.failed")) == (4, 0)


def test_the_wait_at_the_hard_limit_ends_and_the_summary_goes_on_behind(
    store: Store, session: Session, model: Model
) -> None:
    compactor = Compactor(store, model, policy(wait_timeout=0.05))
    converse(session, HARD)

    with pytest.raises(onefold.ContextTooLarge, match=r"'s'.*over the 810 .*not ready yet.*goes on: call again"):
        compactor.before_turn(session)

    session.append(talk(1, start=HARD + 1))
    model.gate.set()
    await_record(session, "compaction.committed")
    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens
    assert model.calls == 1


def test_a_summary_that_is_prepared_again_and_again_does_not_follow_itself_at_once_f42(
    store: Store, session: Session, ready: Model
) -> None:
    """A tail that cannot be cut leaves the context over the soft limit: it has to grow before the next try."""
    compactor = Compactor(store, ready, policy(tail_tokens=500, tail_share=0.9))
    converse(session, HARD - 4)
    for _ in range(20):
        compactor.before_turn(session)
        settled(session)

    assert session.context().tokens > LIMITS.soft_tokens
    assert ready.calls == 1


# ---------------------------------------------------------------------- in mid turn


def test_a_turn_stays_on_its_segment_until_its_end_and_the_beginning_stays_the_same(
    session: Session, compactor: Compactor, model: Model
) -> None:
    converse(session, SOFT)
    sent = compactor.before_turn(session)
    model.gate.set()
    await_record(session, "compaction.committed")
    converse(session, 2, start=SOFT + 1)

    stayed = compactor.mid_turn(session)

    assert stayed.segment == sent.segment != session.head
    assert stayed.messages[: len(sent.messages)] == sent.messages
    assert len(stayed.messages) == len(sent.messages) + 2
    assert compactor.mid_turn(session) == stayed
    assert compactor.before_turn(session).segment == session.head, "the next turn begins on the newest"


def test_a_turn_moves_on_when_its_segment_would_be_over_the_hard_limit(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, SOFT)
    older = compactor.before_turn(session).segment
    await_record(session, "compaction.committed")
    segments = []
    for n in range(SOFT + 1, HARD + 1, 2):
        converse(session, 2, start=n)
        context = compactor.mid_turn(session)
        segments.append(context.segment)
        assert context.tokens <= LIMITS.hard_tokens
        assert context.messages[-1] == talk(1, start=n + 1)[0]

    assert segments[0] == older
    assert segments[-1] in [s.number for s in session.segments()[1:]]  # on a slow machine there is time for two
    assert sorted(segments) == segments


def test_a_turn_in_another_handle_or_after_a_restart_can_say_what_it_was_sent(
    store: Store, session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, SOFT)
    sent = compactor.before_turn(session)
    await_record(session, "compaction.committed")

    again = store.session("s")

    assert compactor.mid_turn(again).segment == session.head
    assert Compactor(store, ready, policy()).mid_turn(again, context=sent).segment == sent.segment


@pytest.mark.parametrize("how", ["undo", "erase"])
def test_a_turn_does_not_stay_where_something_was_taken_back_since(
    session: Session, compactor: Compactor, ready: Model, how: str
) -> None:
    """An older segment would still show it."""
    said = converse(session, SOFT)
    compactor.before_turn(session)
    await_record(session, "compaction.committed")
    session.context()
    if how == "undo":
        session.undo()
    else:
        session.erase(SOFT + 1)

    context = compactor.mid_turn(session)

    assert context.segment == session.head
    assert said[-1] not in context.messages


def test_what_grows_while_a_turn_stays_behind_is_prepared_as_well(store: Store, session: Session, ready: Model) -> None:
    compactor = Compactor(store, ready, policy(limits=Limits(1_000, 100, soft=0.3, hard=0.9)))
    converse(session, 10)
    older = compactor.before_turn(session).segment
    await_record(session, "compaction.committed")
    converse(session, 10, start=11)

    assert compactor.mid_turn(session).segment == older
    await_record(session, "compaction.committed", times=2)
    assert compactor.mid_turn(session).segment == older
    assert ready.calls == 2


# ---------------------------------------------------------------------- what the provider says


def test_what_the_provider_measured_counts_more_than_the_estimate(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, 10)
    sent = compactor.before_turn(session)
    assert sent.tokens < LIMITS.soft_tokens

    compactor.before_turn(session, usage=700)
    await_record(session, "compaction.committed")
    small = compactor.before_turn(session, usage=700)

    assert small.tokens < sent.tokens / 2
    assert ready.calls == 1


def test_a_figure_is_of_the_model_that_was_called_and_of_the_context_it_was_sent(
    store: Store, session: Session, ready: Model
) -> None:
    compactor = Compactor(store, ready, policy(models={"other": LIMITS}))
    converse(session, 10)
    sent = compactor.before_turn(session)
    converse(session, 2, start=11)

    assert compactor.before_turn(session, model="other", usage=760, context=sent).segment == 1
    assert ready.calls == 0, "the figure says nothing of the other model"
    compactor.before_turn(session)
    await_record(session, "compaction.committed")
    assert [c.trigger for c in session.compactions()] == ["limit"], "with what came since, the first is over its limit"


def test_a_smaller_model_is_never_sent_what_fits_only_the_larger_one(
    store: Store, session: Session, ready: Model
) -> None:
    compactor = Compactor(store, ready, policy(limits=None, models={"small": LIMITS}))
    converse(session, 60)

    assert compactor.before_turn(session, model="large").tokens > LIMITS.window
    assert compactor.before_turn(session, model="small").tokens <= LIMITS.hard_tokens


def test_a_figure_that_is_no_number_of_tokens_is_refused(session: Session, compactor: Compactor) -> None:
    with pytest.raises(ValueError, match=r"'s'.*not -1"):
        compactor.before_turn(session, usage=-1)
    assert compactor.before_turn(session, usage=0) == session.context()


@pytest.mark.parametrize("figure", [600, 850, 5_000])
def test_usage_that_never_falls_compacts_once_and_the_session_goes_on_f42(
    session: Session, compactor: Compactor, ready: Model, figure: int
) -> None:
    converse(session, SOFT)
    for n in range(25):
        context = compactor.before_turn(session, usage=figure)
        settled(session)
        assert context.tokens <= LIMITS.hard_tokens
        session.append(talk(1, start=SOFT + 1 + n))

    grown = sum(s.tokens_before for s in session.segments()) / LIMITS.soft_tokens
    assert ready.calls <= 1 + grown
    assert ready.calls <= 3
    assert session.state.open is None


def test_tokens_are_counted_exactly_if_there_is_a_counter(store: Store, session: Session, ready: Model) -> None:
    converse(session, 10)
    dear = Compactor(store, ready, policy(), count=len)
    by_name = Compactor(store, ready, policy(), count="o200k_base")

    assert by_name.before_turn(session).segment == 1
    assert dear.before_turn(session).segment != 1
    assert ready.calls == 1


# ---------------------------------------------------------------------- after the provider's overflow error


def test_after_an_overflow_the_context_is_smaller_and_estimates_are_believed_less(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, 10)
    refused = compactor.before_turn(session)
    assert refused.tokens < LIMITS.soft_tokens

    smaller = compactor.after_overflow(session, RuntimeError("prompt is too long"))

    assert smaller.tokens < refused.tokens * LIMITS.hard
    assert [(c.trigger, c.state) for c in session.compactions()] == [("overflow", "committed")]
    converse(session, 10, start=11)
    again = compactor.before_turn(session)
    assert again.tokens < refused.tokens, "what overflowed once is not sent a second time"
    assert [c.trigger for c in session.compactions()] == ["overflow", "limit"]


def test_after_an_overflow_on_an_older_segment_the_newest_may_do_and_nothing_is_paid(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, SOFT)
    compactor.before_turn(session)
    await_record(session, "compaction.committed")
    stayed = compactor.mid_turn(session)
    assert stayed.segment != session.head

    context = compactor.after_overflow(session)

    assert context.segment == session.head
    assert ready.calls == 1


def test_what_somebody_else_compacted_since_is_not_taken_for_what_overflowed(
    store: Store, session: Session, compactor: Compactor, ready: Model
) -> None:
    """The handle was never given a context by the compactor: it looked for itself."""
    converse(session, HARD)
    session.context()
    store.session("s").compact(ready, policy=policy())

    context = compactor.after_overflow(session)

    assert context.segment == session.head
    assert (ready.calls, len(session.compactions())) == (1, 1)


def refused_until_the_end(compactor: Compactor, session: Session, overflow: Exception) -> tuple[int, Exception]:
    """How often a provider refuses before the compactor gives up, and with which error."""
    for refused in range(1, 20):
        try:
            compactor.after_overflow(session, overflow)
        except onefold.ContextTooLarge as error:
            return refused, error
    raise AssertionError("it never gave up")


def test_a_provider_that_always_overflows_ends_in_an_error_and_the_session_is_usable(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    converse(session, 40)
    overflow = RuntimeError("context_length_exceeded")
    ended = []
    for turn in range(4):
        compactor.before_turn(session)
        refused, error = refused_until_the_end(compactor, session, overflow)
        ended.append((refused, str(error)))
        assert error.__cause__ is overflow
        session.append(talk(1, start=41 + turn))

    assert max(refused for refused, _ in ended) <= policy().attempts + 1
    assert all("session 's'" in words for _, words in ended)
    assert ready.calls <= 6
    assert all(not c.open for c in session.compactions())
    assert session.compaction_holder() is None
    assert session.context().messages[-1] == talk(1, start=44)[0]
    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens


def test_overflows_in_a_row_are_counted_and_one_that_was_taken_ends_the_row(
    store: Store, session: Session, ready: Model
) -> None:
    compactor = Compactor(store, ready, policy(attempts=1))
    converse(session, 12)
    compactor.before_turn(session)
    compactor.after_overflow(session)
    with pytest.raises(onefold.ContextTooLarge, match=r"rejected 2 contexts in a row.*it did not say why"):
        compactor.after_overflow(session)
    assert ready.calls == 1

    converse(session, 12, start=13)
    compactor.before_turn(session)
    assert compactor.after_overflow(session).tokens <= LIMITS.hard_tokens


# ---------------------------------------------------------------------- a summary model that does not do its work


def down(material: SummaryInput) -> str:
    raise SummarizerFailed("503 Service Unavailable", kind="unavailable", spent=Usage(1, 0, 0, 0.25))


def garbage(material: SummaryInput) -> Summary:
    return Summary("Error: rate limit exceeded", spent=Usage(1, 50, 5, 0.25))


def never_smaller(material: SummaryInput) -> Summary:
    return Summary("A word. " * 2_000, spent=Usage(1, 50, 5, 0.25))


def crashing(material: SummaryInput) -> str:
    raise SystemExit(1)


@pytest.mark.parametrize("bad", [down, garbage, never_smaller, crashing])
def test_a_summary_model_that_fails_ends_in_a_state_with_its_cause_and_its_cost_f42(
    store: Store, session: Session, bad: onefold.Summarizer
) -> None:
    compactor = Compactor(store, bad, policy())
    converse(session, HARD)
    words = set()
    for _ in range(10):
        with pytest.raises(onefold.ContextTooLarge) as caught:
            compactor.before_turn(session)
        words.add(str(caught.value))

    tried = session.compactions()
    assert [c.state for c in tried] == ["failed"] * AUTOMATIC_FAILURES
    assert [c.attempts for c in tried] == [policy().attempts] * AUTOMATIC_FAILURES
    assert all(c.cause for c in tried)
    if bad is not crashing:
        assert [(c.spent.calls, c.spent.cost) for c in tried] == [(3, 0.75)] * AUTOMATIC_FAILURES
    if bad in (garbage, never_smaller):
        refusals = {r.body.get("refusal") for r in session.read() if r.kind == "compaction.failed"}
        assert refusals == {"error text" if bad is garbage else "no progress"}
    assert len(words) == 2
    assert any("held back" in w for w in words)
    assert any(str(tried[0].cause) in w for w in words)
    assert (session.state.open, session.compaction_holder()) == (None, None)
    session.append(talk(1, start=HARD + 1))
    assert len(session.context().messages) == HARD + 1


@pytest.mark.parametrize("bad", [down, garbage, never_smaller])
def test_at_the_soft_limit_a_summary_model_that_fails_keeps_nobody_from_going_on_f42(
    store: Store, clock: StoppedClock, session: Session, bad: onefold.Summarizer
) -> None:
    """A hundred turns, and nine calls of the model: three attempts each of three compactions."""
    compactor = Compactor(store, bad, policy(backoff=(2.0, 15.0)))
    converse(session, SOFT)
    for _ in range(100):
        assert len(compactor.before_turn(session).messages) == SOFT
        settled(session)
        clock.advance(20)

    assert counted(session, "compaction.started") == AUTOMATIC_FAILURES * policy().attempts
    assert [c.state for c in session.compactions()] == ["failed"] * AUTOMATIC_FAILURES


def test_the_wait_after_a_failed_attempt_is_kept_and_nothing_is_written_meanwhile(
    store: Store, clock: StoppedClock, session: Session
) -> None:
    compactor = Compactor(store, down, policy(backoff=(30.0,)))
    converse(session, SOFT)
    compactor.before_turn(session)
    await_record(session, "compaction.failed")
    before = kinds(session)

    for _ in range(3):
        Compactor(store, down, policy()).before_turn(store.session("s"))
        compactor.mid_turn(session)
        compactor.compact_idle(0)
    assert kinds(session) == before

    clock.advance(31)
    compactor.before_turn(session)
    await_record(session, "compaction.failed", times=2)
    assert counted(session, "compaction.requested") == 1


def test_what_others_failed_at_behind_is_tried_once_more_at_the_hard_limit(
    store: Store, session: Session, model: Model
) -> None:
    def fails(material: SummaryInput) -> str:
        model(material)
        raise RuntimeError("no answer")

    converse(session, SOFT)
    Compactor(store, fails, policy(attempts=1)).before_turn(session)
    assert model.began.wait(PATIENCE)
    converse(session, HARD - SOFT, start=SOFT + 1)
    good = Compactor(store, onefold.extractive_summary, policy())

    with behind(lambda: good.before_turn(store.session("s"))) as sent:
        await_record(session, "compaction.joined")
        model.gate.set()

    (context,) = sent
    assert isinstance(context, Context)
    assert context.tokens <= LIMITS.hard_tokens
    assert [c.state for c in session.compactions()] == ["failed", "committed"]


def test_what_cannot_be_cut_is_too_large_and_the_error_says_what_to_do(
    session: Session, compactor: Compactor, ready: Model
) -> None:
    session.append({"role": "user", "content": "word " * 1_000})

    with pytest.raises(onefold.ContextTooLarge, match=r"'s'.*1,254 tokens is over the 810.*no progress.*larger window"):
        compactor.before_turn(session)

    assert ready.calls == 0
    assert session.state.open is None


# ---------------------------------------------------------------------- bounds, and who passes them


def test_a_restart_forgets_no_bound_and_a_person_passes_it_f43(
    durable: str, opened: Callable[..., Store], ready: Model
) -> None:
    store = opened(durable)
    session = store.session("s")
    converse(session, HARD)
    compactor = Compactor(store, down, policy())
    for _ in range(AUTOMATIC_FAILURES):
        with pytest.raises(onefold.ContextTooLarge):
            compactor.before_turn(session)
    store.close()

    store = opened(durable)
    session, compactor = store.session("s"), Compactor(store, ready, policy())
    for _ in range(5):
        with pytest.raises(onefold.ContextTooLarge, match="3 automatic compactions of this segment failed"):
            compactor.before_turn(session)
        assert [r.state for r in compactor.compact_idle(0).values()] == ["held back"]
    assert ready.calls == 0

    result = compactor.compact_now(session, "Keep file names.")

    assert (result.state, result.applied, ready.calls) == ("committed", True, 1)
    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens
    assert session.compactions()[-1].instructions == "Keep file names."


def test_a_bound_ends_when_the_context_has_grown_f43(store: Store, session: Session, ready: Model) -> None:
    """So between the soft limit and the hard one there is always another try."""
    failing = Compactor(store, down, policy())
    converse(session, SOFT)
    for _ in range(20):
        failing.before_turn(session)
        settled(session)
    assert session.state.failures == AUTOMATIC_FAILURES
    converse(session, HARD - SOFT, start=SOFT + 1)

    assert Compactor(store, ready, policy()).before_turn(session).tokens <= LIMITS.hard_tokens


@pytest.mark.parametrize("way", ["before_turn", "mid_turn", "upkeep"])
def test_a_summary_whose_process_died_is_taken_up_again(
    store: Store, clock: StoppedClock, session: Session, ready: Model, way: str
) -> None:
    compactor = Compactor(store, ready, policy())
    converse(session, 10)  # under the soft limit: that somebody asked is enough
    store.journal.request("s", trigger="threshold", base=1)
    claimed(store.journal, lease=20)
    go: dict[str, Callable[[], object]] = {
        "before_turn": lambda: compactor.before_turn(session),
        "mid_turn": lambda: compactor.mid_turn(session),
        "upkeep": lambda: compactor.compact_idle(0),
    }
    go[way]()
    assert counted(session, "compaction.started") == 1

    clock.advance(21)
    go[way]()

    await_record(session, "compaction.committed")
    (done,) = session.compactions()
    assert (done.state, done.attempts, ready.calls) == ("committed", 2, 1)


@pytest.mark.parametrize("far", [True, False], ids=["on another machine", "here"])
def test_a_process_is_killed_while_its_summary_is_made_and_the_next_one_makes_it(
    durable: str, ready: Model, far: bool
) -> None:
    clock = Clock()
    with onefold.open(durable, policy=policy(), clock=clock) as store:
        store.journal.leases.machine = Elsewhere() if far else MACHINE
        session, compactor = store.session("s"), Compactor(store, ready)
        converse(session, SOFT)
        with Child(
            "prepare", module="tests.support.compactor_children", path=durable, session="s", limits=[1_000, 100]
        ) as child:
            child.hear("summarizing")
            child.kill()
        if far:
            assert compactor.before_turn(session).segment == 1
            assert counted(session, "compaction.started") == 1, "its lease is in force"
            clock.ahead = 25.0
        assert compactor.before_turn(session).segment == 1
        await_record(session, "compaction.committed")

        (done,) = session.compactions()
        assert (done.state, done.attempts, done.trigger, ready.calls) == ("committed", 2, "threshold", 1)
        assert store.verify().healthy


# ---------------------------------------------------------------------- switched off, or somebody else's


@pytest.mark.parametrize("way", ["before_turn", "mid_turn", "after_overflow", "compact_now", "request"])
def test_a_session_of_another_store_is_refused_at_its_first_use(
    address: str, opened: Callable[..., Store], ready: Model, way: str
) -> None:
    """By its id alone it might be one of this store's, and what is known of that would be taken for it."""
    ours, theirs = opened(address, policy=policy()), opened("memory:", policy=policy())
    mine, session = ours.session("s"), theirs.session("s")
    converse(session, HARD)
    before = mine.state, session.state

    with pytest.raises(OnefoldError, match=r"session 's' is in another store.*make a Compactor for each store"):
        getattr(Compactor(ours, ready), way)(session)

    assert ((mine.state, session.state), ready.calls) == (before, 0)


def test_a_session_of_the_same_store_opened_once_more_is_taken(
    durable: str, opened: Callable[..., Store], ready: Model
) -> None:
    ours, again = opened(durable, policy=policy()), opened(durable, policy=policy())
    session = again.session("s")
    converse(session, HARD)

    assert Compactor(ours, ready).before_turn(session).summary is not None


@pytest.mark.parametrize("where", ["store", "compactor"])
def test_switched_off_nothing_is_compacted_by_any_way_in_overflow_included(
    address: str, opened: Callable[..., Store], ready: Model, where: str
) -> None:
    store = opened(address, policy=policy(enabled=where != "store"))
    compactor = Compactor(store, ready, policy(enabled=where == "store"))
    session = store.session("s")
    converse(session, HARD)
    compactor.before_turn(session)
    before = session.state

    assert compactor.before_turn(session) == compactor.mid_turn(session) == session.context()
    assert compactor.compact_idle(0) == {}
    for way in (compactor.compact_now, compactor.after_overflow, compactor.request):
        with pytest.raises(onefold.CompactionDisabled, match="enabled=False"):
            way(session)

    assert (session.state, ready.calls) == (before, 0)
    assert not compactor.policy.enabled


@pytest.mark.parametrize("kind", ["kept by its agent", "review"])
def test_what_is_not_ours_to_compact_is_given_as_it_is(
    store: Store, compactor: Compactor, ready: Model, kind: str
) -> None:
    session = store.session("s", keeper="agent" if kind == "kept by its agent" else "onefold")
    converse(session, HARD)
    if kind == "review":
        session = session.fork("review", id="review")
    compactor.before_turn(session)
    before = session.state

    assert compactor.before_turn(session) == compactor.mid_turn(session) == session.context()
    assert session.id not in compactor.compact_idle(0)
    for way in (compactor.compact_now, compactor.after_overflow, compactor.request):
        with pytest.raises(onefold.CompactionDisabled):
            way(session)
    assert session.state == before


def test_after_an_undo_only_a_full_context_is_compacted(session: Session, compactor: Compactor, ready: Model) -> None:
    converse(session, SOFT)
    session.context()
    session.undo()
    assert session.context().tokens > LIMITS.soft_tokens

    assert compactor.before_turn(session).segment == session.head
    assert session.compactions() == []
    converse(session, HARD - SOFT + 2, start=SOFT + 1)
    assert compactor.before_turn(session).tokens <= LIMITS.hard_tokens


# ---------------------------------------------------------------------- by hand, from outside, upkeep


def test_from_outside_the_running_one_is_given_at_once(session: Session, compactor: Compactor, model: Model) -> None:
    converse(session, SOFT)
    compactor.before_turn(session)
    assert model.began.wait(PATIENCE)

    result = compactor.request(session, trigger="gateway", instructions="be brief")

    assert (result.state, result.joined, result.changed) == ("running", True, False)
    assert result.id == session.state.open
    model.gate.set()
    await_record(session, "compaction.committed")
    assert model.calls == 1


def test_by_hand_a_session_of_any_size_is_compacted(session: Session, compactor: Compactor, ready: Model) -> None:
    converse(session, 10)

    assert compactor.compact_now(session).applied
    assert session.compactions()[0].trigger == "manual"


def test_upkeep_is_for_sessions_that_are_large_and_quiet(
    store: Store, clock: StoppedClock, compactor: Compactor, ready: Model
) -> None:
    for name, count in (("large", SOFT), ("larger", HARD), ("small", 6)):
        converse(store.session(name), count)
    clock.advance(400)
    converse(store.session("busy"), SOFT)

    came = compactor.compact_idle(wait=True)

    assert {name: result.state for name, result in came.items()} == {"large": "committed", "larger": "committed"}
    assert ready.calls == 2
    assert store.session("busy").compactions() == []
    assert compactor.compact_idle(wait=True) == {}


def test_upkeep_begins_so_many_at_once_the_longest_quiet_first_and_waits_for_none(
    store: Store, clock: StoppedClock, compactor: Compactor, model: Model
) -> None:
    for n in range(5):
        converse(store.session(f"s{n}"), SOFT)
        clock.advance(1)

    assert {n: r.state for n, r in compactor.compact_idle(0, most=2).items()} == {"s0": "running", "s1": "running"}
    assert list(compactor.compact_idle(0, most=2)) == ["s2", "s3"], "what runs is left alone"
    assert list(compactor.compact_idle(0, most=2)) == ["s4"]
    model.gate.set()
    for n in range(5):
        settled(store.session(f"s{n}"))
    assert model.calls == 5


def test_upkeep_that_waits_tells_of_a_failure_meanwhile_and_does_not_ask_again(
    store: Store, clock: StoppedClock, model: Model
) -> None:
    """The one that fails is over while the first is still waited for."""
    waited_for = threading.Event()

    def fails(material: SummaryInput) -> Summary:
        if material.session == "fails":
            assert waited_for.wait(PATIENCE)
            raise RuntimeError("poison")
        return model(material)

    for name in ("slow", "fails"):
        converse(store.session(name), SOFT)
        clock.advance(1)
    compactor = Compactor(store, fails, policy(attempts=1))

    with behind(lambda: compactor.compact_idle(0, wait=True)) as came:
        await_record(store.session("slow"), "compaction.joined")
        waited_for.set()
        await_record(store.session("fails"), "compaction.failed")
        model.gate.set()

    (results,) = came
    assert isinstance(results, dict)
    assert {name: (r.state, r.cause) for name, r in results.items()} == {
        "slow": ("committed", None),
        "fails": ("failed", "RuntimeError: poison"),
    }
    assert len(store.session("fails").compactions()) == 1


def test_one_poisoned_session_does_not_hold_up_the_others(
    store: Store, clock: StoppedClock, ready: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hangs, one fails, one cannot be opened: the fourth is compacted in the same round."""
    hanging = threading.Event()

    def poisoned(material: SummaryInput) -> Summary:
        if material.session == "hangs":
            assert hanging.wait(PATIENCE)
        if material.session == "fails":
            raise RuntimeError("poison")
        return ready(material)

    compactor = Compactor(store, poisoned, policy())
    for name in ("hangs", "fails", "broken", "well"):
        converse(store.session(name), SOFT)
        clock.advance(1)
    original = store.session

    def broken(id: str, **how: Json) -> Session:
        if id == "broken":
            raise onefold.StoreDamaged("session 'broken' is damaged")
        return original(id, **how)

    monkeypatch.setattr(store, "session", broken)

    came = compactor.compact_idle(0)

    assert came["broken"].cause == "session 'broken' is damaged"
    assert list(came) == ["hangs", "fails", "broken", "well"]
    await_record(store.session("well"), "compaction.committed")
    assert store.session("hangs").state.committed == 0
    hanging.set()
    await_record(store.session("hangs"), "compaction.committed")
    for _ in range(10):
        compactor.compact_idle(0)
        settled(store.session("fails"))
    assert {c.state for c in store.session("fails").compactions()} == {"failed"}


# ---------------------------------------------------------------------- a long life


def call(n: int) -> list[Json]:
    """One call with its result, which is now and then large."""
    tool = {"id": f"call-{n}", "type": "function", "function": {"name": "run", "arguments": f'{{"n": {n}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": f"call-{n}", "content": "line " * (10 + 37 * n % 90)},
    ]


@pytest.mark.parametrize("seed", range(6))
def test_in_a_long_life_no_model_gets_a_context_over_the_hard_limit_or_half_a_pair(
    store: Store, session: Session, seed: int
) -> None:
    chance = random.Random(seed)

    def moody(material: SummaryInput) -> str:
        if chance.random() < 0.3:
            raise RuntimeError("not now")
        return f"{len(material.records)} messages, the last of them #{material.records[-1].number}."

    compactor = Compactor(store, moody, policy(tail_tokens=100))
    sent: list[Context] = []
    too_large = n = 0
    for turn in range(30):
        session.append({"role": "user", "content": f"task {turn} " + "word " * chance.randrange(5, 60)})
        enter = compactor.before_turn
        for _ in range(chance.randrange(1, 6)):
            try:
                context = enter(session, usage=sent[-1].tokens + 20 if sent and chance.random() < 0.5 else None)
            except onefold.ContextTooLarge:
                too_large += 1
                compactor.compact_now(session)
                break
            sent.append(context)
            n += 1
            session.append(call(n))
            enter = compactor.mid_turn
    settled(session)

    assert max(c.tokens for c in sent) <= LIMITS.hard_tokens
    assert [c.last for c in sent if not whole(c)] == []
    assert session.state.committed >= 3
    assert too_large <= 10
    assert len([r for r in session.read() if r.kind == "message"]) == 30 + 2 * n
