"""What a cancelled await of `onefold.aio` leaves behind, wherever that was: nothing half done, and nothing to come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest

import onefold
from onefold import Store, SummaryInput, aio
from onefold.aio.threads import MOST, ThreadJob
from onefold.model import Claim, Json
from onefold.storage.base import Transaction
from tests.conftest import KINDS, said, who
from tests.support.helpers import PATIENCE, quick
from verification.operations import talk

ENOUGH = 300
"""More waits than any operation here has: an injection that never comes to an end fails."""

Work = Callable[[aio.Store, aio.Session], Coroutine[Any, Any, object]]


class Interrupted:
    """Awaits something, and cancels it as it is about to wait for the n-th time."""

    def __init__(self, work: Coroutine[Any, Any, object], at: int, cancel: Callable[[], object]) -> None:
        self._work = work
        self._left = at
        self._cancel = cancel
        self.reached = False

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                asked = step()
            except StopIteration as end:
                return end.value
            if self._left == 0:
                self.reached = True
                self._cancel()
            self._left -= 1
            try:
                given = yield asked
                step = partial(self._work.send, given)
            except BaseException as error:
                step = partial(self._work.throw, error)


class Ended(NamedTuple):
    reached: bool
    finished: bool
    result: object = None


async def cancelled_by_scope(work: Coroutine[Any, Any, object], at: int) -> Ended:
    with anyio.CancelScope() as scope:
        interrupted = Interrupted(work, at, scope.cancel)
        result = await interrupted
        return Ended(interrupted.reached, True, result)
    return Ended(True, False)


async def cancelled_by_task(work: Coroutine[Any, Any, object], at: int) -> Ended:
    """As `asyncio.timeout`, `asyncio.TaskGroup` and Ctrl-C do it: no scope of anyio knows of it."""

    async def run() -> object:
        return await interrupted

    task = asyncio.get_running_loop().create_task(run())
    interrupted = Interrupted(work, at, task.cancel)
    try:
        return Ended(interrupted.reached, True, await task)
    except asyncio.CancelledError:
        return Ended(True, False)


WAYS = {
    "asyncio scope": ("asyncio", cancelled_by_scope),
    "asyncio task": ("asyncio", cancelled_by_task),
    "trio scope": ("trio", cancelled_by_scope),
}


# ---------------------------------------------------------------------- what is cancelled


async def short(material: SummaryInput) -> str:
    await anyio.lowlevel.checkpoint()
    return f"{len(material.records)} messages"


def call(id: str) -> Json:
    function = {"name": "read", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}


async def append(store: aio.Store, session: aio.Session) -> object:
    return await session.append([said(n) for n in range(3)])


async def whole_turn(store: aio.Store, session: aio.Session) -> object:
    async with session.turn(owner="me") as turn:
        await turn.append(call("c1"))
        await turn.append({"role": "tool", "tool_call_id": "c1", "content": "read"})
    return None


async def begin_turn(store: aio.Store, session: aio.Session) -> object:
    return await session.turn(owner="me")


async def compact(store: aio.Store, session: aio.Session) -> object:
    return await session.compact(short, follow_up={"role": "user", "content": "go on"})


async def compact_in_a_thread(store: aio.Store, session: aio.Session) -> object:
    return await session.compact(onefold.extractive_summary)


async def read(store: aio.Store, session: aio.Session) -> object:
    return [r.number async for r in session.read()]


async def follow(store: aio.Store, session: aio.Session) -> object:
    return [r.number async for r in session.follow(idle=0.01)]


async def claim(store: aio.Store, session: aio.Session) -> object:
    await store.journal.request(session.id)
    return await store.journal.claim(session.id, who())


async def marks(store: aio.Store, session: aio.Session) -> object:
    await session.pin(2)
    await session.note("goal", "mend the build")
    await session.queue_input(said(1))
    await session.take_input()
    await session.alias(f"{session.id}-alias")
    return await session.context()


async def back_and_forth(store: aio.Store, session: aio.Session) -> object:
    await session.undo()
    await session.redo()
    await session.rewind(5)
    child = await session.fork(id=f"{session.id}-fork")
    await child.erase((await child.append(said(1))).numbers[0])
    return await store.delete(child.id)


async def looking(store: aio.Store, session: aio.Session) -> object:
    again = await store.session(f"{session.id}-new")
    states = [s.id async for s in store.sessions()]
    return again, states, await session.state, await session.head, await session.segments(), await store.verify()


WORKS: list[Work] = [
    append, whole_turn, begin_turn, compact, compact_in_a_thread, read, follow, claim, marks,
    back_and_forth, looking,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_wherever_an_operation_is_cancelled_nothing_is_half_done(
    work: Work, way: str, kind: str, tmp_path: Path
) -> None:
    backend, cancelled = WAYS[way]
    with onefold.open(KINDS[kind](tmp_path), policy=quick()) as store:

        async def at_every_wait() -> int:
            shared = aio.Store(store)
            for at in range(ENOUGH):
                store.session(f"s{at}").append(talk(12))
                session = await shared.session(f"s{at}")
                ended = await cancelled(work(shared, session), at)
                use_up(store, ended.result)
                nothing_is_left(store, shared, f"s{at}")
                whole(store, work, f"s{at}", ended)
                if not ended.reached:
                    assert ended.finished
                    return at
            raise AssertionError("it never ended")

        assert anyio.run(at_every_wait, backend=backend) > 0
        assert store.verify().findings == ()


def use_up(store: Store, result: object) -> None:
    """Who was handed a turn or a claim ends it."""
    if isinstance(result, aio.Turn):
        result._turn.end()
    if isinstance(result, Claim):
        store.journal.fail(result, "enough", 0.0)


def nothing_is_left(store: Store, shared: aio.Store, id: str) -> None:
    """No turn, no claim, nobody who waits: and what was begun is over, so that nothing comes later."""
    session = store.session(id)
    last = session.state.last
    assert session.open_turn() is None
    assert session.compaction_holder() is None
    if session.state.open is not None:
        assert store.journal.claimable(id, session.state.open) is None  # others need not wait for it
    assert store.journal.backend.read(lambda tx: tx.leases.get(id)) is None
    assert store.journal.backend.read(lambda tx: tx.turn_leases.get(id)) is None
    assert shared.notifier._listeners == set()
    assert session.state.last == last


def whole(store: Store, work: Work, id: str, ended: Ended) -> None:
    """What was acknowledged is there, and what was not is there whole or not at all."""
    session = store.session(id)
    kinds = [r.kind for r in session.read()]
    if work is append:
        assert session.state.messages in ((15,) if ended.finished else (12, 15))
    if work in (compact, compact_in_a_thread):
        assert kinds.count("compaction.committed") == kinds.count("segment.opened") - 1
        assert session.state.pending == (kinds.count("compaction.committed") if work is compact else 0)
        assert not ended.finished or kinds.count("compaction.committed") == 1
    if work in (whole_turn, begin_turn):
        assert kinds.count("turn.started") == kinds.count("turn.settled") <= 1
        said = [r.header for r in session.read() if r.header is not None]
        assert [c for h in said for c in h.call_ids] == [c for h in said for c in h.result_ids]
        assert not ended.finished or kinds.count("turn.settled") == 1
    if work is read and ended.finished:
        assert ended.result == list(range(1, 14))


@pytest.mark.parametrize("way", WAYS)
def test_wherever_opening_a_store_is_cancelled_no_store_is_left_open(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, cancelled = WAYS[way]
    opened: list[onefold.Store] = []
    open = onefold.store.open

    def noted(*args: Any, **options: Any) -> onefold.Store:
        opened.append(open(*args, **options))
        return opened[-1]

    monkeypatch.setattr("onefold.store.open", noted)

    async def use() -> object:
        async with aio.open(tmp_path / "agent.db") as store:
            session = await store.session("s")
            await session.turn()
        return None

    async def keep() -> object:
        store = await aio.open(tmp_path / "agent.db")
        with anyio.CancelScope(shield=True):
            await store.close()
        return None

    async def at_every_wait(work: Callable[[], Coroutine[Any, Any, object]]) -> int:
        for at in range(ENOUGH):
            ended = await cancelled(work(), at)
            for store in opened:
                with pytest.raises(onefold.StoreError, match="closed"):
                    store.session("s")
            if not ended.reached:
                return at
        raise AssertionError("it never ended")

    for work in (use, keep):
        assert anyio.run(at_every_wait, work, backend=backend) > 0
    with open(tmp_path / "agent.db") as store:
        assert store.session("s").open_turn() is None
        assert store.verify().findings == ()


# ---------------------------------------------------------------------- writes


class Gate:
    """Holds the writes of a store inside of their transaction until it is opened."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self.log: list[str] = []
        backend = store.journal.backend
        write = backend.write

        def held(session: str, work: Callable[[Transaction], Any], *, size: int = 0) -> Any:
            def waiting(tx: Transaction) -> Any:
                self.inside.set()
                assert self.go.wait(PATIENCE)
                return work(tx)

            result = write(session, waiting, size=size)
            self.log.append("written")
            return result

        monkeypatch.setattr(backend, "write", held)

    async def entered(self) -> None:
        await anyio.to_thread.run_sync(self.inside.wait, PATIENCE)

    async def open_soon(self) -> None:
        """Leaves whoever was cancelled every chance to go away first."""
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        self.log.append("opened")
        self.go.set()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_write_under_way_is_over_before_its_cancellation_goes_on(
    store: Store, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.session("s")
    gate = Gate(store, monkeypatch)

    async def main() -> None:
        session = await aio.Store(store).session("s")
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                with anyio.CancelScope() as scope:
                    tasks.start_soon(cancel, scope)
                    done = await session.append(said(1))
                    gate.log.append(f"acknowledged {done.numbers[0]}")
                    await anyio.lowlevel.checkpoint()
                    gate.log.append("not reached")
                gate.log.append("cancelled")

            async def cancel(scope: anyio.CancelScope) -> None:
                await gate.entered()
                scope.cancel()
                await gate.open_soon()

            tasks.start_soon(write)

    anyio.run(main, backend=backend)

    assert gate.log == ["opened", "written", "acknowledged 2", "cancelled"]


def test_a_write_under_way_is_over_before_a_cancelled_task_of_asyncio_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.session("s")
    gate = Gate(store, monkeypatch)

    async def main() -> None:
        session = await aio.Store(store).session("s")

        async def write() -> None:
            try:
                await session.append(said(1))
            finally:
                gate.log.append("cancelled")

        task = asyncio.create_task(write())
        await gate.entered()
        for _ in range(3):  # however impatient
            task.cancel()
            await asyncio.sleep(0)
        await gate.open_soon()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert gate.log == ["opened", "written", "cancelled"]
    assert store.session("s").state.messages == 1


def test_a_call_that_was_withdrawn_is_not_made_by_the_thread_that_comes_to_it() -> None:
    made: list[str] = []
    early, late = ThreadJob(lambda: made.append("early")), ThreadJob(lambda: made.append("late"))

    assert early.withdraw()
    early.run()
    late.run()
    assert not late.withdraw()

    assert made == ["late"]


@pytest.mark.parametrize("way", WAYS)
def test_who_is_cancelled_in_line_for_a_thread_writes_nothing_but_ends_its_turn(
    way: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, _ = WAYS[way]
    store.session("s")

    async def main() -> None:
        session = await aio.Store(store).session("s")
        turn = await session.turn()
        gate = Gate(store, monkeypatch)
        async with anyio.create_task_group() as tasks:
            for n in range(MOST):
                tasks.start_soon(session.append, said(n))
            await gate.entered()
            waiting = [Impatient(way, session.append(said(99))), Impatient(way, turn.__aexit__(None, None, None))]
            for one in waiting:
                tasks.start_soon(one.run)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            for one in waiting:
                one.cancel()
            await gate.open_soon()

    anyio.run(main, backend=backend)

    assert store.session("s").state.messages == MOST
    assert store.session("s").open_turn() is None


class Impatient:
    """Awaits something, until it is cancelled by a scope or as a task."""

    def __init__(self, way: str, work: Coroutine[Any, Any, object]) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[object] | None = None
        self._natively = way == "asyncio task"

    async def run(self) -> None:
        if self._natively:
            self._task = asyncio.ensure_future(self._work)
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        else:
            with self._scope:
                await self._work

    def cancel(self) -> None:
        self._scope.cancel()
        if self._task is not None:
            self._task.cancel()


def test_a_timeout_of_asyncio_leaves_no_cancellation_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.session("s").append(talk(12))

    async def main() -> None:
        session = await aio.Store(store).session("s")
        for wait in (partial(anext, session.follow(13)), partial(first_turn, session)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await wait()
            await asyncio.sleep(0)
        assert (await session.append(said(1))).numbers

    async def first_turn(session: aio.Session) -> None:
        async with session.turn():
            await anyio.sleep_forever()

    asyncio.run(main())

    assert store.session("s").open_turn() is None


# ---------------------------------------------------------------------- compactions


pytest_backends = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class Slow:
    """An async summarizer that waits for ever, and says when it began and when it ended."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.ended = False

    async def __call__(self, material: SummaryInput) -> str:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = True
        raise AssertionError


@pytest.fixture
def shared(store: Store) -> aio.Store:
    return aio.Store(store)


@pytest.fixture
async def session(shared: aio.Store) -> aio.Session:
    session = await shared.session("s")
    await session.append(talk(12))
    return session


@pytest.mark.anyio
@pytest_backends
async def test_a_cancelled_compaction_is_handed_back_and_its_summarizer_stopped(
    store: Store, session: aio.Session
) -> None:
    slow = Slow()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.compact, slow)
        await slow.begun.wait()
        tasks.cancel_scope.cancel()

    assert slow.ended
    [left] = store.session("s").compactions()
    assert (left.state, left.cause) == ("requested", "its caller was interrupted")
    assert store.session("s").compact(lambda material: "short").applied


@pytest.mark.anyio
@pytest_backends
async def test_a_sync_summarizer_of_a_cancelled_compaction_is_not_waited_for_and_writes_nothing(
    store: Store, session: aio.Session
) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(material: SummaryInput) -> str:
        begun.set()
        assert go.wait(PATIENCE)
        return "too late"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.compact, slow)
        await anyio.to_thread.run_sync(begun.wait, PATIENCE)
        tasks.cancel_scope.cancel()
    last = store.session("s").state.last
    go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("onefold-compact"):
            thread.join(PATIENCE)

    assert store.session("s").state.last == last
    assert store.session("s").compaction_holder() is None


@pytest.mark.anyio
@pytest_backends
async def test_who_only_waits_for_a_compaction_leaves_it_alone(store: Store, shared: aio.Store) -> None:
    session = await shared.session("s")
    await session.append(talk(12))
    slow = Slow()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.compact, slow)
        await slow.begun.wait()
        waiter = await shared.session("s")
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(waiter.compact, short)
            async for record in session.follow():
                if record.kind == "compaction.joined":
                    break
            waiting.cancel_scope.cancel()

        [running] = await session.compactions()
        assert (running.state, running.requests) == ("running", 2)
        assert await session.compaction_holder() is not None
        assert not slow.ended
        tasks.cancel_scope.cancel()


def test_an_attempt_that_is_handed_back_as_it_commits_is_one_or_the_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is held in its transaction while its caller is cancelled: the cancellation waits for it."""
    store.session("s").append(talk(12))
    inside, go = threading.Event(), threading.Event()
    commit = store.journal.commit

    def held(*args: Any, **options: Any) -> Any:
        inside.set()
        assert go.wait(PATIENCE)
        return commit(*args, **options)

    monkeypatch.setattr(store.journal, "commit", held)

    async def main() -> list[str]:
        session = await aio.Store(store).session("s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.compact, short)
            await anyio.to_thread.run_sync(inside.wait, PATIENCE)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)  # time enough to hand it back, if that were possible now
                go.set()
        return [r.kind async for r in session.read(14)]

    kinds = anyio.run(main)

    assert kinds == ["compaction.requested", "compaction.started", "compaction.committed", "segment.opened"]
    assert [r.kind for r in store.session("s").read(14)] == kinds


# ---------------------------------------------------------------------- turns


@pytest.mark.anyio
@pytest_backends
async def test_a_block_that_is_cancelled_settles_its_turn_and_answers_its_calls(
    store: Store, session: aio.Session
) -> None:
    async with anyio.create_task_group() as tasks:
        written = anyio.Event()

        async def work() -> None:
            async with session.turn(owner="me") as turn:
                await turn.append(call("c1"))
                written.set()
                await anyio.sleep_forever()

        tasks.start_soon(work)
        await written.wait()
        tasks.cancel_scope.cancel()

    last = list(store.session("s").read(14))
    assert [r.kind for r in last] == ["turn.started", "message", "message", "turn.settled"]
    assert last[2].body["tool_call_id"] == "c1"
    assert last[3].body["outcome"] == "cancelled"


@pytest.mark.anyio
@pytest_backends
async def test_who_is_cancelled_while_it_waits_for_a_turn_begins_none_later(
    store: Store, shared: aio.Store, session: aio.Session
) -> None:
    async with session.turn(owner="first"):
        with anyio.move_on_after(0.02):
            async with (await shared.session("s")).turn(owner="second"):
                raise AssertionError("it began")
    turn = await session.turn(owner="third", wait=False)
    await turn.end()

    owners = [r.body["owner"] for r in store.session("s").read() if r.kind == "turn.started"]
    assert owners == ["first", "third"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_turn_that_begins_as_its_caller_is_cancelled_is_not_handed_out_but_ended(
    store: Store, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.session("s")
    gate = Gate(store, monkeypatch)

    async def main() -> None:
        session = await aio.Store(store).session("s")
        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                await session.turn()
                gate.log.append("handed out")

            tasks.start_soon(begin)
            await gate.entered()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await gate.open_soon()

    anyio.run(main, backend=backend)

    assert "handed out" not in gate.log
    ends = [(r.kind, r.body.get("outcome")) for r in store.session("s").read(2)]
    assert ends == [("turn.started", None), ("turn.settled", "cancelled")]


# ---------------------------------------------------------------------- long work


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_verify_and_a_cancelled_backup_stop_early_and_leave_no_file(way: str, tmp_path: Path) -> None:
    backend, _ = WAYS[way]
    with onefold.open(tmp_path / "agent.db") as store:
        for n in range(50):
            store.session(f"s{n}").append({"role": "user", "content": "x" * 500_000})

        async def stopped(work: Callable[..., Awaitable[object]]) -> int:
            heard = 0

            def hear(*_: object) -> None:
                nonlocal heard
                heard += 1
                stop()

            if way == "asyncio task":
                task = asyncio.ensure_future(work(progress=hear))
                stop: Callable[[], object] = task.cancel
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with anyio.CancelScope() as scope:
                    stop = scope.cancel
                    await work(progress=hear)
                    await anyio.lowlevel.checkpoint()
                assert scope.cancelled_caught
            return heard

        async def main() -> list[int]:
            shared = aio.Store(store)
            return [await stopped(shared.verify), await stopped(partial(shared.backup, tmp_path / "copy.db"))]

        heard = anyio.run(main, backend=backend)

        assert heard[0] < 5
        assert not list(tmp_path.glob("copy.db*"))
        assert store.verify().healthy
