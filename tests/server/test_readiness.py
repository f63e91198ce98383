"""Whether the store can be used: asked by many, looked up by one."""

from __future__ import annotations

import asyncio
import threading

import pytest

import onefold
from onefold.errors import StoreUnavailable
from onefold.server import readiness
from onefold.server.readiness import SILENT, UNUSABLE, Readiness
from tests.support.servers import PATIENCE


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that looked, one for each time."""
    found: list[threading.Thread] = []
    before = readiness.not_ready

    def counted(store: onefold.Store) -> str | None:
        found.append(threading.current_thread())
        return before(store)

    monkeypatch.setattr(readiness, "not_ready", counted)
    return found


def test_however_many_ask_the_store_is_asked_once_a_second(looks: list[threading.Thread]) -> None:
    now = [100.0]

    async def work() -> None:
        with onefold.open("memory:") as store:
            ready = Readiness(store, lambda: now[0])
            assert await asyncio.gather(*(ready.trouble() for _ in range(500))) == [None] * 500
            assert len(looks) == 1
            now[0] += 0.9
            await ready.trouble()
            assert len(looks) == 1
            now[0] += 0.2
            await ready.trouble()
            assert len(looks) == 2

    asyncio.run(work())


def test_a_store_that_does_not_answer_is_not_ready_and_holds_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, begun = threading.Event(), []

    def stuck(store: onefold.Store) -> str | None:
        begun.append(1)
        answers.wait(PATIENCE)
        return None

    monkeypatch.setattr(readiness, "not_ready", stuck)
    monkeypatch.setattr(readiness, "PATIENCE", 0.05)

    async def work() -> None:
        with onefold.open("memory:") as store:
            ready = Readiness(store)
            for _ in range(2):
                assert await asyncio.gather(*(ready.trouble() for _ in range(50))) == [SILENT] * 50
            assert len(begun) == 1
            monkeypatch.setattr(readiness, "PATIENCE", PATIENCE)
            waiting = asyncio.create_task(ready.trouble())
            answers.set()
            assert await waiting is None

    asyncio.run(work())


def test_the_cause_is_for_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        with onefold.open("memory:") as store:

            def broken(work: object) -> None:
                raise StoreUnavailable("/secret/place/agent.db: the disk is full")

            monkeypatch.setattr(store.journal.backend, "read", broken)
            ready = Readiness(store)
            assert await ready.trouble() == UNUSABLE

    asyncio.run(work())
    assert "/secret/place" in caplog.text
