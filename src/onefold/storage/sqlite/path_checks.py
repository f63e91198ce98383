"""Whether a path may hold a store: not a network file system, not another program's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw

from onefold.errors import StoreError, StoreUnavailable
from onefold.storage.sqlite.queries import queries
from onefold.storage.sqlite.store_file import beside, check_log, state_of

APPLICATION = 0x1F01D01  # "1 fold", written into the file's header
MOUNTS = Path("/proc/self/mountinfo")

# Their locks or their shared memory do not hold between hosts, and WAL needs both.
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "afpfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)


def network(path: Path) -> str | None:
    """The kind of network file system a path lies on; None for a local one."""
    kind = file_system(path, MOUNTS.read_text() if MOUNTS.exists() else "")
    return kind if kind in _NETWORK else None


def check_place(path: Path) -> None:
    kind = network(path)
    if kind is not None:
        raise StoreError(
            f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be trusted. "
            "Keep the store on a local disk"
        )


def file_system(path: Path, mountinfo: str) -> str | None:
    """The kind of file system a path lies on, by the kernel's table of mounts."""
    target = os.path.realpath(path)
    best, kind = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split()[0]
    return kind


class PathState(NamedTuple):
    """What is at a path: nothing yet, or a store of ours."""

    new: bool
    generation: str | None = None
    """As the file says without its log; None if it does not."""


def look(path: Path, *, create: bool) -> PathState:
    """Finds out what is at a path; anything but nothing and a store of ours is an error.

    Looks at the file through SQLite and as immutable: no lock is taken, no file next to it is made, and no lock of
    this process is dropped, as closing the file by hand would do.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it, or files:{path} for a store of plain files")
    log = state_of(beside(path).log)
    if not path.exists():
        if not path.parent.is_dir():
            raise StoreError(f"there is no folder {path.parent}; make it first")
        check_log(path, log, None)
        if not create:
            raise StoreError(
                f"there is no store at {path}; check the path, or make one: `onefold init`, onefold.open(path)"
            )
        return PathState(new=True)
    if path.stat().st_size == 0:
        check_log(path, log, None)
        return PathState(new=True)
    try:
        uri = f"file:{quote(str(path))}?immutable=1"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        # In the middle of a checkpoint, or after a crash in one, page 1 counts pages that are still in the log, and
        # SQLite calls the file malformed. This lets it read page 1 all the same.
        connection.pragma("writable_schema", True)
        application = connection.pragma("application_id")
        generation = _generation(connection) if application == APPLICATION else None
        connection.close()
    except apsw.NotADBError:
        raise StoreError(f"{path} is not a database; choose another path, it was left as it is") from None
    except apsw.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error
    if application != APPLICATION:
        raise StoreError(f"{path} is another program's database; choose another path, it was left as it is")
    check_log(path, log, generation)
    return PathState(new=False, generation=generation)


def _generation(connection: apsw.Connection) -> str | None:
    try:
        found = connection.execute(queries()["meta"], ("incarnation",)).fetchall()
    except apsw.Error:  # it may be in the log still, or be written out just now
        return None
    return str(found[0][0]) if found else None
