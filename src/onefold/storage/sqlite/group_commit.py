"""Group commit: of the threads that want to write at once, the first one commits for all that wait.

No thread of its own, so nothing to start, to stop, or to lose in a fork.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from onefold.storage.base import Transaction

LARGE = 1 << 20
MOST = 128


class PendingWrite:
    """One operation that waits for its commit. Filled in by who makes it: that is a call less in every append."""

    work: Callable[[Transaction], Any]
    size = 0
    reading = False
    """Nobody asked to write: what is to be read is brought up to date first."""
    result: Any = None
    error: BaseException | None = None
    done = False
    leads = False
    gone = False
    """Its thread was interrupted and no longer waits."""
    wake: threading.Lock | None = None
    """Created locked, for callers that must wait; released to wake them."""

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        self.result, self.error, self.done = result, error, True


class CommitQueue:
    """Those who wait, and the one who works for them."""

    def __init__(self, run: Callable[[list[PendingWrite]], None]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._waiting: deque[PendingWrite] = deque()
        self._batch: list[PendingWrite] = []
        self._led = False

    @property
    def busy(self) -> bool:
        return self._led

    def submit(self, ticket: PendingWrite) -> Any:
        try:
            with self._lock:
                first = not self._led  # so nobody waits
                if first:
                    self._led = ticket.leads = True
                    self._batch.append(ticket)
                else:
                    self._waiting.append(ticket)
                    if ticket.wake is None:
                        ticket.wake = threading.Lock()
                        ticket.wake.acquire()
            if not first and ticket.wake is not None:
                ticket.wake.acquire()
            if first or not ticket.done:  # then this one works for all: its own ticket first, then those that wait
                if not self._batch:
                    with self._lock:
                        self._fill_batch()
                self._run(self._batch)
                with self._lock:
                    if not self._waiting and ticket.done and len(self._batch) == 1:  # as most are: there is nobody else
                        self._batch.clear()
                        self._led = ticket.leads = False
                if ticket.leads:
                    self._finish(ticket)
        except BaseException:
            try:
                self._leave(ticket)
            finally:
                if ticket.leads:  # it was interrupted once more, and whoever stands behind must not wait for ever
                    self._leave(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    # From here on each step can be repeated: whatever line an interrupt comes at, `_leave` goes through the rest again.

    def _finish(self, own: PendingWrite) -> None:
        with self._lock:
            self._answer_batch()
            self._hand_on(own)

    def _fill_batch(self) -> None:
        """What goes into one commit: large work goes alone, so that it delays nobody else's answer."""
        batch, waiting = self._batch, self._waiting
        while waiting and len(batch) < MOST and (not batch or (batch[0].size < LARGE and waiting[0].size < LARGE)):
            batch.append(waiting[0])
            waiting.popleft()

    def _answer_batch(self) -> None:
        """Wakes those that are done. What was not settled was not written: back in line with it, in its old order."""
        while self._batch:
            ticket = self._batch[-1]
            if ticket.done:
                if ticket.wake is not None:
                    _wake(ticket)
            elif not ticket.gone and ticket not in self._waiting:
                self._waiting.appendleft(ticket)
            self._batch.pop()

    def _hand_on(self, own: PendingWrite) -> None:
        if not own.leads or (self._waiting and self._waiting[0] is own):
            return  # the second: it was interrupted before its turn, and `_leave` comes next
        if self._waiting:
            self._waiting[0].leads = True
            _wake(self._waiting[0])
        else:
            self._led = False
        own.leads = False

    def _leave(self, ticket: PendingWrite) -> None:
        """A thread was interrupted: its ticket leaves the line, unless somebody else works on it already."""
        with self._lock:
            ticket.gone = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
        if ticket.leads:
            self._finish(ticket)


def _wake(ticket: PendingWrite) -> None:
    if ticket.wake is not None and ticket.wake.locked():
        ticket.wake.release()
