"""A process killed at every system call of every operation: the old state or the new one, and never between."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onefold
from onefold import Store
from onefold.errors import OnefoldError
from onefold.storage.sqlite import SqliteBackend
from verification import files
from verification.calls import Calls
from verification.operations import OPERATIONS, counted_ids, fixed_clock, prepare, rows, stored
from verification.told import Told

NAMES = tuple(name for name in OPERATIONS if name != "heal")  # which begins with damage: it has tests of its own
MOST = 2000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store: how it is made, copied, opened by what is killed, and looked at after that."""

    prepare: Callable[[Path], None]
    copy: Callable[[Path, Path], object]
    open: Callable[[Path], Store]
    look: Callable[[Path], dict[str, Any]]
    python: bool = False
    """Whether Python's own system calls count."""


def _open_sqlite(path: Path) -> Store:
    ids = counted_ids("new")
    return stored(SqliteBackend(path, clock=fixed_clock, ids=ids), ids)


def _look_at_sqlite(path: Path) -> dict[str, Any]:
    with onefold.open(path) as store:
        found = store.verify().findings
    if found:
        raise files.Wrong(str(found[0]))
    return rows(path)


SQLITE = Kind(lambda path: prepare(str(path)), shutil.copy, _open_sqlite, _look_at_sqlite)
FILES = Kind(files.prepare, shutil.copytree, files.open_files, files.look, python=True)


def operation(name: str, calls: Calls, told: Told, kind: Kind = SQLITE) -> None:
    """Kills the operation at its first call, its second, … and at last right after it has returned."""
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original"
        kind.prepare(original)
        left: list[tuple[Path, bool]] = []
        for at in range(1, MOST):
            copy = Path(folder) / str(at)
            kind.copy(original, copy)
            returned = dies(lambda at=at, copy=copy: _act(name, kind, copy, calls, at))  # type: ignore[misc]
            told.faults += 1
            left.append((copy, returned))
            if returned:
                break
        else:
            raise RuntimeError(f"{name!r} makes more than {MOST} calls")
        _judge(name, kind, left, told)


def _act(name: str, kind: Kind, path: Path, calls: Calls, at: int) -> None:
    act = OPERATIONS[name](kind.open(path))
    if kind.python:
        calls.count_python_too()
    calls.arm(at)
    act()


def dies(act: Callable[[], None]) -> bool:
    """Runs an act in a fork of this process, which has no store open; whether it returned before it was killed."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            act()
            os.write(tell, b"returned")
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        returned = answer.read() == b"returned"
    _, status = os.waitpid(pid, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        raise RuntimeError(f"a process was to be killed, but ended with {status}")
    return returned


def _judge(name: str, kind: Kind, left: list[tuple[Path, bool]], told: Told) -> None:
    states: list[tuple[int, bool, dict[str, Any]]] = []
    for at, (path, returned) in enumerate(left, start=1):
        try:
            states.append((at, returned, kind.look(path)))
        except (OnefoldError, files.Wrong) as error:
            told.unopenable += 1
            told.words.append(f"{name}, call {at}: {error}")
    old, new = states[0][2], states[-1][2]
    for at, returned, state in states:
        told.acknowledged += returned
        if returned and state != new:
            told.lost += 1
        if state not in (old, new):
            told.between += 1
            told.words.append(f"{name}, call {at}: neither the old state nor the new one")


def run(
    names: Iterable[str] = NAMES,
    rounds: int = 1,
    each: Callable[[str, Told], None] | None = None,
    kind: Kind = SQLITE,
) -> Told:
    told = Told()
    with Calls() as calls:
        for _ in range(rounds):
            for name in names:
                operation(name, calls, told, kind)
                if each is not None:
                    each(name, told)
    return told


def main() -> int:
    options = argparse.ArgumentParser(description="Kills a process at every system call of every operation.")
    options.add_argument("--only", help="a part of an operation's name")
    options.add_argument("--files", action="store_true", help="in a store of plain files")
    chosen = options.parse_args()
    logging.getLogger("onefold").setLevel(logging.CRITICAL)  # which says what it finds after each kill
    names = [n for n in NAMES if not chosen.only or chosen.only in n]
    told = run(names, kind=FILES if chosen.files else SQLITE)
    for line in told.words[:10]:
        print(line)
    print(told)
    return 0 if told.well else 1


if __name__ == "__main__":
    sys.exit(main())
