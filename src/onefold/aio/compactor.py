"""The compactor for an agent with an event loop: the same rules, and compactions that are awaited."""

from __future__ import annotations

from functools import partial

from onefold import compactor as sync
from onefold.aio.session import Session
from onefold.aio.store import Store
from onefold.aio.threads import documented, in_thread
from onefold.compaction.context import Context
from onefold.compaction.counting import Counter
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.summarizers import Summarizer
from onefold.compactor import Ask, Rules, T, advance
from onefold.errors import OnefoldError
from onefold.journal.adoption import Origin
from onefold.model import CompactResult, SessionState


@documented(sync.Compactor)
class Compactor:
    """Keeps an agent's contexts within what its model takes. One for all sessions and tasks of a process."""

    def __init__(
        self,
        store: Store,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
        *,
        count: Counter | str | None = None,
    ) -> None:
        self._store = store
        self._summarizer = summarizer
        self._rules = sync.Compactor(store._store, summarizer, policy, count=count)
        self.policy = self._rules.policy

    async def before_turn(
        self, session: Session, *, model: str | None = None, usage: int | None = None, context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:  # fmt: skip
        return await self._run(self._rules._before_turn(session._session, model, usage, context, origin=origin))

    async def mid_turn(
        self, session: Session, *, model: str | None = None, usage: int | None = None, context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:  # fmt: skip
        return await self._run(self._rules._mid_turn(session._session, model, usage, context, origin=origin))

    async def after_overflow(
        self,
        session: Session,
        error: BaseException | None = None,
        *,
        model: str | None = None,
        context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:
        return await self._run(self._rules._after_overflow(session._session, error, model, context, origin=origin))

    async def by_hand(self, session: Session, instructions: str | None = None) -> CompactResult:
        return await self._run(self._rules._by_hand(session._session, instructions))

    async def mask(self, session: Session, *, model: str | None = None, full: bool = False) -> bool:
        return await in_thread(partial(self._rules.mask, session._session, model=model, full=full))

    async def upkeep(
        self, idle: float = 300.0, *, model: str | None = None, most: int = 4, wait: bool | float = False
    ) -> dict[str, CompactResult]:
        return await self._run(self._rules._upkeep(idle, model, most, wait))

    async def finish(self, wait: bool | float = True) -> bool:
        return await in_thread(partial(self._rules.finish, wait))

    async def limits_of(self, state: SessionState, model: str | None = None) -> Limits | None:
        return await in_thread(partial(self._rules.limits_of, state, model))

    async def wanted(self, idle: float, model: str | None = None) -> list[SessionState]:
        return await in_thread(partial(self._rules.wanted, idle, model))

    async def from_outside(
        self, session: Session, *, trigger: str = "outside", instructions: str | None = None
    ) -> CompactResult:
        return await self._run(self._rules._from_outside(session._session, trigger, instructions))

    async def _run(self, rules: Rules[T]) -> T:
        """Runs the rules in threads, up to each compaction they want, which is awaited here."""
        told: CompactResult | OnefoldError | None = None
        while isinstance(answer := await in_thread(partial(advance, rules, told)), Ask):
            session = Session(answer.session, self._store._bell, self._store._summaries)
            try:
                told = await session.compact(
                    self._summarizer,
                    trigger=answer.trigger,
                    instructions=answer.instructions,
                    wait=answer.wait,
                    base=answer.base,
                    policy=self.policy,
                )
            except OnefoldError as error:
                told = error
        return answer.answer
