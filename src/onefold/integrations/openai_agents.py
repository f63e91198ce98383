"""For the OpenAI Agents SDK: a session whose record is the journal and whose context compacts by itself.

    session = OnefoldSession("fix-the-build", "agent.db")
    result = await Runner.run(agent, "Why does the build fail?", session=session)

A runner reads a session when a run begins, and writes what each step gave, calls with their results, in one go. So
nothing here needs to know of runs: two of them on one session, in whatever processes, write one line of items.
"""

from __future__ import annotations

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
from onefold.compaction.counting import Counter
from onefold.compaction.policy import Policy
from onefold.compaction.summarizers import Summarizer
from onefold.integrations.common import Place, StoreOrAddress, Told, append, by_model, latest
from onefold.integrations.once import without_lines
from onefold.journal import history
from onefold.model import CompactResult

_FORMAT = "openai-responses"
_SEALED = "json"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is there once the store is open."""

    session: aio.Session
    compactor: aio.Compactor


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
    ) -> None:
        """By default the store's summarizer and policy; `count` counts tokens exactly, as in `Compactor`."""
        self.session_id = session_id
        self.session_settings = session_settings
        self._summarizer, self._policy, self._count = summarizer, policy, count
        self._place = Place(store, policy)
        self._made: _Kept | None = None

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
        behind it, at the hard limit it is waited for, and `TooLarge` is raised if that does not help.

        With a limit it is the latest so many items, without a part of what belongs together, and nothing is compacted:
        the limit bounds the context.
        """
        kept = await self._kept()
        settings = self.session_settings
        wanted = limit if limit is not None or settings is None else settings.limit
        if wanted is None:
            return await self._items(await kept.compactor.before_turn(kept.session))
        context = await kept.session.context()
        items = await self._items(context)
        if wanted < 0:
            return items
        if _SEALED in context.formats:
            return items[max(0, len(items) - wanted) :]
        return latest(items, wanted, _FORMAT)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Writes items, all or none. They are on disk when this returns.

        Items that are none of the SDK's, such as those of `EncryptedSession`, are kept as they are; nobody here can
        read them, so nothing is compacted from then on.
        """
        if not items:
            return
        kept, format = await self._kept(), _FORMAT
        if any(_sealed(item) for item in items):
            await kept.session.keep("agent")
            format = _SEALED
        said = await in_thread(partial(without_lines, kept.session._session, list(items), format))
        if said:
            await append(kept.session, said, format)

    async def pop_item(self) -> TResponseInputItem | None:
        """Takes the newest item back and gives it. The journal keeps it, hidden: see `Session.redo`."""
        session = (await self._kept()).session
        while True:
            left_out = (await session.context()).left_out
            taken = await in_thread(partial(history.pop, session._session._journal, session.id))
            alone = taken is not None and taken.number in left_out and taken.header is not None and taken.header.closes
            if not alone:  # an output without its call, `get_items` has not given
                return None if taken is None else taken.body

    async def clear_session(self) -> None:
        """Takes every item back, so that the conversation begins anew. The journal keeps them: what is to be gone for
        good is erased, with `Session.erase` or `Store.delete`."""
        session = (await self._kept()).session
        await in_thread(partial(history.clear, session._session._journal, session.id))

    # ------------------------------------------------------------------ within a run, and by hand

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        """For long runs: `RunConfig(call_model_input_filter=session.fit)`. Each call of the model is sent the context
        of the session, which compacts in mid run too.

        An input whose newest item is not in the session is left as it is: somebody else made it.
        """
        given = data.model_data
        kept = await self._kept()
        items = await self._items(await kept.compactor.mid_turn(kept.session))
        if not given.input or given.input[-1] not in reversed(items):
            return given
        return ModelInputData(input=items, instructions=given.instructions)

    async def compact(self, instructions: str | None = None) -> CompactResult:
        """Compacts because a person asks, whatever the size, and waits for it."""
        kept = await self._kept()
        return await kept.compactor.by_hand(kept.session, instructions)

    async def opened(self) -> aio.Session:
        """The session itself, for what the SDK has no name for: notes, pins, undo, forks, reading."""
        return (await self._kept()).session

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

    async def ask(system: str, user: str, limit: int) -> Told:
        agent = Agent(name="onefold", instructions=system, model=model, model_settings=ModelSettings(max_tokens=limit))
        result = await Runner.run(agent, user, max_turns=1, run_config=run_config)
        used = result.context_wrapper.usage
        return Told(str(result.final_output), used.input_tokens, used.output_tokens)

    return by_model(name or (model if isinstance(model, str) else type(model).__name__), ask, window=window)


def _sealed(item: Any) -> bool:
    """Whether an item is none of the SDK's: those have a type, or are a message and have a role."""
    return isinstance(item, dict) and "type" not in item and "role" not in item
