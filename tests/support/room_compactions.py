"""Agents that compact in a room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onefold.model import SEGMENT_OPENED
from tests.support.acp_clients import Place
from tests.support.rooms import records


def compactions(there: Place, session: str) -> list[tuple[str, str]]:
    return [(c.state, c.trigger) for c in there.store.session(session).compactions()]


def boundaries(there: Place, session: str) -> list[Any]:
    return [r.body for r in records(there, session) if r.kind == SEGMENT_OPENED and r.body["source"] == "observed"]


def prompts(log: Path) -> list[str]:
    """What reached the agent."""
    frames = [json.loads(line) for line in log.read_text().splitlines()]
    return [f["params"]["prompt"][-1]["text"] for f in frames if f.get("method") == "session/prompt"]
