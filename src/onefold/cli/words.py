"""Records in words: what each kind means to a person who reads a journal. Pure."""

from __future__ import annotations

from collections.abc import Callable

from onefold.cli.output import clock_time, count, listed
from onefold.messages import FORMATS, encode
from onefold.model import (
    ALIAS,
    CANCELLED,
    COMMITTED,
    FAILED,
    HEALED,
    INPUT_QUEUED,
    INPUT_TAKEN,
    JOINED,
    MESSAGE,
    REQUESTED,
    SEGMENT_OPENED,
    STARTED,
    SUPERSEDED,
    Json,
    Record,
)


def said(record: Record) -> str:
    """What a person would read in a message, whatever its format."""
    known = FORMATS.get(record.format or "json")
    return known.text(record.body) if known is not None else encode(record.body)


def words(record: Record) -> str:
    """One record in words. A body that does not fit its kind is shown as it is: reading must never fail."""
    if record.kind in (MESSAGE, INPUT_QUEUED):
        return said(record)
    tell = _WORDS.get(record.kind)
    try:
        return tell(record, record.body) if tell is not None else encode(record.body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return encode(record.body)


def summary_of(record: Record) -> str | None:
    """The summary that a record holds, if it opened a segment with one of its own."""
    found = record.body.get("summary") if record.kind == SEGMENT_OPENED and isinstance(record.body, dict) else None
    return found if isinstance(found, str) else None


def _by(record: Record) -> str:
    return f" by {record.actor}" if record.actor else ""


def _requested(record: Record, body: Json) -> str:
    wish = f"; instructions: {body['instructions']}" if body.get("instructions") else ""
    return f"asked for{_by(record)}, trigger {body['trigger']}: compact segment {body['base']}{wish}"


def _joined(record: Record, body: Json) -> str:
    return f"asked for once more{_by(record)}, trigger {body['trigger']}: joins the one that is open"


def _started(record: Record, body: Json) -> str:
    holder = body["holder"]
    name = f" ({holder['agent']})" if holder.get("agent") else ""
    return f"{holder['host']}:{holder['pid']}{name} works on it, from what stands up to #{record.number - 1}"


def _committed(record: Record, body: Json) -> str:
    return f"done by the one that began at #{body['fence']}: opens segment {body['segment']}"


def _failed(record: Record, body: Json) -> str:
    after = "for good" if body["final"] else f"next try not before {clock_time(body['not_before'])}"
    return f"attempt {body['attempt']} failed, {after}: {body['cause']}"


def _cancelled(record: Record, body: Json) -> str:
    return f"cancelled{_by(record)}"


def _superseded(record: Record, body: Json) -> str:
    return f"no longer needed: {body.get('cause', 'the head moved')}"


def _segment(record: Record, body: Json) -> str:
    if body["source"] == "created":
        return "the session begins"
    sizes = f"{body['tokens_before']:,} → {body['tokens_after']:,} tokens"
    kept = f", {listed(f'#{n}' for n in body['kept'])} kept besides" if body.get("kept") else ""
    if body["source"] == "restored":
        return f"back to the boundary of segment {body['restored']}, verbatim from #{body['cut']} on{kept}; {sizes}"
    by = f" (by {body['by']})" if body.get("by") else ""
    return f"everything before #{body['cut']} is a summary now{by}{kept}; {sizes}"


def _taken(record: Record, body: Json) -> str:
    return f"the input #{body['input']} is taken; it is the next message"


def _alias(record: Record, body: Json) -> str:
    return f"it is also known as {body['alias']}{_by(record)}"


def _healed(record: Record, body: Json) -> str:
    return f"{count(len(body['findings']), 'derived row')} mended: {listed(f['what'] for f in body['findings'])}"


_WORDS: dict[str, Callable[[Record, Json], str]] = {
    REQUESTED: _requested,
    JOINED: _joined,
    STARTED: _started,
    COMMITTED: _committed,
    FAILED: _failed,
    CANCELLED: _cancelled,
    SUPERSEDED: _superseded,
    SEGMENT_OPENED: _segment,
    INPUT_TAKEN: _taken,
    ALIAS: _alias,
    HEALED: _healed,
}
