"""One record as one line of JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from onefold.errors import InvalidMessage
from onefold.messages import codec, detect_format
from onefold.model import MESSAGE, Header, Json, Record
from onefold.storage.jsonl.filesystem import Disk

_BLOCK = 1 << 20
_CAREFUL = b" "


class RecordLine(NamedTuple):
    """What a line says: its record, how many lines of the same transaction follow, and, in the first line of a file,
    the session."""

    record: Record
    more: int
    session: str | None


def written(record: Record, data: str, *, more: int = 0, session: str | None = None) -> bytes:
    """The line of a record. `data` is its body as JSON text, which stands in it as it is. What orjson cannot carry has
    a leading space, in the body as in the line."""
    number, id, kind, at, _, format, header, key, turn, actor = record
    head: dict[str, Any] = {"n": number, "id": id, "at": at, "kind": kind}
    if session is not None:
        head["session"] = session
    if header is not None:
        head["role"] = header.role
        head["tokens"] = header.tokens
        if header.call_ids:
            head["opens"] = header.call_ids
        if header.result_ids:
            head["closes"] = header.result_ids
    if format is not None:
        head["format"] = format
    if key is not None:
        head["key"] = key
    if turn is not None:
        head["turn"] = turn
    if actor is not None:
        head["actor"] = actor
    if more:
        head["more"] = more
    head["data"] = orjson.Fragment(data)
    try:
        line = orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # the id of a tool call may have half a character in it
        del head["data"]
        return b' %s,"data":%s}\n' % (json.dumps(head, separators=(",", ":"))[:-1].encode(), data.encode())
    return _CAREFUL + line if data[0] == " " else line


def parsed(line: bytes) -> RecordLine:
    """What a line says. Raises ValueError with the reason if it is not a record."""
    said: Json = json.loads(line) if line[:1] == _CAREFUL else orjson.loads(line)
    try:
        number, id, kind, at, body = said["n"], said["id"], said["kind"], said["at"], said["data"]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"it is not a record: {error} is missing") from error
    if type(number) is not int or type(id) is not str or type(kind) is not str or type(at) not in (float, int):
        raise ValueError("it is not a record: n is a number, id and kind are text, at is seconds since 1970")
    get = said.get
    record = Record(
        number, id, kind, at, body, get("format"), _header(said), get("key"), get("turn"), get("actor")
    )  # fmt: skip
    return RecordLine(record, get("more", 0), get("session"))


def _header(said: dict[str, Json]) -> Header | None:
    """As it was written, or worked out, for a message that was added by hand."""
    if "tokens" in said:
        return Header(said["role"], said["tokens"], tuple(said.get("opens", ())), tuple(said.get("closes", ())))
    if said["kind"] != MESSAGE:
        return None
    try:
        return codec(said.get("format") or detect_format(said["data"])).header(said["data"])
    except InvalidMessage as error:
        raise ValueError(str(error)) from error


def lines(disk: Disk, fd: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """The lines of a file from an offset on, each with its own offset. They end at \\n and at nothing else; the last
    one may lack it."""
    parts: list[bytes] = []
    start = at = offset
    while block := disk.read(fd, _BLOCK, at):
        at += len(block)
        begin = 0
        while (end := block.find(b"\n", begin)) >= 0:
            parts.append(block[begin : end + 1])
            line = b"".join(parts) if len(parts) > 1 else parts[0]
            parts.clear()
            yield start, line
            start += len(line)
            begin = end + 1
        if begin < len(block):
            parts.append(block[begin:])
    if parts:
        yield start, b"".join(parts)
