"""A session service for the Google Agent Development Kit: events are in the journal, and compaction is onefold's.

ADK looks at all events of a session, to route, to resume and to rewind; what a model is sent, it makes of them itself.
So a session comes with all its events, and a compaction as ADK expects it: an event that stands for others. That event
is in no journal. It is derived from the segment in force whenever a session is read, so there is one, whoever reads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote
from weakref import WeakSet

from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.registry import LLMRegistry
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types
from pydantic_core import to_jsonable_python

from onefold import Context, Policy, aio
from onefold.aio.threads import in_thread
from onefold.compaction.summarizer import Summarizer, SummaryInput
from onefold.errors import KeyConflict, OnefoldError, OutcomeUnknown, SessionNotFound, StaleHandle, SummarizerFailed
from onefold.ids import random_id
from onefold.integrations.common import LazyStore, ModelReply, StoreOrAddress, below, by_model
from onefold.integrations.dedup import without_lines
from onefold.integrations.handle_cache import HandleCache
from onefold.journal import lineage
from onefold.messages import convert
from onefold.messages.codecs import OPENAI_CHAT
from onefold.messages.context_text import EARLIER, PINNED, PINNED_END
from onefold.messages.result_mask import masked
from onefold.model import MESSAGE, AppendResult, Ids, Json, Record, Summary
from onefold.session import Session as Handle
from onefold.storage.base import Transaction

FORMAT = "google-adk"
OURS = "onefold-"
"""How the ids of events begin that were not made by ADK: a summary, and what another program wrote."""
CREATED = "adk.created"
"""The kind of the record that a session of ADK begins with: the state it was given. No message, so in no context."""


class OnefoldSessionService(BaseSessionService):
    """Give it to a `Runner`. One for all sessions, tasks and processes.

    Summaries are written by `summarizer`, a function of onefold's or one of ADK's own, or else by `model`, an ADK model
    or its name; without either by `onefold.extract`.

    A session's id in the store is `app/user/session`. What its user's sessions share is in a session `app/user`, what
    all share in one named `app`.
    """

    def __init__(
        self,
        store: StoreOrAddress,
        model: str | BaseLlm | None = None,
        *,
        summarizer: Summarizer | BaseEventsSummarizer | None = None,
        policy: Policy | None = None,
        ids: Ids = random_id,
    ) -> None:
        self._place = LazyStore(store)
        self._summarizer = _summarizer(model, summarizer)
        self._policy = policy
        self._ids = ids
        self._handles: HandleCache[aio.Session] = HandleCache()
        self._passed_over: WeakSet[Handle] = WeakSet()
        """Whose last context the compactor has not seen: what the provider says of that goes with none it knows."""
        self._made: aio.Compactor | None = None

    def close(self) -> _Closed:
        """Closes the store, if it was opened here. It is closed when this returns, and may be awaited like ADK's own.
        In an event loop `async with` or `aclose` is better: this waits."""
        self._place.close()
        return _Closed()

    async def aclose(self) -> None:
        await self._place.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------ sessions

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """`AlreadyExistsError` for an id that is there, and for one that was deleted: it stays taken."""
        id = (session_id or "").strip() or self._ids()
        name = journal_id(app_name, user_id, id)
        given, first = _jsonable(state or {}), self._ids()
        try:
            handle = await (await self._place.store()).session(name)
            await in_thread(partial(_create, handle.blocking, {"id": first, "state": given}))
        except KeyConflict:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from None
        except SessionNotFound as gone:
            raise AlreadyExistsError(f"Session with id {id} existed and its id stays taken: {gone}.") from gone
        await self._share(app_name, user_id, first, given)
        return await self._read(app_name, user_id, id, handle, events=True)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """A session with all its events, and the summary in force as one of them; or those that the config asks for."""
        handle = await self._found(app_name, user_id, session_id.strip())
        if handle is None:
            return None
        session = await self._read(app_name, user_id, session_id.strip(), handle, events=True)
        session.events = _asked_for(session.events, config)
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """All of them, the latest activity last, without events."""
        found: list[Session] = []
        store = await self._place.store()
        async for state in below(store, journal_id(app_name, *(() if user_id is None else (user_id,)))):
            if state.id.count("/") != 2:
                continue  # what a user's sessions share
            user, id = (unquote(part) for part in state.id.split("/")[1:])
            with suppress(SessionNotFound):  # it may be deleted since it was met
                found.append(await self._read(app_name, user, id, await store.session(state.id, create=False)))
        found.sort(key=lambda s: (s.last_update_time, s.user_id, s.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """For good, and its id stays taken, so that a run that is late does not make it again."""
        store = await self._place.store()
        try:
            await store.delete(journal_id(app_name, user_id, session_id.strip()))
        except SessionNotFound:
            return  # never there, or deleted before

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._shared(app_name, user_id)

    # ------------------------------------------------------------------ events

    async def append_event(self, session: Session, event: Event) -> Event:
        """Writes an event, once by its id; then sees to it that what the model is sent next fits.

        What an event shares with other sessions is written before it. So whatever event is in the journal, all of its
        effects are. `SessionNotFoundError` of ADK if the session is not there, or not any more.
        """
        if event.partial:
            return event
        body = _body(event)
        try:
            handle = await self._handle(session.app_name, session.user_id, session.id)
            if not await in_thread(partial(without_lines, handle.blocking, [body], FORMAT)):
                return event  # a masked result, as it was shown: the journal has it whole
            await self._share(session.app_name, session.user_id, event.id, _jsonable(event.actions.state_delta))
            written = await _append(handle, body, f"event-{event.id}")
        except SessionNotFound as gone:
            raise SessionNotFoundError(f"Session {session.id} not found: {gone}.") from gone
        shown = written.duplicate and any(known.id == event.id for known in session.events)
        if not shown and not written.hidden:  # what was taken back does not come back by being written again
            await super().append_event(session, event)
        session.last_update_time = event.timestamp
        alone = _Seen.step(session, written.numbers[0])
        if event.actions.rewind_before_invocation_id:
            await in_thread(partial(_rewind, handle.blocking, event.actions.rewind_before_invocation_id))
            session.events[:] = await _events(handle, await handle.context())
        elif _asks(event):
            await self._fit(session, handle, event, alone)
        return event

    async def _fit(self, session: Session, handle: aio.Session, event: Event, alone: bool) -> None:
        """Has the session compacted if it is time, and brings what others said since to this run."""
        compactor = await self._compactor()
        state = await handle.state
        roomy = state.open is None and 2 * state.tokens < compactor.policy.of().soft_tokens
        if alone and roomy and _Seen.of(session) == _Seen(state.last, state.head):
            self._passed_over.add(handle.blocking)
            return  # far from any limit, and nothing is new to it: the context need not be read
        asked = compactor.before_turn if event.author == "user" else compactor.mid_turn
        usage = None if handle.blocking in self._passed_over else _usage(session.events)
        self._passed_over.discard(handle.blocking)
        context = await asked(handle, usage=usage)
        now = _Seen(context.last, context.segment)
        if not alone or _Seen.of(session) != now:
            session.events[:] = await _events(handle, context)
        now.remember(session)

    # ------------------------------------------------------------------ what sessions share

    async def _share(self, app: str, user: str, event: str, delta: dict[str, Any]) -> None:
        shared = ((State.APP_PREFIX, quote(app, safe="")), (State.USER_PREFIX, journal_id(app, user)))
        for prefix, id in shared:
            own = {key.removeprefix(prefix): value for key, value in delta.items() if key.startswith(prefix)}
            if own:
                handle = await (await self._place.store()).session(id, keeper="agent")
                await _append(handle, {"event": event, "state": own}, f"event-{event}", "json")

    async def _shared(self, *of: str) -> dict[str, Any]:
        handle = await self._found(*of)
        state: dict[str, Any] = {}
        if handle is not None:
            async for record in handle.read():
                if record.kind == MESSAGE:
                    state |= record.body["state"]
        return state

    # ------------------------------------------------------------------ small parts

    async def _read(self, app: str, user: str, id: str, handle: aio.Session, *, events: bool = False) -> Session:
        """A session as it is now, with its events or without."""
        shown = await in_thread(partial(_shown, handle.blocking)) if events else None
        said = await in_thread(partial(_visible, handle.blocking, shown.seen if shown else None))
        state = _state(said)
        state |= {State.APP_PREFIX + k: v for k, v in (await self._shared(app)).items()}
        state |= {State.USER_PREFIX + k: v for k, v in (await self._shared(app, user)).items()}
        told = await in_thread(partial(_told, said, shown.context)) if shown else []
        newest = said[-1].body.get("timestamp", said[-1].at) if said and said[-1].format == FORMAT else None
        updated = newest if newest is not None else said[-1].at if said else 0.0
        session = Session(app_name=app, user_id=user, id=id, state=state, events=told, last_update_time=updated)
        if shown is not None:
            shown.seen.remember(session)
        return session

    async def _handle(self, *of: str) -> aio.Session:
        id = journal_id(*of)
        known = self._handles.get(id)
        if known is not None:
            return known
        return self._handles.keep(id, await (await self._place.store()).session(id, create=False))

    async def _found(self, *of: str) -> aio.Session | None:
        """A handle that looks again whether the session is there."""
        try:
            return await (await self._place.store()).session(journal_id(*of), create=False)
        except SessionNotFound:
            return None

    async def _compactor(self) -> aio.Compactor:
        if self._made is None:
            self._made = aio.Compactor(await self._place.store(), self._summarizer, self._policy)
        return self._made


class _Closed:
    """What there is to await when something is closed already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def journal_id(*names: str) -> str:
    """The id in the store, by app, user and session. A slash in a name is written as %2F, so that no two share one."""
    return "/".join(quote(name, safe="") for name in names)


@dataclass(frozen=True, slots=True)
class _Seen:
    """How far a session that ADK holds has come: kept where ADK has a place for it."""

    last: int
    segment: int

    @staticmethod
    def of(session: Session) -> _Seen | None:
        last, _, segment = (session._storage_update_marker or "").partition(":")
        return _Seen(int(last), int(segment)) if segment else None

    @staticmethod
    def step(session: Session, number: int) -> bool:
        """Takes note of an event of this run's own. False if others wrote before it, whose words it does not have."""
        seen = _Seen.of(session)
        if seen is None or seen.last + 1 != number:
            return False
        _Seen(number, seen.segment).remember(session)
        return True

    def remember(self, session: Session) -> None:
        session._storage_update_marker = f"{self.last}:{self.segment}"


# ---------------------------------------------------------------------- writing


async def _append(handle: aio.Session, body: Json, key: str, format: str = FORMAT) -> AppendResult:
    """Once for a key, also if the store cannot tell at first whether it was written."""
    try:
        return await handle.append(body, key=key, format=format)
    except OutcomeUnknown:
        return await handle.append(body, key=key, format=format)


def _create(handle: Handle, body: Json) -> None:
    """Once for a session: `KeyConflict` if somebody else created it."""
    first = [handle.journal.draft(CREATED, body)]
    try:
        handle.journal.append(handle.id, first, key=CREATED)
    except OutcomeUnknown:
        handle.journal.append(handle.id, first, key=CREATED)


def _body(event: Event) -> dict[str, Json]:
    """An event as it is kept: without what is only for the run that it is of."""
    body: dict[str, Json] = event.model_dump(mode="json", exclude_none=True)
    if delta := body.get("actions", {}).get("state_delta"):
        body["actions"]["state_delta"] = {k: v for k, v in delta.items() if not k.startswith(State.TEMP_PREFIX)}
    return body


def _jsonable(state: dict[str, Any]) -> dict[str, Any]:
    return dict(to_jsonable_python(state, fallback=str))


def _rewind(handle: Handle, invocation: str) -> None:
    """Hides what ADK takes back, so that no summary tells it. If others spoke meanwhile, ADK alone leaves it out."""
    handle.context()
    said = [r for r in _visible(handle) if r.format == FORMAT]
    first = next((r.number for r in said if r.body.get("invocation_id") == invocation), None)
    if first is not None:
        try:
            handle.rewind(first - 1)
        except StaleHandle:
            return


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class _Shown:
    seen: _Seen
    context: Context | None
    """None where every event stands for itself: nothing was compacted, and nothing is noted."""


def _shown(handle: Handle) -> _Shown:
    def read_shown(tx: Transaction) -> _Seen | None:
        state = lineage.get_session(tx, handle.id)
        head = lineage.segment(tx, handle.id, state.head)
        if head is None or head.cut > 1 or head.summary is not None or head.masked:
            return None
        noted = lineage.load_pins_and_notes(tx, handle.id, state.last + 1, head.hidden).notes
        return None if noted else _Seen(state.last, state.head)

    if (seen := handle.journal.backend.read(read_shown)) is not None:
        return _Shown(seen, None)
    context = handle.context()
    return _Shown(_Seen(context.last, context.segment), context)


async def _events(handle: aio.Session, context: Context) -> list[Event]:
    said = await in_thread(partial(_visible, handle.blocking, _Seen(context.last, context.segment)))
    return await in_thread(partial(_told, said, context))


def _visible(handle: Handle, seen: _Seen | None = None) -> list[Record]:
    """What a session began with, and every message that was not taken back, whatever was compacted."""
    segments = handle.segments()
    head = next((s for s in segments if seen is not None and s.number == seen.segment), segments[-1])
    hidden = head.hidden
    stop = None if seen is None else seen.last + 1
    return [
        r
        for r in handle.read(1, stop)
        if r.kind in (MESSAGE, CREATED) and not any(a <= r.number <= b for a, b in hidden)
    ]


def _told(said: Sequence[Record], context: Context | None) -> list[Event]:
    """All events, in order; among them what stands for those that the context leaves out, where it was decided.

    A call that was given up stays as it is: ADK leaves calls out that have no response, but for those it waits for.
    """
    masks = {*context.masked} if context is not None else set()
    shown = (_shortened(record) if record.number in masks else record for record in said if record.kind == MESSAGE)
    told = [(record.number, event) for record in shown for event in _of(record)]
    if context is None:
        return [event for _, event in told]
    before = [event for number, event in told if number < context.segment]
    return [*before, *_summary(told, context), *(event for number, event in told if number > context.segment)]


def _shortened(record: Record) -> Record:
    return record._replace(body=masked(record.format, record.body, record.number) or record.body)


def _of(record: Record) -> list[Event]:
    if record.format == FORMAT:
        return [Event.model_validate(record.body)]
    made = convert([(record.format or "json", record.body)], FORMAT)
    return [
        Event.model_validate(body | {"id": f"{OURS}{record.number}-{n}", "timestamp": record.at})
        for n, body in enumerate(made)
    ]


def _summary(told: Sequence[tuple[int, Event]], context: Context) -> list[Event]:
    """What stands for everything that the context leaves out, and the notes that are in every one.

    ADK takes events out by their time: so there is a summary for each stretch of time in which nothing is left to be
    shown, and all but the first are empty.
    """
    rows = zip(context.numbers, context.formats, context.messages, strict=True)
    noted = {0, context.segment, *(number for number in context.numbers if number not in {n for n, _ in told})}
    words = [m["content"] for n, format, m in rows if format == OPENAI_CHAT and n in noted and "content" in m]
    texts = [text for text in words if text not in (EARLIER, PINNED, PINNED_END)]
    if not texts:
        return []
    shown = {*context.numbers, *context.left_out}
    gone = [e.timestamp for n, e in told if n not in shown]
    stretches = left_out(gone, [e.timestamp for n, e in told if n in shown]) or [(0.0, 0.0)]
    parts = [types.Part(text="\n\n".join(texts))]
    return [
        Event(
            id=f"{OURS}{context.segment}-{n}",
            author="user",
            invocation_id=f"{OURS}{context.segment}",
            timestamp=end,
            actions=EventActions(
                compaction=EventCompaction(
                    start_timestamp=start,
                    end_timestamp=end,
                    compacted_content=types.Content(role="user", parts=[] if n else parts),
                )
            ),
        )
        for n, (start, end) in enumerate(stretches)
    ]


def left_out(gone: Iterable[float], shown: Iterable[float]) -> list[tuple[float, float]]:
    """Stretches of time that have all that is gone and nothing that is shown. Of two at the same moment, both stay."""
    stay = {*shown}
    stretches: list[tuple[float, float]] = []
    goes_on = False
    for at in sorted({*gone} | stay):
        if at in stay:
            goes_on = False
        elif goes_on:
            stretches[-1] = (stretches[-1][0], at)
        else:
            stretches.append((at, at))
            goes_on = True
    return stretches


def _state(said: Iterable[Record]) -> dict[str, Any]:
    """A session's own state, by everything that ever changed it and was not taken back."""
    state: dict[str, Any] = {}
    shared = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    for record in said:
        delta: dict[str, Any] = {}
        if record.kind == CREATED:
            delta = record.body["state"]
        elif record.format == FORMAT:
            delta = record.body.get("actions", {}).get("state_delta") or {}
        state |= {key: value for key, value in delta.items() if not key.startswith(shared)}
    return state


def _asked_for(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is not None and config.after_timestamp is not None:
        events = [e for e in events if e.timestamp >= config.after_timestamp]
    if config is not None and config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    return events


def _asks(event: Event) -> bool:
    """Whether a model is asked next: after what a user said, and after what tools gave."""
    return event.author == "user" or bool(event.get_function_responses())


def _usage(events: Sequence[Event]) -> int | None:
    """What the provider said of its last input, unless a summary has replaced that."""
    for event in reversed(events):
        if event.actions.compaction:
            return None
        if event.usage_metadata and event.usage_metadata.prompt_token_count:
            return int(event.usage_metadata.prompt_token_count)
    return None


# ---------------------------------------------------------------------- summaries


def _summarizer(model: str | BaseLlm | None, summarizer: Summarizer | BaseEventsSummarizer | None) -> Summarizer | None:
    if isinstance(summarizer, BaseEventsSummarizer):
        return _by_events(summarizer)
    if summarizer is not None or model is None:
        return summarizer
    llm = LLMRegistry.new_llm(model) if isinstance(model, str) else model
    return by_model(llm.model, partial(_ask, llm))


async def _ask(llm: BaseLlm, system: str, user: str, limit: int) -> ModelReply:
    config = types.GenerateContentConfig(system_instruction=system, max_output_tokens=limit)
    contents = [types.Content(role="user", parts=[types.Part(text=user)])]
    told = ModelReply("")
    async for answer in llm.generate_content_async(LlmRequest(model=llm.model, contents=contents, config=config)):
        if answer.error_code:
            raise OnefoldError(f"{llm.model} answered with an error: {answer.error_code} {answer.error_message or ''}")
        usage = answer.usage_metadata
        told = ModelReply(
            _words(answer.content),
            usage.prompt_token_count if usage else None,
            usage.candidates_token_count if usage else None,
            answer.finish_reason == types.FinishReason.MAX_TOKENS,
        )
    return told


def _by_events(summarizer: BaseEventsSummarizer) -> Summarizer:
    """A summarizer that is made for ADK's own compaction."""
    name = type(summarizer).__name__

    async def summarize(material: SummaryInput) -> Summary:
        events = [event for record in material.records for event in _of(record)]
        if material.previous:
            before = types.Content(role="model", parts=[types.Part(text=material.previous)])
            events.insert(0, Event(author="model", content=before))
        made = await summarizer.maybe_summarize_events(events=events)
        if made is None or made.actions.compaction is None:
            raise SummarizerFailed(f"{name} made no summary of {len(events)} events", kind="garbage")
        return Summary(_words(made.actions.compaction.compacted_content), by=name)

    return summarize


def _words(content: types.Content | None) -> str:
    return "".join(p.text for p in (content.parts if content else None) or () if p.text and not p.thought)
