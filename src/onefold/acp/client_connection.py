"""One client's connection: the client's side of the Agent Client Protocol, over any transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from onefold.acp import detectors
from onefold.acp.agent_config import Agent
from onefold.acp.client_requests import (
    CANCELLED,
    ClientRequest,
    ignore_error,
    opened_for,
    passed_on,
    release,
    session_of,
)
from onefold.acp.host import RoomHost
from onefold.acp.members import Member, known_as
from onefold.acp.prompt_queue import SubmittedPrompt
from onefold.acp.replay import ReplayPoint, replay, replayed
from onefold.acp.room import Room
from onefold.acp.room_errors import BUSY, FORBIDDEN, RequestRejected, RoomClosed
from onefold.acp.room_journal import RoomJournal
from onefold.acp.send_queue import SendQueue
from onefold.errors import OnefoldError, kind_of
from onefold.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Frame,
    error,
    notification,
    result,
    sole,
    text,
)
from onefold.model import Json

log = logging.getLogger("onefold.acp")

MOST_UNDER_WAY = 64
"""Requests and notifications of one client that are not answered or passed on yet."""
MOST_BYTES_UNDER_WAY = 16 << 20
"""As much as their frames may be together. One by itself always passes: how large it may be is for who carries it."""
LARGE = 128 << 10
"""From so many characters on a frame is parsed in a thread."""

_REQUESTS = ("initialize", "authenticate", "session/", "onefold/")
"""So begin methods that are none of a notification, but for `session/cancel`: an agent is not told them so either."""

_PROMPTS = ("session/prompt", "onefold/steer")
_POLICIES = {"full": "all", "pending_only": "pending", "none": "none", "after_message": "all"}
"""What the proposed standard for `session/attach` calls the parts of history, and what they are here. No message has an
id in all agents, so what comes after one is all of it."""

Scope = Literal["read", "write", "agents", "compact", "admin"]
History = Literal["all", "segment", "pending", "none"]


class RoomPrincipal(Protocol):
    """Who speaks, and what for."""

    @property
    def name(self) -> str: ...
    def may(self, scope: Scope) -> bool: ...


class ClientConnection:
    """One connection of one client. `take` each frame it sends; what it is sent comes out of the send_queue."""

    def __init__(
        self,
        host: RoomHost,
        who: RoomPrincipal,
        *,
        session: str | None = None,
        agent: str | None = None,
        send_queue: SendQueue | None = None,
        local: bool = False,
    ) -> None:
        """`local`: it is whoever started this process, who may have an agent work where they like."""
        self.send_queue = send_queue or SendQueue()
        self._host = host
        self._who = who
        self._session = session
        self._agent = agent
        self._local = local
        self._capabilities: dict[str, Json] = {}
        self._name = who.name
        self._seats: dict[str, Member] = {}
        """By session. The room may be closed, and another one opened: this client is in that one, too."""
        self._locked: Room | None = None
        """The room that was made for this client, and whose agent wants somebody to log in first."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What is under way, and how large its frame was."""
        self._asked: dict[str | int, ClientRequest] = {}
        """Requests that are not answered yet, by the client's id."""

    async def take(self, line: str) -> None:
        """One line from the client."""
        try:
            frame = await asyncio.to_thread(sole, line) if len(line) > LARGE else sole(line)
        except ValueError as wrong:
            self._give(error(None, INVALID_REQUEST, f"this is not a frame: {wrong}"))
            return
        if frame.is_response:
            await self._answer(frame)
        elif frame.method is None:
            self._give(error(None, INVALID_REQUEST, "a frame has a method, or is the answer to one"))
        elif self._is_full(len(line)):
            why = f"{len(self._tasks)} requests of this connection are under way; send it again when some are answered"
            self._give(error(frame.id, BUSY, f"{frame.method} was not taken: {why}"))
        else:
            self._run(self._respond(frame) if frame.is_request else self._notified(frame), len(line))

    def _is_full(self, size: int) -> bool:
        held = sum(self._tasks.values())
        return len(self._tasks) >= MOST_UNDER_WAY or (held > 0 and held + size > MOST_BYTES_UNDER_WAY)

    async def close(self) -> None:
        """The client is gone. Its prompts go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session, member in self._seats.items():
            self._host.leave(session, member)
        self._seats.clear()
        self.send_queue.close("the client left")

    # ------------------------------------------------------------------ requests

    def _run(self, work: Awaitable[None], size: int) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = size
        task.add_done_callback(self._tasks.pop)

    def _give(self, frame: Frame) -> None:
        self.send_queue.give(text(frame))

    async def _respond(self, frame: Frame) -> None:
        id, method = frame.id, frame.method or ""
        if id is None:
            return
        asked = self._asked[id] = ClientRequest(asyncio.current_task(), prompting=method in _PROMPTS)
        try:
            answer = await self._do(method, frame.params, id)
        except asyncio.CancelledError:
            if not asked.taken_back:
                raise
            answer = error(id, CANCELLED, f"{method} was cancelled")
        except RequestRejected as refused:
            answer = error(id, refused.code, str(refused), refused.data)
            release(refused)
        except OnefoldError as refused:
            answer = error(id, INVALID_PARAMS, str(refused), {"kind": kind_of(refused)})
            release(refused)
        except Exception as trouble:  # whatever it was, who asked has to hear of it
            log.error("a client's %s failed", method, extra={"client": self._name}, exc_info=trouble)
            answer = error(id, INTERNAL_ERROR, f"{method} failed: {str(trouble) or type(trouble).__name__}")
        finally:
            if self._asked.get(id) is asked:
                del self._asked[id]
        if answer is not None:
            self._give(answer)

    async def _do(self, method: str, params: dict[str, Json], id: str | int) -> Frame | None:
        """The answer to a request; None if it was given already, at the very place where it belongs."""
        known: dict[str, Callable[[dict[str, Json], str | int], Awaitable[Frame | None]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/attach": self._attach,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "session/close": self._close_session,
            "session/detach": self._close_session,
            "session/delete": self._not_here,
            "session/fork": self._not_here,
            "onefold/steer": self._steer,
            "onefold/unqueue": self._unqueue,
            "onefold/compact": self._compact,
            "onefold/history": self._history,
            "onefold/restart": self._restart,
            "onefold/close": self._close_room,
        }
        if method in known:
            return await known[method](params, id)
        self._need("agents")
        room, _ = await self._in(params)
        await self._check(room.process.agent, method, params)
        await room.ready()
        return passed_on(await room.forward(method, params), id)

    async def _initialize(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("read")
        able = params.get("clientCapabilities")
        self._capabilities = able if isinstance(able, dict) else {}
        info = params.get("clientInfo")
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            self._name = known_as(info["name"], self._who.name)
        said: dict[str, Json] = {"protocolVersion": 1}
        if (room := await self._room_at_the_door()) is not None:
            said |= await room.greeted() if self._who.may("agents") else room.process.initialized
        able = said.get("agentCapabilities")
        able = (
            dict(able) if isinstance(able, dict) else {"promptCapabilities": {"embeddedContext": True, "image": True}}
        )
        more = able.get("sessionCapabilities")
        more = dict(more) if isinstance(more, dict) else {}
        more |= {"list": {}, "resume": {}, "close": {}, "attach": {}}
        for withheld in ("fork", "delete"):
            more.pop(withheld, None)
        able |= {"loadSession": True, "sessionCapabilities": more}
        said |= {"agentCapabilities": able}
        said.setdefault("agentInfo", {"name": "onefold", "version": "1"})
        meta = said.get("_meta")
        said["_meta"] = {**(meta if isinstance(meta, dict) else {}), "onefold": {"attach": 1}}
        return result(id, said)

    async def _room_at_the_door(self) -> Room | None:
        """The room that this connection is for, if its address says so or there is only one."""
        session = self._session or (self._host.default if self._agent is None else None)
        return await self._here(session) if session is not None else None

    def _made_here(self) -> Room | None:
        return self._locked if self._locked is not None and self._locked.phase != "closed" else None

    async def _authenticate(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("agents")
        room = await self._room_at_the_door() or self._made_here()
        if room is None:
            return result(id, {})
        answer = await room.forward("authenticate", params)
        if "error" not in answer.body:
            room.process.authenticated()
        return passed_on(answer, id)

    async def _here(self, any_id: str) -> Room | None:
        """The room of a session. Who may not run agents starts none: if it is not open, what the journal has of it has
        to do."""
        if self._who.may("agents"):
            return await self._host.enter(any_id)
        return await self._host.found(any_id)

    async def _new(self, params: dict[str, Json], id: str | int) -> Frame | None:
        self._need("read")
        room = await self._room_at_the_door()
        asked = params if room is not None else {}
        if room is None and (room := self._made_here()) is None:
            self._need("agents")
            room = self._locked = await self._make(params)
        if self._who.may("agents"):
            await room.ready()
        self._locked = None
        await self._join(room, id, asked)
        return None

    async def _make(self, params: dict[str, Json]) -> Room:
        """A new session, with its agent: where, and with what MCP servers, is for the config file to allow."""
        agent: Agent = self._host.agents.named(self._agent)
        asked, servers = params.get("cwd"), params.get("mcpServers")
        if not isinstance(asked, str) or not asked:
            raise RequestRejected("session/new needs a cwd", INVALID_PARAMS)
        cwd: str = asked
        if not self._local:
            servers = agent.servers(servers)
            cwd = await self._host.in_thread(lambda: agent.folder(asked))
        id = self._host.store.journal.new_id()
        return await self._host.open(id, agent, cwd=cwd, servers=servers if isinstance(servers, list) else ())

    async def _check(self, agent: Agent, method: str, params: dict[str, Json]) -> None:
        """What onefold does not know is passed on, but must not bypass what it does know."""
        if detectors.names_compaction(method):
            self._need("compact")
        if not self._local:
            agent.servers(params.get("mcpServers"))
            if "cwd" in params:
                await self._host.in_thread(lambda: agent.folder(params["cwd"]))

    async def _load(self, params: dict[str, Json], id: str | int) -> Frame | None:
        self._need("read")
        room = await self._here(session_of(params))
        if room is not None and self._who.may("agents"):
            await room.ready()
        session, moment = await self._moment(room, params)
        told = await self._host.in_thread(lambda: replay(self._host.store, session, moment))
        for update in told:
            await self.send_queue.room()
            self._give(notification("session/update", {"sessionId": session, "update": update}))
        if (room := room or self._host.room(session)) is not None:
            await self._join(room, id, params, named=False, after=moment.frame)
        else:
            self._expect(session, moment.frame)
            self._give(result(id, opened_for({}, None, params)))
        return None

    async def _resume(self, params: dict[str, Json], id: str | int) -> Frame | None:
        self._need("read")
        room = await self._here(session_of(params))
        if room is None:
            session, moment = await self._moment(None, params)
            self._expect(session, moment.frame)
            return result(id, opened_for({}, None, params))
        if self._who.may("agents"):
            await room.ready()
        await self._join(room, id, params, named=False)
        return None

    async def _moment(self, room: Room | None, params: dict[str, Json]) -> tuple[str, ReplayPoint]:
        """Where the journal's part ends and the frame log's begins; of a room that is not open, by what it left."""
        if room is not None:
            return room.session, await room.moment()
        host = self._host

        def read_moment() -> tuple[str, ReplayPoint]:
            room_journal = RoomJournal(host.store, host.store.resolve(session_of(params)))
            return room_journal.session, ReplayPoint(room_journal.folded(), room_journal.state().last)

        return await host.in_thread(read_moment)

    def _expect(self, session: str, after: int, *, attached: bool = False) -> None:
        """Lets this client in when somebody starts the agent, with all that comes after this frame."""
        self._host.expect(session, self._seat(session, attached=attached), after)

    async def _attach(self, params: dict[str, Json], id: str | int) -> Frame | None:
        """The snapshot, as much history as asked for, and the frame from which everything follows: one moment."""
        self._need("read")
        watch = params.get("watch") is True
        room = self._running(session_of(params)) if watch else await self._here(session_of(params))
        after = params.get("after")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise RequestRejected("`after` is the number of a frame", INVALID_PARAMS)
        policy = params.get("historyPolicy")
        if policy is not None and policy not in _POLICIES:
            raise RequestRejected(f"historyPolicy is one of {', '.join(_POLICIES)}", INVALID_PARAMS)
        usual = "segment" if after is None else "none"
        wanted = params.get("history", usual if policy is None else _POLICIES[policy])
        order = params.get("order", "oldest")
        if wanted not in ("all", "segment", "pending", "none") or order not in ("oldest", "newest"):
            raise RequestRejected(
                "history is one of all, segment, pending, none; order is oldest or newest", INVALID_PARAMS
            )
        session, moment = await self._moment(room, params)
        if after is not None:
            await self._can_follow(session, after, room)
        begins = moment.frame if after is None else after
        shot = await self._host.in_thread(lambda: self._host.snapshot(session))
        told = (
            []
            if wanted in ("none", "pending")
            else await self._host.in_thread(
                lambda: replayed(self._host.store, session, moment, whole=wanted == "all", newest=order == "newest")
            )
        )
        said = {**shot, "sessionId": session, "history": told, "follow": begins}
        if policy is not None:
            said |= {"historyPolicy": "full" if wanted == "all" else policy, "clientId": self._name}
        if (room := room or self._host.room(session)) is None:
            self._expect(session, begins, attached=True)
            return result(id, said)
        member = self._seat(session, attached=True, watch=watch)
        said |= room.standing()

        def first() -> None:
            self._give(result(id, said))

        await self._sit(room, member, first, after=begins, new=after is None)
        return None

    async def _can_follow(self, session: str, after: int, room: Room | None) -> None:
        frames = self._host.frames
        forgotten = await self._host.in_thread(lambda: frames.forgotten(session))
        last = room.recorder.last if room is not None else await self._host.in_thread(lambda: frames.last(session))
        if after > last or after < forgotten:
            raise RequestRejected(
                f"there is no frame {after} to go on from; attach without `after`", INVALID_PARAMS,
                {"last": last, "forgotten": forgotten},
            )  # fmt: skip

    async def _list(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("read")
        rows = await self._host.in_thread(self._host.frames.rooms)
        return result(id, {"sessions": [{"sessionId": r.session, "cwd": r.cwd, "title": r.agent} for r in rows]})

    async def _prompt(self, params: dict[str, Json], id: str | int, *, first: bool = False) -> Frame:
        self._need("agents")
        session, member = self._seat_in(params)
        if not isinstance(params.get("prompt"), list):
            raise RequestRejected("a prompt is a list of blocks", INVALID_PARAMS)
        asked = await self._host.prompt(session, member, params, first=first)
        asked.accepted.add_done_callback(ignore_error)
        if (request := self._asked.get(id)) is not None:
            request.prompt = session, member, asked
            if request.taken_back:
                await self._withdraw(session, member, asked)
        return result(id, await asked.ended)

    async def _steer(self, params: dict[str, Json], id: str | int) -> Frame:
        return await self._prompt(params, id, first=True)

    async def _unqueue(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("agents")
        session, member = self._seat_in(params)
        number = params.get("input")
        if not isinstance(number, int):
            raise RequestRejected("`input` is the number of a prompt that waits", INVALID_PARAMS)
        return result(id, await self._host.unqueue(session, member, number))

    async def _compact(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("compact")
        room, _ = await self._in(params)
        instructions = params.get("instructions")
        words = instructions if isinstance(instructions, str) else None
        return result(id, await room.compact("manual", words, self._name))

    async def _restart(self, params: dict[str, Json], id: str | int) -> Frame:
        """The agent's process ends, whatever it does, and another one takes its session up."""
        self._need("agents")
        room = await self._host.restart(session_of(params), self._name)
        return result(id, {"agent": room.process.agent.name, "phase": room.phase})

    async def _close_room(self, params: dict[str, Json], id: str | int) -> Frame:
        """The agent's process ends, and the room with it, until somebody writes to it again."""
        self._need("agents")
        return result(id, {"closed": await self._host.shut(session_of(params), f"{self._name} closed it")})

    async def _history(self, params: dict[str, Json], id: str | int) -> Frame:
        """A page of what was said before a record: what an attach was too small for."""
        self._need("read")
        before, order = params.get("before"), params.get("order", "oldest")
        if isinstance(before, bool) or not isinstance(before, int) or order not in ("oldest", "newest"):
            raise RequestRejected("`before` is the number of a record; order is oldest or newest", INVALID_PARAMS)
        session, moment = await self._moment(self._host.room(session_of(params)), params)
        at = moment._replace(record=min(moment.record, before - 1))
        told = await self._host.in_thread(
            lambda: replayed(self._host.store, session, at, whole=True, newest=order == "newest")
        )
        return result(id, {"sessionId": session, "history": told})

    async def _close_session(self, params: dict[str, Json], id: str | int) -> Frame:
        """The client leaves; the room, which others share, stays."""
        session, member = self._seat_in(params)
        del self._seats[session]
        self._host.leave(session, member)
        return result(id, {})

    async def _not_here(self, params: dict[str, Json], id: str | int) -> Frame:
        raise RequestRejected("others share this session; use onefold's own commands for that", METHOD_NOT_FOUND)

    # ------------------------------------------------------------------ notifications and answers

    async def _notified(self, frame: Frame) -> None:
        try:
            method = frame.method or ""
            if method == "$/cancel_request":
                await self._take_back(frame.params.get("requestId"))
                return
            self._need("agents")
            if method == "session/cancel":
                session, member = self._seat_in(frame.params)
                if (there := self._host.rooms.get(session)) is not None:  # else nothing runs that it could stop
                    await there.cancel(member)
            elif method.startswith(_REQUESTS):
                raise RequestRejected(f"{method} is a request; send it with an id", INVALID_REQUEST)
            elif not method.startswith("$/"):
                room, _ = await self._in(frame.params)
                await self._check(room.process.agent, method, frame.params)
                await room.notify(method, frame.params)
        except OnefoldError as refused:
            log.warning("a client's %s was rejected: %s", frame.method, refused, extra={"client": self._name})
            if isinstance(refused, RequestRejected) and refused.code == BUSY:
                self._give(error(None, BUSY, f"{frame.method} was not passed on: {refused}"))
            release(refused)

    async def _take_back(self, id: Json) -> None:
        """The client does not want an answer any more. A prompt that waits is taken back, one that runs is stopped, and
        both end as the protocol says that cancelled ones do; of anything else nobody waits for the end."""
        asked = self._asked.get(id) if isinstance(id, str | int) else None
        if asked is None or asked.taken_back:
            return
        asked.taken_back = True
        if asked.prompt is not None:
            await self._withdraw(*asked.prompt)
        elif not asked.prompting and asked.task is not None:
            asked.task.cancel()

    async def _withdraw(self, session: str, member: Member, prompt: SubmittedPrompt) -> None:
        number = await prompt.accepted
        there = self._host.rooms.get(session)
        if there is not None and number is not None and there.prompts.runs(number):
            await there.cancel(member)
        elif number is not None:
            await self._host.unqueue(session, member, number)

    async def _answer(self, frame: Frame) -> None:
        for session, member in list(self._seats.items()):
            if (room := self._host.rooms.get(session)) is not None:
                with contextlib.suppress(RoomClosed):  # its questions were withdrawn
                    await room.answer(member, frame)

    # ------------------------------------------------------------------ rooms

    def _seat(self, session: str, *, attached: bool = False, watch: bool = False) -> Member:
        """This client's place in a session's room. Attached again, it leaves the old one."""
        before = self._seats.pop(session, None)
        if before is not None:
            self._host.drop(session, before)
        able = self._capabilities.get("session")
        member = Member(
            name=self._name,
            send_queue=self.send_queue,
            since=self._host.clock(),
            kind="watch" if watch else "acp",
            may_act=not watch and self._who.may("agents"),  # who looks on is asked nothing, and counts for none
            may_compact=self._who.may("compact"),
            knows_compaction=isinstance(able, dict) and able.get("compaction") is not None,
            attached=attached,
        )
        self._seats[session] = member
        return member

    async def _join(
        self,
        room: Room,
        id: str | int,
        params: dict[str, Json],
        *,
        named: bool = True,
        after: int | None = None,
    ) -> None:
        member = self._seat(room.session)

        def first() -> None:
            said = opened_for(room.process.opened, room.process.cwd, params)
            self._give(result(id, {"sessionId": room.session, **said} if named else said))

        await self._sit(room, member, first, after=after)

    async def _sit(
        self, room: Room, member: Member, first: Callable[[], None], *, after: int | None, new: bool = True
    ) -> None:
        try:
            await room.join(member, first, after=after, new=new)
        except BaseException:
            if self._seats.get(room.session) is member:
                del self._seats[room.session]
            raise

    def _seat_in(self, params: dict[str, Json]) -> tuple[str, Member]:
        """The session that a frame is for, and this client's place in it."""
        named = params.get("sessionId")
        if named is None and len(self._seats) == 1:
            return next(iter(self._seats.items()))
        if not isinstance(named, str) or named not in self._seats:
            raise RequestRejected(
                f"this connection has not joined session {named!r}; load or attach it first", INVALID_PARAMS
            )
        return named, self._seats[named]

    async def _in(self, params: dict[str, Json]) -> tuple[Room, Member]:
        """The room that a frame is for. One that was closed is taken up again, by who may do that."""
        session, member = self._seat_in(params)
        room = self._host.rooms.get(session)
        if room is None:
            self._need("agents")
            room = await self._host.enter(session)
        return room, member

    def _running(self, any_id: str) -> Room:
        """For who only looks on, and so starts nothing."""
        room = self._host.room(any_id)
        if room is None:
            raise RequestRejected(f"no agent runs for session {any_id!r} now; it is started when somebody writes to it")
        return room

    def _need(self, scope: Scope) -> None:
        if not self._who.may(scope):
            raise RequestRejected(f"this token lacks the scope {scope!r}; one that has it may", FORBIDDEN)
