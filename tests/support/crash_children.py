"""What crash tests run in processes of their own. Each function is one child's whole life.

`crash_everywhere` runs one operation again and again, each time in a fresh process and on a fresh copy of a store,
and has that process killed one statement later than the time before.
"""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from onefold import OnefoldError, Session, Store
from onefold.compaction.holder import this_process
from onefold.model import Claim
from onefold.storage.sqlite import SqliteBackend
from tests.support.fault_injection import KillSwitch
from tests.support.helpers import at_barrier, quick, say
from verification.kills import dies
from verification.operations import (
    ONE_BY_ONE,
    OPERATIONS,
    Act,
    counted_ids,
    damage,
    fixed_clock,
    prepare,
    prepare_forks,
    stored,
    talk,
)

MOST = 300


def _store(path: Path, switch: KillSwitch) -> Store:
    ids = counted_ids("new")
    backend = SqliteBackend(path, clock=fixed_clock, ids=ids, connect=switch.connect)
    return stored(backend, ids)


def _operation(name: str, path: Path, at: int) -> None:
    switch = KillSwitch()
    store = _store(path, switch)
    act = partial(ONE_BY_ONE[name], store) if name in ONE_BY_ONE else OPERATIONS[name](store)
    switch.arm(at)
    act()


def _opening(name: str, path: Path, at: int) -> None:
    switch = KillSwitch()
    switch.arm(at)
    _store(path, switch)


def crash_everywhere(folder: str, name: str, first: int = 1) -> None:
    """Kills `name` before its first statement, its second, … and at last right after it has returned."""
    original = Path(folder, "original.db")
    if name == "opening a new store":
        act = _opening
    elif name == "migrating an older store":
        act = _opening
        first_schema_only(str(original))
    else:
        act = _operation
        (prepare_forks if name in ONE_BY_ONE else prepare)(str(original))
    for at in range(first, MOST):
        copy = Path(folder, f"{at:03}.db")
        if original.exists():
            shutil.copy(original, copy)
        returned = dies(partial(act, name, copy, at))
        say("killed", path=str(copy), returned=returned)
        if returned:
            return
    raise AssertionError(f"{name!r} has more than {MOST} statements")


OLD_RECORDS = (
    "alter table records rename to places",
    """create table records (session text not null, number integer not null, id text not null, kind text not null,
       at real not null, format text, role text, tokens integer, opens text, closes text, key text, turn text,
       actor text, body text not null, unique (session, number))""",
    """insert into records select session, number, id, kind, at, format, role, tokens, opens, closes, key, turn,
       actor, body from places join journals on sid = place >> 32""",
    "drop table places",
    "drop table journals",
)
"""Records as the first three versions of the schema kept them."""


LATER_COLUMNS = ("turn", "parent", "forked_at", "aliases", "paid", "rests", "limits", "window")
"""Of a session's row."""


def first_schema_only(path: str) -> None:
    """A store as the first version of its schema made it, with a session in it."""
    prepare(path)
    damage(
        Path(path),
        *(f"drop table {table}" for table in ("leases", "turn_leases", "tombstones")),
        *(f"drop index {index}" for index in ("marks", "forks_of_a_session")),
        *(f'alter table sessions drop column "{name}"' for name in LATER_COLUMNS),
        "alter table segments drop column rest",
        *OLD_RECORDS,
        "update meta set value = '1' where name = 'min_writer'",
        "pragma user_version = 1",
    )


def open_at_once(path: str) -> None:
    """Opens a store together with others, and says what it found."""
    at_barrier()
    backend = SqliteBackend(path)
    store = Store(backend)
    session = store.session("a")
    say("opened", generation=store.generation, last=session.state.last)
    session.append({"role": "user", "content": "here"})
    store.close()


def take_at_once(path: str) -> None:
    """Takes an input together with others, and says what it got."""
    with Store(SqliteBackend(path)) as store:
        session = store.session("a")
        at_barrier()
        got: list[Any] = []
        while (taken := session.take_input()) is not None:
            got.append(taken.body["content"])
        say("took", got=got)


def append_until_told(path: str) -> None:
    """Appends pairs, both or none, until the test says stop."""
    with Store(SqliteBackend(path)) as store:
        session = store.session("a")
        at_barrier()
        pairs = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            session.append(talk(2, start=2 * pairs + 1))
            pairs += 1
            if pairs == 20:
                say("writing")
        say("stopped", pairs=pairs)


def interrupted_writers(path: str) -> None:
    """Ctrl-C again and again in a main thread that writes, beside threads that write."""
    acknowledged: list[str] = []
    stop, busy = threading.Event(), threading.Semaphore(0)
    armed = [False]  # no lock in it: the handler may come at any time

    def interrupted(number: int, frame: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    def interrupt() -> None:
        for _ in range(40):
            for _ in range(7):
                busy.acquire()
            os.kill(os.getpid(), signal.SIGINT)
        stop.set()

    signal.signal(signal.SIGINT, interrupted)
    with Store(SqliteBackend(path)) as store:
        session = store.session("a")

        def write(name: str) -> None:
            for n in itertools.count():
                if stop.is_set():
                    return
                session.append({"role": "user", "content": f"{name} {n}"})
                acknowledged.append(f"{name} {n}")
                busy.release()

        threads = [threading.Thread(target=write, args=(name,), daemon=True) for name in ("one", "two", "three")]
        threads.append(threading.Thread(target=interrupt, daemon=True))
        for thread in threads:
            thread.start()
        times = 0
        while not stop.is_set():
            try:
                armed[0] = True
                write(f"main {times}")
            except KeyboardInterrupt:
                times += 1
        armed[0] = False
        for thread in threads:
            thread.join()
        session.append({"role": "user", "content": "the end"})
        say("done", acknowledged=acknowledged, interrupted=times)


def forks(path: str) -> None:
    """Parent and child of a fork use one store that was open before, each in its own way."""
    store = Store(SqliteBackend(path), policy=quick())
    session = store.session("a")
    session.append(talk(12))
    parent, child = [m["content"] for m in talk(12)], []
    store.journal.request("a")
    claim = store.journal.claim("a", this_process())
    assert isinstance(claim, Claim)
    told, tell = os.pipe()
    heard, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exit_with(lambda: _forked(session, claim, told, answer))
    os.close(answer)
    session.append({"role": "user", "content": "from the parent"})
    parent.append("from the parent")
    _read_to(heard, "claim refused")
    store.journal.commit(claim, "the parent's summary", cut=claim.upto)
    for n in range(20):
        session.append({"role": "user", "content": f"parent {n}"})
        parent.append(f"parent {n}")
    store.close()
    os.write(tell, b"the parent has closed\n")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with os.fdopen(heard) as lines:
        child = [line.rstrip("\n") for line in lines]
    say("done", parent=parent, child=child[1:], followed=child[0])


def _forked(session: Session, claim: Claim, told: int, answer: int) -> None:
    journal = session.journal
    followed = next(r for r in session.follow(12) if r.kind == "message" and r.body["content"] == "from the parent")
    assert _refused(lambda: journal.renew(claim))
    assert _refused(lambda: journal.commit(claim, "no", cut=claim.upto))
    assert _refused(lambda: journal.fail(claim, "no", None))
    os.write(answer, b"claim refused\n" + followed.body["content"].encode() + b"\n")
    _append_and_tell(session, "early", answer)
    _read_to(told, "the parent has closed")
    _append_and_tell(session, "late", answer)
    assert len([r for r in session.read() if r.kind == "message"]) == 12 + 1 + 20 + 20
    result = session.compact(base=session.head)
    assert result.applied, result


def _refused(act: Act) -> bool:
    try:
        act()
    except OnefoldError as error:
        return "belongs to process" in str(error)
    return False


def _append_and_tell(session: Session, name: str, answer: int) -> None:
    for n in range(10):
        session.append({"role": "user", "content": f"{name} {n}"})
        os.write(answer, f"{name} {n}\n".encode())


def _read_to(fd: int, expected: str) -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(fd, 1) or b"\n"
    assert line.decode().strip() == expected, line


def _exit_with(act: Act) -> NoReturn:
    try:
        act()
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def forks_under_load(path: str) -> None:
    """Forks again and again while other threads of this process write and follow."""
    store = Store(SqliteBackend(path))
    session = store.session("a")
    acknowledged: list[str] = []
    stop, busy = threading.Event(), threading.Semaphore(0)

    def write(name: str) -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            session.append({"role": "user", "content": f"{name} {n}"})
            acknowledged.append(f"{name} {n}")
            busy.release()

    def follow() -> None:
        for _ in session.follow():
            if stop.is_set():
                return

    threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
    threads += [threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    for n in range(8):
        for _ in range(3):
            busy.acquire()
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            _exit_with(partial(_append_and_tell, session, f"child {n}", tell))
        os.close(tell)
        with os.fdopen(told) as lines:
            acknowledged += [line.rstrip("\n") for line in lines]
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    stop.set()
    session.append({"role": "user", "content": "the end"})
    acknowledged.append("the end")
    for thread in threads:
        thread.join()
    store.close()
    say("done", acknowledged=acknowledged)
