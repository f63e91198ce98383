"""Rows that wait for the index of a store of files: nobody misses what was acknowledged, and nothing is there twice."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest

from onefold import Session, Store, StoreError, StoreUnavailable
from onefold.messages import draft
from onefold.storage.base import Transaction
from onefold.storage.jsonl import Disk, FilesBackend, layout, store_lock
from onefold.storage.jsonl.appender import MOST_NOTED
from onefold.storage.jsonl.deferred_index import MOST_ROWS, QUIET
from onefold.storage.sqlite.backend import connect
from onefold.storage.sqlite.group_commit import PendingWrite
from tests.support.files_children import FailingDisk, everything, open_files, prepare
from verification.kills import dies
from verification.operations import counted_ids, fixed_clock

BURST = QUIET + 4
WAIT = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prepare(tmp_path / "sessions")
    return tmp_path / "sessions"


def said(n: int | str) -> dict[str, str]:
    return {"role": "user", "content": f"said {n}"}


def burst(session: Session, count: int = BURST, who: str = "") -> int:
    """Appends that nobody reads between, so that rows of the last ones wait. The number of the last one."""
    for n in range(count):
        last = session.append(said(f"{who}{n}")).numbers[-1]
    return last


def backend_of(store: Store) -> FilesBackend:
    backend = store.journal.backend
    assert isinstance(backend, FilesBackend)
    return backend


def waiting(store: Store) -> int:
    """How many rows wait in this process."""
    return len(backend_of(store)._lag.rows)


def lagging(store: Store) -> None:
    """As if many appends had come in a row."""
    backend_of(store)._lag.quiet = QUIET


def whole(store: Store, session: str = "a") -> list[int]:
    """The numbers of a session, which has to be sound."""
    assert store.verify().findings == ()
    return [record.number for record in store.session(session).read()]


@contextmanager
def process(act: Callable[[Connection], None]) -> Iterator[Connection]:
    """Another process, which has no store open before it begins."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=act, args=(there,), daemon=True)
    child.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        child.join(WAIT)
        if child.is_alive():
            child.kill()
            child.join()


def heard(pipe: Connection) -> Any:
    assert pipe.poll(WAIT), "the other process says nothing"
    return pipe.recv()


# ---------------------------------------------------------------------- other processes


def test_what_was_acknowledged_is_read_by_another_process_at_once(root: Path) -> None:
    def write(pipe: Connection) -> None:
        with open_files(root, prefix="writer") as store:
            session = store.session("a")
            while pipe.recv() == "go on":
                pipe.send((burst(session), waiting(store)))

    with process(write) as writer, open_files(root) as store:
        session = store.session("a")
        for _ in range(5):
            writer.send("go on")
            last, rows = heard(writer)

            assert session.state.last == last
            assert rows
        writer.send("end")
        assert whole(store) == list(range(1, last + 1))


def test_a_follower_in_another_process_gets_everything_in_order(root: Path) -> None:
    with open_files(root) as store:
        first = store.session("a").state.last

    def follow(pipe: Connection) -> None:
        with open_files(root, prefix="follower") as store:
            pipe.send("ready")
            for record in islice(store.session("a").follow(first, idle=WAIT), 3 * BURST + 2):
                pipe.send(record.body["content"])

    with process(follow) as follower, open_files(root, prefix="writer") as store:
        assert heard(follower) == "ready"
        session = store.session("a")
        for n in range(3):
            burst(session, who=f"{n}-")

            assert [heard(follower) for _ in range(BURST)] == [f"said {n}-{m}" for m in range(BURST)]
        session.append(said("last but one"))
        assert heard(follower) == "said last but one"
        lagging(store)
        session.append(said("last"))
        assert waiting(store)
        assert heard(follower) == "said last"


def test_rows_that_wait_in_a_killed_process_are_made_from_its_files_and_are_there_once(root: Path) -> None:
    with open_files(root, prefix="by") as by:
        bystander = by.session("a")
        before = bystander.state.last

        def write() -> None:
            with open_files(root, prefix="writer") as store:
                assert burst(store.session("a")) == before + BURST
                assert waiting(store)
                os.kill(os.getpid(), signal.SIGKILL)

        assert not dies(write)

        assert bystander.state.last == before + BURST
        assert burst(bystander) == before + 2 * BURST
        assert whole(by) == list(range(1, before + 2 * BURST + 1))
        shown = everything(by)
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert everything(store) == shown


@pytest.mark.parametrize(("count", "rounds"), [(3, 6), (MOST_NOTED + 3, 3)])
def test_rows_of_many_sessions_that_wait_in_a_killed_process_are_all_found(root: Path, count: int, rounds: int) -> None:
    with open_files(root, prefix="by") as by:
        sessions = [by.session(f"s{n}") for n in range(count)]
        for session in sessions:
            session.append(said("first"))

        def write() -> None:
            with open_files(root, prefix="writer") as store:
                own = [store.session(f"s{n}") for n in range(count)]
                for _ in range(rounds):
                    for session in own:
                        session.append(said("next"))
                assert waiting(store) > 1
                os.kill(os.getpid(), signal.SIGKILL)

        assert not dies(write)

        assert [session.state.last for session in sessions] == [2 + rounds] * count
        assert by.verify().findings == ()


def test_processes_that_write_in_turn_find_what_the_other_has_waiting(root: Path) -> None:
    def write(pipe: Connection) -> None:
        with open_files(root, prefix="other") as store:
            session = store.session("a")
            pipe.send("ready")
            while pipe.recv() == "go on":
                pipe.send((burst(session, who="there "), waiting(store)))

    with process(write) as other, open_files(root) as store:
        session = store.session("a")
        assert heard(other) == "ready"
        for _ in range(4):
            here = burst(session, who="here ")
            assert waiting(store)
            other.send("go on")
            there, rows = heard(other)
            assert (there, rows > 0) == (here + BURST, True)
        other.send("end")

        assert session.append(said("last")).numbers == (there + 1,)
        assert not backend_of(store)._lag.byte[0], "whoever reads now takes no lock"
        assert whole(store) == list(range(1, there + 2))


def test_processes_that_write_and_read_at_once_lose_nothing_and_have_nothing_twice(root: Path) -> None:
    with open_files(root) as store:
        before = store.session("a").state.last

    def write(pipe: Connection) -> None:
        with open_files(root, prefix=f"p{os.getpid()}") as store:
            session = store.session("a")
            for n in range(120):
                number = session.append(said(n)).numbers[-1]
                if n % 15 == 14:
                    assert session.state.last >= number
            pipe.send("done")

    with process(write) as one, process(write) as two, open_files(root) as store:
        assert (heard(one), heard(two)) == ("done", "done")
        assert whole(store) == list(range(1, before + 241))


def test_a_store_that_is_opened_while_rows_wait_elsewhere_has_them(root: Path) -> None:
    with open_files(root, prefix="one") as one:
        last = burst(one.session("a"))
        assert waiting(one)

        with open_files(root, prefix="two") as two:
            assert two.session("a").state.last == last
            assert two.session("a").append(said("next")).numbers == (last + 1,)

        assert burst(one.session("a")) == last + 1 + BURST
        assert whole(one) == list(range(1, last + BURST + 2))


def test_a_store_that_closes_does_not_write_what_another_has_caught_up_with(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_files(root, prefix="two") as two:
        with caplog.at_level(logging.WARNING), open_files(root, prefix="one") as one:
            last = burst(one.session("a"))
            assert two.session("a").state.last == last
            assert waiting(one)

        assert not caplog.records
        assert whole(two) == list(range(1, last + 1))


def test_a_store_that_is_closed_has_none_of_its_files_mapped(root: Path) -> None:
    with open_files(root) as store:
        burst(store.session("a"))
        assert f"{root}/{layout.OWN}/{layout.LAG}" in Path("/proc/self/maps").read_text()

    assert str(root) not in Path("/proc/self/maps").read_text()


# ---------------------------------------------------------------------- the same process


def test_rows_wait_only_while_nobody_reads(root: Path) -> None:
    with open_files(root) as store:
        session = store.session("a")
        last = burst(session)
        assert waiting(store)

        assert session.state.last == last
        assert not waiting(store)
        for n in range(QUIET - 1):
            session.append(said(n))
            assert session.state.last == last + n + 1
            assert not waiting(store)


def test_no_more_than_so_many_rows_wait(root: Path) -> None:
    with open_files(root) as store:
        sessions = [store.session(f"s{n}") for n in range(4)]
        most = 0
        for n in range(2 * MOST_ROWS):
            sessions[n % 4].append(said(n))
            most = max(most, waiting(store))

        assert most == MOST_ROWS
        whole(store)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "not closed"])
def test_a_store_that_ends_with_rows_waiting_has_them_when_it_is_opened_again(root: Path, close: bool) -> None:
    with open_files(root) as store:
        last = store.session("a").state.last

    def write() -> None:
        store = open_files(root, prefix="writer")
        burst(store.session("a"))
        assert waiting(store)
        if close:
            store.close()

    dies(write)
    index = connect(str(root / layout.OWN / layout.INDEX))
    ((rows,),) = index.execute("select count(*) from records where number > ?", (last,)).fetchall()
    index.close()
    assert (rows == BURST) is close

    with open_files(root) as store:
        assert whole(store) == list(range(1, last + BURST + 1))


def test_everything_else_sees_an_index_without_a_gap(root: Path) -> None:
    acts: list[Callable[[Store, Session, int], Any]] = [
        lambda store, session, last: session.append([said(1), said(2)], key="two"),
        lambda store, session, last: session.pin(last),
        lambda store, session, last: session.compact(lambda m: "a summary"),
        lambda store, session, last: session.fork(id="f"),
        lambda store, session, last: session.erase(last),
        lambda store, session, last: store.verify(fix=True),
        lambda store, session, last: store.delete("f"),
        lambda store, session, last: session.append(said("next")),
    ]
    with open_files(root) as store:
        session = store.session("a")
        for act in acts:
            last = burst(session)
            assert waiting(store)
            act(store, session, last)
            numbers = whole(store)
            assert numbers == list(range(1, len(numbers) + 1))
        shown = everything(store)
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert everything(store) == shown


def test_a_backup_has_what_was_acknowledged_before_it(root: Path, tmp_path: Path) -> None:
    with open_files(root) as store:
        last = burst(store.session("a"))
        assert waiting(store)
        backend_of(store).backup(str(tmp_path / "copy"), "another", None)

    with open_files(tmp_path / "copy") as copy:
        assert whole(copy) == list(range(1, last + 1))


def test_a_forked_child_has_what_waits_in_its_parent_and_both_go_on(root: Path) -> None:
    with open_files(root) as store:
        session = store.session("a")
        last = burst(session)
        assert waiting(store)

        def child(pipe: Connection) -> None:
            pipe.send(session.state.last)
            pipe.send(burst(session))

        with process(child) as other:
            assert heard(other) == last
            assert heard(other) == last + BURST

        assert session.append(said("parent")).numbers == (last + BURST + 1,)
        assert whole(store) == list(range(1, last + BURST + 2))


def test_threads_that_append_and_read_see_what_they_were_told(root: Path) -> None:
    failed: list[BaseException] = []
    with open_files(root) as store:
        before = store.session("a").state.last

        def work(who: int) -> None:
            try:
                session = store.session("a")
                for n in range(60):
                    number = session.append(said(f"{who}-{n}")).numbers[-1]
                    if n % 20 == who:
                        assert session.state.last >= number
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)

        assert not failed, failed
        assert whole(store) == list(range(1, before + 241))


def test_a_reader_is_not_kept_waiting_by_a_thread_that_writes_all_the_time(root: Path) -> None:
    stop = threading.Event()
    with open_files(root) as store:
        session = store.session("a")

        def write() -> None:
            while not stop.is_set():
                session.append(said("more"))

        thread = threading.Thread(target=write)
        thread.start()
        seen = [session.state.last for _ in range(50)]
        stop.set()
        thread.join(WAIT)

        assert seen == sorted(seen)
        whole(store)


# ---------------------------------------------------------------------- what fails


class FullIndex:
    """Connections to an index that takes no more rows while it is full."""

    def __init__(self) -> None:
        self.full = False
        self.once = False
        self.raises: type[BaseException] = apsw.FullError

    def connect(self, path: str) -> apsw.Connection:
        connection = connect(path)
        connection.exec_trace = self._trace
        return connection

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if self.full and statement.startswith("insert into records"):
            self.full = not self.once
            raise self.raises("the index is full")
        return True

    def open(self, root: Path, disk: Disk | None = None) -> Store:
        ids = counted_ids("new")
        return Store(FilesBackend(root, clock=fixed_clock, ids=ids, connect=self.connect, disk=disk), ids=ids)


def test_rows_that_the_index_does_not_take_are_told_of_and_not_lost(root: Path) -> None:
    index = FullIndex()
    with index.open(root) as store:
        session = store.session("a")
        last = burst(session)
        index.full = True

        with pytest.raises(StoreUnavailable, match="disk is full; nothing was read"):
            _ = session.state
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            session.append(said("refused"))

        index.full = False
        assert session.state.last == last
        assert session.append(said("taken")).numbers == (last + 1,)
        assert whole(store) == list(range(1, last + 2))


def test_a_line_on_disk_stands_even_if_the_index_does_not_take_its_row(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = FullIndex()
    with index.open(root) as store, open_files(root, prefix="other") as other:
        session = store.session("a")
        session.append(said("first"))
        last = session.state.last
        index.full = True
        with caplog.at_level(logging.WARNING):
            assert session.append(said("on disk")).numbers == (last + 1,)
        index.full = False

        assert "its index is behind" in caplog.text
        assert other.session("a").state.last == last + 1
        assert session.append(said("next")).numbers == (last + 2,)
        assert whole(store) == list(range(1, last + 3))


def test_an_interrupt_while_rows_are_put_into_the_index_loses_none_and_doubles_none(root: Path) -> None:
    index = FullIndex()
    index.raises = KeyboardInterrupt
    with index.open(root) as store:
        session = store.session("a")
        session.append(said("first"))
        before = session.state.last
        index.full = True
        with pytest.raises(KeyboardInterrupt):
            session.append(said("on disk, and interrupted"))
        index.full = False
        last = burst(session)
        index.full = True
        with pytest.raises(KeyboardInterrupt):
            _ = session.state
        index.full = False

        assert last == before + 1 + BURST
        assert whole(store) == list(range(1, last + 1))


class _Interrupted(list[Any]):
    def append(self, row: Any) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_after_a_line_is_on_disk_and_before_its_row_waits_loses_nothing(root: Path) -> None:
    with open_files(root) as store, open_files(root, prefix="other") as other:
        session = store.session("a")
        session.append(said("first"))
        last = session.state.last
        lagging(store)
        lag = backend_of(store)._lag
        lag.rows = _Interrupted(lag.rows)

        with pytest.raises(KeyboardInterrupt):
            session.append(said("on disk"))

        lag.rows = []
        assert other.session("a").state.last == last + 1
        assert session.append(said("next")).numbers == (last + 2,)
        assert whole(store) == list(range(1, last + 3))


def test_a_close_that_cannot_level_the_index_says_so_and_closes(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = FullIndex()
    with caplog.at_level(logging.WARNING), index.open(root) as store:
        last = burst(store.session("a"))
        index.full = True

    assert "its index is behind" in caplog.text
    with open_files(root) as store:
        assert whole(store) == list(range(1, last + 1))


@pytest.mark.parametrize("call", ["write", "fdatasync"])
@pytest.mark.parametrize("error", [errno.EIO, None], ids=["fails", "interrupted"])
def test_what_waits_is_seen_by_others_after_a_later_append_was_refused(
    root: Path, call: str, error: int | None
) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store, open_files(root, prefix="other") as other:
        session = store.session("a")
        last = burst(session)
        assert waiting(store)
        if error is None:
            disk.raises = KeyboardInterrupt
        else:
            disk.error = error
        disk.failing = {call: 1}

        with pytest.raises((StoreUnavailable, KeyboardInterrupt)):
            session.append(said("refused"))

        assert other.session("a").state.last == last
        assert session.append(said("next")).numbers == (last + 1,)
        assert whole(store) == list(range(1, last + 2))


class _Turning(FailingDisk):
    """A disk with an index that takes one row less, after a number of syncs."""

    def __init__(self, index: FullIndex) -> None:
        super().__init__()
        self._index = index
        self.syncs = 0

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.syncs -= 1
        self._index.full = self._index.once = self.syncs == 0


def test_a_row_that_was_not_taken_is_looked_for_even_if_others_of_its_batch_are_written_after_it(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = FullIndex()
    disk = _Turning(index)
    with index.open(root, disk) as store, open_files(root, prefix="other") as other:
        backend = backend_of(store)
        for session in ("a", "b"):
            store.session(session).append(said("first"))
        before = [store.session(session).state.last for session in ("a", "b")]
        tickets = [PendingWrite() for _ in range(3)]
        for ticket, session in zip(tickets, ("a", "a", "b"), strict=True):
            ticket.work = partial(_say, store, session)
        disk.failing = {"fdatasync": 1}  # so that they are written one after the other
        disk.syncs = 3  # the first one takes that back, and the third one is of a line whose row could wait

        backend._run_batch(tickets)

        assert [ticket.error for ticket in tickets] == [None] * 3
        assert "its index is behind" in caplog.text
        assert [other.session(session).state.last for session in ("a", "b")] == [before[0] + 2, before[1] + 1]
        whole(store)


def _say(store: Store, session: str, tx: Transaction) -> None:
    state = tx.session(session)
    assert state is not None
    tx.put_session(store.journal.add(tx, state, draft(said("together"), counted_ids(session))))


# ---------------------------------------------------------------------- the lock


def _hold(root: Path, pipe: Connection) -> None:
    """Holds the lock of a store until it is told to let go."""
    with open_files(root, prefix="holder") as store:
        backend = backend_of(store)
        backend._lock.enter()
        pipe.send("holding")
        pipe.recv()
        backend._lock.leave()
        pipe.send("left")
        pipe.recv()


def test_a_lock_that_is_held_too_long_is_told_of_and_what_comes_too_late_is_given_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(lambda pipe: _hold(root, pipe)) as holder, open_files(root) as store:
        session = store.session("a")
        last = session.state.last
        assert heard(holder) == "holding"
        monkeypatch.setattr(store_lock, "PATIENCE", 0.05)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"another process has held the write lock.*nothing was written"):
                session.append(said("too long"))
            backend_of(store)._lag.byte[0] = 1  # as if rows waited: who reads brings the index up to date first
            with pytest.raises(StoreUnavailable, match=r"another process has held the write lock.*nothing was read"):
                session.context()
        monkeypatch.setattr(store_lock, "PATIENCE", WAIT)
        holder.send("let go")

        assert session.append(said("in turn")).numbers == (last + 1,)
        assert heard(holder) == "left"
        with open_files(root, prefix="third") as third:
            assert third.session("a").append(said("third")).numbers == (last + 2,)
        holder.send("end")


def test_a_wait_for_the_lock_can_be_interrupted_and_leaves_no_lock_behind(root: Path) -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with process(lambda pipe: _hold(root, pipe)) as holder, open_files(root) as store:
        session = store.session("a")
        last = session.state.last
        assert heard(holder) == "holding"
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            with pytest.raises(KeyboardInterrupt):
                session.append(said("interrupted"))
        finally:
            signal.signal(signal.SIGALRM, before)
        holder.send("let go")
        assert heard(holder) == "left"

        with open_files(root, prefix="third") as third:
            assert third.session("a").append(said("third")).numbers == (last + 1,)
        assert session.append(said("again")).numbers == (last + 2,)
        holder.send("end")


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EIO, "the disk failed .* nothing was"), (errno.ENOLCK, "that has locks")]
)
def test_a_lock_that_cannot_be_taken_is_told_of_with_its_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(fd: int, *, blocking: bool) -> bool:
        raise OSError(number, os.strerror(number))

    with open_files(root) as store:
        session = store.session("a")
        last = session.state.last
        with monkeypatch.context() as patched:
            patched.setattr(store_lock, "lock_descriptor", refuse)
            for use, done in ((lambda: session.append(said("refused")), "written"), (session.context, "read")):
                with pytest.raises(StoreError, match=words) as told:
                    use()
                assert ("written" in str(told.value)) is (done == "written" and number == errno.EIO)
                backend_of(store)._lag.byte[0] = 1  # as if rows waited: who reads brings the index up to date first

        assert session.append(said("taken")).numbers == (last + 1,)


def test_no_thread_is_left_of_a_store_that_waited_and_was_closed(root: Path) -> None:
    with process(lambda pipe: _hold(root, pipe)) as holder:
        store = open_files(root)
        session = store.session("a")
        assert heard(holder) == "holding"
        holder.send("let go")
        backend = backend_of(store)
        assert backend._lock._queue.wait(WAIT)  # as if the lock were not free when it was asked for
        backend._lock.leave()
        waiter = backend._lock._queue._waiter
        assert waiter is not None
        assert session.append(said("after it")).numbers
        assert waiter.is_alive()
        store.close()

        waiter.join(WAIT)
        assert not waiter.is_alive()
        holder.send("end")
