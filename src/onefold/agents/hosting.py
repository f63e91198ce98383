"""All rooms of one process: opened, found, looked after, closed."""

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
from types import ModuleType
from typing import TypeVar

from onefold.agents.erasure import settle
from onefold.agents.frames import Frames
from onefold.agents.refused import Refused
from onefold.agents.room import Room
from onefold.agents.spec import Agent, Agents, AgentUnusable
from onefold.errors import OnefoldError, SessionNotFound, StoreError, StoreUnavailable
from onefold.journal.permissions import access_beside, make_file, make_folder_for, widen
from onefold.journal.refusals import check_name
from onefold.journal.seam import Transaction
from onefold.model import Clock, Json, system_clock
from onefold.store import Store

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no flock on this system: a second host of the same session is not noticed
    fcntl = None

T = TypeVar("T")
log = logging.getLogger("onefold.agents")

THREADS = 8
TICK = 5.0
"""Seconds between two looks at leases and bounds."""
CALM = 0.2
"""Seconds between two looks at what others wrote, however much that is."""
DAY = 86_400.0
RETAIN_EVERY = 3_600.0
MOST_ROOMS = 1_000


class Hosted(OnefoldError):
    """Another process runs the agent of this session."""


class Host:
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
        self._resume = resume
        self.frames = Frames(str(frames), clock=clock)
        self.default: Room | None = None
        """The room that a client without a session's id comes to."""
        self.snapshots: Callable[[str], dict[str, Json]] | None = None
        """How a session is described to who attaches; the server gives it."""
        self._locks = Path(f"{frames}.locks")
        self._held: dict[str, int] = {}
        self._rooms: dict[str, Room] = {}
        self._opening: dict[str, asyncio.Future[Room]] = {}
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
        """Ends every agent, settles what is open, and closes the frames. The store stays open."""
        self._stop.set()
        for task in (self._ticking, self._resuming):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(room.close() for room in self._rooms.values()), return_exceptions=True)
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
                log.warning("a room could not be taken up: %s", error, extra={"session": row.session})

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def environment(self, agent: Agent) -> dict[str, str]:
        """What an agent that is started now finds in its environment."""
        return self.agents.environment(agent, os.environ)

    def snapshot(self, session: str) -> dict[str, Json]:
        return self.snapshots(session) if self.snapshots is not None else {}

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
                log.warning("the store cannot be watched: %s", error)
            except RuntimeError:  # the loop has ended
                return

    def _concerned(self) -> tuple[list[str], list[str]]:
        """The sessions whose rooms have to look (a compaction is wanted, a turn was ended or has become free, something
        was erased), and those that were deleted."""
        wanted = [c.session for c in self.store.compactions() if c.state == "requested"]
        rooms = list(self._rooms.values())

        def look(tx: Transaction) -> tuple[list[str], list[str]]:
            found = [(room, tx.session(room.session)) for room in rooms]
            concerned = [room.session for room, state in found if state is not None and room.concerns(state)]
            return concerned, [room.session for room, state in found if state is None]

        concerned, deleted = self.store.journal.backend.read(look)
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
            await self.shut(session, "its session was deleted")
            await self.in_thread(lambda: settle(self.store.journal, self.frames, session))
        except OnefoldError as error:
            log.warning("the frames of a deleted session are removed later: %s", error, extra={"session": session})

    async def _tick(self) -> None:
        retained = 0.0
        while True:
            await asyncio.sleep(TICK)
            for room in self._rooms.values():
                room.poke()
            if self.clock() - retained > RETAIN_EVERY:
                retained = self.clock()
                before = retained - self.agents.days * DAY
                try:
                    await self.in_thread(lambda: settle(self.store.journal, self.frames))
                    await self.in_thread(lambda before=before: self.frames.retain(before))  # type: ignore[misc]
                except OnefoldError as error:
                    log.warning("old frames could not be removed: %s", error)

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

    async def enter(self, any_id: str) -> Room:
        """The room of a session, opened again if it was one before and the config file names its agent."""
        found = self.room(any_id)
        if found is not None:
            return found
        session = await self.in_thread(lambda: self.store.resolve(any_id))
        if session in self._opening:
            return await asyncio.shield(self._opening[session])
        row = await self.in_thread(lambda: self.frames.room(session))
        if row is None:
            raise Refused(
                f"session {session!r} has no agent; start one with "
                f"`onefold run --session {shlex.quote(session)} -- COMMAND`"
            )
        try:
            agent = self.agents.again(row.agent, session)
        except AgentUnusable:
            self._check_free(session)
            raise
        return await self.open(session, agent, cwd=row.cwd)

    async def open(self, session: str, agent: Agent, *, cwd: str, servers: Sequence[Json] = ()) -> Room:
        """The room of a session; made, with its agent, if it is not open here. Two who ask at once get the same one."""
        if session in self._rooms:
            return self._rooms[session]
        if session in self._opening:
            return await asyncio.shield(self._opening[session])
        check_name("session id", session)
        if self._stop.is_set():
            raise Refused("onefold is about to end; attach again when it is back")
        if len(self._rooms) >= MOST_ROOMS:
            raise Refused(f"{MOST_ROOMS} rooms are open already")
        made: asyncio.Future[Room] = asyncio.get_running_loop().create_future()
        self._opening[session] = made
        try:
            self._lock(session)
            room = Room(self, session, agent, cwd=cwd, servers=servers)
            await room.open()
            self._rooms[session] = room
            if self._stop.is_set():
                await room.close()
            made.set_result(room)
            return room
        except BaseException as error:
            self._unlock(session)
            made.set_exception(error if isinstance(error, Exception) else Refused("it was given up"))
            made.exception()  # who waits gets it; if nobody does, that is no complaint
            raise
        finally:
            del self._opening[session]

    async def shut(self, session: str, why: str) -> None:
        """Ends a room. Its session stays, and the room can be opened again."""
        room = self._rooms.pop(session, None)
        if room is not None:
            await room.close(why)
            self._unlock(session)

    # ------------------------------------------------------------------ one host a session

    def _lock(self, session: str) -> None:
        """A file's lock, which ends with this process however it ends."""
        if fcntl is None:
            return
        path = self._locks / hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        access = access_beside(self._locks.with_suffix(""))
        try:
            make_folder_for(self._locks, access)
            make_file(path, access)
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            widen(handle, access, access.file)
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be locked ({error.strerror}), so the agent of session {session!r} was not started: "
                f"another process might run it. Whoever owns {self._locks} can let you in: "
                f"`chmod -R g+rwX {shlex.quote(str(self._locks))}`"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held_by = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            raise Hosted(
                f"the agent of session {session!r} is run by another process{f' ({held_by})' if held_by else ''}; "
                "attach to it there, or end it first"
            ) from None
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
