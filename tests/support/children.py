"""What children of the race tests do, each in a process of its own. Started by `tests.support.helpers.Child`."""

from __future__ import annotations

import builtins
import copy
import fcntl
import itertools
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import apsw

import onefold
from onefold import CompactResult, OnefoldError, Session, SummaryInput
from onefold.compaction.holder import this_process
from onefold.ids import random_id, system_clock
from onefold.messages import draft
from onefold.model import Claim, Json
from onefold.storage.base import Transaction
from onefold.storage.sqlite.transaction import SqliteLeases
from tests.support.helpers import PATIENCE, Elsewhere, at_barrier, await_record, hear, quick, say
from verification.operations import talk


class Log(logging.Handler):
    """Collects what the library logs, from a level on."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.texts: list[str] = []
        logger = logging.getLogger("onefold")
        logger.addHandler(self)
        logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def open_store(
    path: str, *, policy: Json = None, ahead: float = 0.0, agent: str | None = None, elsewhere: bool = False
) -> onefold.Store:
    """A store as children use it. `ahead` puts their clock forward, to be past another one's lease at once; one that is
    `elsewhere` is on another machine, as far as its claims tell."""
    store = onefold.open(path, policy=quick(**(policy or {})), clock=lambda: system_clock() + ahead, agent=agent)
    if elsewhere:
        store.journal.leases.machine = Elsewhere()
    return store


# ---------------------------------------------------------------------- writing


def keep_writing(path: str, sessions: list[str]) -> None:
    """Appends to one session after another, the last first, until it is killed."""
    with open_store(path) as store:
        opened = [store.session(id, create=False) for id in sessions]
        opened[-1].append({"role": "user", "content": "and another thing"})
        at_barrier()
        for session in itertools.cycle(reversed(opened)):
            session.append({"role": "user", "content": "and another thing"})


# ---------------------------------------------------------------------- compacting


def break_leases(error: str, uses: Iterable[str] = ("get", "put", "drop")) -> None:
    """Makes the lease part raise, in this process only."""

    def broken(*_: object) -> None:
        raise getattr(builtins, error)("no such thing")

    for use in uses:
        setattr(SqliteLeases, use, broken)


def compact_rounds(path: str, session: str, broken: str | None = None) -> None:
    """Round after round: measures, waits at the barrier, compacts, and says how it ended and what it paid.

    In a round that overlaps because the other one "joins", no summary is ready before it has. In one in which both
    "pay", each says so in its summarizer and waits for the other there.
    """
    log = Log()
    if broken is not None:
        break_leases(broken)
    store = open_store(path)
    handle = store.session(session)
    while hear()["word"] == "round":
        start = handle.context().last
        result, paid = _compact_one_round(handle, start, at_barrier()["overlap"])
        say("done", result=asdict(result), paid=paid, warnings=log.texts)
    store.close()


def _compact_one_round(handle: Session, start: int, overlap: str | None) -> tuple[CompactResult, int]:
    workers: list[threading.Thread] = []

    def summarise(material: SummaryInput) -> str:
        workers.append(threading.current_thread())
        if overlap == "joins":
            await_record(handle, "compaction.joined", after=start)
        elif overlap == "pay":
            at_barrier()
        return f"by {os.getpid()} in the round after record {start}"

    result = handle.compact(summarise)
    for worker in workers:
        worker.join(PATIENCE)
    return result, len(workers)


def hold(
    path: str,
    session: str,
    *,
    text: str = "what the holder made",
    policy: Json = None,
    ahead: float = 0.0,
    trigger: str = "manual",
    agent: str | None = None,
    elsewhere: bool = False,
) -> None:
    """Compacts with a summarizer that says where it is and then waits for a word: to finish, or to fail.

    It does not leave before its summarizer has, so that a summary which comes too late is brought to the store too.
    """
    log = Log(logging.INFO)
    workers: list[threading.Thread] = []
    with open_store(path, policy=policy, ahead=ahead, agent=agent, elsewhere=elsewhere) as store:

        def summarise(material: SummaryInput) -> str:
            workers.append(threading.current_thread())
            say("summarizing", messages=material.messages, previous=material.previous, attempt=material.attempt)
            if hear()["word"] == "fail":
                raise RuntimeError("the model is not there")
            return text

        result = store.session(session).compact(summarise, trigger=trigger)
        for worker in workers:
            worker.join(PATIENCE)
        say("done", result=asdict(result), log=log.texts)


def hold_claim(path: str, session: str, *, cut: int, ahead: float = 0.0, waits: bool = False) -> None:
    """The same one level below: asks, claims, and commits when it is told to; says what it was told by the store."""
    with open_store(path, ahead=ahead) as store:
        if waits:
            hear("go")
        store.journal.request(session)
        claim = store.journal.claim(session, this_process())
        assert isinstance(claim, Claim), claim
        say("claimed", fence=claim.fence)
        hear("commit")
        try:
            segment = store.journal.commit(claim, f"made under fence {claim.fence}", cut)
            say("done", error=None, segment=segment.number)
        except OnefoldError as error:
            say("done", error=type(error).__name__, text=str(error))


def compact_while_too_big(path: str, session: str, limit: int) -> None:
    """An agent's loop. It measures, waits at the barrier, and then compacts while its context is over the limit."""
    with open_store(path) as store:
        handle = store.session(session)
        mine = talk(20, start=101)
        before = copy.deepcopy(mine)
        handle.append(mine)
        called: list[int] = []
        rounds: list[Json] = []
        too_big = handle.context().tokens > limit
        at_barrier()
        while too_big and len(rounds) < 10:

            def summarise(material: SummaryInput) -> str:
                called.append(len(material.records))
                return f"summary {len(called)} that nobody needs"

            rounds.append(asdict(handle.compact(summarise)))
            too_big = handle.context().tokens > limit
        say("done", rounds=rounds, called=called, unchanged=mine == before, too_big=too_big)


def trigger_one(path: str, session: str, trigger: str, requests: int) -> None:
    """Compacts for one reason. Whoever gets to summarise waits until so many requests were counted."""
    with open_store(path) as store:
        handle = store.session(session)
        after = handle.context().last
        called: list[str] = []

        def summarise(material: SummaryInput) -> str:
            called.append(trigger)
            await_record(handle, "compaction.joined", after=after, times=requests - 1)
            return f"made for {trigger}"

        at_barrier()
        say("done", result=asdict(handle.compact(summarise, trigger=trigger)), called=called)


def compact_when_told(path: str, session: str, policy: Json = None, base: int | None = None) -> None:
    """Waits at the barrier, then compacts once with a summarizer that answers at once."""
    with open_store(path, policy=policy) as store:
        handle = store.session(session)
        paid: list[int] = []

        def summarise(material: SummaryInput) -> str:
            paid.append(material.attempt)
            return f"made by {os.getpid()}"

        at_barrier()
        say("done", result=asdict(handle.compact(summarise, base=base)), paid=paid)


# ---------------------------------------------------------------------- appending and following


def append_many(path: str, sessions: list[str], threads: int, count: int, who: str) -> None:
    """Several threads append to all of the sessions in turn; says which numbers each message got."""
    with open_store(path) as store:
        handles = [store.session(s) for s in sessions]
        got: dict[str, list[tuple[int, str]]] = {s: [] for s in sessions}
        failed: list[str] = []

        def work(thread: int) -> None:
            try:
                for i in range(count):
                    for handle in handles:
                        text = f"{who}/{thread}/{i}"
                        appended = handle.append({"role": "user", "content": text})
                        got[handle.id].append((appended.numbers[0], text))
            except Exception as error:
                failed.append(repr(error))

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        at_barrier()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE)
        say("done", got=got, failed=failed)


def append_keyed(path: str, session: str) -> None:
    """Round after round: the same key and content as the other one, at the same time."""
    with open_store(path) as store:
        handle = store.session(session)
        while (told := hear())["word"] == "round":
            key = told["key"]
            at_barrier()
            appended = handle.append([{"role": "user", "content": f"{key}, part {n}"} for n in (1, 2)], key=key)
            say("done", numbers=appended.numbers, duplicate=appended.duplicate)


def write(path: str, session: str, count: int) -> None:
    """Appends some messages, and has the store open until it is told to close it."""
    with open_store(path) as store:
        handle = store.session(session)
        for _ in range(count):
            handle.append(talk(1))
        say("written", last=handle.state.last)
        hear("close")


def follow(path: str, session: str, last: int | None = None, until: str | None = None, after: int = 0) -> None:
    """Says every record as it comes, up to a number or a kind."""
    with open_store(path) as store:
        handle = store.session(session)
        say("following")
        for record in handle.follow(after, idle=PATIENCE):
            say("record", number=record.number, kind=record.kind, id=record.id)
            if record.number == last or record.kind == until:
                break
        say("done")


def create_rounds(who: str) -> None:
    """Round after round: makes a store and a session in it that the others make as well, and appends to it."""
    while (told := hear())["word"] == "round":
        at_barrier()
        with open_store(told["path"]) as store:
            appended = store.session("same").append({"role": "user", "content": who})
            say("done", generation=store.generation, number=appended.numbers[0])


# ---------------------------------------------------------------------- dying at a bad moment


def hold_gate(path: str) -> None:
    """Holds the file that hands turns from process to process, and never lets go."""
    with Path(f"{path}-gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        say("holding")
        hear()


def lock_when_told(path: str) -> None:
    """Is about to write to a file, from when it is told to until it is told to let go."""
    say("ready")
    hear("lock")
    connection = apsw.Connection(path)
    connection.execute("begin immediate")
    say("locked")
    hear("let go")
    connection.execute("commit")
    connection.close()


def hold_transaction(path: str, session: str) -> None:
    """Stays in the middle of a write transaction, with records of it written and not committed."""
    store = open_store(path)
    handle: Session = store.session(session)

    def work(tx: Transaction) -> None:
        state = tx.session(session)
        assert state is not None
        lost = draft({"role": "user", "content": "never committed"}, random_id)
        store.journal.add(tx, state, lost)
        say("holding", last=handle.state.last)
        hear()

    store.journal.backend.write(session, work)
