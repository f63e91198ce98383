"""The text of a record that is indexed: everything somebody said, without the bytes of images."""

from __future__ import annotations

import re

from onefold.errors import InvalidMessage
from onefold.messages import FORMATS, encode
from onefold.model import INPUT_QUEUED, MESSAGE, NOTE, SEGMENT_OPENED, Record

LONGEST = 256 << 10
"""How many characters of one record can be found."""
_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{512,}")


def searched(record: Record) -> str:
    """The part of a record's text that can be found: its beginning, without what is not words."""
    return _BLOB.sub(" ", told(record)[:LONGEST])


def told(record: Record) -> str:
    """What a person would read in a record; nothing if nobody says anything in it."""
    body = record.body
    match record.kind:
        case "message" | "input.queued":
            return _message(record)
        case "note":
            return f"{body['kind']}: {body['text']}" if body.get("text") else ""
        case "segment.opened":
            summary = body.get("summary")
            return summary if isinstance(summary, str) and not body.get("erased") else ""
    return ""


def role(record: Record) -> str:
    """Who speaks: a message's role; else what sort of thing it is."""
    if record.header is not None and record.kind in (MESSAGE, INPUT_QUEUED):
        return record.header.role
    return {NOTE: "note", SEGMENT_OPENED: "summary"}.get(record.kind, record.kind)


def _message(record: Record) -> str:
    """A message of a format that a newer program wrote is read as JSON: it can still be found."""
    known = FORMATS.get(record.format or "json")
    try:
        return known.text(record.body) if known is not None else encode(record.body)
    except InvalidMessage:
        return encode(record.body)
