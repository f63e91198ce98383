"""What a provider was sent through one object, by numbers: that is what an item that it makes stands for.

A program may have several runs on one session at once. Each is a task of its own, and what was sent in one of them is
not what was sent in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from onefold.compaction.context import Context

_run: ContextVar[ref[asyncio.Task[Any]] | None] = ContextVar("onefold_run", default=None)
"""The task that was given a context last, also in tasks that it starts."""


@dataclass(frozen=True, slots=True)
class _InTask:
    numbers: frozenset[int]
    last: int
    """The newest record that was there when its context was made."""


class SentRecords:
    """Nothing is known at first: an item that comes then says nothing of what it covers."""

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], _InTask] = WeakKeyDictionary()
        self._first: frozenset[int] | None = None
        """What was given first, and all that was written here since. Whoever keeps a list of its own beside the session
        has that, and nothing that others wrote."""

    def given(self, context: Context) -> None:
        """This task was given a whole context."""
        numbers = frozenset((*context.numbers, *context.left_out))
        if (task := asyncio.current_task()) is not None:
            self._tasks[task] = _InTask(numbers, context.last)
            _run.set(ref(task))
        self._first = numbers if self._first is None else self._first

    def asked(self, context: Context) -> None:
        """In its run the model is sent this whole context now, by the run's own task or by one that it started."""
        run = _run.get()
        task = None if run is None else run()
        if task is not None and task in self._tasks:
            self._tasks[task] = _InTask(frozenset((*context.numbers, *context.left_out)), context.last)

    def unknown(self) -> None:
        """This task was given a part of a context."""
        if (task := asyncio.current_task()) is not None:
            self._tasks.pop(task, None)

    def wrote(self, numbers: Iterable[int]) -> None:
        """This task wrote messages."""
        new = frozenset(numbers)
        if (task := asyncio.current_task()) is not None and (found := self._tasks.get(task)) is not None:
            self._tasks[task] = replace(found, numbers=found.numbers | new)
        self._first = None if self._first is None else self._first | new

    def begin(self, numbers: Iterable[int] | None = None) -> None:
        """Everything starts again: with these messages, or with what is given next."""
        self._tasks.clear()
        self._first = None if numbers is None else frozenset(numbers)

    def in_task(self) -> frozenset[int] | None:
        """What the model was sent in this task."""
        found = self._found()
        return None if found is None else found.numbers

    def in_all(self) -> frozenset[int] | None:
        """What was sent for certain by whoever has what this object gave and wrote: in this task, or in any, but for
        what others wrote while this task was at work."""
        if self._first is None or (found := self._found()) is None:
            return self._first
        return frozenset(n for n in self._first if n <= found.last or n in found.numbers)

    def _found(self) -> _InTask | None:
        task = asyncio.current_task()
        return None if task is None else self._tasks.get(task)
