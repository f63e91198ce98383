"""Raw frames: numbers without gaps, durable when told so, compressed, read in bounds, forgotten in order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw
import pytest

from onefold.acp import frame_log as module
from onefold.acp import frame_pages
from onefold.acp.frame_log import ErasureFirst, FrameLog, RoomRow
from onefold.acp.frame_pages import LoggedFrame, NewFrame
from onefold.errors import OutcomeUnknown, SessionNotFound, StoreDamaged, StoreError, StoreTooNew, StoreUnavailable
from onefold.jsonrpc import notification, text
from tests.support.helpers import PATIENCE, ROOT, Child, hear, say

HERE = "tests.agents.test_frame_log"


class StoppedClock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db.frames")


@pytest.fixture
def frames(path: str) -> Iterator[FrameLog]:
    opened = FrameLog(path, clock=StoppedClock())
    yield opened
    opened.close()


def kept(*texts: str, record: int = 0) -> list[NewFrame]:
    return [NewFrame("in", t, record) for t in texts]


def done(future: Future[int]) -> int:
    return future.result(PATIENCE)


def all_of(frames: FrameLog, room: str, page: int = 500) -> list[LoggedFrame]:
    found: list[LoggedFrame] = []
    while rows := frames.read(room, found[-1].number if found else 0, page):
        found += rows
    return found


def chunk(n: int) -> str:
    """A frame as agents send them most."""
    update = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": f"msg_{n // 200:08x}",
        "content": {"type": "text", "text": f"word{n} "},
    }
    session = "0b9f8f0e-1c1b-4a3e-9a55-6c2e6c1f7a10"
    return text(notification("session/update", {"sessionId": session, "update": update}))


# ---------------------------------------------------------------------- keeping and reading


def test_frames_come_back_as_they_were_kept_with_numbers_from_one_on(frames: FrameLog) -> None:
    rows = [
        NewFrame("in", '{"a":1}', 3),
        NewFrame("out", "{}", 3),
        NewFrame("err", "a line", 4),
        NewFrame("note", "", 5),
    ]

    assert done(frames.append("s", rows[:1])) == 1
    assert done(frames.append("s", rows[1:])) == 4

    assert frames.read("s", 0, 100) == [LoggedFrame(n, *row, 1000.0) for n, row in enumerate(rows, 1)]
    assert frames.read("s", 2, 1) == [LoggedFrame(3, "err", "a line", 4, 1000.0)]
    assert frames.read("s", 4, 100) == []
    assert frames.read("s", -7, 2) == frames.read("s", 0, 2)
    assert frames.read("s", 1 << 70, 100) == []
    assert frames.read("s", 0, 0) == []
    assert (frames.first("s"), frames.last("s"), frames.forgotten("s")) == (1, 4, 0)


def test_a_room_that_nobody_knows_has_nothing(frames: FrameLog) -> None:
    assert frames.read("none", 0, 10) == []
    assert (frames.first("none"), frames.last("none"), frames.forgotten("none")) == (0, 0, 0)
    assert done(frames.append("none", [])) == 0


def test_rooms_are_numbered_apart_and_read_apart(frames: FrameLog) -> None:
    for n in range(1, 4):
        for room in ("a", "b", "c"):
            assert done(frames.append(room, kept(f"{room}{n}"))) == n

    assert [row.text for row in all_of(frames, "b", page=2)] == ["b1", "b2", "b3"]
    assert frames.read("a", 3, 10) == []


@pytest.mark.parametrize("said", ["a\x00b", "\ud800 alone", "é\u2028\U0001f5dc", "line\nbreak\r\n", "", " " * 5000])
def test_any_text_comes_back_equal(frames: FrameLog, said: str) -> None:
    done(frames.append("s", kept(said, "between", said)))

    assert [row.text for row in all_of(frames, "s")] == [said, "between", said]


def test_a_frame_of_sixty_megabytes_is_kept_and_does_not_hide_its_neighbours(frames: FrameLog) -> None:
    big = '{"text":"' + "".join(f"word{n} " for n in range(6000)) * 1300 + '"}'
    assert len(big) > 60_000_000

    assert done(frames.append("s", kept("before", big, "after"))) == 3

    assert [len(row.text) for row in frames.read("s", 0, 10)] == [6]
    assert frames.read("s", 1, 10)[0].text == big
    assert [row.text for row in all_of(frames, "s")] == ["before", big, "after"]


def test_a_read_is_bounded_in_frames_and_in_bytes(frames: FrameLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 10_000)
    done(frames.append("s", kept(*("x" * 3000 for _ in range(20)))))

    assert len(frames.read("s", 0, 2)) == 2
    assert [row.number for row in frames.read("s", 0, 100)] == [1, 2, 3]
    assert [row.number for row in frames.read("s", 5, 100)] == [6, 7, 8]
    assert [row.number for row in all_of(frames, "s")] == list(range(1, 21))


def test_a_large_frame_behind_others_is_not_unpacked_before_it_is_its_turn(
    frames: FrameLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 10_000)
    done(frames.append("s", kept("small")))
    done(frames.append("s", kept("x" * 50_000)))
    unpacked = []
    unpack = frame_pages.unpacked

    def counted(coding: int, body: bytes) -> Iterator[NewFrame]:
        unpacked.append(coding)
        return unpack(coding, body)

    monkeypatch.setattr(module, "unpacked", counted)

    assert [row.number for row in frames.read("s", 0, 10)] == [1]
    assert unpacked == [0]


def test_pages_end_where_they_are_full_and_any_number_can_be_read_from(
    frames: FrameLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_pages, "PAGE_BYTES", 50)
    texts = [f"frame {n}" for n in range(1, 101)]
    for start in range(0, 100, 25):
        done(frames.append("s", kept(*texts[start : start + 25])))

    for after in range(100):
        assert frames.read("s", after, 3)[0] == LoggedFrame(after + 1, "in", texts[after], 0, 1000.0)


def test_what_streams_in_is_compressed_and_a_tiny_frame_is_left_as_it_is(frames: FrameLog, path: str) -> None:
    texts = [chunk(n) for n in range(3000)]
    for start in range(0, 3000, 20):  # what comes within some 50 ms
        frames.append("s", kept(*texts[start : start + 20]))
    done(frames.append("tiny", kept("{}")))

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as look:
        stored = look.execute("select sum(length(body)), count(*) from pages where coding = 1").fetchone()
        plain = look.execute("select coding, length(body) from pages order by place desc limit 1").fetchone()
    look.close()

    assert stored[1] == 150
    assert sum(map(len, texts)) / stored[0] > 5
    assert plain[0] == 0
    assert plain[1] < 30
    assert [row.text for row in all_of(frames, "s")] == texts


# ---------------------------------------------------------------------- writers


def test_many_threads_and_rooms_get_numbers_without_gaps_in_the_order_of_each_thread(frames: FrameLog) -> None:
    start = threading.Barrier(8)
    numbers: dict[int, list[int]] = {}

    def write(thread: int) -> None:
        start.wait(PATIENCE)
        futures = [frames.append(f"room{n % 3}", kept(f"{thread}:{n}", "more")) for n in range(150)]
        numbers[thread] = [done(future) for future in futures]

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    for room in range(3):
        rows = all_of(frames, f"room{room}")
        assert [row.number for row in rows] == list(range(1, 801))
        for name, given in numbers.items():
            own = [row for row in rows if row.text.startswith(f"{name}:")]
            assert [row.text for row in own] == [f"{name}:{n}" for n in range(150) if n % 3 == room]
            assert [row.number + 1 for row in own] == given[room::3]


def keep_busy(frames: FrameLog) -> threading.Event:
    """The thread that writes is at work until the event is set, so that the rest waits together."""
    hold, held = threading.Event(), threading.Event()

    def wait(_: apsw.Connection) -> None:
        held.set()
        hold.wait(PATIENCE)

    frames._submit(wait)
    assert held.wait(PATIENCE)
    return hold


def test_what_waits_together_is_committed_together_and_what_is_large_alone(
    frames: FrameLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    commit = FrameLog._commit

    def counted(self: FrameLog, batch: list[module._LogJob]) -> None:
        sizes.append(len(batch))
        commit(self, batch)

    hold = keep_busy(frames)
    monkeypatch.setattr(FrameLog, "_commit", counted)
    futures = [frames.append(f"room{n}", kept("x")) for n in range(100)]
    futures += [frames.append("large", kept("x" * 5_000_000)), frames.append("room0", kept("y"))]
    hold.set()
    for future in futures:
        done(future)

    assert sizes == [100, 1, 1]


def test_one_append_that_fails_takes_no_other_with_it(frames: FrameLog) -> None:
    hold = keep_busy(frames)
    good = frames.append("s", kept("good"))
    bad = frames.append("s", [NewFrame("in", "x", 1 << 70)])
    better = frames.append("s", kept("better"))
    hold.set()

    assert (done(good), done(better)) == (1, 2)
    with pytest.raises(TypeError, match="Integer exceeds"):
        done(bad)
    assert [row.text for row in all_of(frames, "s")] == ["good", "better"]


def test_an_append_cannot_be_cancelled_once_it_is_asked_for(frames: FrameLog) -> None:
    future = frames.append("s", kept("x"))

    assert not future.cancel()
    assert done(future) == 1


def keep_on(path: str) -> None:
    """A child: keeps frames as fast as it can, and says each number once it is durable."""
    frames = FrameLog(path)
    n = frames.last("s")
    while True:
        last = frames.append("s", kept(*(f"frame {n + i}" for i in range(1, 6)))).result()
        n += 5
        say("kept", last=last)


def test_what_was_told_to_be_kept_is_there_after_a_kill(path: str) -> None:
    told = 0
    for _ in range(2):
        with Child("keep_on", module=HERE, path=path) as child:
            for _ in range(40):
                told = child.hear("kept")["last"]
            child.kill()

        frames = FrameLog(path)
        rows = all_of(frames, "s")
        frames.close()
        assert len(rows) >= told
        assert len(rows) % 5 == 0
        assert [(row.number, row.text) for row in rows] == [(n, f"frame {n}") for n in range(1, len(rows) + 1)]


def read_on(path: str, upto: int) -> None:
    """A child: follows a room while somebody else writes in it."""
    frames = FrameLog(path)
    say("ready")
    last = 0
    while last < upto:
        for row in frames.read("s", last, 37):
            assert row.number == last + 1
            assert row.text == f"frame {row.number}"
            last = row.number
    say("read", last=last)
    frames.close()
    hear()


def test_two_processes_read_while_one_writes(path: str) -> None:
    frames = FrameLog(path)
    with Child("read_on", module=HERE, path=path, upto=2000) as one, Child(
        "read_on", module=HERE, path=path, upto=2000
    ) as two:  # fmt: skip
        for child in (one, two):
            child.hear("ready")
        for n in range(1, 2001, 4):
            done(frames.append("s", kept(*(f"frame {i}" for i in range(n, n + 4)))))
        assert one.hear("read")["last"] == two.hear("read")["last"] == 2000
    frames.close()


def write_some(path: str, name: str, count: int) -> None:
    frames = FrameLog(path)
    say("ready")
    hear("go")
    for n in range(count):
        frames.append("s", kept(f"{name} {n}")).result()
    frames.close()
    say("done")


def test_two_processes_that_write_in_one_room_share_its_numbers(path: str) -> None:
    with Child("write_some", module=HERE, path=path, name="a", count=60) as a, Child(
        "write_some", module=HERE, path=path, name="b", count=60
    ) as b:  # fmt: skip
        for child in (a, b):
            child.hear("ready")
        for child in (a, b):
            child.say("go")
        for child in (a, b):
            child.hear("done")

    frames = FrameLog(path)
    rows = all_of(frames, "s")
    frames.close()
    assert [row.number for row in rows] == list(range(1, 121))
    for name in "ab":
        assert [r.text for r in rows if r.text.startswith(name)] == [f"{name} {n}" for n in range(60)]


# ---------------------------------------------------------------------- forgetting


def test_old_frames_are_forgotten_and_numbers_go_on(path: str) -> None:
    clock = StoppedClock(100.0)
    frames = FrameLog(path, clock=clock)
    for _ in range(200):
        frames.append("s", kept("old", "old"))
    done(frames.append("other", kept("old")))
    clock.now = 200.0
    done(frames.append("s", kept("new")))

    assert frames.retain(150.0) == 401

    assert frames.read("s", 0, 10) == [LoggedFrame(401, "in", "new", 0, 200.0)]
    assert (frames.forgotten("s"), frames.first("s"), frames.last("s")) == (400, 401, 401)
    assert (frames.forgotten("other"), frames.first("other"), frames.last("other")) == (1, 0, 1)
    assert done(frames.append("other", kept("again"))) == 2
    assert frames.retain(150.0) == 0
    assert frames.retain(201.0) == 2
    frames.close()

    again = FrameLog(path)
    assert done(again.append("s", kept("x"))) == 402
    assert (again.forgotten("s"), again.first("s")) == (401, 402)
    again.close()


def test_a_clock_that_jumped_makes_no_gap(path: str) -> None:
    clock = StoppedClock(100.0)
    frames = FrameLog(path, clock=clock)
    for now in (100.0, 900.0, 100.0):
        clock.now = now
        done(frames.append("s", kept("x")))

    assert frames.retain(500.0) == 1

    assert [row.number for row in all_of(frames, "s")] == [2, 3]
    frames.close()


def test_what_was_forgotten_makes_the_file_smaller_and_leaves_no_trace(path: str) -> None:
    frames = FrameLog(path, clock=StoppedClock(100.0))
    secret = os.urandom(16).hex()
    for _ in range(40):
        done(frames.append("s", kept(secret, os.urandom(100_000).hex())))
    before = checkpointed(frames, path)

    frames.retain(200.0)

    assert checkpointed(frames, path) < before / 4
    frames.close()


def checkpointed(frames: FrameLog, path: str) -> int:
    assert frames.wipe()
    return Path(path).stat().st_size


def test_others_keep_frames_while_many_are_forgotten(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.retention.PAGES", 2)
    clock = StoppedClock(100.0)
    frames = FrameLog(path, clock=clock)
    futures = [frames.append("s", kept(f"old {n}")) for n in range(100)]
    done(futures[-1])
    clock.now = 300.0
    stop, longest = threading.Event(), [0.0]

    def write() -> None:
        while not stop.is_set():
            began = time.perf_counter()
            done(frames.append("s", kept("new")))
            longest[0] = max(longest[0], time.perf_counter() - began)

    thread = threading.Thread(target=write)
    thread.start()
    assert frames.retain(200.0) == 100
    stop.set()
    thread.join(PATIENCE)

    rows = all_of(frames, "s")
    assert [row.number for row in rows] == list(range(101, frames.last("s") + 1))
    assert {row.text for row in rows} == {"new"}
    assert longest[0] < 2
    frames.close()


# ---------------------------------------------------------------------- rooms


def test_rooms_are_kept_changed_and_dropped_with_all_their_frames(frames: FrameLog, path: str) -> None:
    one = RoomRow("s", "opencode", ["opencode", "acp"], "/work", None, 5.0, None)
    two = RoomRow("t", "é", ["a b", '"'], "/", "own-id", 4.0, None)
    frames.put_room(one)
    frames.put_room(two)
    assert frames.rooms() == [two, one]

    moved = RoomRow("s", "hermes", ["hermes-acp"], "/work", "own", 6.0, 7.0)
    frames.put_room(moved)
    assert frames.room("s") == moved
    assert frames.room("none") is None

    for _ in range(150):
        frames.append("s", kept("a secret that nobody may find"))
    done(frames.append("t", kept("stays")))
    frames.drop_room("s")

    assert frames.rooms() == [two]
    assert (frames.first("s"), frames.read("s", 0, 10)) == (0, [])
    assert [row.text for row in all_of(frames, "t")] == ["stays"]
    assert frames.wipe()
    assert b"nobody may find" not in b"".join(p.read_bytes() for p in Path(path).parent.iterdir())
    frames.drop_room("s")


def test_nothing_is_kept_of_a_room_that_was_dropped_until_it_is_admitted_again(frames: FrameLog, path: str) -> None:
    row = RoomRow("s", "opencode", ["opencode", "acp"], "/work", None, 5.0, None)
    frames.put_room(row)
    done(frames.append("s", kept("before")))
    frames.drop_room("s")
    with contextlib.closing(FrameLog(path)) as another:
        for late in (lambda: done(another.append("s", kept("late"))), lambda: another.put_room(row)):
            with pytest.raises(SessionNotFound):
                late()
    assert (frames.known(), frames.rooms(), frames.read("s", 0, 10)) == ([], [], [])

    frames.admit("s")

    assert done(frames.append("s", kept("after"))) == 2
    assert (frames.known(), frames.first("s")) == (["s"], 2)


def test_who_does_not_know_of_the_newest_frame_keeps_none(frames: FrameLog) -> None:
    done(frames.append("s", kept("one", "two")))

    with pytest.raises(ErasureFirst):
        done(frames.append("s", kept("mine"), after=1))

    assert [row.text for row in all_of(frames, "s")] == ["one", "two"]
    assert done(frames.append("s", kept("mine"), after=2)) == 3


# ---------------------------------------------------------------------- the file


def test_what_was_asked_for_before_the_end_is_written_and_nothing_after_it(path: str) -> None:
    frames = FrameLog(path)
    futures = [frames.append("s", kept("x")) for _ in range(500)]

    frames.close()
    frames.close()

    assert all(future.done() for future in futures)
    assert [done(future) for future in futures] == list(range(1, 501))
    with pytest.raises(StoreError, match="closed in this process; open it again"):
        done(frames.append("s", kept("x")))
    with pytest.raises(StoreError, match="closed in this process"):
        frames.read("s", 0, 1)
    assert not Path(f"{path}-wal").exists()


def test_another_programs_file_a_newer_one_and_no_database_are_left_alone(tmp_path: Path) -> None:
    other, newer, none = tmp_path / "other", tmp_path / "newer", tmp_path / "none"
    with sqlite3.connect(other) as connection:
        connection.execute("create table theirs (x)")
    connection.close()
    FrameLog(str(newer)).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    none.write_text("no database at all, but long enough to be taken for one" * 100)
    before = {p: p.read_bytes() for p in (other, newer, none)}

    with pytest.raises(StoreError, match="another program's database; move it away"):
        FrameLog(str(other))
    with pytest.raises(StoreTooNew, match="written by a newer onefold"):
        FrameLog(str(newer))
    with pytest.raises(StoreDamaged, match="Move it away: the journal does not need it"):
        FrameLog(str(none))
    with pytest.raises(StoreError, match="there is no folder"):
        FrameLog(str(tmp_path / "no" / "where"))

    assert {p: p.read_bytes() for p in before} == before


def open_it(path: str) -> None:
    say("ready")
    hear("go")
    frames = FrameLog(path)
    frames.append("s", kept("x")).result()
    frames.close()
    say("done")


def test_many_processes_make_the_file_at_once(path: str) -> None:
    children = [Child("open_it", module=HERE, path=path) for _ in range(3)]
    try:
        for child in children:
            child.hear("ready")
        for child in children:
            child.say("go")
        for child in children:
            child.hear("done")
    finally:
        for child in children:
            child.__exit__(None, None, None)

    frames = FrameLog(path)
    assert frames.last("s") == 3
    frames.close()


def test_a_damaged_page_is_said_and_the_others_can_be_read(frames: FrameLog, path: str) -> None:
    for n in range(3):
        done(frames.append("s", kept(f"frame {n} " * 100)))
    with sqlite3.connect(path) as connection:
        connection.execute("update pages set body = x'00' where place = (1 << 40) | 2")
    connection.close()

    with pytest.raises(StoreDamaged, match="a page of the frame log is damaged"):
        frames.read("s", 0, 10)
    assert [row.number for row in frames.read("s", 2, 10)] == [3]


def test_a_full_disk_is_said_and_the_numbers_go_on_after_it(frames: FrameLog) -> None:
    done(frames.append("s", kept("x")))
    limit(frames, 20)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        done(frames.append("s", kept(os.urandom(200_000).hex())))
    limit(frames, 1 << 30)

    assert done(frames.append("s", kept("y"))) == 2
    assert [row.text for row in all_of(frames, "s")] == ["x", "y"]


def limit(frames: FrameLog, pages: int) -> None:
    """How large the file may become: as a disk that fills up."""
    assert frames._writer is not None
    frames._writer.pragma("max_page_count", pages)


class Failing:
    """A connection whose disk fails at the commit."""

    in_transaction = False

    def __init__(self, real: apsw.Connection) -> None:
        self._real = real
        self.close = real.close

    def execute(self, statement: str, *values: Any) -> apsw.Cursor:
        if statement == "commit":
            raise apsw.IOError("disk I/O error")
        return self._real.execute(statement, *values)


def test_a_commit_that_fails_in_an_unknown_way_says_so_and_the_next_one_works(frames: FrameLog) -> None:
    assert frames._writer is not None
    frames._writer = Failing(frames._writer)  # type: ignore[assignment]

    with pytest.raises(OutcomeUnknown, match="cannot be told whether they were kept"):
        done(frames.append("s", kept("lost")))

    assert done(frames.append("s", kept("x"))) == 1


def test_a_fork_waits_for_what_is_being_written(path: str) -> None:
    """A child that began within a transaction would find the file locked for good, by nobody."""
    code = (
        "import os, sys, threading\n"
        "from onefold.acp import fork_guard\n"
        "from onefold.acp.frame_log import FrameLog\nfrom onefold.acp.frame_pages import NewFrame\n"
        "frames = FrameLog(sys.argv[1])\n"
        "began, forks = threading.Event(), threading.Event()\n"
        "def work(connection):\n"
        "    began.set()\n"
        "    forks.wait(2)\n"
        "wrote = frames._submit(work)\n"
        "began.wait()\n"
        "def look():\n"
        "    while not fork_guard._one_fork.locked(): pass\n"
        "    forks.set()\n"
        "threading.Thread(target=look, daemon=True).start()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    own = FrameLog(sys.argv[1])\n"
        "    own.append('s', [NewFrame('in', 'y', 0)]).result(5)\n"
        "    os._exit(0)\n"
        "wrote.result()\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "frames.close()\n"
    )
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, path]
    subprocess.run(run, cwd=ROOT, check=True, timeout=PATIENCE)


def test_a_forked_child_is_told_to_open_its_own(path: str) -> None:
    code = (
        "import os, sys\n"
        "from onefold.acp.frame_log import FrameLog\nfrom onefold.acp.frame_pages import NewFrame\n"
        "from onefold.errors import StoreError\n"
        "frames = FrameLog(sys.argv[1])\n"
        "frames.append('s', [NewFrame('in', 'x', 0)]).result()\n"
        "frames.last('s')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    for use in (lambda: frames.append('s', []), lambda: frames.last('s'), frames.close):\n"
        "        try: use()\n"
        "        except StoreError as error: assert 'open it again in this process' in str(error)\n"
        "        else: os._exit(1)\n"
        "    own = FrameLog(sys.argv[1])\n"
        "    own.append('s', [NewFrame('in', 'y', 0)]).result()\n"
        "    own.close()\n"
        "    del frames\n"
        "    os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert frames.append('s', [NewFrame('in', 'z', 0)]).result() == 3\n"
        "frames.close()\n"
    )
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, path]
    subprocess.run(run, cwd=ROOT, check=True, timeout=PATIENCE)

    frames = FrameLog(path)
    assert [row.text for row in all_of(frames, "s")] == ["x", "y", "z"]
    frames.close()


def test_a_writer_that_is_stopped_in_a_commit_holds_no_reader(path: str) -> None:
    with Child("keep_on", module=HERE, path=path) as child:
        child.hear("kept")
        child.stop()
        frames = FrameLog(path)

        assert frames.read("s", 0, 5)[0].number == 1

        os.kill(child.pid, signal.SIGKILL)
        frames.close()


def test_the_file_has_a_bound_and_the_largest_room_gives_its_oldest_frames_up(path: str) -> None:
    most = 4 << 20
    frames = FrameLog(path, clock=StoppedClock(), most=most)
    try:
        done(frames.append("small", kept("a word")))
        for n in range(40):
            last = done(frames.append("large", kept(random.Random(n).randbytes(1 << 19).hex())))
        frames.retain(0)  # waits until what went before is done

        size = Path(path).stat().st_size
        assert size < most + (2 << 20), size
        assert [row.text for row in all_of(frames, "small")] == ["a word"]
        assert frames.last("large") == last == 40
        assert 0 < frames.forgotten("large") < 40
        left = frames.read("large", frames.forgotten("large"), 100)
        assert left[-1].text == random.Random(39).randbytes(1 << 19).hex()
    finally:
        frames.close()


def test_one_frame_that_is_larger_than_the_bound_is_kept(path: str) -> None:
    frames = FrameLog(path, clock=StoppedClock(), most=1 << 20)
    try:
        for n in range(3):
            done(frames.append("large", kept(random.Random(n).randbytes(1 << 20).hex())))
        frames.retain(0)
        assert frames.first("large") == 3
    finally:
        frames.close()
