"""Workers: they compact for everybody, share the work, and nobody waits for a session that does not work out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold import worker as worker_module
from onefold.compaction.holder import this_process
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import SummaryInput
from onefold.compactor import Compactor
from onefold.errors import StoreUnavailable
from onefold.journal.journal import Journal
from onefold.model import OPEN, Claim, Compaction, SessionState
from onefold.store import Store
from onefold.worker import Worker, WorkerStatus
from tests.conftest import said
from tests.support.helpers import Clock, quick
from verification.operations import damage

PATIENCE = 20.0

UNHEALTHY = {
    "a segment's row is gone": "delete from segments where session = 'damaged'",
    "a segment's row makes no sense": "update segments set kept = 'x' where session = 'damaged'",
    "a message is no JSON": (
        "update records set body = '{' where place = 30 + "
        "(select sid from journals where session = 'damaged') * 4294967296"
    ),
}


def asked(store: Store, *ids: str) -> None:
    """Sessions with something to compact, and a request for each that nobody works on."""
    for id in ids:
        session = store.session(id)
        session.append([said(n) for n in range(1, 31)])
        store.journal.request(session.id)


def states(store: Store, *ids: str) -> list[str]:
    return [store.session(id).compactions()[-1].state for id in ids]


@contextmanager
def working(worker: Worker) -> Iterator[threading.Event]:
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(store: Store, session: str, done: Callable[[], bool]) -> None:
    """Waits until something holds, looking after each change of the store."""
    backend = store.journal.backend
    for _ in range(200):
        version = backend.version()
        if done():
            return
        backend.wait(version, 0.2)
    raise AssertionError(f"it did not come: {states(store, session)}")


def counted(url: str, line: str) -> str:
    """The numbers of a worker as soon as they have a line: it counts a little after the commit that others see."""
    ends = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            numbers: str = answer.read().decode()
        if line in numbers:
            return numbers
        assert time.monotonic() < ends, f"{line} did not come: {numbers}"


@pytest.fixture
def shared(durable: str) -> Iterator[Store]:
    with onefold.open(durable, policy=quick()) as store:
        yield store


def short(material: SummaryInput) -> str:
    return f"what was said in {material.session}, in short"


def test_a_worker_does_what_others_asked_for_and_then_ends(shared: Store) -> None:
    ids = [f"s{n}" for n in range(6)]
    asked(shared, *ids)

    ended = Worker(shared, short, concurrency=3, upkeep=None).run(threading.Event(), once=True)

    assert (ended.committed, ended.failed, ended.active) == (6, 0, 0)
    assert states(shared, *ids) == ["committed"] * 6
    assert shared.session("s3").context().summary == "what was said in s3, in short"


def test_several_workers_pay_for_each_summary_once(shared: Store, durable: str) -> None:
    ids = [f"s{n}" for n in range(12)]
    asked(shared, *ids)
    made: list[str] = []

    def count(material: SummaryInput) -> str:
        made.append(material.session)
        return short(material)

    start = threading.Barrier(3)

    def work() -> None:
        with onefold.open(durable, policy=quick()) as own:
            start.wait()
            Worker(own, count, concurrency=2, upkeep=None).run(threading.Event(), once=True)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert sorted(made) == sorted(ids)
    assert states(shared, *ids) == ["committed"] * 12


def test_a_poisoned_session_does_not_hold_up_the_others_f46(shared: Store) -> None:
    asked(shared, "poisoned", "hangs")
    others = [f"s{n}" for n in range(8)]
    asked(shared, *others)
    free = threading.Event()

    def some(material: SummaryInput) -> str:
        if material.session == "poisoned":
            raise RuntimeError("this one always fails")
        if material.session == "hangs":
            free.wait(PATIENCE)
        return short(material)

    policy = Policy(
        attempts=3, backoff=(60.0,), tail_messages=2, tail_tokens=50, quote_tokens=0, lease_renew_interval=0.05
    )
    with working(Worker(shared, some, policy, concurrency=2, upkeep=None, drain=0.0)):
        until(shared, "s7", lambda: states(shared, *others) == ["committed"] * 8)
        poisoned = shared.session("poisoned").compactions()[-1]
        assert (poisoned.state, poisoned.attempts) == ("requested", 1)
        assert "this one always fails" in str(poisoned.cause)
        assert states(shared, "hangs") == ["running"]
        free.set()


def test_what_was_left_without_a_word_is_counted_as_taken_over_and_what_failed_is_not(shared: Store) -> None:
    asked(shared, "left", "failed", "first")
    for id, lease in (("left", 0.001), ("failed", 60.0)):
        claim = shared.journal.claim(id, this_process("another"), lease=lease, life=600.0)
        assert isinstance(claim, Claim)
        if id == "failed":
            shared.journal.fail(claim, "the model is not there", 0.0)
    until(shared, "left", lambda: shared.session("left").compaction_holder() is None)
    worker = Worker(shared, short, upkeep=None)

    with working(worker):
        until(shared, "left", lambda: states(shared, "left", "failed", "first") == ["committed"] * 3)

    assert (worker.standing.committed, worker.counts.takeovers) == (3, 1)


def test_a_summary_that_another_brought_first_is_not_counted_as_this_workers(durable: str) -> None:
    clock = Clock()
    with onefold.open(durable, policy=quick(), clock=clock) as store:
        asked(store, "s")

        def overtaken(material: SummaryInput) -> str:
            clock.ahead += 100.0
            claim = store.journal.claim("s", this_process("another"))
            assert isinstance(claim, Claim)
            store.journal.commit(claim, "it was here first")
            return short(material)

        worker = Worker(store, overtaken, upkeep=None)
        ended = worker.run(threading.Event(), once=True)

        assert store.session("s").context().summary == "it was here first"
    assert (ended.committed, ended.failed) == (0, 1)
    assert worker.counts.compactions == {}


def test_a_worker_that_ends_hands_back_what_it_holds_for_the_next_one(shared: Store) -> None:
    asked(shared, "s")
    begun, never = threading.Event(), threading.Event()

    def slow(material: SummaryInput) -> str:
        begun.set()
        never.wait(PATIENCE)
        return short(material)

    first = Worker(shared, slow, upkeep=None, drain=0.0)
    with working(first):
        assert begun.wait(PATIENCE)
    assert first.standing.handed_back == 1
    assert states(shared, "s") == ["requested"]

    Worker(shared, short, upkeep=None).run(threading.Event(), once=True)
    never.set()
    assert states(shared, "s") == ["committed"]
    assert shared.session("s").compactions()[-1].attempts == 1  # what is handed back is no attempt


def test_a_session_that_is_deleted_while_it_is_compacted_is_no_end_of_the_worker(shared: Store) -> None:
    asked(shared, "deleted")
    begun, go = threading.Event(), threading.Event()

    def slow(material: SummaryInput) -> str:
        if material.session == "deleted":
            begun.set()
            assert go.wait(PATIENCE)
        return short(material)

    worker = Worker(shared, slow, concurrency=1, upkeep=None)
    with working(worker):
        assert begun.wait(PATIENCE)
        shared.delete("deleted")
        go.set()
        asked(shared, "s")
        until(shared, "s", lambda: states(shared, "s") == ["committed"])

    assert (worker.standing.committed, worker.standing.failed) == (1, 1)


@pytest.mark.parametrize("error", [onefold.OutcomeUnknown("who knows"), onefold.StoreUnavailable("the disk is away")])
def test_a_claim_of_which_nobody_knows_what_came_is_no_end_of_the_worker(
    shared: Store, error: onefold.OnefoldError, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(shared, "s")
    monkeypatch.setattr("onefold.worker.AGAIN", 0.01)
    claim_next, raised = shared.journal.claim_next, threading.Event()

    def once_unknown(*args: Any, **named: Any) -> Claim | None:
        if not raised.is_set():
            raised.set()
            raise error
        return claim_next(*args, **named)

    monkeypatch.setattr(shared.journal, "claim_next", once_unknown)
    with working(Worker(shared, short, upkeep=None)):
        until(shared, "s", lambda: states(shared, "s") == ["committed"])

    assert raised.is_set()


def test_what_cannot_be_counted_now_is_counted_when_the_store_answers_again(
    shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(shared, "s")
    monkeypatch.setattr("onefold.worker.AGAIN", 0.01)
    look, down = shared.journal.compaction, [2]

    def away(session: str, id: str) -> Compaction:
        if threading.current_thread().name == "the worker" and down[0]:
            down[0] -= 1
            raise onefold.StoreUnavailable("the disk is away")
        return look(session, id)

    monkeypatch.setattr(shared.journal, "compaction", away)
    worker = Worker(shared, short, upkeep=None)
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,), name="the worker")
    thread.start()
    until(shared, "s", lambda: worker.standing.committed == 1)
    stop.set()
    thread.join(PATIENCE)

    assert (down, worker.standing.committed, worker.standing.failed) == ([0], 1, 0)


def test_what_was_asked_for_in_vain_is_skipped_and_counted(shared: Store) -> None:
    shared.session("s").append(said(1))
    shared.journal.request("s", trigger="upkeep")

    ended = Worker(shared, short, upkeep=None).run(threading.Event(), once=True)

    assert (ended.skipped, ended.committed, ended.failed) == (1, 0, 0)
    assert states(shared, "s") == ["skipped"]


def test_upkeep_compacts_quiet_sessions_that_nobody_asked_for(durable: str) -> None:
    policy = Policy(window=1_000, tail_messages=2, tail_tokens=50, quote_tokens=0)
    now = [1_000.0]
    with onefold.open(durable, policy=policy, clock=lambda: now[0]) as store:
        store.session("full").append([said(n) for n in range(1, 60)])
        store.session("small").append([said(n) for n in range(1, 4)])
        now[0] += 400.0
        ended = Worker(store, short, upkeep=300.0).run(threading.Event(), once=True)

        assert ended.committed == 1
        assert [c.trigger for c in store.session("full").compactions()] == ["upkeep"]
        assert store.session("small").compactions() == []


@pytest.mark.parametrize("by", ["a worker", "an agent"])
@pytest.mark.parametrize("harm", UNHEALTHY)
def test_a_damaged_session_keeps_no_other_from_the_upkeep(tmp_path: Path, harm: str, by: str) -> None:
    """It was quiet for longest, so it would be the first; and whoever looks at its rows finds them wrong."""
    path, now = tmp_path / "agent.db", [1_000.0]
    policy = quick(window=1_000)
    with onefold.open(path, policy=policy, clock=lambda: now[0]) as store:
        for id in ("damaged", "s1", "s2"):
            store.session(id).append([said(n) for n in range(1, 60)])
            now[0] += 1.0
    damage(path, UNHEALTHY[harm])
    now[0] += 400.0

    with onefold.open(path, policy=policy, clock=lambda: now[0]) as store:
        if by == "a worker":
            ended = Worker(store, short, upkeep=300.0).run(threading.Event(), once=True)
            assert ended.trouble is None
        else:
            Compactor(store, short).compact_idle(300.0, wait=PATIENCE)

        assert states(store, "s1", "s2") == ["committed"] * 2


def test_a_session_that_is_deleted_while_quiet_ones_are_looked_for_keeps_no_other_from_the_upkeep(
    durable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, now = Policy(window=1_000, tail_messages=2, tail_tokens=50, quote_tokens=0), [1_000.0]
    with onefold.open(durable, policy=policy, clock=lambda: now[0]) as store:
        for id in ("s1", "s2", "s3"):
            store.session(id).append([said(n) for n in range(1, 60)])
        now[0] += 400.0
        due = Compactor._due

        def deleted_before(compactor: Compactor, state: SessionState, model: str | None) -> bool:
            if state.id == "s1":
                store.delete("s1")
            return due(compactor, state, model)

        monkeypatch.setattr(Compactor, "_due", deleted_before)
        ended = Worker(store, short, upkeep=300.0).run(threading.Event(), once=True)

        assert (ended.committed, ended.trouble) == (2, None)
        assert states(store, "s2", "s3") == ["committed"] * 2


def test_what_came_of_a_session_that_is_damaged_meanwhile_stops_no_worker(
    shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(shared, "damaged")
    look = shared.journal.compaction

    def harmed(session: str, id: str) -> Compaction:
        if session == "damaged" and threading.current_thread().name == "the worker":
            raise onefold.StoreDamaged("the row of its compaction makes no sense")
        return look(session, id)

    monkeypatch.setattr(shared.journal, "compaction", harmed)
    worker = Worker(shared, short, concurrency=1, upkeep=None)
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,), name="the worker")
    thread.start()
    try:
        until(shared, "damaged", lambda: worker.standing.failed == 1)
        asked(shared, "s")
        until(shared, "s", lambda: states(shared, "s") == ["committed"])
    finally:
        stop.set()
        thread.join(PATIENCE)

    assert worker.standing.trouble is None


def test_quiet_sessions_are_looked_for_now_and_then_and_not_at_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []

    def wanted(compactor: Compactor, quiet: float) -> list[SessionState]:
        looks.append(quiet)
        return []

    monkeypatch.setattr(Compactor, "due_sessions", wanted)
    with onefold.open("memory:", policy=quick()) as store:
        ids = [f"s{n}" for n in range(4)]
        asked(store, *ids)
        ended = Worker(store, short, concurrency=1, upkeep=7.0).run(threading.Event(), once=True)

    assert (ended.committed, looks) == (4, [7.0])


def test_how_long_each_summary_took_is_counted() -> None:
    with onefold.open("memory:", policy=quick()) as store:
        asked(store, "a", "b")
        worker = Worker(store, short, upkeep=None)
        worker.run(threading.Event(), once=True)

        assert "onefold_compaction_seconds_count 2\n" in worker.metrics()


def test_trouble_with_the_store_is_said_while_it_lasts_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[WorkerStatus] = []
    monkeypatch.setattr(worker_module, "AGAIN", 0.0)
    with onefold.open("memory:", policy=quick()) as store:
        asked(store, "s")
        original, broken = Journal.claim_next, [StoreUnavailable("not now")]

        def claim_next(journal: Journal, *given: object, **named: object) -> Claim | None:
            if broken:
                raise broken.pop()
            return original(journal, *given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Journal, "claim_next", claim_next)
        ended = Worker(store, short, upkeep=None, heard=heard.append).run(threading.Event(), once=True)

    assert "not now" in [s.trouble for s in heard]
    assert (ended.committed, ended.trouble) == (1, None)


def test_what_an_agent_compacts_by_itself_is_left_to_it(shared: Store) -> None:
    session = shared.session("s", keeper="agent")
    session.append([said(n) for n in range(1, 31)])
    shared.journal.request("s")
    stop = threading.Event()
    worker = Worker(shared, short, upkeep=None, heard=lambda standing: stop.set())
    worker.run(stop)

    assert states(shared, "s") == ["requested"]
    assert worker.standing.committed == 0


def test_the_command_works_until_it_is_told_to_end_and_has_numbers(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    with onefold.open(address) as store:
        asked(store, "s1", "s2")
        command = [
            sys.executable,
            "-m",
            "onefold",
            "worker",
            "--store",
            str(address),
            "--metrics",
            "0",
            "--upkeep",
            "0",
        ]
        environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
        try:
            assert process.stderr is not None
            found = re.search(r"http://127.0.0.1:\d+/metrics", process.stderr.readline())
            assert found is not None
            until(store, "s2", lambda: not [c for c in store.compactions() if c.state in OPEN])
            numbers = counted(found[0], 'onefold_compactions_total{state="committed",trigger="manual"} 2')
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()

    assert process.returncode == 0, err
    assert "2 compacted, 0 failed attempts, 0 handed back" in out
    assert "onefold_oldest_request_seconds 0" in numbers
