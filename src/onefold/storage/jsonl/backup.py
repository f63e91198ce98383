"""A copy of a store of files while others write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from onefold.errors import StoreError
from onefold.model import Ids
from onefold.storage.jsonl import creation, layout
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.reindex import SessionFolder
from onefold.storage.jsonl.transaction import FilesTransaction

_BLOCK = 1 << 20
Snapshot = Callable[[], AbstractContextManager[FilesTransaction]]


@dataclass(frozen=True, slots=True)
class Source:
    """The store that is copied."""

    disk: Disk
    root: Path
    names: Ids
    snapshot: Snapshot
    """A view of the index, and nobody writes while it is held."""


def backup(source: Source, path: Path, generation: str, progress: Callable[[int, int], None] | None) -> None:
    """Copies every session as it is at one moment of its own, parents after their forks' beginnings at the earliest,
    and gives the copy its name only when it is whole. It has no index: whoever opens it first makes one."""
    if path.exists():
        raise StoreError(f"{path} exists already; choose another name, a backup overwrites nothing")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}; make it first")
    disk, root, names, snapshot = source.disk, source.root, source.names, source.snapshot
    part = path.with_name(f"{path.name}.part-{generation}")
    disk.mkdir(part)
    try:
        disk.mkdir(part / layout.OWN)
        with snapshot() as tx:
            sessions = [row[0] for row in tx.run("ends")]
        for done, session in enumerate(sessions):
            _copy_session(source, part, session)
            if progress is not None:
                progress(done + 1, len(sessions))
        deleted = root / layout.OWN / layout.DELETED
        with snapshot():
            if disk.exists(deleted):
                disk.write_new(part / layout.OWN / layout.DELETED, disk.read_whole(deleted))
        creation.store_json(disk, part / layout.OWN, generation, names)
        disk.fsync_folder(part)
        disk.rename(part, path)
        disk.fsync_folder(path.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _copy_session(source: Source, part: Path, session: str) -> None:
    """Opens all files of a session while nobody writes, and copies them after that, as far as they went then: an open
    file stays as it is, even if what was erased is taken out of it meanwhile."""
    disk = source.disk
    folder = SessionFolder(disk, source.root / layout.folder_name(session), source.names)
    files: list[tuple[str, int, int]] = []
    try:
        with source.snapshot() as tx:
            ends, state = tx.ends(session), tx.session(session)
            if ends is None or state is None:
                return  # deleted since
            for base in folder.bases():
                fd = disk.open(folder.path / layout.file_name(base))
                files.append((layout.file_name(base), fd, ends[1] if base == ends[0] else disk.size(fd)))
        copy = part / folder.path.name
        disk.mkdir(copy)
        for name, fd, end in files:
            _copy(disk, fd, end, copy / name)
        disk.write_new(copy / layout.HEAD, layout.head_json(session, ends[0], state.head))
        disk.fsync_folder(copy)
    finally:
        for _, fd, _ in files:
            disk.close(fd)


def _copy(disk: Disk, fd: int, end: int, path: Path) -> None:
    copy = disk.create(path)
    try:
        at = 0
        while at < end:
            block = disk.read(fd, min(_BLOCK, end - at), at)
            if not block:
                raise StoreError(f"{path.name} is shorter than it was; the backup was given up")
            disk.write(copy, block, at)
            at += len(block)
        disk.fsync(copy)
    finally:
        disk.close(copy)
