"""How a compaction is done: ask, claim, summarise, check, commit; or wait for whoever does it.

All ways to compact end in `compact`. It returns what happened and raises only for misuse; failure means no change.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import socket
import threading
import time
import weakref
from functools import partial

from onefold.compaction.plan import NoCut, Plan
from onefold.compaction.policy import Policy
from onefold.compaction.proposal import Brief, propose
from onefold.compaction.summarizers import Summarizer, always_says_the_same
from onefold.compaction.work import Outlook, gather, look_ahead
from onefold.errors import CommitRefused, CompactionDisabled, OnefoldError, StoreError, SummarizerFailed
from onefold.ids import random_id
from onefold.journal import view
from onefold.journal.contract import Journal, segment
from onefold.journal.history import has_agent
from onefold.journal.leases import patience
from onefold.journal.reading import Pause
from onefold.journal.refusals import may_compact
from onefold.journal.seam import Transaction
from onefold.journal.view import known
from onefold.messages import digest
from onefold.model import FULL, MANUAL, Claim, Compaction, CompactResult, Draft, Held, HolderId, Requested, Spent

log = logging.getLogger("onefold.compaction")
leases = logging.getLogger("onefold.leases")

_PAUSE = 0.001
_LOOK = 1.0
_GLANCE = 0.25  # an attempt may end without a word in the store: it is looked at that often

_nonce = random_id()


def _fresh_nonce() -> None:
    global _nonce  # noqa: PLW0603  one per process, and a forked child is another process
    _nonce = random_id()


os.register_at_fork(after_in_child=_fresh_nonce)


def whoami(agent: str | None = None) -> HolderId:
    """This process and thread, as a holder is named."""
    return HolderId(socket.gethostname(), os.getpid(), threading.current_thread().name, agent, _nonce)


class Attempt:
    """One claim being worked on, in a thread of its own, with its lease renewed until it is over."""

    def __init__(
        self, journal: Journal, claim: Claim, summarizer: Summarizer, policy: Policy, follow_up: Draft | None = None,
        *, trigger: str = MANUAL,
    ) -> None:  # fmt: skip
        self.claim = claim
        self._trigger = trigger
        self._journal = journal
        self._summarizer = summarizer
        self._policy = policy
        self._follow_up = follow_up
        self._over = threading.Event()
        self._unwanted = False
        self._asked = False
        """Whether the summarizer was asked: from then on, it may cost something."""
        self._ending = threading.Lock()  # an attempt is committed or handed back, and not one after the other
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name=f"onefold-compact-{claim.compaction[:8]}", daemon=True
        )

    def start(self) -> None:
        _started.add(self)
        self._thread.start()
        threading.Thread(target=self._renew, name=f"{self._thread.name}-lease", daemon=True).start()

    def over(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits for its end; False if that did not come in time."""
        return self._over.wait(seconds)

    def hand_back(self, why: str) -> None:
        """Gives the claim back at once, for the next one to take; whatever the summarizer still makes is dropped."""
        with self._ending:
            if self._over.is_set():
                return
            self._over.set()
        try:
            self._journal.hand_back(self.claim, why, asked=self._asked)
        except OnefoldError as error:
            log.warning("session %r: the compaction could not be handed back: %s", self.claim.session, error)

    def _stopped(self) -> bool:
        return self._over.is_set() or self._unwanted

    def _renew(self) -> None:
        """Says that this attempt lives, and looks whether anybody still wants it."""
        now = time.monotonic()
        ends, due = now + self.claim.life, now + self._policy.renew
        while now < ends and not self._over.wait(min(_LOOK, max(0.0, due - now))):
            now = time.monotonic()
            try:
                current = self._journal.compaction(self.claim.session, self.claim.compaction)
                self._unwanted = not current.open or current.fence != self.claim.fence
                if now >= due:
                    due = now + self._policy.renew
                    self._journal.renew(self.claim)
            except Exception as error:
                due = now + self._policy.renew
                if self._over.is_set():
                    return
                leases.warning("session %r: the lease could not be renewed: %s", self.claim.session, error)

    def _work(self) -> None:
        try:
            self._summarise_and_commit()
        except CommitRefused as refused:
            log.info("%s", refused)
        except SummarizerFailed as failed:
            wait = None if failed.final else self._policy.retry_after(self.claim.attempt, failed.retry_after)
            self._fail(str(failed), wait, spent=failed.spent)
        except BaseException as error:  # a cancelled coroutine or an exit ends the attempt as well
            self._fail(f"{type(error).__name__}: {error}", self._policy.retry_after(self.claim.attempt))
        finally:
            self._over.set()

    def _summarise_and_commit(self) -> None:
        claim, policy = self.claim, self._policy
        work = gather(self._journal, claim, lambda: self._over.wait(_PAUSE))
        planned = work.plan(policy)
        if isinstance(planned, NoCut):
            self._skip(planned.reason)
            return
        current = self._journal.compaction(claim.session, claim.compaction)
        made_of = _made_of(self._summarizer, planned, current.instructions, policy)
        if made_of is not None and (before := _refused_before(self._journal, claim.session, claim.base, made_of)):
            self._skip(before)
            return
        brief = Brief(
            claim.session, current.instructions, claim.attempt,
            refused=current.cause if claim.attempt > 1 else None,  # what was handed back was not refused
            stuck=not FULL.isdisjoint((self._trigger, current.trigger)), stopped=self._stopped,
            pause=lambda: self._over.wait(_PAUSE),
        )  # fmt: skip
        window = self._journal.state(claim.session).window or policy.of().window
        self._asked = True
        proposed = propose(work, planned, self._summarizer, policy, brief, window=window)
        made, wrong = proposed.made, proposed.wrong
        if wrong is not None:
            again = policy.retry_after(claim.attempt) if made_of is None else None
            self._fail(wrong.words, again, refusal=wrong.name, spent=made.spent, made_of=made_of)
            return
        with self._ending:
            if not self._over.is_set():
                self._journal.commit(
                    claim, made, planned.cut, kept=planned.kept, quotes=proposed.quotes, follow_up=self._follow_up
                )

    def _skip(self, why: str) -> None:
        log.info("session %r: compaction %s is not needed: %s", self.claim.session, self.claim.compaction, why)
        try:
            self._journal.skip(self.claim, why)
        except OnefoldError as error:
            log.warning("session %r: that could not be recorded: %s", self.claim.session, error)

    def _fail(
        self, cause: str, retry_after: float | None, *, refusal: str | None = None, spent: Spent | None = None,
        made_of: str | None = None,
    ) -> None:  # fmt: skip
        if self._over.is_set():
            return
        cause = cause.encode("utf-8", "replace").decode()  # a log cannot take the half characters an error may quote
        log.warning("session %r: compaction %s failed: %s", self.claim.session, self.claim.compaction, cause)
        try:
            self._journal.fail(
                self.claim, cause, retry_after, refusal=refusal, spent=spent or Spent(), asked=self._asked,
                input=made_of,
            )  # fmt: skip
        except OnefoldError as error:
            log.warning("session %r: that could not be recorded: %s", self.claim.session, error)


class Runner:
    """The attempts that one open store has under way."""

    def __init__(self) -> None:
        self._attempts: weakref.WeakSet[Attempt] = weakref.WeakSet()
        self._pid = os.getpid()
        self.ended: str | None = None
        """Why no attempt is begun any more."""

    def start(self, attempt: Attempt) -> Attempt:
        if self._pid != os.getpid():
            self._attempts, self._pid = weakref.WeakSet(), os.getpid()  # a forked child has none of its parent's
        self._attempts.add(attempt)
        if self.ended is not None:
            attempt.hand_back(self.ended)
        else:
            attempt.start()
        return attempt

    def finish(self, seconds: float) -> bool:
        """Waits until what is under way now has ended; False if that did not come in time."""
        ends = time.monotonic() + seconds
        attempts = list(self._attempts) if self._pid == os.getpid() else []
        ended = [attempt.wait(max(0.0, ends - time.monotonic())) for attempt in attempts]
        return all(ended)

    def hand_back(self, why: str) -> None:
        """For good: whoever waits in this process must not take it again before the store is closed."""
        self.ended = why
        if self._pid == os.getpid():
            for attempt in list(self._attempts):
                attempt.hand_back(why)


_started: weakref.WeakSet[Attempt] = weakref.WeakSet()


@atexit.register
def _hand_back_at_exit() -> None:
    """A program that ends without closing its store leaves nobody waiting for a lease."""
    for attempt in list(_started):
        if attempt.claim.pid == os.getpid():
            attempt.hand_back("its process ended")


class Call:
    """One call of `compact`, step by step: for a caller that blocks while it waits, and for one that does not.

    It sees to it that segment `base` is compacted once, by this caller or another.
    """

    def __init__(
        self,
        journal: Journal,
        session: str,
        summarizer: Summarizer,
        policy: Policy,
        runner: Runner,
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
        self._asked: Requested | None = None
        self._own: Attempt | None = None
        self._by_agent = False
        """The session's agent compacts it: it is asked by whoever runs it, and this caller only waits."""

    def step(self) -> CompactResult | Pause:
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
                    who = whoami(self._agent)
                    got = journal.claim(session, who, lease=policy.lease, life=policy.life, compaction=id)
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
            return Pause(version, until)

    def _nobody_runs_it(self, asked: Requested) -> CompactionDisabled:
        if asked.outcome == "opened" and asked.compaction is not None:
            self._journal.cancel(self.session, asked.compaction.id, actor=self._agent)
        return CompactionDisabled(
            f"session {self.session!r} is compacted by its agent, which did not take the request; look whether "
            "`onefold run` still runs it, or call keep('onefold') first"
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

    def _begin(self) -> Requested | CompactResult:
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
                f"session {session!r} is compacted by its agent; ask the agent, or call keep('onefold') first"
            )

    def _needless(self) -> CompactResult | None:
        """Looks before it asks: where there is nothing to compact, nothing is written. What somebody else asked for
        already, or has done, is joined all the same."""
        if self._by_agent:
            return None
        seen = self._journal.backend.read(partial(look_ahead, self.session, self._base))
        return None if seen is None or (why := self._nothing_to_do(seen)) is None else _skipped(why, self._base)

    def _nothing_to_do(self, seen: Outlook) -> str | None:
        planned = seen.plan(self._policy)
        if isinstance(planned, NoCut):
            return planned.reason
        made_of = _made_of(self._summarizer, planned, self._instructions, self._policy)
        return None if made_of is None else _refused_before(self._journal, self.session, self._base, made_of)

    def _ask(self) -> Requested:
        return self._journal.request(
            self.session,
            trigger=self._trigger,
            base=self._base,
            instructions=self._instructions,
            attempts=self._policy.attempts,
            actor=self._agent,
        )

    def _result(self, current: Compaction, asked: Requested) -> CompactResult:
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


def compact(call: Call, journal: Journal) -> CompactResult:
    """Goes through a call, waiting between its steps, and says how it ended."""
    while isinstance(answer := call.step(), Pause):
        try:
            answer.wait(journal.backend)
        except BaseException:
            call.hand_back()
            raise
    return answer


def _skipped(why: str, head: int) -> CompactResult:
    return CompactResult(None, "skipped", changed=False, joined=False, applied=False, cause=why, segment=head)


def _made_of(summarizer: Summarizer, planned: Plan, instructions: str | None, policy: Policy) -> str | None:
    """What a summary of this segment would be made of, where the same gives the same; None where it may not."""
    if not always_says_the_same(summarizer):
        return None
    asked_for = [policy.summary_tokens, policy.quote_tokens, policy.shrink, instructions]
    return digest("", getattr(summarizer, "__qualname__", ""), None, [*asked_for, planned.cut, *planned.kept])


def _refused_before(journal: Journal, session: str, base: int, made_of: str) -> str | None:
    """Why the same summary was refused already, if it was: a mask since then changes nothing of what it is made of."""

    def look(tx: Transaction) -> tuple[int, list[Compaction]]:
        stands = view.origin(tx, session, segment(tx, session, base))
        return stands.number, tx.compactions(session, open_only=False)

    since, tried = journal.backend.read(look)
    causes = [c.cause for c in tried if since <= c.base <= base and c.input == made_of]
    return f"the same summary of the same messages was refused already: {causes[-1]}" if causes else None


def _already(asked: Requested, base: int) -> CompactResult:
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


def _when(held: Held, journal: Journal, deadline: float) -> float:
    """When a claim that was refused is worth another try, on the clock that waits are measured with."""
    if held.until is None:
        return deadline
    return time.monotonic() + patience(held, journal.backend.read(lambda tx: tx.now))


def _agent_of(session: str, tx: Transaction) -> tuple[bool, bool]:
    """Whether a session's agent compacts it, and whether that agent runs."""
    state = known(tx, session)
    may_compact(tx, state)
    by_agent = segment(tx, session, state.head).keeper != "onefold"
    return by_agent, by_agent and has_agent(tx, state)
