"""The compactor for an agent with an event loop: the same rules, and compactions that are awaited."""

from __future__ import annotations

from functools import partial

from onefold import compactor as sync
from onefold.aio.session import Session
from onefold.aio.store import Store
from onefold.aio.threads import documented, in_thread
from onefold.compaction.context import Context
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer
from onefold.compaction.token_counter import Counter
from onefold.compactor import CompactionPlan, CompactionWanted, T, resume
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
        return await self._run(self._rules.plan_before_turn(session.blocking, model, usage, context, origin=origin))

    async def mid_turn(
        self, session: Session, *, model: str | None = None, usage: int | None = None, context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:  # fmt: skip
        return await self._run(self._rules.plan_mid_turn(session.blocking, model, usage, context, origin=origin))

    async def after_overflow(
        self,
        session: Session,
        error: BaseException | None = None,
        *,
        model: str | None = None,
        context: Context | None = None,
        origin: Origin | None = None,
    ) -> Context:
        return await self._run(self._rules.plan_after_overflow(session.blocking, error, model, context, origin=origin))

    async def compact_now(self, session: Session, instructions: str | None = None) -> CompactResult:
        return await self._run(self._rules.plan_compact_now(session.blocking, instructions))

    async def mask(self, session: Session, *, model: str | None = None, full: bool = False) -> bool:
        return await in_thread(partial(self._rules.mask, session.blocking, model=model, full=full))

    async def compact_idle(
        self, idle: float = 300.0, *, model: str | None = None, most: int = 4, wait: bool | float = False
    ) -> dict[str, CompactResult]:
        return await self._run(self._rules.plan_compact_idle(idle, model, most, wait))

    async def finish(self, wait: bool | float = True) -> bool:
        return await in_thread(partial(self._rules.finish, wait))

    async def limits_of(self, state: SessionState, model: str | None = None) -> Limits | None:
        return await in_thread(partial(self._rules.limits_of, state, model))

    async def due_sessions(self, idle: float, model: str | None = None) -> list[SessionState]:
        return await in_thread(partial(self._rules.due_sessions, idle, model))

    async def request(
        self, session: Session, *, trigger: str = "outside", instructions: str | None = None
    ) -> CompactResult:
        return await self._run(self._rules.plan_request(session.blocking, trigger, instructions))

    async def _run(self, rules: CompactionPlan[T]) -> T:
        """Runs the rules in threads, up to each compaction they want, which is awaited here."""
        told: CompactResult | OnefoldError | None = None
        while isinstance(answer := await in_thread(partial(resume, rules, told)), CompactionWanted):
            session = Session(answer.session, self._store.notifier, self._store.running_summaries)
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
