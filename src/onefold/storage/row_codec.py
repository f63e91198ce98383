"""What the columns of a table hold, and the plain data that a row stands for: the same in every store with tables."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

from onefold.errors import StoreDamaged
from onefold.messages import decode, encode
from onefold.model import Compaction, Header, HolderId, Record, Segment, SessionState, Usage

log = logging.getLogger("onefold")

_COLUMNS = ("session", "id", "state", "requested_at")
_REST = frozenset(f.name for f in fields(Compaction)) - {*_COLUMNS}
_NUMBERS = struct.Struct("<2d14q")
_LATER = struct.Struct("<4q")


def only_messages(before: SessionState, after: SessionState) -> bool:
    """Whether nothing but messages was added between two states of a session. A head or a cut that moved is a segment
    more."""
    return after.last - before.last == after.messages - before.messages and before[8:] == after[8:]


def header_columns(h: Header | None) -> tuple[str | int | None, ...]:
    if h is None:
        return None, None, None, None
    if not (h.call_ids or h.result_ids):
        return h.role, h.tokens, None, None
    return h.role, h.tokens, _pack(h.call_ids), _pack(h.result_ids)


def _pack(ids: tuple[str, ...]) -> str | None:
    return encode(list(ids)) if ids else None


def _unpack(text: str | None) -> tuple[str, ...]:
    return tuple(decode(text)) if text else ()


def header(role: str, tokens: int, opens: str | None, closes: str | None) -> Header:
    return Header(role, tokens, _unpack(opens), _unpack(closes))


def record(session: str, row: Any) -> Record:
    number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body = row
    try:
        head = None if role is None else header(role, tokens, opens, closes)
        return Record(number, id, kind, at, decode(body), format, head, key, turn, actor)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(
            f"session {session!r}: record {number} ({kind}) is not JSON ({error}); run `onefold verify`, "
            "or restore a backup"
        ) from error


def segment(row: Any) -> Segment:
    number, base, cut, source, at, compaction, summary, kept, before, after, rest = row
    try:
        names = tuple(decode(kept))
        more = decode(rest) if rest != "{}" else {}
        hidden = tuple((a, b) for a, b in more.get("hidden", ()))
        return Segment(
            number, base or None, cut, source, at, compaction, summary, names, before, after, hidden,
            more.get("redo"), more.get("keeper", "onefold"), tuple(more.get("unfolds", ())),
            tuple((number, saves) for number, saves in more.get("masked", ())), more.get("origin"),
            more.get("item"), tuple((number, saves) for number, saves in more.get("adopted", ())),
        )  # fmt: skip
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"the row of segment {number} makes no sense; run `onefold verify --fix`") from error


def segment_extra(s: Segment) -> str:
    more = {
        "hidden": [list(r) for r in s.hidden], "redo": s.redo, "keeper": s.keeper, "unfolds": list(s.unfolds),
        "masked": [list(m) for m in s.masked], "origin": s.origin, "item": s.item,
        "adopted": [list(m) for m in s.adopted],
    }  # fmt: skip
    return encode({name: value for name, value in more.items() if value not in ([], None, "onefold")})


def compaction(row: Any) -> Compaction:
    session, id, state, requested_at, text = row
    try:
        rest = {name: value for name, value in decode(text).items() if name in _REST}  # a newer program may add some
        holder, spent = rest.pop("holder"), rest.pop("spent", {})
        return Compaction(
            id=id, session=session, state=state, requested_at=requested_at, **rest,
            holder=None if holder is None else HolderId(**holder), spent=Usage(**spent),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreDamaged(
            f"session {session!r}: the row of compaction {id} makes no sense; run `onefold verify --fix`"
        ) from error


def skip_damaged(rows: Iterable[Any]) -> Iterator[Compaction]:
    """Compactions of many sessions: one bad row must not hold up every other session."""
    for row in rows:
        try:
            yield compaction(row)
        except StoreDamaged as error:
            log.warning("%s", error)


def segment_or_not(row: Any) -> Segment:
    """For comparing: a row that cannot be read equals none that the journal gives."""
    try:
        return segment(row)
    except StoreDamaged:
        return Segment(row[0], row[1], -1, row[3], row[4])


def compaction_or_not(row: Any) -> Compaction:
    """For comparing: a row that cannot be read equals none that the journal gives."""
    try:
        return compaction(row)
    except StoreDamaged:
        return Compaction(row[1], row[0], -1, "unreadable", row[2], row[3], 0)


def row_checksum(values: Any) -> int:
    text = f"{values[0]}\n{values[11]}\n{values[16]}"
    try:
        numbers = _NUMBERS.pack(*values[1:11], *values[12:16], *values[17:19])
        later = values[19:]  # columns that came with a later schema: rows from before it keep their seal
        if any(later):
            numbers += _LATER.pack(*later)
    except struct.error:
        return -1  # not even numbers: the seal of no row
    return zlib.crc32(text.encode(), zlib.crc32(numbers))


def compaction_row(c: Compaction) -> tuple[str, str, str, float, str]:
    rest = encode({name: value for name, value in asdict(c).items() if name not in _COLUMNS})
    return c.session, c.id, c.state, c.requested_at, rest
