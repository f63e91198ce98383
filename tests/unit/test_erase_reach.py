"""One word, put wherever a word can get to; then it is erased, or its session deleted, while a server and an agent run
in another process. After that no file that this machine can see holds it, and no way in leads to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from websockets.sync.client import connect

import onefold
from onefold import Store
from onefold.acp.frame_log import FrameLog
from onefold.errors import SessionNotFound
from onefold.jsonrpc import Frame, text
from onefold.model import INPUT_QUEUED, MESSAGE, NOTE, QUESTION_ASKED
from onefold.recall import Recall, RecallTools
from onefold.storage import locations
from tests.conftest import DURABLE, KINDS, running
from tests.support.acp_clients import AGENT, PATIENCE, Remote, is_method
from tests.support.command_line import run as cli
from tests.support.erasures import told
from tests.support.postgres_server import give_back
from tests.support.rooms import run
from tests.support.servers import TOKEN, Served

WORD = "quokka7731"


class Running(Served):
    """`onefold run` with the scripted agent, on a store of any kind."""

    verb = "run"

    def __init__(self, store: str, folder: Path) -> None:
        super().__init__(store, folder, "--session", "s", "--", sys.executable, str(AGENT), "--ids", "own")


@dataclass
class World:
    kind: str
    address: str
    folder: Path
    served: Served
    scratch: Path
    """For the test itself: none of it is a store's."""

    def open(self) -> Store:
        return onefold.open(self.address)

    @property
    def frames(self) -> Path:
        with self.open() as store:
            return locations.frames_path(store.address)

    def said_on_the_command_line(self, *words: str) -> Any:
        done = cli(self.folder, *words, "--store", self.address, XDG_DATA_HOME=str(self.folder))
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(params=DURABLE)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    folder, scratch = tmp_path / "all", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    address = KINDS[request.param](folder)
    onefold.open(address).close()
    with Running(address, folder) as served:
        yield World(request.param, address, folder, served, scratch)
    if request.param == "postgres":
        give_back(address)


# ---------------------------------------------------------------------- putting it everywhere


def update(world: World, **said: Any) -> str:
    """A directive by which the agent says something of its own."""
    body = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "own-session-1", "update": said}}
    path = Path(tempfile.mkdtemp(dir=world.scratch)) / "frame"
    path.write_text(json.dumps(body))
    return f"[[raw:{path}]]"


async def in_the_room(world: World) -> None:
    ann = Remote(world.served)
    summary = [{"type": "text", "text": f"they spoke of {WORD}"}]
    more = [
        update(world, sessionUpdate="plan", entries=[{"content": WORD, "status": "pending"}]),
        update(world, sessionUpdate="session_info_update", title=f"about {WORD}"),
        update(world, sessionUpdate="compaction_update", compactionId="c", status="in_progress"),
        update(world, sessionUpdate="compaction_update", compactionId="c", status="completed", summary=summary),
    ]
    await ann.prompt("s", "[[say:harmless]]")
    asking = await ann.send(
        "session/prompt",
        sessionId="s",
        prompt=[{"type": "text", "text": f"[[think:{WORD}]] [[say:it is {WORD}]] [[tool:{WORD}]] [[stderr:{WORD}]] "
                 f"{' '.join(more)} [[ask:{WORD}]]"}],
    )  # fmt: skip
    (question,) = await ann.until(is_method("session/request_permission"))
    chosen = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    await ann.put(Frame({"jsonrpc": "2.0", "id": question.id, "result": chosen}))
    async with asyncio.timeout(PATIENCE):
        await asking
    await ann.close()


def in_the_store(world: World) -> None:
    with world.open() as store:
        session = store.session("s")
        first = next(r.number for r in session.read() if r.kind == MESSAGE and WORD in str(r.body))
        session.note("rule", f"never say {WORD}")
        session.note("fact", f"the word is {WORD}", source=[first])
        fork = session.fork(id="f")
        fork.append({"role": "user", "content": "something else"})
        store.journal.fail(running(store.journal, "f"), f"the summary says {WORD}", None)
        store.journal.commit(running(store.journal, "f"), f"the fork's summary has {WORD}", None)
        assert Recall(store).search(WORD).hits


def beside_the_store(world: World) -> list[Path]:
    """Copies that onefold itself makes: of a store before a migration, and of a line that was not written whole."""
    match world.kind:
        case "sqlite":
            made = [Path(f"{world.address}.before-5")]
        case "files":
            made = [Path(world.address) / "s" / f"0000000000.jsonl.{end}" for end in ("torn-1", "torn-2")]
        case _:
            return []
    for path in made:
        path.write_bytes(f"a line that has {WORD} in it".encode())
    return made


def everywhere(world: World) -> list[Path]:
    run(lambda: in_the_room(world))
    in_the_store(world)
    return beside_the_store(world)


def to_erase(world: World) -> list[int]:
    """What a person would name: what holds it and can be named."""
    with world.open() as store:
        found = [r for r in store.session("s").read() if WORD in json.dumps(r.body)]
        return [r.number for r in found if r.kind in (MESSAGE, INPUT_QUEUED, NOTE, QUESTION_ASKED)]


# ---------------------------------------------------------------------- looking for it


def files_with_it(world: World) -> set[Path]:
    """All but the server's own log, to which the cause of the failed compaction went: a log is no file of the store."""
    files = (p for p in world.folder.rglob("*") if p.is_file() and p != world.served.log)
    return {p for p in files if WORD.encode() in p.read_bytes()}


def frames_with_it(world: World) -> list[str]:
    """They are packed, so bytes alone would say nothing."""
    with contextlib.closing(FrameLog(str(world.frames))) as frames:
        return [row.text for row in frames.read("s", 0, 100_000) if WORD in row.text]


def words_of_the_index(world: World) -> list[str]:
    """Its words share their beginnings, so bytes alone would say nothing."""
    path = locations.sidecar_path(world.address, "search") if world.kind != "postgres" else None
    if path is None or not path.exists():
        return []
    with contextlib.closing(apsw.Connection(str(path))) as index:
        index.execute("create virtual table temp.vocabulary using fts5vocab(main, words, row)")
        return [str(term) for (term,) in index.execute("select term from temp.vocabulary") if WORD in str(term)]


def by_http(world: World, *, there: bool) -> dict[str, str]:
    """Every GET that the server describes, for each session and each segment of it, and the events from the start."""
    heads = {"Authorization": f"Bearer {TOKEN}"}
    found: dict[str, str] = {}
    with httpx.Client(base_url=world.served.url, headers=heads, timeout=PATIENCE) as http:
        paths = http.get("/openapi.json").json()["paths"]
        asked = 0
        for path, calls in paths.items():
            if "get" not in calls or path == "/api/events":
                continue
            names = {p["name"] for p in calls["get"].get("parameters", ())}
            for query in queries(world, names):
                answer = http.get(path, params=query)
                asked += 1
                if "q" in query:
                    shown = answer.json()
                    words = json.dumps(shown.get("hits", shown.get("sessions", "")))
                else:
                    words = answer.text
                if WORD in words:
                    found[f"{path} {query}"] = words
        assert asked > 20
        assert http.get("/api/records", params={"session": "s"}).status_code == (200 if there else 404)
    return found


def queries(world: World, names: set[str]) -> Iterator[dict[str, Any]]:
    if "session" not in names:
        yield {"q": WORD} if "q" in names else {}
        return
    for session in ("s", "f"):
        query: dict[str, Any] = {"session": session, **({"q": WORD} if "q" in names else {})}
        query |= {"history": "all"} if "history" in names else {}
        query |= {"state": "all"} if "state" in names else {}
        yield query
        with world.open() as store, contextlib.suppress(SessionNotFound):
            for segment in store.session(session, create=False).segments() if "segment" in names else ():
                yield {**query, "segment": segment.number}


def by_events(world: World) -> str:
    """What is told of a session from its first record on, by the event stream and by the socket."""
    heard = []
    for session in ("s", "f"):
        with world.open() as store:
            try:
                last = store.session(session, create=False).state.last
            except SessionNotFound:
                continue
            first = store.session(session).state.forked_at
        stream = world.served.listen(session, first)
        while (event := stream.event()) is not None:
            heard.append(str(event))
            if event[0] == "record" and event[2]["number"] == last:
                break
        stream.close()
        address = f"ws://127.0.0.1:{world.served.port}/api/live?session={session}&after={first}"
        with connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
            number = first
            while number < last:
                heard.append(str(socket.recv(PATIENCE)))
                told = json.loads(heard[-1])
                number = told["data"]["number"] if told["event"] == "record" else number
    return "\n".join(heard)


async def by_attaching(world: World) -> list[str]:
    heard: list[str] = []
    for last in (0, 5):
        client = Remote(world.served)
        client.last = last
        await client.prompt("s", "[[say:and on]]")
        heard += [text(f) for f in client.heard] + [json.dumps(shot) for shot in client.shots]
        await client.close()
    return [line for line in heard if WORD in line]


def by_tools(world: World) -> str:
    with world.open() as store:
        tools = RecallTools(Recall(store), None)
        asked: list[tuple[str, dict[str, Any]]] = [("recall_search", {"query": "quokka*"})]
        for state in store.sessions():
            asked.append(("recall_read", {"session": state.id, "first": 1, "last": state.last}))
            asked += [
                ("recall_expand", {"session": state.id, "segment": s.number})
                for s in store.session(state.id).segments()
            ]
        return "\n".join(tools.answer(name, given).text for name, given in asked)


def by_commands(world: World) -> str:
    with world.open() as store:
        sessions = [s.id for s in store.sessions()]
    said = []
    for session in sessions:
        for words in (("show", session, "--from", "1"), ("export", session), ("context", session), ("verify",)):
            said.append(world.said_on_the_command_line(*words).stdout)
    return "\n".join(said)


def nothing_is_left(world: World, *, there: bool) -> None:
    with world.open() as store:
        assert WORD not in told(store)
        assert store.verify().findings == ()
    assert frames_with_it(world) == []
    assert words_of_the_index(world) == []
    assert by_http(world, there=there) == {}
    assert WORD not in by_events(world)
    assert WORD not in by_tools(world)
    assert WORD not in by_commands(world)
    if there:
        assert run_and_give(lambda: by_attaching(world)) == []
        assert frames_with_it(world) == []


def run_and_give(work: Any) -> Any:
    found: list[Any] = []

    async def keep() -> None:
        found.append(await work())

    run(keep)
    return found[0]


# ---------------------------------------------------------------------- the whole of it


@pytest.mark.parametrize("what", ["erase", "delete"])
def test_no_file_holds_it_and_no_way_in_leads_to_it(world: World, what: str) -> None:
    copies = everywhere(world)
    numbers = to_erase(world)
    assert frames_with_it(world)
    assert world.kind == "postgres" or words_of_the_index(world)
    assert len(by_http(world, there=True)) > 8
    assert WORD in by_events(world)
    assert WORD in by_tools(world)
    assert WORD in by_commands(world)
    command = ("erase", "s", *map(str, numbers)) if what == "erase" else ("delete", "s")

    done = json.loads(world.said_on_the_command_line(*command, "--yes", "--json").stdout)

    stays = [] if what == "delete" and world.kind == "files" else [str(path) for path in copies]
    assert [one for one in done["remains"] if "purge" not in one] == stays
    assert any("purge" in one for one in done["remains"]) is (world.kind == "postgres")
    assert done["wiped"] is (done["remains"] == [])
    assert {str(path) for path in files_with_it(world)} == set(stays)
    nothing_is_left(world, there=what == "erase")

    again = json.loads(world.said_on_the_command_line(*command, "--yes", "--json", "--remove-copies").stdout)

    assert [one for one in again["remains"] if "purge" not in one] == []
    assert again["wiped"] is (world.kind != "postgres")
    assert files_with_it(world) == set()
    if world.kind == "postgres":
        with world.open() as store:
            store.purge()
