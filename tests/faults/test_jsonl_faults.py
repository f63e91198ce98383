"""Disks that are full or fail, processes that fork, and calls that are interrupted, in a store of plain files."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onefold import OutcomeUnknown, Session, StoreUnavailable
from onefold.journal import agent_compactions
from onefold.storage.jsonl import Disk, layout
from tests.support.files_children import FailingDisk, everything, open_files, prepare
from verification.kills import dies
from verification.operations import talk

Act = Callable[[Session], Any]
ACTS: dict[str, Act] = {
    "append": lambda session: session.append(talk(3, start=20), key="k"),
    "keep": lambda session: agent_compactions.set_compaction_owner(session.journal, "a", "agent"),
    "create": lambda session: session.fork(id="f"),
    "erase": lambda session: session.erase(3),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prepare(tmp_path / "sessions")
    return tmp_path / "sessions"


def _files(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in root.glob("*/*.jsonl")}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_an_append_that_the_disk_refuses_leaves_not_a_byte(root: Path, call: str, error: int) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store:
        session = store.session("a")
        before, files = everything(store), _files(root)
        disk.error, disk.failing = error, {call: 1}

        with pytest.raises(StoreUnavailable, match="nothing was written"):
            session.append(talk(2))

        assert everything(store) == before
        assert _files(root) == files
        assert session.append(talk(2)).numbers == (before["a"][0].last + 1, before["a"][0].last + 2)
        assert store.verify().findings == ()


@pytest.mark.parametrize("name", ["create", "erase"])
@pytest.mark.parametrize("call", ["create", "write", "fsync", "link"])
def test_a_new_segment_that_the_disk_refuses_leaves_the_old_one(root: Path, name: str, call: str) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store:
        session, files = store.session("a"), _files(root)
        disk.failing = {call: 1}

        with pytest.raises(StoreUnavailable, match="nothing was written"):
            ACTS[name](session)

        assert _files(root) == files
        assert not list(root.rglob(".new-*"))
        ACTS[name](session)
        assert store.verify().findings == ()


def test_an_append_that_cannot_be_taken_back_is_unknown_and_its_key_settles_it(root: Path) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store:
        session = store.session("a")
        last = session.state.last
        disk.error, disk.failing = errno.EIO, {"fdatasync": 1, "truncate": 1}

        with pytest.raises(OutcomeUnknown, match="with the same key"):
            session.append(talk(2), key="k")

        again = session.append(talk(2), key="k")
        assert again.numbers == (last + 1, last + 2)
        assert session.state.last == last + 2
        assert store.verify().findings == ()


@pytest.mark.parametrize("call", ["fsync_folder", "unlink", "rename"])
def test_what_fails_after_the_link_does_not_undo_it(root: Path, call: str) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store:
        session = store.session("a")
        disk.error, disk.failing = errno.EIO, {call: 1}

        fork = session.fork(id="f")

        assert [r.kind for r in store.journal.backend.read(lambda tx: tx.records("f", 1, 1 << 60, 10))] == [
            "fork",
            "segment.opened",
        ]
        fork.append(talk(1))
        assert store.verify().findings == ()
    with open_files(root) as store:
        assert store.verify().findings == ()


@pytest.mark.parametrize("name", list(ACTS))
@pytest.mark.parametrize("call", ["create", "write", "fdatasync", "fsync", "fsync_folder", "link", "unlink", "rename"])
def test_an_interrupt_at_any_call_leaves_the_old_state_or_the_new_one(root: Path, name: str, call: str) -> None:
    disk = FailingDisk()
    disk.raises = KeyboardInterrupt
    with open_files(root, disk) as store:
        session = store.session("a")
        disk.failing = {call: 1}
        interrupted = False
        try:
            ACTS[name](session)
        except KeyboardInterrupt:
            interrupted = True
        disk.failing = {}
        before = session.state.last
        ACTS["append"](session)
        assert session.state.last in (before, before + 3) if interrupted else True
        assert store.verify().findings == ()
        shown = everything(store)
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert everything(store) == shown


class _UnreadableDisk(Disk):
    def __init__(self) -> None:
        self.broken = False

    def read(self, fd: int, size: int, offset: int) -> bytes:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(fd, size, offset)

    def names(self, path: str | Path) -> list[str]:
        if self.broken:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return super().names(path)


def test_what_cannot_be_read_is_an_error_and_nothing_is_written_over_it_f28(root: Path) -> None:
    """F28: neither an open store nor a new one takes a read error for an empty session."""
    disk, files = _UnreadableDisk(), _files(root)
    with open_files(root, disk) as store:
        session = store.session("a")
        disk.broken = True
        with pytest.raises(StoreUnavailable):
            list(session.read())
        with pytest.raises(StoreUnavailable):
            open_files(root, disk)
    (root / layout.OWN / layout.INDEX).unlink()
    with pytest.raises(StoreUnavailable):
        open_files(root, disk)

    assert _files(root) == files
    with open_files(root) as store:
        assert store.verify().findings == ()


def test_parent_and_child_of_a_fork_both_go_on_writing(root: Path) -> None:
    with open_files(root) as store:
        session = store.session("a")
        last = session.state.last
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            try:
                for n in range(20):
                    session.append({"role": "user", "content": f"child {n}"})
                os.write(tell, b"well")
            finally:
                os._exit(0)
        os.close(tell)
        for n in range(20):
            session.append({"role": "user", "content": f"parent {n}"})
        with os.fdopen(told, "rb") as answer:
            assert answer.read() == b"well"
        os.waitpid(pid, 0)

        assert session.state.last == last + 40
        assert store.verify().findings == ()
        said = [r.body["content"] for r in session.read(last + 1)]
        for who in ("child", "parent"):
            assert [s for s in said if s.startswith(who)] == [f"{who} {n}" for n in range(20)]


def test_processes_that_are_killed_while_they_write_lose_nothing_that_was_acknowledged(root: Path) -> None:
    acknowledged: list[int] = []

    def write() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with open_files(root, prefix=f"p{os.getpid()}") as store:
            session = store.session("a")
            while True:
                number = session.append(talk(1)).numbers[0]
                os.write(tell, f"{number}\n".encode())

    for _ in range(6):
        told, tell = os.pipe()
        dies(write)
        os.close(tell)
        with os.fdopen(told) as answer:
            acknowledged += [int(line) for line in answer]

    with open_files(root) as store:
        numbers = [r.number for r in store.session("a").read()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(acknowledged) == len(set(acknowledged))
        assert set(acknowledged) <= set(numbers)
        assert store.verify().findings == ()


def test_one_interrupted_thread_takes_nothing_from_those_it_wrote_for(root: Path) -> None:
    disk = FailingDisk()
    with open_files(root, disk) as store:
        session = store.session("a")
        last = session.state.last
        disk.raises, disk.failing = KeyboardInterrupt, {"fdatasync": 1}
        failed: list[BaseException] = []

        def append(n: int) -> None:
            try:
                session.append({"role": "user", "content": str(n)}, key=str(n))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=append, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert len(failed) == 1
        assert session.state.last == last + 11
        assert store.verify().findings == ()


def test_the_note_of_a_killed_writer_is_text_that_a_person_can_read(root: Path) -> None:
    with open_files(root) as store:
        store.session("a").append(talk(1))

    note = json.loads((root / layout.OWN / layout.LOCK).read_text().split("\n")[0])
    assert note["sessions"] == ["a"]
