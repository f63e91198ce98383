"""Group commit: of the threads that want to write at once, the first one commits for all that wait.

No thread of its own, so nothing to start, to stop, or to lose in a fork.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from onefold.journal.seam import Transaction

LARGE = 1 << 20
MOST = 128


class Ticket:
    """One operation that waits for its commit."""

    __slots__ = ("done", "error", "gone", "leads", "result", "size", "wake", "work")

    def __init__(self, work: Callable[[Transaction], Any], size: int) -> None:
        self.work = work
        self.size = size
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        self.gone = False  # its thread was interrupted and no longer waits
        self.wake = threading.Lock()
        self.wake.acquire()

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        self.result, self.error, self.done = result, error, True

    def answer(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class Line:
    """Those who wait, and the one who works for them."""

    def __init__(self, run: Callable[[list[Ticket]], None], after: Callable[[], None]) -> None:
        self._run = run
        self._after = after
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._led = False

    def submit(self, ticket: Ticket) -> Any:
        with self._lock:
            self._waiting.append(ticket)
            ticket.leads, self._led = not self._led, True
        if not ticket.leads:
            try:
                ticket.wake.acquire()
            except BaseException:
                self._leave(ticket)
                raise
        if not ticket.done:
            self._lead(ticket)
        return ticket.answer()

    def _lead(self, own: Ticket) -> None:
        """Runs one batch, the leader's own ticket first, then hands on."""
        batch: list[Ticket] = []
        try:
            with self._lock:
                batch = self._next_batch()
            self._run(batch)
        except BaseException:
            own.gone = True
            raise
        finally:
            # What the batch did not settle was not written: back in line with it, in its old order.
            with self._lock:
                self._waiting.extendleft(t for t in reversed(batch) if not (t.done or t.gone))
            for ticket in batch:
                if ticket.done:
                    ticket.wake.release()
            try:
                self._after()
            finally:
                self._hand_on()

    def _next_batch(self) -> list[Ticket]:
        """What goes into one commit: large work goes alone, so that it delays nobody else's answer."""
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < MOST and batch[0].size < LARGE and self._waiting[0].size < LARGE:
            batch.append(self._waiting.popleft())
        return batch

    def _hand_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].wake.release()
            else:
                self._led = False

    def _leave(self, ticket: Ticket) -> None:
        """A waiting thread was interrupted: its ticket leaves the line, unless somebody works on it already."""
        with self._lock:
            ticket.gone = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            leads = ticket.leads and not ticket.done
        if leads:
            self._hand_on()
