"""Reads a file that `onefold export` wrote, which may be torn, out of order, or something else altogether.

The first look notes where each record lies; records are read when they are asked for, so that the file may be larger
than the memory.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from onefold.cli.options import WrongUse
from onefold.cli.output import short
from onefold.errors import OnefoldError
from onefold.humanize import listed
from onefold.model import FORK, SEGMENT_OPENED, Header, Json, Record

FIELDS = ("session", "number", "id", "kind", "at", "turn", "key", "actor", "format", "header", "body")
_LATEST = 1e11
"""A time beyond what a calendar has: in seconds, the year 5138."""
_MAGIC = {
    b"SQLite format 3\x00": "a database. If it is a store, use it with --store, or export from it first",
    b"\x1f\x8b": "compressed with gzip; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"\xfd7zXZ": "compressed with xz; unpack it first",
    b"PK\x03\x04": "a zip archive; unpack it first",
}


class Unreadable(OnefoldError):
    """A session in the file cannot be read any further."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that is left out, and why."""

    line: int
    cause: str


@dataclass(slots=True)
class _Places:
    """Where the records of one session lie in the file."""

    parent: str | None = None
    forked_at: int = 0
    alone: bool = False
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))


class Exported:
    """The sessions in an export, and the lines that are none of theirs."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.faults: list[Fault] = []
        self._file = file
        self._sessions: dict[str, _Places] = {}
        self._look_over()

    def __contains__(self, session: str) -> bool:
        return session in self._sessions

    @property
    def records(self) -> int:
        return sum(self.count(session) for session in self._sessions)

    def count(self, session: str) -> int:
        return len(set(self._sessions[session].numbers))

    def first(self, session: str) -> int:
        """The number of its first record in the file."""
        return min(self._sessions[session].numbers)

    def parent(self, session: str) -> str | None:
        """The session that this one is a fork of, if the file says so."""
        return self._sessions[session].parent

    def forked_at(self, session: str) -> int:
        """The last record of its parent that is this one's past."""
        return self._sessions[session].forked_at

    def alone(self, session: str) -> bool:
        """Whether it is a fork that no longer sees anything of its parent, as after that was deleted."""
        return self._sessions[session].alone

    def in_order(self) -> Iterator[str]:
        """The sessions as they come, but parents before their forks."""
        done: set[str] = set()
        for session in self._sessions:
            line: list[str] = []
            before: str | None = session
            while before is not None and before in self._sessions and before not in done and before not in line:
                line.append(before)
                before = self._sessions[before].parent
            done |= {*line}
            yield from reversed(line)

    def read(self, session: str) -> Iterator[tuple[Record, int]]:
        """The records of one session in order of number, each with the size of its line."""
        places = self._sessions[session]
        order = sorted(range(len(places.numbers)), key=places.numbers.__getitem__)
        before: Record | None = None
        for i in order:
            self._file.seek(places.offsets[i])
            line = self._file.readline()
            _, record = _parse(line)
            if before is not None and record.number == before.number:
                if record != before:
                    raise Unreadable(f"session {session!r}: {self.name} has two records {record.number} that differ")
                continue
            if before is not None and record.number != before.number + 1:
                missing = before.number + 1
                raise Unreadable(f"session {session!r}: {self.name} lacks record {missing}, so it ends before it")
            before = record
            yield record, len(line)

    def _look_over(self) -> None:
        offset = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                try:
                    self._note(offset, *_parse(line))
                except ValueError as error:
                    torn = "" if line.endswith(b"\n") else "the file ends inside it; "
                    self.faults.append(Fault(number, f"{torn}{error}"))
            offset += len(line)

    def _note(self, offset: int, session: str, record: Record) -> None:
        places = self._sessions.setdefault(session, _Places())
        places.numbers.append(record.number)
        places.offsets.append(offset)
        if record.kind == FORK:
            places.parent, places.forked_at = record.body["parent"], record.number - 1
        if record.kind == SEGMENT_OPENED and places.parent is not None and isinstance(record.body, dict):
            places.alone = _hides(record.body.get("hidden"), places.forked_at)


def _hides(hidden: Json, upto: int) -> bool:
    """Whether everything up to a record is hidden."""
    first = hidden[0] if isinstance(hidden, list) and hidden else None
    return isinstance(first, list) and first[:1] == [1] and isinstance(first[-1], int) and first[-1] >= upto


@contextlib.contextmanager
def exported(path: str) -> Iterator[Exported]:
    """Opens an export by its path, or stdin for "-"; anything else is rejected, with what was found."""
    name = "stdin" if path == "-" else path
    with contextlib.ExitStack() as stack:
        try:
            file: BinaryIO = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise WrongUse(f"{path} cannot be read: {error.strerror}") from None
        if path == "-" or not file.seekable():
            # It is read more than once, and a pipe is gone after the first time.
            whole = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, whole)
            whole.seek(0)
            file = whole
        _recognise(file, name)
        yield Exported(file, name)


def _recognise(file: BinaryIO, name: str) -> None:
    """Checks how a file begins, and rewinds it if it is an export."""

    def other(what: str) -> NoReturn:
        raise WrongUse(f"{name} is not what `onefold export` writes: {what}")

    begins = file.read(16)
    for magic, what in _MAGIC.items():
        if begins.startswith(magic):
            other(f"it is {what}")
    file.seek(0)
    first = next((line for line in file if line.strip()), None)
    if first is None:
        other("it is empty")
    file.seek(0)
    try:
        value = _loads(first)
    except ValueError:
        other(f"its first line is not JSON: {short(first[:200].decode('utf-8', 'backslashreplace'), 40)}")
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
        other(f"its first line is {kinds.get(type(value), 'null')}, not an object")
    if not {"session", "number", "kind", "body"} <= {*value}:
        other(f"its first line is an object with {short(listed(value), 60) or 'no fields'}, not a record")


def _parse(line: bytes) -> tuple[str, Record]:
    """One line as a session's id and a record. `ValueError` says what is wrong with it."""
    value = _loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    if missing := [name for name in FIELDS if name not in value]:
        raise ValueError(f"it is not a record: it lacks {listed(missing)}")
    for name, fits in _FITS.items():
        if not fits(value[name]):
            raise ValueError(f"its {name} is invalid")
    if value["kind"] == FORK and not _is_fork(value["body"], value["number"]):
        raise ValueError("its body is invalid")
    fields = {name: value[name] for name in FIELDS if name not in ("session", "header", "at")}
    return value["session"], Record(at=float(value["at"]), header=_header(value["header"]), **fields)


def _loads(line: bytes) -> Json:
    """JSON with every number and character as written. NaN is rejected: it is not JSON."""
    try:
        return json.loads(line.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON from character {error.pos + 1} on") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _header(value: Json) -> Header | None:
    if value is None:
        return None
    return Header(value["role"], value["tokens"], tuple(value["opens"]), tuple(value["closes"]))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_name(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 512 and value.isprintable()


def _is_text_or_none(value: Json) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62


def _is_time(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST


def _is_fork(body: Json, number: int) -> bool:
    return isinstance(body, dict) and _is_name(body.get("parent")) and body.get("at") == number - 1


def _is_header(value: Json) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or {*value} != {"role", "tokens", "opens", "closes"}:
        return False
    calls = (value["opens"], value["closes"])
    return (
        _is_text(value["role"])
        and (value["tokens"] == 0 or _is_number(value["tokens"]))
        and all(isinstance(ids, list) and all(_is_text(id) for id in ids) for ids in calls)
    )


_FITS = {
    "session": _is_name, "number": _is_number, "id": _is_text, "kind": _is_text, "at": _is_time,
    "turn": _is_text_or_none, "key": _is_text_or_none, "actor": _is_text_or_none, "format": _is_text_or_none,
    "header": _is_header,
}  # fmt: skip
