"""Stores that are opened and closed again and again leave nothing behind: no descriptor, thread, memory or lock."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import onefold
from onefold import Store, StoreError
from onefold.storage.jsonl.backend import FilesBackend
from onefold.storage.sqlite import fair_lock, lock_queue
from onefold.storage.sqlite.lock_queue import LockQueue
from tests.support.fault_injection import HeldLine, backend_of, open_store

SAID = {"role": "user", "content": "hello"}
WAIT = 30
MANY = 1_000
KINDS = ["sqlite", "files", "memory"]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def _resident() -> int:
    """Bytes of memory that this process has in use."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _until(happened: Callable[[], bool]) -> None:
    pause, ends = threading.Event(), time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < ends
        pause.wait(0.001)


def _stands(line: LockQueue) -> None:
    _until(lambda: line.standing)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """A lock that another process has, for as long as the block."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _lock_of(store: Store) -> tuple[Path, LockQueue]:
    """What writers of a store take turns by, and where they wait for it."""
    backend = backend_of(store)
    if isinstance(backend, FilesBackend):
        return backend._root / ".onefold" / "lock", backend._lock._queue
    return Path(backend._gate._path), backend._gate._queue


def _use(address: str, contended: bool) -> None:
    with onefold.open(address) as store:
        session = store.session("s")
        if contended:
            lock, line = _lock_of(store)
            writer = threading.Thread(target=session.append, args=(SAID,))
            with _held(lock):
                writer.start()
                _stands(line)
            writer.join(WAIT)
            assert not writer.is_alive()
        assert list(session.follow(session.append(SAID).numbers[0], idle=0.0)) == []
        session.context()


@pytest.fixture
def threads() -> int:
    """How many there are without the stores of a test."""
    return threading.active_count()


@pytest.mark.parametrize("kind", KINDS)
def test_opening_a_thousand_stores_in_one_process_leaks_nothing(
    tmp_path: Path, threads: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them have to stand in line for their lock."""
    monkeypatch.setattr(lock_queue, "IDLE", 3600.0)  # closing alone ends what they started
    address = {"sqlite": str(tmp_path / "a.db"), "files": f"{tmp_path / 'a'}/", "memory": "memory:"}[kind]
    every = 0 if kind == "memory" else 10
    rounds = MANY // 4 if kind == "files" else MANY // 2
    for n in range(rounds // 4):
        _use(address, bool(every) and n % every == 0)
    _until(lambda: threading.active_count() <= threads)
    descriptors, resident = _descriptors(), _resident()

    for n in range(rounds):
        _use(address, bool(every) and n % every == 0)

    _until(lambda: threading.active_count() <= threads)
    assert _descriptors() == descriptors
    assert _resident() - resident < 8 << 20


def test_a_thread_that_stood_in_line_ends_when_it_is_not_needed(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store that is open for long."""
    monkeypatch.setattr(lock_queue, "IDLE", 0.01)
    with open_store(tmp_path / "a.db") as store:
        session = store.session("s")
        for _ in range(3):
            before = _descriptors()
            lock, line = _lock_of(store)
            writer = threading.Thread(target=session.append, args=(SAID,))
            with _held(lock):
                writer.start()
                _stands(line)
            writer.join(WAIT)
            _until(lambda: threading.active_count() <= threads)
            assert _descriptors() == before


@pytest.mark.parametrize("got", ["at once", "in line"])
def test_closing_while_a_thread_writes_gives_the_turn_back(tmp_path: Path, got: str) -> None:
    path = tmp_path / "a.db"
    store = open_store(path)
    session = store.session("s")
    last = session.state.last
    lock, line = _lock_of(store)
    with contextlib.ExitStack() as held:
        if got == "in line":
            other = held.enter_context(contextlib.ExitStack())
            other.enter_context(_held(lock))

            def free() -> None:
                _stands(line)
                other.close()

            threading.Thread(target=free).start()
        with HeldLine(backend_of(store)) as work:
            work.behind("late", lambda: session.append(SAID))
            closer = threading.Thread(target=store.close)
            closer.start()
            _until(lambda: backend_of(store)._closed)
        closer.join(WAIT)
    assert isinstance(work.answers["late"], StoreError)

    with _at_once(lock):
        pass
    began = time.monotonic()
    with open_store(path) as again:
        assert again.session("s").append(SAID).numbers == (last + 1,)
    assert time.monotonic() - began < fair_lock.PATIENCE


def test_closing_does_not_wait_for_a_turn_that_somebody_else_has(tmp_path: Path, threads: int) -> None:
    store = open_store(tmp_path / "a.db")
    session = store.session("s")
    lock, line = _lock_of(store)
    answers: list[BaseException] = []

    def write() -> None:
        try:
            session.append(SAID)
        except StoreError as error:
            answers.append(error)

    writer = threading.Thread(target=write)
    with _held(lock):
        writer.start()
        _stands(line)
        began = time.monotonic()
        store.close()
        writer.join(WAIT)
        assert time.monotonic() - began < fair_lock.PATIENCE / 2

    assert ["closed" in str(answer) for answer in answers] == [True]
    _until(lambda: threading.active_count() <= threads)


@contextlib.contextmanager
def _at_once(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
