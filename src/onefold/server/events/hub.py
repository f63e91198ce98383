"""Live events: every record of a session, or of all, to any number of followers, each from its own number on.

One task reads for all who follow a session, and each record is encoded once. A follower has a bounded buffer: when that
is full, it is told to resume from its last number and disconnected, so that nobody grows memory or slows others. One
that begins far back is read to in pages from the store, as fast as it takes them, and then joins the live ones at the
very number where these are: no gap and no repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

from starlette.routing import BaseRoute

from onefold.bounded_queue import BoundedQueue
from onefold.errors import OnefoldError, SessionNotFound
from onefold.ids import random_id
from onefold.journal import lineage
from onefold.model import ERASED, Json, Record
from onefold.server.events.encoding import Event, EventBatch, RecentEvents, notice
from onefold.server.events.record_batches import RecordBatch, portion
from onefold.server.events.store_observer import WHOLE_AT_MOST, Observer, StoreChange
from onefold.server.settings import Settings
from onefold.storage.base import Transaction
from onefold.store import Store

T = TypeVar("T")
Kind = Literal["sse", "websocket"]
Refusal = tuple[str, Json]
"""The name of the last event, and what it says."""
log = logging.getLogger("onefold.server")

PAGE = 250
PAGE_BYTES = 1 << 20
LOOK_BYTES = 8 << 20
"""What is read at once for all who follow some session."""
BUFFER_BYTES = 1 << 20
"""Bytes that wait for one follower at most, not counting its socket."""
RECENT = 2_000
RECENT_BYTES = 4 << 20
STALL = 60.0
"""Seconds after which a follower that takes nothing at all is disconnected."""
THREADS = 6
LINGER = 60.0
"""Seconds for which what happens anywhere is remembered after the last one who followed all has left."""
AGAIN = 1.0
"""Seconds until the store is asked again after it could not be read."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A client that follows now."""

    name: str
    since: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client wants to follow."""

    session: str | None
    after: str | None
    """A record's number; in the stream of all sessions, an id it was given there. None: from now on."""
    generation: str | None = None
    name: str = "somebody"
    kind: Kind = "sse"


class Draining(OnefoldError):
    """The server is about to end."""


class InvalidCursor(OnefoldError):
    """The place to resume from is none."""


class Transport(Protocol):
    """How one client is written to."""

    async def open(self, first: Event) -> None: ...
    async def write(self, chunk: EventBatch) -> None: ...
    async def beat(self) -> None: ...
    async def close(self, last: Event) -> None: ...
    async def gone(self) -> None:
        """Returns when the client has left."""


class EventClient:
    """One who follows. All of it happens in the event loop."""

    def __init__(self, asked: Subscription, last: int, since: float, most: int) -> None:
        self.connected = Follower(asked.name, since, asked.kind)
        self.last = last
        """The last place that was handed to its socket."""
        self.live = False
        """It takes what comes as it comes. Otherwise it is still read to from the store."""
        self.over = False
        self.left = False
        self._farewell: Refusal = ("resume", None)
        self.writing_since: float | None = None
        self.stalled = False
        self.task = asyncio.current_task()
        self._buffer: BoundedQueue[EventBatch] = BoundedQueue(most_bytes=BUFFER_BYTES, most_count=most)

    def give(self, chunk: EventBatch) -> bool:
        """Puts events into its buffer. False if that is full."""
        return self._buffer.give(chunk, chunk.size, len(chunk.notices))

    def beat(self) -> None:
        self._buffer.wake()

    def end(self, name: str, data: Json = None) -> None:
        """Ends it after what is being written; what waits is dropped, because it will be asked for again."""
        if not self.over:
            self.over, self._farewell = True, (name, data)
            self._buffer.close()

    def farewell(self, id_of: Callable[[int], str]) -> Event:
        """The last thing it is told. Made only now: what was being written when it ended is behind it."""
        name, data = self._farewell
        id = id_of(self.last)
        return notice(name, id, {"after": int(id) if id.isdecimal() else id} if name == "resume" else data)

    async def next(self) -> EventBatch | None:
        """What waits; None for a sign of life, or when it is over."""
        return await self._buffer.next()

    async def write(self, wire: Transport, chunk: EventBatch | None) -> None:
        """Writes events, or a sign of life."""
        rest = chunk.after(self.last) if chunk is not None else None
        self.writing_since = time.monotonic()
        if rest is not None:
            await wire.write(rest)
            self.last = rest.last
        elif chunk is None:
            await wire.beat()
        self.writing_since = None


class Feed:
    """One stream, of a session or of all: how far it has come, and who follows it."""

    def __init__(self, session: str | None, last: int, name_of: Callable[[int], str]) -> None:
        self.session = session
        self.last = last
        self.clients: set[EventClient] = set()
        self.recent = RecentEvents(RECENT, RECENT_BYTES)
        self.id_of = name_of

    def give(self, notices: Sequence[Event]) -> list[EventClient]:
        """Gives events to all who are live. Returns those who were too slow and are to be disconnected."""
        chunk = EventBatch(notices)
        self.recent.add(chunk)
        self.last = chunk.last
        slow = [client for client in self.clients if client.live and not client.over and not client.give(chunk)]
        for client in slow:
            client.end("resume")
        return slow

    def end(self, name: str, data: Json = None) -> None:
        for client in self.clients:
            client.end(name, data)


class Hub:
    """All who follow a store in this process, and what is read for them."""

    def __init__(
        self, store: Store, settings: Settings, *, clock: Callable[[], float] = time.time, stall: float = STALL
    ) -> None:
        self.store = store
        self.settings = settings
        self.observer = Observer(store)
        self.draining = False
        self.drops = 0
        """Followers that were too slow and were told to resume."""
        self._clock = clock
        self._stall = stall
        self._feeds: dict[str, Feed] = {}
        self._nonce = random_id()[:8]
        self._all = Feed(None, 0, lambda place: f"{self._nonce}-{place}")
        self._all_left = 0.0
        self._looks = 0
        self._threads = ThreadPoolExecutor(THREADS, "onefold-hub")
        self._stop = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._observed = asyncio.Event()
        self._observing = asyncio.Event()

    # ------------------------------------------------------------------ what others ask

    def routes(self) -> list[BaseRoute]:
        """`/api/events` and `/api/live`, as plain ASGI."""
        from onefold.server.events.transports import routes

        return routes(self)

    def clients(self, session: str) -> list[Follower]:
        """Who follows a session now, the longest first; not those who follow all of them."""
        feed = self._feeds.get(session)
        there = [*feed.clients] if feed is not None else []  # at once: this is asked from other threads
        return sorted((c.connected for c in there), key=lambda c: c.since)

    @property
    def followers(self) -> int:
        return sum(len(feed.clients) for feed in (*self._feeds.values(), self._all))

    def _everybody(self) -> Iterator[EventClient]:
        for feed in (*self._feeds.values(), self._all):
            yield from feed.clients

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begins to read. In the event loop; a second call does nothing."""
        if self._tasks:
            return
        loop = asyncio.get_running_loop()
        for work in (self._read_on(), self._observe_on(), self._tick()):
            task = loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(_complain)
        threading.Thread(target=self._listen, args=(loop,), name="onefold-hub-listens", daemon=True).start()

    def drain(self) -> None:
        """Tells everybody to resume elsewhere, and takes nobody any more."""
        self.draining = True
        for feed in (*self._feeds.values(), self._all):
            feed.end("resume")

    async def close(self) -> None:
        """Lets go of everything but the store."""
        self.drain()
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread of its own: waits for the store to change, and says so to the event loop."""
        backend = self.store.journal.backend
        seen = -1
        while not self._stop.is_set():
            try:
                version = backend.version()
                if version != seen:
                    seen = version
                    loop.call_soon_threadsafe(self._moved)
                backend.wait(version, AGAIN)
            except OnefoldError as error:
                if self._stop.wait(AGAIN):
                    return
                log.warning("the store cannot be watched: %s", error)
            except RuntimeError:  # the loop has ended
                return

    def _moved(self) -> None:
        self._changed.set()
        self._observed.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _again(self, error: Exception) -> bool:
        """Says what went wrong with reading, and waits until it is worth another try."""
        known = isinstance(error, OnefoldError)
        log.error("the store could not be read for those who follow it: %s", error if known else type(error).__name__,
                  exc_info=None if known else error)  # fmt: skip
        await asyncio.sleep(AGAIN)
        return True

    async def _tick(self) -> None:
        """Signs of life for all, and an end for those who take nothing."""
        pause = min(self.settings.heartbeat, self._stall) / 2
        beat = time.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            beats = now - beat >= self.settings.heartbeat * 0.75
            beat = now if beats else beat
            for client in list(self._everybody()):
                if client.writing_since is not None:
                    self._end_if_stalled(client, now)
                elif beats:
                    client.beat()

    def _end_if_stalled(self, client: EventClient, now: float) -> None:
        if client.writing_since is not None and now - client.writing_since > self._stall and client.task is not None:
            self.drops += 0 if client.over else 1
            client.stalled = True
            client.task.cancel()

    # ------------------------------------------------------------------ reading for those who follow a session

    async def _read_on(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                more = await self._read_once()
            except Exception as error:  # whatever it is, those who follow are read to again
                more = await self._again(error)
            if more:
                self._changed.set()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """How long to wait until the next write to everybody: a few are written to nearly at once, many less often."""
        return min(self.settings.flush, 0.005 + 1e-4 * self.followers)

    async def _read_once(self) -> bool:
        """Reads what is new in each session that is followed, and gives it out. True if there is more."""
        feeds = list(self._feeds.values())
        if not feeds:
            return False
        self._looks += 1
        first = self._looks % len(feeds)  # who came last in the last look is not always the last
        feeds = feeds[first:] + feeds[:first]
        found = await self._in_thread(partial(self._look, [(f.session or "", f.last) for f in feeds]))
        more = False
        for feed, (last, notices, erased) in zip(feeds, found, strict=True):
            if last is None:
                feed.recent.clear()
                feed.end("gone", {"session": feed.session})
            elif last < feed.last:
                feed.end("moved", self._moved_words(feed.session, last))
            elif notices:
                if erased:
                    feed.recent.clear()
                self._log_slow(feed, feed.give(notices))
            more = more or (last is not None and feed.last < last)
        return more

    def _look(self, wanted: Sequence[tuple[str, int]]) -> list[tuple[int | None, list[Event], bool]]:
        """In a thread: of each session its last number, and a page of what comes after a number."""

        def look_in(tx: Transaction) -> list[tuple[int | None, list[RecordBatch]]]:
            found: list[tuple[int | None, list[RecordBatch]]] = []
            left = LOOK_BYTES
            for session, after in wanted:
                state = tx.session(session)
                new: list[RecordBatch] = []
                if state is not None and state.last > after and left > 0:
                    read = partial(_own, tx, session, state.last + 1)
                    new = portion(session, read, after + 1, state.last + 1, limit=PAGE, most=min(left, PAGE_BYTES))
                    left -= sum(len(one.text) for one in new)
                found.append((None if state is None else state.last, new))
            return found

        return [
            (last, [told(one) for one in new], any(one.record.kind == ERASED for one in new))
            for last, new in self.store.journal.backend.read(look_in)
        ]

    def _log_slow(self, feed: Feed, slow: Sequence[EventClient]) -> None:
        self.drops += len(slow)
        for client in slow:
            log.info(
                "a follower was too slow and is told to resume",
                extra={"session": feed.session, "client": client.connected.name, "after": client.last},
            )

    def _moved_words(self, session: str | None, last: int) -> Json:
        return {"session": session, "last": last, "incarnation": self.store.generation}

    # ------------------------------------------------------------------ reading for those who follow all

    async def _observe_on(self) -> None:
        while not self._observing.is_set():
            try:
                await self._in_thread(self.observer.begin)
                self._observing.set()
            except Exception as error:
                await self._again(error)
        while True:
            with contextlib.suppress(TimeoutError):  # a deletion right after the last look at all would not be seen
                await asyncio.wait_for(self._observed.wait(), WHOLE_AT_MOST if self.observer.partial else None)
            self._observed.clear()
            began = time.monotonic()
            try:
                changes = await self._in_thread(partial(self.observer.look, began))
                more = self.observer.behind
                if self._all.clients or began - self._all_left < LINGER:
                    self._tell_all(changes)
            except Exception as error:
                more = await self._again(error)
            if more:
                self._observed.set()
            # Looking over all sessions costs more the more there are: it never takes more than a twentieth of the time.
            # Reading what is new costs by its bytes, and is to come to an end.
            share = 3 if more else 20
            await asyncio.sleep(max(self._pause(), share * (time.monotonic() - began)))

    def _tell_all(self, changes: Sequence[StoreChange]) -> None:
        """Gives out what happened anywhere."""
        place = self._all.last
        notices = []
        for change in changes:
            if change.gone or any(r.kind == ERASED for r in change.records):
                self._all.recent.clear()
            if change.gone:
                place += 1
                notices.append(notice("gone", self._all.id_of(place), {"session": change.session}, place))
            for one in change.told:
                place += 1
                notices.append(Event(place, self._all.id_of(place), "record", one.text))
        if notices:
            self._log_slow(self._all, self._all.give(notices))

    def room_changed(self, session: str) -> None:
        """An agent's room is not as it was, which no record says. Who follows all sessions is told to look."""
        if self._all.clients:
            place = self._all.last + 1
            told = notice("room", self._all.id_of(place), {"session": session}, place)
            self._log_slow(self._all, self._all.give([told]))

    # ------------------------------------------------------------------ following

    async def follow(self, asked: Subscription, wire: Transport) -> None:
        """Follows for one client until it leaves or is disconnected. What cannot be followed at all is raised, before
        anything is written."""
        if self.draining:
            raise Draining("this server is about to end; connect again in a moment")
        self.start()
        feed, start, refusal = await (self._in_all(asked) if asked.session is None else self._in_session(asked))
        client = EventClient(asked, start, self._clock(), self.settings.buffer)
        feed.clients.add(client)
        if refusal is not None:
            client.end(*refusal)
        watching = asyncio.get_running_loop().create_task(_until_gone(wire, client))
        try:
            await wire.open(self._hello(feed, client))
            await self._write_on(feed, client, wire)
            if not client.left:
                await wire.close(client.farewell(feed.id_of))
        except asyncio.CancelledError:
            if client.task is None or not (client.stalled or self.draining):
                raise
            client.task.uncancel()
            log.info(
                "a follower took nothing for %g s and is disconnected", self._stall,
                extra={"session": feed.session, "client": client.connected.name, "after": client.last},
            )  # fmt: skip
        finally:
            watching.cancel()
            feed.clients.discard(client)
            if feed.session is not None and not feed.clients:
                self._feeds.pop(feed.session, None)
            self._all_left = time.monotonic()

    def _hello(self, feed: Feed, client: EventClient) -> Event:
        """The first event: by its id, a client that is cut off before the first record resumes all the same."""
        at = {"session": feed.session, "after": client.last} if feed.session is not None else {}
        return notice("hello", feed.id_of(client.last), {**at, "incarnation": self.store.generation})

    async def _in_session(self, asked: Subscription) -> tuple[Feed, int, Refusal | None]:
        session, last = await self._in_thread(partial(self._known, asked.session or ""))
        after = last if asked.after is None else _number(asked.after)
        feed = self._feeds.get(session)
        if feed is None:
            feed = self._feeds[session] = Feed(session, last, str)
            self._changed.set()
        if after > max(last, feed.last) or asked.generation not in (None, self.store.generation):
            return feed, after, ("moved", self._moved_words(session, last))
        return feed, after, None

    def _known(self, any_id: str) -> tuple[str, int]:
        """In a thread: a session by any of its ids, and its last number."""
        return self.store.journal.backend.read(lambda tx: _known(tx, any_id))

    async def _in_all(self, asked: Subscription) -> tuple[Feed, int, Refusal | None]:
        await self._observing.wait()
        nonce, _, count = (asked.after or "").rpartition("-")
        if asked.after is None:
            return self._all, self._all.last, None
        if nonce != self._nonce or not count.isdecimal() or int(count) > self._all.last:
            return self._all, -1, None  # before everything that is remembered: it is told to reload
        return self._all, int(count), None

    async def _write_on(self, feed: Feed, client: EventClient, wire: Transport) -> None:
        await self._catch_up(feed, client, wire)
        while not client.over:
            chunk = await client.next()
            if not client.over:
                await client.write(wire, chunk)

    async def _catch_up(self, feed: Feed, client: EventClient, wire: Transport) -> None:
        """Reads to a client until it is where the live ones are. No await lies between seeing that and joining them."""
        while not client.over and client.last < feed.last:
            stop = feed.last + 1
            chunk = feed.recent.after(client.last)
            if chunk is None and feed.session is None:
                chunk = EventBatch([notice("reload", feed.id_of(feed.last), {}, feed.last)])
            elif chunk is None:
                try:
                    chunk = await self._in_thread(partial(self._page, feed.session or "", client.last + 1, stop))
                except SessionNotFound:
                    client.end("gone", {"session": feed.session})
                    return
            if chunk is None:  # a fork whose parent was deleted: its past is no longer there
                client.last = stop - 1
            else:
                await client.write(wire, chunk)
        client.live = True

    def _page(self, session: str, start: int, stop: int) -> EventBatch | None:
        """In a thread: a page of records, a fork's parent's included."""

        def page_in(tx: Transaction) -> list[RecordBatch]:
            def read(first: int, several: int) -> list[Record]:
                return lineage.records(tx, session, first, stop, several)

            return portion(session, read, start, stop, limit=PAGE, most=PAGE_BYTES)

        found = self.store.journal.backend.read(page_in)
        return EventBatch([told(one) for one in found]) if found else None


def told(one: RecordBatch) -> Event:
    return Event(one.record.number, str(one.record.number), "record", one.text)


def _own(tx: Transaction, session: str, stop: int, first: int, several: int) -> list[Record]:
    return tx.records(session, first, stop, several)


def _known(tx: Transaction, any_id: str) -> tuple[str, int]:
    state = tx.session(any_id) or lineage.get_session(tx, tx.owner(any_id) or any_id)
    return state.id, state.last


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidCursor(f"{text[:40]!r} is not a record number; give the last one seen, or 0 for all")
    return int(text)


async def _until_gone(wire: Transport, client: EventClient) -> None:
    await wire.gone()
    client.left = True
    client.end("left", {})


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the live events have ended: %s", error, exc_info=error)
