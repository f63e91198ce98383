"""What the records of a journal amount to. The one place in which derived state comes from.

The write path applies each record as it is written; `verify` applies all of them to empty rows and compares. Since
both use this function, a healthy store cannot drift from its journal.
"""

from __future__ import annotations

from dataclasses import replace

from onefold.errors import StoreDamaged
from onefold.messages import digest
from onefold.model import (
    CANCELLED,
    COMMITTED,
    ERASED,
    FAILED,
    INPUT_QUEUED,
    JOINED,
    MANUAL,
    MESSAGE,
    MOST_TOKENS,
    REQUESTED,
    SEGMENT_OPENED,
    SKIPPED,
    STARTED,
    SUPERSEDED,
    Compaction,
    HolderId,
    Json,
    KeyUse,
    Record,
    Segment,
    SessionState,
    State,
    Usage,
)
from onefold.storage.base import ProjectionTables


def initial_state(session: str, at: float) -> SessionState:
    """A session before its first record."""
    return SessionState(
        id=session, created_at=at, touched_at=at, last=0, head=0, cut=1, messages=0, tokens=0, segments=0,
        compactions=0, committed=0, open=None, pending=0, failures=0, failed_tokens=0,
    )  # fmt: skip


def apply(rows: ProjectionTables, state: SessionState, record: Record) -> SessionState:
    """Takes one more record into the projection and gives the session's state after it."""
    if record.key is not None:
        _use_key(rows, state.id, record.key, record)
    if record.kind == MESSAGE:
        # The same as `_replace(touched_at=…, last=…, messages=…, tokens=…)`, which would be a slow part of an append.
        id, created, _, _, head, cut, messages, tokens = state[:8]
        if record.header is not None:
            tokens += record.header.tokens
        now = (id, created, record.at, record.number, head, cut, messages + 1, tokens)
        return tuple.__new__(SessionState, now + state[8:])
    state = state._replace(last=record.number, touched_at=record.at)
    if record.kind == SEGMENT_OPENED:
        return _open_segment(rows, state, record)
    if record.kind.startswith("compaction."):
        return _compaction(rows, state, record)
    return _other(rows, state, record)


def _other(rows: ProjectionTables, state: SessionState, record: Record) -> SessionState:
    body = record.body
    match record.kind:
        case "turn.started":
            return state._replace(turn=record.number)
        case "turn.settled":
            return state._replace(turn=0)
        case "input.queued":
            rows.add_input(state.id, record.number)
            return state._replace(pending=state.pending + 1)
        case "input.taken":
            rows.drop_input(state.id, body["input"])
            return state._replace(pending=state.pending - 1)
        case "pin.added" | "pin.removed" | "note":
            return state._replace(tokens=state.tokens + body["tokens"])
        case "alias":
            rows.add_alias(state.id, body["alias"])
            return state._replace(aliases=state.aliases + 1)
        case "fork":
            state = state._replace(parent=body["parent"], forked_at=body["at"])
            return _limited(state, record) if "limits" in body else state
        case "limits":
            return _limited(state, record)
        case "erased":
            return _tombstone(rows, state, record)
    return state


def _limited(state: SessionState, record: Record) -> SessionState:
    """What its agent goes by from here on: said by the agent, or taken along by a fork. The window is a column; 0 where
    the record has no number of tokens for it."""
    window = record.body["limits"].get("window")
    known = isinstance(window, int | float) and 0 < window <= MOST_TOKENS
    return state._replace(limits=record.number, window=int(window) if known else 0)


def _tombstone(rows: ProjectionTables, state: SessionState, record: Record) -> SessionState:
    """A record that was erased still counts as what it was: what came after it was written with it in place."""
    was = record.body.get("was")
    if was == MESSAGE:
        return state._replace(messages=state.messages + 1)
    if was == INPUT_QUEUED:
        rows.add_input(state.id, record.number)
        return state._replace(pending=state.pending + 1)
    return state


def _use_key(rows: ProjectionTables, session: str, key: str, record: Record) -> None:
    """What a key was used for. Of erased content not even a digest stays: its key is taken, whatever comes with it."""
    use = rows.key(session, key) or KeyUse(record.number, 0, "")
    gone = ERASED in (record.kind, use.digest)
    chained = ERASED if gone else digest(use.digest, record.kind, record.format, record.body)
    rows.put_key(session, key, KeyUse(use.first, use.count + 1, chained))


def segment(record: Record) -> Segment:
    """The segment that a `segment.opened` opens."""
    body = record.body
    return Segment(
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
        hidden=tuple((a, b) for a, b in body.get("hidden", ())),
        redo=body.get("redo"),
        keeper=body.get("keeper", "onefold"),
        unfolds=tuple(body.get("unfolds", ())),
        masked=tuple((number, saves) for number, saves in body.get("masked", ())),
        origin=body.get("origin"),
        item=record.number if "adopts" in body else body.get("item"),
        adopted=tuple((number, saves) for number, saves in body.get("adopted", ())),
    )


def segment_body(like: Segment, state: SessionState, **other: Json) -> dict[str, Json]:
    """The other way round: what a `segment.opened` says that replaces this one, the same but for what is given."""
    body = {
        "base": state.head,
        "cut": like.cut,
        "kept": list(like.kept),
        "hidden": [list(r) for r in like.hidden],
        "masked": [list(m) for m in like.masked],
        "item": like.item,
        "adopted": [list(m) for m in like.adopted],
        "keeper": like.keeper,
        "tokens_before": state.tokens,
        "tokens_after": state.tokens,
        **other,
    }
    usual: dict[str, Json] = {
        "hidden": [], "masked": [], "keeper": "onefold", "redo": None, "summary_of": None, "unfolds": [],
        "item": None, "adopted": [],
    }  # fmt: skip
    return {name: value for name, value in body.items() if name not in usual or value != usual[name]}


def _open_segment(rows: ProjectionTables, state: SessionState, record: Record) -> SessionState:
    opened = segment(record)
    rows.add_segment(state.id, opened)
    state = state._replace(head=opened.number, cut=opened.cut, segments=state.segments + 1, tokens=opened.tokens_after)
    if opened.source == "masked":
        return state  # what was tried before it was tried for what it shows
    return state._replace(failures=0, failed_tokens=0, paid=0, rests=0)


def _compaction(rows: ProjectionTables, state: SessionState, record: Record) -> SessionState:
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
                process=body.get("process"),
                not_before=None,
                asked=known.asked + (known.state == "running"),  # the attempt before it died, and may have asked
            )
        )
        return state
    if record.kind == FAILED and body.get("handed_back"):
        # Given back, and not failed: it is not an attempt. If a summarizer had been asked, that was paid all the same.
        attempts = known.attempts - 1
        rows.put_compaction(replace(known, state="requested", attempts=attempts, cause=body["cause"], not_before=None))
        return state._replace(paid=state.paid + body["asked"])
    if record.kind == FAILED and not body["final"]:
        rows.put_compaction(
            replace(
                known,
                state="requested",
                cause=body["cause"],
                not_before=body["not_before"],
                retry_after=body["retry_after"],
                spent=known.spent + Usage(**body.get("spent", {})),
                asked=known.asked + body.get("asked", 1),
                input=body.get("input"),
            )
        )
        return state
    return _settle(rows, state, record, known)


_SETTLED: dict[str, State] = {
    COMMITTED: "committed",
    FAILED: "failed",
    CANCELLED: "cancelled",
    SUPERSEDED: "superseded",
    SKIPPED: "skipped",
}


def _settle(rows: ProjectionTables, state: SessionState, record: Record, known: Compaction) -> SessionState:
    settled, body = _SETTLED[record.kind], record.body
    asked = known.asked + (body.get("asked", 1) if settled == "failed" else 0)
    rows.put_compaction(
        replace(
            known,
            state=settled,
            asked=asked,
            input=body.get("input", known.input),
            settled_at=record.at,
            not_before=None,
            fence=body.get("fence", known.fence),
            segment=body.get("segment"),
            cause=body.get("cause", known.cause),
            spent=known.spent + Usage(**body.get("spent", {})),
        )
    )
    state = state._replace(open=None)
    if settled == "committed":
        return state._replace(committed=state.committed + 1)
    if settled == "skipped" or (settled == "failed" and not asked):
        return state._replace(rests=state.tokens)
    if settled == "failed" and known.trigger != MANUAL:
        return state._replace(failures=state.failures + 1, failed_tokens=state.tokens)
    return state
