"""For Pydantic AI: a capability that keeps conversations in the journal, and compacts what the model is sent.

    agent = Agent("openai:gpt-5", capabilities=[OnefoldHistory("agent.db")])
    result = await agent.run("Why does the build fail?", conversation_id="fix-the-build")

A run is a turn: it waits for the one before it, in whatever process that is, and its calls get results whatever becomes
of it. What the framework records is written as it comes, a response before its tools run, and every request is sent the
context of the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, AgentNode, NodeResult, WrapRunHandler
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import RetryModelRequest
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings

from onefold import aio
from onefold.compaction.context import Context
from onefold.compaction.counting import Counter
from onefold.compaction.policy import Policy
from onefold.compaction.summarizers import Summarizer
from onefold.integrations.common import Place, StoreOrAddress, Told, append, by_model, overflowed
from onefold.messages import convert
from onefold.model import CompactResult, Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_FORMAT = "pydantic-ai"


@dataclass
class OnefoldHistory(AbstractCapability[Any]):
    """Keeps an agent's conversations in a store, each under the run's `conversation_id`.

    `store` is an address, which is opened at first use, or a store that is open already. Any number of agents, in any
    number of processes, may share it.
    """

    store: StoreOrAddress
    _: KW_ONLY
    summarizer: Summarizer | None = None
    """By default the store's."""
    policy: Policy | None = None
    """By default the store's."""
    count: Counter | str | None = None
    """Counts tokens exactly, as in `Compactor`."""
    session: str | None = None
    """The session of every run. By default it is the run's `conversation_id`."""
    wait: bool | float = True
    """How long a run waits for another one on its session, as in `Session.turn`; then it is `Busy`."""

    def __post_init__(self) -> None:
        self._place = Place(self.store, self.policy)
        self._made: aio.Compactor | None = None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        return _Run(self)

    async def opened(self, conversation_id: str) -> aio.Session:
        """The session of a conversation, for what the framework has no name for: notes, pins, undo, forks, reading."""
        store = await self._place.store()
        return await store.session(conversation_id)

    async def compact(self, conversation_id: str, instructions: str | None = None) -> CompactResult:
        """Compacts because a person asks, whatever the size, and waits for it."""
        compactor = await self._compactor()
        return await compactor.by_hand(await self.opened(conversation_id), instructions)

    def close(self) -> None:
        """Closes the store, if it was opened here. In an event loop, use `aclose`: this waits."""
        self._place.close()

    async def aclose(self) -> None:
        await self._place.aclose()

    async def _compactor(self) -> aio.Compactor:
        store = await self._place.store()
        if self._made is None:
            self._made = aio.Compactor(store, self.summarizer, self.policy, count=self.count)
        return self._made

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None  # a store and a summarizer are no part of a spec


@dataclass
class _Run(AbstractCapability[Any]):
    """One run: a turn of its session."""

    of: OnefoldHistory
    _messages: Sequence[ModelMessage] = field(default=(), init=False)
    """What the framework has recorded, as seen last."""
    _written: int = field(default=0, init=False)
    """How many messages of this run are in the journal."""
    _read: dict[int, ModelMessage] = field(default_factory=dict, init=False)
    """What was read from the journal in this run, by number: as the framework's own history, it is read once a run."""
    _smaller: Context | None = field(default=None, init=False)
    """What to send after the provider refused a context for its size."""

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        self._compactor = await self.of._compactor()
        self._session = await self.of.opened(self.of.session or str(ctx.conversation_id))
        async with self._session.turn(owner=ctx.agent.name if ctx.agent else None, wait=self.of.wait) as self._turn:
            try:
                result = await handler()
                self._messages = result.all_messages()
                return result
            finally:
                with CancelScope(shield=True):  # what was recorded before a run failed or was cancelled is kept
                    await self._write(ctx)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if isinstance(request_context.messages[-1], ModelResponse):
            return request_context  # a suspended response is resumed as it is
        self._messages = ctx.messages
        began = self._written > 0
        await self._write(ctx)
        context, self._smaller = self._smaller, None
        if context is None:
            model = request_context.model.model_name
            fitting = self._compactor.mid_turn if began else self._compactor.before_turn
            context = await fitting(self._session, model=model, usage=self._usage(ctx))
        request_context.messages = _headed(_messages(context, self._read), _system(ctx.messages))
        return request_context

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        if not overflowed(error):
            raise error
        model = request_context.model.model_name
        self._smaller = await self._compactor.after_overflow(self._session, error, model=model)
        raise RetryModelRequest from error

    async def after_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], result: NodeResult[Any]
    ) -> NodeResult[Any]:
        self._messages = ctx.messages
        await self._write(ctx)  # a response before its tools run
        return result

    async def _write(self, ctx: RunContext[Any]) -> None:
        """Writes what the framework has recorded since, all or none. A history that somebody passed in is taken over
        by a session that has none; one that has its own goes on with that."""
        mine = [m for m in self._messages if m.run_id == ctx.run_id]
        new = mine[self._written :]
        if new and not self._written and len(mine) < len(self._messages):
            state = await self._session.state
            if not state.messages:
                new = [*(m for m in self._messages if m.run_id != ctx.run_id), *new]
        if said := [m for m in new if m.parts]:
            await append(self._turn, [_body(m) for m in said], _FORMAT)
        self._written = len(mine)

    def _usage(self, ctx: RunContext[Any]) -> int | None:
        """What the provider says the last request of this run took."""
        answers = [m for m in self._messages if isinstance(m, ModelResponse) and m.run_id == ctx.run_id]
        return (answers[-1].usage.input_tokens or None) if answers else None


def summarize_with(model: Model | str, *, window: int = 100_000, name: str | None = None) -> Summarizer:
    """A summarizer that asks a model through the framework: by its name, or a `Model`. A small, cheap one will do.

    `window` is how many tokens it reads at once; `name` is what the record of a compaction calls it.
    """

    async def ask(system: str, user: str, limit: int) -> Told:
        prompt = ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(user)])
        answer = await model_request(model, [prompt], model_settings=ModelSettings(max_tokens=limit))
        used = answer.usage
        cut_off = answer.finish_reason == "length"
        return Told(answer.text or "", used.input_tokens or None, used.output_tokens or None, cut_off)

    return by_model(name or (model if isinstance(model, str) else model.model_name), ask, window=window)


def _body(message: ModelMessage) -> Json:
    """A message as it is kept: as the framework's type adapter writes it, without what that reads as the same if it is
    not there. Of an answer that is half, since each has some thirty fields of which a provider fills a few."""
    (body,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    body["parts"] = [_filled(part, dumped) for part, dumped in zip(message.parts, body["parts"], strict=True)]
    if isinstance(message, ModelResponse):
        body["usage"] = _filled(message.usage, body["usage"])
    return _filled(message, body)


def _filled(of: DataclassInstance, dumped: dict[str, Json]) -> dict[str, Json]:
    empty = _empty(type(of))
    return {name: value for name, value in dumped.items() if name not in empty or value != empty[name]}


@cache
def _empty(of: type[DataclassInstance]) -> dict[str, Json]:
    """The fields that are None, zero or False unless something else is said."""
    return {f.name: f.default for f in fields(of) if f.init and (f.default is None or f.default == 0)}


def _messages(context: Context, read: dict[int, ModelMessage]) -> list[ModelMessage]:
    """A context as the framework's messages. What was `read` already stays the objects that it is."""
    rows = list(zip(context.numbers, context.formats, context.messages, strict=True))
    new = [(number, body) for number, format, body in rows if number and format == _FORMAT and number not in read]
    made = ModelMessagesTypeAdapter.validate_python([body for _, body in new])
    read.update(zip((number for number, _ in new), made, strict=True))
    told: list[ModelMessage] = []
    for known, some in groupby(rows, key=lambda row: row[0] in read):
        if known:
            told += [read[number] for number, _, _ in some]
        else:
            bodies = convert([(format, body) for _, format, body in some], _FORMAT)
            told += ModelMessagesTypeAdapter.validate_python(bodies)
    return told


def _system(messages: Sequence[ModelMessage]) -> list[ModelRequestPart]:
    """The system prompt of the agent: the framework puts it before the first prompt of a run."""
    first = messages[0] if messages else None
    return _opening(first.parts) if isinstance(first, ModelRequest) else []


def _headed(messages: list[ModelMessage], system: Sequence[ModelRequestPart]) -> list[ModelMessage]:
    """A context with the agent's system prompt once, at its head, and not before the prompt of every run in it."""
    bare: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelRequest) and (opening := _opening(message.parts)):
            bare.append(replace(message, parts=message.parts[len(opening) :]))
        else:
            bare.append(message)
    return [ModelRequest(parts=[*system]), *bare] if system else bare


def _opening(parts: Sequence[ModelRequestPart]) -> list[ModelRequestPart]:
    """The system prompt that opens a request with more in it."""
    after = next((n for n, part in enumerate(parts) if not isinstance(part, SystemPromptPart)), 0)
    return list(parts[:after])
