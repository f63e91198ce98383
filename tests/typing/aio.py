"""What the awaited names give, for the type checker."""

from collections.abc import AsyncIterator
from typing import assert_type

import onefold
from onefold import Record, SummaryInput, aio


def text(material: SummaryInput) -> str:
    return material.previous or ""


async def later(material: SummaryInput) -> onefold.Summary:
    return onefold.Summary(text(material))


async def opening_gives() -> None:
    async with aio.open(
        "agent.db", summarizer=later, policy=onefold.Policy(lease=30.0, lease_renew_interval=5.0)
    ) as store:
        assert_type(store, aio.Store)
    async with await aio.open("memory:") as store:
        assert_type(store, aio.Store)


async def a_store_gives(store: aio.Store) -> None:
    assert_type(await store.session("s"), aio.Session)
    assert_type(store.sessions(), AsyncIterator[onefold.SessionState])
    assert_type(store.walk("s", page=10), AsyncIterator[onefold.SessionState])
    assert_type(await store.compactions(), list[onefold.Compaction])
    assert_type(await store.verify(), onefold.Report)
    assert_type(store.address, str)
    assert_type(store.journal, aio.Journal)


async def a_session_gives(session: aio.Session) -> None:
    assert_type(await session.append({"role": "user", "content": "hello"}, key="k"), onefold.AppendResult)
    assert_type(await session.state, onefold.SessionState)
    assert_type((await session.state).tokens, int)
    assert_type(await session.head, int)
    assert_type(await session.context(), onefold.Context)
    assert_type(session.read(), AsyncIterator[Record])
    assert_type([record async for record in session.follow(after=3)], list[Record])
    assert_type(await session.take_input(), Record | None)
    assert_type(await session.fork(), aio.Session)
    for summarizer in (text, later, onefold.extractive_summary, None):
        assert_type(await session.compact(summarizer), onefold.CompactResult)


async def a_turn_gives(session: aio.Session) -> None:
    async with session.turn(owner="gateway") as turn:
        assert_type(turn, aio.Turn)
        assert_type(await turn.append({"role": "user", "content": "hello"}), onefold.AppendResult)
    assert_type(await session.turn(wait=False), aio.Turn)
