"""Sessions that the command line goes through."""

from __future__ import annotations

import subprocess
from pathlib import Path

import onefold
from tests.support.command_line import ODD

KEY = "the key is hunter2"


def fine(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------------- export and import


def whole_life(path: Path) -> None:
    """A store with everything that can happen to a session."""
    with onefold.open(path, agent="tester") as opened:
        session = opened.session("talk")
        session.append({"role": "system", "content": "be careful"})
        session.append([{"role": "user", "content": "both"}, {"role": "user", "content": "or none"}], key="batch")
        session.append({"role": "user", "content": ODD + "\x00", "big": 2**70, "line": "a\u2028b"}, actor="ada")
        for i in range(20):
            session.append({"role": "user", "content": f"question {i}"}, key=f"q{i}")
            session.append({"role": "assistant", "content": f"answer {i} " + "word " * 100})
        assert session.compact().changed
        session.pin(5)
        session.note("rule", "be brief", "tone")
        session.alias("also-talk")
        with session.turn(owner="gateway") as turn:
            turn.append({"role": "user", "content": "in a turn"})
        child = session.fork("branch", id="a-fork")
        child.append({"role": "user", "content": "in the fork"})
        child.fork("review", id="z-fork-of-the-fork")
        session.undo()
        session.queue_input({"role": "user", "content": "later"})
        session.append({"role": "user", "content": KEY}, key="secret")
        session.take_input()
        session.erase(next(r.number for r in session.read() if r.key == "secret"))
        opened.session("other").append([{"role": "user", "content": f"message {n}"} for n in range(30)])
