"""A room: one agent, one session, any number of clients.

All that happens in a room happens in one task, in the order it came: what the agent says, what clients ask, what the
journal tells. Nothing is passed on before it is kept: a prompt, a question and the end of a turn are in the journal,
every frame is among the raw ones. So whoever is told a number can resume from it, whatever crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from onefold.acp import detectors
from onefold.acp.agent_config import Agent, Redact
from onefold.acp.agent_requests import AgentRequests
from onefold.acp.backpressure import Backpressure
from onefold.acp.compactions import Compactions
from onefold.acp.frame_erasure import SAYS_NOTHING, settle
from onefold.acp.frame_log import FrameLog
from onefold.acp.members import Broadcast, Member, Members
from onefold.acp.prompt_queue import AGAIN, PromptQueue, SubmittedPrompt, fulfil
from onefold.acp.recorder import RoomRecorder
from onefold.acp.replay import ReplayPoint
from onefold.acp.room_errors import AUTH_REQUIRED, BUSY, RequestRejected, RoomClosed
from onefold.acp.room_journal import RoomJournal
from onefold.acp.supervisor import ANSWER, AgentSupervisor
from onefold.errors import OnefoldError, StoreError
from onefold.jsonrpc import Frame, error, notification
from onefold.model import Clock, Json, SessionState
from onefold.store import Store

T = TypeVar("T")
log = logging.getLogger("onefold.acp")

AT_ONCE = 256
"""What waits for a room at most; whoever sends more has to wait, and so does the agent."""
FIRST_WORD = 5.0
"""How long whoever starts an agent waits for its first word, before saying that it runs."""

_LATEST = frozenset(
    {
        "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
        "usage_update", "plan",
    }
)  # fmt: skip
"""Updates that say how it is now: a late joiner is told the newest of each."""

Phase = Literal["starting", "locked", "ready", "down", "closed"]
Work = Callable[[], Awaitable[None]]


class RoomServices(Protocol):
    """What a room needs of the place it is in."""

    @property
    def store(self) -> Store: ...
    @property
    def frames(self) -> FrameLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def redact(self) -> Redact | None: ...
    @property
    def compact_at(self) -> float | None: ...
    @property
    def idle(self) -> float: ...
    def environment(self, agent: Agent, /) -> dict[str, str]: ...
    def rest(self, room: Room, /) -> None: ...
    def told(self, session: str, /) -> None: ...

    async def in_thread(self, work: Callable[[], T], /) -> T: ...


class Room:
    """Begin with `open`, end with `close`. Everything else may be called from the same event loop."""

    def __init__(
        self, around: RoomServices, session: str, agent: Agent, *, cwd: str, servers: Sequence[Json] = ()
    ) -> None:
        self.session = session
        self.around = around
        self.phase: Phase = "starting"
        self.trouble: str | None = None
        """Why the agent is not there, for people."""
        self.in_thread = around.in_thread
        self.members = Members(session, self._has_left)
        self.room_journal = RoomJournal(around.store, session)
        self.recorder = RoomRecorder(around.frames, self.room_journal, self.members, around.redact, around.in_thread)
        self.process = AgentSupervisor(self, agent, cwd=cwd, servers=servers)
        self.prompts = PromptQueue(self)
        self.questions = AgentRequests(self)
        self.compactions = Compactions(self)
        self.pressure = Backpressure(self)
        self._inbox: asyncio.Queue[Work] = asyncio.Queue(AT_ONCE)
        self._soon: list[Work] = []
        self._task: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._bringing = 0
        """Who has something for the inbox and waits for a place in it."""
        self._wanted_at = around.clock()
        """When somebody was here last, or something was to do."""
        self._was_ready = self._closing = False
        """When it was closed, its agent could be talked to."""
        self._decided = asyncio.Event()
        """The agent can be talked to, or will not be."""
        self._latest: dict[str, Frame] = {}
        self.head = 0
        """The session's segment in force when this room last looked whether something was erased."""
        self._erased_at = 0

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Takes up what an earlier process left, and starts the agent. Returns at once; `ready` waits for the agent."""
        await self.in_thread(self.room_journal.open)
        await self.in_thread(partial(self.around.frames.admit, self.session))
        left = await self.in_thread(self.room_journal.left)
        turn = await self.in_thread(partial(self.room_journal.claim_of, left.turn)) if left.turn is not None else None
        await self.recorder.take_up(turn)
        await self.in_thread(partial(self.room_journal.settle_left, left, "onefold ended while the agent was at work"))
        await self.compactions.take_up()
        await self._heed()
        self.recorder.record = (await self.in_thread(self.room_journal.state)).last
        await self.prompts.changed()
        await self.process.remember()
        self._task = asyncio.create_task(self._run(), name=f"room {self.session}")
        self.process.rise()

    async def ready(self) -> None:
        """Waits until the agent can be talked to."""
        if self.phase == "down" and not self.process.ends:
            self.process.rise()
        try:
            async with asyncio.timeout(ANSWER):
                await self._decided.wait()
        except TimeoutError:
            why = f": {self.trouble}" if self.trouble else ""
            raise RequestRejected(f"the agent {self.process.agent.name!r} is not there{why}") from None
        if self.phase == "locked":
            ways = self.process.initialized.get("authMethods")
            raise RequestRejected(
                self.trouble or "the agent wants somebody to log in", AUTH_REQUIRED, {"authMethods": ways}
            )
        if self.phase == "down":
            raise RequestRejected(f"the agent {self.process.agent.name!r} is not there: {self.trouble}")
        if self.phase == "closed":
            raise RoomClosed(self.session)

    async def begun(self) -> None:
        """Waits for the first word of the agent, a while; raises if its command cannot be run, or ends without one."""
        with contextlib.suppress(TimeoutError):  # one that is slow may still be well
            async with asyncio.timeout(FIRST_WORD):
                await self.process.tried.wait()
        if self.process.cannot is not None:
            raise RequestRejected(self.process.cannot)

    async def greeted(self) -> dict[str, Json]:
        """What the agent answered to `initialize`."""
        if self.phase == "down":
            self.process.rise()
        async with asyncio.timeout(ANSWER):
            await self.process.greeted.wait()
        return self.process.initialized

    async def restart(self, by: str) -> None:
        """Ends the agent's process, whatever it does, and starts the next one: then this returns. What is lost is what
        a death of the agent loses, which is its turn. Two who ask at once restart it once."""
        if self.phase == "closed":
            raise RoomClosed(self.session)
        self._wanted_at = self.around.clock()
        log.warning("the agent is restarted", extra={"session": self.session, "client": by})
        await asyncio.shield(self.process.restart(f"{by} restarted it"))

    def seal(self) -> None:
        """From here on nobody comes in and nothing is begun; `close` does the rest."""
        if self.phase != "closed":
            self._was_ready = self.phase == "ready"
            self._becomes("closed")
            self._decided.set()

    def _becomes(self, phase: Phase) -> None:
        """No record says how the agent is now; so everybody is told to look, here and in the list of rooms."""
        if phase != self.phase:
            self.phase = phase
            self.members.tell(notification("onefold/phase", {"sessionId": self.session, "phase": phase}), None)
            self.around.told(self.session)

    async def close(self, why: str = "onefold ended", *, stay: bool = False) -> list[Member]:
        """Ends the agent, settles what is open, and disconnects everybody; a second call does nothing. With `stay`, the
        clients are not sent away: they are returned, for the next room of the session."""
        if self._closing:
            return []
        self._closing = True
        self.seal()
        await self.process.end()
        if self._task is not None and not self._task.done():
            done = asyncio.Event()

            async def last() -> None:
                try:
                    await self._settle_all(why, {"cause": why} if self._was_ready else None)
                    log.warning("the agent ended", extra={"session": self.session, "cause": why})
                finally:
                    await self._do(self._let_go)
                    done.set()

            await self._inbox.put(last)
            await done.wait()
            self._task.cancel()
        for task in self._others:
            task.cancel()
        staying = [member for member in self.members if member.send_queue.closed is None and not member.left]
        for member in staying:
            self.members.drop(member)
            if not stay:
                member.send_queue.close(why)
        return staying if stay else []

    async def _let_go(self) -> None:
        """Requests of the last moment are answered: a prompt is on disk and waits, all else is
        rejected. Nobody waits here for what another room will do."""
        while self._bringing or not self._inbox.empty():
            if self._inbox.empty():
                await asyncio.sleep(0)  # who waited for a place in it has one now
            else:
                await self._do(self._inbox.get_nowait())
        self.prompts.let_go()
        self.compactions.let_go()

    # ------------------------------------------------------------------ the one task

    async def _run(self) -> None:
        while True:
            await self._do(await self._inbox.get())
            for _ in range(AT_ONCE):
                if self._inbox.empty() or self.recorder.heavy:
                    break
                await self._do(self._inbox.get_nowait())
            while self._soon:
                await self._do(self._soon.pop(0))
            await self._do(self.recorder.commit)
            self.pressure.heed()

    async def _do(self, work: Work) -> None:
        try:
            await work()
        except Exception as trouble:  # one step that fails must not end the room; what it was is said
            known = isinstance(trouble, OnefoldError)
            log.error(
                "a step in a room failed: %s", trouble if known else type(trouble).__name__,
                extra={"session": self.session}, exc_info=None if known else trouble,
            )  # fmt: skip

    async def post(self, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Has something done in the room's own task, after all that came before it. From within, use `soon`."""
        self._bringing += 1
        try:
            await self._inbox.put(partial(work, *given))
        finally:
            self._bringing -= 1

    def soon(self, work: Work) -> None:
        """Has something done after the step that is being done."""
        self._soon.append(work)

    def later(self, seconds: float, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Has something done after a while."""
        asyncio.get_running_loop().call_later(seconds, lambda: self._start(self.post(work, *given)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def concerns(self, state: SessionState) -> bool:
        """Whether the room has to look, now that its session is so in the journal. From any thread."""
        return state.head != self.head or self.prompts.concerns(state.turn or 0)

    def poke(self) -> None:
        """The journal has news, or time has passed."""
        if self.phase != "closed" and not self._inbox.full():
            self._inbox.put_nowait(self._look)

    async def _look(self) -> None:
        state = await self._heed()
        await self.compactions.look()
        await self.prompts.look()
        await self.prompts.next()
        self._rest(state)

    def _rest(self, state: SessionState) -> None:
        """Lets the room end if nobody was here and nothing was to do for long enough. It is decided in one step:
        whoever sends something has sent it before, or finds the room closed and opens another."""
        wanted = state.pending or state.turn or state.open is not None or self.prompts.turn is not None
        if wanted or len(self.members) or len(self.questions) or not self.process.rests:
            self._wanted_at = self.around.clock()
        elif self._soon or self._bringing or not self._inbox.empty():
            return
        elif 0 < self.around.idle <= self.around.clock() - self._wanted_at:
            self.around.rest(self)

    async def _heed(self) -> SessionState:
        """Looks whether something was erased, by whoever it was: then nothing that is kept or known here says it any
        more. Whoever comes to this room is let in after that."""
        state = await self.in_thread(self.room_journal.state)
        if state.head == self.head:
            return state
        self.head = state.head
        erased_at = await self.in_thread(self.room_journal.erased_at)
        if erased_at != self._erased_at:
            self._erased_at = erased_at
            await self.in_thread(partial(settle, self.room_journal.journal, self.around.frames, self.session))
            await self.recorder.heed()
            self._latest = {kind: frame for kind, frame in self._latest.items() if kind in SAYS_NOTHING}
            self.questions.forget_calls()
            gone = await self.in_thread(self.room_journal.gone)
            if gone is not None:
                await self.questions.forget(gone.questions)
                await self.prompts.forget(gone.inputs)
        return await self.in_thread(self.room_journal.state)

    # ------------------------------------------------------------------ what the agent says

    async def heard(self, frame: Frame) -> None:
        await self.compactions.heard(detectors.FromAgent(frame))
        if frame.is_response:
            await self.process.answered(frame)
        elif frame.is_request:
            await self.questions.asked(frame)
        elif detectors.of_another(frame, self.process.speaks_of):
            self.recorder.keep("other", frame)
        else:
            if frame.method == "$/cancel_request":
                await self.questions.taken_back(frame.params.get("requestId"))
            self.recorder.hear(frame, replayed=self.process.replaying)
            if not self.process.replaying:
                self.questions.calls.heard(frame.update)
            kind = frame.update.get("sessionUpdate")
            if kind in _LATEST:
                self._latest[str(kind)] = frame
                self.compactions.used(frame.update)

    async def left_out(self, why: str) -> None:
        """An update of the agent is too large to be taken."""
        log.error("skipped an update of the agent: %s", why, extra={"session": self.session})
        if not self.process.replaying:
            self.recorder.tell("onefold/left_out", {"cause": why})

    async def logged(self, line: str) -> None:
        self.recorder.keep("err", line)
        await self.compactions.heard(detectors.StderrLine(line))

    async def noise(self, line: str) -> None:
        log.warning("the agent wrote a line that is not a frame", extra={"session": self.session})
        self.recorder.keep("err", line)

    def locked(self, why: str) -> None:
        """The agent wants somebody to log in."""
        self.trouble = why
        self._becomes("locked")
        self._decided.set()

    def rises(self) -> None:
        """The agent is being started, or goes on with it."""
        self._becomes("starting")
        self._decided.clear()

    def given_up(self) -> None:
        """It is not started again before somebody asks for something."""
        self._decided.set()

    async def agent_ready(self, how: str) -> None:
        await self.compactions.agent_started()
        self.trouble = None
        self._becomes("ready")
        self._decided.set()
        self.recorder.tell("onefold/agent_started", {"agent": self.process.agent.name, "how": how})
        await self.prompts.next()

    async def agent_gone(self, why: str, body: dict[str, Json], logged: str | None = None) -> None:
        """The agent is not there any more: nothing of what it was at stays open. It is started again. `logged` says why
        where words of the agent's do not belong."""
        if self.phase == "closed":
            return
        was_ready = self.phase == "ready"
        self._becomes("down")
        self._decided.clear()
        log.warning("the agent ended", extra={"session": self.session, "cause": logged or why})
        await self._after_its_end(why, body if was_ready else None)

    async def _after_its_end(self, why: str, body: dict[str, Json] | None) -> None:
        try:
            await self._settle_all(why, body)
        except StoreError as trouble:
            log.error("what the agent left open cannot be ended yet: %s", trouble, extra={"session": self.session})
            self.later(AGAIN, self._after_its_end, why, body)
            return
        except Exception:
            self.process.settled()
            raise
        self.process.rise_later()

    async def _settle_all(self, why: str, body: dict[str, Json] | None) -> None:
        self.trouble = why
        await self.recorder.all_said()
        await self.questions.withdraw()
        await self.compactions.agent_died(why)
        await self.prompts.end("interrupted", why, error(None, BUSY, f"the agent ended: {why}"))
        self.process.gone(why)
        if body is not None:
            self.recorder.record = await self.in_thread(partial(self.room_journal.ended, body))
        self.recorder.tell("onefold/agent_ended", {"cause": why})
        await self.recorder.commit()

    # ------------------------------------------------------------------ what clients ask

    async def prompt(self, member: Member, params: dict[str, Json], *, first: bool = False) -> SubmittedPrompt:
        """Asks for a turn; `first` ends the running one for it, and comes before all that wait."""
        loop = asyncio.get_running_loop()
        asked = SubmittedPrompt(loop.create_future(), loop.create_future())
        self.pressure.check()
        if self.phase == "down":
            self.process.rise()
        await self._ask(self.prompts.take, member, params, first, asked)
        return asked

    async def _ask(self, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        if self.phase == "closed":
            raise RoomClosed(self.session)
        self._wanted_at = self.around.clock()
        await self.post(work, *given)

    async def unqueue(self, member: Member, number: int) -> Json:
        """Takes a prompt back that waits."""
        done: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        await self._ask(self.prompts.unqueue, member, number, done)
        return await done

    async def cancel(self, member: Member) -> None:
        """Asks the agent to stop what it is at."""
        await self._ask(self.prompts.cancel, member.name, member)

    async def answer(self, member: Member, frame: Frame) -> None:
        """A client's answer to a question of the agent."""
        await self._ask(self.questions.answer, member, frame)

    async def compact(self, trigger: str, instructions: str | None, actor: str | None) -> Json:
        """Has the agent compact, whoever else asks too, and says how it ended."""
        ended: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        await self._ask(self.compactions.asked, trigger, instructions, actor, ended)
        return await ended

    async def forward(self, method: str, params: dict[str, Json]) -> Frame:
        """Asks the agent something that onefold does not know, and gives its answer as it is."""
        self.pressure.check()
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                self.process.request(method, self.process.own(params)).add_done_callback(partial(_copy, answer))
            except OnefoldError as refused:
                answer.set_exception(refused)

        await self._ask(work)
        return await answer

    async def notify(self, method: str, params: dict[str, Json]) -> None:
        """Tells the agent something that onefold does not know. Rejected if the agent cannot be told."""
        self.pressure.check()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                self.process.send(notification(method, self.process.own(params)))
            except OnefoldError as refused:
                told.set_exception(refused)
            else:
                told.set_result(None)

        await self._ask(work)
        await told

    # ------------------------------------------------------------------ coming and going

    async def moment(self) -> ReplayPoint:
        """Where what is in the journal ends and what a client has to be given as frames begins, at one moment."""
        found: asyncio.Future[ReplayPoint] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await self.recorder.commit()
                state = await self._heed()
                found.set_result(ReplayPoint(self.recorder.folded_up_to, state.last))
            except OnefoldError as trouble:
                found.set_exception(trouble)

        await self._ask(work)
        return await found

    async def join(
        self, member: Member, first: Callable[[], None], *, after: int | None = None, new: bool = True
    ) -> None:
        """Lets a client in. `first` answers its request, at the very number from which it then hears everything.

        With `after`, it is given the frames after that number; without, it hears from now on. One that is `new` is told
        how it is now.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await self._heed()
                await self.recorder.commit()
                if self.phase == "closed":
                    raise RoomClosed(self.session)
                first()
                if not member.left:
                    self._let_in(member, after, new=new)
                fulfil(done, None)
            except Exception as trouble:  # whatever it is, who wants to come in has to hear of it
                if not done.done():
                    done.set_exception(trouble)

        await self._ask(work)
        await done

    def _let_in(self, member: Member, after: int | None, *, new: bool) -> None:
        member.last = self.recorder.last if after is None else after
        member.live = member.last >= self.recorder.last
        self.members.add(member)
        self._presence()
        if member.live:
            self._welcome(member, new=new)
        else:
            self._start(self._catch_up(member, new=new))

    def _welcome(self, member: Member, *, new: bool) -> None:
        """How it is now: the newest of what agents say once, and the questions that wait."""
        for frame in self._latest.values() if new else ():
            Broadcast(frame, self.session, None).to(member)
        self.questions.put_all(member)

    async def _catch_up(self, member: Member, *, new: bool) -> None:
        await self.recorder.catch_up(member)
        if member in self.members:
            self._welcome(member, new=new)

    def leave(self, member: Member) -> None:
        self.members.drop(member)
        self._wanted_at = self.around.clock()
        if self.phase != "closed":
            self._presence()

    def _has_left(self, member: Member) -> None:
        """It did not read, and was disconnected."""
        self._presence()

    def _presence(self) -> None:
        told = notification("onefold/presence", {"sessionId": self.session, "clients": self.members.names()})
        self.members.tell(told, None)

    # ------------------------------------------------------------------ how it is

    @property
    def why_not(self) -> str | None:
        """Why the agent is not there, or has to wait."""
        return self.trouble if self.pressure.stuck is None else f"it has to wait: {self.pressure.stuck}"

    def standing(self) -> dict[str, Json]:
        """What goes on here, for snapshots."""
        return {
            "agent": {"name": self.process.agent.name, "phase": self.phase, "trouble": self.why_not},
            "questions": self.questions.shown(),
            "queue": self.prompts.queued,
            "clients": self.members.names(),
        }


def _copy(to: asyncio.Future[Frame], made: asyncio.Future[Frame]) -> None:
    if to.done():
        return
    if made.cancelled():
        to.cancel()
    elif (trouble := made.exception()) is not None:
        to.set_exception(trouble)
    else:
        to.set_result(made.result())
