"""`onefold.aio`: the same library, awaited. Under asyncio and trio, on every kind of store."""

from __future__ import annotations

import contextvars
import dataclasses
import gc
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

import onefold
from onefold import Store, SummaryInput, aio
from onefold.aio.notifier import ChangeNotifier
from onefold.aio.threads import MOST
from onefold.journal.journal import Journal
from onefold.journal.reader import WaitFor
from tests.conftest import said, who
from tests.support.helpers import PATIENCE, contents, quick
from tests.support.public_names import ATTRIBUTES, METHODS, PLANS
from verification.operations import talk

BACKENDS = ["asyncio", "trio"]
CLASSES = [(onefold.Store, aio.Store), (onefold.Session, aio.Session), (onefold.Turn, aio.Turn), (Journal, aio.Journal)]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def astore(store: Store) -> aio.Store:
    """An async store over the sync one of this test, through which the test looks at what was done."""
    return aio.Store(store)


@pytest.fixture
async def asession(astore: aio.Store) -> aio.Session:
    """A session with twelve messages, records 2 to 13."""
    session = await astore.session("s")
    await session.append(talk(12))
    return session


async def short(material: SummaryInput) -> str:
    await anyio.lowlevel.checkpoint()
    return f"{len(material.records)} messages, up to #{material.records[-1].number}"


async def first(records: AsyncIterator[onefold.Record], kind: str) -> onefold.Record:
    with anyio.fail_after(PATIENCE):
        async for record in records:
            if record.kind == kind:
                return record
    raise AssertionError(f"no {kind} came")


# ---------------------------------------------------------------------- the same names


def members(thing: type) -> dict[str, Any]:
    """What a class offers; of the journal, what is no part of a rule's inside."""
    within = METHODS | PLANS
    public = {n: member for n, member in vars(thing).items() if not n.startswith("_") and n not in within}
    if thing is Journal:
        inner = {n for n, m in public.items() if "tx" in inspect.signature(m).parameters} | {"draft"}
        public = {name: member for name, member in public.items() if name not in inner}
    return public


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(function).parameters.values()]


def returned(annotation: str) -> str:
    """What is given in the end, whichever way it is waited for."""
    for way in ("AsyncIterator", "Iterator", "AwaitableValue", "AsyncOpen"):
        if annotation.startswith(f"{way}["):
            return annotation.removeprefix(f"{way}[").removesuffix("]")
    return annotation


@pytest.mark.parametrize(("sync", "awaited"), CLASSES)
def test_every_member_of_the_sync_class_is_there_with_the_same_arguments_and_results(sync: type, awaited: type) -> None:
    mine = members(awaited)

    assert set(members(sync)) - set(mine) == set()
    for name, member in members(sync).items():
        assert inspect.getdoc(mine[name]) or not inspect.getdoc(member), name
        if isinstance(member, property):
            assert isinstance(mine[name], property), name
            given = [returned(p.__annotations__["return"]) for p in (member.fget, mine[name].fget)]
            assert given[0] == given[1], name
            continue
        assert parameters(mine[name]) == parameters(member), name
        given = [returned(inspect.signature(f).return_annotation) for f in (member, mine[name])]
        assert given[0] == given[1], name
        if inspect.signature(member).return_annotation.startswith("Iterator["):
            assert not inspect.iscoroutinefunction(mine[name]), name
        else:
            once = inspect.signature(mine[name]).return_annotation.startswith("AsyncOpen[")
            assert inspect.iscoroutinefunction(mine[name]) or once, name


@pytest.mark.parametrize(("sync", "awaited"), CLASSES)
def test_there_is_nothing_that_the_sync_class_does_not_have(sync: type, awaited: type) -> None:
    attributes = {onefold.Store: {"journal", "policy"}, onefold.Session: {"id"}, onefold.Turn: {"claim"}}

    assert set(members(awaited)) - set(members(sync)) <= attributes.get(sync, set())


def test_what_an_object_holds_in_the_open_is_there_as_well() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        with session.turn() as turn:
            held = aio.Store(store)
            pairs = [
                (store, held),
                (session, aio.Session(session, held.notifier, set())),
                (turn, aio.Turn(turn)),
            ]

            for sync, awaited in pairs:
                lacks = {n for n in vars(sync) if not n.startswith("_") and not hasattr(awaited, n)}
                assert lacks <= ATTRIBUTES, sync
                assert sync is store or repr(sync) == repr(awaited)


def test_opening_takes_the_same_arguments() -> None:
    assert parameters(aio.open) == parameters(onefold.open)


def test_whatever_the_library_offers_that_takes_time_is_there_to_be_awaited() -> None:
    def is_plain(thing: object) -> bool:
        if not isinstance(thing, type):
            return thing is not onefold.open
        return dataclasses.is_dataclass(thing) or issubclass(thing, Exception | tuple)

    lively = {name for name in onefold.__all__ if not is_plain(getattr(onefold, name))}

    assert lively - set(aio.__all__) == set()


# ---------------------------------------------------------------------- an extra


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_importing_onefold_imports_neither_anyio_nor_an_event_loop() -> None:
    done = run_python(
        "import sys, onefold; print(sorted({'anyio', 'trio', 'asyncio', 'onefold.aio'} & set(sys.modules)))"
    )

    assert done.stdout.strip() == "[]", done.stderr


def test_without_anyio_the_error_names_the_extra() -> None:
    done = run_python("import sys; sys.modules['anyio'] = None\nimport onefold.aio")

    assert done.returncode == 1
    assert "ImportError: onefold.aio needs anyio, which is an extra: pip install 'onefold[aio]'" in done.stderr


# ---------------------------------------------------------------------- the same results


@pytest.mark.anyio
async def test_a_store_is_opened_by_a_block_or_by_awaiting_it(address: str) -> None:
    async with aio.open(address) as store:
        assert (await (await store.session("s")).append(said(1))).numbers == (2,)
    async with await aio.open(address) as store:
        assert store.address == address
        assert store.policy == onefold.Policy()

    with pytest.raises(onefold.StoreError, match="closed"):
        await store.session("s")


@pytest.mark.anyio
async def test_what_is_said_async_stands_in_the_journal_as_if_said_sync(astore: aio.Store, store: Store) -> None:
    session = await astore.session("s")
    await session.append(talk(12), key="k", actor="ana")
    again = await session.append(talk(12), key="k", actor="ana")
    await session.queue_input({"role": "user", "content": "later"})
    await session.take_input()
    await session.pin(2)
    await session.note("goal", "mend the build")
    await session.alias("other")
    result = await session.compact(short, follow_up={"role": "user", "content": "go on"})
    async with session.turn(owner="gateway") as turn:
        await turn.append({"role": "user", "content": "and now"})
        await turn.take_input()
    child = await session.fork()
    await session.undo()
    await session.redo()

    same = store.session("other")
    assert again.duplicate
    assert result.applied
    assert await session.state == same.state
    assert await session.head == same.head == (await session.segments())[-1].number
    assert await session.context() == same.context()
    assert await session.compactions() == same.compactions()
    assert await session.pins() == same.pins() == (2,)
    assert await session.notes() == same.notes()
    assert await session.aliases() == same.aliases() == ["other"]
    assert [r async for r in session.read()] == list(same.read())
    assert [r async for r in session.read(3, 6)] == list(same.read(3, 6))
    assert [s async for s in astore.sessions()] == list(store.sessions())
    assert [s async for s in astore.walk()] == [s async for s in astore.walk(page=1)] == list(store.walk())
    assert [s.id async for s in astore.walk("s")] == [s.id for s in store.walk("s")]
    assert await astore.forks("s") == [await child.state] == store.forks("s")
    assert await astore.resolve("other") == "s"
    assert await astore.compactions(open_only=False) == store.compactions(open_only=False)
    assert (await astore.verify()).healthy
    assert (await astore.delete(child.id)).session == child.id


@pytest.mark.anyio
async def test_a_new_system_prompt_is_said_async_too(asession: aio.Session) -> None:
    await asession.append({"role": "system", "content": "You are new."}, slot="prompt")
    async with asession.turn() as turn:
        (number,) = (await turn.append({"role": "system", "content": "You are newer."}, slot="prompt")).numbers

    fork = await asession.fork()

    assert (await fork.context()).prompt == (number,)


@pytest.mark.anyio
async def test_the_errors_are_the_same(astore: aio.Store, asession: aio.Session) -> None:
    with pytest.raises(onefold.SessionNotFound):
        await astore.session("nobody", create=False)
    with pytest.raises(onefold.InvalidMessage):
        await asession.append([])
    with pytest.raises(onefold.OnefoldError, match="owner"):
        await asession.turn(owner="")
    with pytest.raises(onefold.StaleHandle):
        await anext(asession.follow(after=99))
    async with asession.turn():
        with pytest.raises(onefold.TurnBusy):
            await asession.turn(wait=False)
    with pytest.raises(onefold.StaleHandle, match="no segment"):
        await asession.compact(short, base=12)


@pytest.mark.anyio
async def test_a_program_that_claims_and_commits_by_itself_can_await_the_contract(
    astore: aio.Store, asession: aio.Session
) -> None:
    journal = astore.journal

    asked = await journal.request("s")
    claim = await journal.claim_next(who())
    assert claim is not None
    assert await journal.claimable("s", claim.compaction) is not None
    assert await journal.renew(claim) is not None
    opened = await journal.commit(claim, "what was said", 8)

    assert asked.outcome == "opened"
    assert (await asession.context()).segment == opened.number
    assert await journal.wait("s", opened.number - 1, 0)
    assert not await journal.wait("s", opened.number, 0.01)
    assert [r async for r in journal.read("s", 2, 4)] == [r async for r in journal.follow("s", 1, idle=0)][:2]


@pytest.mark.anyio
async def test_a_long_journal_is_read_whole_and_in_order(astore: aio.Store) -> None:
    session = await astore.session("long")
    await session.append(talk(1204, words=1))

    numbers = [r.number async for r in session.read()]
    followed = [r.number async for r in session.follow(idle=0)]

    assert numbers == followed == list(range(1, 1206))


# ---------------------------------------------------------------------- following


@pytest.mark.anyio
async def test_a_follower_sees_what_this_and_other_programs_append(durable: str) -> None:
    with onefold.open(durable) as other:
        async with aio.open(durable) as store, anyio.create_task_group() as tasks:
            session = await store.session("s")
            seen: list[str] = []
            came = anyio.Event()

            async def follow() -> None:
                async for record in session.follow(1):
                    seen.append(record.body["content"])
                    if len(seen) == 4:
                        came.set()

            tasks.start_soon(follow)
            for n in range(2):
                await session.append({"role": "user", "content": f"own {n}"})
                await anyio.to_thread.run_sync(other.session("s").append, {"role": "user", "content": f"other {n}"})
            with anyio.fail_after(PATIENCE):
                await came.wait()
            tasks.cancel_scope.cancel()

    assert seen == ["own 0", "other 0", "own 1", "other 1"]


@pytest.mark.anyio
async def test_a_follower_whose_wait_was_cancelled_goes_on_without_a_gap_or_a_repeat(asession: aio.Session) -> None:
    follower = asession.follow()
    seen: list[int] = []

    for n in range(1, 40):
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + n * 0.0002
            async for record in follower:
                seen.append(record.number)
        await asession.append(said(n))
    async with aclosing(follower):  # type: ignore[type-var]
        while len(seen) < 13 + 39:
            seen.append((await anext(follower)).number)

    assert seen == list(range(1, 13 + 39 + 1))
    assert [r async for r in follower] == []


@pytest.mark.anyio
async def test_a_follower_ends_when_nothing_came_for_its_time(asession: aio.Session) -> None:
    assert [r.number async for r in asession.follow(11, idle=0.01)] == [12, 13]


@pytest.mark.anyio
async def test_a_thousand_followers_need_no_thread_each_and_each_wakes_for_its_own_session(astore: aio.Store) -> None:
    many = 200 if astore.address.startswith("postgresql:") else 1000  # a session takes six exchanges with a server
    sessions = [await astore.session(f"s{n}") for n in range(many)]
    before, most = threading.active_count(), 0
    awake: list[str] = []

    async def follow(session: aio.Session, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        async for record in session.follow(1):
            awake.append(record.body["content"])

    async with anyio.create_task_group() as tasks:
        for session in sessions:
            await tasks.start(follow, session)
        with anyio.fail_after(PATIENCE):
            while len(astore.notifier._listeners) < many:
                await anyio.lowlevel.checkpoint()
        for n in (3, many // 2, many - 1):
            await sessions[n].append({"role": "user", "content": f"for {n}"})
        with anyio.fail_after(PATIENCE):
            while len(awake) < 3:
                most = max(most, threading.active_count())
                await anyio.lowlevel.checkpoint()
        most = max(most, threading.active_count())
        tasks.cancel_scope.cancel()

    assert sorted(awake) == sorted(["for 3", f"for {many // 2}", f"for {many - 1}"])
    assert most <= before + MOST + 4
    assert astore.notifier._listeners == set()


@pytest.mark.anyio
async def test_who_waits_for_one_session_is_not_woken_by_another(
    astore: aio.Store, asession: aio.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await astore.session("other")
    looks: list[str] = []
    look = aio.notifier.Listener._look

    def counted(self: Any, work: Callable[[], Any]) -> Any:
        looks.append(self.session)
        return look(self, work)

    monkeypatch.setattr(aio.notifier.Listener, "_look", counted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first, asession.follow(13), "message")
        await listening(astore, "s")
        for n in range(20):
            await other.append(said(n))
            await first(other.follow(n + 1), "message")
        looked = looks.count("s")
        tasks.cancel_scope.cancel()

    assert looked <= 3  # its own, and one or two more if something was written just as it looked


async def listening(store: aio.Store, session: str) -> None:
    """Waits until somebody waits for a session."""
    with anyio.fail_after(PATIENCE):
        while not any(lis.session == session and lis.seen is not None for lis in list(store.notifier._listeners)):
            await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_what_comes_between_a_look_and_the_wait_after_it_is_not_missed(
    store: Store, astore: aio.Store, asession: aio.Session
) -> None:
    """Another one who waits for the same session has been woken for it already, when the first begins to wait."""
    other_woken = threading.Event()
    steps: list[int] = []

    async def other() -> None:
        await first(asession.follow(13), "message")
        other_woken.set()

    def step() -> int | WaitFor:
        steps.append(store.session("s").state.last)
        if len(steps) > 1:
            return steps[-1]
        store.session("s").append(said(1))
        assert other_woken.wait(PATIENCE)
        return WaitFor(0, time.monotonic() + 2 * PATIENCE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await listening(astore, "s")
        with anyio.fail_after(PATIENCE / 6):
            assert await astore.notifier.through("s", step) == 14

    assert steps == [13, 14]


def test_the_thread_that_waits_for_all_ends_when_nobody_waits(durable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.aio.notifier.LINGER", 0.01)

    async def wait_a_little() -> threading.Thread:
        async with aio.open(durable) as store:
            session = await store.session("s")
            assert [r.number async for r in session.follow(idle=0.05)] == [1]
            thread = store.notifier._thread
            assert thread is not None
            await anyio.to_thread.run_sync(thread.join, PATIENCE)
            return thread

    assert not anyio.run(wait_a_little).is_alive()


# ---------------------------------------------------------------------- several loops


@pytest.mark.parametrize("kinds", [("asyncio", "trio"), ("trio", "trio"), ("asyncio", "asyncio")])
def test_two_event_loops_in_two_threads_share_one_store(store: Store, kinds: tuple[str, str]) -> None:
    shared = aio.Store(store)
    start = threading.Barrier(2)
    seen: dict[str, list[str]] = {}

    async def talk_to(me: str, you: str) -> None:
        """Says a word, waits for the other's, and so on: each is woken by what the other loop writes."""
        session = await shared.session("s")
        words = session.follow(1)
        seen[me] = []
        for n in range(10):
            await session.append({"role": "user", "content": f"{me} {n}"})
            while f"{you} {n}" not in seen[me]:
                with anyio.fail_after(PATIENCE):
                    seen[me].append((await anext(words)).body["content"])
        result = await session.compact(short, base=1)
        assert result.state == "committed"

    def run(me: str, you: str, kind: str) -> None:
        start.wait(PATIENCE)
        anyio.run(talk_to, me, you, backend=kind)

    threads = [
        threading.Thread(target=run, args=(me, you, kind))
        for me, you, kind in (("one", "two", kinds[0]), ("two", "one", kinds[1]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert [
        len([w for w in words if w.startswith(you)]) for words, you in ((seen["one"], "two"), (seen["two"], "one"))
    ] == [
        10,
        10,
    ]
    assert store.session("s").state.messages == 20
    assert len(store.session("s").segments()) == 2


# ---------------------------------------------------------------------- summarizers


@pytest.mark.anyio
async def test_an_async_summarizer_runs_in_the_callers_loop_and_a_sync_one_in_a_thread(astore: aio.Store) -> None:
    asked: contextvars.ContextVar[str] = contextvars.ContextVar("asked", default="by nobody")
    ran: list[tuple[object, int, str]] = []
    loop = anyio.lowlevel.current_token()

    async def awaited(material: SummaryInput) -> onefold.Summary:
        ran.append((anyio.lowlevel.current_token(), threading.get_ident(), asked.get()))
        return onefold.Summary(await short(material), by="a model")

    def called(material: SummaryInput) -> str:
        ran.append((None, threading.get_ident(), asked.get()))
        return "in short, this"

    class Client:
        def __call__(self, material: SummaryInput) -> Any:
            return awaited(material)

    asked.set("by me")
    every: list[onefold.Summarizer] = [awaited, called, Client()]
    for n, summarizer in enumerate(every):
        session = await astore.session(f"s{n}")
        await session.append(talk(12))
        assert (await session.compact(summarizer)).applied

    here = threading.get_ident()
    assert [(where == loop, thread == here, whose) for where, thread, whose in ran] == [
        (True, True, "by me"),
        (False, False, "by me"),
        (True, True, "by me"),
    ]


@pytest.mark.anyio
async def test_the_stores_own_summarizer_is_awaited_in_the_callers_loop(address: str) -> None:
    threads: list[int] = []

    async def summarize(material: SummaryInput) -> str:
        threads.append(threading.get_ident())
        return await short(material)

    async with aio.open(address, summarizer=summarize, policy=quick()) as store:
        session = await store.session("s")
        await session.append(talk(12))
        result = await session.compact()

    assert result.state == "committed"
    assert threads == [threading.get_ident()]


@pytest.mark.anyio
async def test_an_async_summarizer_that_fails_is_tried_again(asession: aio.Session) -> None:
    tries: list[int] = []

    async def summarize(material: SummaryInput) -> str:
        await anyio.lowlevel.checkpoint()
        tries.append(material.attempt)
        if material.attempt < 3:
            raise TimeoutError("no answer")
        return await short(material)

    result = await asession.compact(summarize)

    assert (result.state, result.applied, tries) == ("committed", True, [1, 2, 3])


@pytest.mark.anyio
async def test_a_compaction_that_nobody_waits_for_goes_on_in_the_loop(asession: aio.Session) -> None:
    go = anyio.Event()

    async def summarize(material: SummaryInput) -> str:
        await go.wait()
        return await short(material)

    begun = await asession.compact(summarize, wait=False)
    after = (await asession.state).last
    await asession.append(said(1))
    go.set()
    await first(asession.follow(after), "compaction.committed")

    assert begun.state == "running"
    assert (await asession.context()).summary == "10 messages, up to #11"


@pytest.mark.anyio
async def test_many_tasks_that_compact_at_once_pay_once(astore: aio.Store, asession: aio.Session) -> None:
    paid: list[int] = []
    results: list[onefold.CompactResult] = []

    async def summarize(material: SummaryInput) -> str:
        paid.append(material.attempt)
        with anyio.fail_after(PATIENCE):
            while (await asession.compactions())[0].requests < 20:
                await anyio.lowlevel.checkpoint()
        return await short(material)

    async def compact() -> None:
        handle = await astore.session("s")
        results.append(await handle.compact(summarize))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(compact)

    assert paid == [1]
    assert [r.state for r in results] == ["committed"] * 20
    assert sum(r.applied for r in results) == 1


# ---------------------------------------------------------------------- turns


@pytest.mark.anyio
async def test_turns_of_many_tasks_come_one_after_another(astore: aio.Store, asession: aio.Session) -> None:
    async def write(n: int) -> None:
        handle = await astore.session("s")
        async with handle.turn(owner=f"task {n}") as turn:
            await turn.append({"role": "user", "content": f"{n} asks"})
            await anyio.lowlevel.checkpoint()
            await turn.append({"role": "assistant", "content": f"{n} answers"})

    many = 15 if astore.address.startswith("postgresql:") else 40
    async with anyio.create_task_group() as tasks:
        for n in range(many):
            tasks.start_soon(write, n)

    told = contents([r.body async for r in asession.read(14) if r.kind == "message"])
    assert [a.split()[0] for a in told[::2]] == [b.split()[0] for b in told[1::2]]
    assert len(told) == 2 * many
    assert await asession.open_turn() is None


@pytest.mark.anyio
async def test_a_turn_is_settled_as_its_block_ends(asession: aio.Session) -> None:
    async with asession.turn() as turn:
        await turn.append(said(1))
    with pytest.raises(ValueError, match="oops"):
        async with await asession.turn():
            raise ValueError("oops")
    turn = await asession.turn()
    await turn.end("failed", "no answer")

    ends = [r.body async for r in asession.read() if r.kind == "turn.settled"]
    assert ends == [
        {"outcome": "settled", "cause": None},
        {"outcome": "failed", "cause": "ValueError: oops"},
        {"outcome": "failed", "cause": "no answer"},
    ]
    with pytest.raises(onefold.TurnLost):
        await turn.append(said(2))


# ---------------------------------------------------------------------- closing


@pytest.mark.anyio
async def test_closing_hands_back_ends_turns_and_stops_the_summarizer(durable: str) -> None:
    begun = anyio.Event()
    ended: list[str] = []

    async def summarize(material: SummaryInput) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("summarizer")
        raise AssertionError

    async def compact() -> None:
        with pytest.raises(onefold.StoreError, match="closed"):
            await session.compact(summarize)
        ended.append("compact")

    async def follow() -> None:
        with pytest.raises(onefold.StoreError, match="closed"):
            await first(session.follow(), "nothing of the kind")
        ended.append("follow")

    async with anyio.create_task_group() as tasks:
        store = await aio.open(durable, policy=quick())
        session = await store.session("s")
        await session.append(talk(12))
        turn = await session.turn()
        tasks.start_soon(compact)
        tasks.start_soon(follow)
        await begun.wait()
        await store.close()
        with anyio.fail_after(PATIENCE):
            while len(ended) < 3:
                await anyio.lowlevel.checkpoint()

    assert sorted(ended) == ["compact", "follow", "summarizer"]
    with pytest.raises(onefold.OnefoldError, match="clos"):
        await turn.append(said(1))
    for use in (partial(session.append, said(1)), session.context, session.compact, partial(anext, session.follow())):
        with pytest.raises(onefold.StoreError, match="closed"):
            await use()
    with onefold.open(durable) as again:
        [left] = again.compactions()
        assert again.journal.claimable("s", left.id) is None
        assert again.session("s").open_turn() is None
        assert [r.body["outcome"] for r in again.session("s").read() if r.kind == "turn.settled"] == ["interrupted"]


@pytest.mark.anyio
async def test_progress_is_heard_in_the_loop(astore: aio.Store, asession: aio.Session, tmp_path: Path) -> None:
    heard: list[tuple[object, ...]] = []
    threads: set[int] = set()

    def hear(*news: object) -> None:
        threads.add(threading.get_ident())
        heard.append(news)

    report = await astore.verify(progress=hear)
    assert report.healthy
    assert heard == [("s", 13)]
    if not astore.address.startswith(("memory:", "postgresql:")):  # which have no backup of their own
        await astore.backup(tmp_path / "copy.db", progress=hear)
        assert len(heard) > 1
        with onefold.open(tmp_path / "copy.db") as copy:
            assert copy.session("s").state.messages == 12
    assert threads == {threading.get_ident()}


def test_a_bell_of_a_store_that_cannot_be_read_wakes_everybody() -> None:
    class Broken:
        def version(self) -> int:
            return 1

        def read(self, work: object) -> object:
            raise onefold.StoreUnavailable("the disk is gone")

        def wait(self, version: int, timeout: float) -> None:
            raise AssertionError("nobody waits for a store that cannot be read")

    async def wait() -> bool:
        notifier = ChangeNotifier(Broken())  # type: ignore[arg-type]
        with notifier.listener("s") as listener:
            notifier.add(listener)
            return await listener.wait(PATIENCE)

    assert anyio.run(wait)


def test_every_wait_is_cut_short_at_once(store: Store) -> None:
    async def cancelled(wait: Callable[[], Any]) -> float:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await listening(shared, "s")
                started = time.monotonic()
                scope.cancel()
        return time.monotonic() - started

    async def enter(session: aio.Session) -> None:
        await session.turn()

    shared = aio.Store(store)
    session = store.session("s")
    session.append(talk(12))
    turn = session.turn()
    store.journal.request("s")
    store.journal.claim("s", who())

    async def every() -> list[float]:
        handle = await shared.session("s")
        waits = (partial(anext, handle.follow(session.state.last)), partial(enter, handle), handle.compact)
        return [await cancelled(wait) for wait in waits]

    for kind in BACKENDS:
        took = [anyio.run(every, backend=kind) for _ in range(3)]
        assert max(min(tries) for tries in zip(*took, strict=True)) < 0.05
    turn.end()


@pytest.mark.anyio
async def test_a_turn_that_is_dropped_without_an_end_is_interrupted(store: Store, asession: aio.Session) -> None:
    turn = await asession.turn(owner="forgetful")
    number = turn.number

    del turn
    gc.collect()

    ended = await first(asession.follow(number), "turn.settled")
    assert (ended.body["outcome"], ended.body["cause"]) == ("interrupted", "its program dropped it without an end")
