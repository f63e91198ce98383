"""What integrations share: a store that is opened at first use, an append that is safe to repeat, a summarizer that
asks a framework's own model, and how a provider says that a context is too long."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from anyio import CancelScope, from_thread, to_thread

from onefold import aio
from onefold.aio.threads import Loop, in_thread
from onefold.compaction.policy import Policy
from onefold.compaction.prompt import Prompt
from onefold.compaction.summarizer import Summarizer, SummaryInput
from onefold.errors import OutcomeUnknown, StoreError, SummarizerFailed
from onefold.ids import random_id, system_clock
from onefold.messages import codec
from onefold.messages.tool_groups import group
from onefold.model import AppendResult, Ids, Json, SessionState, Summary
from onefold.store import Store, open
from onefold.summarizers.cancellable_call import CancellableCall
from onefold.summarizers.model_summarizer import Heard, ModelSummarizer, ReportedUsage, StopReason
from onefold.summarizers.provider_errors import classify

StoreOrAddress: TypeAlias = str | Path | Store | aio.Store


class LazyStore:
    """Where an integration keeps its sessions: a store that is open already and stays so, or an address, which is
    opened at first use, in a thread, and closed by `close`."""

    def __init__(self, store: StoreOrAddress, policy: Policy | None = None) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._closed = False
        self._address = store if isinstance(store, str | Path) else None
        self._own: Store | None = None
        self._store: aio.Store | None = None
        if isinstance(store, Store):
            self._store = aio.Store(store)
        elif isinstance(store, aio.Store):
            self._store = store

    async def store(self) -> aio.Store:
        return self._store if self._store is not None else await in_thread(self._open)

    def opened(self) -> Store:
        """The same, for a program without an event loop."""
        return (self._store or self._open())._store

    def close(self) -> None:
        """Closes what was opened here: hands back compactions under way, ends open turns."""
        with self._lock:
            self._closed = self._address is not None
            own, self._own = self._own, None
            if own is not None:
                self._store = None
        if own is not None:
            own.close()

    async def aclose(self) -> None:
        await in_thread(self.close, always=True)

    def _open(self) -> aio.Store:
        with self._lock:
            if self._closed or self._address is None:
                raise StoreError(f"the store {self._address} was closed here; make a new object to use it again")
            if self._store is None:
                self._own = open(self._address, policy=self._policy)
                self._store = aio.Store(self._own)
            return self._store


async def below(store: aio.Store, id: str) -> AsyncIterator[SessionState]:
    """The sessions whose ids go on with a slash after this one: each once, whatever is written meanwhile."""
    start = f"{id}/"
    async for state in store.walk(start):
        if not state.id.startswith(start):
            return
        yield state


class Writer(Protocol):
    """A session, or a turn of one."""

    async def append(self, messages: Json | Sequence[Json], *, key: str | None, format: str | None) -> AppendResult: ...


async def append(writer: Writer, messages: Sequence[Json], format: str, ids: Ids = random_id) -> AppendResult:
    """Appends all or none, once. If the store cannot tell whether they were written, the key of this append settles it:
    it is repeated, and `OutcomeUnknown` is raised only if that cannot tell either."""
    key = f"append-{ids()}"
    try:
        return await writer.append(list(messages), key=key, format=format)
    except OutcomeUnknown:
        return await writer.append(list(messages), key=key, format=format)


def latest(messages: Sequence[Json], most: int, format: str) -> list[Json]:
    """The latest so many of them, but for those that belong to a call or a thought before: no provider takes a part."""
    before = max(0, len(messages) - most)
    headers = [codec(format).header(message) for message in messages]
    torn = {n for g in group(enumerate(headers)).groups if g.first < before for n in g.members}
    return [message for n, message in enumerate(messages) if n >= before and n not in torn]


def overflowed(error: BaseException) -> bool:
    """Whether a provider rejected a context for its size, in whatever words."""
    if not isinstance(error, Exception):
        return False
    return classify(error, who="the model", variable=None, clock=system_clock).kind == "overflow"


# ---------------------------------------------------------------------- summaries by a framework's model


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a framework's model answered."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cut_off: bool = False


Ask: TypeAlias = Callable[[str, str, int], Awaitable[ModelReply]]
"""Asks a model: the system prompt, what the user says, and how many tokens the answer may have."""


def by_model(name: str, ask: Ask, *, window: int = 100_000) -> Summarizer:
    """A summarizer that asks a model through its framework, in the event loop where the framework's client lives.

    What is sent, split, repeated and counted is decided as for the summarizers of `onefold.summarizers`.
    """
    asking = _ByModel(name=name, ask=ask, window=window)

    async def summarize(material: SummaryInput) -> Summary:
        return await to_thread.run_sync(partial(asking, material))

    return summarize


@dataclass(frozen=True, kw_only=True)
class _ByModel(ModelSummarizer):
    package = "anyio"

    name: str
    ask: Ask = field(repr=False)

    @property
    def who(self) -> str:
        return self.name

    @property
    def by(self) -> str:
        return self.name

    def says(self, prompt: Prompt, limit: int, line: CancellableCall) -> Iterator[Heard]:
        told = from_thread.run(self._asked, prompt, limit, line)
        if told is not None:
            yield ReportedUsage(told.input_tokens, told.output_tokens)
            yield told.text
            yield StopReason("length" if told.cut_off else "done")

    def failure(self, error: Exception) -> SummarizerFailed:
        return classify(error, who=self.who, variable=None, clock=self.clock)

    async def _asked(self, prompt: Prompt, limit: int, line: CancellableCall) -> ModelReply | None:
        """The answer; None if nobody waits for it any more, or somebody has for too long."""
        loop = Loop()
        with CancelScope() as scope:
            line.ends_by(lambda: loop.soon(scope.cancel))
            return await self.ask(prompt.system, prompt.user, limit)
        return None
