"""The compactor, awaited: the same names and rules, under asyncio and trio."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest

import onefold
from onefold import Context, Limits, Store, SummaryInput, aio
from onefold.errors import OnefoldError, SummarizerFailed
from onefold.model import Usage
from tests.conftest import StoppedClock, claimed
from tests.support.helpers import PATIENCE, await_record, counted, quick
from tests.support.public_names import PLANS
from verification.operations import talk

LIMITS = Limits(window=1_000, output=100, soft=0.5, hard=0.9)
POLICY = quick(limits=LIMITS, quote_tokens=0)
SOFT, HARD = 16, 28

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def astore(store: Store) -> aio.Store:
    return aio.Store(store)


@pytest.fixture
async def session(astore: aio.Store) -> aio.Session:
    return await astore.session("s")


class Model:
    """An async summarizer that answers when it may, and says in which loop it was awaited."""

    def __init__(self) -> None:
        self.began, self.gate = anyio.Event(), anyio.Event()
        self.threads: list[int] = []

    async def __call__(self, material: SummaryInput) -> str:
        self.threads.append(threading.get_ident())
        self.began.set()
        with anyio.fail_after(PATIENCE):
            await self.gate.wait()
        return f"Summary {len(self.threads)}: {len(material.records)} messages."


async def committed(session: aio.Session) -> None:
    with anyio.fail_after(PATIENCE):
        async for record in session.follow():
            if record.kind == "compaction.committed":
                return


# ---------------------------------------------------------------------- the same names


def test_every_way_in_is_there_with_the_same_arguments_and_words() -> None:
    ways = {n: m for n, m in vars(onefold.Compactor).items() if not n.startswith("_") and n not in PLANS}

    assert set(ways) == {n for n in vars(aio.Compactor) if not n.startswith("_")}
    for name, way in ways.items():
        mine = getattr(aio.Compactor, name)
        assert inspect.signature(mine) == inspect.signature(way), name
        assert inspect.iscoroutinefunction(mine), name
        assert inspect.getdoc(mine) == inspect.getdoc(way) is not None, name
    made = [inspect.signature(c.__init__) for c in (onefold.Compactor, aio.Compactor)]
    assert made[0] == made[1]


# ---------------------------------------------------------------------- the same rules


async def test_at_the_soft_limit_the_summary_is_awaited_in_this_loop_and_no_turn_waits_for_it(
    astore: aio.Store, session: aio.Session
) -> None:
    model = Model()
    compactor = aio.Compactor(astore, model, POLICY)
    await session.append(talk(SOFT))
    before = await session.context()

    assert (await compactor.before_turn(session)).messages == before.messages
    with anyio.fail_after(PATIENCE):
        await model.began.wait()
    assert (await compactor.mid_turn(session)).messages == before.messages
    model.gate.set()
    await committed(session)

    assert (await compactor.mid_turn(session)).segment == before.segment, "its turn stays where it is"
    assert (await compactor.before_turn(session)).tokens < before.tokens / 2
    assert model.threads == [threading.get_ident()]


async def test_at_the_hard_limit_callers_wait_for_the_one_that_runs_and_the_loop_goes_on(
    store: Store, astore: aio.Store, session: aio.Session
) -> None:
    model = Model()
    compactor = aio.Compactor(astore, model, POLICY)
    await session.append(talk(SOFT))
    await compactor.before_turn(session)
    await session.append(talk(HARD - SOFT, start=SOFT + 1))
    sent: list[Context] = []

    async def send() -> None:
        sent.append(await compactor.before_turn(await astore.session("s")))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            tasks.start_soon(send)
            async for record in session.follow():
                if record.kind == "compaction.joined":
                    break
            assert sent == []
            model.gate.set()

    assert [c.tokens <= LIMITS.hard_tokens for c in sent] == [True, True]
    assert (len(model.threads), counted(store.session("s"), "segment.opened")) == (1, 2)


async def test_what_cannot_be_helped_is_too_large_with_its_cause_and_its_cost(
    astore: aio.Store, session: aio.Session
) -> None:
    async def down(material: SummaryInput) -> str:
        raise SummarizerFailed("503", kind="unavailable", spent=Usage(1, 0, 0, 0.25))

    compactor = aio.Compactor(astore, down, POLICY)
    await session.append(talk(HARD))

    with pytest.raises(onefold.ContextTooLarge, match=r"compaction failed \(503\)"):
        await compactor.before_turn(session)

    (tried,) = await session.compactions()
    assert (tried.state, tried.attempts, tried.spent) == ("failed", 3, Usage(3, 0, 0, 0.75))


async def test_an_overflow_a_person_and_another_program(astore: aio.Store, session: aio.Session) -> None:
    model = Model()
    model.gate.set()
    compactor = aio.Compactor(astore, model, POLICY)
    await session.append(talk(10))
    sent = await compactor.before_turn(session, usage=None)

    smaller = await compactor.after_overflow(session, RuntimeError("too long"))
    assert smaller.tokens < sent.tokens
    await session.append(talk(10, start=11))
    assert (await compactor.compact_now(session, "be brief")).applied
    await session.append(talk(10, start=21))
    assert (await compactor.request(session)).id is not None
    with anyio.fail_after(PATIENCE):
        while (await session.state).committed < 3:
            await astore.journal.wait("s", (await session.state).last, 0.2)

    triggers = [c.trigger for c in await session.compactions()]
    assert triggers == ["overflow", "manual", "outside"]


async def test_upkeep_takes_up_what_a_dead_process_left_and_passes_the_broken_ones_over(
    store: Store, astore: aio.Store, clock: StoppedClock
) -> None:
    model = Model()
    model.gate.set()
    compactor = aio.Compactor(astore, model, POLICY)
    for name in ("left", "large", "small"):
        await (await astore.session(name)).append(talk(SOFT if name == "large" else 8))
    store.journal.request("left", trigger="threshold")
    claimed(store.journal, "left", lease=20)
    clock.advance(400)

    came = await compactor.compact_idle(wait=True)

    assert {name: result.state for name, result in came.items()} == {"left": "committed", "large": "committed"}


async def test_switched_off_is_switched_off(astore: aio.Store, session: aio.Session) -> None:
    compactor = aio.Compactor(astore, Model(), quick(limits=LIMITS, enabled=False))
    await session.append(talk(HARD))
    ways: list[Callable[[], Coroutine[Any, Any, object]]] = [
        partial(compactor.compact_now, session),
        partial(compactor.after_overflow, session),
        partial(compactor.request, session),
    ]

    assert await compactor.before_turn(session) == await session.context()
    assert await compactor.compact_idle(0) == {}
    for way in ways:
        with pytest.raises(onefold.CompactionDisabled):
            await way()


async def test_cancelled_at_the_hard_limit_it_hands_its_attempt_back(
    store: Store, astore: aio.Store, session: aio.Session
) -> None:
    model = Model()
    compactor = aio.Compactor(astore, model, POLICY)
    await session.append(talk(HARD))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(compactor.before_turn, session))
        with anyio.fail_after(PATIENCE):
            await model.began.wait()
        tasks.cancel_scope.cancel()

    assert await session.compaction_holder() is None
    sync = store.session("s")
    assert onefold.Compactor(store, onefold.extractive_summary, POLICY).before_turn(sync).tokens <= LIMITS.hard_tokens
    await_record(sync, "compaction.committed")
    assert counted(sync, "segment.opened") == 2


async def test_a_session_of_another_store_is_refused_at_its_first_use(astore: aio.Store) -> None:
    async with aio.open("memory:", policy=POLICY) as theirs:
        session = await theirs.session("s")
        await session.append(talk(HARD))

        with pytest.raises(OnefoldError, match=r"session 's' is in another store.*make a Compactor for each store"):
            await aio.Compactor(astore).before_turn(session)
