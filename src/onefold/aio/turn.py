"""A turn in the hands of an async writer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType

from onefold import turn as sync
from onefold.aio.threads import documented, in_thread
from onefold.model import AppendResult, Json, Outcome, Record, Slot, TurnClaim


@documented(sync.Turn)
class Turn:
    """The right to write, renewed in the background until it ends. Use it in an `async with` block, or await `end`.

    Leaving the block settles the turn; an exception makes it failed, a cancelled task or scope cancelled. The calls it
    left open then get results that say so.
    """

    def __init__(self, turn: sync.Turn) -> None:
        self._turn = turn

    def __repr__(self) -> str:
        return repr(self._turn)

    @property
    def claim(self) -> TurnClaim:
        return self._turn.claim

    @property
    def id(self) -> str:
        return self._turn.id

    @property
    def number(self) -> int:
        return self._turn.number

    async def append(
        self,
        messages: Json | Sequence[Json],
        *,
        key: str | None = None,
        format: str | None = None,
        actor: str | None = None,
        slot: Slot | None = None,
        program: bool = False,
    ) -> AppendResult:
        return await in_thread(
            partial(self._turn.append, messages, key=key, format=format, actor=actor, slot=slot, program=program)
        )

    async def take_input(self, *, key: str | None = None) -> Record | None:
        return await in_thread(partial(self._turn.take_input, key=key))

    async def end(self, outcome: Outcome = "settled", cause: str | None = None) -> None:
        await in_thread(partial(self._turn.end, outcome, cause))

    async def __aenter__(self) -> Turn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self._turn.__exit__, kind, error, trace), always=True)

    async def abandon(self, why: str) -> None:
        await in_thread(partial(self._turn.abandon, why), always=True)
