"""The processes that load a server: agents that append and read, workers that compact, followers that listen.

Each runs for so many seconds and counts what began after the first of them, when everybody is warm.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable

import onefold
import onefold.aio
from benchmarks.speed.child import ready
from benchmarks.speed.stores import message
from onefold.model import Json
from onefold.worker import Worker

MODEL, QUICK_MODEL = 0.5, 0.05
"""Seconds that stand for a model: what the summarizer waits before it answers."""
CONCURRENCY = 4
"""How many summaries a worker waits for at a time."""
APPENDS = 4
"""Messages of a turn."""
ASKS = 4
"""After every so many turns an agent asks for a compaction."""
WARM = 1.0
_HANDLES = 40
"""Sessions that an agent without turns has open."""


class Counted:
    """How long each of the things took that somebody did, once everybody was warm."""

    def __init__(self, seconds: float) -> None:
        self._counts = time.monotonic() + WARM
        self._ends = self._counts + seconds
        self.times: dict[str, list[float]] = {}

    def goes_on(self) -> bool:
        return time.monotonic() < self._ends

    def do(self, what: str, act: Callable[[], object]) -> None:
        began = time.monotonic()
        act()
        if began >= self._counts:
            self.times.setdefault(what, []).append(time.monotonic() - began)


def agent(address: str, seconds: str, seed: str, sessions: str, what: str) -> Json:
    """Does one thing again and again, `append` or `context`, in sessions that it has open; or takes `turns`: opens a
    session, reads its context, appends to it, asks for a compaction now and then, and waits as for a model."""
    chance, pause = random.Random(int(seed)), threading.Event()
    with onefold.open(address, create=False) as store:
        names = [f"session-{chance.randrange(int(sessions)):06}" for _ in range(_HANDLES)]
        held = [store.session(name) for name in names] if what != "turns" else []
        ready()
        counted = Counted(float(seconds))
        done = 0
        while counted.goes_on():
            done += 1
            if what == "turns":
                name = f"session-{chance.randrange(int(sessions)):06}"
                _turn(store, name, counted, asks=done % ASKS == 0)
                pause.wait(MODEL)
            elif what == "append":
                counted.do("append", lambda n=done: held[n % _HANDLES].append(message(n)))  # type: ignore[misc]
            else:
                counted.do("context", held[done % _HANDLES].context)
    return counted.times


def _turn(store: onefold.Store, name: str, counted: Counted, *, asks: bool) -> None:
    opened: list[onefold.Session] = []
    counted.do("open", lambda: opened.append(store.session(name, create=False)))
    (session,) = opened
    counted.do("context", session.context)
    for n in range(APPENDS):
        counted.do("append", lambda n=n: session.append(message(n)))  # type: ignore[misc]
    if asks:
        counted.do("ask", lambda: store.journal.request(name))


def worker(address: str, seconds: str, what: str) -> Json:
    """What `onefold worker` does, with a summarizer that waits as for a model; or `bare`: with a quick one and without
    quotes, so that what is left is the store."""
    model, policy = (QUICK_MODEL, onefold.Policy(quote_tokens=0)) if what == "bare" else (MODEL, onefold.Policy())
    stop, pause = threading.Event(), threading.Event()

    def summarizer(material: onefold.SummaryInput) -> str:
        pause.wait(model)
        return f"What was said in {len(material.records)} messages up to {material.records[-1].number}. " * 4

    with onefold.open(address, create=False) as store:
        working = Worker(store, summarizer, policy, concurrency=CONCURRENCY)
        thread = threading.Thread(target=working.run, args=(stop,))
        ready()
        thread.start()
        stop.wait(WARM)
        before = working.standing
        stop.wait(float(seconds))
        after = working.standing
        stop.set()
        thread.join()
    return {"committed": after.committed - before.committed, "failed": after.failed - before.failed}


def followers(address: str, seconds: str, sessions: str, count: str) -> Json:
    """How late each record of some sessions was seen, by the server's clock, which is this machine's."""
    return asyncio.run(_follow_all(address, float(seconds), int(sessions), int(count)))


async def _follow_all(address: str, seconds: float, sessions: int, count: int) -> Json:
    late: list[float] = []
    began: list[int] = []
    following_all = asyncio.Event()
    async with onefold.aio.open(address, create=False) as store:
        followed = [await store.session(f"session-{n * sessions // count:06}", create=False) for n in range(count)]
        lasts = [(await session.state).last for session in followed]

        async def follow(session: onefold.aio.Session, last: int) -> None:
            async for record in session.follow(last - 1):  # the first one is there: then it follows
                if record.number > last:
                    late.append(time.time() - record.at)
                else:
                    began.append(last)
                    if len(began) == count:
                        following_all.set()

        following = [asyncio.create_task(follow(s, n)) for s, n in zip(followed, lasts, strict=True)]
        await following_all.wait()
        await asyncio.to_thread(ready)
        late.clear()
        await asyncio.wait(following, timeout=seconds + WARM)
        for one in following:
            one.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return {"follow": late}
