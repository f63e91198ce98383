"""Records for a stream in batches, bounded by count and bytes.

How large a record is nobody knows before it is read. So one is read first, and then as many as would fit if the next
ones were like those before, at most twice as many as the last time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from onefold.model import Record
from onefold.server.serializers import dumps, record_json

TOGETHER = 64
"""Records that are read at once, at most: however small the ones before were, the next may be large."""


class RecordBatch(NamedTuple):
    record: Record
    text: str
    """As it is sent."""


def portion(
    session: str, read: Callable[[int, int], list[Record]], start: int, stop: int, *, limit: int, most: int
) -> list[RecordBatch]:
    """Records with start ≤ number < stop, the oldest first: up to `limit` of them or `most` bytes, but at least one.
    `read` gives some, from a number on, at most so many."""
    told: list[RecordBatch] = []
    held, several = 0, 1
    while start < stop and len(told) < limit and held < most:
        found = read(start, min(several, limit - len(told), stop - start))
        if not found:
            break
        for record in found:
            told.append(RecordBatch(record, record_text(session, record)))
            held += len(told[-1].text)
        start = found[-1].number + 1
        usual = held // len(told) + 1
        several = max(1, min(TOGETHER, 2 * several, (most - held) // usual))
    return told


def record_text(session: str, record: Record) -> str:
    return dumps(record_json(record, session)).decode()
