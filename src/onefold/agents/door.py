"""A client's connection: the Agent Client Protocol as the client speaks it, whatever carries it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from onefold.agents.history import replay, replayed
from onefold.agents.hosting import Host
from onefold.agents.members import Member
from onefold.agents.outbox import Outbox
from onefold.agents.refused import BUSY, FORBIDDEN, Refused
from onefold.agents.room import Room
from onefold.agents.spec import Agent
from onefold.agents.wire import (
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
from onefold.errors import OnefoldError
from onefold.model import Json

log = logging.getLogger("onefold.agents")

MOST_UNDER_WAY = 64
"""Requests and notifications of one client that are not answered or passed on yet."""
MOST_BYTES_UNDER_WAY = 16 << 20
"""As much as their frames may be together. One by itself always passes: how large it may be is for who carries it."""
LARGE = 128 << 10
"""From so many characters on a frame is parsed in a thread."""

Scope = Literal["read", "write", "compact", "admin"]
History = Literal["all", "segment", "pending", "none"]


class Who(Protocol):
    """Who speaks, and what for."""

    @property
    def name(self) -> str: ...
    def may(self, scope: Scope) -> bool: ...


class Door:
    """One connection of one client. `take` each frame it sends; what it is sent comes out of the outbox."""

    def __init__(
        self,
        host: Host,
        who: Who,
        *,
        session: str | None = None,
        agent: str | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.outbox = outbox or Outbox()
        self._host = host
        self._who = who
        self._session = session
        self._agent = agent
        self._capabilities: dict[str, Json] = {}
        self._name = who.name
        self._rooms: dict[str, tuple[Room, Member]] = {}
        self._locked: Room | None = None
        """The room that was made for this client, and whose agent wants somebody to log in first."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What is under way, and how large its frame was."""

    async def take(self, line: str) -> None:
        """One line from the client."""
        try:
            frame = await asyncio.to_thread(sole, line) if len(line) > LARGE else sole(line)
        except ValueError as wrong:
            self._give(error(None, INVALID_REQUEST, f"this is no frame: {wrong}"))
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
        for room, member in self._rooms.values():
            room.leave(member)
        self._rooms.clear()
        self.outbox.close("the client left")

    # ------------------------------------------------------------------ requests

    def _run(self, work: Awaitable[None], size: int) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = size
        task.add_done_callback(self._tasks.pop)

    def _give(self, frame: Frame) -> None:
        self.outbox.give(text(frame))

    async def _respond(self, frame: Frame) -> None:
        id, method = frame.id, frame.method or ""
        if id is None:
            return
        try:
            answer = await self._do(method, frame.params, id)
        except Refused as refused:
            answer = error(id, refused.code, str(refused), refused.data)
        except OnefoldError as refused:
            answer = error(id, INVALID_PARAMS, str(refused), {"kind": type(refused).__name__})
        except Exception as trouble:  # whatever it was, who asked has to hear of it
            log.error("a client's %s failed", method, extra={"client": self._name}, exc_info=trouble)
            answer = error(id, INTERNAL_ERROR, f"{method} failed: {str(trouble) or type(trouble).__name__}")
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
            "session/delete": self._not_here,
            "session/fork": self._not_here,
            "onefold/steer": self._steer,
            "onefold/unqueue": self._unqueue,
            "onefold/compact": self._compact,
        }
        if method in known:
            return await known[method](params, id)
        self._need("write")
        room, _ = self._in(params)
        await room.ready()
        return _passed_on(await room.forward(method, params), id)

    async def _initialize(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("read")
        able = params.get("clientCapabilities")
        self._capabilities = able if isinstance(able, dict) else {}
        info = params.get("clientInfo")
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            self._name = f"{info['name'][:64]} ({self._who.name})"
        said: dict[str, Json] = {"protocolVersion": 1}
        if (room := await self._room_at_the_door()) is not None:
            said |= await room.greeted()
        able = said.get("agentCapabilities")
        able = (
            dict(able) if isinstance(able, dict) else {"promptCapabilities": {"embeddedContext": True, "image": True}}
        )
        more = able.get("sessionCapabilities")
        more = dict(more) if isinstance(more, dict) else {}
        more |= {"list": {}, "resume": {}, "close": {}}
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
        if self._session is not None:
            return await self._host.enter(self._session)
        return self._host.default if self._agent is None else None

    async def _authenticate(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("write")
        room = await self._room_at_the_door() or self._locked
        if room is None:
            return result(id, {})
        answer = await room.forward("authenticate", params)
        if "error" not in answer.body:
            room.process.authenticated()
        return _passed_on(answer, id)

    async def _new(self, params: dict[str, Json], id: str | int) -> Frame | None:
        room = await self._room_at_the_door() or self._locked
        if room is None:
            self._need("write")
            cwd = params.get("cwd")
            if not isinstance(cwd, str) or not cwd:
                raise Refused("session/new needs a cwd", INVALID_PARAMS)
            servers = params.get("mcpServers")
            agent: Agent = self._host.agents.named(self._agent)
            room = await self._host.open(
                self._host.store.journal.new_id(), agent, cwd=cwd, servers=servers if isinstance(servers, list) else ()
            )
            self._locked = room
        else:
            self._need("read")
        await room.ready()
        self._locked = None
        await self._join(room, id, lambda: room.process.opened)
        return None

    async def _load(self, params: dict[str, Json], id: str | int) -> Frame | None:
        self._need("read")
        room = await self._host.enter(_session(params))
        await room.ready()
        moment = await room.moment()
        told = await self._host.in_thread(lambda: replay(self._host.store, room.session, moment))
        for update in told:
            await self.outbox.room()
            self._give(notification("session/update", {"sessionId": room.session, "update": update}))
        await self._join(room, id, lambda: room.process.opened, named=False, after=moment.frame)
        return None

    async def _resume(self, params: dict[str, Json], id: str | int) -> Frame | None:
        self._need("read")
        room = await self._host.enter(_session(params))
        await room.ready()
        await self._join(room, id, lambda: room.process.opened, named=False)
        return None

    async def _attach(self, params: dict[str, Json], id: str | int) -> Frame | None:
        """The snapshot, as much history as asked for, and the frame from which everything follows: one moment."""
        self._need("read")
        room = await self._host.enter(_session(params))
        after = params.get("after")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise Refused("`after` is the number of a frame", INVALID_PARAMS)
        wanted = params.get("history", "segment" if after is None else "none")
        order = params.get("order", "oldest")
        if wanted not in ("all", "segment", "pending", "none") or order not in ("oldest", "newest"):
            raise Refused("history is one of all, segment, pending, none; order is oldest or newest", INVALID_PARAMS)
        if after is not None:
            forgotten = await self._host.in_thread(lambda: self._host.frames.forgotten(room.session))
            if after > room.tape.last or after < forgotten:
                raise Refused(
                    f"there is no frame {after} to go on from; attach without `after`", INVALID_PARAMS,
                    {"last": room.tape.last, "forgotten": forgotten},
                )  # fmt: skip
        moment = await room.moment()
        begins = moment.frame if after is None else after
        shot = await self._host.in_thread(lambda: self._host.snapshot(room.session))
        told = (
            []
            if wanted in ("none", "pending")
            else await self._host.in_thread(
                lambda: replayed(
                    self._host.store, room.session, moment, whole=wanted == "all", newest=order == "newest"
                )
            )
        )
        member = self._seat(room)
        member.attached = True
        if params.get("watch") is True:  # it only looks on: no question waits for it, and it counts for none
            member.may_write, member.kind = False, "watch"
        said = {**shot, **room.standing(), "sessionId": room.session, "history": told, "follow": begins}

        def first() -> None:
            self._give(result(id, said))

        await room.join(member, first, after=begins, new=after is None)
        return None

    async def _list(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("read")
        rows = await self._host.in_thread(self._host.frames.rooms)
        return result(id, {"sessions": [{"sessionId": r.session, "cwd": r.cwd, "title": r.agent} for r in rows]})

    async def _prompt(self, params: dict[str, Json], id: str | int, *, first: bool = False) -> Frame:
        self._need("write")
        room, member = self._in(params)
        if not isinstance(params.get("prompt"), list):
            raise Refused("a prompt is a list of blocks", INVALID_PARAMS)
        asked = await room.prompt(member, params, first=first)
        asked.accepted.add_done_callback(_heard)
        return result(id, await asked.ended)

    async def _steer(self, params: dict[str, Json], id: str | int) -> Frame:
        return await self._prompt(params, id, first=True)

    async def _unqueue(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("write")
        room, member = self._in(params)
        number = params.get("input")
        if not isinstance(number, int):
            raise Refused("`input` is the number of a prompt that waits", INVALID_PARAMS)
        return result(id, await room.unqueue(member, number))

    async def _compact(self, params: dict[str, Json], id: str | int) -> Frame:
        self._need("compact")
        room, _ = self._in(params)
        instructions = params.get("instructions")
        words = instructions if isinstance(instructions, str) else None
        return result(id, await room.compact("manual", words, self._name))

    async def _close_session(self, params: dict[str, Json], id: str | int) -> Frame:
        """The client leaves; the room, which others share, stays."""
        room, member = self._in(params)
        del self._rooms[room.session]
        room.leave(member)
        return result(id, {})

    async def _not_here(self, params: dict[str, Json], id: str | int) -> Frame:
        raise Refused("others share this session; use onefold's own commands for that", METHOD_NOT_FOUND)

    # ------------------------------------------------------------------ notifications and answers

    async def _notified(self, frame: Frame) -> None:
        try:
            self._need("write")
            room, member = self._in(frame.params)
            if frame.method == "session/cancel":
                await room.cancel(member)
            elif not (frame.method or "").startswith("$/"):
                await room.notify(frame.method or "", frame.params)
        except OnefoldError as refused:
            log.warning("a client's %s was refused: %s", frame.method, refused, extra={"client": self._name})
            if isinstance(refused, Refused) and refused.code == BUSY:
                self._give(error(None, BUSY, f"{frame.method} was not passed on: {refused}"))

    async def _answer(self, frame: Frame) -> None:
        for room, member in list(self._rooms.values()):
            await room.answer(member, frame)

    # ------------------------------------------------------------------ rooms

    def _seat(self, room: Room) -> Member:
        """This client's place in a room. Attached again, it leaves the old one."""
        before = self._rooms.pop(room.session, None)
        if before is not None:
            room.members.drop(before[1])
        session = self._capabilities.get("session")
        member = Member(
            name=self._name,
            outbox=self.outbox,
            since=self._host.clock(),
            may_write=self._who.may("write"),
            may_compact=self._who.may("compact"),
            knows_compaction=isinstance(session, dict) and session.get("compaction") is not None,
        )
        self._rooms[room.session] = room, member
        return member

    async def _join(
        self,
        room: Room,
        id: str | int,
        opened: Callable[[], dict[str, Json]],
        *,
        named: bool = True,
        after: int | None = None,
    ) -> None:
        member = self._seat(room)

        def first() -> None:
            said = {k: v for k, v in opened().items() if k != "sessionId"}
            self._give(result(id, {"sessionId": room.session, **said} if named else said))

        await room.join(member, first, after=after)

    def _in(self, params: dict[str, Json]) -> tuple[Room, Member]:
        named = params.get("sessionId")
        found = self._rooms.get(named) if isinstance(named, str) else None
        if found is None and named is None and len(self._rooms) == 1:
            return next(iter(self._rooms.values()))
        if found is None:
            raise Refused(f"this connection has not joined session {named!r}; load or attach it first", INVALID_PARAMS)
        return found

    def _need(self, scope: Scope) -> None:
        if not self._who.may(scope):
            raise Refused(f"this token may not {scope}; one with that scope may", FORBIDDEN)


def _passed_on(answer: Frame, id: str | int) -> Frame:
    """The agent's answer, as the answer to a client's own request."""
    said = {k: v for k, v in answer.body.items() if k in ("result", "error")}
    return Frame({"jsonrpc": "2.0", "id": id, **said})


def _heard(accepted: asyncio.Future[int | None]) -> None:
    """A prompt that is refused is refused at its end, too."""
    if not accepted.cancelled():
        accepted.exception()


def _session(params: dict[str, Json]) -> str:
    named = params.get("sessionId")
    if not isinstance(named, str) or not named:
        raise Refused("which session? give its sessionId", INVALID_PARAMS)
    return named
