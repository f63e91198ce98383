"""Hermes' own code at work on its store, in its own Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from onefold.model import Json
from tests.real.agents import Agent

_SCRIPT = Path(__file__).with_name("hermes_inside.py")


def inside(agent: Agent, do: str, **how: Json) -> Json:
    """Does one thing of `hermes_inside`, and gives its result."""
    python = Path(agent.command[0]).with_name("python")
    done = subprocess.run(
        [str(python), str(_SCRIPT), json.dumps({"do": do, **how})],
        cwd=agent.folder,
        env=dict(agent.environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(results[-1].removeprefix("RESULT "))
