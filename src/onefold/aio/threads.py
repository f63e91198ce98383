"""Calling the sync library from an event loop, so that a cancelled await leaves nothing that happens later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, cast

from anyio import CancelScope, CapacityLimiter, Event, from_thread, get_cancelled_exc_class, to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled, current_token

MOST = 32
"""Worker threads of one event loop at once. Those that write at once share a commit; the rest waits in line."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_limit: RunVar[CapacityLimiter] = RunVar("onefold")


class Loop:
    """The event loop that is running here, as other threads reach it."""

    def __init__(self) -> None:
        self.token = current_token()
        native = cast(Any, self.token.native_token)
        self._soon: Callable[[Callable[[], object]], object] = (
            native.run_sync_soon if hasattr(native, "run_sync_soon") else native.call_soon_threadsafe
        )

    def soon(self, work: Callable[[], object]) -> bool:
        """Has the loop call this, without waiting for it. False if the loop has ended."""
        try:
            self._soon(work)
        except RuntimeError:
            return False
        return True


class ThreadJob(Generic[T]):
    """One call in a worker thread: not begun, begun, or done."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._begun = self._withdrawn = self._done = False
        self._tell: Callable[[], object] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        with self._lock:
            if self._withdrawn:
                return
            self._begun = True
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done = True
            tell = self._tell
        if tell is not None:
            tell()

    def withdraw(self) -> bool:
        """Sees to it that it never begins. False if it has."""
        with self._lock:
            self._withdrawn = not self._begun
            return self._withdrawn

    async def over(self) -> None:
        """Waits until it is done, however often the one who waits is cancelled meanwhile."""
        loop, done = Loop(), Event()
        with self._lock:
            if self._done:
                return
            self._tell = lambda: loop.soon(done.set)
        with CancelScope(shield=True):
            while not done.is_set():
                try:
                    await done.wait()
                except get_cancelled_exc_class():
                    continue  # `in_thread` has one to pass on already

    def answer(self) -> T:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the error and this job would keep each other alive
        return self._results[0]


async def in_thread(work: Callable[[], T], *, always: bool = False, interrupt: Callable[[], object] | None = None) -> T:
    """Calls `work` in a worker thread.

    Cancelled before it has begun, it never begins, unless it is to be done `always`. Cancelled later, it is waited
    for, and then the cancellation goes on; `interrupt` can tell it to be quick. A shield of anyio alone would not do:
    it does not hold against `Task.cancel()` of asyncio.
    """
    cancelled: BaseException | None = None
    with CancelScope(shield=always):
        while True:
            job = ThreadJob(work)
            try:
                await to_thread.run_sync(job.run, limiter=_limiter())
                break
            except get_cancelled_exc_class() as error:
                cancelled = error
                if job.withdraw():
                    if always:
                        continue
                    raise
                if interrupt is not None:
                    interrupt()
                await job.over()
                break
    if cancelled is not None:
        raise cancelled
    return job.answer()


def _limiter() -> CapacityLimiter:
    limiter = _limit.get(None)
    if limiter is None:
        limiter = CapacityLimiter(MOST)
        _limit.set(limiter)
    return limiter


class Stopped(Exception):
    """Long work was cut short, because nobody waits for it any more."""


class StepProgress:
    """Reports of long work, made in its thread and heard in the event loop. Through them a cancelled caller ends it."""

    def __init__(self, hear: Callable[..., object] | None) -> None:
        self._hear = hear
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def __call__(self, *news: object) -> None:
        try:
            from_thread.check_cancelled()
        except BaseException:
            self.stop()
        if self._stopped.is_set():
            raise Stopped
        if self._hear is not None:
            from_thread.run_sync(self._hear, *news)


async def reporting(work: Callable[[StepProgress], T], hear: Callable[..., object] | None) -> T:
    """Calls long `work` in a worker thread, with something to report to."""
    progress = StepProgress(hear)
    try:
        return await in_thread(partial(work, progress), interrupt=progress.stop)
    except Stopped:
        await checkpoint_if_cancelled()
        raise


class AwaitableValue(Generic[T_co]):
    """A value that takes time: await it."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T_co]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._make().__await__()


class AsyncBlock(Protocol):
    """What can be used in an `async with` block."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


E = TypeVar("E", bound=AsyncBlock)


class AsyncOpen(AwaitableValue[E]):
    """The same for what is used in a block: `async with it as made`, or `made = await it`."""

    async def __aenter__(self) -> E:
        self._made = await self
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._made.__aexit__(kind, error, trace)


def documented(source: type) -> Callable[[type[T]], type[T]]:
    """Takes over what the sync class says of each of its members, so that it is said once."""

    def decorate(made: type[T]) -> type[T]:
        for name, member in vars(made).items():
            said = getattr(vars(source).get(name), "__doc__", None)
            if said and not name.startswith("_") and not member.__doc__:
                member.__doc__ = said
        return made

    return decorate
