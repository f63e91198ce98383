"""Processes that write, compact, take turns and undo in one session, and are killed at random, again and again."""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import sys
import tempfile
from collections import Counter

import onefold
from onefold.errors import OnefoldError, StaleHandle, TurnBusy, TurnLost
from verification.told import Told

WRITERS = 3
A_STORE = 150
"""Kills after which the store is looked over and another one begun."""

_POLICY = onefold.Policy(
    tail_tokens=300,
    tail_messages=1,
    lease=0.4,
    lease_renew_interval=0.1,
    attempt_timeout=2.0,
    backoff=(0.0,),
    turn_lease=0.4,
    wait_timeout=1.0,
)


def run(kills: int, seed: int, store: str = "agent.db") -> Told:
    """`sessions/` for a store of plain files."""
    told = Told()
    chance = random.Random(seed)
    while told.faults < kills:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/{store}"
            acknowledged = _one_store(path, min(A_STORE, kills - told.faults), chance, told)
            told.acknowledged += len(acknowledged)
            _look_over(path, acknowledged, told)
    return told


def _one_store(path: str, kills: int, chance: random.Random, told: Told) -> list[str]:
    acknowledged: list[str] = []
    writers = dict(_start(path, f"w{n}", chance) for n in range(WRITERS))
    try:
        for number in range(kills):
            patience = chance.randrange(1, 40)
            while patience > 0:
                ready, _, _ = select.select(list(writers), [], [], 30.0)
                if not ready:
                    told.stuck += 1
                    told.words.append("no writer said anything for half a minute")
                    return acknowledged
                for pipe in ready:
                    lines = _lines(pipe)
                    acknowledged += lines
                    patience -= len(lines)
            pipe = chance.choice(list(writers))
            acknowledged += _kill(pipe, writers.pop(pipe), told)
            told.faults += 1
            born = _start(path, f"k{number}", chance)
            writers[born[0]] = born[1]
    finally:
        for pipe, pid in writers.items():
            acknowledged += _kill(pipe, pid, told)
    return acknowledged


def _start(path: str, name: str, chance: random.Random) -> tuple[int, int]:
    """A writer, forked off this process, which has no store open. Gives what it says, and its number."""
    seed = chance.getrandbits(32)
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hears)
            _live(path, f"{name}-{os.getpid()}", random.Random(seed), says)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(says)
    return hears, pid


def _lines(pipe: int) -> list[str]:
    """What a writer said since; whole lines only, since each is one write to a pipe."""
    said = os.read(pipe, 1 << 16)
    return said.decode().split("\n")[:-1]


def _kill(pipe: int, pid: int, told: Told) -> list[str]:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        told.unopenable += 1
        told.words.append("a writer ended by itself")
    rest: list[str] = []
    while lines := _lines(pipe):
        rest += lines
    os.close(pipe)
    return rest


def _live(path: str, name: str, chance: random.Random, says: int) -> None:
    """A writer's life. It ends by being killed."""
    with onefold.open(path, policy=_POLICY) as store:
        session = store.session("s")
        n = 0

        def said(content: str) -> None:
            os.write(says, f"{content}\n".encode())

        def message() -> dict[str, str]:
            nonlocal n
            n += 1
            return {
                "role": chance.choice(("user", "assistant")),
                "content": f"{name} {n} " + "x" * chance.randrange(200),
            }

        while True:
            given = message()
            try:
                match chance.randrange(20):
                    case 0:
                        session.compact(wait=False)
                    case 1:
                        session.context()
                        session.undo()
                    case 2 | 3:
                        with session.turn(owner=name, wait=0.2) as turn:
                            for _ in range(3):
                                turn.append(given, key=given["content"])
                                said(given["content"])
                                given = message()
                    case 4:
                        session.queue_input(given, key=given["content"])
                        taken = session.take_input()
                        if taken is not None:
                            said(str(taken.body["content"]))
                    case _:
                        session.append(given, key=given["content"])
                        said(given["content"])
                        if chance.random() < 0.1 and not session.append(given, key=given["content"]).duplicate:
                            raise AssertionError("the same key was written twice")
            except (TurnBusy, TurnLost, StaleHandle):
                continue
            except OnefoldError as error:
                if "nothing to undo" not in str(error):
                    raise


def _look_over(path: str, acknowledged: list[str], told: Told) -> None:
    try:
        with onefold.open(path, policy=_POLICY) as store:
            session = store.session("s")
            there = Counter(r.body["content"] for r in session.read() if r.kind == "message")
            missing = [a for a in set(acknowledged) if not there[a]]
            told.lost += len(missing)
            told.twice += sum(1 for count in there.values() if count > 1)
            bases = [s.base for s in session.segments()]
            told.forked += len(bases) - len(set(bases))
            report = store.verify()
            if not report.healthy:
                told.unopenable += 1
                told.words += [f.what for f in report.findings]
            if session.compaction_holder() is not None and session.compact(wait=30.0).state in ("requested", "running"):
                told.stuck += 1
    except OnefoldError as error:
        told.unopenable += 1
        told.words.append(str(error))


def main() -> int:
    options = argparse.ArgumentParser(description="Kills writers at random, and looks at what is left.")
    options.add_argument("--kills", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--store", default="agent.db", help="sessions/ for plain files")
    chosen = options.parse_args()
    told = run(chosen.kills, chosen.seed, chosen.store)
    for line in told.words[:10]:
        print(line)
    print(told)
    return 0 if told.well else 1


if __name__ == "__main__":
    sys.exit(main())
