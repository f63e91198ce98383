"""Rooms with a scripted agent, and the clients in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onefold.jsonrpc import Frame
from onefold.model import MESSAGE, Record
from tests.support.acp_clients import Place


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def records(there: Place, session: str) -> list[Record]:
    return list(there.store.session(session, create=False).read())


def kinds(there: Place, session: str) -> list[str]:
    return [r.kind for r in records(there, session)]


def messages(there: Place, session: str) -> list[Any]:
    return [r.body for r in records(there, session) if r.kind == MESSAGE]


# ---------------------------------------------------------------------- questions


def answer(question: Frame, option: str) -> Frame:
    outcome = {"outcome": {"outcome": "selected", "optionId": option}}
    return Frame({"jsonrpc": "2.0", "id": question.id, "result": outcome})
