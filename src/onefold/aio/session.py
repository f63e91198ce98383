"""One conversation, for an agent with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, MutableSet, Sequence
from functools import partial

from anyio.lowlevel import checkpoint_if_cancelled

from onefold import session as sync
from onefold.aio.bell import Bell
from onefold.aio.streams import Following, Pages
from onefold.aio.summaries import InLoop
from onefold.aio.threads import Later, Opening, documented, in_thread
from onefold.aio.turn import Turn
from onefold.compaction.context import Context
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.resummary import SummaryDraft
from onefold.compaction.summarizers import Summarizer, extract
from onefold.journal.adoption import Origin
from onefold.model import (
    MANUAL,
    Appended,
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

    def __init__(self, session: sync.Session, bell: Bell, summaries: MutableSet[InLoop]) -> None:
        self._session = session
        self._bell = bell
        self._summaries = summaries

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def state(self) -> Later[SessionState]:
        """What is known of the session without reading its journal: `(await session.state).tokens`."""
        return Later(partial(in_thread, lambda: self._session.state))

    @property
    def head(self) -> Later[int]:
        return Later(partial(in_thread, lambda: self._session.head))

    async def segments(self) -> list[Segment]:
        return await in_thread(self._session.segments)

    async def compactions(self) -> list[Compaction]:
        return await in_thread(self._session.compactions)

    async def append(
        self,
        messages: Json | Sequence[Json],
        *,
        key: str | None = None,
        format: str | None = None,
        actor: str | None = None,
        slot: Slot | None = None,
        program: bool = False,
    ) -> Appended:
        return await in_thread(
            partial(self._session.append, messages, key=key, format=format, actor=actor, slot=slot, program=program)
        )

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[Record]:
        return Pages(partial(self._session.read, start, stop))

    def follow(
        self, after: int = 0, *, incarnation: str | None = None, idle: float | None = None
    ) -> AsyncIterator[Record]:
        backend = self._session._journal.backend
        return Following(self._bell, backend, self.id, after, incarnation=incarnation, idle=idle)

    async def context(self, segment: int | None = None, *, origin: Origin | None = None) -> Context:
        return await in_thread(partial(self._session.context, segment, origin=origin))

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
        given = InLoop(summarizer or self._session._summarizer or extract)
        self._summaries.add(given)
        call = await in_thread(
            partial(
                self._session._compacting,
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
            result = await self._bell.through(self.id, call.step)
        except Exception:
            raise
        except BaseException:
            await in_thread(call.hand_back, always=True)
            await given.end()
            raise
        return self._session._compacted(result)

    async def cancel(self) -> Compaction | None:
        return await in_thread(self._session.cancel)

    async def holder(self) -> Holder | None:
        return await in_thread(self._session.holder)

    # ------------------------------------------------------------------ turns, and inputs that wait for one

    def turn(self, *, owner: str | None = None, wait: bool | float = True) -> Opening[Turn]:
        """Begins a turn: until it ends, no other turn writes. `async with session.turn(owner="gateway") as turn: …`

        If one is open, waits for it: True for as long as the policy says, a number of seconds, or False for not at all.
        Then it is `Busy`. The other way is to `queue` the input for the next turn. A turn whose process died is settled
        as interrupted by the next one, once that is known or its lease has run out.
        """
        return Opening(partial(self._begin, owner, wait))

    async def _begin(self, owner: str | None, wait: bool | float) -> Turn:
        asked = self._session._beginning(owner, wait)
        try:
            claim = await self._bell.through(self.id, asked.step)
            await checkpoint_if_cancelled()  # nobody may be left to end a turn that is handed out now
        except BaseException:
            if asked.claim is not None:
                why = "its caller was cancelled as it began"
                await in_thread(partial(asked.give_up, why), always=True)
            raise
        return Turn(self._session._hand_over(claim))

    async def open_turn(self) -> OpenTurn | None:
        return await in_thread(self._session.open_turn)

    async def stop_turn(self, cause: str | None = None) -> OpenTurn | None:
        return await in_thread(partial(self._session.stop_turn, cause))

    async def queue(self, message: Json, *, format: str | None = None, key: str | None = None) -> int:
        return await in_thread(partial(self._session.queue, message, format=format, key=key))

    async def hidden(self, *numbers: int) -> tuple[int, ...]:
        return await in_thread(partial(self._session.hidden, *numbers))

    async def take(self, *, key: str | None = None) -> Record | None:
        return await in_thread(partial(self._session.take, key=key))

    # ------------------------------------------------------------------ what stands in every context

    async def pin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        return await in_thread(partial(self._session.pin, number, actor=actor))

    async def unpin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        return await in_thread(partial(self._session.unpin, number, actor=actor))

    async def pins(self) -> tuple[int, ...]:
        return await in_thread(self._session.pins)

    async def note(
        self,
        kind: str,
        text: str,
        key: str | None = None,
        *,
        actor: str | None = None,
        source: Sequence[int] = (),
    ) -> int:
        return await in_thread(partial(self._session.note, kind, text, key, actor=actor, source=source))

    async def notes(self) -> tuple[Note, ...]:
        return await in_thread(self._session.notes)

    async def facts(self) -> tuple[Fact, ...]:
        return await in_thread(self._session.facts)

    # ------------------------------------------------------------------ going back, and branching off

    async def undo(self) -> Segment:
        return await in_thread(self._session.undo)

    async def redo(self) -> Segment:
        return await in_thread(self._session.redo)

    async def rewind(self, to: int) -> Segment:
        return await in_thread(partial(self._session.rewind, to))

    async def mask(self, *numbers: int) -> Segment:
        return await in_thread(partial(self._session.mask, *numbers))

    async def draft_summary(
        self, summarizer: Summarizer | None = None, *, instructions: str | None = None, policy: Policy | None = None
    ) -> SummaryDraft:
        given = InLoop(summarizer or self._session._summarizer or extract)
        self._summaries.add(given)
        made = partial(self._session.draft_summary, given, instructions=instructions, policy=policy)
        return await in_thread(made, interrupt=given.stop)

    async def take_draft(self, draft: SummaryDraft) -> Segment:
        return await in_thread(partial(self._session.take_draft, draft))

    async def adopt(self, *window: int, origin: Origin, covers: Context | Iterable[int]) -> Segment:
        return await in_thread(partial(self._session.adopt, *window, origin=origin, covers=covers))

    async def unfold(self, segment: int | None = None) -> Segment:
        return await in_thread(partial(self._session.unfold, segment))

    async def refold(self, segment: int | None = None) -> Segment:
        return await in_thread(partial(self._session.refold, segment))

    async def fork(self, kind: ForkKind = "branch", at: int | None = None, *, id: str | None = None) -> Session:
        made = await in_thread(partial(self._session.fork, kind, at, id=id))
        return Session(made, self._bell, self._summaries)

    async def erase(self, *numbers: int, remove_copies: bool = False) -> Erased:
        return await in_thread(partial(self._session.erase, *numbers, remove_copies=remove_copies))

    # ------------------------------------------------------------------ other ids, other keepers

    async def alias(self, other_id: str) -> None:
        await in_thread(partial(self._session.alias, other_id))

    async def aliases(self) -> list[str]:
        return await in_thread(self._session.aliases)

    async def keep(self, keeper: Keeper) -> Segment:
        return await in_thread(partial(self._session.keep, keeper))

    async def limits(self) -> Limits | None:
        return await in_thread(self._session.limits)

    async def go_by(self, limits: Limits, model: str | None = None) -> int:
        return await in_thread(partial(self._session.go_by, limits, model))

    async def observe(self, source: str, witnesses: Sequence[str] = ()) -> Segment:
        return await in_thread(partial(self._session.observe, source, witnesses))
