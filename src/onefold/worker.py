"""Compacts for all sessions of a store, whoever asked: any number of workers, on any number of machines.

A worker takes what waits longest. What fails waits for its next attempt while others are taken, and what hangs is given
up after its longest life, so one poisoned session holds nobody up for long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from onefold.compaction.attempt import Attempt
from onefold.compaction.holder import this_process
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer, extractive_summary
from onefold.compactor import Compactor
from onefold.errors import OnefoldError, StoreError, is_everybodys
from onefold.metrics import Counts, compactions, one
from onefold.model import Compaction
from onefold.store import Store

log = logging.getLogger("onefold")

LOOK = 0.5
"""Seconds after which a worker looks for work again, whatever it heard: another one's death writes nothing."""
BREATH = 0.02
"""Seconds between two looks at least when nothing is to do: every append of every session may wake a worker."""
LOOKING = 0.1
"""The share of its time that a worker spends with looking, at most, where thousands of compactions wait."""
UPKEEP_EVERY = 30.0
AGAIN = 2.0
"""Seconds until the store is asked again after it could not be used."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a worker is at."""

    active: int = 0
    committed: int = 0
    failed: int = 0
    """Attempts that came to nothing here; most are tried again."""
    skipped: int = 0
    """Compactions that were asked for, and had nothing to compact."""
    handed_back: int = 0
    trouble: str | None = None
    """Why the store cannot be used now."""


class Worker:
    """Begin with `run`, in a thread of its own if you like; it ends some time after `stop` is set."""

    def __init__(
        self,
        store: Store,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
        *,
        concurrency: int = 4,
        upkeep: float | None = 300.0,
        drain: float = 10.0,
        agent: str | None = "worker",
        heard: Callable[[WorkerStatus], None] | None = None,
    ) -> None:
        """`upkeep`: sessions over their soft limit that were quiet for so many seconds are compacted unasked; None for
        none. `drain`: seconds that summaries under way are given at the end, before they are handed back."""
        if concurrency < 1:
            raise OnefoldError(f"a worker does one compaction at a time at least, not {concurrency}")
        self.counts = Counts()
        self._store = store
        self._summarizer = summarizer or extractive_summary
        self._policy = policy or store.policy
        self._compactor = Compactor(store, self._summarizer, self._policy)
        self._concurrency = concurrency
        self._upkeep = upkeep
        self._drain = drain
        self._who = this_process(agent)
        self._heard = heard or (lambda standing: None)
        self._active: list[Attempt] = []
        self._standing = WorkerStatus()
        self._kept_up = float("-inf")

    @property
    def standing(self) -> WorkerStatus:
        return self._standing

    def metrics(self) -> str:
        """Numbers in Prometheus' text format: of this worker, and what stands in the store now."""
        lines = [
            *compactions(self.counts, self._store),
            *one("worker_active", "gauge", "Compactions that this worker is at.", self._standing.active),
        ]
        return "\n".join(lines) + "\n"

    def run(self, stop: threading.Event, *, once: bool = False) -> WorkerStatus:
        """Works until `stop` is set; with `once`, until nothing is left to do now."""
        try:
            while not stop.is_set():
                try:
                    if not self._step(stop, once):
                        break
                    self._say(trouble=None)
                except OnefoldError as error:  # of the store, or of one session: the others have no part in it
                    self._say(trouble=str(error))
                    log.warning("the worker waits %g s and goes on after this: %s", AGAIN, error)
                    stop.wait(AGAIN)
        finally:
            self._end()
        return self._standing

    def _step(self, stop: threading.Event, once: bool) -> bool:
        backend = self._store.journal.backend
        version = backend.version()
        self._reap()
        self._ask_for_upkeep()
        looking = self._take(stop)
        if once and not self._active and not self._waits():
            return False
        full = len(self._active) >= self._concurrency
        if full or once:
            self._wait_for_one(LOOK / 4)
        else:
            stop.wait(min(LOOK, max(BREATH, looking / LOOKING)))
            backend.wait(version, LOOK)
        return True

    def _take(self, stop: threading.Event) -> float:
        """Takes what waits, as much of it as there is room for. Gives how many seconds the last look took."""
        looking = 0.0
        while len(self._active) < self._concurrency and not stop.is_set():
            began = time.monotonic()
            claim = self._store.journal.claim_next(
                self._who, lease=self._policy.lease, life=self._policy.attempt_timeout
            )
            looking = time.monotonic() - began
            if claim is None:
                break
            attempt = Attempt(self._store.journal, claim, self._summarizer, self._policy)
            self._active.append(attempt)
            attempt.start()
            if claim.takes_over:
                self.counts.taken_over()
            self._say()
        return looking

    def _waits(self) -> bool:
        """Whether something is open that can be taken now or later, by this worker."""
        return any(c.state == "requested" for c in self._store.compactions())

    def _wait_for_one(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        for attempt in self._active:
            if attempt.wait(max(0.0, ends - time.monotonic())):
                return

    def _reap(self) -> None:
        for attempt in [a for a in self._active if a.over()]:
            self._active.remove(attempt)
            try:
                now = self._store.journal.compaction(attempt.claim.session, attempt.claim.compaction)
            except OnefoldError as error:
                if is_everybodys(error):
                    self._active.append(attempt)  # it is counted when the store answers again
                    raise
                # The session was deleted under it, or is damaged.
                log.info("session %r: what came of its compaction is gone: %s", attempt.claim.session, error)
                self._say(failed=self._standing.failed + 1)
                continue
            self._count(now, attempt)

    def _count(self, now: Compaction, attempt: Attempt) -> None:
        s = self._standing
        if now.state == "committed" and now.fence == attempt.claim.fence:
            self.counts.compacted("committed", now.trigger)
            if now.settled_at is not None and now.started_at is not None:
                self.counts.took(now.settled_at - now.started_at)
            self._say(committed=s.committed + 1)
            return
        if now.state == "skipped":
            self.counts.compacted("skipped", now.trigger)
            self._say(skipped=s.skipped + 1)
            return
        if now.state == "failed":
            self.counts.compacted("failed", now.trigger)
        self._say(failed=s.failed + 1)

    def _ask_for_upkeep(self) -> None:
        now = time.monotonic()
        if self._upkeep is None or now - self._kept_up < UPKEEP_EVERY:
            return
        self._kept_up = now
        for state in self._compactor.due_sessions(self._upkeep):
            try:
                if self._compactor.mask(self._store.session(state.id, create=False)):
                    continue
                self._store.journal.request(
                    state.id, trigger="upkeep", base=state.head, attempts=self._policy.attempts, actor=self._who.agent
                )
            except OnefoldError as error:
                if is_everybodys(error):
                    raise
                log.warning("session %r is passed over in the upkeep: %s", state.id, error)

    def _end(self) -> None:
        """What is under way may end in time; the rest is handed back, for the next one to take at once."""
        ends = time.monotonic() + self._drain
        for attempt in self._active:
            attempt.wait(max(0.0, ends - time.monotonic()))
        handed = 0
        for attempt in [a for a in self._active if not a.over()]:
            attempt.hand_back("the worker ended")
            self._active.remove(attempt)
            handed += 1
        self._say(handed_back=handed)
        try:
            self._reap()
        except StoreError as error:
            log.warning("what became of the last compactions is not known: %s", error)
        self._active.clear()
        self._say()

    def _say(self, **changed: object) -> None:
        self._standing = replace(self._standing, active=len(self._active), **changed)  # type: ignore[arg-type]
        self._heard(self._standing)
