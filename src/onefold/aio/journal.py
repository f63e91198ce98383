"""The journal contract, awaited: for programs that claim and commit by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from anyio.lowlevel import checkpoint_if_cancelled

from onefold.aio.iterators import AsyncFollow, AsyncPages
from onefold.aio.notifier import ChangeNotifier
from onefold.aio.threads import documented, in_thread
from onefold.journal import journal as sync
from onefold.model import (
    MANUAL,
    AppendResult,
    Claim,
    ClaimDenied,
    Compaction,
    Draft,
    Holder,
    HolderId,
    Keeper,
    Quotes,
    Record,
    RequestOutcome,
    Segment,
    SessionState,
    Summary,
    TurnClaim,
    Usage,
)

T = TypeVar("T")
_NOTHING = Usage()


@documented(sync.Journal)
class Journal:
    """The operations of the contract, on any backend."""

    def __init__(self, journal: sync.Journal, notifier: ChangeNotifier) -> None:
        self._journal = journal
        self._notifier = notifier

    async def create(self, session: str, *, keeper: Keeper = "onefold") -> SessionState:
        return await in_thread(partial(self._journal.create, session, keeper=keeper))

    async def state(self, session: str) -> SessionState:
        return await in_thread(partial(self._journal.state, session))

    async def append(
        self, session: str, drafts: Sequence[Draft], *, key: str | None = None, turn: TurnClaim | None = None
    ) -> AppendResult:
        return await in_thread(partial(self._journal.append, session, drafts, key=key, turn=turn))

    def read(self, session: str, start: int = 1, stop: int | None = None) -> AsyncIterator[Record]:
        return AsyncPages(partial(self._journal.read, session, start, stop))

    def follow(
        self, session: str, after: int = 0, *, generation: str | None = None, idle: float | None = None
    ) -> AsyncIterator[Record]:
        return AsyncFollow(self._notifier, self._journal.backend, session, after, generation=generation, idle=idle)

    async def wait(self, session: str, after: int, timeout: float) -> bool:  # noqa: ASYNC109  as in the sync one
        return await self._notifier.beyond(session, after, lambda: self._journal.state(session).last, timeout)

    async def request(
        self,
        session: str,
        *,
        trigger: str = MANUAL,
        base: int | None = None,
        instructions: str | None = None,
        attempts: int = 3,
        actor: str | None = None,
        key: str | None = None,
    ) -> RequestOutcome:
        return await in_thread(
            partial(
                self._journal.request,
                session,
                trigger=trigger,
                base=base,
                instructions=instructions,
                attempts=attempts,
                actor=actor,
                key=key,
            )
        )

    async def claim(
        self,
        session: str,
        who: HolderId,
        *,
        lease: float = 60.0,
        life: float = 600.0,
        compaction: str | None = None,
    ) -> Claim | ClaimDenied:
        return await self._claim(
            partial(self._journal.claim, session, who, lease=lease, life=life, compaction=compaction)
        )

    async def claim_next(self, who: HolderId, *, lease: float = 60.0, life: float = 600.0) -> Claim | None:
        return await self._claim(partial(self._journal.claim_next, who, lease=lease, life=life))

    async def claimable(self, session: str, compaction: str) -> ClaimDenied | None:
        return await in_thread(partial(self._journal.claimable, session, compaction))

    async def renew(self, claim: Claim) -> float | None:
        return await in_thread(partial(self._journal.renew, claim))

    async def commit(
        self,
        claim: Claim,
        summary: Summary | str,
        cut: int | None = None,
        *,
        kept: Sequence[int] = (),
        quotes: Quotes | None = None,
        follow_up: Draft | None = None,
        alias: str | None = None,
    ) -> Segment:
        return await in_thread(
            partial(
                self._journal.commit, claim, summary, cut, kept=kept, quotes=quotes, follow_up=follow_up, alias=alias
            )
        )

    async def fail(
        self,
        claim: Claim,
        error: str,
        retry_after: float | None,
        *,
        refusal: str | None = None,
        spent: Usage = _NOTHING,
        asked: bool = True,
        input: str | None = None,
    ) -> Compaction:
        failed = partial(self._journal.fail, claim, error, retry_after, refusal=refusal, spent=spent)
        return await in_thread(partial(failed, asked=asked, input=input))

    async def hand_back(self, claim: Claim, why: str, *, asked: bool) -> Compaction:
        return await in_thread(partial(self._journal.hand_back, claim, why, asked=asked))

    async def skip(self, claim: Claim, why: str) -> Compaction:
        return await in_thread(partial(self._journal.skip, claim, why))

    async def cancel(
        self, session: str, compaction: str | None = None, *, actor: str | None = None
    ) -> Compaction | None:
        return await in_thread(partial(self._journal.cancel, session, compaction, actor=actor))

    async def holder(self, session: str) -> Holder | None:
        return await in_thread(partial(self._journal.holder, session))

    async def compaction(self, session: str, id: str) -> Compaction:
        return await in_thread(partial(self._journal.compaction, session, id))

    async def _claim(self, claim: Callable[[], T]) -> T:
        """A claim whose caller is cancelled as it is granted is handed back: nobody would work on it."""
        granted: list[T] = []
        try:
            await in_thread(lambda: granted.append(claim()))
            await checkpoint_if_cancelled()
        except BaseException:
            for got in granted:
                if isinstance(got, Claim):
                    await in_thread(
                        partial(self._journal.fail, got, "its caller was cancelled as it was granted", 0.0), always=True
                    )
            raise
        return granted[0]
