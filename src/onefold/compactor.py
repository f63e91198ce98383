"""What an agent's loop holds: one line wherever it may have to compact. All of them end in `Session.compact`.

The rules are generators, which yield each compaction they want and are told how it ended. So they stand here once, and
run in a program that blocks and in one that awaits.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from onefold.compaction.context import Context
from onefold.compaction.limits import CompactionReadiness, Limits, SizeEstimator, Step, decide
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer
from onefold.compaction.token_counter import Counter, counted, counter
from onefold.errors import ContextTooLarge, NotNow, OnefoldError, StaleHandle, is_everybodys
from onefold.journal import adoption, lineage, masks
from onefold.journal.adoption import Origin
from onefold.journal.backoff import grown
from onefold.journal.checks import compacts
from onefold.journal.journal import segment
from onefold.journal.lineage import get_session
from onefold.model import MANUAL, OPEN, CompactResult, Json, Segment, SessionState
from onefold.session import Session
from onefold.storage.base import Transaction
from onefold.store import Store

log = logging.getLogger("onefold")

T = TypeVar("T")

LEAST_SAVED = 0.2
"""A mask makes a context smaller by a fifth at least: less is not worth a provider's cache."""
_REMEMBERED = 10_000
"""Sessions whose gauges are remembered."""
_NEVER_BELOW = 10
"""A soft limit lies at a tenth of the window at least, as far as upkeep is concerned: less is not looked at closer."""


@dataclass(frozen=True, slots=True)
class CompactionWanted:
    """A compaction that the rules want. Whoever runs them makes it, and tells how it ended."""

    session: Session
    trigger: str
    wait: bool | float
    base: int | None = None
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """What the rules came to."""

    answer: T


CompactionPlan: TypeAlias = Generator[CompactionWanted, CompactResult, T]


def resume(
    rules: CompactionPlan[T], told: CompactResult | OnefoldError | None = None
) -> CompactionWanted | Finished[T]:
    """Lets the rules go on to the next compaction they want, or to their end."""
    try:
        if told is None:
            return next(rules)
        return rules.throw(told) if isinstance(told, OnefoldError) else rules.send(told)
    except StopIteration as end:
        return Finished(end.value)


@dataclass(frozen=True, slots=True)
class LastSent:
    """The last context that an agent was given by its handle."""

    segment: int
    estimated: int
    model: str | None
    overflows: int = 0
    """How often the provider rejected a context since it last took one."""


class Compactor:
    """Keeps an agent's contexts within what its model takes. One for all sessions and threads of a process."""

    def __init__(
        self,
        store: Store,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
        *,
        count: Counter | str | None = None,
    ) -> None:
        """By default the store's summarizer and policy. `count` counts tokens exactly: a function, or the name of a
        vocabulary (`onefold[tokens]`); without it sizes are estimates."""
        self._store = store
        self._summarizer = summarizer
        given = policy or store.policy
        self.policy = replace(given, enabled=given.enabled and store.policy.enabled)
        self._count = counter(count) if isinstance(count, str) else count
        self._lock = threading.Lock()
        self._gauges: dict[tuple[str, str | None], SizeEstimator] = {}
        self._noted: dict[str, tuple[int, dict[str, Json]]] = {}
        """The limits that sessions were said to go by here, and the record that says so."""
        self._sent: weakref.WeakKeyDictionary[Session, LastSent] = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------------ the six ways in

    def before_turn(
        self, session: Session, *, model: str | None = None, usage: int | None = None, context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:  # fmt: skip
        """What to send at the beginning of a turn: at the soft limit a summary is begun behind it, at the hard limit
        it is waited for.

        `usage` is how many tokens the input of the last call had as the provider says, cached ones included, and
        `context` what that call was sent, if it is not what this handle was given last. `origin` is whom it is for: an
        item that this provider made, and that was adopted, stands in it.
        """
        return self._run(self.plan_before_turn(session, model, usage, context, origin=origin))

    def mid_turn(
        self, session: Session, *, model: str | None = None, usage: int | None = None, context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:  # fmt: skip
        """What to send next within a turn: from the segment the turn is on, as long as that fits, so that the
        provider's cache still knows how it begins; then from the newest."""
        return self._run(self.plan_mid_turn(session, model, usage, context, origin=origin))

    def after_overflow(
        self,
        session: Session,
        error: BaseException | None = None,
        *,
        model: str | None = None,
        context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:
        """What to send after the provider rejected a context for its size: a smaller one, or `ContextTooLarge`."""
        return self._run(self.plan_after_overflow(session, error, model, context, origin=origin))

    def compact_now(self, session: Session, instructions: str | None = None) -> CompactResult:
        """Compacts because a person asks, whatever the size, and waits for it; passes the bounds on automatic ones."""
        return self._run(self.plan_compact_now(session, instructions))

    def compact_idle(
        self, idle: float = 300.0, *, model: str | None = None, most: int = 4, wait: bool | float = False
    ) -> dict[str, CompactResult]:
        """Begins summaries of sessions over the soft limit that were quiet for `idle` seconds, up to `most` of them,
        and takes up those that nobody works on any more; what came of each, by session."""
        return self._run(self.plan_compact_idle(idle, model, most, wait))

    def request(self, session: Session, *, trigger: str = "outside", instructions: str | None = None) -> CompactResult:
        """Compacts because another program asks: returns at once, with the compaction that runs already or a new
        one."""
        return self._run(self.plan_request(session, trigger, instructions))

    def finish(self, wait: bool | float = True) -> bool:
        """Waits for the summaries that this process has under way, for a program that is about to end: as long as the
        policy says, or so many seconds. False if one is not made by then."""
        return self._store.finish(self.policy.seconds(wait))

    # ------------------------------------------------------------------ their rules

    def plan_before_turn(
        self, session: Session, model: str | None, usage: int | None, context: Context | None, *,
        origin: Origin | None = None,
    ) -> CompactionPlan[Context]:  # fmt: skip
        self._ours(session)
        self._go_by(session, model)
        self._learn(session, model, usage, context)
        return (yield from self._newest(session, model, origin=origin))

    def plan_mid_turn(
        self, session: Session, model: str | None, usage: int | None, context: Context | None, *,
        origin: Origin | None = None,
    ) -> CompactionPlan[Context]:  # fmt: skip
        self._ours(session)
        self._go_by(session, model)
        sent = self._learn(session, model, usage, context)
        if sent is not None and self._only_compacted_since(session, sent.segment):
            stays = session.context(sent.segment, origin=origin)
            if self._size(session, model, stays) <= self.policy.of(model).hard_tokens:
                if self._due(state := session.state, model) and not self._masked(session, model, origin=origin):
                    yield CompactionWanted(session, "threshold", wait=False, base=state.head)
                return self._given(session, model, stays)
        return (yield from self._newest(session, model, stays=True, origin=origin))

    def plan_after_overflow(
        self, session: Session, error: BaseException | None, model: str | None, context: Context | None, *,
        origin: Origin | None = None,
    ) -> CompactionPlan[Context]:  # fmt: skip
        self._ours(session)
        # What a handle looked at last is what its agent sent, also if somebody compacted it since.
        measured = partial(session.context, session.measured_segment, origin=origin)
        sent = self._last(session, model, context) or self._as_sent(measured(), model)
        refused = sent.overflows + 1
        limits = self.policy.of(model)
        self._remember(session, model, self._gauge(session.id, model).overflowed(sent.estimated, window=limits.window))
        try:
            if refused > self.policy.attempts:
                raise ContextTooLarge(
                    f"session {session.id!r}: the provider rejected {refused} contexts in a row for their size, the "
                    f"last one of about {sent.estimated:,} tokens: {error or 'it did not say why'}. Look at what is "
                    "sent in addition to the context, and at the limits of this model in the policy"
                )
            return (yield from self._fitting(session, model, "overflow", refused, origin=origin))
        except ContextTooLarge as too_large:
            if session.state.open is None:  # no estimate is to blame, or none can be met: the next turn asks again
                self._remember(session, model, SizeEstimator())
            raise too_large from error

    def plan_compact_now(self, session: Session, instructions: str | None) -> CompactionPlan[CompactResult]:
        self._ours(session)
        return (yield CompactionWanted(session, MANUAL, wait=True, instructions=instructions))

    def plan_request(self, session: Session, trigger: str, instructions: str | None) -> CompactionPlan[CompactResult]:
        self._ours(session)
        return (yield CompactionWanted(session, trigger, wait=False, instructions=instructions))

    def _ours(self, session: Session) -> None:
        """What is known of one store's sessions says nothing about another's, whatever their ids."""
        theirs, ours = session.journal.backend, self._store.journal.backend
        if theirs.generation != ours.generation:
            raise OnefoldError(
                f"session {session.id!r} is in another store, {theirs.address}, than this compactor's, {ours.address}; "
                "make a Compactor for each store"
            )

    def plan_compact_idle(
        self, idle: float, model: str | None, most: int, wait: bool | float
    ) -> CompactionPlan[dict[str, CompactResult]]:
        came: dict[str, CompactResult] = {}
        begun: list[tuple[Session, SessionState]] = []
        for state in self._quiet(idle, model):
            if len(begun) >= most:
                break
            try:
                session = self._store.session(state.id, create=False)
                if not self._due(state, model) or self._masked(session, model):
                    continue
                came[state.id] = yield CompactionWanted(session, "upkeep", wait=False, base=state.head)
            except OnefoldError as error:  # of this session: the others have no part in it
                log.warning("session %r is passed over in the upkeep: %s", state.id, error)
                came[state.id] = CompactResult(None, "failed", False, False, False, str(error), state.head)
                continue
            if came[state.id].state != "held back":
                begun.append((session, state))
        ends = time.monotonic() + self.policy.seconds(wait)
        for session, state in begun if wait else ():
            came[state.id] = self._now(came[state.id], state)
            if came[state.id].state in OPEN:
                left = max(0.0, ends - time.monotonic())
                came[state.id] = yield CompactionWanted(session, "upkeep", wait=left, base=state.head)
        return came

    def _now(self, result: CompactResult, before: SessionState) -> CompactResult:
        """What has become of a compaction that nobody waited for."""
        if result.id is None:
            return result
        current, head = self._store.journal.compaction(before.id, result.id), self._store.journal.state(before.id).head
        cause = current.cause if current.state != "committed" else None
        return replace(result, state=current.state, cause=cause, changed=head != before.head, segment=head)

    def _newest(
        self, session: Session, model: str | None, *, stays: bool = False, origin: Origin | None = None
    ) -> CompactionPlan[Context]:
        """The cheapest step that is enough: nothing, a mask, a summary. Within a turn the agent `stays` on what it has
        as long as that fits, so that the provider's cache still knows it."""
        context = session.context(origin=origin)
        step = self._decide(session.id, model, self._size(session, model, context))
        if step == "wait":
            return (yield from self._fitting(session, model, "limit", origin=origin))
        if step == "prepare":
            if self._masked(session, model, context=context, origin=origin):
                return self._given(session, model, context if stays else session.context(origin=origin))
            yield CompactionWanted(session, "threshold", wait=False, base=context.segment)
        return self._given(session, model, context)

    def mask(self, session: Session, *, model: str | None = None, full: bool = False) -> bool:
        """Shows old large tool results as one line each, if that is enough: if the context is under the soft limit
        then, or, where it is `full`, under the hard one, and smaller by a fifth at least. True if that is done, whoever
        was first in doing it."""
        return self._masked(session, model, full=full)

    def _masked(
        self, session: Session, model: str | None, *, full: bool = False, context: Context | None = None,
        origin: Origin | None = None,
    ) -> bool:  # fmt: skip
        edits = origin is not None and origin.edits
        if edits or not (self.policy.enabled and self.policy.mask_tokens):
            return False
        state, could = session.could_mask(self.policy)
        size = state.tokens if context is None else self._estimated(context)
        if context is not None and context.item:  # what that covers is not shown anyway
            could = replace(could, masks=tuple(m for m in could.masks if m[0] in context.numbers))
        limits = self.limits_of(state, model) or self.policy.of(model)
        left = self._gauge(session.id, model).size(max(0, size - could.saves))
        if left > (limits.hard_tokens if full else limits.soft_tokens) or could.saves < size * LEAST_SAVED:
            return False
        numbers = [number for number, _ in could.masks]
        try:
            masks.mask(self._store.journal, session.id, numbers, expect_head=could.head, full=full, actor=session.agent)
        except StaleHandle:
            return True
        except NotNow:
            return False
        return True

    def _fitting(
        self, session: Session, model: str | None, trigger: str, overflows: int = 0, *, origin: Origin | None = None
    ) -> CompactionPlan[Context]:
        """A context under the hard limit, once there is one. What others tried and failed at, it tries once more."""
        # Where summaries were begun again and again and never made, this one is waited for to its end.
        given_up = session.state.paid >= self.policy.attempts
        ends = time.monotonic() + (
            max(self.policy.attempt_timeout, self.policy.wait_timeout) if given_up else self.policy.wait_timeout
        )
        hard = self.policy.of(model).hard_tokens
        result: CompactResult | None = None
        newest = partial(session.context, origin=origin)
        if self._masked(session, model, full=True, context=newest(), origin=origin):
            context = newest()
            if (size := self._size(session, model, context)) <= hard:
                if self._decide(session.id, model, size) == "prepare":
                    yield CompactionWanted(session, "threshold", wait=False, base=context.segment)
                return self._given(session, model, context, overflows)
        for left in range(self.policy.attempts, -1, -1):
            context = newest()
            if self._size(session, model, context) <= hard:
                return self._given(session, model, context, overflows)
            others = result is not None and result.joined and result.state in ("failed", "skipped")
            gave_up = result is not None and not result.changed and not others
            if left == 0 or gave_up:
                break
            wait = max(0.0, ends - time.monotonic())
            result = yield CompactionWanted(session, trigger, wait=wait, base=context.segment)
        raise ContextTooLarge(self._over(session, model, context, result))

    # ------------------------------------------------------------------ what is known

    def _over(self, session: Session, model: str | None, context: Context, result: CompactResult | None) -> str:
        gauge, estimated = self._gauge(session.id, model), self._estimated(context)
        said = f" (estimated {estimated:,}; the provider said {gauge.measured:,} for {gauge.estimated:,})"
        return (
            f"session {session.id!r}: its context of about {gauge.size(estimated):,} tokens"
            f"{said if gauge.measured and gauge.believed else ''} is over the {self.policy.of(model).hard_tokens:,} "
            f"that {model or 'a model'} is sent at most, and {_why(result)}. {_remedy(result)}"
        )

    def _decide(self, session: str, model: str | None, size: int) -> Step:
        return decide(size, self.policy.of(model), self._standing(session))

    def _standing(self, session: str) -> CompactionReadiness:
        """How a session stands with compaction. Writes nothing."""
        if not self.policy.enabled:
            return CompactionReadiness(may=False)

        def read_standing(tx: Transaction) -> tuple[SessionState, Segment, bool]:
            state = get_session(tx, session)
            head = segment(tx, session, state.head)
            return state, lineage.origin(tx, session, head), compacts(tx, state) and head.keeper == "onefold"

        state, stands, may = self._store.journal.backend.read(read_standing)
        rests = state.paid >= self.policy.attempts or (state.rests > 0 and not grown(state, state.rests))
        more = not rests and (stands.source != "compaction" or grown(state, stands.tokens_after))
        if state.open is None or not may:
            return CompactionReadiness(may, "nothing", more)
        free = not rests and self._store.journal.claimable(session, state.open) is None
        return CompactionReadiness(may, "free" if free else "held", more)

    def _only_compacted_since(self, session: Session, older: int) -> bool:
        """Whether the session went on from a segment by compactions and masks alone: what was taken back or erased
        since would still be seen from there."""

        def read_only_compacted_since(tx: Transaction) -> bool:
            number: int | None = get_session(tx, session.id).head
            if number == older:
                return False
            while number is not None and number > older:
                opened = tx.segment(session.id, number)
                if opened is None or opened.source not in ("compaction", "masked"):
                    return False
                number = opened.base
            return number == older

        return self._store.journal.backend.read(read_only_compacted_since)

    def due_sessions(self, idle: float, model: str | None = None) -> list[SessionState]:
        """The sessions that upkeep would begin with now, the longest quiet first."""
        return [s for s in self._quiet(idle, model) if s.open is None and self._is(self._due, s, model)]

    def _quiet(self, idle: float, model: str | None) -> list[SessionState]:
        """The sessions that upkeep is for, the longest quiet first."""
        now = self._store.journal.backend.read(lambda tx: tx.now)
        quiet = [s for s in self._store.walk() if s.touched_at <= now - idle and self._is(self._full, s, model)]
        return sorted(quiet, key=lambda s: (s.touched_at, s.id))

    def _is(self, asked: Callable[[SessionState, str | None], bool], state: SessionState, model: str | None) -> bool:
        """The answer for one of many sessions. No, where it is damaged, or deleted since it was met: the others have no
        part in that."""
        try:
            return asked(state, model)
        except OnefoldError as error:
            if is_everybodys(error):
                raise
            log.warning("session %r is passed over in the upkeep: %s", state.id, error)
            return False

    def _full(self, state: SessionState, model: str | None) -> bool:
        """Whether it is worth a closer look. What an unknown model takes is not guessed."""
        if not self.policy.enabled:
            return False
        if state.open is not None:
            return True
        size = self._gauge(state.id, model).size(state.tokens)
        if state.window and size * _NEVER_BELOW < state.window:
            return False
        limits = self.limits_of(state, model)
        return limits is not None and size > limits.soft_tokens

    def _due(self, state: SessionState, model: str | None) -> bool:
        """Whether a summary is to be begun that nobody waits for."""
        limits = self.limits_of(state, model) or self.policy.of(model)
        size = min(self._gauge(state.id, model).size(state.tokens), limits.hard_tokens)
        if not self._full(state, model) or self._provided(state):
            return False
        return decide(size, limits, self._standing(state.id)) == "prepare"

    def _provided(self, state: SessionState) -> bool:
        """Whether its agent has a provider's item in place of the plain text: then it says itself what is too much."""

        def read_provided(tx: Transaction) -> bool:
            head = tx.segment(state.id, state.head)
            return head is not None and adoption.in_force(tx, state.id, head) is not None

        return self._store.journal.backend.read(read_provided)

    def limits_of(self, state: SessionState, model: str | None = None) -> Limits | None:
        """What a session's agent goes by: as its own record says, else as this policy does; None if neither says."""
        said = self._store.journal.backend.read(lambda tx: lineage.limits(tx, state)) if state.limits else None
        if said is not None and (known := Limits.from_record(said)) is not None:
            return known
        return self.policy.models.get(model, self.policy.said) if model is not None else self.policy.said

    def _go_by(self, session: Session, model: str | None) -> None:
        """Notes in the session what this agent goes by, when it first looks and whenever that changes."""
        mine = self.policy.of(model).as_record(model)
        state = session.state
        with self._lock:
            number, said = self._noted.get(session.id, (0, mine))
        if state.limits == number and said == mine and number:
            return
        number = session.go_by(self.policy.of(model), model)
        with self._lock:
            self._noted.pop(session.id, None)
            self._noted[session.id] = (number, mine)
            if len(self._noted) > _REMEMBERED:
                del self._noted[next(iter(self._noted))]

    def _learn(
        self, session: Session, model: str | None, usage: int | None, context: Context | None
    ) -> LastSent | None:
        """Takes in what the provider said of the last call, and gives what that was sent."""
        if usage is not None and usage < 0:
            raise ValueError(f"session {session.id!r}: usage is a number of tokens, not {usage}")
        sent = self._last(session, model, context)
        if sent is not None and usage:
            told = self._gauge(session.id, sent.model).told(
                usage, estimated=sent.estimated, segment=sent.segment, window=self.policy.of(sent.model).window
            )
            self._remember(session, sent.model, told)
        return sent

    def _last(self, session: Session, model: str | None, context: Context | None) -> LastSent | None:
        with self._lock:
            sent = self._sent.get(session)
        if context is None:
            return sent
        given = self._as_sent(context, sent.model if sent is not None else model)
        return replace(given, overflows=sent.overflows if sent is not None else 0)

    def _as_sent(self, context: Context, model: str | None) -> LastSent:
        return LastSent(context.segment, self._estimated(context), model)

    def _given(self, session: Session, model: str | None, context: Context, overflows: int = 0) -> Context:
        with self._lock:
            self._sent[session] = replace(self._as_sent(context, model), overflows=overflows)
        return context

    def _estimated(self, context: Context) -> int:
        return counted(context, self._count)

    def _size(self, session: Session, model: str | None, context: Context) -> int:
        return self._gauge(session.id, model).size(self._estimated(context))

    def _gauge(self, session: str, model: str | None) -> SizeEstimator:
        with self._lock:
            return self._gauges.get((session, model), SizeEstimator())

    def _remember(self, session: Session, model: str | None, gauge: SizeEstimator) -> None:
        with self._lock:
            self._gauges.pop((session.id, model), None)
            self._gauges[session.id, model] = gauge
            if len(self._gauges) > _REMEMBERED:
                del self._gauges[next(iter(self._gauges))]

    def _run(self, rules: CompactionPlan[T]) -> T:
        told: CompactResult | OnefoldError | None = None
        while isinstance(answer := resume(rules, told), CompactionWanted):
            try:
                told = answer.session.compact(
                    self._summarizer,
                    trigger=answer.trigger,
                    instructions=answer.instructions,
                    wait=answer.wait,
                    base=answer.base,
                    policy=self.policy,
                )
            except OnefoldError as error:
                told = error
        return answer.answer


def _why(result: CompactResult | None) -> str:
    if result is None or result.changed:
        return "compacting it was not enough"
    cause = f" ({result.cause})" if result.cause else ""
    if result.state == "skipped":
        return f"there is nothing to compact{cause}"
    if result.state in OPEN:
        return f"its summary is not ready yet{cause}"
    return (
        f"compaction is {result.state}{cause}" if result.state == "held back" else f"compaction {result.state}{cause}"
    )


def _remedy(result: CompactResult | None) -> str:
    if result is not None and result.state in OPEN:
        return "The summary goes on: call again, or wait longer (Policy.wait_timeout)"
    return (
        "Nothing is lost: fix what failed and compact by hand, take something back or unpin it, "
        "or use a model with a larger window"
    )
