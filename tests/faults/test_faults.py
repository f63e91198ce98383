"""When the disk fails, the answer is lost, or a neighbour is bad: everybody learns what became of their own write.

Item 16 of the core's promises, and group commit's share of it. The trap in the background: a log write whose sync
failed can still stand after recovery, so "nothing was written" has to be made true before it is said.
"""

from __future__ import annotations

import itertools
import linecache
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

from onefold import KeyConflict, OutcomeUnknown, Session, Store, StoreUnavailable
from onefold.model import AppendResult, Claim, Record
from onefold.storage.base import Transaction
from onefold.storage.sqlite import group_commit as line_module
from onefold.storage.sqlite.backend import CHECKPOINT_PAGES
from onefold.storage.sqlite.group_commit import LARGE, MOST, CommitQueue, PendingWrite
from tests.support.fault_injection import Announced, BadDisk, HeldLine, LostAnswers, Told, backend_of, open_store
from tests.support.helpers import Child
from verification.operations import ME, rows, talk

HERE = "tests.support.crash_children"


def _said(session: Session) -> list[str]:
    return [r.body["content"] for r in session.read() if r.kind == "message"]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _after_power_cut(path: Path, folder: Path) -> list[str]:
    """What another machine would find on this disk now: the file and its log, recovered without shared memory."""
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        if not file.name.endswith(("-shm", "-gate")):
            shutil.copy(file, folder / file.name)
    with open_store(folder / path.name) as store:
        assert store.verify().healthy
        return _said(store.session("a"))


@pytest.fixture
def disk() -> Iterator[BadDisk]:
    with BadDisk() as bad:
        yield bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def held_disk(path: Path, disk: BadDisk) -> Iterator[Store]:
    """A store with a session on a disk that can be made to fail."""
    with open_store(path, disk.connect) as store:
        store.session("a").append(_user("before"))
        yield store
        disk.failing_syncs, disk.room = 0, None


# ---------------------------------------------------------------------- syncs that fail


def test_a_sync_that_fails_is_never_called_nothing_written_when_it_was(
    held_disk: Store, disk: BadDisk, path: Path, tmp_path: Path
) -> None:
    """Item 16: the true outcome. What the log may still hold of it is overwritten before anybody is told."""
    session = held_disk.session("a")
    disk.failing_syncs = 1

    answer = _outcome(lambda: session.append(_user("doubtful"), key="k"))

    there = _said(session)
    assert _after_power_cut(path, tmp_path / "other") == there
    if isinstance(answer, StoreUnavailable):
        assert there == ["before"]
        assert "nothing was written" in str(answer)
    else:
        assert isinstance(answer, AppendResult)
        assert there == ["before", "doubtful"]


def test_f09_after_a_failed_sync_the_same_key_writes_once(held_disk: Store, disk: BadDisk) -> None:
    """Item 16, F09: a commit that failed is repeated, and no row stands twice."""
    session = held_disk.session("a")
    disk.failing_syncs = 1
    _outcome(lambda: session.append(talk(3), key="k"))

    first = session.append(talk(3), key="k")
    second = session.append(talk(3), key="k")

    assert second.duplicate
    assert second.numbers == first.numbers
    assert len(_said(session)) == 4


def test_a_disk_that_stays_broken_gives_outcome_unknown_with_the_remedy(held_disk: Store, disk: BadDisk) -> None:
    """Item 16: what cannot be read back is not guessed at."""
    session = held_disk.session("a")
    disk.failing_syncs = 1000

    with pytest.raises(OutcomeUnknown, match=r"store\.db.*same key"):
        session.append(_user("who knows"), key="k")

    disk.failing_syncs = 0
    repeated = session.append(_user("who knows"), key="k")
    assert _said(session) == ["before", "who knows"]
    assert session.append(_user("who knows"), key="k").numbers == repeated.numbers


def test_a_failed_sync_during_a_compaction_s_commit_is_retried_by_its_claim(held_disk: Store, disk: BadDisk) -> None:
    """Item 16, F09: a repeated commit of the same claim gives its segment, whatever the first try came to."""
    session, journal = held_disk.session("a"), held_disk.journal
    session.append(talk(5))
    journal.request("a")
    claim = journal.claim("a", ME)
    assert isinstance(claim, Claim)
    disk.failing_syncs = 1

    _outcome(lambda: journal.commit(claim, "what was said", cut=4))
    segment = journal.commit(claim, "what was said", cut=4)

    assert session.head == segment.number
    assert [s.number for s in session.segments()] == [1, segment.number]
    assert held_disk.verify().healthy


# ---------------------------------------------------------------------- answers that get lost


def test_f10_a_commit_whose_answer_is_lost_is_found_again(path: Path) -> None:
    """Item 16, F10: it was written, so the caller is told so; the connection that failed is not used again."""
    faults = LostAnswers()
    with open_store(path, faults.connect) as store:
        session = store.session("a")
        faults.often = 1

        answer = session.append(talk(2), key="k")
        again = session.append(talk(2), key="k")
        session.append(_user("more"))

        assert faults.often == 0
        assert answer.numbers == (2, 3)
        assert not answer.duplicate
        assert again.duplicate
        assert len(_said(session)) == 3
        assert faults.used_again == []


def test_f10_a_lost_answer_that_cannot_be_read_back_is_unknown_and_the_key_tells(path: Path) -> None:
    """Item 16, F10: written, but nobody could know; the repetition with its key finds it."""
    faults = LostAnswers()
    with open_store(path, faults.connect) as store:
        session = store.session("a")
        faults.often, faults.refuse_new = 1, True

        with pytest.raises(OutcomeUnknown, match="same key"):
            session.append(talk(2), key="k")
        faults.refuse_new = False
        again = session.append(talk(2), key="k")

        assert again.duplicate
        assert again.numbers == (2, 3)
        assert faults.used_again == []


def test_every_thread_of_a_batch_whose_answer_is_lost_gets_its_own(path: Path) -> None:
    """Item 16: those that were written get their numbers, the refused one its reason, nobody a neighbour's."""
    faults = LostAnswers()
    with open_store(path, faults.connect) as store:
        session = store.session("a")
        session.append(_user("old"), key="used")
        with HeldLine(backend_of(store)) as line:
            line.behind("conflict", lambda: session.append(_user("other"), key="used"))
            line.behind("one", lambda: session.append(_user("one")))
            line.behind("duplicate", lambda: session.append(_user("old"), key="used"))
            line.behind("two", lambda: session.append(talk(2)))
            faults.often = 1

        assert faults.often == 0
        assert line.answers["one"].numbers == (3,)
        assert line.answers["two"].numbers == (4, 5)
        assert isinstance(line.answers["conflict"], KeyConflict)
        duplicate = line.answers["duplicate"]
        assert isinstance(duplicate, OutcomeUnknown) or duplicate.numbers == (2,)
        assert _said(session)[:2] == ["old", "one"]
        assert session.state.last == 5
        session.append(_user("the line goes on"))


def test_every_thread_of_a_batch_whose_sync_failed_gets_a_true_answer(held_disk: Store, disk: BadDisk) -> None:
    """Item 16: whatever it is, it agrees with the journal."""
    session = held_disk.session("a")
    with HeldLine(backend_of(held_disk)) as line:
        for name in ("one", "two", "three"):
            line.behind(name, lambda name=name: session.append(_user(name), key=name))  # type: ignore[misc]
        disk.failing_syncs = 1

    there = _said(session)
    for name in ("one", "two", "three"):
        written = isinstance(line.answers[name], AppendResult)
        assert written == (name in there)
        assert written or isinstance(line.answers[name], StoreUnavailable)
    session.append(_user("the line goes on"))


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (StoreUnavailable, OutcomeUnknown) as error:
        return error


# ---------------------------------------------------------------------- neighbours in one commit


def test_one_bad_append_never_fails_its_neighbours(path: Path) -> None:
    """A key conflict, a row that is there already, and a closure that raises: each alone is refused."""
    with open_store(path) as store:
        session, backend = store.session("a"), backend_of(store)
        session.append(_user("old"), key="used")

        def collides(tx: Transaction) -> None:
            tx.add("a", Record(3, "x", "message", 0.0, {}), "{}")
            tx.add("a", Record(1, "x", "message", 0.0, {}), "{}")

        def gives_up(tx: Transaction) -> None:
            tx.add("a", Record(4, "y", "message", 0.0, {}), "{}")
            raise ZeroDivisionError("a bug of its own")

        with HeldLine(backend) as line:
            line.behind("collides", lambda: backend.write("a", collides))
            line.behind("one", lambda: session.append(_user("one")))
            line.behind("gives up", lambda: backend.write("a", gives_up))
            line.behind("two", lambda: session.append(_user("two")))
            line.behind("conflict", lambda: session.append(_user("other"), key="used"))

        assert line.answers["one"] == AppendResult((3,))
        assert line.answers["two"] == AppendResult((4,))
        assert isinstance(line.answers["collides"], StoreUnavailable)
        assert "nothing was written" in str(line.answers["collides"])
        assert isinstance(line.answers["gives up"], ZeroDivisionError)
        assert isinstance(line.answers["conflict"], KeyConflict)
        assert _said(session) == ["old", "one", "two"]
        assert store.verify().healthy


def test_the_same_key_with_other_content_is_a_conflict_and_writes_nothing(path: Path) -> None:
    """Item 16, F10."""
    with open_store(path) as store:
        session = store.session("a")
        session.append(talk(2), key="k")
        before = rows(path)

        for other in (talk(1), talk(3), [*reversed(talk(2))], {"content": "x"}):
            with pytest.raises(KeyConflict, match=r"'a'.*'k'.*nothing was written"):
                session.append(other, key="k")

        assert rows(path) == before


def _limit_pages(store: Store, more: int) -> None:
    writer = backend_of(store)._writer
    assert writer is not None
    count = int(str(writer.pragma("page_count")))
    writer.pragma("max_page_count", count + more)


def test_a_full_disk_in_the_middle_of_a_batch_fails_only_what_does_not_fit(path: Path) -> None:
    """The whole transaction is taken back by SQLite then, and every other one is run again."""
    with open_store(path) as store:
        session = store.session("a")
        session.append(_user("before"))
        _limit_pages(store, 20)
        with HeldLine(backend_of(store)) as line:
            line.behind("one", lambda: session.append(_user("one")))
            line.behind("big", lambda: session.append(_user("x" * 900_000)))
            line.behind("two", lambda: session.append(_user("two")))

        assert isinstance(line.answers["one"], AppendResult)
        assert isinstance(line.answers["two"], AppendResult)
        assert isinstance(line.answers["big"], StoreUnavailable)
        assert "full" in str(line.answers["big"])
        assert _said(session) == ["before", "one", "two"]
        assert store.verify().healthy


def test_a_disk_that_is_full_at_commit_fails_only_what_does_not_fit(held_disk: Store, disk: BadDisk) -> None:
    """The log is written at COMMIT, so that is where most full disks show."""
    session = held_disk.session("a")
    with HeldLine(backend_of(held_disk)) as line:
        line.behind("one", lambda: session.append(_user("one")))
        line.behind("big", lambda: session.append(_user("x" * 900_000)))
        line.behind("two", lambda: session.append(_user("two")))
        disk.room = 500_000

    assert isinstance(line.answers["one"], AppendResult)
    assert isinstance(line.answers["two"], AppendResult)
    assert isinstance(line.answers["big"], StoreUnavailable)
    assert _said(session) == ["before", "one", "two"]
    assert held_disk.verify().healthy


def test_a_full_disk_is_an_error_in_words_and_work_goes_on_once_there_is_room(
    held_disk: Store, disk: BadDisk, path: Path, tmp_path: Path
) -> None:
    session = held_disk.session("a")
    disk.room = 0

    with pytest.raises(StoreUnavailable, match=r"store\.db: the disk is full; nothing was written\. Free some space"):
        session.append(talk(3), key="k")

    assert _said(session) == ["before"]
    assert _after_power_cut(path, tmp_path / "other") == ["before"]
    disk.room = None
    assert not session.append(talk(3), key="k").duplicate
    assert held_disk.verify().healthy


def test_a_store_that_turned_read_only_is_an_error_in_words(path: Path) -> None:
    with open_store(path) as store:
        session, writer = store.session("a"), backend_of(store)._writer
        assert writer is not None
        writer.pragma("query_only", True)

        with pytest.raises(StoreUnavailable, match=r"store\.db: .*read-only; nothing was written\. Make both writable"):
            session.append(_user("no"))

        writer.pragma("query_only", False)
        session.append(_user("yes"))
        assert _said(session) == ["yes"]


def test_a_failed_rollback_of_one_append_does_not_let_half_of_it_into_the_commit(path: Path) -> None:
    """What cannot be taken back alone is taken back with its neighbours, and they are run again."""
    faults = _NoWayBack()
    with open_store(path, faults.connect) as store:
        session, backend = store.session("a"), backend_of(store)

        def gives_up(tx: Transaction) -> None:
            tx.add("a", Record(2, "half", "message", 0.0, {}), "{}")
            raise ZeroDivisionError("a bug of its own")

        with HeldLine(backend) as line:
            line.behind("gives up", lambda: backend.write("a", gives_up))
            line.behind("one", lambda: session.append(_user("one")))
            faults.armed = True

        assert line.answers["one"] == AppendResult((2,))
        assert _said(session) == ["one"]
        assert store.verify().healthy


class _NoWayBack:
    """Connections that cannot go back to a savepoint, once."""

    def __init__(self) -> None:
        self.armed = False

    def connect(self, path: str) -> apsw.Connection:
        made = apsw.Connection(path)
        made.exec_trace = self._trace
        return made

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if self.armed and statement.startswith("rollback to"):
            self.armed = False
            raise apsw.IOError("no way back")
        return True


# ---------------------------------------------------------------------- threads that are interrupted


class _Interrupted:
    """A lock to wait for that is answered by Ctrl-C."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before

    def acquire(self) -> bool:
        self._before()
        raise KeyboardInterrupt

    def locked(self) -> bool:
        return False


def _settle_all(batch: list[PendingWrite]) -> None:
    for ticket in batch:
        ticket.settle(ticket.work(None))  # type: ignore[arg-type]  # these tickets need no transaction


def test_a_leader_that_is_interrupted_leaves_the_others_their_turn() -> None:
    """Ctrl-C in the thread that commits for all: the rest of its batch goes back in line, in order, and is done."""
    done: list[str] = []
    inside, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def run(batch: list[PendingWrite]) -> None:
        runs.append(len(batch))
        if len(runs) == 1:
            inside.set()
            assert go.wait(30)
            _settle_all(batch)
            return
        if len(runs) == 2:
            raise KeyboardInterrupt
        _settle_all(batch)

    line = CommitQueue(run)
    answers, threads = _in_threads(line, done, inside, go, ["leader", "interrupted", "third", "fourth"])

    assert not any(t.is_alive() for t in threads)
    assert isinstance(answers["interrupted"], KeyboardInterrupt)
    assert done == ["leader", "third", "fourth"]
    assert runs == [1, 3, 2]
    assert line.submit(_ticket(lambda _: "next", 0)) == "next"


def _ticket(work: Callable[[Transaction], Any], size: int) -> PendingWrite:
    ticket = PendingWrite()
    ticket.work, ticket.size = work, size
    return ticket


def _in_threads(
    line: CommitQueue, done: list[str], inside: threading.Event, go: threading.Event, names: list[str]
) -> tuple[dict[str, Any], list[threading.Thread]]:
    """The first one is held inside its work; the others stand behind it in order; then all go."""
    line._waiting = tickets = Announced()
    answers: dict[str, Any] = {}

    def submit(name: str) -> None:
        try:
            answers[name] = line.submit(_ticket(lambda _: done.append(name), 0))
        except BaseException as error:
            answers[name] = error

    threads = []
    for name in names:
        thread = threading.Thread(target=submit, args=(name,))
        threads.append(thread)
        thread.start()
        assert inside.wait(30)
        assert name is names[0] or tickets.came.acquire(timeout=30)
    go.set()
    for thread in threads:
        thread.join(30)
    return answers, threads


def test_a_waiting_thread_that_is_interrupted_leaves_the_line() -> None:
    """Ctrl-C while waiting: its write is not done, nobody else's is lost, and the line goes on."""
    done: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def run(batch: list[PendingWrite]) -> None:
        inside.set()
        assert go.wait(30)
        _settle_all(batch)

    line = CommitQueue(run)
    leader = threading.Thread(target=lambda: line.submit(_ticket(lambda _: done.append("leader"), 0)))
    leader.start()
    assert inside.wait(30)
    ticket = _ticket(lambda _: done.append("waiting"), 0)
    ticket.wake = _Interrupted()  # type: ignore[assignment]

    with pytest.raises(KeyboardInterrupt):
        line.submit(ticket)
    go.set()
    leader.join(30)

    assert done == ["leader"]
    assert line.submit(_ticket(lambda _: "next", 0)) == "next"


def test_a_thread_that_is_interrupted_just_as_it_is_handed_the_lead_hands_it_on() -> None:
    """The turn came and Ctrl-C with it: whoever stands behind must not wait for ever."""
    done: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def run(batch: list[PendingWrite]) -> None:
        inside.set()
        assert go.wait(30)
        _settle_all(batch)

    line = CommitQueue(run)
    leader = threading.Thread(target=lambda: line.submit(_ticket(lambda _: done.append("leader"), 0)))
    leader.start()
    assert inside.wait(30)
    ticket = _ticket(lambda _: done.append("waiting"), 0)

    def leader_ends() -> None:
        go.set()
        leader.join(30)

    ticket.wake = _Interrupted(leader_ends)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        line.submit(ticket)

    assert done == ["leader"]
    assert line.submit(_ticket(lambda _: "next", 0)) == "next"


@pytest.mark.parametrize("again", range(11))
def test_an_interrupt_at_any_line_of_the_leader_neither_loses_a_write_nor_stops_the_line(again: int) -> None:
    """Ctrl-C at every line that the leading thread runs in the line's own code, one after another, and once more while
    it leaves the line.

    The one who waits gets done once, whatever the leader was at, and so does the next one to come.
    """
    at, interrupted, most = 0, 1, 0
    while interrupted:
        at += 1
        interrupted, done, after = _interrupted_at(at, again)
        most = max(most, interrupted)
        assert done.count("waiting") == 1, f"interrupted at line {at}"
        assert done.count("leader") <= 1
        assert after == "next"

    assert at > 20
    assert most == (2 if again else 1)


def _interrupted_at(at: int, again: int) -> tuple[int, list[str], Any]:
    done: list[str] = []
    joined = threading.Event()
    waiting: list[threading.Thread] = []
    tickets = Announced()

    def run(batch: list[PendingWrite]) -> None:
        if not waiting and not joined.is_set():
            other = threading.Thread(
                target=lambda: line.submit(_ticket(lambda _: done.append("waiting"), 0)), daemon=True
            )
            waiting.append(other)
            other.start()
            assert tickets.came.acquire(timeout=30)
        _settle_all(batch)

    line = CommitQueue(run)
    line._waiting = tickets
    lines, later = itertools.count(1), itertools.count(1)
    hit: list[int] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != line_module.__file__:
            return None
        # The call that ends a `with` is no place where Python looks for signals, though its line is traced once more.
        source = linecache.getline(line_module.__file__, frame.f_lineno).strip()
        if event in ("call", "line") and not source.startswith("with ") and not hit and next(lines) == at:
            hit.append(frame.f_lineno)
            raise KeyboardInterrupt
        return trace

    def once_more(frame: FrameType, event: str, argument: object) -> None:
        """Where Python really looks for signals: as a function begins, and after a call of one in C."""
        inside = frame.f_code.co_filename == line_module.__file__ and event in ("call", "c_return")
        if inside and len(hit) == 1 and next(later) == again:
            hit.append(frame.f_lineno)
            raise KeyboardInterrupt

    def lead() -> None:
        sys.setprofile(once_more)
        sys.settrace(trace)
        try:
            line.submit(_ticket(lambda _: done.append("leader"), 0))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
            sys.setprofile(None)

    leader = threading.Thread(target=lead, daemon=True)
    leader.start()
    leader.join(30)
    joined.set()
    if not waiting:
        line.submit(_ticket(lambda _: done.append("waiting"), 0))
    after: list[Any] = []
    last = threading.Thread(target=lambda: after.append(line.submit(_ticket(lambda _: "next", 0))), daemon=True)
    for thread in (*waiting, last):
        if thread is last:
            thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"the line stands still after an interrupt at line {hit} of line.py"
    return len(hit), done, after[0]


def test_a_checkpoint_that_is_interrupted_does_not_stop_the_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is on disk by then, and the next one is."""

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with open_store(path) as store:
        session, backend = store.session("a"), backend_of(store)
        monkeypatch.setattr(backend, "_log_pages", CHECKPOINT_PAGES)
        monkeypatch.setattr(backend, "_bound_log", interrupted)

        with pytest.raises(KeyboardInterrupt):
            session.append(_user("written"))
        session.append(_user("next"))

        assert _said(session) == ["written", "next"]


def test_large_work_goes_alone_and_a_batch_has_a_limit() -> None:
    """A big record in a shared commit would delay everybody in it."""
    sizes: list[list[int]] = []
    done: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def run(batch: list[PendingWrite]) -> None:
        sizes.append([t.size for t in batch])
        inside.set()
        assert go.wait(30)
        _settle_all(batch)

    line = CommitQueue(run)
    for size in [1, LARGE, 2, 3, *[4] * MOST]:
        line._waiting.append(_ticket(lambda _: done.append("x"), size))
    go.set()
    while line._waiting:
        line._fill_batch()  # what a leader does, one after another
        line._run(line._batch)
        line._answer_batch()

    assert sizes[0] == [1]
    assert sizes[1] == [LARGE]
    assert len(sizes[2]) == MOST
    assert len(done) == 4 + MOST


def test_ctrl_c_in_the_thread_that_commits_takes_nothing_from_its_neighbours(path: Path) -> None:
    """On a real store: the interrupted operation leaves nothing behind, the others stand."""
    with open_store(path) as store:
        session, backend = store.session("a"), backend_of(store)
        attempts: list[int] = []

        def interrupted(tx: Transaction) -> None:
            attempts.append(1)
            tx.add("a", Record(2, "half", "message", 0.0, {}), "{}")
            raise KeyboardInterrupt

        with HeldLine(backend) as line:
            line.behind("interrupted", lambda: backend.write("a", interrupted))
            line.behind("one", lambda: session.append(_user("one")))
            line.behind("two", lambda: session.append(_user("two")))

        assert isinstance(line.answers["interrupted"], KeyboardInterrupt)
        assert attempts == [1]
        assert line.answers["one"] == AppendResult((2,))
        assert line.answers["two"] == AppendResult((3,))
        assert store.verify().healthy


def test_ctrl_c_right_after_the_commit_answers_those_who_were_committed(path: Path) -> None:
    """It was written, so nobody of the batch writes it again."""
    faults = _InterruptedCommit()
    with open_store(path, faults.connect) as store:
        session, backend = store.session("a"), backend_of(store)
        with HeldLine(backend) as line:
            line.behind("leader", lambda: session.append(_user("one")))
            line.behind("two", lambda: session.append(_user("two")))
            faults.armed = True

        assert isinstance(line.answers["leader"], KeyboardInterrupt)
        assert line.answers["two"] == AppendResult((3,))
        assert _said(session) == ["one", "two"]
        session.append(_user("three"))


class _InterruptedCommit:
    """Connections whose COMMIT succeeds just as Ctrl-C comes, once."""

    def __init__(self) -> None:
        self.armed = False

    def connect(self, path: str) -> apsw.Connection:
        made = _Interruptible(path)
        made.faults = self
        return made


class _Interruptible(Told):
    faults: _InterruptedCommit
    before = 1 << 62

    def begins(self, statements: str) -> None:
        if statements == "begin immediate":
            self.before = self.total_changes()

    def ends(self, statements: str) -> None:
        if statements == "commit" and self.faults.armed and self.total_changes() > self.before:
            self.faults.armed = False
            raise KeyboardInterrupt


def test_a_real_ctrl_c_while_waiting_neither_loses_a_write_nor_stops_the_store(path: Path) -> None:
    """A real SIGINT, in a process of its own, in the middle of many threads that write."""
    with Child("interrupted_writers", module=HERE, path=str(path)) as child:
        done = child.hear("done")
        assert child.end() == 0

    with open_store(path) as store:
        session = store.session("a")
        said = _said(session)
        assert done["interrupted"] > 5
        assert len(said) == len(set(said))
        assert set(done["acknowledged"]) <= set(said)
        assert store.verify().healthy


# ---------------------------------------------------------------------- fork


def test_parent_and_child_of_a_fork_both_write_read_follow_and_compact(path: Path) -> None:
    """Item 16: each has connections of its own; what one acknowledged is there whatever the other closes."""
    with Child("forks", module=HERE, path=str(path)) as child:
        told = child.hear("done")
        assert child.end() == 0

    with open_store(path) as store:
        session = store.session("a")
        said = _said(session)
        assert sorted(told["parent"] + told["child"]) == sorted(said)
        assert told["followed"] == "from the parent"
        assert [c.state for c in session.compactions()] == ["committed"] * 2
        assert store.verify().findings == ()


def test_a_fork_while_other_threads_write_and_follow_leaves_both_sides_whole(path: Path) -> None:
    """Item 16: no lock that another thread held at that moment is held for ever in the child."""
    with Child("forks_under_load", module=HERE, path=str(path)) as child:
        told = child.hear("done")
        assert child.end() == 0

    with open_store(path) as store:
        said = _said(store.session("a"))
        assert sorted(told["acknowledged"]) == sorted(said)
        assert store.verify().findings == ()
