"""What the records of a journal amount to. The one place in which derived state comes from.

The write path applies each record as it is written; `verify` applies all of them to empty rows and compares. Since
both use this function, a healthy store cannot drift from its journal.
"""

from __future__ import annotations

from dataclasses import replace

from onefold.errors import StoreDamaged
from onefold.journal.seam import Rows
from onefold.messages import digest
from onefold.model import (
    ALIAS,
    CANCELLED,
    COMMITTED,
    FAILED,
    INPUT_QUEUED,
    INPUT_TAKEN,
    JOINED,
    MANUAL,
    MESSAGE,
    REQUESTED,
    SEGMENT_OPENED,
    STARTED,
    SUPERSEDED,
    Compaction,
    HolderId,
    KeyUse,
    Record,
    Segment,
    SessionState,
    State,
)


def newborn(session: str, at: float) -> SessionState:
    """A session before its first record."""
    return SessionState(
        id=session, created_at=at, touched_at=at, last=0, head=0, cut=1, messages=0, tokens=0, segments=0,
        compactions=0, committed=0, open=None, pending=0, failures=0, failed_tokens=0,
    )  # fmt: skip


def apply(rows: Rows, state: SessionState, record: Record) -> SessionState:
    """Takes one more record into the derived rows and gives the session's state after it."""
    if record.key is not None:
        _use_key(rows, state.id, record.key, record)
    if record.kind == MESSAGE:
        tokens = state.tokens + (record.header.tokens if record.header else 0)
        return state._replace(last=record.number, touched_at=record.at, messages=state.messages + 1, tokens=tokens)
    state = state._replace(last=record.number, touched_at=record.at)
    if record.kind == SEGMENT_OPENED:
        return _open_segment(rows, state, record)
    if record.kind == INPUT_QUEUED:
        rows.add_input(state.id, record.number)
        return state._replace(pending=state.pending + 1)
    if record.kind == INPUT_TAKEN:
        rows.drop_input(state.id, record.body["input"])
        return state._replace(pending=state.pending - 1)
    if record.kind == ALIAS:
        rows.add_alias(state.id, record.body["alias"])
        return state
    if record.kind.startswith("compaction."):
        return _compaction(rows, state, record)
    return state


def _use_key(rows: Rows, session: str, key: str, record: Record) -> None:
    use = rows.key(session, key) or KeyUse(record.number, 0, "")
    chained = digest(use.digest, record.kind, record.format, record.body)
    rows.put_key(session, key, KeyUse(use.first, use.count + 1, chained))


def _open_segment(rows: Rows, state: SessionState, record: Record) -> SessionState:
    body = record.body
    segment = Segment(
        number=record.number,
        base=body["base"],
        cut=body["cut"],
        source=body["source"],
        at=record.at,
        compaction=body.get("compaction"),
        summary=record.number if "summary" in body else body.get("summary_of"),
        kept=tuple(body.get("kept", ())),
        tokens_before=body.get("tokens_before", 0),
        tokens_after=body.get("tokens_after", 0),
    )
    rows.add_segment(state.id, segment)
    return state._replace(
        head=segment.number,
        cut=segment.cut,
        segments=state.segments + 1,
        tokens=segment.tokens_after,
        failures=0,
        failed_tokens=0,
    )


def _compaction(rows: Rows, state: SessionState, record: Record) -> SessionState:
    body = record.body
    if record.kind == REQUESTED:
        rows.put_compaction(
            Compaction(
                id=body["compaction"],
                session=state.id,
                base=body["base"],
                trigger=body["trigger"],
                state="requested",
                requested_at=record.at,
                attempts_allowed=body["attempts_allowed"],
                instructions=body.get("instructions"),
            )
        )
        return state._replace(open=body["compaction"], compactions=state.compactions + 1)

    known = rows.compaction(state.id, body["compaction"])
    if known is None:
        raise StoreDamaged(
            f"record {record.number} of session {state.id!r} speaks of compaction {body['compaction']!r}, "
            "which was never requested; run `onefold verify`"
        )
    if record.kind == JOINED:
        wait = None if body.get("hurry") else known.not_before
        rows.put_compaction(replace(known, requests=known.requests + 1, not_before=wait))
        return state
    if record.kind == STARTED:
        rows.put_compaction(
            replace(
                known,
                state="running",
                attempts=known.attempts + 1,
                fence=record.number,
                started_at=record.at,
                life=body["life"],
                holder=HolderId(**body["holder"]),
                not_before=None,
            )
        )
        return state
    if record.kind == FAILED and not body["final"]:
        rows.put_compaction(
            replace(
                known,
                state="requested",
                cause=body["cause"],
                not_before=body["not_before"],
                retry_after=body["retry_after"],
            )
        )
        return state
    return _settle(rows, state, record, known)


_SETTLED: dict[str, State] = {
    COMMITTED: "committed",
    FAILED: "failed",
    CANCELLED: "cancelled",
    SUPERSEDED: "superseded",
}


def _settle(rows: Rows, state: SessionState, record: Record, known: Compaction) -> SessionState:
    settled = _SETTLED[record.kind]
    rows.put_compaction(
        replace(
            known,
            state=settled,
            settled_at=record.at,
            not_before=None,
            fence=record.body.get("fence", known.fence),
            segment=record.body.get("segment"),
            cause=record.body.get("cause", known.cause),
        )
    )
    state = state._replace(open=None)
    if settled == "committed":
        return state._replace(committed=state.committed + 1)
    if settled == "failed" and known.trigger != MANUAL:
        return state._replace(failures=state.failures + 1, failed_tokens=state.tokens)
    return state
