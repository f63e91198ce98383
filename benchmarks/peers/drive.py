"""What happens in a peer's own environment: `python -m benchmarks.peers.drive TASK PEER FOLDER …`; answers are JSON.

Nothing here, nor in what it imports at first, needs more than Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.conversation import MESSAGES, Exchange, Store, exchanges
from benchmarks.peers.table import PEERS

ANSWER = "ANSWER "
_LOADS = 5
_WARM = 10
_NO_FILE = 10**6
"""A number that no file has: to sync it does nothing, and stands in a trace of system calls."""


def made(called: str | None) -> Any:
    """`module:Class {arguments}`, of `benchmarks.peers.stores`."""
    module, _, rest = (called or "").partition(":")
    name, _, given = rest.partition(" ")
    return getattr(importlib.import_module(f"benchmarks.peers.stores.{module}"), name)(**json.loads(given or "{}"))


class Speed:
    """Takes a part of the conversation whenever it is told to, so that many peers can take turns."""

    def __init__(self, store: Callable[[], Store], folder: Path) -> None:
        self._store, self._folder = store, folder
        self._coming: Iterator[Exchange] = exchanges(10**6)
        self._written = 0

    async def start(self) -> dict[str, Any]:
        self._own = self._store()
        await self._own.open(self._folder)
        return {"settings": self._own.settings()}

    async def say(self, messages: int) -> dict[str, Any]:
        """The seconds that so many messages take, and the bytes that went to the disk for them."""
        coming = [next(self._coming) for _ in range(messages // MESSAGES)]
        before, began = _written(), time.perf_counter()
        for exchange in coming:
            await self._own.say(exchange)
        return {"seconds": time.perf_counter() - began, "written": _written() - before}

    async def look(self) -> dict[str, Any]:
        """With the store closed: the size of its files, and how long it takes to open it and load everything."""
        await self._own.close()
        size = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        times, count = [], 0
        for _ in range(_LOADS + 1):
            own = self._store()
            began = time.perf_counter()
            await own.open(self._folder)
            count = await own.load()
            times.append(time.perf_counter() - began)
            await own.close()
        await self.start()
        return {"size": size, "load": statistics.median(times[1:]), "loaded": count}


async def speed(store: Callable[[], Store], folder: Path) -> None:
    """Obeys lines such as `say 100` and `look` until there are no more."""
    own = Speed(store, folder)
    answer(await own.start())
    while line := await asyncio.to_thread(sys.stdin.readline):
        do, *given = line.split()
        answer(await (own.say(int(given[0])) if do == "say" else own.look()))


async def syncs(store: Callable[[], Store], folder: Path, count: str) -> None:
    """For a trace of system calls: two marks in it, with so many exchanges between them."""
    own = store()
    await own.open(folder)
    for exchange in exchanges(_WARM):
        await own.say(exchange)
    _mark()
    for exchange in exchanges(int(count), first=_WARM):
        await own.say(exchange)
    _mark()
    await own.close()
    answer({"messages": int(count) * MESSAGES})


def _mark() -> None:
    with contextlib.suppress(OSError):
        os.fsync(_NO_FILE)


def _written() -> int:
    line = next(x for x in Path("/proc/self/io").read_text().splitlines() if x.startswith("write_bytes:"))
    return int(line.split()[1])


def answer(found: object) -> None:
    """On a line of its own: frameworks print what they like."""
    print(f"\n{ANSWER}{json.dumps(found)}", flush=True)


def main(task: str, name: str, folder: str, *given: str) -> None:
    peer = PEERS[name]
    if task in ("kills", "both"):
        from benchmarks.peers import kills

        compacts = made(peer.compacts)
        answer((kills.killed if task == "kills" else kills.at_once)(compacts, Path(folder)))
        return
    tasks: dict[str, Any] = {"speed": speed, "syncs": syncs}
    asyncio.run(tasks[task](lambda: made(peer.store), Path(folder), *given))


if __name__ == "__main__":
    main(*sys.argv[1:])
