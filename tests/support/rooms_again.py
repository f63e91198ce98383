"""Rooms that are opened again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from onefold.acp.agent_config import Agent
from onefold.jsonrpc import Frame
from tests.support.acp_clients import AGENT, Place

SOON = (0.0,) + (0.01,) * 6


def event(method: str, **params: Any) -> Callable[[Frame], bool]:
    return lambda f: f.method == method and all(f.params.get(k) == v for k, v in params.items())


def became(there: Place, session: str, *options: str) -> None:
    """From its next start on, the agent has these options."""
    room = there.host.rooms[session]
    room.process.agent = Agent("scripted", (sys.executable, str(AGENT), *options))
