"""Sessions that their agent compacts by itself: who owns compaction, and compactions that were observed."""

from __future__ import annotations

import os

from onefold.errors import OnefoldError, StoreDamaged
from onefold.journal.checks import check_choice, check_name, key_conflict
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.segments import open_view
from onefold.model import (
    AGENT_ENDED,
    AGENT_STARTED,
    COMMITTED,
    STARTED,
    Claim,
    HolderId,
    Json,
    Keeper,
    Lease,
    Segment,
    SessionState,
)
from onefold.storage.base import Transaction

_PAGE = 500
_LOOKED_AT = 20_000


def set_compaction_owner(journal: Journal, session: str, keeper: Keeper) -> Segment:
    """Says who compacts a session from now on: onefold, or its agent by itself."""
    check_choice(session, "keeper", keeper, Keeper)

    def set_compaction_owner_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        if head.keeper == keeper:
            return head
        return open_view(journal, tx, state, head, head.hidden, source="kept", keeper=keeper)

    return journal.backend.write(session, set_compaction_owner_in)


def watch(journal: Journal, session: str, who: HolderId, *, life: float) -> Claim:
    """Notes that the agent has begun to compact by itself, for as long as `life` at most; `observe` or `fail` ends it.

    If a compaction is open, this is it, and whoever worked on it comes late: the agent itself is at it now.
    """

    def watch_in(tx: Transaction) -> Claim:
        state = get_session(tx, session)
        _kept_by_agent(tx, state)
        if state.open is None:
            state = journal.ask(tx, state, "observed", attempts=1)
        current = tx.compaction(session, state.open or "")
        if current is None:
            raise StoreDamaged(
                f"session {session!r}: its open compaction {state.open!r} has no row; run `onefold verify`"
            )
        body = {"compaction": current.id, "base": current.base, "life": life, **journal.leases.holder(who)}
        state = journal.add(tx, state, journal.draft(STARTED, body))
        tx.put_session(state)
        until = tx.now + life
        journal.leases.put(tx, session, Lease(current.id, state.last, until, life))
        return Claim(
            session, current.id, state.last, current.base, current.attempts + 1, current.attempts_allowed, life, life,
            until, os.getpid(),
        )  # fmt: skip

    return journal.backend.write(session, watch_in)


def record_agent_compaction(
    journal: Journal,
    session: str,
    *,
    source: str,
    signals: tuple[str, ...] = (),
    key: str | None = None,
    said: str | None = None,
) -> Segment:
    """Notes that the agent compacted by itself: a mark and a new segment, which moves no cut and hides nothing.

    If a compaction is open, this is it; else it is one that nobody here asked for. `said` is the summary as the agent
    told it, for people to read. The same key again is the same one.
    """
    if key is not None:
        check_name("key", key)

    def record_agent_compaction_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        if key is not None and (use := tx.key(session, key)) is not None:
            before = tx.record(session, use.first)
            done = before.body.get("segment") if before is not None and before.kind == COMMITTED else None
            if done is None:
                raise key_conflict(session, key, use)
            return segment(tx, session, done)
        head = _kept_by_agent(tx, state)
        if state.open is None:
            state = journal.ask(tx, state, "observed")
        id = state.open or ""
        done = {"compaction": id, "fence": 0, "segment": state.last + 2}  # no claim's: whoever has one comes late
        state = journal.add(tx, state, journal.draft(COMMITTED, done, key=key))
        journal.leases.drop(tx, session)
        seen: dict[str, Json] = {"compaction": id, "by": source, "witnesses": list(signals)}
        if said is not None:
            seen["said"] = said
        return open_view(journal, tx, state, head, head.hidden, source="observed", **seen)

    return journal.backend.write(session, record_agent_compaction_in)


def has_agent(tx: Transaction, state: SessionState) -> bool:
    """Whether an agent was started in this session and has not ended, as far as the journal knows."""
    stop = state.last + 1
    first = max(state.forked_at, state.last - _LOOKED_AT)
    while stop > first + 1:
        start = max(first + 1, stop - _PAGE)
        for record in reversed(tx.records(state.id, start, stop, _PAGE)):
            if record.kind in (AGENT_STARTED, AGENT_ENDED):
                return record.kind == AGENT_STARTED
        stop = start
    return False


def _kept_by_agent(tx: Transaction, state: SessionState) -> Segment:
    head = segment(tx, state.id, state.head)
    if head.keeper != "agent":
        raise OnefoldError(
            f"session {state.id!r} is compacted by onefold, so an agent's own compaction is not a boundary of it; "
            "call set_compaction_owner('agent') first"
        )
    return head
