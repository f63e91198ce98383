"""A machine that loses power, for folders: every change of a file or of a name is noted, and any moment of it can be
looked at again.

A power cut keeps what was synced: content by a sync of its file, names by a sync of their folder, and neither by the
other. Of the rest it keeps nothing, everything, or any part; a file may have its new size and zeros for content, and a
name may come before what it names. This is more than any one file system does.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import apsw

from onefold.storage.jsonl import Disk

Names = Literal["none", "all", "until", "some"]
Content = Literal["none", "all", "zeros", "some", "torn"]

LOSSES: dict[str, tuple[Names, Content]] = {
    "everything unsynced": ("none", "none"),
    "nothing": ("all", "all"),
    "content, and no name": ("all", "none"),
    "content to zeros, and no name": ("all", "zeros"),
    "names, and no content": ("none", "all"),
    "names since a moment, some content": ("until", "some"),
    "some names, some content, one write torn": ("some", "torn"),
}
"""What is lost: which names are kept, and which content."""

NAMING = ("create", "mkdir", "link", "rename", "unlink", "rmdir")
SYNCING = ("fdatasync", "fsync", "fsync_folder")
CHANGING = (*NAMING, "write", "truncate", *SYNCING)
GROWING = ("create", "mkdir", "link", "rename", "write")
"""What a full disk refuses."""

_INDEX, _LOG = -1, -2
"""SQLite's own files, which are not noted; but a sync of its log means that the index is on the disk as it is."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in order."""

    kind: str
    node: int = 0
    """The file whose content changes or is synced, or the folder whose names do or are."""
    name: str = ""
    target: int = 0
    """What the name stands for."""
    before: str = ""
    """The name that it had, if it was renamed."""
    offset: int = 0
    data: bytes = b""
    said: object = None
    """Of an acknowledgement: what was promised."""
    index: int = -1
    """Which of the machine's snapshots the index was like by then."""


class Killed(BaseException):
    """The process ended here: nothing that it would do after it reaches the disk."""


class Machine:
    """What all processes share: the files, and everything that happened to them."""

    def __init__(self, top: Path, index: Path | None = None) -> None:
        self.events: list[Event] = []
        self.indexes: list[bytes] = []
        """Snapshots of the index, each as it was for a while."""
        self.watched = index
        self._nodes = {str(top): 0}
        self._numbers = count(1)
        self._open: dict[int, int] = {}

    def find(self, left: Left, top: Path) -> None:
        """Begins with what a power cut left, laid out: all of that is surely on the disk."""
        for name in left.folders:
            self.named("mkdir", top / name)
        first: dict[int, Path] = {}
        for name, node in left.files.items():
            path = top / name
            if node in first:
                self.linked(first[node], path)
            else:
                self.named("create", path)
                self.note("write", self.node(path), data=left.contents[node])
                first[node] = path
        for node in sorted({*self._nodes.values()}):
            self.note("sync", node)

    def note(self, kind: str, node: int = 0, **more: Any) -> None:
        self.events.append(Event(kind, node, index=self._look(), **more))

    def acknowledge(self, said: object) -> None:
        self.note("acknowledged", said=said)

    def opened(self, fd: int, path: Path | str) -> None:
        index = _LOG if str(path).endswith("-wal") else _INDEX
        self._open[fd] = self._nodes.get(str(path), index)

    def closed(self, fd: int) -> None:
        self._open.pop(fd, None)

    def node(self, what: int | Path | str) -> int:
        return self._open[what] if isinstance(what, int) else self._nodes[str(what)]

    def named(self, kind: str, path: Path) -> None:
        """A file or a folder that is new."""
        node = self._nodes[str(path)] = next(self._numbers)
        self.note(kind, self.node(path.parent), name=path.name, target=node)

    def linked(self, path: Path, name: Path) -> None:
        node = self._nodes[str(name)] = self.node(path)
        self.note("link", self.node(name.parent), name=name.name, target=node)

    def renamed(self, path: Path, name: Path) -> None:
        node = self._nodes[str(name)] = self._nodes.pop(str(path))
        self.note("rename", self.node(name.parent), name=name.name, target=node, before=path.name)

    def unnamed(self, kind: str, path: Path) -> None:
        del self._nodes[str(path)]
        self.note(kind, self.node(path.parent), name=path.name)

    def _look(self) -> int:
        if self.watched is None or not self.watched.exists():
            return -1
        connection = apsw.Connection(str(self.watched))
        try:
            now = connection.serialize("main")
        finally:
            connection.close()
        if not self.indexes or self.indexes[-1] != now:
            self.indexes.append(now)
        return len(self.indexes) - 1


class NotedDisk(Disk):
    """What one process sees of a machine. It can be told to fail, or to be killed, at a call to come."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._fault: Fault | None = None
        self._made = 0
        self._dead = False

    def arm(self, fault: Fault | None) -> None:
        self._fault, self._made = fault, 0

    @property
    def reached(self) -> bool:
        """Whether what it was armed with has happened."""
        return self._fault is not None and self._made >= self._fault.at

    def _strikes(self, kind: str) -> bool:
        """Whether this is the call that the fault is for; where it has no other end than to happen whole, it does."""
        self._check_alive()
        fault = self._fault
        if fault is None or kind not in fault.kinds:
            return False
        self._made += 1
        if self._made < fault.at or (self._made > fault.at and not fault.lasting):
            return False
        if not (fault.torn and kind == "write"):
            self._end(fault)
        return True

    def _end(self, fault: Fault) -> None:
        if fault.error is None:
            self._dead = True
            raise Killed
        raise OSError(fault.error, os.strerror(fault.error))

    def _check_alive(self) -> None:
        if self._dead:
            raise Killed

    # ------------------------------------------------------------------ changing

    def create(self, path: Path) -> int:
        self._strikes("create")
        fd = super().create(path)
        self._machine.named("create", path)
        self._machine.opened(fd, path)
        return fd

    def open_append(self, path: Path) -> int:
        self._check_alive()
        fd = super().open_append(path)
        self._machine.opened(fd, path)
        return fd

    def write(self, fd: int, data: bytes, offset: int) -> None:
        torn = self._strikes("write")
        kept = data[: len(data) // 2] if torn else data
        super().write(fd, kept, offset)
        self._machine.note("write", self._machine.node(fd), offset=offset, data=bytes(kept))
        if torn and self._fault is not None:
            self._end(self._fault)

    def truncate(self, fd: int, size: int) -> None:
        self._strikes("truncate")
        super().truncate(fd, size)
        self._machine.note("truncate", self._machine.node(fd), offset=size)

    def fdatasync(self, fd: int) -> None:
        self._strikes("fdatasync")
        self._machine.note("sync", self._machine.node(fd))

    def fsync(self, fd: int) -> None:
        self._strikes("fsync")
        self._machine.note("sync", self._machine.node(fd))

    def fsync_folder(self, path: Path) -> None:
        self._strikes("fsync_folder")
        self._machine.note("sync", self._machine.node(path))

    def link(self, path: Path, name: Path) -> None:
        self._strikes("link")
        super().link(path, name)
        self._machine.linked(path, name)

    def rename(self, path: Path, name: Path) -> None:
        self._strikes("rename")
        super().rename(path, name)
        self._machine.renamed(path, name)

    def unlink(self, path: Path) -> None:
        self._strikes("unlink")
        super().unlink(path)
        self._machine.unnamed("unlink", path)

    def mkdir(self, path: Path) -> None:
        self._strikes("mkdir")
        super().mkdir(path)
        self._machine.named("mkdir", path)

    def rmdir(self, path: Path) -> None:
        self._strikes("rmdir")
        super().rmdir(path)
        self._machine.unnamed("rmdir", path)

    # ------------------------------------------------------------------ reading

    def open(self, path: str | Path) -> int:
        self._check_alive()
        return super().open(path)

    def close(self, fd: int) -> None:
        self._machine.closed(fd)
        super().close(fd)

    def names(self, path: str | Path) -> list[str]:
        self._check_alive()
        return sorted(super().names(path))

    def exists(self, path: str | Path) -> bool:
        self._check_alive()
        return super().exists(path)

    def stat(self, path: str | Path) -> os.stat_result:
        self._check_alive()
        return super().stat(path)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong at the n-th call of these kinds, counted from 1."""

    at: int
    kinds: tuple[str, ...] = CHANGING
    error: int | None = None
    """None: the process is killed before the call."""
    torn: bool = False
    """Of a write, half has happened by then."""
    lasting: bool = False
    """All later calls of these kinds fail as well."""


FAULTS: dict[str, Callable[[int], Fault]] = {
    "no room": lambda at: Fault(at, GROWING, errno.ENOSPC),
    "no room, half a write": lambda at: Fault(at, GROWING, errno.ENOSPC, torn=True),
    "no room from then on": lambda at: Fault(at, GROWING, errno.ENOSPC, torn=True, lasting=True),
    "a sync that fails": lambda at: Fault(at, SYNCING, errno.EIO),
    "syncs that fail from then on": lambda at: Fault(at, SYNCING, errno.EIO, lasting=True),
    "nothing works from then on": lambda at: Fault(at, CHANGING, errno.EIO, torn=True, lasting=True),
}


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)


@dataclass
class _Folder:
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[int, Event]] = field(default_factory=list)
    """In order; the number is the place among the changes of all folders."""


@dataclass(frozen=True, slots=True)
class Left:
    """What there is after a power cut. Two names of one file are two names of one file still."""

    folders: tuple[str, ...]
    files: dict[str, int]
    contents: dict[int, bytes]

    def lay_out(self, top: Path) -> None:
        first: dict[int, Path] = {}
        for name in self.folders:
            top.joinpath(name).mkdir()
        for name, node in self.files.items():
            path = top / name
            if node in first:
                path.hardlink_to(first[node])
            else:
                path.write_bytes(self.contents[node])
                first[node] = path


class Tree:
    """What is surely on the disk, and what has only happened."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {0: _Folder()}
        self._order = count()
        self.oldest_index = 0
        """The snapshot that the disk has at least."""

    def happen(self, event: Event) -> None:
        match event.kind:
            case "create":
                self._files[event.target] = _File()
            case "mkdir":
                self._folders[event.target] = _Folder()
            case "write" | "truncate":
                self._files[event.node].pending.append(event)
            case "sync" if event.node == _LOG:
                self.oldest_index = event.index
            case "sync" if event.node in self._files:
                file = self._files[event.node]
                _change(file.durable, file.pending)
                file.pending.clear()
            case "sync" if event.node != _INDEX:
                folder = self._folders[event.node]
                _name(folder.durable, (one for _, one in folder.pending))
                folder.pending.clear()
        if event.kind in NAMING:
            self._folders[event.node].pending.append((next(self._order), event))

    def after(self, loss: str, chance: random.Random) -> Left:
        """The files and folders as a power cut leaves them."""
        names, content = LOSSES[loss]
        pending = sum(len(f.pending) for f in self._folders.values())
        places = sorted(place for f in self._folders.values() for place, _ in f.pending)
        until = places[chance.randrange(pending)] if places else 0
        keep: dict[Names, Callable[[int], bool]] = {
            "none": lambda _: False,
            "all": lambda _: True,
            "until": lambda place: place <= until,
            "some": lambda _: chance.random() < 0.5,
        }
        there: dict[int, dict[str, int]] = {}
        for node, folder in self._folders.items():
            there[node] = dict(folder.durable)
            _name(there[node], [event for place, event in folder.pending if keep[names](place)])
        folders: list[str] = []
        files: dict[str, int] = {}
        self._walk(0, "", there, folders, files)
        contents = {node: self._content(node, content, chance) for node in sorted(set(files.values()))}
        return Left(tuple(folders), files, contents)

    def _walk(
        self, node: int, path: str, there: dict[int, dict[str, int]], folders: list[str], files: dict[str, int]
    ) -> None:  # fmt: skip
        for name, target in there[node].items():
            if target in self._folders:
                folders.append(f"{path}{name}")
                self._walk(target, f"{path}{name}/", there, folders, files)
            else:
                files[f"{path}{name}"] = target

    def _content(self, node: int, content: Content, chance: random.Random) -> bytes:
        file = self._files[node]
        found = bytearray(file.durable)
        _change(found, _kept(file.pending, content, chance))
        return bytes(found)


def moments(events: list[Event]) -> Iterator[tuple[int, Event, Tree, list[object]]]:
    """Every moment at which power may go: its place, what happened last, the disk then, and all that was promised."""
    tree = Tree()
    promised: list[object] = []
    for place, event in enumerate(events):
        if event.kind == "acknowledged":
            promised.append(event.said)
        else:
            tree.happen(event)
        yield place, event, tree, promised


def _name(names: dict[str, int], events: Iterable[Event]) -> None:
    for event in events:
        if event.kind in ("unlink", "rmdir"):
            names.pop(event.name, None)
        else:
            names.pop(event.before, None)
            names[event.name] = event.target


def _change(content: bytearray, events: Iterable[Event]) -> None:
    for event in events:
        if event.kind == "truncate":
            del content[event.offset :]
        content.extend(b"\0" * (event.offset - len(content)))
        content[event.offset : event.offset + len(event.data)] = event.data


def _kept(events: list[Event], content: Content, chance: random.Random) -> list[Event]:
    match content:
        case "none":
            return []
        case "all":
            return events
        case "zeros":
            return [_without(event, 0, len(event.data)) for event in events]
    kept = [event for event in events if chance.random() < 0.5]
    writes = [n for n, event in enumerate(kept) if len(event.data) > 1]
    if content == "torn" and (writes or events):
        if not writes:
            kept, writes = [events[-1]], [0]
        torn = chance.choice(writes)
        kept[torn] = _tear(kept[torn], chance)
    return kept


def _tear(event: Event, chance: random.Random) -> Event:
    """A write that ends too early, or that has a hole."""
    first, last = sorted(chance.randrange(len(event.data) + 1) for _ in range(2))
    if chance.random() < 0.5:
        return Event(event.kind, event.node, offset=event.offset, data=event.data[:first])
    return _without(event, first, last)


def _without(event: Event, first: int, last: int) -> Event:
    data = event.data[:first] + b"\0" * (last - first) + event.data[last:]
    return Event(event.kind, event.node, offset=event.offset, data=data)
