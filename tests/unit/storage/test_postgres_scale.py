"""What many sessions, many who wait and a server without room ask of the PostgreSQL store."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import onefold
from onefold import Store
from onefold.compaction.holder import this_process
from onefold.errors import StaleHandle, StoreUnavailable
from onefold.model import HolderId, Json
from onefold.storage.base import SessionLocked
from onefold.storage.postgres import transaction
from onefold.storage.postgres.backend import PostgresBackend
from onefold.storage.postgres.connection import Link
from onefold.storage.postgres.dsn import parse
from onefold.worker import Worker
from tests.support import postgres_server
from tests.support.helpers import PATIENCE, converse, quick
from tests.support.postgres_proxy import Proxy
from tests.support.postgres_server import Server
from tests.support.postgres_stores import Following

SAID: Json = {"role": "user", "content": "once"}
PAGE = Path(__file__).parents[3] / "docs/how-to/postgres.md"


@pytest.fixture
def address() -> Iterator[str]:
    address = postgres_server.empty_address()
    yield address
    postgres_server.give_back(address)


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with onefold.open(address, policy=quick()) as store:
        yield store
        assert store.verify().findings == ()


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Counts how often the server is asked while something is done."""
    count = [0]
    send = Link.send

    def counted(self: Link, statements: Any) -> Any:
        count[0] += 1
        return send(self, statements)

    monkeypatch.setattr(Link, "send", counted)

    def of(act: Callable[[], Any]) -> int:
        before = count[0]
        act()
        return count[0] - before

    return of


def backend_of(store: Store) -> PostgresBackend:
    backend = store.journal.backend
    assert isinstance(backend, PostgresBackend)
    return backend


def asked(store: Store, *names: str) -> None:
    for name in names:
        store.session(name)
        store.journal.request(name)


def claimed(store: Store) -> str | None:
    claim = store.journal.claim_next(this_process("tests"))
    return None if claim is None else claim.session


def table(address: str, name: str) -> sql.Identifier:
    return sql.Identifier(parse(address).schema, name)


# ---------------------------------------------------------------------- many sessions


def test_a_page_of_a_walk_is_one_question_and_found_by_the_indexes(store: Store, exchanges: Callable[..., int]) -> None:
    names = [f"s{n}" for n in range(12)]
    for name in names:
        store.session(name).append([SAID] * 5, key="k")
    backend, plan = backend_of(store), list[str]()

    one = exchanges(lambda: backend.read(lambda tx: tx.walk(1, "")))
    many = exchanges(lambda: backend.read(lambda tx: tx.walk(100, "")))
    with backend._link() as link:
        link.ask(b"set enable_seqscan = off")  # a table of a few rows is read whole, whatever there is
        plan += [line for (line,) in link.ask(b"explain (analyze, verbose) " + backend._queries["walk"], "", 100)]
        link.ask(b"reset enable_seqscan")

    assert many == one
    assert [line for line in plan if "Seq Scan" in line] == []
    assert len([line for line in plan if re.search(r"Index Cond: .* > walk", line)]) == 7


def test_the_last_numbers_of_many_sessions_are_one_question(store: Store, exchanges: Callable[..., int]) -> None:
    names = [f"s{n}" for n in range(12)]
    for n, name in enumerate(names):
        session = store.session(name)
        for _ in range(n % 3):
            session.append(SAID)
    found: list[dict[str, int]] = []

    few = exchanges(lambda: store.journal.backend.read(lambda tx: tx.lasts(names[:1])))
    many = exchanges(lambda: found.append(store.journal.backend.read(lambda tx: tx.lasts([*names, "nobody"]))))

    assert many == few
    assert found == [{name: 1 + n % 3 for n, name in enumerate(names)}]


def test_taking_the_next_compaction_costs_the_same_whoever_waits_and_whoever_works(
    store: Store, exchanges: Callable[..., int]
) -> None:
    asked(store, "a0", "a1")
    few = exchanges(lambda: claimed(store))
    asked(store, *(f"b{n}" for n in range(16)))
    for _ in range(12):
        claimed(store)

    many = exchanges(lambda: claimed(store))

    assert many <= few + 1  # the leases of those who work, all at once


def test_open_compactions_are_taken_in_order_through_all_their_pages(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still, all were asked for at once: the next page begins where the last one ended."""
    monkeypatch.setattr(transaction, "_PAGE", 3)
    names = [f"s{n}" for n in range(8)]
    with onefold.open(address, clock=lambda: 1_800_000_000.0) as store:
        asked(store, *reversed(names))

        assert [claimed(store) for _ in range(9)] == [*names, None]
        assert [c.session for c in store.journal.backend.read(lambda tx: [*tx.open_compactions()])] == names


def test_workers_who_meet_at_the_front_of_the_line_go_on_in_different_places(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"s{n:02}" for n in range(20)]
    with onefold.open("memory:", clock=lambda: 1_800_000_000.0) as store:
        asked(store, *names)
        tried: list[str] = []

        def taken(session: str, *given: Any, **named: Any) -> Any:
            tried.append(session)
            raise SessionLocked(session)

        monkeypatch.setattr(store.journal.backend, "write", taken)
        for pid in (1, 2):
            assert store.journal.claim_next(HolderId("host", pid, "thread", None, "nonce")) is None

    one, other = tried[:20], tried[20:]
    assert sorted(one) == sorted(other) == names
    assert one[0] == other[0]
    assert one[1:] != other[1:]


def test_a_session_with_a_damaged_segment_holds_up_no_other(
    store: Store, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked(store, "bad", "good")
    with psycopg.connect(parse(address).conninfo) as admin:
        damage = sql.SQL("update {} set kept = 'none' where session = 'bad'")
        admin.execute(damage.format(table(address, "segments")))

    assert [claimed(store), claimed(store)] == ["good", None]
    assert "session 'bad' is passed over" in caplog.text
    assert store.verify(fix=True).findings


def test_workers_go_on_without_leases_and_say_so_once(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with onefold.open(address, policy=quick()) as store:
        asked(store, "a", "b")
        assert claimed(store) == "a"
        with psycopg.connect(parse(address).conninfo) as admin:
            admin.execute(sql.SQL("drop table {}").format(table(address, "leases")))

        assert claimed(store) == "a"  # nobody can say that somebody works on it
        assert caplog.text.count("the lease part of store") == 1
        assert store.verify(fix=True).findings


def test_a_worker_with_nothing_to_do_is_not_kept_busy_by_appends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.worker.BREATH", PATIENCE)
    monkeypatch.setattr("onefold.worker.LOOK", PATIENCE)
    session = store.session("s")
    looks, looked = [], threading.Event()
    claim_next = store.journal.claim_next

    def look(*given: Any, **named: Any) -> Any:
        looks.append(given)
        found = claim_next(*given, **named)
        looked.set()
        return found

    monkeypatch.setattr(store.journal, "claim_next", look)
    stop = threading.Event()
    working = threading.Thread(target=Worker(store, upkeep=None).run, args=(stop,))
    working.start()
    assert looked.wait(PATIENCE)
    for _ in range(20):
        session.append(SAID)
    seen = len(looks)
    stop.set()
    working.join(PATIENCE)

    assert seen == 1


def test_a_listener_looks_at_the_clock_and_not_at_each_notification(
    address: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.storage.postgres.listener.LOOK", PATIENCE * 2)
    snapshots = []
    watch = backend_of(store)._watch
    ask = Link.ask

    def counted(self: Link, query: bytes, *bindings: Any) -> Any:
        snapshots.extend([query] if query == watch._snapshot else [])
        return ask(self, query, *bindings)

    monkeypatch.setattr(Link, "ask", counted)
    following = Following(store.session("s"), store, monkeypatch)
    with onefold.open(address) as other:
        handle = other.session("s")
        seen = [following.next_after(lambda: handle.append(SAID), PATIENCE) for _ in range(10)]
    following.end()

    assert (seen, len(snapshots)) == ([*range(2, 12)], 1)


def test_what_a_connection_of_the_pool_hears_is_not_kept_for_ever(store: Store) -> None:
    """Behind a PgBouncer a server's connection goes on listening for whoever had it before."""
    session = store.session("s")
    backend = backend_of(store)
    with backend._link() as link:
        link.execute(sql.SQL("listen {}").format(sql.Identifier(backend._channel)))
    for _ in range(5):
        session.append(SAID)
    with backend._link() as link:
        link.ask(b"select 1")

        assert not link._notifies_backlog
        link.execute("unlisten *")


# ---------------------------------------------------------------------- a server that cannot write


def test_a_full_disk_is_named_nothing_is_lost_and_it_goes_on_when_there_is_room(address: str) -> None:
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(proxy.address(address), policy=quick()) as store:
        session = store.session("s")
        converse(session, 12)
        before = session.context().messages
        proxy.harm = "full disk"
        for act in (
            lambda: session.append(SAID, key="k"),
            lambda: store.session("another"),
            lambda: store.journal.request("s"),
        ):
            with pytest.raises(StoreUnavailable, match=r"disk is full; nothing was written. Free some space"):
                act()
        assert session.context().messages == before  # reading needs no room
        assert proxy.done.is_set()

        proxy.harm = "none"
        assert session.append(SAID, key="k").numbers == (14,)
        assert session.compact(lambda material: "They talked about twelve things.").applied
        assert [s.id for s in store.sessions()] == ["s"]
        assert store.verify().findings == ()


def test_a_standby_is_read_and_says_where_to_write() -> None:
    with ExitStack() as servers:
        first = Server(quick=False)
        servers.callback(first.stop)
        with onefold.open(first.dsn) as store:
            store.session("s").append(SAID)
        second = postgres_server.Standby(first)
        servers.callback(second.stop)
        with onefold.open(second.dsn) as replica:
            session = replica.session("s")
            assert [m["content"] for m in session.context().messages] == ["once"]
            for act in (lambda: session.append(SAID), lambda: replica.session("new"), replica.purge):
                with pytest.raises(StoreUnavailable, match=r"read-only, as a standby is; nothing was written"):
                    act()


# ---------------------------------------------------------------------- dumps


def test_after_a_restored_dump_the_step_on_the_page_makes_old_numbers_known_as_such(tmp_path: Path) -> None:
    (step,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    server = Server(quick=False)
    try:
        with onefold.open(server.dsn, policy=quick()) as store:
            session = store.session("s")
            converse(session, 12)
            session.compact(lambda material: "They talked about twelve things.")
            said, first = session.context().messages, store.generation
            dump = _run(server, "pg_dump", "--schema=onefold", server.dsn)
            lost = session.append(SAID).numbers[0]
        with closing(psycopg.connect(server.dsn, autocommit=True)) as admin:
            admin.execute("drop schema onefold cascade")
            _run(server, "psql", "-q", "-v", "ON_ERROR_STOP=1", server.dsn, given=dump)
            with onefold.open(server.dsn) as store:
                assert store.generation == first  # so numbers from before would be taken for today's
            admin.execute(step.encode())
        with onefold.open(server.dsn) as store:
            session = store.session("s")
            assert session.context().messages == said
            assert session.append({"role": "user", "content": "another"}).numbers == (lost,)
            with pytest.raises(StaleHandle, match="restored from a backup"):
                next(session.follow(lost, generation=first))
            assert store.verify().findings == ()
    finally:
        server.stop()


def _run(server: Server, program: str, *arguments: str, given: bytes | None = None) -> bytes:
    command = [str(server.binaries / program), *arguments]
    return subprocess.run(command, input=given, check=True, capture_output=True, timeout=PATIENCE).stdout
