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
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from onefold import OnefoldError, Session, Store
from onefold.compaction.run import whoami
from onefold.journal import copying, history, marks, turns
from onefold.journal.sqlite import SqliteBackend
from onefold.messages import draft
from onefold.model import Claim, HolderId, TurnClaim
from tests.faults import NOW, KillSwitch, counted_ids, damage, fixed_clock
from tests.helpers import at_barrier, quick, say, talk

ME = HolderId("host", 1, "thread", None, "nonce")
MOST = 300
SECRET = "axolotl-2718"

Act = Callable[[], object]


def _store(path: Path, switch: KillSwitch) -> Store:
    ids = counted_ids("new")
    backend = SqliteBackend(path, clock=fixed_clock, ids=ids, connect=switch.connect)
    return Store(backend, ids=ids)


def prepare(path: str) -> None:
    """A store with one session, an older compaction of it, an input that waits and a key."""
    ids = counted_ids("old")
    with Store(SqliteBackend(path, clock=fixed_clock, ids=ids), ids=ids) as store:
        session = store.session("a")
        session.append(talk(6), key="first")
        claim = _claim(store)
        store.journal.commit(claim, "what was said", cut=4)
        session.append(talk(2, start=7))
        session.queue({"role": "user", "content": "later"})


def _claim(store: Store) -> Claim:
    store.journal.request("a", trigger="manual")
    claim = store.journal.claim("a", ME)
    assert isinstance(claim, Claim)
    return claim


def _request(store: Store) -> Act:
    return lambda: store.journal.request("a", trigger="threshold", key="ask")


def _join(store: Store) -> Act:
    store.journal.request("a", trigger="threshold")
    return lambda: store.journal.request("a", trigger="manual")


def _claims(store: Store) -> Act:
    store.journal.request("a")
    return lambda: store.journal.claim("a", ME)


def _renew(store: Store) -> Act:
    claim = _claim(store)
    longer = replace(claim, lease=claim.lease + 7)
    return lambda: store.journal.renew(longer)


def _commit(store: Store) -> Act:
    claim = _claim(store)
    follow_up = draft({"role": "user", "content": "go on"}, counted_ids("follow"))
    return lambda: store.journal.commit(claim, "a new summary", cut=claim.upto, kept=[4], follow_up=follow_up)


def _fail(store: Store) -> Act:
    claim = _claim(store)
    return lambda: store.journal.fail(claim, "the model is away", 5.0)


def _cancel(store: Store) -> Act:
    _claim(store)
    return lambda: store.journal.cancel("a")


def _restore(store: Store) -> Act:
    _claim(store)
    head = store.journal.state("a").head
    return lambda: history.restore(store.journal, "a", 1, expect_head=head)


def _heal(store: Store) -> Act:
    damage(Path(store.address), "update sessions set head = 1, last = last - 2", "delete from inputs")
    return lambda: store.session("a")


def _commit_with_alias(store: Store) -> Act:
    claim = _claim(store)
    return lambda: store.journal.commit(claim, "a new summary", alias="also-a")


def _turn(store: Store) -> TurnClaim:
    turn = turns.start(store.journal, "a", ME, owner="gateway")
    assert isinstance(turn, TurnClaim)
    return turn


def _start_turn(store: Store) -> Act:
    return lambda: turns.start(store.journal, "a", ME, owner="gateway")


def _renew_turn(store: Store) -> Act:
    turn = _turn(store)
    longer = replace(turn, lease=turn.lease + 7)
    return lambda: turns.renew(store.journal, longer)


def _append_in_turn(store: Store) -> Act:
    turn = _turn(store)
    said = [draft(m, counted_ids("said")) for m in talk(2, start=9)]
    return lambda: store.journal.append("a", said, key="k", turn=turn)


def _take_in_turn(store: Store) -> Act:
    turn = _turn(store)
    return lambda: turns.take(store.journal, "a", turn=turn, key="k")


def _calls(store: Store, turn: TurnClaim) -> None:
    """Two calls that nobody has answered yet."""
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("one", "two")]
    asked = draft({"role": "assistant", "content": None, "tool_calls": calls}, counted_ids("asked"))
    store.journal.append("a", [asked], turn=turn)


def _end_turn(store: Store) -> Act:
    turn = _turn(store)
    _calls(store, turn)
    return lambda: turns.end(store.journal, turn, "failed", "the model is away")


def _stop_turn(store: Store) -> Act:
    _calls(store, _turn(store))
    return lambda: turns.stop(store.journal, "a", cause="enough")


def _take_turn_over(store: Store) -> Act:
    """From a writer that was not heard of since long ago."""
    ids = counted_ids("dead")
    with Store(SqliteBackend(store.address, clock=lambda: NOW - 1000, ids=ids), ids=ids) as long_ago:
        _calls(long_ago, _turn(long_ago))
    return lambda: turns.start(store.journal, "a", replace(ME, nonce="another"), owner="cron")


def _pin(store: Store) -> Act:
    return lambda: marks.pin(store.journal, "a", 3)


def _unpin(store: Store) -> Act:
    marks.pin(store.journal, "a", 3)
    return lambda: marks.unpin(store.journal, "a", 3)


def _note(store: Store) -> Act:
    marks.note(store.journal, "a", "path", "/old", key="home")
    return lambda: marks.note(store.journal, "a", "path", "/new", key="home", source=(3,))


def _undo(store: Store) -> Act:
    """With a turn and a compaction open."""
    _calls(store, _turn(store))
    _claim(store)
    head = store.journal.state("a").head
    return lambda: history.undo(store.journal, "a", expect_head=head)


def _redo(store: Store) -> Act:
    undone = history.undo(store.journal, "a", expect_head=store.journal.state("a").head)
    _turn(store)
    _claim(store)
    return lambda: history.redo(store.journal, "a", expect_head=undone.number)


def _rewind(store: Store) -> Act:
    _turn(store)
    _claim(store)
    head = store.journal.state("a").head
    return lambda: history.rewind(store.journal, "a", 3, expect_head=head)


def _observe(store: Store) -> Act:
    history.keep(store.journal, "a", "agent")
    store.journal.request("a")
    return lambda: history.observe(store.journal, "a", source="a hook", witnesses=("the transcript",))


def _keep(store: Store) -> Act:
    _claim(store)
    return lambda: history.keep(store.journal, "a", "agent")


def _secret(store: Store) -> int:
    """A message that a key, a summary and a note know of, and that was an input before; its number."""
    session = store.session("a")
    session.take()
    session.queue({"role": "user", "content": SECRET}, key="secret")
    taken = session.take()
    assert taken is not None
    marks.note(store.journal, "a", "fact", f"it is {SECRET}", source=(taken.number,))
    store.journal.commit(_claim(store), f"they said {SECRET}")
    return taken.number


def _erase(store: Store) -> Act:
    number = _secret(store)
    _claim(store)
    return lambda: store.session("a").erase(number)


def _erase_input(store: Store) -> Act:
    number = store.session("a").queue({"role": "user", "content": SECRET}, key="secret")
    return lambda: store.session("a").erase(number)


def _delete(store: Store) -> Act:
    _secret(store)
    store.session("a").alias("also-a")
    _turn(store)
    _claim(store)
    return lambda: store.delete("also-a")


def _prepare_forks(path: str) -> None:
    """A fork and a fork of that, each with a summary of its own that knows the secret."""
    prepare(path)
    ids = counted_ids("fork")
    with Store(SqliteBackend(path, clock=fixed_clock, ids=ids), ids=ids) as store:
        _secret(store)
        session = store.session("a")
        for child in ("f", "g"):
            session = session.fork(id=child)
            session.append(talk(2, start=20))
            store.journal.request(child)
            claim = store.journal.claim(child, ME)
            assert isinstance(claim, Claim)
            store.journal.commit(claim, f"{child} knows {SECRET}")


def _erase_secret(store: Store) -> tuple[str, ...]:
    """Erases the message that was an input; the forks that lost it."""
    session = store.session("a")
    taken = max(r.number for r in session.read() if r.kind == "input.taken")
    return session.erase(taken + 1).forks


def _take_in(store: Store) -> Act:
    copy = list(store.session("a").read())
    return lambda: copying.take_in(store.journal, "b", copy)


OPERATIONS: dict[str, Callable[[Store], Act]] = {
    "create": lambda store: lambda: store.session("b"),
    "append one": lambda store: lambda: store.session("a").append(talk(1, start=9)),
    "append many with key": lambda store: lambda: store.session("a").append(talk(3, start=9), key="k"),
    "request": _request,
    "join": _join,
    "claim": _claims,
    "renew": _renew,
    "commit with follow-up": _commit,
    "fail": _fail,
    "cancel": _cancel,
    "restore": _restore,
    "queue": lambda store: lambda: store.session("a").queue({"role": "user", "content": "much later"}),
    "take": lambda store: lambda: store.session("a").take(),
    "alias": lambda store: lambda: store.session("a").alias("also-a"),
    "heal": _heal,
    "commit with alias": _commit_with_alias,
    "start a turn": _start_turn,
    "renew a turn": _renew_turn,
    "append in a turn": _append_in_turn,
    "take in a turn": _take_in_turn,
    "end a turn with open calls": _end_turn,
    "stop a turn with open calls": _stop_turn,
    "take over a dead turn": _take_turn_over,
    "pin": _pin,
    "unpin": _unpin,
    "note": _note,
    "undo with a turn and a compaction open": _undo,
    "redo": _redo,
    "rewind": _rewind,
    "fork": lambda store: lambda: store.session("a").fork(id="f"),
    "keep": _keep,
    "observe": _observe,
    "erase": _erase,
    "erase an input that waits": _erase_input,
    "delete": _delete,
    "take in": _take_in,
}

ONE_BY_ONE: dict[str, Callable[[Store], tuple[str, ...]]] = {
    "erase with forks": _erase_secret,
    "delete with forks": lambda store: store.delete("a").forks,
}
"""A transaction for each session: the one that was named, its fork, and the fork of that."""


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
        (_prepare_forks if name in ONE_BY_ONE else prepare)(str(original))
    for at in range(first, MOST):
        copy = Path(folder, f"{at:03}.db")
        if original.exists():
            shutil.copy(original, copy)
        returned = _returned_before_the_kill(partial(act, name, copy, at))
        say("killed", path=str(copy), returned=returned)
        if returned:
            return
    raise AssertionError(f"{name!r} has more than {MOST} statements")


def _returned_before_the_kill(act: Act) -> bool:
    """Runs an act in a fork of this process, which has no store open; whether it returned before the kill."""
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
    assert os.WIFSIGNALED(status), f"it was to be killed, but ended with {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return returned


def first_schema_only(path: str) -> None:
    """A store as the first version of its schema made it, with a session in it."""
    prepare(path)
    damage(
        Path(path),
        *(f"drop table {table}" for table in ("leases", "turn_leases", "tombstones")),
        *(f"drop index {index}" for index in ("marks", "forks_of_a_session")),
        *(f"alter table sessions drop column {name}" for name in ("turn", "parent", "forked_at", "aliases")),
        "alter table segments drop column rest",
        "update meta set value = '1' where name = 'min_writer'",
        "pragma user_version = 1",
    )


def open_at_once(path: str) -> None:
    """Opens a store together with others, and says what it found."""
    at_barrier()
    backend = SqliteBackend(path)
    store = Store(backend)
    session = store.session("a")
    say("opened", incarnation=store.incarnation, last=session.state.last)
    session.append({"role": "user", "content": "here"})
    store.close()


def take_at_once(path: str) -> None:
    """Takes an input together with others, and says what it got."""
    with Store(SqliteBackend(path)) as store:
        session = store.session("a")
        at_barrier()
        got: list[Any] = []
        while (taken := session.take()) is not None:
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
    claim = store.journal.claim("a", whoami())
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
    journal = session._journal
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
