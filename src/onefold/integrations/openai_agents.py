"""For the OpenAI Agents SDK: a session whose record is the journal and whose context compacts by itself.

    session = OnefoldSession("fix-the-build", "agent.db")
    result = await Runner.run(agent, "Why does the build fail?", session=session)

A runner reads a session when a run begins, and writes what each step gave, calls with their results, in one go. So
nothing here needs to know of runs: two of them on one session, in whatever processes, write one line of items.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from agents import Agent, Model, ModelSettings, RunConfig, Runner, TResponseInputItem
from agents.memory import SessionSettings
from agents.run import CallModelData, ModelInputData

from onefold import aio
from onefold.aio.threads import in_thread
from onefold.compaction.context import Context
from onefold.compaction.policy import Policy
from onefold.compaction.provider_adoption import adopt_new
from onefold.compaction.summarizer import Summarizer
from onefold.compaction.token_counter import Counter
from onefold.errors import OnefoldError, OutcomeUnknown, StaleHandle, StoreError
from onefold.ids import random_id
from onefold.integrations.common import LazyStore, ModelReply, StoreOrAddress, append, by_model, latest
from onefold.integrations.dedup import without_lines
from onefold.integrations.sent_records import SentRecords
from onefold.journal import undo
from onefold.journal.adoption import Origin
from onefold.journal.journal import segment
from onefold.journal.lineage import get_session, headers
from onefold.messages import codec
from onefold.messages.provider_item import item
from onefold.messages.tool_groups import group
from onefold.model import CompactResult, Json
from onefold.storage.base import Transaction

log = logging.getLogger("onefold")

_FORMAT = "openai-responses"
_SEALED = "json"
_OPENAI = Origin("openai")


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is there once the store is open."""

    session: aio.Session
    compactor: aio.Compactor


@dataclass(frozen=True, slots=True)
class _Cleared:
    """A clear, by the segment it opened: what comes next may say that it was none."""

    segment: int
    gave: list[TResponseInputItem] | None
    """All that the session gave before, if it was asked."""
    sent: frozenset[int] | None


class OnefoldSession:
    """A session for `Runner.run(…, session=…)`, in place of `SQLiteSession`.

    `store` is an address, which is opened at first use, or a store that is open already. Any number of these, in any
    number of processes, may have one session.
    """

    def __init__(
        self,
        session_id: str,
        store: StoreOrAddress,
        *,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
        count: Counter | str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        origin: Origin | None = _OPENAI,
    ) -> None:
        """By default the store's summarizer and policy; `count` counts tokens exactly, as in `Compactor`.

        `origin` is whom the items are for. Where that provider compacted the conversation itself, it gets its own item
        back, and any other origin gets the past. With None the past is all that anybody gets.
        """
        self.session_id = session_id
        self.session_settings = session_settings
        self._summarizer, self._policy, self._count = summarizer, policy, count
        self._place = LazyStore(store, policy)
        self._made: _Kept | None = None
        self._origin = origin
        self._sent = SentRecords()
        self._gave: list[TResponseInputItem] | None = None
        self._cleared: _Cleared | None = None

    def __repr__(self) -> str:
        return f"OnefoldSession({self.session_id!r})"

    @property
    def session_settings(self) -> SessionSettings | None:
        return self._settings

    @session_settings.setter
    def session_settings(self, given: SessionSettings | dict[str, Any] | None) -> None:
        """As the SDK's own sessions, it takes a dict too."""
        self._settings = SessionSettings(**given) if isinstance(given, dict) else given

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._made = None
        await self._place.aclose()

    def close(self) -> None:
        """Closes the store, if it was opened here. In an event loop, use `async with`: this waits."""
        self._made = None
        self._place.close()

    # ------------------------------------------------------------------ what the runner calls

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """What the model is sent: the summary, and the items after it. At the soft limit a new summary is begun
        behind it, at the hard limit it is waited for, and `ContextTooLarge` is raised if that does not help.

        With a limit it is the latest so many items, without a part of what belongs together, and nothing is compacted:
        the limit bounds the context.
        """
        kept = await self._kept()
        settings = self.session_settings
        wanted = limit if limit is not None or settings is None else settings.limit
        if wanted is None:
            context = await kept.compactor.before_turn(kept.session, origin=self._origin)
            self._sent.given(context)
            self._gave = await self._items(context)
            return list(self._gave)
        context = await kept.session.context(origin=self._origin)
        items = await self._items(context)
        if wanted < 0:
            return items
        if 0 < len(items) <= wanted:
            self._gave = items
        else:
            self._sent.unknown()
        if _SEALED in context.formats:
            return items[max(0, len(items) - wanted) :]
        return latest(items, wanted, _FORMAT)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Writes items, all or none. They are on disk when this returns.

        An item in which the provider compacted the conversation is adopted, with what was sent. If the session was
        cleared right before, and this is what the provider made of it, or what was there before, that was not a clear.

        Items that are none of the SDK's, such as those of `EncryptedSession`, are kept as they are; nobody here can
        read them, so nothing is compacted from then on.
        """
        if not items:
            return
        kept, format = await self._kept(), _FORMAT
        self._gave = None
        if self._cleared is not None and await self._taken_back(self._cleared, items):
            self._cleared = None
            return
        if any(_sealed(item) for item in items):
            await kept.session.set_compaction_owner("agent")
            format = _SEALED
        said = await in_thread(partial(without_lines, kept.session.blocking, list(items), format))
        if said:
            numbers = (await append(kept.session, said, format)).numbers
            sent = self._sent.in_task()
            self._sent.wrote(numbers)
            if format == _FORMAT and sent is not None:
                await self._adopt(said, numbers, sent)
        self._cleared = None

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the newest item back and gives it. The journal keeps it, hidden: see `Session.redo`."""
        session = (await self._kept()).session
        self._cleared = self._gave = None
        self._sent.begin()
        journal = session.blocking.journal
        while True:
            orphans = await in_thread(partial(journal.backend.read, partial(_orphans, session.id)))
            taken = await in_thread(partial(undo.pop, journal, session.id))
            if taken is None or taken.number not in orphans:  # an output without its call, nobody was ever given
                return None if taken is None else taken.body

    async def clear_session(self) -> None:
        """Takes every item back, so that the conversation starts again. The journal keeps them: what is to be gone for
        good is erased, with `Session.erase` or `Store.delete`."""
        session = (await self._kept()).session
        opened = await in_thread(partial(undo.clear, session.blocking.journal, session.id))
        if self._cleared is None or self._cleared.segment != opened.number:  # else it is cleared once more
            self._cleared = _Cleared(opened.number, self._gave, self._sent.in_all())
        self._gave = None
        self._sent.begin(())

    # ------------------------------------------------------------------ within a run, and by hand

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """For long runs: `RunConfig(call_model_input_filter=session.fit)`. Each call of the model is sent the context
        of the session, which compacts in mid run too.

        An input whose newest item is not in the session is left as it is: somebody else made it.
        """
        given = data.model_data
        kept = await self._kept()
        context = await kept.compactor.mid_turn(kept.session, origin=self._origin)
        items = await self._items(context)
        if not given.input or given.input[-1] not in reversed(items):
            return given
        self._sent.asked(context)
        return ModelInputData(input=items, instructions=given.instructions)

    async def compact(self, instructions: str | None = None) -> CompactResult:
        """Compacts because a person asks, whatever the size, and waits for it."""
        kept = await self._kept()
        return await kept.compactor.compact_now(kept.session, instructions)

    async def opened(self) -> aio.Session:
        """The session itself, for what the SDK has no name for: notes, pins, undo, forks, reading."""
        return (await self._kept()).session

    # ------------------------------------------------------------------ what the provider compacted

    async def _adopt(self, items: Sequence[Json], numbers: Sequence[int], sent: frozenset[int]) -> None:
        """Adopts the last item in which the provider compacted, if there is one. It covers what was sent, and what came
        before it in the same answer. Where it cannot be adopted now, it is a message like any other."""
        at = max((n for n, one in enumerate(items) if item(_FORMAT, one) is not None), default=None)
        if at is None or self._origin is None:
            return
        headers = [codec(_FORMAT).header(one) for one in items]
        torn = {n for g in group(enumerate(headers)).groups if g.waiting or g.last >= at for n in g.members}
        covers = sent.union(number for n, number in enumerate(numbers[:at]) if n not in torn)
        session = (await self._kept()).session
        try:
            await session.adopt(numbers[at], origin=self._origin, covers=covers)
        except OnefoldError as error:
            log.warning("session %r: the provider's item is kept as a message: %s", self.session_id, error)

    async def _taken_back(self, cleared: _Cleared, items: list[TResponseInputItem]) -> bool:
        """Whether a clear was none: what came next is what was there before, or what the provider made of it."""
        session = (await self._kept()).session.blocking
        try:
            if items == cleared.gave:
                await in_thread(partial(undo.redo, session.journal, session.id, expect_head=cleared.segment))
                self._sent.begin()
                return True
            if self._origin is None or cleared.sent is None or item(_FORMAT, items[-1]) is None:
                return False
            adopt = partial(
                adopt_new, session.journal, session.id, session.drafts(list(items), _FORMAT, None),
                cleared=cleared.segment, origin=self._origin, covers=cleared.sent, policy=session.policy,
                key=f"window-{random_id()}",
            )  # fmt: skip
            try:
                opened = await in_thread(adopt)
            except OutcomeUnknown:
                opened = await in_thread(adopt)
        except StaleHandle:
            return False  # somebody wrote since: it is a clear
        except (StoreError, OutcomeUnknown):
            raise
        except OnefoldError as error:
            log.warning(
                "session %r: the provider's window stands in place of a past that is cleared: %s", session.id, error
            )
            return False
        self._sent.begin(range(opened.number - len(items), opened.number))
        return True

    async def _items(self, context: Context) -> list[TResponseInputItem]:
        if _SEALED in context.formats:
            segments = await (await self._kept()).session.segments()
            if segments[-1].keeper == "agent":
                return list(context.messages)
        return context.to(_FORMAT)

    async def _kept(self) -> _Kept:
        if self._made is None:
            store = await self._place.store()
            session = await store.session(self.session_id)
            compactor = aio.Compactor(store, self._summarizer, self._policy, count=self._count)
            self._made = _Kept(session, compactor)
        return self._made


def summarize_with(
    model: str | Model, *, window: int = 100_000, run_config: RunConfig | None = None, name: str | None = None
) -> Summarizer:
    """A summarizer that asks a model through the SDK: by its name, or a `Model`. A small, cheap one will do.

    `window` is how many tokens it reads at once; `name` is what the record of a compaction calls it.
    """

    async def ask(system: str, user: str, limit: int) -> ModelReply:
        agent = Agent(name="onefold", instructions=system, model=model, model_settings=ModelSettings(max_tokens=limit))
        result = await Runner.run(agent, user, max_turns=1, run_config=run_config)
        used = result.context_wrapper.usage
        return ModelReply(str(result.final_output), used.input_tokens, used.output_tokens)

    return by_model(name or (model if isinstance(model, str) else type(model).__name__), ask, window=window)


def _sealed(item: Any) -> bool:
    """Whether an item is none of the SDK's: those have a type, or are a message and have a role."""
    return isinstance(item, dict) and "type" not in item and "role" not in item


def _orphans(session: str, tx: Transaction) -> frozenset[int]:
    """Outputs in view whose call is not, whatever a context tells of them."""
    state = get_session(tx, session)
    hidden = segment(tx, session, state.head).hidden
    return group((h.number, h.header) for h in headers(tx, session, 1, state.last + 1, hidden, tools_only=True)).orphans
