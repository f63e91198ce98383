"""One call of `compact`: asks for a compaction, works on it or waits for whoever does, and says what came of it.

All ways to compact end here. It returns what happened and raises only for misuse; failure means no change.
"""

from __future__ import annotations

import time
from functools import partial

from onefold.compaction.attempt import Attempt, AttemptRegistry, inputs_digest, rejected_before
from onefold.compaction.cut_planner import NoCut
from onefold.compaction.holder import this_process
from onefold.compaction.material import MaterialPreview, preview_material
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer
from onefold.errors import CompactionDisabled, OnefoldError, StoreError
from onefold.journal.agent_compactions import has_agent
from onefold.journal.checks import may_compact
from onefold.journal.journal import Journal, segment
from onefold.journal.leases import patience
from onefold.journal.lineage import get_session
from onefold.journal.reader import WaitFor
from onefold.model import Claim, ClaimDenied, Compaction, CompactResult, Draft, RequestOutcome
from onefold.storage.base import Transaction

_GLANCE = 0.25  # an attempt may end without a word in the store: it is looked at that often


class CompactionJob:
    """One call of `compact`, step by step: for a caller that blocks while it waits, and for one that does not.

    It sees to it that segment `base` is compacted once, by this caller or another.
    """

    def __init__(
        self,
        journal: Journal,
        session: str,
        summarizer: Summarizer,
        policy: Policy,
        runner: AttemptRegistry,
        *,
        base: int,
        trigger: str,
        instructions: str | None = None,
        wait: bool | float = True,
        agent: str | None = None,
        follow_up: Draft | None = None,
    ) -> None:
        self.session = session
        self._journal = journal
        self._summarizer = summarizer
        self._policy = policy
        self._runner = runner
        self._base = base
        self._trigger = trigger
        self._instructions = instructions
        self._seconds = policy.seconds(wait)
        self._deadline = 0.0
        self._agent = agent
        self._follow_up = follow_up
        self._asked: RequestOutcome | None = None
        self._own: Attempt | None = None
        self._by_agent = False
        """The session's agent compacts it: it is asked by whoever runs it, and this caller only waits."""

    def step(self) -> CompactResult | WaitFor:
        """Does what there is to do now, and says how it ended, or what to wait for before the next step."""
        asked = self._asked or self._begin()
        if isinstance(asked, CompactResult):
            return asked
        self._asked = asked
        if asked.compaction is None or asked.outcome == "moved on":
            return _already(asked, self._base)
        journal, session, id, policy = self._journal, self.session, asked.compaction.id, self._policy
        while True:
            version = journal.backend.version()
            current = journal.compaction(session, id)
            if not current.open:
                return self._result(current, asked)
            until = self._deadline
            if self._by_agent:
                if time.monotonic() >= until and current.state == "requested" and self._seconds > 0:
                    raise self._nobody_runs_it(asked)
            elif self._own is None or self._own.over():
                held = journal.claimable(session, id)
                if held is None:
                    if self._runner.ended is not None:
                        raise StoreError(f"{journal.backend.address} is closed in this process; open it again")
                    who = this_process(self._agent)
                    got = journal.claim(session, who, lease=policy.lease, life=policy.attempt_timeout, compaction=id)
                    if isinstance(got, Claim):
                        attempt = Attempt(
                            journal, got, self._summarizer, policy, self._follow_up, trigger=self._trigger
                        )
                        self._own = self._runner.start(attempt)
                    continue
                until = min(until, _when(held, journal, until))
            else:
                until = min(until, time.monotonic() + _GLANCE)
            if time.monotonic() >= self._deadline:
                return self._result(current, asked)
            return WaitFor(version, until)

    def _nobody_runs_it(self, asked: RequestOutcome) -> CompactionDisabled:
        if asked.outcome == "opened" and asked.compaction is not None:
            self._journal.cancel(self.session, asked.compaction.id, actor=self._agent)
        return CompactionDisabled(
            f"session {self.session!r} is compacted by its agent, which did not take the request; look whether "
            "`onefold run` still runs it, or call set_compaction_owner('onefold') first"
        )

    def stands(self) -> CompactResult:
        """How it stands after its first step, for a caller that does not wait for its end."""
        asked = self._asked
        if asked is None or asked.compaction is None:
            raise OnefoldError(f"session {self.session!r}: this call has not begun, or there is nothing to compact")
        return self._result(self._journal.compaction(self.session, asked.compaction.id), asked)

    def hand_back(self) -> None:
        """Gives its own attempt back, if it has one, because its caller does not wait for it any more."""
        if self._own is not None:
            self._own.hand_back("its caller was interrupted")

    def _begin(self) -> RequestOutcome | CompactResult:
        self._may_ask()
        needless = self._needless()
        if needless is not None:
            return needless
        self._deadline = time.monotonic() + self._seconds
        return self._ask()

    def _may_ask(self) -> None:
        journal, session = self._journal, self.session
        if not self._policy.enabled:
            raise CompactionDisabled(
                f"session {session!r}: compaction is switched off by this program's policy (enabled=False)"
            )
        self._by_agent, runs = journal.backend.read(partial(_agent_of, session))
        if self._by_agent and not runs:
            raise CompactionDisabled(
                f"session {session!r} is compacted by its agent; ask the agent, or call "
                "set_compaction_owner('onefold') first"
            )

    def _needless(self) -> CompactResult | None:
        """Looks before it asks: where there is nothing to compact, nothing is written. What somebody else asked for
        already, or has done, is joined all the same."""
        if self._by_agent:
            return None
        seen = self._journal.backend.read(partial(preview_material, self.session, self._base))
        return None if seen is None or (why := self._nothing_to_do(seen)) is None else _skipped(why, self._base)

    def _nothing_to_do(self, seen: MaterialPreview) -> str | None:
        planned = seen.plan(self._policy)
        if isinstance(planned, NoCut):
            return planned.reason
        made_of = inputs_digest(self._summarizer, planned, self._instructions, self._policy)
        return None if made_of is None else rejected_before(self._journal, self.session, self._base, made_of)

    def _ask(self) -> RequestOutcome:
        return self._journal.request(
            self.session,
            trigger=self._trigger,
            base=self._base,
            instructions=self._instructions,
            attempts=self._policy.attempts,
            actor=self._agent,
        )

    def _result(self, current: Compaction, asked: RequestOutcome) -> CompactResult:
        own, head = self._own, self._journal.state(self.session).head
        return CompactResult(
            id=current.id,
            state=current.state,
            changed=head != self._base,
            joined=asked.outcome == "joined",
            applied=own is not None and current.state == "committed" and current.fence == own.claim.fence,
            cause=current.cause if current.state != "committed" else None,
            segment=head,
        )


def compact(call: CompactionJob, journal: Journal) -> CompactResult:
    """Goes through a call, waiting between its steps, and says how it ended."""
    while isinstance(answer := call.step(), WaitFor):
        try:
            answer.wait(journal.backend)
        except BaseException:
            call.hand_back()
            raise
    return answer


def _skipped(why: str, head: int) -> CompactResult:
    return CompactResult(None, "skipped", changed=False, joined=False, applied=False, cause=why, segment=head)


def _already(asked: RequestOutcome, base: int) -> CompactResult:
    done = asked.compaction
    return CompactResult(
        id=done.id if done else None,
        state=done.state if done else "held back" if asked.outcome == "held back" else "restored",
        changed=asked.head != base,
        joined=asked.outcome == "moved on",
        applied=False,
        cause=asked.cause,
        segment=asked.head,
    )


def _when(held: ClaimDenied, journal: Journal, deadline: float) -> float:
    """When a claim that was rejected is worth another try, on the clock that waits are measured with."""
    if held.until is None:
        return deadline
    return time.monotonic() + patience(held, journal.backend.read(lambda tx: tx.now))


def _agent_of(session: str, tx: Transaction) -> tuple[bool, bool]:
    """Whether a session's agent compacts it, and whether that agent runs."""
    state = get_session(tx, session)
    may_compact(tx, state)
    by_agent = segment(tx, session, state.head).keeper != "onefold"
    return by_agent, by_agent and has_agent(tx, state)
