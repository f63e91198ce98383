"""The real server in a process of its own, for the page's tests; and a session so long that no browser holds it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import onefold
from onefold.acp.agent_config import Agent, Agents
from onefold.acp.host import RoomHost
from onefold.compaction.summarizer import Made, SummaryInput
from onefold.ids import system_clock
from onefold.model import Json
from onefold.server.app import create_app
from onefold.server.run import serve as run
from onefold.server.security.tokens import Tokens
from onefold.server.settings import Settings
from tests.support.helpers import say
from tests.support.page_story import POLICY, tell

AGENT = Path(__file__).with_name("scripted_agent.py")
LONGEST = 600
"""Seconds that a server lives at most: one serves all tests of a module."""


def shortly(material: SummaryInput) -> Made:
    """A summary that a test can tell from everything else."""
    wish = f" Wish: {material.instructions}" if material.instructions else ""
    return f"Summary of {len(material.records)} messages.{wish}"


def serve(address: str, tokens: str, port: int = 0) -> None:
    """Serves a store until the test kills it."""
    signal.alarm(LONGEST)
    store = onefold.open(address, policy=POLICY, summarizer=shortly)
    agent = Agent("scripted", (sys.executable, str(AGENT), "--state", f"{address}.state"), folders=("/",))
    broken = Agent("broken", ("no-such-program-anywhere",), folders=("/",))
    locked = Agent("locked", (sys.executable, str(AGENT), "--locked"), folders=("/",))
    late = Agent("late", (*locked.command, "--waits", f"{address}.late"), folders=("/",))
    host = RoomHost(store, f"{address}.frames", Agents({a.name: a for a in (agent, broken, locked, late)}))
    settings = Settings(port=port, summarizer=shortly, flush=0.02, rate=0, drain=0.5)
    known = Tokens(Path(tokens), environ={})

    def ready(url: str) -> None:
        say("ready", url=url, token=known.first() or "")

    run(store, settings, lambda hub: create_app(store, settings, known, hub, host), ready)


def append(address: str, session: str, texts: list[str]) -> None:
    """Another process that writes into a session."""
    with onefold.open(address, create=False) as store:
        store.session(session).append([{"role": "user", "content": text} for text in texts])
    say("done")


def fill(address: str, session: str, count: int, start: int = 1) -> None:
    """Many messages, of different lengths."""
    with onefold.open(address, policy=POLICY) as store:
        one = store.session(session)
        for at in range(start, start + count, 10_000):
            one.append([_line(n) for n in range(at, min(at + 10_000, start + count))])


def _line(n: int) -> Json:
    role = "user" if n % 2 else "assistant"
    return {"role": role, "content": f"Line {n}. " + "More words to read. " * (n * 7919 % 23)}


def main() -> None:
    """python -m tests.support.page_server STORE: tells the story if the store is new, then serves it to a person."""
    address = sys.argv[1]
    if not Path(address).exists():
        tell(address, system_clock())
    serve(address, address + ".tokens", int(sys.argv[2]) if len(sys.argv) > 2 else 0)


if __name__ == "__main__":
    main()
