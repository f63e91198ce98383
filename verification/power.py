"""Power lost at every write and every sync of every operation: the old state or the new one, and what was promised.

Runs an operation on a disk that notes everything (`disk`), and then opens the store as it would be if power had gone at
any moment of it, with nothing, all, some or half a write of what was not synced yet.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onefold
from onefold import Store
from onefold.errors import OnefoldError
from onefold.storage.sqlite import SqliteBackend
from verification.disk import LOSSES, Loss, Recorder, lay_out, moments
from verification.operations import OPERATIONS, counted_ids, fixed_clock, prepare, rows, stored
from verification.told import Told

NAMES = tuple(name for name in OPERATIONS if name != "heal")  # which damages the file past the disk that is watched
STORE = "agent.db"


def operation(name: str, seed: int, losses: Iterable[Loss] | None = None) -> Told:
    """Power lost at every moment of one operation, and of closing the store after it."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        prepare(str(path), connect=recorder.connect)
        ids = counted_ids("new")
        store = stored(SqliteBackend(path, clock=fixed_clock, ids=ids, connect=recorder.connect), ids)
        act = OPERATIONS[name](store)
        before = len(recorder.events)
        act()
        recorder.acknowledge(name)
        store.close()
    recorder.unregister()
    told = Told()
    old: dict[str, list[Any]] | None = None
    new = None
    chance = random.Random(f"{name} {seed}")
    left: list[tuple[str, bool, dict[str, list[Any]]]] = []
    for place, disk, promised in moments(recorder.events):
        if place < before - 1:
            continue
        chosen = LOSSES if losses is None else [chance.choice(tuple(losses))]
        if place in (before - 1, len(recorder.events) - 1):
            chosen = ("nothing",)
        for loss in chosen:
            where = f"{name}: event {place - before}, {loss}"
            told.faults += 1
            told.acknowledged += len(promised)
            state = _left(disk.after(loss, chance), told, where)
            if state is not None:
                old = old if old is not None else state
                new = state
                left.append((where, bool(promised), state))
    for where, promised_by_then, state in left:
        if promised_by_then and state != new:
            told.lost += 1
            told.words.append(f"{where}: what was acknowledged is not there")
        elif state not in (old, new):
            told.between += 1
            told.words.append(f"{where}: neither the old state nor the new one")
    return told


def _left(files: dict[str, bytes], told: Told, where: str) -> dict[str, list[Any]] | None:
    """Everything that a store says after a power cut, once it is opened, and that it has no complaint."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(files, Path(folder))
        path = Path(folder) / STORE
        try:
            with onefold.open(path) as store:
                found = store.verify().findings
        except OnefoldError as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")
            return None
        if found:
            told.unopenable += 1
            told.words.append(f"{where}: {found[0]}")
        return rows(path)


def story(seed: int, losses: Iterable[Loss] | None = None) -> Told:
    """A longer life: many commits in the log, checkpoints in between, a log that begins anew."""
    recorder, chance = Recorder(), random.Random(seed)
    told = Told()
    with tempfile.TemporaryDirectory() as folder:
        backend = SqliteBackend(Path(folder) / STORE, connect=recorder.connect)
        with Store(backend, policy=onefold.Policy(tail_tokens=100, tail_messages=1)) as store:
            session = store.session("s")
            recorder.acknowledge(("made", 0))
            for n in range(24):
                content = f"message {n} " + "x" * chance.randrange(3000)
                session.append({"role": "user", "content": content})
                recorder.acknowledge((content, 1))
                if n % 8 == 5:
                    backend.purge()
                if n % 8 == 7:
                    recorder.acknowledge(("segments", session.compact().segment and len(session.segments())))
    recorder.unregister()
    for place, disk, promised in moments(recorder.events):
        for loss in LOSSES if losses is None else [chance.choice(tuple(losses))]:
            told.faults += 1
            told.acknowledged += len(promised)
            _keeps(disk.after(loss, chance), [*promised], told, f"story {seed}: event {place}, {loss}")
    return told


def _keeps(files: dict[str, bytes], promised: list[Any], told: Told, where: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lay_out(files, Path(folder))
        try:
            with onefold.open(Path(folder) / STORE) as store:
                if not promised:
                    return
                session = store.session("s", create=False)
                there = {r.body["content"] for r in session.read() if r.kind == "message"}
                gone = [what for what, kind in promised if kind == 1 and what not in there]
                least = max((count for what, count in promised if what == "segments"), default=1)
                if gone or len(session.segments()) < least:
                    told.lost += 1
                    told.words.append(f"{where}: what was acknowledged is not there")
                if not store.verify().healthy:
                    told.unopenable += 1
        except OnefoldError as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")


def everything(seed: int, *, sparing: bool, each: Callable[[str, Told], None]) -> None:
    """Every operation and a story; sparing, with one way of losing power a moment instead of all of them."""
    for name in NAMES:
        each(name, operation(name, seed, LOSSES if sparing else None))
    each("a story", story(seed, LOSSES if sparing else None))


def main() -> int:
    options = argparse.ArgumentParser(description="Loses power at every moment of every operation.")
    options.add_argument("--quick", action="store_true", help="one way of losing it a moment")
    options.add_argument("--seeds", type=int, default=1)
    chosen = options.parse_args()
    told = Told()
    for seed in range(1, chosen.seeds + 1):
        everything(seed, sparing=chosen.quick, each=lambda _, one: told.add(one))
    for line in told.words[:10]:
        print(line)
    print(told)
    return 0 if told.well else 1


if __name__ == "__main__":
    sys.exit(main())
