"""A middleware for LangChain's `create_agent`, in place of `SummarizationMiddleware`: the journal is the record.

Whatever comes into an agent's state is written to the session, once, by its id. Before each call of the model the state
becomes the session's context: what any process said before, with a summary in place of what was compacted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

import orjson
from anyio import to_thread
from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.chat_models import BaseChatModel, init_chat_model
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime

from onefold import Compactor, Context, Limits, Policy, Session, aio
from onefold.aio.threads import in_thread
from onefold.compaction.summarizer import Summarizer
from onefold.errors import InvalidMessage, OnefoldError
from onefold.integrations.common import LazyStore, ModelReply, StoreOrAddress, by_model, overflowed
from onefold.integrations.dedup import append_new
from onefold.integrations.handle_cache import HandleCache
from onefold.integrations.seen_cache import SeenCache
from onefold.messages import codec, encode
from onefold.messages.result_mask import is_line
from onefold.model import Json

FORMAT = "langchain"
OURS = "onefold:"
"""How the ids of messages begin that no record holds: a summary, notes, facts, a result that never came."""
_QUIET: Any = {"tags": ["nostream"], "metadata": {"lc_source": "summarization"}}
"""The summarizer's words are not the agent's: they are not streamed with them."""


class OnefoldMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Give it to `create_agent(middleware=[…])`, first in the list, so that it sees messages as the others leave them.

    The session is `session`, or else the `thread_id` of the run's config. Summaries are written by `summarizer`, or by
    `model`, a chat model or its name; without either by `onefold.extract`. Without a `policy` the store's holds, with
    the window of `model`, if that is known.
    """

    def __init__(
        self,
        store: StoreOrAddress,
        model: str | BaseChatModel | None = None,
        *,
        session: str | None = None,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__()
        self._place = LazyStore(store)
        self._model = init_chat_model(model) if isinstance(model, str) else model
        self._summarizer = summarizer
        self._session = session
        self._policy = policy
        self._written = SeenCache()
        self._sync: _Sync | None = None
        self._async: _Async | None = None

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        self._place.close()

    # ------------------------------------------------------------------ for `invoke` and `stream`

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Writes what is new, and puts what the model is to be sent in place of the state's messages."""
        blocking, messages = self._blocking(), state["messages"]
        session = blocking.session(self._id())
        record(session, messages, self._written)
        asked = blocking.compactor.before_turn if _begins(messages) else blocking.compactor.mid_turn
        return self._update(session.id, messages, asked(session, usage=_usage(messages)))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Asks again with a smaller context, when the provider says that this one is too long for it."""
        while True:
            try:
                return handler(request)
            except Exception as error:
                if not _overflowed(error):
                    raise
                blocking = self._blocking()
                context = blocking.compactor.after_overflow(blocking.session(self._id()), error)
                request = request.override(messages=_spoken(_messages(context, request.messages)))

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Writes the answer before anybody acts on it."""
        record(self._blocking().session(self._id()), state["messages"], self._written)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Writes what came last without going to the model: the result of a tool that ends the run."""
        record(self._blocking().session(self._id()), state["messages"], self._written)

    # ------------------------------------------------------------------ for `ainvoke` and `astream`

    async def abefore_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        awaiting, messages = await self._awaiting(), state["messages"]
        session = await awaiting.session(self._id())
        await in_thread(partial(record, session.blocking, messages, self._written))
        asked = awaiting.compactor.before_turn if _begins(messages) else awaiting.compactor.mid_turn
        return self._update(session.id, messages, await asked(session, usage=_usage(messages)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        while True:
            try:
                return await handler(request)
            except Exception as error:
                if not _overflowed(error):
                    raise
                awaiting = await self._awaiting()
                context = await awaiting.compactor.after_overflow(await awaiting.session(self._id()), error)
                request = request.override(messages=_spoken(_messages(context, request.messages)))

    async def aafter_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        session = await (await self._awaiting()).session(self._id())
        await in_thread(partial(record, session.blocking, state["messages"], self._written))

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        await self.aafter_model(state, runtime)

    # ------------------------------------------------------------------ small parts

    def _update(self, session: str, messages: Sequence[AnyMessage], context: Context) -> dict[str, Any] | None:
        wanted = _messages(context, messages)
        if wanted == list(messages):
            return None
        known = self._written.of(session)  # of the state's; the others come from the journal
        self._written.keep(session, _prints(wanted, known))
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *wanted]}

    def _id(self) -> str:
        if self._session is not None:
            return self._session
        thread = get_config().get("configurable", {}).get("thread_id")
        if thread is None:
            raise OnefoldError(
                "OnefoldMiddleware does not know which session this run belongs to: give it session=…, or invoke the "
                'agent with config={"configurable": {"thread_id": …}}'
            )
        return str(thread)

    def _blocking(self) -> _Sync:
        if self._sync is None:
            store = self._place.opened()
            compactor = Compactor(store, self._summarizes(_in_a_thread), self._limits(store.policy))
            self._sync = _Sync(store.session, compactor)
        return self._sync

    async def _awaiting(self) -> _Async:
        if self._async is None:
            store = await self._place.store()
            compactor = aio.Compactor(store, self._summarizes(_in_the_loop), self._limits(store.policy))
            self._async = _Async(store.session, compactor)
        return self._async

    def _summarizes(self, ask: Callable[[BaseChatModel, list[BaseMessage]], Awaitable[Any]]) -> Summarizer | None:
        if self._summarizer is not None or self._model is None:
            return self._summarizer
        return by_model(_name(self._model), partial(_asked, self._model, ask), window=_window(self._model) or 100_000)

    def _limits(self, of_store: Policy) -> Policy:
        window = _window(self._model)
        if self._policy is not None or of_store.limits is not None or window is None:
            return self._policy or of_store
        return replace(of_store, limits=Limits(window, min(8_000, window // 8)))


@dataclass(frozen=True, slots=True)
class _Sync:
    made: Callable[[str], Session]
    compactor: Compactor
    handles: HandleCache[Session] = field(default_factory=HandleCache)

    def session(self, id: str) -> Session:
        return self.handles.get(id) or self.handles.keep(id, self.made(id))


@dataclass(frozen=True, slots=True)
class _Async:
    made: Callable[[str], Awaitable[aio.Session]]
    compactor: aio.Compactor
    handles: HandleCache[aio.Session] = field(default_factory=HandleCache)

    async def session(self, id: str) -> aio.Session:
        return self.handles.get(id) or self.handles.keep(id, await self.made(id))


# ---------------------------------------------------------------------- from the state to the journal


def record(session: Session, messages: Sequence[BaseMessage], written: SeenCache) -> None:
    """Writes messages that are not in the journal yet, by their ids. One that was changed since is written again, but
    for calls and results: they stay as they were said."""
    before, now = written.of(session.id), _prints(messages)
    new = [m for m in messages if (mark := now.get(m.id or "")) is None or before.get(m.id or "") != mark]
    said = [(f"message-{m.id}" if m.id else None, _body(m)) for m in new if _is_said(m)]
    append_new(session, said, FORMAT, changes=True)
    written.keep(session.id, now)


def _prints(messages: Sequence[BaseMessage], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """A print of each message that has an id and holds nothing but data; those that are known stay as they are."""
    found = {m.id: known[m.id] if known and m.id in known else _print(m) for m in messages if m.id and _is_said(m)}
    return {id: mark for id, mark in found.items() if mark is not None}


def _print(message: BaseMessage) -> int | None:
    """Another one after every change, also after one in place. All messages are looked at like this at each hook: it
    costs a fiftieth of looking for one in the journal."""
    try:
        return hash(orjson.dumps((type(message).__qualname__, message.__dict__, message.__pydantic_extra__)))
    except orjson.JSONEncodeError:
        return None


def _is_said(message: BaseMessage) -> bool:
    return not isinstance(message, RemoveMessage) and not (message.id or "").startswith(OURS)


def _body(message: BaseMessage) -> Json:
    body = message_to_dict(message)
    try:
        encode(body["data"].get("artifact"))
    except InvalidMessage:  # what a tool keeps for the program and the model never sees: it stays in the agent's state
        body["data"]["artifact"] = None
    return body


# ---------------------------------------------------------------------- from the journal to the state


def _messages(context: Context, state: Sequence[AnyMessage]) -> list[AnyMessage]:
    """A context as LangChain's messages. Those that the state has stay the objects they are, but for what the model
    thought before the segment, and for results that are masked or no longer are; of one that was changed, the newest
    counts, in the place of the first. Every call has one result: no provider takes it without, or twice."""
    known = {m.id: m for m in state if m.id}
    rows = zip(context.numbers, context.formats, context.messages, strict=True)
    old = {m["data"].get("id") for number, format, m in rows if format == FORMAT and number < context.segment}
    told: dict[str, AnyMessage] = {}
    for at, body in enumerate(context.to(FORMAT)):
        id = str(body["data"].get("id") or f"{OURS}{context.segment}:{at}")
        again = id not in known or (id in old and _thoughtful(known[id])) or _masked(known[id], body)
        told[id] = _message(body, id) if again else known[id]
    return _answered(list(told.values()))


def _thoughtful(message: AnyMessage) -> bool:
    """Whether there is reasoning in it."""
    body = message_to_dict(message)
    return codec(FORMAT).unthought(body) is not body


def _masked(message: AnyMessage, body: Json) -> bool:
    """Whether a result is a line here or there."""
    return isinstance(message, ToolMessage) and (is_line(message.content) or is_line(body["data"].get("content")))


def _message(body: Json, id: str) -> AnyMessage:
    message: Any = messages_from_dict([body])[0]
    message.id = id
    return message


def _answered(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """With one result for each call, right behind it."""
    whole: list[AnyMessage] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        whole.append(message)
        if isinstance(message, AIMessage):
            behind = [*takewhile(lambda m: isinstance(m, ToolMessage), rest)]
            del rest[: len(behind)]
            whole += _one_each(message, behind)
    return whole


def _one_each(answer: AIMessage, behind: Sequence[Any]) -> list[AnyMessage]:
    """A real result rather than one that was made up. What is missing, another run of this session is still at; but a
    call that could not be read, nobody is: the model is told what was wrong with it."""
    results: dict[str, ToolMessage] = {}
    for result in behind:
        if result.tool_call_id not in results or not _is_said(results[result.tool_call_id]):
            results[result.tool_call_id] = result
    for malformed in answer.invalid_tool_calls:
        id = malformed["id"]
        if id and (id not in results or not _is_said(results[id])):
            results[id] = _no_result(id, _unreadable(malformed))
    for call in answer.tool_calls:
        if (id := call["id"]) and id not in results:
            results[id] = _no_result(id, "(no result yet: another run of this session is at it)")
    return [*results.values()]


def _no_result(call: str, why: str) -> ToolMessage:
    return ToolMessage(why, tool_call_id=call, id=f"{OURS}{call}", status="error")


def _unreadable(call: InvalidToolCall) -> str:
    what = f"the arguments of this call of {call['name'] or 'a tool'} are malformed or cut off, so it was not run"
    return f"(no result: {what}{': ' + call['error'] if call['error'] else ''}. Make the call again, with valid JSON)"


def _spoken(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """A request has its system prompt apart."""
    return [m for m in messages if not isinstance(m, SystemMessage)]


def _begins(messages: Sequence[AnyMessage]) -> bool:
    return not messages or isinstance(messages[-1], HumanMessage)


def _usage(messages: Sequence[AnyMessage]) -> int | None:
    """What the provider said of its last input."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message.usage_metadata["input_tokens"] if message.usage_metadata else None
    return None


# ---------------------------------------------------------------------- the chat model


async def _asked(
    model: BaseChatModel,
    ask: Callable[[BaseChatModel, list[BaseMessage]], Awaitable[Any]],
    system: str,
    user: str,
    limit: int,
) -> ModelReply:
    answer = await ask(model, [SystemMessage(system), HumanMessage(user)])
    usage = answer.usage_metadata or {}
    ended = {answer.response_metadata.get(name) for name in ("finish_reason", "stop_reason")}
    cut_off = bool(ended & {"length", "max_tokens", "MAX_TOKENS"})
    return ModelReply(answer.text, usage.get("input_tokens"), usage.get("output_tokens"), cut_off)


async def _in_the_loop(model: BaseChatModel, messages: list[BaseMessage]) -> Any:
    return await model.ainvoke(messages, config=_QUIET)


async def _in_a_thread(model: BaseChatModel, messages: list[BaseMessage]) -> Any:
    """Of a program without an event loop: its clients are not for one."""
    return await to_thread.run_sync(partial(model.invoke, messages, config=_QUIET))


def _name(model: BaseChatModel) -> str:
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _window(model: BaseChatModel | None) -> int | None:
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, dict) else None
    return window if isinstance(window, int) and window > 0 else None


def _overflowed(error: Exception) -> bool:
    """LangChain has an error of its own for it, in newer versions and for some providers."""
    return any(kind.__name__ == "ContextOverflowError" for kind in type(error).__mro__) or overflowed(error)
