"""Replays a session's messages as the updates with which an agent would have sent them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onefold.acp.room_journal import begins
from onefold.journal import lineage
from onefold.messages import encode
from onefold.messages.codecs import convert
from onefold.model import MESSAGE, TURN_STARTED, Json, Record
from onefold.storage.base import Transaction
from onefold.store import Store

PAGE = 64
"""Records that are read at once, at most: they may be large."""
MOST = 5_000
"""Messages that one answer holds; the newest of them."""
MOST_BYTES = 32 << 20
"""And what they have together, about."""


class ReplayPoint(NamedTuple):
    """Where history ends and frames begin, for one who comes: none is told twice, and none left out."""

    frame: int
    """All that was said up to this frame is in the journal. What comes from later ones is told by them."""
    record: int


def replay(store: Store, session: str, at: ReplayPoint) -> list[Json]:
    """The whole conversation in view, for a client that loads it."""
    return [update for record in _messages(store, session, at, whole=True) for update in _updates(record)]


def replayed(store: Store, session: str, at: ReplayPoint, *, whole: bool, newest: bool) -> list[Json]:
    """The same with the records' numbers: all of it, or the segment in force with the turn that leads into it."""
    told: list[Json] = [
        {"number": record.number, "at": record.at, "turn": record.turn, "update": update}
        for record in _messages(store, session, at, whole=whole)
        for update in _updates(record)
    ]
    return told[::-1] if newest else told


def _messages(store: Store, session: str, at: ReplayPoint, *, whole: bool) -> list[Record]:
    def read_messages(tx: Transaction) -> list[Record]:
        state = lineage.get_session(tx, session)
        head = tx.segment(session, state.head)
        hidden = head.hidden if head is not None else ()
        found: list[Record] = []
        size, crosses = 0, None
        for record in _backwards(tx, session, at.record + 1):
            if len(found) >= MOST or size > MOST_BYTES or (not whole and _is_over(record, state.head, crosses)):
                break
            crosses = record.turn or crosses if record.number > state.head else crosses
            if record.kind == MESSAGE and not lineage.is_hidden(hidden, record.number) and begins(record) <= at.frame:
                found.append(record)
                size += len(encode(record.body))
        return found[::-1]

    return store.journal.backend.read(read_messages)


def _is_over(record: Record, head: int, crosses: str | None) -> bool:
    """Whether the segment has no more: a turn that crosses its boundary is in view from its beginning on."""
    if record.number > head:
        return False
    if crosses is None:
        return True
    return record.kind == TURN_STARTED if record.turn == crosses else record.kind == MESSAGE


def _backwards(tx: Transaction, session: str, stop: int) -> Iterator[Record]:
    several = 1
    while stop > 1:
        start = max(1, stop - several)
        yield from reversed(lineage.records(tx, session, start, stop, several))
        stop, several = start, min(PAGE, 2 * several)


def _updates(record: Record) -> list[Json]:
    body = record.body
    if record.format == "acp" and isinstance(body, dict):
        if "sessionUpdate" in body:
            content = body.get("content")
            if body["sessionUpdate"].endswith("_chunk") and isinstance(content, list):
                return [{**body, "content": block} for block in content]
            return [body]
        blocks = body.get("prompt")
        return [
            {"sessionUpdate": "user_message_chunk", "content": b} for b in (blocks if isinstance(blocks, list) else [])
        ]
    return convert([(record.format or "plain", body)], "acp")
