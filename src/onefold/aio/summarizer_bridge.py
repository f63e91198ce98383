"""Runs sync and async summarizers alike, for an attempt that works in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable

from anyio import CancelScope, Event, from_thread

from onefold.aio.threads import Loop, Stopped
from onefold.compaction.summarizer import Made, Summarizer, SummaryInput, always_says_the_same


class LoopSummarizer:
    """Calls a summarizer, and has what it gives awaited in the loop where this was made, so that clients which are
    bound to that loop work. It may go on after its caller has left (`wait=False`): it belongs to the attempt."""

    def __init__(self, summarizer: Summarizer) -> None:
        self._summarizer = summarizer
        self.deterministic = always_says_the_same(summarizer)
        self.__qualname__ = getattr(summarizer, "__qualname__", "")
        self._loop = Loop()
        self._stopped = False
        self._scope: CancelScope | None = None
        self._ended = Event()

    def __call__(self, material: SummaryInput) -> Made:
        made = self._summarizer(material)
        if not isinstance(made, Awaitable):
            return made
        try:
            return from_thread.run(self._await, made, token=self._loop.token)
        finally:
            if inspect.iscoroutine(made):
                made.close()  # it never began, if the loop has ended or this was stopped

    async def _await(self, made: Awaitable[Made]) -> Made:
        self._ended = Event()
        try:
            with CancelScope() as self._scope:
                if not self._stopped:
                    return await made
            raise Stopped("nobody waits for this summary any more")
        finally:
            self._scope = None
            self._ended.set()

    def stop(self) -> None:
        """Cancels what is awaited, from any thread. Hand the attempt back first: then this is not a failure of it."""
        self._loop.soon(self._cancel)

    async def end(self) -> None:
        """Cancels what is awaited, and waits until it has ended. In its own loop only."""
        self._cancel()
        if self._scope is not None:
            with CancelScope(shield=True):
                await self._ended.wait()

    def _cancel(self) -> None:
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()
