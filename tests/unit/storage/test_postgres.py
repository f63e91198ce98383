"""What only a server can do to a store: answers that are lost, connections that die, others who are first."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool, NullConnectionPool

import onefold
from onefold import Session, Store
from onefold.compaction.holder import this_process
from onefold.errors import OnefoldError, OutcomeUnknown, StoreError, StoreTooNew, StoreUnavailable
from onefold.model import Json
from onefold.storage.base import Transaction
from onefold.storage.postgres import PostgresBackend, schema
from onefold.storage.postgres.connection import Link
from onefold.storage.postgres.dsn import parse
from onefold.storage.postgres.session_queue import SessionQueues, Waited
from onefold.storage.postgres.transaction import PostgresTransaction
from tests.support import postgres_server
from tests.support.helpers import PATIENCE, converse, quick, said_in
from tests.support.postgres_proxy import Harm, Proxy
from tests.support.postgres_server import Server
from tests.support.postgres_stores import Following, backend_of

SAID = {"role": "user", "content": "once"}
EMOJI = "\N{GRINNING FACE}"
_SIGNS = [chr(n) for n in range(0x4E00, 0x9F00)]


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
def session(store: Store) -> Session:
    return store.session("s")


def option(address: str, **options: str) -> str:
    return address + "".join(f"&{name}={value}" for name, value in options.items())


def contents(session: Session) -> list[str]:
    return [r.body["content"] for r in session.read() if r.kind == "message"]


@contextlib.contextmanager
def administration(address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(parse(address).conninfo, autocommit=True) as connection:
        yield connection


def set_meta(address: str, name: str, value: str) -> None:
    with administration(address) as connection:
        meta = sql.Identifier(parse(address).schema, "meta")
        connection.execute(sql.SQL("update {} set value = %s where name = %s").format(meta), (value, name))


@contextlib.contextmanager
def writing(store: Store, session: str) -> Iterator[None]:
    """Somebody in the middle of a transaction on a session, for as long as the block."""
    begun, go_on = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        tx.session(session)
        begun.set()
        assert go_on.wait(PATIENCE)

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(store.journal.backend.write, session, work)
        try:
            assert begun.wait(PATIENCE)
            yield
        finally:
            go_on.set()
            held.exception(PATIENCE)


# ---------------------------------------------------------------------- what is stored


@pytest.mark.parametrize(
    "odd", ["a\0b", "\ud800 alone", EMOJI, "\\u0000 in words", "%s %(x)s '; -- \\", "\ufffe\uffff"]
)
def test_nul_and_odd_unicode_come_back_equal_from_every_place(store: Store, session: Session, odd: str) -> None:
    body: Json = {"role": "user", "content": odd, odd: [odd, {odd: 2**70}]}
    call: Json = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": odd, "type": "function", "function": {"name": "f", "arguments": odd}}],
    }
    session.append([body, call, {"role": "tool", "tool_call_id": odd, "content": odd}])
    session.append([{"role": "user", "content": f"more {n} " + "word " * 30} for n in range(8)])
    session.note("rule", f"never {odd}")
    result = session.compact(lambda material: f"They said {odd}, and then some more.", instructions=odd)

    assert result.applied, result
    assert [r.body for r in session.read() if r.kind == "message"][:2] == [body, call]
    assert any(odd in m["content"] for m in session.context().messages if "They said" in m["content"])
    assert session.notes()[0].text == f"never {odd}"
    assert store.journal.compaction("s", result.id or "").instructions == odd


def test_the_longest_names_there_may_be_are_stored(store: Store) -> None:
    """Each is more than two kilobytes, so that no index could take two of them together."""
    chance = random.Random(1)  # what repeats itself, an index would compress
    longest, key, alias, branch = ("".join(chance.choices(_SIGNS, k=512)) for _ in range(4))
    session = store.session(longest)
    first = session.append(SAID, key=key)
    again = session.append(SAID, key=key)
    session.alias(alias)
    fork = session.fork(id=branch)

    assert again.duplicate
    assert again.numbers == first.numbers
    assert store.resolve(alias) == longest
    assert [f.id for f in store.forks(longest)] == [fork.id]


def test_an_id_that_the_server_cannot_store_is_known_to_nobody(store: Store) -> None:
    for odd in ("a\0b", "\ud800"):
        with pytest.raises(OnefoldError):
            store.resolve(odd)


def test_the_servers_clock_counts(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 0)
    session.append(SAID)

    assert [r.at > 1_700_000_000 for r in session.read()][-1:] == [True]


# ---------------------------------------------------------------------- many at once


def test_a_late_commit_is_never_skipped_by_a_reader(store: Store, address: str, session: Session) -> None:
    with onefold.open(address) as other, ThreadPoolExecutor(2) as threads:
        follower = session.follow(1, idle=PATIENCE)
        with writing(store, "s"):
            later = threads.submit(other.session, "s")
            handle = later.result(PATIENCE)  # which only reads
            appended = threads.submit(handle.append, SAID)
            with pytest.raises(TimeoutError):
                appended.result(0.3)
            assert contents(session) == []
        assert appended.result(PATIENCE).numbers == (2,)
        session.append({"role": "user", "content": "twice"})

        assert [next(follower).number, next(follower).number] == [2, 3]


def test_sessions_do_not_wait_for_each_other(store: Store, session: Session) -> None:
    other = store.session("other")
    with writing(store, "s"):
        other.append(SAID)
        assert contents(other) == ["once"]
        assert session.context().messages == []  # and readers wait for nobody


WANTING = 32


@contextlib.contextmanager
def many_waiting(store: Store, session: Session) -> Iterator[list[threading.Thread]]:
    """So many threads that want to write to a session that somebody holds: all have come when the block begins."""
    lines = backend_of(store)._lines
    came = threading.Semaphore(0)

    class Watched(deque[threading.Lock]):
        def append(self, lock: threading.Lock) -> None:
            super().append(lock)
            came.release()

    threads = []
    with writing(store, "s"):
        lines._lines["s"].waiting = Watched()
        for n in range(WANTING):
            threads.append(threading.Thread(target=session.append, args=({"role": "user", "content": str(n)},)))
            threads[-1].start()
            if n:  # the first one waits at the server, beside the one that writes
                assert came.acquire(timeout=PATIENCE)
        yield threads
    for thread in threads:
        thread.join(PATIENCE)


def test_a_session_that_somebody_holds_takes_no_connections_from_others(
    store: Store, address: str, session: Session
) -> None:
    """However many want to write to it: one of them waits at the server, the others in a line."""
    other = store.session("other")
    with many_waiting(store, session):
        with administration(address) as admin:
            postgres_server.wait_for(admin, "select 1 from pg_stat_activity where wait_event_type = 'Lock'")
            waits = admin.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
        other.append(SAID)
        assert contents(other) == ["once"]
        assert session.context().messages == []
        assert store.journal.claim_next(this_process("worker")) is None

    assert waits == (1,)
    written = [int(text) for text in contents(session)]
    assert sorted(written) == [*range(WANTING)]
    assert max(abs(at - n) for at, n in enumerate(written)) < WANTING / 3  # about in the order in which they came
    assert backend_of(store)._lines._lines == {}


def test_who_stands_in_line_for_too_long_is_told_so_and_leaves_it(store: Store, address: str) -> None:
    with onefold.open(option(address, onefold_patience="0.3")) as hasty, ThreadPoolExecutor(8) as threads:
        session = hasty.session("s")
        began = time.monotonic()
        with writing(store, "s"):
            refused = [threads.submit(session.append, SAID).exception for _ in range(8)]
            said = [str(one(PATIENCE)) for one in refused]
            took = time.monotonic() - began

        assert all("has held the session for 0.3 s; nothing was written" in words for words in said), said
        assert took < 5
        assert backend_of(hasty)._lines._lines == {}
        session.append(SAID)
        assert contents(session) == ["once"]


def test_closing_lets_nobody_stand_in_line(store: Store, address: str, session: Session) -> None:
    with onefold.open(address) as closing, ThreadPoolExecutor(8) as threads:
        other = closing.session("s")
        with writing(store, "s"):
            waiting = [threads.submit(other.append, SAID) for _ in range(8)]
            lines = backend_of(closing)._lines
            pause = threading.Event()
            while len(getattr(lines._lines.get("s"), "waiting", ())) < 6:
                pause.wait(0.01)
            closing.close()
        for one in waiting:
            with contextlib.suppress(OnefoldError):  # the two at the server may have been let in
                one.result(PATIENCE)

    assert len(contents(session)) <= 2


def test_a_line_that_is_left_at_any_moment_stops_nobody() -> None:
    lines, order = SessionQueues(), []
    with lines.turn("s", 1), lines.turn("s", 1):
        with pytest.raises(Waited), lines.turn("s", 0.01):
            raise AssertionError("nobody let it in")
        with lines.turn("other", 0.01):
            order.append("other")
    with lines.turn("s", 0.01):
        order.append("again")

    assert order == ["other", "again"]
    assert lines._lines == {}


def test_workers_pass_over_a_session_that_somebody_writes_to_and_wait_for_nobody(store: Store) -> None:
    names = [f"s{n}" for n in range(9)]
    for name in names:
        converse(store.session(name), 4)
        store.journal.request(name)
    together = threading.Barrier(8)

    def claim(n: int) -> str | None:
        together.wait(PATIENCE)
        claim = store.journal.claim_next(this_process(f"worker {n}"))
        return None if claim is None else claim.session

    with writing(store, "s0"), ThreadPoolExecutor(8) as threads:
        claiming = [threads.submit(claim, n) for n in range(8)]
        claimed = [one.result(PATIENCE / 3) for one in claiming]
        nothing_left = store.journal.claim_next(this_process("another"))

    assert sorted(map(str, claimed)) == names[1:]
    assert nothing_left is None
    left = store.journal.claim_next(this_process("another"))
    assert left is not None
    assert left.session == "s0"


def test_a_session_whose_row_is_gone_is_no_session_that_somebody_writes_to(
    store: Store, address: str, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    store.journal.request("s")
    with administration(address) as admin:
        admin.execute(sql.SQL("delete from {}").format(sql.Identifier(parse(address).schema, "sessions")))

    assert store.journal.claim_next(this_process("worker")) is None
    assert "session 's' is passed over" in caplog.text
    assert store.verify(fix=True).findings


def test_many_threads_on_few_sessions_write_each_record_once(store: Store) -> None:
    names = ["a", "b", "c"]

    def write(n: int) -> None:
        store.session(names[n % 3]).append({"role": "user", "content": str(n)})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(48)))

    for at, name in enumerate(names):
        there = store.session(name)
        assert sorted(contents(there), key=int) == [str(n) for n in range(at, 48, 3)]
        assert [r.number for r in there.read()] == [*range(1, 18)]


def test_those_who_make_the_same_session_at_once_make_one(store: Store, address: str) -> None:
    with onefold.open(address) as other, ThreadPoolExecutor(8) as threads:
        made = [*threads.map(lambda n: (store, other)[n % 2].session(f"new {n // 8}").id, range(32))]

    assert sorted({*made}) == sorted(s.id for s in store.sessions())
    assert all([r.number for r in store.session(id).read()] == [1] for id in {*made})


def test_those_who_make_the_same_store_at_once_make_one() -> None:
    address = postgres_server.new_address()
    with ThreadPoolExecutor(4) as threads:
        stores = [*threads.map(lambda _: onefold.open(address), range(4))]
    generations = {store.generation for store in stores}
    for store in stores:
        store.close()
    postgres_server.drop(address)

    assert len(generations) == 1


def interfering(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Does something else just before a transaction takes a name, once."""
    take = PostgresTransaction._take_name
    left = [what]

    def taking(self: PostgresTransaction, id: str, session: str, kind: str) -> None:
        if left:
            left.pop()()
        take(self, id, session, kind)

    monkeypatch.setattr(PostgresTransaction, "_take_name", taking)


def test_of_two_sessions_that_want_the_same_other_id_one_gets_it(
    store: Store, address: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onefold.open(address) as second:
        other = second.session("other")
        interfering(monkeypatch, lambda: other.alias("name"))
        with pytest.raises(OnefoldError, match="is session 'other' already"):
            session.alias("name")

    assert store.resolve("name") == "other"


def test_an_id_that_becomes_another_sessions_meanwhile_makes_no_second_session(
    store: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onefold.open(address) as second:
        other = second.session("other")
        interfering(monkeypatch, lambda: other.alias("name"))

        assert store.session("name").id == "other"
        assert [s.id for s in store.sessions()] == ["other"]


def test_what_is_erased_while_somebody_forks_is_in_no_summary_of_the_fork(
    store: Store, address: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    converse(session, 12)
    assert session.compact(lambda material: "They talked about twelve things.").applied
    with onefold.open(address) as second:
        interfering(monkeypatch, lambda: second.session("s").erase(2))
        fork = session.fork()

    assert fork.context().messages == session.context().messages
    assert not any("erased" in m["content"] for m in fork.context().messages)
    assert fork.state.tokens == said_in(fork.context())[1]


@pytest.fixture
def following(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    following = Following(session, store, monkeypatch)
    yield following
    following.end()


def test_a_notification_that_is_lost_costs_a_second_and_no_record(address: str, following: Following) -> None:
    with onefold.open(address) as mute:
        backend = backend_of(mute)
        backend._queries = {**backend._queries, "notify": b"select %s, %s"}
        handle = mute.session("s")

        assert [following.next_after(lambda: handle.append(SAID), 5.0) for _ in range(3)] == [2, 3, 4]


def test_a_follower_hears_of_other_processes_at_once(
    address: str, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking is put off for longer than the test has: only what was heard can be the reason."""
    monkeypatch.setattr("onefold.storage.postgres.listener.LOOK", PATIENCE * 2)
    with onefold.open(address) as other:
        handle = other.session("s")

        assert [following.next_after(lambda: handle.append(SAID), PATIENCE / 3) for _ in range(5)] == [2, 3, 4, 5, 6]


def test_a_listener_whose_connection_is_lost_listens_again(address: str, session: Session) -> None:
    with onefold.open(address) as other, administration(address) as admin:
        handle = other.session("s")
        follower = session.follow(1, idle=PATIENCE)
        handle.append(SAID)
        assert next(follower).number == 2
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and "
            "application_name = 'onefold' and state = 'idle'"
        )
        handle.append(SAID)
        assert next(follower).number == 3


# ---------------------------------------------------------------------- answers that are lost


@pytest.mark.parametrize("harm", ["swallow the answer", "lose the commit", "stall"])
def test_an_append_whose_answer_is_lost_is_written_once_and_says_so(address: str, harm: Harm) -> None:
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(address) as direct:
        with onefold.open(proxy.address(address)) as store:
            session = store.session("s")
            session.append({"role": "user", "content": "before"})
            proxy.harm = harm

            assert session.append(SAID).numbers == (3,)

            proxy.deliver()
            assert session.append({"role": "user", "content": "after"}).numbers == (4,)
        assert proxy.done.is_set()
        assert contents(direct.session("s")) == ["before", "once", "after"]
        assert direct.verify().findings == ()


@pytest.mark.parametrize("harm", ["swallow the answer", "lose the commit", "stall"])
def test_a_session_that_is_made_while_the_answer_is_lost_is_made_once(address: str, harm: Harm) -> None:
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(address) as direct:
        with onefold.open(proxy.address(address)) as store:
            proxy.harm = harm
            session = store.session("s")
            proxy.deliver()
            assert [r.number for r in session.read()] == [1]
        assert proxy.done.is_set()
        assert direct.verify().findings == ()


@pytest.mark.parametrize("harm", ["swallow the answer", "lose the commit"])
def test_a_summary_and_a_deletion_whose_answer_is_lost_say_the_truth(address: str, harm: Harm) -> None:
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(proxy.address(address), policy=quick()) as store:
        session = store.session("s")
        converse(session, 12)

        def summarize(material: onefold.SummaryInput) -> str:
            proxy.harm = harm
            return "They talked about twelve things, one after another."

        result = session.compact(summarize)
        assert proxy.done.is_set()
        proxy.done.clear()
        assert (result.applied, len(session.segments())) == (True, 2)

        last = session.state.last
        proxy.harm = harm
        assert store.delete("s").records == last
        assert proxy.done.is_set()


def test_a_server_that_says_nothing_is_not_waited_for_for_ever_and_what_comes_late_is_not_written(
    address: str,
) -> None:
    with Proxy(postgres_server.shared_dsn()) as proxy, onefold.open(address) as direct:
        with onefold.open(option(proxy.address(address), onefold_patience="0.6")) as store:
            session = store.session("s")
            proxy.harm = "silence"
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                session.append(SAID)

            proxy.deliver()
            assert session.append({"role": "user", "content": "again"}).numbers == (2,)
        assert proxy.done.is_set()
        assert contents(direct.session("s")) == ["again"]


def test_where_nobody_can_look_the_outcome_is_unknown_and_the_key_settles_it(address: str) -> None:
    with Proxy(postgres_server.shared_dsn(), shut=True) as proxy, onefold.open(address) as direct:
        with onefold.open(option(proxy.address(address), onefold_patience="0.5")) as store:
            session = store.session("s")
            proxy.harm = "swallow the answer"
            with pytest.raises(OutcomeUnknown, match="repeat the same call with the same key"):
                session.append(SAID, key="k")
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                session.append(SAID, key="k")

        assert direct.session("s").append(SAID, key="k").numbers == (2,)
        assert contents(direct.session("s")) == ["once"]


def test_a_connection_that_dies_in_mid_transaction_is_replaced_and_nothing_is_written_twice(
    store: Store, address: str, session: Session
) -> None:
    runs = []

    def work(tx: Transaction) -> int:
        assert isinstance(tx, PostgresTransaction)
        state = tx.session("s")
        assert state is not None
        runs.append(state.last)
        draft = store.journal.draft("x.note", {"n": len(runs)})
        tx.put_session(store.journal.add(tx, state, draft))
        if len(runs) == 1:
            tx.last_number("s")  # so that the record is with the server
            with administration(address) as admin:
                admin.execute("select pg_terminate_backend(%s, 5000)", (tx.stray[0],))
        return len(runs)

    assert store.journal.backend.write("s", work) == 2
    assert [r.body for r in session.read(2)] == [{"n": 2}]


def test_a_server_that_crashes_and_comes_back_loses_nothing_and_doubles_nothing() -> None:
    server = Server(quick=False)
    try:
        with onefold.open(server.dsn) as store:
            session = store.session("s")
            written: list[int] = []
            enough, restarted = threading.Event(), threading.Event()

            def write() -> None:
                while not restarted.is_set() or len(written) % 20:
                    written.extend(session.append({"role": "user", "content": str(len(written))}).numbers)
                    if len(written) == 10:
                        enough.set()

            with ThreadPoolExecutor(1) as threads:
                done = threads.submit(write)
                assert enough.wait(PATIENCE)
                server.kill()
                server.start()
                restarted.set()
                done.result(PATIENCE)

            assert contents(session) == [str(n) for n in range(len(written))]
            assert written == [*range(2, len(written) + 2)]
            assert store.verify().findings == ()
    finally:
        server.stop()


# ---------------------------------------------------------------------- connections that keep nothing


class Fresh(NullConnectionPool[Link]):
    """Hands out a connection that nobody had before, each time."""


class Discarding(ConnectionPool[Link]):
    """Hands out connections that have forgotten everything, as behind a PgBouncer."""

    def putconn(self, conn: Link) -> None:
        if not conn.lost:
            conn.ask(b"discard all")
        super().putconn(conn)


@pytest.mark.parametrize("pool", [Fresh, Discarding])
def test_every_transaction_may_run_on_another_connection(address: str, pool: type[ConnectionPool[Link]]) -> None:
    with Store(PostgresBackend(address, pool=pool), policy=quick()) as store:
        session = store.session("s")
        said = converse(session, 12)
        with session.turn() as turn:
            turn.append(SAID)
        assert session.append(SAID, key="k").numbers == session.append(SAID, key="k").numbers
        assert session.compact(lambda material: "They talked about twelve things.").applied
        assert session.fork(id="f").context().messages == session.context().messages
        session.undo()
        assert [r.body for r in session.read() if r.kind == "message"][:12] == said
        assert store.verify().findings == ()


def test_nothing_is_prepared_on_the_server_and_no_setting_stays(store: Store, session: Session) -> None:
    for _ in range(10):
        session.append(SAID)
    with backend_of(store)._link() as link:
        assert link.ask(b"select name from pg_prepared_statements") == []
        assert link.ask(b"show lock_timeout") == [("0",)]
        assert link.ask(b"select 1 from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()") == []


# ---------------------------------------------------------------------- what is said when it does not work


def test_a_read_only_server_is_read_and_says_why_it_is_not_written_to(address: str, session: Session) -> None:
    session.append(SAID)
    with onefold.open(option(address, options="-cdefault_transaction_read_only%3Don")) as store:
        same = store.session("s")
        assert contents(same) == ["once"]
        with pytest.raises(StoreUnavailable, match=r"read-only.*Connect to the primary"):
            same.append(SAID)


def test_a_session_that_somebody_holds_for_too_long_is_named(store: Store, address: str, session: Session) -> None:
    held = pytest.raises(StoreUnavailable, match=r"has held the session for 0\.3 s; nothing was written")
    with onefold.open(option(address, onefold_patience="0.3")) as hasty, writing(store, "s"), held:
        hasty.session("s").append(SAID)


def test_a_process_that_stands_still_does_not_hold_its_session_for_ever(address: str, session: Session) -> None:
    with onefold.open(option(address, onefold_patience="0.2")) as stopped, writing(stopped, "s"):
        session.append(SAID)  # once the server has ended the other's transaction
        assert contents(session) == ["once"]


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("postgresql://nobody:secret@/none?host=/nowhere&onefold_patience=0.2", StoreUnavailable, "cannot be reached"),
        ("postgresql://u:secret@h/d?onefold_speed=9", StoreError, "onefold_speed is not an option"),
        ("postgresql://u:secret@h/d?onefold_schema=Robert'); --", StoreError, "onefold_schema is"),
        ("postgresql://u:secret@h/d?onefold_patience=soon", StoreError, "onefold_patience is"),
        ("postgresql://u:secret@h/d?colour=red", StoreError, "is not the address"),
    ],
)
def test_an_address_that_will_not_do_is_refused_in_words_without_its_password(
    address: str, error: type[StoreError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        onefold.open(address)
    assert "secret" not in str(raised.value)


def test_a_database_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(StoreError, match=r"does not exist.*Check the address"):
        onefold.open(postgres_server.shared_dsn().replace("/postgres?", "/nothing?"))


def test_a_store_that_is_not_there_is_not_made_unless_asked_for() -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        onefold.open(postgres_server.new_address(), create=False)


def test_a_schema_of_another_program_is_left_alone(address: str) -> None:
    other = postgres_server.new_address()
    name = parse(other).schema
    with administration(other) as admin:
        admin.execute(f"create schema {name}".encode())
        admin.execute(f"create table {name}.records (theirs text)".encode())
        with pytest.raises(StoreError, match=r"restore a backup|another program"):
            onefold.open(other)
        columns = admin.execute("select column_name from information_schema.columns where table_schema = %s", (name,))
        assert columns.fetchall() == [("theirs",)]
    postgres_server.drop(other)


# ---------------------------------------------------------------------- versions, checks, backups


def test_a_newer_program_that_shuts_older_ones_out_is_obeyed_at_the_next_write(address: str, session: Session) -> None:
    session.append(SAID)
    set_meta(address, "min_writer", "99")
    try:
        with pytest.raises(StoreTooNew, match="Nothing was written"):
            session.append(SAID)
        assert contents(session) == ["once"]
        set_meta(address, "schema", "99")
        with pytest.raises(StoreTooNew):
            onefold.open(address)
    finally:
        set_meta(address, "min_writer", str(schema.WRITER))
        set_meta(address, "schema", "4")


def test_a_migration_waits_for_writers_and_lets_none_in_that_do_not_know_it(store: Store, address: str) -> None:
    session = store.session("s")
    shape = schema.Shape(parse(address).schema, address)
    table = f'"{shape.schema}"'
    steps = ((4, "", True), (5, f"alter table {table}.inputs add column more text; -- undo: no", False))

    def migrate() -> None:
        with contextlib.closing(backend_of(store)._connect()) as link:
            schema.prepare(link, shape, lambda: "id", create=False, steps=steps)

    with ThreadPoolExecutor(1) as threads:
        with writing(store, "s"):
            moving = threads.submit(migrate)
            with pytest.raises(TimeoutError):
                moving.result(0.3)
        moving.result(PATIENCE)
    try:
        with pytest.raises(StoreTooNew):
            session.append(SAID)
    finally:
        with administration(address) as admin:
            admin.execute(f"alter table {table}.inputs drop column more".encode())
        set_meta(address, "min_writer", str(schema.WRITER))
        set_meta(address, "schema", "4")


def test_a_migration_that_fails_half_way_leaves_the_store_as_it_was(store: Store, address: str) -> None:
    shape = schema.Shape(parse(address).schema, address)
    table = f'"{shape.schema}"'
    steps = ((4, "", True), (5, f"alter table {table}.inputs add column more text; select 1/0", True))
    with contextlib.closing(backend_of(store)._connect()) as link:
        with pytest.raises(psycopg.errors.DivisionByZero):
            schema.prepare(link, shape, lambda: "id", create=False, steps=steps)
        assert schema.version(link, shape) == 4
    store.session("s").append(SAID)


@pytest.mark.parametrize("table", ["leases", "turn_leases", "segments", "compactions", "sessions", "keys"])
def test_a_derived_table_that_is_gone_is_made_anew_from_the_journal(address: str, table: str) -> None:
    with onefold.open(address, policy=quick()) as store:
        session = store.session("s")
        converse(session, 12)
        session.append(SAID, key="k")
        session.compact(lambda material: "They talked about twelve things.")
        before = session.context().messages
        with administration(address) as admin:
            admin.execute(f'drop table "{parse(address).schema}".{table}'.encode())

        report = store.verify(fix=True)

        assert any(table in f.found and f.repaired for f in report.findings)
        assert store.session("s").context().messages == before
        assert store.verify().findings == ()
        assert store.session("s").append(SAID, key="k").duplicate


def test_settings_under_which_answers_may_be_lost_are_found(address: str) -> None:
    with onefold.open(option(address, options="-csynchronous_commit%3Doff")) as store:
        found = [(f.found, f.expected) for f in store.verify().findings]

    assert found == [("the server has synchronous_commit = off", "synchronous_commit = on")]


def test_a_backup_names_the_servers_own_means(store: Store) -> None:
    with pytest.raises(StoreError, match=r"pg_dump --schema=.*onefold export"):
        store.backup("copy.db")


def in_the_file(address: str, text: str) -> bool:
    """Whether the file of the records holds it, wherever in it."""
    with administration(address) as admin:
        admin.execute("checkpoint")
        file = admin.execute(
            "select pg_read_binary_file(pg_relation_filepath(%s::regclass))", (f'"{parse(address).schema}".records',)
        ).fetchone()
        return file is not None and text.encode() in file[0]


def test_what_was_erased_is_in_the_servers_files_until_a_purge_and_nobody_says_otherwise(
    store: Store, address: str, session: Session
) -> None:
    session.append([{"role": "user", "content": "swordfish"}, SAID])

    assert session.erase(2).wiped is False
    assert in_the_file(address, "swordfish")
    assert store.purge()
    assert not in_the_file(address, "swordfish")
    assert contents(session) == ["once"]


def test_a_purge_says_so_when_somebody_may_still_see_what_was_erased(
    store: Store, address: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.storage.postgres.backend.SCRUB_PATIENCE", 0.2)
    session.append([{"role": "user", "content": "swordfish"}, SAID])
    with administration(address) as reader:
        reader.execute("begin isolation level repeatable read; select 1")
        session.erase(2)

        assert not store.purge()
    assert store.purge()
    assert not in_the_file(address, "swordfish")


def test_a_forked_child_uses_connections_of_its_own(store: Store, session: Session) -> None:
    session.append({"role": "user", "content": "parent"})
    mine = connection_of(store)
    child = os.fork()
    if child == 0:
        try:
            session.append({"role": "user", "content": "child"})
            os._exit(int(connection_of(store) == mine))
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.append({"role": "user", "content": "parent again"})

    assert connection_of(store) == mine
    assert contents(session) == ["parent", "child", "parent again"]


def connection_of(store: Store) -> Any:
    with backend_of(store)._link() as link:
        return link.ask(b"select pg_backend_pid()")
