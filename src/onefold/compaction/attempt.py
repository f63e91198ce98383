"""One attempt at a compaction: summarise, check, commit, in a thread of its own whose lease is renewed."""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import threading
import time
import weakref

from onefold.compaction.cut_planner import NoCut, Plan
from onefold.compaction.material import load_material
from onefold.compaction.policy import Policy
from onefold.compaction.proposal import Brief, propose
from onefold.compaction.summarizer import Summarizer, always_says_the_same
from onefold.compaction.throttle import Throttle
from onefold.errors import CommitRefused, OnefoldError, SummarizerFailed
from onefold.journal import lineage
from onefold.journal.journal import Journal, segment
from onefold.messages import digest
from onefold.model import FULL, MANUAL, Claim, Compaction, Draft, Usage
from onefold.storage.base import Transaction

log = logging.getLogger("onefold.compaction")
lease_log = logging.getLogger("onefold.leases")

_LOOK = 1.0


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
        ends, due = now + self.claim.life, now + self._policy.lease_renew_interval
        while now < ends and not self._over.wait(min(_LOOK, max(0.0, due - now))):
            now = time.monotonic()
            try:
                current = self._journal.compaction(self.claim.session, self.claim.compaction)
                self._unwanted = not current.open or current.fence != self.claim.fence
                if now >= due:
                    due = now + self._policy.lease_renew_interval
                    self._journal.renew(self.claim)
            except Exception as error:
                due = now + self._policy.lease_renew_interval
                if self._over.is_set():
                    return
                lease_log.warning("session %r: the lease could not be renewed: %s", self.claim.session, error)

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
        pause = Throttle(self._over.wait, lambda: self._journal.backend.writing)
        work = load_material(self._journal, claim, pause)
        planned = work.plan(policy)
        if isinstance(planned, NoCut):
            self._skip(planned.reason)
            return
        current = self._journal.compaction(claim.session, claim.compaction)
        made_of = inputs_digest(self._summarizer, planned, current.instructions, policy)
        if made_of is not None and (before := rejected_before(self._journal, claim.session, claim.base, made_of)):
            self._skip(before)
            return
        brief = Brief(
            claim.session, current.instructions, claim.attempt,
            refused=current.cause if claim.attempt > 1 else None,  # what was handed back was not rejected
            stuck=not FULL.isdisjoint((self._trigger, current.trigger)), stopped=self._stopped,
            pause=pause,
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
        self, cause: str, retry_after: float | None, *, refusal: str | None = None, spent: Usage | None = None,
        made_of: str | None = None,
    ) -> None:  # fmt: skip
        if self._over.is_set():
            return
        cause = cause.encode("utf-8", "replace").decode()  # a log cannot take the half characters an error may quote
        log.warning("session %r: compaction %s failed: %s", self.claim.session, self.claim.compaction, cause)
        try:
            self._journal.fail(
                self.claim, cause, retry_after, refusal=refusal, spent=spent or Usage(), asked=self._asked,
                input=made_of,
            )  # fmt: skip
        except OnefoldError as error:
            log.warning("session %r: that could not be recorded: %s", self.claim.session, error)


class AttemptRegistry:
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


def inputs_digest(summarizer: Summarizer, planned: Plan, instructions: str | None, policy: Policy) -> str | None:
    """What a summary of this segment would be made of, where the same gives the same; None where it may not."""
    if not always_says_the_same(summarizer):
        return None
    asked_for = [policy.summary_tokens, policy.quote_tokens, policy.min_shrink, instructions]
    return digest("", getattr(summarizer, "__qualname__", ""), None, [*asked_for, planned.cut, *planned.kept])


def rejected_before(journal: Journal, session: str, base: int, made_of: str) -> str | None:
    """Why the same summary was rejected already, if it was: a mask since then changes nothing of what it is made of."""

    def read_rejected_before(tx: Transaction) -> tuple[int, list[Compaction]]:
        stands = lineage.origin(tx, session, segment(tx, session, base))
        return stands.number, tx.compactions(session, open_only=False)

    since, tried = journal.backend.read(read_rejected_before)
    causes = [c.cause for c in tried if since <= c.base <= base and c.input == made_of]
    return f"the same summary of the same messages was refused already: {causes[-1]}" if causes else None
