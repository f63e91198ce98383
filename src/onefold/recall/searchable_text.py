"""The text of a record that is indexed: everything somebody said, without the bytes of images."""

from __future__ import annotations

import re
from enum import IntEnum

from onefold.errors import InvalidMessage
from onefold.messages import FORMATS, encode
from onefold.model import INPUT_QUEUED, MESSAGE, NOTE, SEGMENT_OPENED, Json, Label, Record


class Part(IntEnum):
    """What a record is in what is said around it: what comes next answers a question or a call."""

    OTHER = 0
    QUESTION = 1
    CALL = 2
    RESULT = 3


LONGEST = 256 << 10
"""How many characters of one record can be found."""
_QUESTIONS = ("?", "\uff1f", "\u061f")
"""Question marks, also those of Chinese and of Arabic."""
_TAIL = 8
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
            return "" if body.get("erased") else _summary(body)
    return ""


def _summary(body: Json) -> str:
    """A summary, with what was labelled when it was made."""
    summary = body.get("summary")
    facts = [f"{fact[0]} {fact[1]}: {fact[2]}" for fact in body.get("facts", ())]
    labels = [f"{label.kind} {label.subject}" for label in (Label(*one) for one in body.get("labels", ()))]
    return "\n".join((*([summary] if isinstance(summary, str) else []), *dict.fromkeys((*facts, *labels))))


def role(record: Record) -> str:
    """Who speaks: a message's role; else what sort of thing it is."""
    if record.header is not None and record.kind in (MESSAGE, INPUT_QUEUED):
        return record.header.role
    return {NOTE: "note", SEGMENT_OPENED: "summary"}.get(record.kind, record.kind)


def speaker(record: Record) -> str:
    """The name of who said it, where several may speak: the one that the message has, or who appended it."""
    name = record.body.get("name") if isinstance(record.body, dict) else None
    if not isinstance(name, str):
        return record.actor or ""
    return f"{name} {record.actor}" if record.actor else name


def part(record: Record, said: str) -> Part:
    if record.header is not None and (record.header.call_ids or record.header.result_ids):
        return Part.CALL if record.header.call_ids else Part.RESULT
    return Part.QUESTION if said[-_TAIL:].rstrip().endswith(_QUESTIONS) else Part.OTHER


def _message(record: Record) -> str:
    """A message of a format that a newer program wrote is read as JSON: it can still be found."""
    known = FORMATS.get(record.format or "json")
    try:
        return known.text(record.body) if known is not None else encode(record.body)
    except InvalidMessage:
        return encode(record.body)
