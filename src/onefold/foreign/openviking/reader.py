"""Reads an OpenViking session from disk into data, in one pass. Decides nothing.

A session is a folder with the live messages (`messages.jsonl`), a `.meta.json`, and an archive for each commit under
`history/`. A commit writes an archive's own `.meta.json` (which ids it takes, which stay live), then its messages, then
the live file again, and at last `.done`, or `.failed.json`.

A store may have a gigabyte, so of each id only a mark is kept here, a number that stands for it. Marks are good enough
to find things; whoever changes something compares the ids themselves.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import orjson

from onefold.errors import StoreError
from onefold.model import Json

LIVE = "messages.jsonl"
META = ".meta.json"
DONE = ".done"
FAILED = ".failed.json"
OVERVIEW = ".overview.md"
LEARNT = "memory_diff.json"
HISTORY = "history"

NO_ID = -1
"""The mark of a line that has no id. No id has it: `hash` never gives -1."""

_ARCHIVE = re.compile(r"archive_(\d{1,9})")
_LOCK = re.compile(r"\.path\.ovlock|\.exact\.ovlock\..+")
_LARGEST = 256 << 20
_TICK = 1 << 20

Seen = Callable[[int], None]
"""Told how many bytes more were read."""


@dataclass(frozen=True)
class JsonFile:
    """A small JSON file: missing, unreadable, or an object."""

    state: Literal["missing", "unreadable", "there"]
    value: dict[str, Json] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.state != "missing"


@dataclass(frozen=True)
class MessageLog:
    """A file of messages. Lines end at a newline and nowhere else; empty ones count for nothing."""

    marks: array[int]
    """Of every line, in order: the mark of its id, or NO_ID if it is not a message or has none."""
    bodies: array[int]
    """Of every line of the live file, in order: a mark of all that is on it."""
    nameless: tuple[int, ...] = ()
    """Numbers of the lines, from 1, that are messages without an id."""
    foreign: tuple[int, ...] = ()
    """Numbers of the lines that are not messages."""
    torn: int = 0
    """The number of the last line, if it was cut off in the middle; else 0."""
    ended: bool = True
    """The last line ends with a newline."""
    first: str | None = None
    last: str | None = None
    """The ids of the first and of the last message."""

    @property
    def messages(self) -> int:
        return len(self.marks) - len(self.foreign) - (1 if self.torn else 0)

    @property
    def whole(self) -> bool:
        return not self.foreign and not self.torn


@dataclass(frozen=True)
class Archive:
    """One commit."""

    name: str
    number: int
    log: MessageLog | None
    meta: JsonFile
    done: JsonFile
    failed: JsonFile
    archived: array[int] | None
    """Marks of the ids that it says it takes; None if it does not say."""
    retained: array[int] | None
    """Marks of the ids that it says stay live."""
    status: str | None
    worked: bool
    """What its `.done` would promise is there: a summary and what was learnt, as far as they were asked for."""

    @property
    def finished(self) -> bool:
        return self.done.state == "there" and self.log is not None and self.log.messages > 0


@dataclass(frozen=True)
class Lock:
    name: str
    since: float | None
    """When it was taken; None if that cannot be read."""


@dataclass(frozen=True)
class SessionFiles:
    name: str
    live: MessageLog
    meta: JsonFile
    archives: tuple[Archive, ...]
    locks: tuple[Lock, ...]


def read(folder: Path, name: str, seen: Seen) -> SessionFiles:
    """Reads a session. Raises StoreError, with what to do, if a file cannot be read at all."""
    try:
        archives = tuple(_archive(folder / HISTORY / found, seen) for found in archive_names(folder))
        live = read_log(folder / LIVE, seen, bodily=True) or MessageLog(array("q"), array("q"))
        return SessionFiles(name, live, told(folder / META), archives, tuple(locks(folder)))
    except OSError as error:
        raise StoreError(f"session {name} cannot be read: {error}; look at the rights of its files") from error


def archive_names(folder: Path) -> list[str]:
    """The archives of a session, the oldest first."""
    history = folder / HISTORY
    if not history.is_dir():
        return []
    found = [entry.name for entry in history.iterdir() if _ARCHIVE.fullmatch(entry.name) and entry.is_dir()]
    return sorted(found, key=lambda name: (archive_number(name), name))


def archive_number(name: str) -> int:
    found = _ARCHIVE.fullmatch(name)
    return int(found[1]) if found else 0


def _archive(folder: Path, seen: Seen) -> Archive:
    meta = told(folder / META)
    phase = meta.value.get("phase1")
    phase = phase if isinstance(phase, dict) else {}
    status = phase.get("status")
    return Archive(
        name=folder.name,
        number=archive_number(folder.name),
        log=read_log(folder / LIVE, seen),
        meta=JsonFile(meta.state),  # without its lists of ids, which are long
        done=told(folder / DONE, empty=True),
        failed=told(folder / FAILED, empty=True),
        archived=_marks(phase.get("archived_message_ids")),
        retained=_marks(phase.get("retained_message_ids")),
        status=status if isinstance(status, str) else None,
        worked=_worked(folder, phase),
    )


def named(folder: Path, archive: str) -> tuple[list[str], list[str]]:
    """The ids that an archive says it takes, and those that it says stay live."""
    phase = told(folder / HISTORY / archive / META).value.get("phase1")
    phase = phase if isinstance(phase, dict) else {}
    return _ids(phase.get("archived_message_ids")) or [], _ids(phase.get("retained_message_ids")) or []


def spelled(folder: Path, archive: str, marks: Container[int]) -> list[str]:
    """The ids behind marks that an archive names."""
    taken, kept = named(folder, archive)
    return [id for id in dict.fromkeys((*taken, *kept)) if hash(id) in marks]


def told(path: Path, *, empty: bool = False) -> JsonFile:
    """A JSON file. Older programs write some markers with nothing in them: `empty` takes that for an object."""
    if not path.is_file():
        return JsonFile("unreadable" if path.exists() else "missing")
    if path.stat().st_size > _LARGEST:
        return JsonFile("unreadable")
    content = path.read_bytes()
    if empty and not content.strip():
        return JsonFile("there")
    value = parsed(content)
    return JsonFile("there", value) if isinstance(value, dict) else JsonFile("unreadable")


def read_log(path: Path, seen: Seen, *, bodily: bool = False) -> MessageLog | None:
    """A file of messages, or None if it is not there; with the marks of whole lines, if they are asked for."""
    if not path.is_file():
        return None
    marks, bodies, nameless, foreign = array("q"), array("q"), array("q"), array("q")
    first = last = None
    torn, ended, unseen = 0, True, 0
    with path.open("rb") as file:
        for number, line in lines(file):
            unseen += len(line)
            if unseen >= _TICK:
                seen(unseen)
                unseen = 0
            ended = line.endswith(b"\n")
            id, message = identity(line)
            marks.append(NO_ID if id is None else hash(id))
            if bodily:
                bodies.append(hash(line.strip()))
            if id is not None:
                first, last = first or id, id
            elif message:
                nameless.append(number)
            elif ended:
                foreign.append(number)
            else:
                torn = number
    seen(unseen)
    return MessageLog(marks, bodies, tuple(nameless), tuple(foreign), torn, ended, first, last)


def lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that have something in them, each with its number from 1 and its newline."""
    for number, line in enumerate(file, 1):
        if line.strip():
            yield number, line


def identity(line: bytes) -> tuple[str | None, bool]:
    """The id of a message, if it has one, and whether the line is a message at all."""
    value = parsed(line)
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return None, False
    id = value.get("id")
    return (id if isinstance(id, str) and id else None), True


def parsed(text: bytes) -> Json:
    """JSON, or None. What only Python's own reader takes (NaN, lone surrogates) is taken too: a program wrote it."""
    try:
        return orjson.loads(text)
    except ValueError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def locks(folder: Path) -> Iterator[Lock]:
    for place in (folder, folder / HISTORY, *(folder / HISTORY / name for name in archive_names(folder))):
        if place.is_dir():
            for entry in sorted(place.iterdir()):
                if _LOCK.fullmatch(entry.name) and entry.is_file():
                    yield Lock(entry.relative_to(folder).as_posix(), _since(entry))


def _since(lock: Path) -> float | None:
    """A lock holds `owner:nanoseconds:kind`; the owner may have colons too."""
    if lock.stat().st_size > 4096:
        return None
    parts = lock.read_bytes().decode(errors="replace").strip().rsplit(":", 2)
    if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit() and len(parts[1]) <= 20:
        return int(parts[1]) / 1e9
    return None


def _worked(folder: Path, phase: dict[str, Json]) -> bool:
    if not phase:  # an older version says neither what it was asked for nor what it learnt
        return _size(folder / OVERVIEW) > 0
    message = phase.get("queue_message")
    policy = message.get("memory_policy") if isinstance(message, dict) else None
    off = {
        name
        for name, wish in (policy.items() if isinstance(policy, dict) else ())
        if isinstance(wish, dict) and wish.get("enabled") is False
    }
    summarised = "working_memory" in off or _size(folder / OVERVIEW) > 0
    return summarised and ({"self", "peer"} <= off or _size(folder / LEARNT) > 0)


def _ids(value: Json) -> list[str] | None:
    return [id for id in value if isinstance(id, str)] if isinstance(value, list) else None


def _marks(value: Json) -> array[int] | None:
    ids = _ids(value)
    return None if ids is None else array("q", (hash(id) for id in ids))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
