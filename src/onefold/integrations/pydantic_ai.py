"""For Pydantic AI: a capability that keeps conversations in the journal, and compacts what the model is sent.

    agent = Agent("openai:gpt-5", capabilities=[OnefoldHistory("agent.db")])
    result = await agent.run("Why does the build fail?", conversation_id="fix-the-build")

A run is a turn: it waits for the one before it, in whatever process that is, and its calls get results whatever becomes
of it. What the framework records is written as it comes, a response before its tools run, and every request is sent the
context of the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from pydantic_ai import CallToolsNode, RunContext, UserPromptNode, exceptions
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    ProcessHistory,
    WrapRunHandler,
)
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    CompactionPart,
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
from onefold.aio.threads import in_thread
from onefold.compaction.context import Context
from onefold.compaction.policy import Policy
from onefold.compaction.provider_adoption import adopt_new
from onefold.compaction.summarizer import Summarizer
from onefold.compaction.token_counter import Counter
from onefold.errors import OnefoldError, StoreError
from onefold.ids import random_id
from onefold.integrations.common import LazyStore, ModelReply, StoreOrAddress, append, by_model, overflowed
from onefold.integrations.new_messages import NewMessages
from onefold.journal.adoption import Origin
from onefold.messages import convert
from onefold.messages.provider_item import item
from onefold.messages.result_mask import was_line
from onefold.model import CompactResult, Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger("onefold")

RetryModelRequest: type[Exception] | None = getattr(exceptions, "RetryModelRequest", None)
"""Asks the framework for another attempt, from 2.66 on. Without it the model is asked here, and is not streamed."""
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
    account: str = ""
    """Whose key the models are asked with. What a provider compacted is for that account, endpoint and model alone."""
    edits: bool = False
    """Whether the provider clears old tool results itself: then none is masked for it."""

    def __post_init__(self) -> None:
        self._place = LazyStore(self.store, self.policy)
        self._made: aio.Compactor | None = None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        return _Run(self)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    async def opened(self, conversation_id: str) -> aio.Session:
        """The session of a conversation, for what the framework has no name for: notes, pins, undo, forks, reading."""
        store = await self._place.store()
        return await store.session(conversation_id)

    async def compact(self, conversation_id: str, instructions: str | None = None) -> CompactResult:
        """Compacts because a person asks, whatever the size, and waits for it."""
        compactor = await self._compactor()
        return await compactor.compact_now(await self.opened(conversation_id), instructions)

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
    """One run: a turn of its session.

    It comes first before each request, so that processors of history have the whole context before them, and what was
    said is in the journal before anybody changes it.
    """

    of: OnefoldHistory
    _live: Sequence[ModelMessage] = field(default=(), init=False)
    """The framework's own list of messages, as seen last."""
    _begun: bool = field(default=False, init=False)
    _prompted: bool = field(default=True, init=False)
    _open: list[ModelMessage] = field(default_factory=list, init=False)
    """What the session had that nobody has answered, when a run without a prompt began."""
    _system: list[ModelRequestPart] | None = field(default=None, init=False)
    """The agent's system prompt, as the framework puts it at the head of a run. It gives none to a run with a history,
    and then the session's own holds."""
    _answer: ModelResponse | None = field(default=None, init=False)
    """The last one of this run."""
    _read: dict[tuple[int, int], ModelMessage] = field(default_factory=dict, init=False)
    """Messages of the journal in this run, by number: as the framework's own history, each is read once a run. Those
    from before the segment in force are others in each segment."""
    _smaller: Context | None = field(default=None, init=False)
    """What to send after the provider rejected a context for its size."""
    _whom: Origin | None = field(default=None, init=False)
    """Whom the last request was for."""
    _sent: Context | None = field(default=None, init=False)
    """What it was sent."""
    _handed: list[ModelMessage] = field(default_factory=list, init=False)
    """The same, as the framework's messages."""
    _whole: bool = field(default=True, init=False)
    """Whether nobody took anything away from it."""
    _asks: int = field(default=0, init=False)
    """The newest message in it; 0 if the journal has none that asks for something."""

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        self._compactor = await self.of._compactor()
        self._session = await self.of.opened(self.of.session or str(ctx.conversation_id))
        self._recorded: NewMessages[ModelMessage] = NewMessages(ctx.run_id)
        self._prompted = ctx.prompt is not None
        async with self._session.turn(owner=ctx.agent.name if ctx.agent else None, wait=self.of.wait) as self._turn:
            try:
                result = await handler()
                self._live = result.all_messages()
                await self._begin(self._live)
                return result
            finally:
                if self._begun:
                    with CancelScope(shield=True):  # what was recorded before a run failed or was cancelled is kept
                        await self._write()

    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        if not isinstance(node, UserPromptNode):  # that one brings a history into the framework's own list
            self._live = ctx.messages
            await self._begin(self._live, with_tools=isinstance(node, CallToolsNode))
        return node

    async def after_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], result: NodeResult[Any]
    ) -> NodeResult[Any]:
        if self._begun:
            self._live = ctx.messages
            await self._write()  # a response before its tools run
        return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._live = ctx.messages
        request = request_context.messages[-1]
        if isinstance(request, ModelResponse):
            await self._begin(self._live)
            return request_context  # a suspended response is resumed as it is
        await self._begin(self._live[:-1])
        if not self._prompted and self._open and same(request, self._open[-1]):
            self._recorded.know([request])  # the question that the session has open already
        self._prompted = True
        if self._system is None:
            self._system = _system(self._live)
        await self._write()
        fitting = self._compactor.before_turn if self._answer is None else self._compactor.mid_turn
        usage = (self._answer.usage.input_tokens or None) if self._answer else None
        self._whom = self._origin(request_context.model)
        context = await fitting(
            self._session, model=request_context.model.model_name, usage=usage, origin=self._whom
        )  # fmt: skip
        request_context.messages = self._told(context, request)
        self._sent, self._handed = context, list(request_context.messages)
        # What becomes of it is seen before each attempt; where there is no such hook, nobody may change it.
        changes = any(isinstance(one, ProcessHistory) for one in ctx.capabilities.values())
        self._whole = RetryModelRequest is not None or not changes
        self._recorded.know(request_context.messages)
        self._recorded.hand_out(self._live[-1])
        return request_context

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Before each attempt, where the framework has such. All but the first are ours to fill."""
        context, self._smaller = self._smaller, None
        if context is not None:
            request_context.messages = await self._processed(ctx, request_context, context)
            self._sent, self._handed = context, list(request_context.messages)
        passed = {id(message) for message in request_context.messages}
        self._whole = all(id(message) in passed for message in self._handed)
        return request_context

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        while overflowed(error):
            model = request_context.model.model_name
            smaller = await self._compactor.after_overflow(self._session, error, model=model, origin=self._whom)
            if RetryModelRequest is not None:
                self._smaller = smaller
                raise RetryModelRequest from error
            messages = await self._processed(ctx, request_context, smaller)
            settings, parameters = request_context.model_settings, request_context.model_request_parameters
            try:
                return await request_context.model.request(messages, settings, parameters)
            except Exception as again:
                error = again
        raise error

    # ------------------------------------------------------------------ what is written

    async def _begin(self, given: Sequence[ModelMessage], *, with_tools: bool = False) -> None:
        """Takes a history over that somebody passed in. A session that has messages goes on with its own; but what a
        run goes on from, an open question, or calls whose tools it begins with, is said in it if it was not yet."""
        if self._begun:
            return
        self._begun = True
        self._recorded.know(given)
        given = [m for m in given if not _suspended(m)]
        if self._prompted and not given:
            return
        if not (await self._session.state).messages:
            await self._append(given)
            return
        self._system = [] if given else None
        if not self._prompted or with_tools:
            self._open = open_end(_messages(await self._session.context(), self._read))
            await self._append([m for m in open_end(given) if not any(same(m, there) for there in self._open)])

    async def _write(self) -> None:
        """Writes what the framework has recorded since, all or none."""
        await self._write_compacted()
        new = self._recorded.new(self._live)
        written = await self._append(new)
        await self._adopt(written)
        self._answer = next((m for m in reversed(new) if isinstance(m, ModelResponse)), self._answer)

    async def _append(self, messages: Sequence[ModelMessage]) -> list[tuple[int, ModelMessage]]:
        if not (said := [m for m in messages if m.parts]):
            return []
        numbers = (await append(self._turn, [_body(m) for m in said], _FORMAT)).numbers
        self._read.update(zip(((number, 0) for number in numbers), said, strict=True))
        return list(zip(numbers, said, strict=True))

    # ------------------------------------------------------------------ what the provider compacted

    def _origin(self, model: Model) -> Origin:
        return Origin(model.system, model.base_url or "", self.of.account, model.model_name, edits=self.of.edits)

    async def _adopt(self, written: Iterable[tuple[int, ModelMessage]]) -> None:
        """Adopts an answer's item, which stands for all that was sent. If a processor of history took some of that
        away, nobody knows for what."""
        found = [number for number, message in written if self._is_item(message)]
        if found and self._whom is not None and self._sent is not None and self._whole:
            try:
                await self._session.adopt(found[-1], origin=self._whom, covers=self._sent)
            except StoreError:
                raise
            except OnefoldError as error:
                log.warning("session %r: the provider's item is kept as a message: %s", self._session.id, error)

    async def _write_compacted(self) -> None:
        """Writes and adopts what a capability had the provider make, before a request, of all but the newest message,
        and put in their place. If it cannot be adopted it is not written: it says nothing that is not said anyway."""
        made = [m for m in self._live[:-1] if not self._recorded.knows(m) and self._is_item(m)]
        if not made or self._whom is None or self._sent is None:
            return
        self._recorded.know(made)
        covers = {*self._sent.numbers, *self._sent.left_out} - {self._asks}
        session = self._session.blocking
        try:
            drafts = session.drafts([_body(made[-1])], _FORMAT, None)
            await in_thread(
                partial(
                    adopt_new, session.journal, session.id, drafts, cleared=None, origin=self._whom, covers=covers,
                    policy=session.policy, key=f"window-{random_id()}",
                )
            )  # fmt: skip
        except StoreError:
            raise
        except OnefoldError as error:
            log.warning("session %r: what the provider compacted is not kept: %s", session.id, error)

    def _is_item(self, message: ModelMessage) -> bool:
        """Whether the provider that was asked made an item in it."""
        parts = (
            [p for p in message.parts if isinstance(p, CompactionPart)] if isinstance(message, ModelResponse) else []
        )
        ours = self._whom is not None and any(p.provider_name == self._whom.provider for p in parts)
        return ours and item(_FORMAT, _body(message)) is not None

    # ------------------------------------------------------------------ what is sent

    def _told(self, context: Context, request: ModelMessage, *, sent_here: bool = False) -> list[ModelMessage]:
        """A context as the framework's messages. It ends with a request, if only with one that has no words."""
        told = _headed(_messages(context, self._read, sent_here=sent_here), self._system or ())
        self._asks = context.numbers[-1] if context.numbers else 0
        if isinstance(request, ModelRequest) and not (told and isinstance(told[-1], ModelRequest)):
            self._asks = 0
            told = [*told, replace(request, parts=[])]
        return told

    async def _processed(
        self, ctx: RunContext[Any], request_context: ModelRequestContext, context: Context
    ) -> list[ModelMessage]:
        """What is sent in place of a context that was rejected. The framework has its processors of history go over a
        request once; so they go over this one here."""
        again = copy(request_context)
        again.messages = self._told(context, request_context.messages[-1], sent_here=RetryModelRequest is None)
        for capability in ctx.capabilities.values():
            if isinstance(capability, ProcessHistory):
                again = await capability.before_model_request(replace(ctx, messages=list(again.messages)), again)
        return list(again.messages)


def summarize_with(model: Model | str, *, window: int = 100_000, name: str | None = None) -> Summarizer:
    """A summarizer that asks a model through the framework: by its name, or a `Model`. A small, cheap one will do.

    `window` is how many tokens it reads at once; `name` is what the record of a compaction calls it.
    """

    async def ask(system: str, user: str, limit: int) -> ModelReply:
        prompt = ModelRequest(parts=[SystemPromptPart(system), UserPromptPart(user)])
        answer = await model_request(model, [prompt], model_settings=ModelSettings(max_tokens=limit))
        used = answer.usage
        cut_off = answer.finish_reason == "length"
        return ModelReply(answer.text or "", used.input_tokens or None, used.output_tokens or None, cut_off)

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


def _messages(
    context: Context, read: dict[tuple[int, int], ModelMessage], *, sent_here: bool = False
) -> list[ModelMessage]:  # fmt: skip
    """A context as the framework's messages. What was `read` already stays the objects that it is, but for messages
    from before the segment: they are told without what the model thought, or, behind a provider's item, with it. What
    stands for a result that is not there, the framework makes up in its own words, unless a request is `sent_here`."""
    told_as = -context.segment if context.item else context.segment
    marks = [(number, told_as if number < context.segment else 0) for number in context.numbers]
    all_rows = zip(marks, context.formats, context.messages, strict=True)
    rows = [row for row in all_rows if row[0][0] or row[1] != _FORMAT or sent_here]
    new = [(mark, body) for mark, format, body in rows if mark[0] and format == _FORMAT and mark not in read]
    made = ModelMessagesTypeAdapter.validate_python([body for _, body in new])
    read.update(zip((mark for mark, _ in new), made, strict=True))
    told: list[ModelMessage] = []
    for known, some in groupby(rows, key=lambda row: row[0] in read):
        if known:
            told += [read[mark] for mark, _, _ in some]
        else:
            bodies = convert([(format, body) for _, format, body in some], _FORMAT)
            told += ModelMessagesTypeAdapter.validate_python(bodies)
    return told


def _system(messages: Sequence[ModelMessage]) -> list[ModelRequestPart]:
    """The system prompt of the agent: the framework puts it before the first prompt of a run."""
    first = messages[0] if messages else None
    return _opening(first.parts) if isinstance(first, ModelRequest) else []


def _headed(messages: list[ModelMessage], system: Sequence[ModelRequestPart]) -> list[ModelMessage]:
    """A context with the agent's system prompt once, at its head, and not before the prompt of every run in it. Without
    one from the framework, which gives none to a run with a history, it is the one that the context begins with."""
    system = list(system) or _system(messages)
    if not system:
        return messages
    if system == _system(messages):
        return [messages[0], *map(_bare, messages[1:])]
    bare = [*map(_bare, messages)]
    if bare and isinstance(bare[0], ModelRequest):
        return [replace(bare[0], parts=[*system, *bare[0].parts]), *bare[1:]]
    return [ModelRequest(parts=[*system]), *bare]


def _bare(message: ModelMessage) -> ModelMessage:
    if isinstance(message, ModelRequest) and (opening := _opening(message.parts)):
        return replace(message, parts=message.parts[len(opening) :])
    return message


def _opening(parts: Sequence[ModelRequestPart]) -> list[ModelRequestPart]:
    """The system prompt that opens a request with more in it."""
    after = next((n for n, part in enumerate(parts) if not isinstance(part, SystemPromptPart)), 0)
    return list(parts[:after])


def _suspended(message: ModelMessage) -> bool:
    """Whether the provider is not done with an answer. Once it is, the framework puts the whole in its place."""
    return isinstance(message, ModelResponse) and message.state == "suspended"


# ---------------------------------------------------------------------- a history that is passed in


def open_end(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """What comes after the last answer that asks for no tool: a question, and the calls that are made for it."""
    closed = (n for n, m in enumerate(messages) if isinstance(m, ModelResponse) and not m.tool_calls)
    return list(messages[max(closed, default=-1) + 1 :])


def same(one: ModelMessage, other: ModelMessage) -> bool:
    """Whether two messages say the same, whenever that was. The system prompt is the agent's, and may have changed."""
    here, there = _said(one), _said(other)
    return type(one) is type(other) and len(here) == len(there) and all(map(_alike, here, there))


def _alike(part: dict[str, Json], other: dict[str, Json]) -> bool:
    """Whether two parts say the same. A result that is a line in one of them is the result itself."""
    line = was_line(part.get("content")) or was_line(other.get("content"))
    return part == other or (line and _bare_part(part) == _bare_part(other))


def _bare_part(part: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in part.items() if name != "content"}


def _said(message: ModelMessage) -> list[dict[str, Json]]:
    parts = _body(message)["parts"]
    return [{k: v for k, v in p.items() if k != "timestamp"} for p in parts if p["part_kind"] != "system-prompt"]
