"""When an automatic trigger is not heard: bounds on compactions that came to nothing, kept in the journal.

A person is always heard. A context that is full (`limit`, `overflow`) passes every bound but the one on failures, and
that one at a bounded rate: so a summarizer that works is reached in the end, and one that does not costs little.
"""

from __future__ import annotations

from typing import NamedTuple

from onefold.journal import lineage
from onefold.model import FULL, MANUAL, URGENT, Compaction, Segment, SessionState
from onefold.storage.base import Transaction

AUTOMATIC_FAILURES = 3
GROWTH = 1.2
AGAIN, AGAIN_AT_MOST = 60.0, 600.0
"""Seconds in which a full context is not heard either, after one that was heard failed too: twice as many each time."""


class HeldBack(NamedTuple):
    """Why a request is not heard, and when it will be, where time alone decides."""

    cause: str
    until: float | None = None


def grown(state: SessionState, since: int) -> bool:
    """Whether a context has grown by a fifth since it had this size."""
    return state.tokens >= since * GROWTH


def held_back(
    tx: Transaction, state: SessionState, trigger: str, attempts: int, current: Compaction | None
) -> HeldBack | None:
    """Whether a request is not heard now; `current` is the compaction that is open, which it would join."""
    if trigger == MANUAL:
        return None
    full = trigger in URGENT
    if state.paid >= attempts and not full:
        return HeldBack(
            f"{state.paid} summaries of this segment were begun and not brought to their end, since their processes "
            "ended; the next one is made when the context is full, or when a person asks"
        )
    if current is not None:
        return None
    if state.failures >= AUTOMATIC_FAILURES and not grown(state, state.failed_tokens):
        cause = f"{state.failures} automatic compactions of this segment failed; the next one waits until "
        if not full:
            return HeldBack(cause + "the context has grown by a fifth or is full, or a person asks")
        if (again := _heard_again(tx, state)) is not None:
            return HeldBack(f"{cause}{again - tx.now:.0f} s have passed, or a person asks", again)
    if full:
        return None
    if state.rests and not grown(state, state.rests):
        return HeldBack(
            "there was nothing to compact in this segment when it was last tried; the next one waits until the context "
            "has grown by a fifth or is full, or a person asks"
        )
    if (head := _stands_on(tx, state)) is not None and head.source == "restored":
        return HeldBack(
            "somebody went back in it; automatic compactions wait until the context is full, or a person asks"
        )
    return None


def _stands_on(tx: Transaction, state: SessionState) -> Segment | None:
    """The head, or what it stands on if it only masks."""
    head = tx.segment(state.id, state.head)
    return None if head is None else lineage.origin(tx, state.id, head)


def _heard_again(tx: Transaction, state: SessionState) -> float | None:
    """When a full context is heard again after failures; None if that is now, as it is the first time. A clock that
    jumped makes nobody wait for longer than the bound says."""
    head = _stands_on(tx, state)
    since = state.head if head is None else head.number
    tried = (c for c in tx.compactions(state.id, open_only=False) if c.base >= since and c.trigger in FULL)
    failed = [c.settled_at for c in tried if c.state == "failed" and c.settled_at is not None]
    if not failed:
        return None
    pause = min(AGAIN_AT_MOST, AGAIN * 2 ** max(0, state.failures - AUTOMATIC_FAILURES - 1))
    agains = [at + pause for at in failed if tx.now < at + pause <= tx.now + pause]
    return max(agains, default=None)
