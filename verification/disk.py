"""A disk that loses power: every write and sync of a store is noted, and any moment of it can be looked at again.

A power cut keeps what was synced. Of what was written since, it keeps nothing, everything, any part, and perhaps one
write torn in the middle. `Disk` gives all of these as folders that a store can be opened in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import apsw

SECTOR = 512

Loss = Literal["everything unsynced", "nothing", "some writes", "some writes, one torn"]
LOSSES: tuple[Loss, ...] = ("everything unsynced", "nothing", "some writes", "some writes, one torn")

_names = count(1)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a file, in order."""

    kind: Literal["write", "truncate", "sync", "delete", "acknowledged"]
    file: str
    offset: int = 0
    data: bytes = b""
    said: object = None
    """Of an acknowledgement: what was promised."""


class Recorder(apsw.VFS):
    """Passes everything on to the real file system, and notes what would be lost by a power cut."""

    def __init__(self) -> None:
        self.name = f"recorded-{next(_names)}"
        self.events: list[Event] = []
        super().__init__(self.name, "")

    def connect(self, path: str) -> apsw.Connection:
        return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, vfs=self.name)

    def acknowledge(self, said: object) -> None:
        self.events.append(Event("acknowledged", "", said=said))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _Recorded(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.events.append(Event("delete", Path(filename).name, offset=int(syncdir)))


class _Recorded(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._events = recorder.events
        self._file = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._events.append(Event("write", self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._events.append(Event("truncate", self._file, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._events.append(Event("sync", self._file))


@dataclass
class Disk:
    """What is surely on the disk, and what has only been written."""

    durable: dict[str, bytearray] = field(default_factory=dict)
    pending: dict[str, list[Event]] = field(default_factory=dict)
    ghosts: dict[str, bytearray] = field(default_factory=dict)
    """Files that were deleted, while the folder was not synced yet: they may come back."""

    def happen(self, event: Event) -> None:
        match event.kind:
            case "sync":
                content = self.durable.setdefault(event.file, bytearray())
                for earlier in self.pending.pop(event.file, ()):
                    _apply(content, earlier)
                self.ghosts.clear()
            case "delete":
                gone = self.durable.pop(event.file, None)
                self.pending.pop(event.file, None)
                if gone is not None and not event.offset:
                    self.ghosts[event.file] = gone
            case "write" | "truncate":
                self.pending.setdefault(event.file, []).append(event)

    def after(self, loss: Loss, chance: random.Random) -> dict[str, bytes]:
        """The files as a power cut leaves them."""
        files = {name: bytearray(content) for name, content in self.durable.items()}
        if loss == "everything unsynced":
            files = {name: bytearray(content) for name, content in self.ghosts.items()} | files
        for name, events in self.pending.items():
            kept = _kept(events, loss, chance)
            if kept:
                content = files.setdefault(name, bytearray())
                for event in kept:
                    _apply(content, event)
        return {name: bytes(content) for name, content in files.items()}


def moments(events: list[Event]) -> Iterator[tuple[int, Disk, list[object]]]:
    """Every moment at which power may go: its place, the disk then, and all that was promised by then."""
    disk = Disk()
    promised: list[object] = []
    for place, event in enumerate(events):
        if event.kind == "acknowledged":
            promised.append(event.said)
        else:
            disk.happen(event)
        yield place, disk, promised


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        folder.joinpath(name).write_bytes(content)


def _kept(events: list[Event], loss: Loss, chance: random.Random) -> list[Event]:
    if loss == "everything unsynced":
        return []
    if loss == "nothing":
        return events
    kept = [e for e in events if chance.random() < 0.5]
    writes = [n for n, e in enumerate(kept) if e.kind == "write" and len(e.data) > SECTOR]
    if loss == "some writes, one torn" and writes:
        torn = chance.choice(writes)
        kept[torn] = _tear(kept[torn], chance)
    return kept


def _tear(event: Event, chance: random.Random) -> Event:
    """Some of its sectors, from the beginning or from the end."""
    sectors = (len(event.data) + SECTOR - 1) // SECTOR
    at = chance.randrange(1, sectors) * SECTOR
    if chance.random() < 0.5:
        return Event("write", event.file, event.offset, event.data[:at])
    return Event("write", event.file, event.offset + at, event.data[at:])


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(b"\0" * (event.offset - len(content)))
        return
    if len(content) < event.offset:
        content.extend(b"\0" * (event.offset - len(content)))
    content[event.offset : event.offset + len(event.data)] = event.data


Check = Callable[[Path, list[object]], str | None]
"""Opens what is left and says what is wrong with it; None if every promise holds."""
