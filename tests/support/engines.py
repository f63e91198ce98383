"""Compactions with scripted summarizers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onefold import SummaryInput
from onefold.compaction.summarizer import Made
from tests.support.helpers import PATIENCE


class Counting:
    """A summarizer that counts its calls and keeps what it was given."""

    def __init__(self, answer: Callable[[SummaryInput], Made] = lambda m: f"summary for attempt {m.attempt}") -> None:
        self.given: list[SummaryInput] = []
        self._answer = answer

    def __call__(self, material: SummaryInput) -> Made:
        self.given.append(material)
        return self._answer(material)

    @property
    def calls(self) -> int:
        return len(self.given)


class Blocked(Counting):
    """A summarizer that has begun, and ends when it is told to."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.begun, self.go = threading.Event(), threading.Event()

    def _wait(self, material: SummaryInput) -> Made:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        return "a slow summary"


@contextmanager
def blocked() -> Iterator[Blocked]:
    slow = Blocked()
    try:
        yield slow
    finally:
        slow.go.set()
