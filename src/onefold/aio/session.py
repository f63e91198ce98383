"""One conversation, for an agent with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, MutableSet, Sequence
from functools import partial

from anyio.lowlevel import checkpoint_if_cancelled

from onefold import session as sync
from onefold.aio.iterators import AsyncFollow, AsyncPages
from onefold.aio.notifier import ChangeNotifier
from onefold.aio.summarizer_bridge import LoopSummarizer
from onefold.aio.threads import AsyncOpen, AwaitableValue, documented, in_thread
from onefold.aio.turn import Turn
from onefold.compaction.context import Context
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.resummary import SummaryDraft
from onefold.compaction.summarizer import Summarizer, extractive_summary
from onefold.journal.adoption import Origin
from onefold.model import (
    MANUAL,
    AppendResult,
    Compaction,
    CompactResult,
    Erased,
    Fact,
    ForkKind,
    Holder,
    Json,
    Keeper,
    Note,
    OpenTurn,
    Record,
    Segment,
    SessionState,
    Slot,
)


@documented(sync.Session)
class Session:
    """A handle on one session. Cheap to make; any number of them, in any number of processes, may be in use."""

    def __init__(self, session: sync.Session, notifier: ChangeNotifier, summaries: MutableSet[LoopSummarizer]) -> None:
        self.blocking = session
        self._notifier = notifier
        self._summaries = summaries

    def __repr__(self) -> str:
        return repr(self.blocking)

    @property
    def id(self) -> str:
        return self.blocking.id

    @property
    def state(self) -> AwaitableValue[SessionState]:
        """What is known of the session without reading its journal: `(await session.state).tokens`."""
        return AwaitableValue(partial(in_thread, lambda: self.blocking.state))

    @property
    def head(self) -> AwaitableValue[int]:
        return AwaitableValue(partial(in_thread, lambda: self.blocking.head))

    async def segments(self) -> list[Segment]:
        return await in_thread(self.blocking.segments)

    async def compactions(self) -> list[Compaction]:
        return await in_thread(self.blocking.compactions)

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
            partial(self.blocking.append, messages, key=key, format=format, actor=actor, slot=slot, program=program)
        )

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[Record]:
        return AsyncPages(partial(self.blocking.read, start, stop))

    def follow(
        self, after: int = 0, *, generation: str | None = None, idle: float | None = None
    ) -> AsyncIterator[Record]:
        backend = self.blocking.journal.backend
        return AsyncFollow(self._notifier, backend, self.id, after, generation=generation, idle=idle)

    async def context(self, segment: int | None = None, *, origin: Origin | None = None) -> Context:
        return await in_thread(partial(self.blocking.context, segment, origin=origin))

    async def compact(
        self,
        summarizer: Summarizer | None = None,
        *,
        trigger: str = MANUAL,
        instructions: str | None = None,
        wait: bool | float = True,
        base: int | None = None,
        follow_up: Json | None = None,
        policy: Policy | None = None,
    ) -> CompactResult:
        """Makes the context smaller, once, whoever else asks for it at the same time.

        An async summarizer is awaited in this event loop, a sync one is called in a thread. Cancelled, it hands its own
        attempt back, for others to take at once, and leaves that of another alone.
        """
        given = LoopSummarizer(summarizer or self.blocking.summarizer or extractive_summary)
        self._summaries.add(given)
        call = await in_thread(
            partial(
                self.blocking.compaction_job,
                given,
                trigger=trigger,
                instructions=instructions,
                wait=wait,
                base=base,
                follow_up=follow_up,
                policy=policy,
            )
        )
        try:
            result = await self._notifier.through(self.id, call.step)
        except Exception:
            raise
        except BaseException:
            await in_thread(call.hand_back, always=True)
            await given.end()
            raise
        return self.blocking.after_compaction(result)

    async def cancel(self) -> Compaction | None:
        return await in_thread(self.blocking.cancel)

    async def compaction_holder(self) -> Holder | None:
        return await in_thread(self.blocking.compaction_holder)

    # ------------------------------------------------------------------ turns, and inputs that wait for one

    def turn(self, *, owner: str | None = None, wait: bool | float = True) -> AsyncOpen[Turn]:
        """Begins a turn: until it ends, no other turn writes. `async with session.turn(owner="gateway") as turn: …`

        If one is open, waits for it: True for as long as the policy says, a number of seconds, or False for not at all.
        Then it is `Busy`. The other way is to `queue` the input for the next turn. A turn whose process died is settled
        as interrupted by the next one, once that is known or its lease has run out.
        """
        return AsyncOpen(partial(self._begin, owner, wait))

    async def _begin(self, owner: str | None, wait: bool | float) -> Turn:
        asked = self.blocking.turn_request(owner, wait)
        try:
            claim = await self._notifier.through(self.id, asked.step)
            await checkpoint_if_cancelled()  # nobody may be left to end a turn that is handed out now
        except BaseException:
            if asked.claim is not None:
                why = "its caller was cancelled as it began"
                await in_thread(partial(asked.give_up, why), always=True)
            raise
        return Turn(self.blocking.hand_over(claim))

    async def open_turn(self) -> OpenTurn | None:
        return await in_thread(self.blocking.open_turn)

    async def stop_turn(self, cause: str | None = None) -> OpenTurn | None:
        return await in_thread(partial(self.blocking.stop_turn, cause))

    async def queue_input(self, message: Json, *, format: str | None = None, key: str | None = None) -> int:
        return await in_thread(partial(self.blocking.queue_input, message, format=format, key=key))

    async def hidden(self, *numbers: int) -> tuple[int, ...]:
        return await in_thread(partial(self.blocking.hidden, *numbers))

    async def take_input(self, *, key: str | None = None) -> Record | None:
        return await in_thread(partial(self.blocking.take_input, key=key))

    # ------------------------------------------------------------------ what stands in every context

    async def pin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        return await in_thread(partial(self.blocking.pin, number, actor=actor))

    async def unpin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        return await in_thread(partial(self.blocking.unpin, number, actor=actor))

    async def pins(self) -> tuple[int, ...]:
        return await in_thread(self.blocking.pins)

    async def note(
        self,
        kind: str,
        text: str,
        key: str | None = None,
        *,
        actor: str | None = None,
        source: Sequence[int] = (),
    ) -> int:
        return await in_thread(partial(self.blocking.note, kind, text, key, actor=actor, source=source))

    async def notes(self) -> tuple[Note, ...]:
        return await in_thread(self.blocking.notes)

    async def facts(self) -> tuple[Fact, ...]:
        return await in_thread(self.blocking.facts)

    # ------------------------------------------------------------------ going back, and branching off

    async def undo(self) -> Segment:
        return await in_thread(self.blocking.undo)

    async def redo(self) -> Segment:
        return await in_thread(self.blocking.redo)

    async def rewind(self, to: int) -> Segment:
        return await in_thread(partial(self.blocking.rewind, to))

    async def mask(self, *numbers: int) -> Segment:
        return await in_thread(partial(self.blocking.mask, *numbers))

    async def draft_summary(
        self, summarizer: Summarizer | None = None, *, instructions: str | None = None, policy: Policy | None = None
    ) -> SummaryDraft:
        given = LoopSummarizer(summarizer or self.blocking.summarizer or extractive_summary)
        self._summaries.add(given)
        made = partial(self.blocking.draft_summary, given, instructions=instructions, policy=policy)
        return await in_thread(made, interrupt=given.stop)

    async def take_draft(self, draft: SummaryDraft) -> Segment:
        return await in_thread(partial(self.blocking.take_draft, draft))

    async def adopt(self, *window: int, origin: Origin, covers: Context | Iterable[int]) -> Segment:
        return await in_thread(partial(self.blocking.adopt, *window, origin=origin, covers=covers))

    async def unfold(self, segment: int | None = None) -> Segment:
        return await in_thread(partial(self.blocking.unfold, segment))

    async def refold(self, segment: int | None = None) -> Segment:
        return await in_thread(partial(self.blocking.refold, segment))

    async def fork(self, kind: ForkKind = "branch", at: int | None = None, *, id: str | None = None) -> Session:
        made = await in_thread(partial(self.blocking.fork, kind, at, id=id))
        return Session(made, self._notifier, self._summaries)

    async def erase(self, *numbers: int, remove_copies: bool = False) -> Erased:
        return await in_thread(partial(self.blocking.erase, *numbers, remove_copies=remove_copies))

    # ------------------------------------------------------------------ other ids, other keepers

    async def alias(self, other_id: str) -> None:
        await in_thread(partial(self.blocking.alias, other_id))

    async def aliases(self) -> list[str]:
        return await in_thread(self.blocking.aliases)

    async def set_compaction_owner(self, keeper: Keeper) -> Segment:
        return await in_thread(partial(self.blocking.set_compaction_owner, keeper))

    async def limits(self) -> Limits | None:
        return await in_thread(self.blocking.limits)

    async def go_by(self, limits: Limits, model: str | None = None) -> int:
        return await in_thread(partial(self.blocking.go_by, limits, model))

    async def record_agent_compaction(self, source: str, signals: Sequence[str] = ()) -> Segment:
        return await in_thread(partial(self.blocking.record_agent_compaction, source, signals))
