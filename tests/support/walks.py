"""Traces three walks through the package: a compaction, an agent's frame on its way to a browser, a load of the page.

    python -m tests.support.walks

prints which functions each goes through, in the order in which they are entered first, and in which files they are; of
the page, what a browser asks for. `--json` prints the figures alone.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect
from websockets.sync.client import ClientConnection, connect

import onefold
from onefold import Limits, Policy, Store
from onefold.acp.agent_config import Agent, Agents
from onefold.acp.host import RoomHost
from onefold.server.app import create_app
from onefold.server.run import serve
from onefold.server.security.tokens import Tokens
from onefold.server.settings import Settings
from tests.support.page_views import DESK, launched

SOURCE = Path(onefold.__file__).parent
AGENT = Path(__file__).with_name("scripted_agent.py")
PATIENCE = 30.0


@dataclass
class Walk:
    """The functions of the package that are entered while it is followed, each once, in their order."""

    beside: tuple[str, ...] = ()
    """What goes on meanwhile and is no part of the walk: threads and tasks that begin in these files or folders."""
    functions: dict[tuple[str, str], None] = field(default_factory=dict)
    hops: int = 0
    """How many of them call each other, where it is deepest."""
    _followed: bool = False
    _places: dict[CodeType, tuple[str, str] | None] = field(default_factory=dict)

    @contextmanager
    def followed(self) -> Iterator[None]:
        self._followed = True
        try:
            yield
        finally:
            self._followed = False

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not self._followed or event != "call":
            return
        if self._place(frame.f_code) is None:
            return
        calls = [place for one in _stack(frame) if (place := self._place(one.f_code)) is not None]
        if not calls[-1][0].startswith(self.beside):
            self.functions.setdefault(calls[0])
            self.hops = max(self.hops, len(calls))

    def _place(self, code: CodeType) -> tuple[str, str] | None:
        if code not in self._places:
            self._places[code] = _place(code)
        return self._places[code]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.functions))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The functions that call each other, up to the one that a thread or an event loop began with."""
    while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
        yield frame
        frame = frame.f_back


def _place(code: CodeType) -> tuple[str, str] | None:
    """A function's file and name; None for what is not of the package, for bodies of classes, and for expressions."""
    path = Path(code.co_filename)
    if not path.is_relative_to(SOURCE) or not code.co_flags & inspect.CO_OPTIMIZED or code.co_name.startswith("<"):
        return None
    return str(path.relative_to(SOURCE)), code.co_qualname


@dataclass
class Requests:
    """What a browser asks a server for: first when the page is loaded, then for each message that comes."""

    static: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------- the walks


def compaction(folder: Path) -> Walk:
    """`Session.compact`, until the boundary is committed."""
    walk = Walk()
    with onefold.open(
        folder / "compact.db", policy=_policy(), summarizer=lambda material: "It was the cache."
    ) as store:
        session = store.session("s")
        session.append([_message(n) for n in range(60)])
        with _traced(walk), walk.followed():
            done = session.compact()
        assert done.state == "committed", done
    return walk


def frame(folder: Path) -> Walk:
    """A piece of an answer, from the agent's stdout to the socket of a client that is connected to the server."""
    walk, gate, end = Walk(beside=("server/events/", "acp/host.py")), folder / "gate", folder / "end"

    def follow(store: Store, url: str, token: str) -> None:
        with _connected(url, token) as socket:
            session = _ask(socket, 2, "session/new", {"cwd": "/", "mcpServers": []})["sessionId"]
            words = f"[[call:read]] [[wait:{gate}]] [[say:second]] [[wait:{end}]]"
            _send(socket, 3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": words}]})
            _heard(socket, lambda one: "read goes on" in json.dumps(one.get("params", {}).get("update", {})))
            with walk.followed():
                gate.touch()
                _heard(socket, lambda one: "second" in json.dumps(one.get("params", {}).get("update", {})))
            end.touch()
            _heard(socket, lambda one: one.get("id") == 3)

    with _traced(walk):
        _served(folder, "frame.db", follow)
    return walk


def page(folder: Path) -> Requests:
    """A browser that opens a session, and then sees one message come."""
    asked = Requests()

    def look(store: Store, url: str, token: str) -> None:
        session = store.session("s")
        session.append([_message(n) for n in range(30)])
        with launched() as browser:
            tab = browser.new_context(viewport=DESK).new_page()
            tab.clock.install()
            tab.goto(f"{url}/?token={token}")
            expect(tab.locator(".session").first).to_be_visible()
            came: list[str] = []
            tab.on("request", lambda request: came.append(urlsplit(request.url).path))
            tab.goto("about:blank")
            tab.goto(f"{url}/#/session/s")
            _shown(tab, 31)
            asked.static = [path for path in came if not path.startswith("/api/")]
            asked.data = [path for path in came if path.startswith("/api/")]
            came.clear()
            session.append(_message(30))
            _shown(tab, 32)
            asked.live = [*came]

    _served(folder, "page.db", look)
    return asked


def _shown(tab: Page, number: int) -> None:
    """Waits until a record is there, and for all that the page wants to do a little later."""
    expect(tab.locator("#live")).to_have_text("live")
    expect(tab.locator(f'.row[data-number="{number}"]:not(.waits)')).to_be_attached()
    tab.clock.run_for(3_000)
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(done))")


# ---------------------------------------------------------------------- what they need


@contextmanager
def _traced(walk: Walk) -> Iterator[None]:
    """Every thread that begins from here on, and this one, shows the walk what it calls."""
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _served(folder: Path, name: str, visit: Callable[[Store, str, str], None]) -> None:
    """The real server, in this thread, while another one visits it."""
    store = onefold.open(folder / name, policy=_policy())
    agent = Agent("scripted", (sys.executable, str(AGENT)), folders=("/",))
    host = RoomHost(store, folder / f"{name}.frames", Agents({agent.name: agent}))
    settings = Settings(port=0, rate=0, drain=1.0)
    tokens = Tokens(folder / f"{name}.tokens", environ={})
    ends: list[Callable[[], None]] = []
    failed: list[BaseException] = []

    async def begin(end: Callable[[], None]) -> None:
        ends.append(end)

    def ready(url: str) -> None:
        threading.Thread(target=visited, args=(url,), daemon=True).start()

    def visited(url: str) -> None:
        try:
            visit(store, url, tokens.first() or "")
        except BaseException as error:
            failed.append(error)
        finally:
            ends[0]()

    serve(store, settings, lambda hub: create_app(store, settings, tokens, hub, host), ready, begin)
    if failed:
        raise failed[0]


@contextmanager
def _connected(url: str, token: str) -> Iterator[ClientConnection]:
    address = f"ws{url.removeprefix('http')}/acp"
    with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, open_timeout=PATIENCE) as socket:
        _ask(socket, 1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        yield socket


def _send(socket: ClientConnection, id: int, method: str, params: dict[str, Any]) -> None:
    socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))


def _ask(socket: ClientConnection, id: int, method: str, params: dict[str, Any]) -> Any:
    _send(socket, id, method, params)
    return _heard(socket, lambda one: one.get("id") == id)["result"]


def _heard(socket: ClientConnection, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        heard: dict[str, Any] = json.loads(socket.recv(PATIENCE))
        if wanted(heard):
            return heard


def _policy() -> Policy:
    return Policy(limits=Limits(window=8_000, output=500))


def _message(n: int) -> dict[str, str]:
    return {"role": "user" if n % 2 == 0 else "assistant", "content": f"Line {n}. " + "Why does the build fail? " * 12}


# ---------------------------------------------------------------------- the report


def report(walks: dict[str, Walk], asked: Requests) -> Iterator[str]:
    for name, walk in walks.items():
        yield f"{name}: {walk.hops} hops; {len(walk.functions)} functions in {len(walk.files)} files"
        yield from (f"  {at:4}  {file:38} {function}" for at, (file, function) in enumerate(walk.functions, 1))
    yield f"page: {len(asked.static)} requests for files, {len(asked.data)} for data; {len(asked.live)} for a message"
    for what in ("static", "data", "live"):
        yield from (f"  {what:6}  {path}" for path in getattr(asked, what))


def figures(walks: dict[str, Walk], asked: Requests) -> dict[str, Any]:
    traced = {
        name: {"hops": walk.hops, "functions": len(walk.functions), "files": walk.files} for name, walk in walks.items()
    }
    return {**traced, "page": {"static": asked.static, "data": asked.data, "live": asked.live}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures alone, as JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onefold-walks-") as made:
        walks: dict[str, Callable[[Path], Walk]] = {"compact": compaction, "frame": frame}
        traced = {name: walk(Path(made)) for name, walk in walks.items()}
        asked = page(Path(made))
    print(json.dumps(figures(traced, asked)) if chosen.json else "\n".join(report(traced, asked)))


if __name__ == "__main__":
    main()
