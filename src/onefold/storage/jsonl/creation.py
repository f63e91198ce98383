"""Making a store of files, telling whether a folder is one, and building its index."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import orjson

from onefold.errors import StoreDamaged, StoreError, StoreTooNew
from onefold.model import Ids
from onefold.storage.jsonl import file_erasure, layout
from onefold.storage.jsonl.filesystem import Disk
from onefold.storage.jsonl.reindex import SessionFolder, deleted_ids, reindex
from onefold.storage.jsonl.transaction import FilesTransaction
from onefold.storage.locations import is_store
from onefold.storage.permissions import make_file
from onefold.storage.sqlite import schema
from onefold.storage.sqlite.backend import BUSY
from onefold.storage.sqlite.path_checks import APPLICATION, network
from onefold.storage.sqlite.queries import migrations, queries

log = logging.getLogger("onefold")
_SAID_EVERY = 1000
DELETED_END = "deleted_end"
"""A fact of the index: how much of the list of deleted sessions it knows."""
_PLACES, _WITH_CHECKSUM = "places", "2"
"""Another fact of it: how it says where lines are."""
Connect = Callable[[str], apsw.Connection]


def prepare(disk: Disk, root: Path, *, create: bool, ids: Ids, names: Ids) -> str:
    """Makes the store if it is not there. Its generation."""
    kind = network(root)
    if kind is not None:
        raise StoreError(
            f"{root} lies on a network file system ({kind}), whose locks and renames cannot be trusted. "
            "Keep the store on a local disk"
        )
    if not is_store(root):
        if not create:
            raise StoreError(
                f"there is no store at {root}; check the path, or make one: `onefold init`, onefold.open(path)"
            )
        _make(disk, root, ids(), names)
    format, generation = _store_of(disk, root)
    if format > layout.FORMAT:
        raise StoreTooNew(
            f"{root} has files of format {format}, and this program knows {layout.FORMAT}. Update it: "
            "pip install -U onefold. Nothing was written"
        )
    return generation


def raise_format(disk: Disk, root: Path, names: Ids) -> None:
    """Shuts older programs out of a store that one of them made. Nobody else has it open."""
    format, generation = _store_of(disk, root)
    if format < layout.FORMAT:
        own = root / layout.OWN
        beside = own / f".new-{names()}"
        disk.write_new(beside, _store_line(generation))
        disk.rename(beside, own / layout.STORE)
        disk.fsync_folder(own)


def _store_of(disk: Disk, root: Path) -> tuple[int, str]:
    """The format and the generation that a store says it has."""
    path = root / layout.OWN / layout.STORE
    try:
        said = orjson.loads(disk.read_whole(path))
        return int(said["format"]), str(said["incarnation"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{path} cannot be read ({error}); put it back from a backup, or remove it") from error


def _store_line(generation: str) -> bytes:
    return orjson.dumps({"format": layout.FORMAT, "incarnation": generation}) + b"\n"


def _make(disk: Disk, root: Path, generation: str, names: Ids) -> None:
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file; a store of plain files is a folder")
    if not root.parent.is_dir():
        raise StoreError(f"there is no folder {root.parent}; make it first")
    if root.exists():
        _check_content(root)
    own = root / layout.OWN
    for folder in (root, own):
        with contextlib.suppress(FileExistsError):
            disk.mkdir(folder)
    store_json(disk, own, generation, names)
    disk.fsync_folder(root)
    disk.fsync_folder(root.parent)


def store_json(disk: Disk, own: Path, generation: str, names: Ids) -> None:
    """Whoever links it first has made the store."""
    beside = own / f".new-{names()}"
    disk.write_new(beside, _store_line(generation))
    try:
        disk.link(beside, own / layout.STORE)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{own} lies on a file system that has no links ({error}), which a store needs") from error
    finally:
        disk.unlink(beside)
    disk.fsync_folder(own)


def _check_content(root: Path) -> None:
    """A folder that holds something else is somebody else's."""
    for inside in root.iterdir():
        if inside.name != layout.OWN and not inside.joinpath(layout.file_name(0)).is_file():
            raise StoreError(f"{root} holds other things, such as {inside.name}; choose an empty folder or a new one")


def is_sound(connect: Connect, path: Path, generation: str) -> bool:
    """Whether there is an index, and it is this store's and this program's."""
    if not path.exists():
        return False
    try:
        index = connect(str(path))
        index.set_busy_timeout(BUSY)
        try:
            return (
                index.pragma("application_id") == APPLICATION
                and schema.version(index) == migrations()[-1][0]
                and schema.meta(index, "incarnation") == generation
                and not schema.missing(index)
                and schema.meta(index, _PLACES) == _WITH_CHECKSUM
            )
        finally:
            index.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, StoreDamaged):
        return False


def build_index(disk: Disk, root: Path, connect: Connect, generation: str, names: Ids) -> None:
    """Folds all files into a new index, which takes the old one's place when it is whole. Nobody else has it open."""
    own = root / layout.OWN
    for left in own.glob(f"{layout.INDEX}.new-*"):
        left.unlink(missing_ok=True)
    path = own / f"{layout.INDEX}.new-{names()}"
    done: list[Path] = []
    make_file(path, disk.access)
    index = connect(str(path))
    try:
        index.execute("pragma synchronous = off")
        schema.begin(index)
        schema.migrate(index, path, lambda: generation)
        index.execute(queries()["put_meta"], (_PLACES, _WITH_CHECKSUM))
        index.execute("begin immediate")
        tx = FilesTransaction(index, 0.0, None, disk, root)
        take_deleted(disk, root, tx)
        for seen, folder in enumerate(folders(disk, root, names), start=1):
            session = folder.session()
            if session is None:
                if (why := foreign(folder)) is not None:
                    log.warning("%s: %s", folder.path, why)
                continue
            if tx.deleted(session) == session:
                continue
            done += file_erasure.finish(folder, names)
            reindex(tx, folder, session, rebuild=True)
            if seen % _SAID_EVERY == 0:
                log.info("store %s: its index is being made, %d sessions so far", root, seen)
        tx.close()
        index.execute("commit")
    except BaseException:
        index.close()
        path.unlink(missing_ok=True)
        raise
    index.close()  # with which its log goes into it
    disk.fsync_folder(root)
    _sync(disk, path)
    for name in ("-wal", "-shm", "-journal"):
        own.joinpath(layout.INDEX + name).unlink(missing_ok=True)
    disk.fsync_folder(own)  # an old log beside a new index would be taken for its own
    path.replace(own / layout.INDEX)
    disk.fsync_folder(own)
    for intention in done:
        disk.unlink(intention)


def sync_index(disk: Disk, root: Path) -> None:
    """Its commits are not synced, since it can be rebuilt. Where something is removed that would tell that it is
    behind, it must not be."""
    own = root / layout.OWN
    for name in (layout.INDEX, f"{layout.INDEX}-wal"):
        with contextlib.suppress(FileNotFoundError):
            _sync(disk, own / name)
    disk.fsync_folder(own)


def _sync(disk: Disk, path: Path) -> None:
    fd = disk.open_append(path)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)


def folders(disk: Disk, root: Path, names: Ids) -> Iterator[SessionFolder]:
    """Everything in the store that can be a session."""
    for name in sorted(disk.names(root)):
        if not name.startswith("."):
            path = root / name
            if path.is_dir():
                yield SessionFolder(disk, path, names)


def foreign(folder: SessionFolder) -> str | None:
    """Why files that look like a session's are none; None if they are not even that."""
    if not folder.bases():
        return None
    claimed = folder.claimed()
    if claimed is None:
        return "its first line does not say which session it is; it is left alone"
    return (
        f"it says that it is session {claimed!r}, whose folder is called {layout.folder_name(claimed)}; it is left "
        "alone. Give it that name, or move it out of the store"
    )


def take_deleted(disk: Disk, root: Path, tx: FilesTransaction) -> tuple[list[str], int]:
    """Takes the sessions that were deleted into the index. Gives those it still had, and where the list ends."""
    try:
        text = disk.read_whole(root / layout.OWN / layout.DELETED)
    except FileNotFoundError:
        return [], 0
    found, end = deleted_ids(text)
    still = []
    for session, ids, at in found:
        if tx.session(session) is not None or tx.last_number(session):
            tx.wipe(session, ids)
            still.append(session)
        for id in ids:
            tx.run("put_tombstone", id, session, at)
    tx.run("put_meta", DELETED_END, str(end))
    return still, end
