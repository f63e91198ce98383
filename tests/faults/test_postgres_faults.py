"""Servers that die, stand still or are replaced while many write, and answers that are lost.

Whatever happens: what somebody was told is there once, nothing is there twice, and no session has two truths.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
import pytest

import onefold
from onefold import Session, Store
from onefold.compaction.holder import this_process
from onefold.compaction.summarizer import SummaryInput
from onefold.errors import OutcomeUnknown, StoreUnavailable
from onefold.journal.journal import Journal
from onefold.messages import draft
from onefold.model import FAILED, MESSAGE, REQUESTED, SEGMENT_OPENED, STARTED, Claim, Json
from onefold.worker import Worker, WorkerStatus
from tests.support import postgres_server
from tests.support.helpers import PATIENCE, converse, kinds, quick
from tests.support.postgres_proxy import Harm, Proxy
from tests.support.postgres_server import Server, Standby, wait_for

T = TypeVar("T")
SAID: Json = {"role": "user", "content": "once"}


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as servers:
        yield servers


def primary(servers: ExitStack) -> Server:
    server = Server(quick=False)
    servers.callback(server.stop)
    return server


def standby(servers: ExitStack, of: Server) -> Standby:
    server = Standby(of)
    servers.callback(server.stop)
    return server


def either(*servers: Server, patience: float = 10.0) -> str:
    """The address of whichever of these takes writes."""
    hosts = ",".join(str(server.folder) for server in servers)
    options = f"target_session_attrs=read-write&connect_timeout=2&onefold_patience={patience}"
    return f"postgresql://postgres@/postgres?host={hosts}&{options}"


# ---------------------------------------------------------------------- many who write


@dataclass
class Writer:
    name: str
    told: dict[str, int] = field(default_factory=dict)
    """What it wrote, and the numbers it was told."""
    unknown: set[str] = field(default_factory=set)
    """What it cannot say of whether it is written, and did not repeat, since it has no key."""


class Load:
    """Writers, each with a session and connections of its own, and a worker that compacts for all of them."""

    def __init__(self, address: str, count: int) -> None:
        self.writers = [Writer(f"writer {n}") for n in range(count)]
        self.standing = WorkerStatus()
        self._address = address
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._doing: list[Future[Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Goes on until the end of the block, and then until everybody knows what became of the last thing."""
        with ExitStack() as stores, ThreadPoolExecutor(len(self.writers) + 1) as threads:
            own = [stores.enter_context(onefold.open(self._address, policy=quick())) for _ in (*self.writers, None)]
            worker = Worker(own[-1], short, concurrency=2, upkeep=None, heard=self._heard)
            self._doing = [threads.submit(self._write, w, s) for w, s in zip(self.writers, own, strict=False)]
            self._doing.append(threads.submit(worker.run, self._stop))
            try:
                yield
            finally:
                self._stop.set()
                for doing in self._doing:
                    doing.result(2 * PATIENCE)

    def wait_for_more(self, count: int = 12, *, summaries: int = 1) -> None:
        """Until each writer was told of so many more, and the worker has made more summaries."""
        before = [len(w.told) for w in self.writers], self.standing.committed

        def enough() -> bool:
            assert not any(doing.done() for doing in self._doing)
            more = all(len(w.told) >= b + count for w, b in zip(self.writers, before[0], strict=True))
            return more and self.standing.committed >= before[1] + summaries

        with self._progress:
            assert self._progress.wait_for(enough, PATIENCE), (before, self.standing)

    def check(self, store: Store) -> None:
        """Lost 0, twice 0, forks 0."""
        for writer in self.writers:
            session = store.session(writer.name)
            records = [*session.read()]
            said = {r.number: r.body["content"] for r in records if r.kind == MESSAGE}
            assert [r.number for r in records] == [*range(1, len(records) + 1)]
            assert [text for text, count in Counter(said.values()).items() if count > 1] == []
            assert {text: n for text, n in writer.told.items() if said.get(n) != text} == {}
            assert {*said.values()} - {*writer.told} <= writer.unknown
            bases = [s.base for s in session.segments()]
            assert bases == [None, *(s.number for s in session.segments())][: len(bases)]
        made = sum(c.state == "committed" for w in self.writers for c in store.session(w.name).compactions())
        assert made >= self.standing.committed
        assert store.verify().findings == ()

    def _heard(self, standing: WorkerStatus) -> None:
        with self._progress:
            self.standing = standing
            self._progress.notify_all()

    def _write(self, writer: Writer, store: Store) -> None:
        session = store.session(writer.name)
        n = 0
        while not self._stop.is_set():
            n += 1
            text = f"{writer.name}, message {n}: " + "word " * 20
            self._append(writer, session, text, key=f"key {n}" if n % 3 else None)
            if n % 10 == 0:
                again(lambda: store.journal.request(session.id))
            with self._progress:
                self._progress.notify_all()

    def _append(self, writer: Writer, session: Session, text: str, key: str | None) -> None:
        try:
            told = again(lambda: session.append({"role": "user", "content": text}, key=key), unknown=key is not None)
        except OutcomeUnknown:
            writer.unknown.add(text)
        else:
            writer.told[text] = told.numbers[0]


def again(do: Callable[[], T], *, unknown: bool = True) -> T:
    """Says it again while the store cannot be used: nothing was written then. Not if that is unknown, unless it may be
    repeated."""
    for _ in range(10):
        try:
            return do()
        except OutcomeUnknown:
            if not unknown:
                raise
        except StoreUnavailable:
            pass
    return do()


def short(material: SummaryInput) -> str:
    return f"what was said in {material.session} until record {material.records[-1].number}, in short"


# ---------------------------------------------------------------------- servers that go


def test_a_server_that_is_killed_under_load_and_comes_back_loses_nothing_and_doubles_nothing(
    servers: ExitStack,
) -> None:
    server = primary(servers)
    load = Load(either(server), 4)
    with load.running():
        for _ in range(2):
            load.wait_for_more()
            server.kill()
            server.start()
        load.wait_for_more()

    with onefold.open(server.dsn) as store:
        load.check(store)


def test_a_synchronous_standby_that_takes_over_under_load_has_everything(servers: ExitStack) -> None:
    first = primary(servers)
    second = standby(servers, first)
    load = Load(either(first, second), 4)
    with load.running():
        load.wait_for_more()
        with onefold.open(second.dsn) as replica:
            assert [r.number for r in replica.session("writer 0").read(1, 3)] == [1, 2]  # it can be read all the time
        first.kill()
        second.promote()
        load.wait_for_more()

    with onefold.open(second.dsn) as store:
        load.check(store)


def test_a_primary_that_only_stood_still_says_nothing_that_its_successor_does_not_know(servers: ExitStack) -> None:
    first = primary(servers)
    second = standby(servers, first)
    load = Load(either(second, first, patience=2.0), 2)
    with load.running():
        load.wait_for_more()
        with first.paused():
            second.promote()
        # It is back, takes connections, and believes that it is the primary.
        with onefold.open(either(first, patience=0.5)) as old, pytest.raises((OutcomeUnknown, StoreUnavailable)):
            old.session("writer 0").append(SAID, key="to the old one")
        load.wait_for_more(summaries=0)
        first.kill()  # until then, whoever only reads from it does not learn of its successor
        load.wait_for_more()

    with onefold.open(second.dsn) as store:
        load.check(store)


def test_what_only_a_restarted_primary_has_is_not_said_to_be_written(servers: ExitStack) -> None:
    """The record is on its disk, and readable there, but its standby would not have it if it took over now."""
    first = primary(servers)
    second = standby(servers, first)
    with onefold.open(either(first, patience=2.0)) as store, ThreadPoolExecutor(1) as threads:
        session = store.session("s")
        second.kill()
        appending = threads.submit(session.append, SAID, key="k")
        with psycopg.connect(first.dsn, autocommit=True) as admin:
            wait_for(admin, "select 1 from pg_stat_activity where wait_event = 'SyncRep'")
        first.kill()
        first.start()

        with pytest.raises(OutcomeUnknown, match="repeat the same call with the same key"):
            appending.result(PATIENCE)
        assert [r.body for r in session.read(2)] == [SAID]
        with pytest.raises(StoreUnavailable):
            session.append(SAID, key="k")

        second.start()
        assert session.append(SAID, key="k").numbers == (2,)
        assert kinds(session, 2) == [MESSAGE]


# ---------------------------------------------------------------------- answers that are lost


def claimed(journal: Journal) -> Claim:
    journal.request("s")
    claim = journal.claim("s", this_process("tests"))
    assert isinstance(claim, Claim)
    return claim


def appends_with_a_key(journal: Journal) -> Callable[[], object]:
    return lambda: journal.append("s", [draft(SAID, journal.new_id)], key="k").numbers == (14,)


def appends_without_a_key(journal: Journal) -> Callable[[], object]:
    return lambda: journal.append("s", [draft(SAID, journal.new_id)]).numbers == (14,)


def requests(journal: Journal) -> Callable[[], object]:
    return lambda: journal.request("s").outcome == "opened"


def claims(journal: Journal) -> Callable[[], object]:
    journal.request("s")

    def do() -> bool:
        claim = journal.claim("s", this_process("tests"))
        return isinstance(claim, Claim) and (claim.fence, claim.attempt) == (15, 1)

    return do


def commits(journal: Journal) -> Callable[[], object]:
    claim = claimed(journal)
    return lambda: journal.commit(claim, "They talked about twelve things.").base == 1


def fails(journal: Journal) -> Callable[[], object]:
    claim = claimed(journal)
    return lambda: journal.fail(claim, "no answer", None).state == "failed"


@pytest.mark.parametrize("harm", ["swallow the answer", "lose the commit", "stall"])
@pytest.mark.parametrize(
    ("operation", "kind", "count"),
    [
        (appends_with_a_key, MESSAGE, 13),
        (appends_without_a_key, MESSAGE, 13),
        (requests, REQUESTED, 1),
        (claims, STARTED, 1),
        (commits, SEGMENT_OPENED, 2),
        (fails, FAILED, 1),
    ],
)
def test_an_operation_whose_answer_is_lost_happens_once_and_says_so(
    operation: Callable[[Journal], Callable[[], object]], kind: str, count: int, harm: Harm
) -> None:
    address = postgres_server.empty_address()
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(address) as direct:
        with onefold.open(f"{proxy.address(address)}&onefold_patience=2", policy=quick()) as store:
            converse(store.session("s"), 12)
            do = operation(store.journal)
            proxy.harm = harm

            assert do()

            assert proxy.done.is_set()
            proxy.deliver()
            store.session("s").append({"role": "user", "content": "after"})
        happened = kinds(direct.session("s"))
        assert happened.count(kind) == count + (kind == MESSAGE)
        assert direct.verify().findings == ()
    postgres_server.give_back(address)
