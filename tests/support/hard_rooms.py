"""Rooms whose agents and clients misbehave."""

from __future__ import annotations

from typing import Any

from onefold.jsonrpc import parse
from tests.support.acp_clients import (
    Client,
    Person,
    Place,
)


async def attached(there: Place, session: str, **more: Any) -> tuple[Client, Any]:
    client = there.client(Person("ben"))
    await client.ask("initialize", protocolVersion=1, clientCapabilities={"session": {"compaction": {}}})
    return client, await client.ask("session/attach", sessionId=session, **more)


def numbers(client: Client) -> list[int]:
    found = (f.params.get("_meta") for f in client.heard)
    return [m["onefold"]["number"] for m in found if isinstance(m, dict) and "onefold" in m]


def kept(there: Place, session: str, *kinds: str) -> list[tuple[int, str]]:
    """The raw frames of these kinds, all of them."""
    found, after = [], 0
    while rows := there.host.frames.read(session, after, 500):
        after = rows[-1].number
        found += [(r.number, r.text) for r in rows if r.kind in kinds]
    return found


def told(there: Place, session: str) -> list[int]:
    """The numbers that an attached client has to hear."""
    return [n for n, line in kept(there, session, "in", "note") if any(f.is_notification for f in parse(line))]
