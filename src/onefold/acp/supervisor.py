"""Supervises a room's agent: starts it, sends it requests, and restarts it after it died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onefold.acp import detectors
from onefold.acp.agent_config import Agent, AgentUnusable, shown
from onefold.acp.agent_subprocess import AgentSubprocess, CannotStart, SubprocessExit, SubprocessGone
from onefold.acp.frame_log import RoomRow
from onefold.acp.room_errors import AUTH_REQUIRED, BUSY, RequestRejected, RoomClosed
from onefold.errors import OnefoldError
from onefold.jsonrpc import Frame, request, text
from onefold.model import Json

if TYPE_CHECKING:
    from onefold.acp.room import Room

log = logging.getLogger("onefold.acp")

ANSWER = 120.0
"""Seconds within which an agent has to answer requests other than prompts; a first start may have to install it."""
BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STEADY = 60.0
"""An agent that has lived so long is started again at once when it dies."""
GIVE_UP = 6
"""Deaths in a row after which it is started again only when somebody asks for something."""

_SECRET = frozenset({"authenticate"})
"""Neither these nor their answers are kept."""

Then = Callable[[Frame], Awaitable[None]]


@dataclass(slots=True)
class _PendingRequest:
    """A request to the agent that is not answered yet."""

    future: asyncio.Future[Frame]
    secret: bool
    then: Then | None


class AgentSupervisor:
    """The agent of a room, one process after another."""

    def __init__(self, room: Room, agent: Agent, *, cwd: str, servers: Sequence[Json]) -> None:
        self.agent = agent
        self.cwd = cwd
        self.session: str | None = None
        """The agent's own id of the session."""
        self.speaks_of: str | None = None
        """The same, from the moment at which the agent itself knows it: it may speak of others, too."""
        self.initialized: dict[str, Json] = {}
        """What it answered to `initialize`."""
        self.opened: dict[str, Json] = {}
        """What it answered to the session's beginning."""
        self.greeted = asyncio.Event()
        self.tried = asyncio.Event()
        """It answered for the first time; or it did not, and `cannot` says why."""
        self.cannot: str | None = None
        self.handover = False
        """It knows nothing of what was said: the next prompt has to tell it."""
        self.replaying = False
        self._room = room
        self._servers = list(servers)
        self._child: AgentSubprocess | None = None
        self._newest: AgentSubprocess | None = None
        """The one that was started last, also when it is about to end."""
        self._rising: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[SubprocessExit] | None = None
        self._restarting: asyncio.Future[None] | None = None
        """Done when the next one starts; for all who asked for that."""
        self._settling = False
        """One has ended, and what it left open is not settled yet: the next one starts after that."""
        self._asked = False
        """Somebody wants it meanwhile."""
        self._authenticated = asyncio.Event()
        self._starts = 0
        self._steady: float | None = None
        """Since when it can be talked to."""
        self._deaths = 0
        self._ids = 0
        self._calls: dict[int, _PendingRequest] = {}
        self._held = False
        """What it says is not read now."""

    @property
    def runs(self) -> bool:
        return self._child is not None

    @property
    def takes(self) -> bool:
        """Whether something can be sent to it. Not to one that has died, also before the room has heard of that."""
        return self._child is not None and self._child.takes

    @property
    def rests(self) -> bool:
        """Whether it neither begins nor ends, and owes no answer. One that waits for somebody to log in rests."""
        begins = self._rising is not None and not self._rising.done() and self._room.phase != "locked"
        return not (begins or self._settling or self._calls)

    @property
    def ends(self) -> bool:
        """One has ended, and what it left open is being settled. After that it is decided whether another starts."""
        return self._settling

    # ------------------------------------------------------------------ up and down

    def rise(self) -> None:
        """Starts the agent, if it does not run and is not being started."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._room.phase == "closed" or self._child is not None:
            return
        if self._settling:
            self._asked = True
            return
        if self._rising is None or self._rising.done():
            self._room.rises()
            self._rising = asyncio.create_task(self._bring_up(), name=f"agent of {self._room.session}")
        if self._restarting is not None and not self._restarting.done():
            self._restarting.set_result(None)

    def rise_later(self) -> None:
        """Starts it again after it died: at once, and then ever later if it goes on dying."""
        since, self._steady = self._steady, None
        lived = since is not None and self._room.around.clock() - since > STEADY
        restarts = self._restarting is not None and not self._restarting.done()
        self._deaths = 0 if lived or restarts else self._deaths + 1
        asked = self.settled()
        if asked or restarts:
            self.rise()
            return
        if self._deaths >= GIVE_UP:
            why = "the agent dies again and again; it is started when somebody asks for something"
            log.error(why, extra={"session": self._room.session})
            self._room.given_up()
            return
        wait = BACKOFF[min(self._deaths, len(BACKOFF) - 1)]
        self._again = asyncio.get_running_loop().call_later(wait, self.rise)

    def settled(self) -> bool:
        """What the last one left open is settled, as far as it can be: another one may start. True if somebody waits
        for that."""
        asked, self._settling, self._asked = self._asked, False, False
        return asked

    async def remember(self) -> None:
        """From here on the room can be opened again, whatever becomes of its agent."""
        room, frames = self._room, self._room.around.frames

        def keep() -> None:
            before = frames.room(room.session)
            own = self.session or (before.agent_session if before is not None else None)
            name, command = self.agent.name, shown(self.agent.command)
            frames.put_room(RoomRow(room.session, name, command, self.cwd, own, room.around.clock(), None))

        await room.in_thread(keep)

    async def end(self) -> None:
        """For good."""
        if self._again is not None:
            self._again.cancel()
        if self._restarting is not None and not self._restarting.done():
            self._restarting.set_exception(RoomClosed(self._room.session))
            self._restarting.exception()  # whoever asked for it may be gone
        await self._rise_no_more()
        self._child = None
        if self._newest is not None:
            await self._newest.end()

    async def _rise_no_more(self) -> None:
        if self._rising is not None:
            self._rising.cancel()
            await asyncio.gather(self._rising, return_exceptions=True)

    def restart(self, why: str) -> asyncio.Future[None]:
        """Ends the process that runs now, whatever it does, and starts the next one when what it left open is settled:
        then this is done. Whoever asks before that asks for the same."""
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_future()
            if self._child is not None:
                self.stop(why)
            else:
                self.rise()
        return self._restarting

    def stop(self, why: str) -> None:
        """Ends the process that runs now, with all that it started. The room hears of it as of any other death, and
        takes its agent up again."""
        if self._child is not None:
            self._stopping = asyncio.create_task(self._child.end(why=why))

    def hold(self, held: bool) -> None:
        """Held, the agent can say nothing more; nor can one that is started meanwhile."""
        self._held = held
        if self._newest is not None:
            self._newest.hold(held)

    async def _bring_up(self) -> None:
        try:
            await self._start()
        except Exception as trouble:  # whatever it answered: the room must not wait for it for ever
            why = _why(trouble)
            if isinstance(trouble, CannotStart):  # it does not get better by trying again and again
                self._deaths = GIVE_UP
            child, self._child = self._child, None
            if child is None and self._began_and_ended:
                return  # its end was heard of already
            self._settling = True
            ended = await child.end() if child is not None else None
            how = f" ({ended.cause})" if ended is not None else ""
            why = self._room.recorder.line(why)
            self._first(self._with_last_words(f"{why}{how}", ended))
            plain = trouble.plain if isinstance(trouble, _AgentError) else why
            await self._room.post(
                self._room.agent_gone, f"the agent could not be started: {why}{how}", {"cause": f"{why}{how}"},
                f"the agent could not be started: {plain}{how}",
            )  # fmt: skip

    async def _start(self) -> None:
        self._starts += 1
        self._began_and_ended = False
        post, room = self._room.post, self._room
        start = self._starts
        self._child = self._newest = child = await AgentSubprocess.start(
            self.agent.command,
            env=room.around.environment(self.agent),
            cwd=self.agent.cwd or self.cwd,
            on_frame=lambda frame, size: room.pressure.hear(room.heard, frame, size),
            on_line=lambda line: room.pressure.hear(room.logged, line, len(line)),
            on_noise=lambda line: room.pressure.hear(room.noise, line, len(line)),
            on_left_out=partial(post, room.left_out),
            on_end=partial(post, self._ended, start),
        )
        child.hold(self._held)
        hello = {
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
                **detectors.COMPACTION_CAPABILITY,
            },
            "clientInfo": {"name": "onefold", "title": "onefold", "version": "1"},
        }
        self.initialized = _result(await self.ask("initialize", hello), "initialize")
        self._room.compactions.watch(detectors.family(self.initialized, self.agent.command))
        self.greeted.set()
        self._first(None)
        how = await self._begin_session()
        await post(self._is_ready, start, child.pid, how)

    async def _begin_session(self) -> str:
        """Takes the agent's own session up again, by the best way it has; else a new one, which is told the context."""
        room = self._room
        row = await room.in_thread(lambda: room.around.frames.room(room.session))
        before = self.session or (row.agent_session if row is not None else None)
        place = {"cwd": self.cwd, "mcpServers": self._servers}
        for method in self._ways_back() if before is not None else ():
            answer = await self._opened(method, {"sessionId": before, **place})
            if "error" not in answer.body:
                self.opened = {**self.opened, **_result(answer, method)}
                self.session = before
                return method.removeprefix("session/")
            log.warning(
                "the agent could not resume its session: it answered %s with %s", method, _code(answer),
                extra={"session": room.session},
            )  # fmt: skip
        answer = await self._opened("session/new", place)
        self.opened = _result(answer, "session/new")
        own = self.opened.get("sessionId")
        if not isinstance(own, str) or not own:
            raise AgentUnusable("the agent answered session/new without a sessionId")
        self.session = own
        self.handover = before is not None or (await room.in_thread(room.room_journal.state)).messages > 0
        return "handover" if self.handover else "new"

    async def _opened(self, method: str, params: dict[str, Json]) -> Frame:
        """Asks for a session; if the agent wants somebody to log in first, waits until somebody did."""
        while True:
            # At a resume too: Hermes tells the whole history then, though ACP says not to.
            self.replaying = method != "session/new"
            self.speaks_of = params.get("sessionId")
            answer = await self.ask(method, params, then=self._replayed)
            failed = answer.body.get("error")
            if not (isinstance(failed, dict) and failed.get("code") == AUTH_REQUIRED and self._has_a_way_in()):
                return answer
            self._authenticated.clear()
            self._room.locked(str(failed.get("message") or "the agent wants somebody to log in"))
            await self._authenticated.wait()

    def _has_a_way_in(self) -> bool:
        return bool(self.initialized.get("authMethods"))

    def authenticated(self) -> None:
        """Somebody has logged in: the session is asked for again, and who wants it waits for that."""
        if self._room.phase == "locked":
            self._room.rises()
        self._authenticated.set()

    def _ways_back(self) -> Iterator[str]:
        able = self.initialized.get("agentCapabilities")
        able = able if isinstance(able, dict) else {}
        more = able.get("sessionCapabilities")
        if isinstance(more, dict) and more.get("resume") is not None:
            yield "session/resume"
        if able.get("loadSession"):
            yield "session/load"

    async def _replayed(self, answer: Frame) -> None:
        """In the room's own task: what comes right behind the answer is of the session that the answer names."""
        self.replaying = False
        made = answer.body.get("result")
        own = made.get("sessionId") if isinstance(made, dict) and self.speaks_of is None else None
        if isinstance(own, str):
            self.speaks_of = own

    async def _is_ready(self, start: int, pid: int, how: str) -> None:
        if self._child is None or start != self._starts or self._room.phase == "closed":
            return
        room, own = self._room, self.session or ""
        info = self.initialized.get("agentInfo")
        name, command = self.agent.name, shown(self.agent.command)
        body = {
            "agent": name, "command": command, "cwd": self.cwd, "pid": pid, "how": how, "session": own,
            "info": info if isinstance(info, dict) else None,
        }  # fmt: skip
        await room.in_thread(partial(room.room_journal.alias, own))
        room.recorder.record = await room.in_thread(partial(room.room_journal.started, body))
        await self.remember()
        self._steady = room.around.clock()
        await room.agent_ready(how)

    async def _ended(self, start: int, ended: SubprocessExit) -> None:
        if start != self._starts or self._began_and_ended:
            return
        self._began_and_ended = True
        if self._child is None:
            return  # it was ended on purpose
        self._child, self._settling = None, True
        await self._rise_no_more()  # it may wait for somebody to log in, which nobody can any more
        body: dict[str, Json] = {"code": ended.code, "signal": ended.signal, "cause": ended.cause}
        self._first(self._with_last_words(f"the agent {self.agent.name!r} did not answer: {ended.cause}", ended))
        await self._room.agent_gone(ended.cause, body)

    _began_and_ended = False

    def _with_last_words(self, why: str, ended: SubprocessExit | None) -> str:
        """For whoever starts it by hand and sees it fail, and for nobody else."""
        words = self._room.recorder.line(" | ".join(ended.last_words)) if ended is not None else ""
        return f"{why}. Its last lines on stderr: {words}" if words else why

    def _first(self, cannot: str | None) -> None:
        """How its first start went, for who waits for that."""
        if not self.tried.is_set():
            self.cannot = cannot
            self.tried.set()

    def gone(self, why: str) -> None:
        """Nobody answers any more."""
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(RequestRejected(f"the agent ended: {why}"))
                call.future.exception()  # a prompt's future is waited for by nobody: its turn says how it ended
        self._calls.clear()
        self.replaying = False
        self.speaks_of = None
        self.greeted.clear()

    # ------------------------------------------------------------------ speaking to it

    async def ask(self, method: str, params: Json, *, then: Then | None = None) -> Frame:
        """Asks it something, and waits for the answer. Not in the room's own task, which has to hear it."""
        async with asyncio.timeout(ANSWER):
            return await self.request(method, params, then=then)

    def request(self, method: str, params: Json, *, then: Then | None = None) -> asyncio.Future[Frame]:
        """Asks it something. `then` is done in the room's own task, right when the answer comes."""
        self._ids += 1
        id = self._ids
        self._calls[id] = made = _PendingRequest(asyncio.get_running_loop().create_future(), method in _SECRET, then)
        try:
            self.send(request(id, method, params))
        except RequestRejected:
            del self._calls[id]
            raise
        return made.future

    def send(self, frame: Frame) -> None:
        if self._child is None:
            raise RequestRejected(f"the agent {self.agent.name!r} is not there")
        said = text(frame)
        try:
            self._child.send(frame, said)
        except SubprocessGone as gone:
            raise RequestRejected(str(gone)) from None
        if frame.method not in _SECRET:
            self._room.recorder.keep("out", frame, said=said)
        self._room.compactions.sent(frame)

    async def answered(self, frame: Frame) -> None:
        """The agent answers a request of ours."""
        call = self._calls.pop(frame.id, None) if isinstance(frame.id, int) else None
        if call is None or not call.secret:
            self._room.recorder.keep("in", frame)
        if call is None:
            return
        if call.then is not None:
            await call.then(frame)
        if not call.future.done():
            call.future.set_result(frame)

    def own(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters as the agent knows them: with its own id of the session."""
        return {**params, "sessionId": self.session} if "sessionId" in params else params


class _AgentError(AgentUnusable):
    """The agent answered with an error. `plain` says so without its words, for the log."""

    def __init__(self, message: str, plain: str) -> None:
        super().__init__(message)
        self.plain = plain


def _code(answer: Frame) -> str:
    """An agent's error, without its words."""
    failed = answer.body.get("error")
    code = failed.get("code") if isinstance(failed, dict) else None
    return f"the error {code}" if isinstance(code, int) else "an error"


def _why(trouble: Exception) -> str:
    if isinstance(trouble, TimeoutError):
        return f"it did not answer within {ANSWER:.0f} seconds"
    if isinstance(trouble, OnefoldError | OSError):
        return str(trouble)
    log.error("the agent's answer at its start was not understood", exc_info=trouble)
    return f"its answer was not understood ({type(trouble).__name__}: {trouble})"


def _result(answer: Frame, method: str) -> dict[str, Json]:
    failed = answer.body.get("error")
    if failed is not None:
        said = failed.get("message") if isinstance(failed, dict) else failed
        raise _AgentError(f"the agent rejected {method}: {said}", f"the agent rejected {method} with {_code(answer)}")
    value = answer.body.get("result")
    return value if isinstance(value, dict) else {}


__all__ = ["BUSY", "AgentSupervisor"]
