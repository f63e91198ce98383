"""A holder that died on this machine is known at once, and what is not certain is left to its lease."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import anyio
import pytest

import onefold
from onefold import Compactor, Limits, Session, Store, SummaryInput, TurnBusy, aio
from onefold.compaction.holder import this_process
from onefold.journal import turns
from onefold.journal.leases import GLANCE, patience
from onefold.journal.process_liveness import MACHINE, Linux, Whereabouts
from onefold.model import ClaimDenied, Json, TurnClaim
from onefold.storage.base import Transaction
from onefold.worker import Worker
from tests.support.helpers import PATIENCE, ROOT, Child, await_record, converse, kinds, quick

T = TypeVar("T")

AT_ONCE = 1.0
"""Seconds in which a death is known, and somebody else at work."""
LEASES = {"lease": 60.0, "lease_renew_interval": 15.0, "attempt_timeout": 600.0, "turn_lease": 30.0}
"""As they are by default."""

# ---------------------------------------------------------------------- what a machine knows: of a /proc made up here


def stat(pid: int, state: str = "S", *, threads: int = 1, start: int = 500, name: str = "agent") -> str:
    """A line as Linux has it: 52 fields, the third is the state, the 20th the threads, the 22nd the start."""
    words = [str(pid), f"({name})", state, *["0"] * 16, str(threads), "0", str(start), *["7"] * 30]
    return " ".join(words) + "\n"


@dataclass
class MadeUp:
    """A machine with two processes: this one, and number 4711, which began at 500."""

    root: Path
    boot: str = "6ebfe192-9fcf-4854-a18d-b1557fe83210"
    answers: int | None = None
    """What a signal to a process fails with; None if it can be sent."""

    def __post_init__(self) -> None:
        me = self.root / str(os.getpid())
        (me / "ns").mkdir(parents=True)
        (self.root / "self").symlink_to(me.name)
        (me / "ns/pid").write_text("")
        (me / "ns/time").write_text("")
        (me / "stat").write_text(stat(os.getpid(), start=100))
        kernel = self.root / "sys/kernel/random"
        kernel.mkdir(parents=True)
        (kernel / "boot_id").write_text(self.boot + "\n")
        (self.root / "4711").mkdir()
        (self.root / "4711/stat").write_text(stat(4711))

    def machine(self) -> Linux:
        return Linux(self.root, self._kill)

    def _kill(self, pid: int, signal: int) -> None:
        assert (pid, signal) == (4711, 0)
        if self.answers is not None:
            raise OSError(self.answers, os.strerror(self.answers))

    def other_space(self, name: str) -> None:
        there = self.root / "self/ns" / name
        there.rename(there.with_suffix(".before"))  # so that its number is not used again
        there.write_text("")


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "proc")


def holder(made_up: MadeUp, **changed: Json) -> Json:
    """Process 4711, as its claim named it."""
    return {**made_up.machine().this(), "pid": 4711, "start": 500, **changed}


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (stat(4711), "here"),
        (stat(4711, "R", name="a (b) Z 1) "), "here"),
        (stat(4711, "T"), "here"),
        (stat(4711, "t"), "here"),
        (stat(4711, "D"), "here"),
        (stat(4711, "Z"), "gone"),
        (stat(4711, "Z", threads=0), "gone"),
        (stat(4711, "X"), "gone"),
        (stat(4711, "Z", threads=2), "here"),
        (stat(4711, start=501), "gone"),
        (stat(4711, start=499), "gone"),
        ("", "here"),
        ("4711 (agent) S 1", "here"),
        (stat(4711).replace("500", "later"), "here"),
    ],
    ids=[
        "lives", "has an odd name", "is stopped", "is traced", "waits for a disk", "was not waited for",
        "is being waited for", "is about to vanish", "lost its first thread", "is a later one of that number",
        "is an earlier one", "says nothing", "says too little", "says nonsense",
    ],
)  # fmt: skip
def test_a_process_is_gone_only_if_that_is_certain(made_up: MadeUp, line: str, where: Whereabouts) -> None:
    process = holder(made_up)
    (made_up.root / "4711/stat").write_text(line)

    assert made_up.machine().whereabouts(process) == where


@pytest.mark.parametrize(
    ("answers", "where"),
    [(errno.ESRCH, "gone"), (errno.EPERM, "here"), (errno.EINVAL, "here"), (None, "here")],
    ids=["there is none", "it is hidden, and another user's", "nobody knows", "it is hidden"],
)
def test_what_proc_does_not_show_is_gone_only_if_there_is_no_such_process(
    made_up: MadeUp, answers: int | None, where: Whereabouts
) -> None:
    made_up.answers = answers
    process = holder(made_up)
    (made_up.root / "4711/stat").unlink()

    assert made_up.machine().whereabouts(process) == where


def test_what_cannot_be_read_is_not_gone(made_up: MadeUp) -> None:
    made_up.answers = errno.ESRCH
    process = holder(made_up)
    (made_up.root / "4711/stat").unlink()
    (made_up.root / "4711/stat").mkdir()

    assert made_up.machine().whereabouts(process) == "here"


@pytest.mark.parametrize("other", ["boot", "pid", "time"])
def test_another_boot_or_namespace_is_elsewhere(made_up: MadeUp, other: str) -> None:
    """There the same number may be another process, or the same start told otherwise."""
    made_up.answers = errno.ESRCH
    process = holder(made_up)
    (made_up.root / "4711/stat").unlink()
    if other == "boot":
        (made_up.root / "sys/kernel/random/boot_id").write_text("another\n")
    else:
        made_up.other_space(other)

    assert made_up.machine().whereabouts(process) == "elsewhere"


def test_an_older_kernel_without_time_namespaces_knows_its_processes(made_up: MadeUp) -> None:
    (made_up.root / "self/ns/time").unlink()
    process = holder(made_up)
    (made_up.root / "4711/stat").write_text(stat(4711, "Z"))

    assert made_up.machine().whereabouts(process) == "gone"


@pytest.mark.parametrize("missing", ["self", "self/ns/pid", "sys/kernel/random/boot_id", "self/stat"])
def test_a_machine_that_does_not_show_enough_knows_nobody(made_up: MadeUp, missing: str) -> None:
    process = holder(made_up)
    (made_up.root / "4711/stat").write_text(stat(4711, "Z"))
    (made_up.root / missing).unlink()

    assert made_up.machine().this() is None
    assert made_up.machine().whereabouts(process) == "elsewhere"


def test_a_proc_of_another_namespace_counts_for_nothing(made_up: MadeUp) -> None:
    """As in a container that is shown its host's: its own number there is another one."""
    process = holder(made_up)
    (made_up.root / "4711/ns").symlink_to(made_up.root / str(os.getpid()) / "ns")
    (made_up.root / "self").unlink()
    (made_up.root / "self").symlink_to("4711")

    assert made_up.machine().this() is None
    assert made_up.machine().whereabouts(process) == "elsewhere"


@pytest.mark.parametrize(
    "changed",
    [{"pid": "4711"}, {"pid": 0}, {"pid": -1}, {"pid": True}, {"pid": 1 << 40}, {"start": None}, {"machine": 7}],
    ids=str,
)
def test_a_process_that_is_none_is_elsewhere(made_up: MadeUp, changed: dict[str, Json]) -> None:
    (made_up.root / "4711/stat").write_text(stat(4711, "Z"))

    assert made_up.machine().whereabouts(holder(made_up, **changed)) == "elsewhere"
    nonsense: Json
    for nonsense in (None, {}, [], "4711", {"machine": made_up.machine().this()["machine"]}):
        assert made_up.machine().whereabouts(nonsense) == "elsewhere"


# ---------------------------------------------------------------------- the same of real processes


def test_a_real_process_is_here_until_it_is_dead_reaped_or_not() -> None:
    with Child("live", module="tests.support.death_children") as child:
        process = child.hear("living")["process"]
        assert process["pid"] == child.pid
        assert MACHINE.whereabouts(process) == "here"
        child.stop()
        assert MACHINE.whereabouts(process) == "here"
        child.die()
        assert MACHINE.whereabouts(process) == "gone"
        child.kill()
        assert MACHINE.whereabouts(process) == "gone"


def test_a_process_whose_first_thread_ended_is_alive_while_another_goes_on() -> None:
    with Child("live_without_its_first_thread", module="tests.support.death_children") as child:
        process = child.hear("living")["process"]
        assert f"{child.pid} (" in (line := Path(f"/proc/{child.pid}/stat").read_text())
        assert ") Z " in line
        assert MACHINE.whereabouts(process) == "here"
        child.kill()
        assert MACHINE.whereabouts(process) == "gone"


def test_a_forked_child_is_another_process() -> None:
    with Child("fork_and_tell", module="tests.support.death_children") as parent:
        told = parent.hear("told")

        assert told["process"]["machine"] == told["child"]["machine"] == MACHINE.this()["machine"]
        assert told["process"]["pid"] == parent.pid != told["child"]["pid"]
        assert MACHINE.whereabouts(told["child"]) == "gone"


_TELL = "import json; from onefold.journal.process_liveness import MACHINE; print(json.dumps(MACHINE.this()))"


@pytest.mark.parametrize(
    ("space", "which"), [(["--pid", "--mount-proc"], "pid"), (["--time", "--boottime", "1000"], "time")], ids=str
)
def test_a_process_in_a_namespace_of_its_own_is_elsewhere(made_up: MadeUp, space: list[str], which: str) -> None:
    """Where no namespace can be made, as without the rights for it, one that is made up has to do."""
    try:
        ran = subprocess.run(
            ["unshare", *space, "--fork", sys.executable, "-c", _TELL],
            cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        here, process = MACHINE, json.loads(ran.stdout)
    except (OSError, subprocess.CalledProcessError):
        process = made_up.machine().this()
        made_up.other_space(which)
        here = made_up.machine()

    assert process["machine"] != here.this()["machine"]
    assert here.whereabouts(process) == "elsewhere"


def test_who_waits_for_a_process_of_this_machine_looks_now_and_then_and_for_others_when_the_lease_ends() -> None:
    assert patience(ClaimDenied("held", 1060.0), 1000.0) == pytest.approx(60.001)
    assert patience(ClaimDenied("held", 1060.0, near=True), 1000.0) == GLANCE
    assert patience(ClaimDenied("held", 1000.1, near=True), 1000.0) == pytest.approx(0.101)
    assert patience(ClaimDenied("held", 999.0), 1000.0) == pytest.approx(0.001)


# ---------------------------------------------------------------------- holders that die


class Waiting(Generic[T]):
    """A call in a thread of its own. `Waiting` is there once the call really waits for the store to move on."""

    def __init__(self, store: Store, call: Callable[[], T], monkeypatch: pytest.MonkeyPatch) -> None:
        there = threading.Event()
        backend = store.journal.backend
        wait = backend.wait

        def noticed(version: int, timeout: float) -> None:
            there.set()
            wait(version, timeout)

        def run() -> None:
            try:
                self._got.append(call())
            except BaseException as error:
                self._got.append(error)

        self._got: list[T | BaseException] = []
        monkeypatch.setattr(backend, "wait", noticed)
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert there.wait(PATIENCE)

    def __enter__(self) -> Waiting[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(PATIENCE)

    def answer(self) -> T:
        self._thread.join(PATIENCE)
        assert self._got, "it still waits"
        (got,) = self._got
        if isinstance(got, BaseException):
            raise got
        return got


@pytest.fixture
def store(durable: str) -> Iterator[Store]:
    with onefold.open(durable, policy=quick(**LEASES)) as opened:
        yield opened
        assert opened.verify().findings == ()


@pytest.fixture
def session(store: Store) -> Session:
    session = store.session("s")
    converse(session, 20)
    return session


def holding(store: Store, **arguments: Any) -> Child:
    return Child("hold", path=store.address, session="s", **{"policy": LEASES, **arguments})


def writing(store: Store) -> Child:
    return Child(
        "puppet", module="tests.support.turn_children", path=store.address, session="s", owner="dead", policy=LEASES
    )


class Summarizer:
    """Notes when it was called."""

    def __init__(self) -> None:
        self.at = 0.0
        self.attempts: list[int] = []

    def __call__(self, material: SummaryInput) -> str:
        self.at = time.monotonic()
        self.attempts.append(material.attempt)
        return "made after the death"


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "not waited for"])
def test_whoever_waits_takes_a_killed_holders_compaction_over_at_once(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch, reaped: bool
) -> None:
    summarise = Summarizer()
    with holding(store) as dead:
        dead.hear("summarizing")
        with Waiting(store, lambda: session.compact(summarise), monkeypatch) as waiting:
            (dead.kill if reaped else dead.die)()
            died = time.monotonic()
            result = waiting.answer()
        assert session.compaction_holder() is None

    assert summarise.at - died < AT_ONCE
    assert (result.state, result.applied, summarise.attempts) == ("committed", True, [2])
    assert kinds(session, 22) == [
        "compaction.requested", "compaction.started", "compaction.joined", "compaction.started",
        "compaction.committed", "segment.opened",
    ]  # fmt: skip


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "not waited for"])
def test_whoever_waits_takes_a_killed_writers_turn_over_at_once(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch, reaped: bool
) -> None:
    began: list[float] = []

    def begin() -> int:
        with session.turn(owner="next", wait=PATIENCE) as turn:
            began.append(time.monotonic())
            return turn.number

    with writing(store) as dead:
        dead.say("begin")
        number = dead.hear("begin")["number"]
        with Waiting(store, begin, monkeypatch) as waiting:
            (dead.kill if reaped else dead.die)()
            died = time.monotonic()
            waiting.answer()

    assert began[0] - died < AT_ONCE
    assert kinds(session, number) == ["turn.started", "turn.settled", "turn.started", "turn.settled"]
    ended = next(session.read(number + 1))
    assert (ended.body["outcome"], ended.body["cause"][:20]) == ("interrupted", "its process is gone:")
    assert f"process {dead.pid} on" in ended.body["cause"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_program_does_the_same(store: Store, session: Session, backend: str) -> None:
    summarise = Summarizer()

    async def both(compacting: Child, writer: Child) -> float:
        handle = await aio.Store(store).session("s")
        died = began = 0.0

        async def begin() -> None:
            nonlocal began
            async with handle.turn(wait=PATIENCE):
                began = time.monotonic()

        async def kill() -> None:
            nonlocal died
            await anyio.to_thread.run_sync(await_record, session, "compaction.joined")
            compacting.kill()
            writer.kill()
            died = time.monotonic()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            tasks.start_soon(begin)
            await handle.compact(summarise)
        assert summarise.at - died < AT_ONCE
        return began - died

    with holding(store) as compacting, writing(store) as writer:
        compacting.hear("summarizing")
        writer.say("begin")
        writer.hear("begin")
        took = anyio.run(both, compacting, writer, backend=backend)

    assert took < AT_ONCE
    assert summarise.attempts == [2]


def test_a_worker_takes_over_at_once(store: Store, session: Session) -> None:
    summarise, stop = Summarizer(), threading.Event()
    working = threading.Thread(target=Worker(store, summarise, upkeep=None).run, args=(stop,))
    with holding(store) as dead:
        dead.hear("summarizing")
        working.start()
        dead.kill()
        died = time.monotonic()
        await_record(session, "compaction.committed")
        stop.set()
        working.join(PATIENCE)

    assert summarise.at - died < AT_ONCE
    assert summarise.attempts == [2]


def test_a_worker_that_runs_once_does_what_a_dead_one_left(store: Store, session: Session) -> None:
    with holding(store) as dead:
        dead.hear("summarizing")
        dead.kill()

    ended = Worker(store, Summarizer(), upkeep=None).run(threading.Event(), once=True)

    assert ended.committed == 1


def test_an_agent_over_its_hard_limit_does_not_wait_for_a_dead_one(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarise = Summarizer()
    room = Limits(window=session.context().tokens, output=0)
    compactor = Compactor(store, summarise, quick(**LEASES, limits=room))
    with holding(store) as dead:
        dead.hear("summarizing")
        with Waiting(store, lambda: compactor.before_turn(session), monkeypatch) as waiting:
            dead.kill()
            died = time.monotonic()
            context = waiting.answer()

    assert summarise.at - died < AT_ONCE
    assert context.summary == "made after the death"


@pytest.mark.parametrize("who", ["asks", "claims", "looks for work", "waits"])
def test_a_last_attempt_whose_process_is_gone_has_failed_at_once(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    with holding(store, policy={**LEASES, "attempts": 1}) as dead:
        dead.hear("summarizing")
        if who == "waits":
            with Waiting(store, lambda: session.compact(Summarizer()), monkeypatch) as waiting:
                dead.kill()
                died = time.monotonic()
                result = waiting.answer()
            assert time.monotonic() - died < AT_ONCE
            assert (result.state, result.changed) == ("failed", False)
        dead.kill()

    (old,) = session.compactions()
    if who == "claims":
        assert store.journal.claim("s", this_process()) == ClaimDenied("nothing open")
    elif who == "looks for work":
        assert store.journal.claim_next(this_process()) is None
    elif who == "asks":
        assert session.compact(Summarizer()).applied
    failed = store.journal.compaction("s", old.id)
    assert (failed.state, failed.attempts) == ("failed", 1)
    assert str(dead.pid) in str(failed.cause)
    assert session.state.open is None


def test_nothing_says_compacting_or_in_a_turn_after_a_death(store: Store, session: Session) -> None:
    with holding(store, agent="writer") as compacting, writing(store) as writer:
        compacting.hear("summarizing")
        writer.say("begin")
        writer.hear("begin")
        held, there = session.compaction_holder(), session.open_turn()
        compacting.die()
        writer.die()

        assert held is not None
        assert (held.pid, held.agent) == (compacting.pid, "writer")
        assert session.compaction_holder() is None
        assert there is not None
        assert there.until > time.time()
        dead = session.open_turn()
        assert dead is not None
        assert dead.until <= time.time()


def test_a_process_that_only_stands_still_is_not_dead(store: Store, session: Session) -> None:
    summarise = Summarizer()
    with holding(store, text="by the one that stood still") as still, writing(store) as writer:
        still.hear("summarizing")
        writer.say("begin")
        writer.hear("begin")
        still.stop()
        writer.stop()

        assert session.compact(summarise, wait=3 * GLANCE).state == "running"
        assert session.compaction_holder() is not None
        with pytest.raises(TurnBusy):
            session.turn(wait=3 * GLANCE)

        still.resume()
        writer.resume()
        writer.say("end")
        assert writer.hear("end")["error"] is None
        still.say("finish")
        assert still.hear("done")["result"]["applied"]
    assert summarise.attempts == []
    assert session.context().summary == "by the one that stood still"


def test_one_that_is_called_dead_and_lives_costs_a_summary_and_nothing_else(store: Store, session: Session) -> None:
    """Should a machine ever be wrong: the lease never decided who is right."""

    class Wrong(Linux):
        def whereabouts(self, process: Json) -> Whereabouts:
            return "gone"

    store.journal.leases.machine = Wrong()
    with holding(store, text="too late") as alive, writing(store) as writer:
        alive.hear("summarizing")
        writer.say("begin")
        writer.hear("begin")
        assert session.compact(Summarizer()).applied
        with session.turn(wait=False) as turn:
            turn.append({"role": "user", "content": "one writer at a time"})
            writer.say("append", messages={"role": "user", "content": "too late"})
            assert writer.hear("append")["error"] == "TurnLost"
        last = session.state.last
        alive.say("finish")
        assert not alive.hear("done")["result"]["applied"]

    assert session.state.last == last
    assert len(session.segments()) == 2


class Dying(Linux):
    """On this machine a process dies between two looks at it: after so many."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def whereabouts(self, process: Json) -> Whereabouts:
        self.looks -= 1
        return "here" if self.looks >= 0 else "gone"


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("leases", ["there", "lost"])
def test_whoever_found_it_alive_looks_again_soon_though_it_dies_in_the_middle_of_the_look(
    store: Store, session: Session, attempts: int, leases: str
) -> None:
    asked = store.journal.request("s", attempts=attempts).compaction
    assert asked is not None
    store.journal.claim("s", this_process())
    turn = turns.start(store.journal, "s", this_process())
    assert isinstance(turn, TurnClaim)

    def lose(tx: Transaction) -> None:
        tx.leases.drop("s")
        tx.turn_leases.drop("s")

    if leases == "lost":
        store.journal.backend.write("s", lose)

    for looks in range(4):
        store.journal.leases.machine = Dying(looks)
        to_claim = store.journal.claimable("s", asked.id)
        store.journal.leases.machine = Dying(looks)
        to_write = turns.held(store.journal, "s")
        assert all(held is None or held.near for held in (to_claim, to_write))
    turns.end(store.journal, turn)


# ---------------------------------------------------------------------- what the records say


def test_records_of_an_older_program_are_left_to_their_lease(store: Store, session: Session) -> None:
    """They have no process beside the holder, and their holders may be anywhere."""
    leases = store.journal.leases
    named = {"holder": leases.holder(this_process())["holder"]}
    leases.holder = lambda who: named  # type: ignore[method-assign]
    store.journal.request("s")
    claim = store.journal.claim("s", this_process())
    turn = turns.start(store.journal, "s", this_process())

    assert not isinstance(claim, ClaimDenied)
    assert isinstance(turn, TurnClaim)
    assert session.compaction_holder() is not None
    assert isinstance(turns.held(store.journal, "s"), ClaimDenied)
    assert store.journal.claim("s", this_process()) == ClaimDenied("held", claim.until)
    turns.end(store.journal, turn)


def test_the_process_stands_beside_the_holder_where_older_programs_pass_it_over(store: Store, session: Session) -> None:
    store.journal.request("s")
    store.journal.claim("s", this_process())
    with session.turn():
        pass

    for record in (r for r in session.read() if r.kind in ("compaction.started", "turn.started")):
        assert set(record.body["holder"]) == {"host", "pid", "thread", "agent", "nonce"}
        assert record.body["process"] == MACHINE.this()
