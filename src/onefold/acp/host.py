"""All rooms of one process: opens, finds, supervises and closes them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from onefold.acp.agent_config import Agent, Agents, AgentUnusable
from onefold.acp.agent_subprocess import CannotStart, check_startable
from onefold.acp.frame_erasure import settle
from onefold.acp.frame_log import FrameLog
from onefold.acp.members import Member
from onefold.acp.prompt_queue import SubmittedPrompt
from onefold.acp.room import Room
from onefold.acp.room_errors import RequestRejected, RoomClosed
from onefold.acp.room_journal import RoomJournal
from onefold.errors import OnefoldError, SessionNotFound, StoreError, StoreUnavailable
from onefold.ids import system_clock
from onefold.journal.checks import check_name
from onefold.model import Clock, Json
from onefold.storage import file_lock
from onefold.storage.base import Transaction
from onefold.storage.permissions import access_beside, make_file, make_folder_for, widen
from onefold.store import Store

T = TypeVar("T")
log = logging.getLogger("onefold.acp")

THREADS = 8
TICK = 5.0
"""Seconds between two looks at leases and bounds."""
CALM = 0.2
"""Seconds between two looks at what others wrote, however much that is."""
MINUTE = 60.0
DAY = 86_400.0
RETAIN_EVERY = 3_600.0
MOST_ROOMS = 1_000
_ENDS = "onefold is about to end; attach again when it is back"


class AlreadyHosted(OnefoldError):
    """Another process runs the agent of this session."""


class _RoomRequest(NamedTuple):
    """What a room was opened with. Kept in memory only: a command and servers' settings may hold keys."""

    agent: Agent
    cwd: str
    servers: Sequence[Json]


class RoomHost:
    """The rooms of a store in this process. `start` and everything else in one event loop."""

    def __init__(
        self,
        store: Store,
        frames: str | Path,
        agents: Agents | None = None,
        *,
        clock: Clock = system_clock,
        compact_at: float | None = None,
        resume: bool = False,
    ) -> None:
        """`resume`: rooms in which something was left to do when the last process ended are opened at the start."""
        self.store = store
        self.agents = agents or Agents()
        self.redact = self.agents.redact
        self.clock = clock
        self.compact_at = compact_at
        self.idle = self.agents.idle * MINUTE
        """Seconds without a client and without work after which a room ends by itself; 0: never."""
        self._resume = resume
        self.frames = FrameLog(str(frames), clock=clock)
        self.default: str | None = None
        """The session of the room that a client without a session's id comes to."""
        self.snapshots: Callable[[str], dict[str, Json]] | None = None
        """How a session is described to who attaches; the server gives it."""
        self.changed: Callable[[str], None] | None = None
        """Hears of each session whose room is not as it was, which no record says; the server gives it."""
        self._locks = Path(f"{frames}.locks")
        self._held: dict[str, int] = {}
        self._rooms: dict[str, Room] = {}
        self._given: dict[str, _RoomRequest] = {}
        self._opening: dict[str, asyncio.Task[Room]] = {}
        self._shutting: dict[str, asyncio.Task[None]] = {}
        self._lobby: dict[str, list[Member]] = {}
        """Clients who will be in the next room of a session: they were in the last one, or came while none was open and
        start none."""
        self._resting: set[str] = set()
        """Sessions whose rooms ended by themselves, and are opened when there is something to do."""
        self._threads = ThreadPoolExecutor(THREADS, "onefold-rooms")
        self._stop = threading.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._burying: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begins to look after rooms. In the event loop; a second call does nothing."""
        if self._ticking is not None:
            return
        loop = asyncio.get_running_loop()
        self._ticking = loop.create_task(self._tick())
        if self._resume:
            self._resuming = loop.create_task(self._take_up())
        threading.Thread(target=self._listen, args=(loop,), name="onefold-rooms-listen", daemon=True).start()

    async def close(self) -> None:
        """Ends every agent, settles what is open, and closes the frame log. The store stays open. A second call does
        nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        for task in (self._ticking, self._resuming):
            if task is not None:
                task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for room in list(self._rooms.values()):
            self._begin_to_shut(room, "onefold ended", stay=False)
        await asyncio.gather(*self._shutting.values(), return_exceptions=True)
        for session in list(self._lobby):
            self._send_away(session, "onefold ended")
        for session in list(self._held):
            self._unlock(session)
        await self.in_thread(self.frames.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _take_up(self) -> None:
        """Opens the rooms in which a prompt waits, a compaction was asked for, or a turn was left open."""
        for row in await self.in_thread(self.frames.rooms):
            try:
                state = await self.in_thread(lambda session=row.session: self.store.journal.state(session))  # type: ignore[misc]
                if state.pending or state.turn or state.open is not None:
                    await self.enter(row.session)
            except OnefoldError as error:
                log.warning("a room could not be reopened: %s", error, extra={"session": row.session})

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def environment(self, agent: Agent) -> dict[str, str]:
        """What an agent that is started now finds in its environment."""
        return self.agents.environment(agent, os.environ)

    def snapshot(self, session: str) -> dict[str, Json]:
        return self.snapshots(session) if self.snapshots is not None else {}

    def told(self, session: str) -> None:
        """The room of a session is not as it was."""
        if self.changed is not None:
            self.changed(session)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread of its own: the journal changed, by whoever it was, and rooms look whether it is for them."""
        backend = self.store.journal.backend
        seen = backend.version()
        while not self._stop.is_set():
            try:
                version = backend.version()
                if version != seen:
                    seen = version
                    loop.call_soon_threadsafe(self._poke, *self._concerned())
                    self._stop.wait(CALM)
                backend.wait(version, 1.0)
            except StoreError as error:
                if self._stop.wait(1.0):
                    return
                log.warning("cannot watch the store for changes: %s", error)
            except RuntimeError:  # the loop has ended
                return

    def _concerned(self) -> tuple[list[str], list[str]]:
        """The sessions whose rooms have to look (a compaction is wanted, a turn was ended or has become free, something
        was erased), and those that were deleted."""
        wanted = [c.session for c in self.store.compactions() if c.state == "requested"]
        rooms = list(self._rooms.values())

        def read_concerned(tx: Transaction) -> tuple[list[str], list[str]]:
            found = [(room, tx.session(room.session)) for room in rooms]
            concerned = [room.session for room, state in found if state is not None and room.concerns(state)]
            return concerned, [room.session for room, state in found if state is None]

        concerned, deleted = self.store.journal.backend.read(read_concerned)
        return [*wanted, *concerned], deleted

    def _poke(self, sessions: Sequence[str], deleted: Sequence[str] = ()) -> None:
        for session in sessions:
            if (room := self._rooms.get(session)) is not None:
                room.poke()
        for session in deleted:
            task = asyncio.get_running_loop().create_task(self._bury(session))
            self._burying.add(task)
            task.add_done_callback(self._burying.discard)

    async def _bury(self, session: str) -> None:
        """A session was deleted: its room and its agent end, and nothing is kept of them."""
        try:
            await self._shut(session, "its session was deleted", stay=False)
            self._send_away(session, "its session was deleted")
            self._given.pop(session, None)
            self._resting.discard(session)
            await self.in_thread(lambda: settle(self.store.journal, self.frames, session))
        except OnefoldError as error:
            log.warning(
                "could not remove the frames of a deleted session; trying again later: %s",
                error,
                extra={"session": session},
            )

    async def _tick(self) -> None:
        retained = 0.0
        while True:
            await asyncio.sleep(TICK)
            for room in self._rooms.values():
                room.poke()
            await self._wake()
            if self.clock() - retained > RETAIN_EVERY:
                retained = self.clock()
                before = retained - self.agents.days * DAY
                try:
                    await self.in_thread(lambda: settle(self.store.journal, self.frames))
                    await self.in_thread(lambda before=before: self.frames.retain(before))  # type: ignore[misc]
                except OnefoldError as error:
                    log.warning("old frames could not be removed: %s", error)

    async def _wake(self) -> None:
        """Opens the rooms that ended by themselves and have something to do since: a compaction that somebody wants, or
        an input."""
        resting = [session for session in self._resting if session not in self._shutting]

        def read_wake(tx: Transaction) -> list[str]:
            found = ((session, tx.session(session)) for session in resting)
            return [session for session, state in found if state is not None and (state.pending or state.open)]

        try:
            wanted = await self.in_thread(lambda: self.store.journal.backend.read(read_wake)) if resting else []
        except StoreError as error:
            log.warning("cannot check whether closed rooms have work: %s", error)
            return
        for session in wanted:
            self._resting.discard(session)
            try:
                await self.enter(session)
            except OnefoldError as error:
                log.warning("a room could not be reopened: %s", error, extra={"session": session})

    # ------------------------------------------------------------------ rooms

    @property
    def rooms(self) -> dict[str, Room]:
        return dict(self._rooms)

    def room(self, any_id: str) -> Room | None:
        """The room of a session, by any id it is known by, if it is open here."""
        found = self._rooms.get(any_id)
        if found is not None:
            return found
        with contextlib.suppress(SessionNotFound):
            return self._rooms.get(self.store.resolve(any_id))
        return None

    async def found(self, any_id: str) -> Room | None:
        """The room of a session; None if it has an agent, and that does not run here. Starts nothing."""
        if (room := self.room(any_id)) is not None:
            return room
        session = await self.in_thread(lambda: self.store.resolve(any_id))
        if await self.in_thread(lambda: self.frames.room(session)) is None:
            raise _no_agent(session)
        return self._rooms.get(session)

    async def found_for(self, any_id: str) -> Room | None:
        """The same, for who acts in it: raises if it is another process that has it open."""
        room = await self.found(any_id)
        if room is None:
            session = await self.in_thread(lambda: self.store.resolve(any_id))
            if session not in self._opening and session not in self._shutting:
                self._check_free(session)
        return room

    async def enter(self, any_id: str) -> Room:
        """The room of a session, opened again if it was one before and the config file names its agent."""
        found = self.room(any_id)
        if found is not None:
            return found
        session = await self.in_thread(lambda: self.store.resolve(any_id))
        if session in self._opening:
            return await asyncio.shield(self._opening[session])
        if (given := self._given.get(session)) is not None:
            return await self.open(session, given.agent, cwd=given.cwd, servers=given.servers)
        row = await self.in_thread(lambda: self.frames.room(session))
        if row is None:
            raise _no_agent(session)
        try:
            agent = self.agents.again(row.agent, session)
        except AgentUnusable:
            self._check_free(session)
            raise
        return await self.open(session, agent, cwd=row.cwd)

    async def open(self, session: str, agent: Agent, *, cwd: str, servers: Sequence[Json] = ()) -> Room:
        """The room of a session; made, with its agent, if it is not open here. Two who ask at once get the same one.
        One that is about to end has ended before the next one is made."""
        while (shutting := self._shutting.get(session)) is not None:
            await asyncio.shield(shutting)
        if session in self._rooms:
            return self._rooms[session]
        if session not in self._opening:
            check_name("session id", session)
            if self._stop.is_set():
                raise RequestRejected(_ENDS)
            if len(self._rooms) >= MOST_ROOMS:
                raise RequestRejected(f"{MOST_ROOMS} rooms are open already")
            making = asyncio.create_task(self._make(session, _RoomRequest(agent, cwd, servers)))
            making.add_done_callback(_heard)
            self._opening[session] = making
        return await asyncio.shield(self._opening[session])

    async def _make(self, session: str, given: _RoomRequest) -> Room:
        """A task of its own: whoever asked for it may go."""
        try:
            self._lock(session)
            try:
                room = Room(self, session, given.agent, cwd=given.cwd, servers=given.servers)
                await room.open()
                if self._stop.is_set():
                    await room.close()
                    raise RequestRejected(_ENDS)
            except BaseException:
                self._unlock(session)
                raise
            self._rooms[session], self._given[session] = room, given
            self._resting.discard(session)
            self.told(session)
            await self._let_in(room)
            return room
        finally:
            del self._opening[session]

    def check_new(self, session: str, agent: Agent, cwd: str) -> None:
        """Raises if a session is new and its agent's program is not there: so a command that cannot be started leaves
        no session. One that is there already says so in its room."""
        try:
            self.store.resolve(session)
        except SessionNotFound:
            try:
                check_startable(agent.command, self.environment(agent), agent.cwd or cwd)
            except CannotStart as cannot:
                raise RequestRejected(str(cannot)) from None

    async def _let_in(self, room: Room) -> None:
        """Those who waited for it are in it, from the number on that they have: so they hear all that is said in it."""
        for member in self._lobby.pop(room.session, ()):
            try:
                await room.join(member, lambda: None, after=member.last, new=False)
            except OnefoldError as refused:
                member.send_queue.close(f"attach again: {refused}")

    async def prompt(
        self, any_id: str, member: Member, params: dict[str, Json], *, first: bool = False
    ) -> SubmittedPrompt:
        """Asks the agent of a session for a turn, in its room. If that ends in this moment, in the next one."""
        while True:
            room = await self.enter(any_id)
            with contextlib.suppress(RoomClosed):
                return await room.prompt(member, params, first=first)

    async def unqueue(self, any_id: str, member: Member, number: int) -> Json:
        """Takes a prompt back that waits for the agent of a session, whether that runs or not."""
        room = await self.found_for(any_id)
        if room is not None:
            return await room.unqueue(member, number)
        room_journal = RoomJournal(self.store, await self.in_thread(lambda: self.store.resolve(any_id)))
        return {"unqueued": await self.in_thread(lambda: room_journal.unqueue(number, actor=member.name))}

    async def restart(self, any_id: str, by: str) -> Room:
        """Ends the process of a session's agent, whatever it does, and starts the next one. One that does not run here
        is started."""
        found = self.room(any_id)
        if found is None:
            return await self.enter(any_id)
        await found.restart(by)
        return found

    async def shut(self, any_id: str, why: str) -> bool:
        """Ends a room and its agent; False if it is not open. Its session stays with all that waits in it, and the next
        prompt, of a client that was there or of another, opens the next one."""
        session = await self.in_thread(lambda: self.store.resolve(any_id))
        self._resting.discard(session)
        if session in self._opening:
            await asyncio.gather(asyncio.shield(self._opening[session]), return_exceptions=True)
        if session not in self._rooms and session not in self._shutting:
            self._check_free(session)
        return await self._shut(session, why, stay=True)

    def rest(self, room: Room) -> None:
        """A room has nobody in it and nothing to do."""
        if self._rooms.get(room.session) is room and not self._stop.is_set():
            self._resting.add(room.session)
            self._begin_to_shut(room, f"nobody was here and nothing was to do for {self.idle / MINUTE:g} minutes")

    async def _shut(self, session: str, why: str, *, stay: bool) -> bool:
        room = self._rooms.get(session)
        if room is not None:
            self._begin_to_shut(room, why, stay=stay)
        ending = self._shutting.get(session)
        if ending is not None:
            await asyncio.shield(ending)
        return room is not None

    def _begin_to_shut(self, room: Room, why: str, *, stay: bool = True) -> None:
        """From here on it is not found any more, and nobody comes in."""
        del self._rooms[room.session]
        room.seal()
        self._shutting[room.session] = asyncio.create_task(self._see_it_shut(room, why, stay=stay))

    async def _see_it_shut(self, room: Room, why: str, *, stay: bool) -> None:
        try:
            self._lobby.setdefault(room.session, []).extend(await room.close(why, stay=stay))
        finally:
            if not self._lobby.get(room.session):
                self._lobby.pop(room.session, None)
            self._unlock(room.session)
            del self._shutting[room.session]

    def expect(self, session: str, member: Member, after: int) -> None:
        """Has a client wait until somebody opens the room of a session; then it is let in, with all that comes after
        this frame. For who starts no agent."""
        member.last = after
        self._lobby.setdefault(session, []).append(member)

    def leave(self, session: str, member: Member) -> None:
        """A client goes, from its room or from where it waits for the next one."""
        if (room := self._rooms.get(session)) is not None:
            room.leave(member)
        self.drop(session, member)

    def drop(self, session: str, member: Member) -> None:
        """Without a word to the others: it takes another place. A room that is about to end does not keep it for the
        next one, and one that is about to let it in does not."""
        member.left = True
        if (room := self._rooms.get(session)) is not None:
            room.members.drop(member)
        if member in (waiting := self._lobby.get(session, [])):
            waiting.remove(member)
            if not waiting:
                del self._lobby[session]

    def _send_away(self, session: str, why: str) -> None:
        for member in self._lobby.pop(session, ()):
            member.send_queue.close(why)

    # ------------------------------------------------------------------ one host a session

    def _lock(self, session: str) -> None:
        """A file's lock, which ends with this process however it ends."""
        if not file_lock.AVAILABLE:  # a second host of the same session is not noticed
            return
        path = self._locks / hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        access = access_beside(self._locks.with_suffix(""))
        try:
            make_folder_for(self._locks, access)
            make_file(path, access)
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            widen(handle, access, access.file)
            locked = file_lock.try_lock(handle)
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be locked ({error.strerror}), so the agent of session {session!r} was not started: "
                f"another process might run it. Whoever owns {self._locks} can let you in: "
                f"`chmod -R g+rwX {shlex.quote(str(self._locks))}`"
            ) from error
        if not locked:
            held_by = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            raise AlreadyHosted(
                f"the agent of session {session!r} is run by another process{f' ({held_by})' if held_by else ''}; "
                "attach to it there, or end it first"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._held[session] = handle

    def _check_free(self, session: str) -> None:
        """Raises if another process has its agent: then there is where to go."""
        if session not in self._held:
            self._lock(session)
            self._unlock(session)

    def _unlock(self, session: str) -> None:
        handle = self._held.pop(session, None)
        if handle is not None:
            os.close(handle)


def _no_agent(session: str) -> RequestRejected:
    how = f"onefold run --session {shlex.quote(session)} -- COMMAND"
    return RequestRejected(f"session {session!r} has no agent; start one with `{how}`")


def _heard(made: asyncio.Task[Room]) -> None:
    """Who waits for it gets what went wrong; if nobody waits, asyncio must not complain."""
    if not made.cancelled():
        made.exception()
