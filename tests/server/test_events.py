"""Live events: every record once, in order, to each follower from its own number on, whatever others do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette

import onefold
from onefold import Session, Store
from onefold.server.events import hub
from onefold.server.events.hub import Hub
from onefold.server.routes import health
from onefold.server.settings import Settings
from tests.conftest import said
from tests.support.helpers import quick

Message = MutableMapping[str, Any]
PATIENCE = 10.0


class Follower:
    """A client of one stream, at the level of ASGI: it reads when the test says so."""

    def __init__(self, app: Any, *, after: object = None, last_event_id: str | None = None, kind: str = "http",
                 **query: object) -> None:  # fmt: skip
        given = {**query, **({} if after is None else {"after": after})}
        self.status = 0
        self.events: list[tuple[str, str, Any]] = []
        self.closed = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.raw = b""
        self._connected = kind == "http"
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
        scope: Message = {
            "type": kind, "method": "GET", "path": "/api/events" if kind == "http" else "/api/live",
            "raw_path": b"", "root_path": "", "scheme": "http", "http_version": "1.1", "subprotocols": [],
            "query_string": urlencode(given).encode(), "headers": headers, "client": ("127.0.0.1", 1), "state": {},
        }  # fmt: skip
        self.task = asyncio.get_running_loop().create_task(self._run(app, scope))

    async def _run(self, app: Any, scope: Message) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self.closed.set()
            self._news.set()

    async def _receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        match message["type"]:
            case "http.response.start":
                self.status = message["status"]
                self.headers = dict(message["headers"])
            case "http.response.body":
                self.raw += message.get("body", b"")
                if self.status == 200:
                    self._parse()
            case "websocket.send":
                event = json.loads(message["text"])
                self.events.append((event["event"], event["id"], event["data"]))
        self._news.set()

    def _parse(self) -> None:
        *whole, self.raw = self.raw.split(b"\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            if "event" in fields:
                self.events.append((fields["event"], fields["id"], json.loads(fields["data"])))

    @property
    def numbers(self) -> list[int]:
        return [data["number"] for name, _, data in self.events if name == "record"]

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not met():
                self._news.clear()
                await self._news.wait()

    async def has(self, last: int) -> None:
        await self.until(lambda: bool(self.numbers) and self.numbers[-1] >= last)

    async def welcomed(self) -> None:
        await self.until(lambda: "hello" in self.names)

    async def closed_or(self, last: int) -> None:
        await self.until(lambda: self.closed.is_set() or self.numbers[-1:] == [last])

    async def leave(self) -> None:
        self._gone.set()
        await self.over()

    async def over(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.closed.wait()
            await self.task


class Stage:
    """A store with a hub on it."""

    def __init__(self, store: Store, settings: Settings, stall: float = 60.0) -> None:
        self.store = store
        self.hub = Hub(store, settings, stall=stall)
        self.app = Starlette(routes=[*self.hub.routes(), *health.routes(self.hub)])
        self.session = store.session("s")
        self.session.append([said(n) for n in range(1, 7)])  # records 2 to 7

    def follow(self, session: str | None = "s", **options: Any) -> Follower:
        return Follower(self.app, **({} if session is None else {"session": session}), **options)

    async def append(self, count: int = 1, session: Session | None = None) -> int:
        done = await asyncio.to_thread((session or self.session).append, [said(n) for n in range(count)])
        return done.numbers[-1]


@asynccontextmanager
async def stage(address: str, *, stall: float = 60.0, **settings: Any) -> AsyncIterator[Stage]:
    store = onefold.open(address, policy=quick())
    made = Stage(store, Settings(**{"flush": 0.02, **settings}), stall)
    try:
        yield made
    finally:
        await made.hub.close()
        store.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


def test_a_follower_gets_what_was_and_what_comes_without_a_gap_or_a_repeat(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(after=0)
            await client.has(7)
            last = await on.append(5)
            await client.has(last)

            assert client.status == 200
            assert client.headers[b"x-accel-buffering"] == b"no"
            assert client.numbers == [*range(1, last + 1)]
            name, id, data = client.events[2]
            assert (name, id, data["session"], data["body"]) == ("record", "2", "s", said(1))

    run(story)


def test_without_a_number_a_follower_begins_with_what_comes_next(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow()
            await client.until(lambda: client.names == ["hello"])
            await on.append(2)
            await client.has(9)

            assert client.numbers == [8, 9]
            assert client.events[0][1] == "7"

    run(story)


def test_the_id_of_the_last_event_counts_more_than_the_address(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(after=2, last_event_id="6")
            await client.has(7)

            assert client.numbers == [7]

    run(story)


def test_many_who_begin_anywhere_while_records_come_miss_none_and_see_none_twice(file: str) -> None:
    async def story() -> None:
        async with stage(file, flush=0.005) as on:
            clients = []
            for n in range(40):
                clients.append(on.follow(after=n % 8))
                last = await on.append(25)
            for n, client in enumerate(clients):
                await client.has(last)
                assert client.numbers == [*range(n % 8 + 1, last + 1)]

    run(story)


def test_whoever_was_cut_off_resumes_by_its_last_event_without_a_gap_or_a_repeat(file: str) -> None:
    async def story() -> None:
        async with stage(file) as on:
            seen: list[int] = []
            last_id = "0"
            for _ in range(6):
                client = on.follow(last_event_id=last_id)
                last = await on.append(30)
                await client.until(lambda c=client: len(c.numbers) >= 10)  # type: ignore[misc]
                await client.leave()
                seen += client.numbers
                last_id = client.events[-1][1]
            client = on.follow(last_event_id=last_id)
            await client.until(lambda: [*seen, *client.numbers][-1:] == [last])

            assert [*seen, *client.numbers] == [*range(1, last + 1)]

    run(story)


def test_another_process_compaction_is_seen_live_by_every_watcher_f70(file: str) -> None:
    async def story() -> None:
        async with stage(file) as on:
            one, two, everywhere = on.follow(), on.follow(), on.follow(session=None)
            for client in (one, two, everywhere):
                await client.welcomed()

            def compacts_elsewhere() -> None:
                with onefold.open(file, policy=quick()) as other:
                    assert other.session("s").compact().changed

            await asyncio.to_thread(compacts_elsewhere)
            last = on.session.state.last
            for client in (one, two, everywhere):
                await client.has(last)
                kinds = [data["kind"] for name, _, data in client.events if name == "record"]
                assert kinds == [
                    "compaction.requested", "compaction.started", "compaction.committed", "segment.opened",
                ]  # fmt: skip

    run(story)


def test_a_client_that_comes_back_sees_the_turn_that_began_while_it_was_away_f74(file: str) -> None:
    async def story() -> None:
        async with stage(file) as on:
            client = on.follow(after=0)
            await client.has(7)
            await client.leave()
            turn = on.session.turn(owner="gateway")

            back = on.follow(last_event_id=client.events[-1][1])
            await back.has(8)
            assert [(d["kind"], d["actor"]) for n, _, d in back.events if n == "record"] == [
                ("turn.started", "gateway")
            ]

            turn.end()
            await back.has(9)
            assert back.events[-1][2]["kind"] == "turn.settled"

    run(story)


def test_one_that_does_not_read_is_told_to_resume_and_slows_nobody(file: str) -> None:
    async def story() -> None:
        async with stage(file, buffer=100, flush=0.001) as on:
            slow, quick_one = on.follow(after=7), on.follow(after=7)
            for client in (slow, quick_one):
                await client.welcomed()
            slow.reading.clear()
            last = 7
            for _ in range(40):
                last = await on.append(25)
                await quick_one.has(last)
            assert quick_one.numbers == [*range(8, last + 1)]
            assert on.hub.drops == 1

            slow.reading.set()
            await slow.over()

            name, id, data = slow.events[-1]
            assert (name, id, data) == ("resume", str(slow.numbers[-1]), {"after": slow.numbers[-1]})
            again = on.follow(last_event_id=id)
            await again.has(last)
            assert [*slow.numbers, *again.numbers] == [*range(8, last + 1)]

    run(story)


def test_one_that_takes_nothing_at_all_is_let_go(file: str) -> None:
    async def story() -> None:
        async with stage(file, stall=0.1, heartbeat=0.1) as on:
            dead = on.follow()
            await dead.welcomed()
            dead.reading.clear()
            await dead.over()

            assert on.hub.clients("s") == []
            assert on.hub.followers == 0
            assert on.hub.drops == 1

    run(story)


def test_a_large_past_is_read_to_a_follower_as_fast_as_it_takes_it(file: str) -> None:
    async def story() -> None:
        async with stage(file) as on:
            await asyncio.to_thread(on.session.append, [said(n) for n in range(3_000)])
            client = on.follow(after=0)
            await client.until(lambda: len(client.numbers) > 100)
            client.reading.clear()
            last = await on.append(10)
            client.reading.set()
            await client.has(last)

            assert client.numbers == [*range(1, last + 1)]

    run(story)


def test_a_quiet_stream_gives_signs_of_life(address: str) -> None:
    async def story() -> None:
        async with stage(address, heartbeat=0.05) as on:
            silent = Counting(on.app)
            await asyncio.wait_for(silent.beats(3), PATIENCE)
            await silent.leave()

    run(story)


class Counting(Follower):
    """Counts comments."""

    def __init__(self, app: Any) -> None:
        self.comments = 0
        super().__init__(app, session="s")

    def _parse(self) -> None:
        self.comments += self.raw.count(b": still here\n\n")
        super()._parse()

    async def beats(self, count: int) -> None:
        await self.until(lambda: self.comments >= count)


def test_a_deleted_session_ends_with_gone_and_is_not_found_any_more(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client, everywhere = on.follow(after=0), on.follow(session=None)
            await client.has(7)
            await everywhere.welcomed()
            await asyncio.to_thread(on.store.delete, "s")
            await client.over()
            await everywhere.until(lambda: "gone" in everywhere.names)

            assert client.events[-1] == ("gone", "7", {"session": "s"})
            assert everywhere.events[-1][2] == {"session": "s"}
            late = on.follow(after=7)
            await late.over()
            assert late.status == 404
            assert "was deleted" in json.loads(late.raw)["error"]["message"]

    run(story)


def _said(by: Follower, name: str, times: int) -> bool:
    return by.names.count(name) == times


def test_who_follows_all_is_told_of_each_of_two_deletions_though_nothing_else_happens(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            await asyncio.to_thread(on.store.session, "t")
            everywhere = on.follow(session=None)
            await everywhere.welcomed()
            for count, session in enumerate(("s", "t"), start=1):
                await asyncio.to_thread(on.store.delete, session)
                await everywhere.until(partial(_said, everywhere, "gone", count))

            assert everywhere.events[-1][2] == {"session": "t"}

    run(story)


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [({"session": "nobody"}, 404, "SessionNotFound"), ({"after": "-1"}, 422, "BadCursor"),
     ({"after": "9" * 30}, 422, "BadCursor"), ({"after": "\N{ARABIC-INDIC DIGIT ONE}"}, 422, "BadCursor")],
)  # fmt: skip
def test_what_cannot_be_followed_is_answered_in_words(
    address: str, query: dict[str, str], status: int, kind: str
) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(**query)
            await client.over()

            assert client.status == status
            assert json.loads(client.raw)["error"]["kind"] == kind

    run(story)


def test_numbers_of_another_generation_or_beyond_the_end_are_told_apart(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            for query in ({"after": 99}, {"after": 3, "incarnation": "of an older backup"}):
                client = on.follow(**query)
                await client.over()
                assert client.names == ["hello", "moved"]
                assert client.events[-1][2] == {"session": "s", "last": 7, "incarnation": on.store.generation}
            same = on.follow(after=3, generation=on.store.generation)
            await same.has(7)

    run(story)


def test_a_session_is_followed_by_any_of_its_ids(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            on.session.alias("old name")
            client = on.follow(session="old name", after=6)
            await client.has(8)

            assert [c.kind for c in on.hub.clients("s")] == ["sse"]

    run(story)


def test_a_fork_begins_with_its_parents_records(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            fork = on.session.fork()
            client, everywhere = on.follow(session=fork.id, after=0), on.follow(session=None)
            await everywhere.welcomed()
            last = await on.append(1, fork)
            await client.has(last)
            await everywhere.until(lambda: bool(everywhere.numbers))

            assert client.numbers == [*range(1, last + 1)]
            assert everywhere.numbers[-1] == last

    run(story)


def test_a_websocket_carries_the_same_content(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            events, socket = on.follow(after=3), on.follow(after=3, kind="websocket", name="a page")
            last = await on.append(3)
            await events.has(last)
            await socket.has(last)

            assert socket.events == events.events
            assert {(c.name, c.kind) for c in on.hub.clients("s")} == {
                ("somebody", "sse"),
                ("a page (somebody)", "websocket"),
            }

    run(story)


def test_a_websocket_that_cannot_follow_is_told_why(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(session="nobody", kind="websocket")
            await client.over()

            assert client.names == ["error"]
            assert client.events[0][2]["error"]["kind"] == "SessionNotFound"

    run(story)


def test_the_stream_of_all_sessions_carries_each_record_once_and_resumes(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(session=None)
            await client.welcomed()
            others = [on.store.session(f"other {n}") for n in range(3)]
            for other in others:
                await on.append(4, other)
            await client.until(lambda: len(client.numbers) == 15)
            await client.leave()
            await on.append(2)
            back = on.follow(session=None, last_event_id=client.events[-1][1])
            await back.until(lambda: len(back.numbers) == 2)

            for other in others:
                seen = [d["number"] for n, _, d in client.events if n == "record" and d["session"] == other.id]
                assert seen == [1, 2, 3, 4, 5]
            assert [(d["session"], d["number"]) for n, _, d in back.events if n == "record"] == [("s", 8), ("s", 9)]

    run(story)


def test_a_cursor_that_is_not_known_any_more_is_told_to_reload(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(session=None, last_event_id="another-12")
            await client.until(lambda: "reload" in client.names)
            await on.append(1)
            await client.has(8)

            assert client.names == ["hello", "reload", "record"]

    run(story)


def test_nobody_gets_an_erased_text_from_what_is_remembered(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            watching, everywhere = on.follow(), on.follow(session=None)
            for client in (watching, everywhere):
                await client.welcomed()
            secret = on.session.append({"role": "user", "content": "the secret"}).numbers[0]
            for client in (watching, everywhere):
                await client.has(secret)
            await asyncio.to_thread(on.session.erase, secret)
            for client in (watching, everywhere):
                await client.has(on.session.state.last)
            late = on.follow(after=secret - 1)
            again = on.follow(session=None, last_event_id=everywhere.events[0][1])
            await late.has(on.session.state.last)
            await again.until(lambda: "reload" in again.names)

            assert "the secret" not in json.dumps(late.events)
            assert "the secret" not in json.dumps(again.events)

    run(story)


def test_draining_tells_everybody_to_resume_elsewhere_and_takes_nobody(address: str) -> None:
    async def story() -> None:
        async with stage(address) as on:
            client = on.follow(after=0)
            await client.has(7)
            on.hub.drain()
            await client.over()
            late = on.follow()
            await late.over()

            assert client.events[-1] == ("resume", "7", {"after": 7})
            assert late.status == 503

    run(story)


def test_a_burst_beyond_the_buffer_of_a_session_reaches_all_who_read(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "RECENT", 10)  # so that everybody who is late reads from the store

    async def story() -> None:
        async with stage(file, buffer=50) as on:
            clients = [on.follow(after=0) for _ in range(20)]
            writers = [threading.Thread(target=partial(_write, file, n)) for n in range(3)]
            for writer in writers:
                writer.start()
            for writer in writers:
                await asyncio.to_thread(writer.join)
            last = on.session.state.last
            for client in clients:
                seen = await _all(on, client, last)
                assert seen == [*range(1, last + 1)]

    run(story)


async def _all(on: Stage, client: Follower, last: int) -> list[int]:
    """All that a client sees, if it does what it is told."""
    seen: list[int] = []
    while True:
        await client.closed_or(last)
        seen += client.numbers
        if seen[-1] == last:
            return seen
        client = on.follow(last_event_id=client.events[-1][1])


def _write(file: str, n: int) -> None:
    with onefold.open(file, policy=quick()) as store:
        session = store.session("s")
        for _ in range(20):
            session.append([said(i) for i in range(25)])


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "onefold-hub-listens":
            thread.join(PATIENCE)
            assert not thread.is_alive()
