"""Who may reach the files of a store, whatever the umask: their owner alone, or a group that was let in on purpose.

The mode of the store's own file decides for everything that is made next to it, so nothing else has to remember it. Who
may only read a file may lock it as well, and so stop everybody: that is one more reason to let nobody in.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TextIO

from onefold.storage.locations import FRAMES, OWN, SEARCH, STORE, escaped

log = logging.getLogger("onefold")

_GROUP = stat.S_IRGRP | stat.S_IWGRP
_OTHERS = stat.S_IRWXO
_warned: set[str] = set()


class Access(NamedTuple):
    """The modes of what is made, and whose it is if that is not simply whoever makes it."""

    file: int
    folder: int
    owner: int = -1
    group: int = -1


PRIVATE = Access(0o600, 0o700)
SHARED = Access(0o660, 0o2770)
"""A new file in such a folder is its group's, whoever makes it."""


def access_of(found: os.stat_result) -> Access:
    """What is made next to a store whose own file is this one. Only a group that may write was let in on purpose: to
    use a store is to write next to it."""
    modes = SHARED if found.st_mode & _GROUP == _GROUP else PRIVATE
    return modes._replace(owner=found.st_uid, group=found.st_gid)


def store_file(beside: Path) -> Path:
    """The file whose mode decides, by the path of something next to it, such as an index."""
    return beside.with_name(STORE) if beside.parent.name == OWN else beside.with_suffix("")


def make_beside(path: Path) -> None:
    """Makes an empty file next to a store, unless there is one: SQLite would make it as the umask has it, so it is to
    open this one and to make none. Where it cannot be made, SQLite says that it is not there."""
    with contextlib.suppress(OSError):
        make_file(path, access_beside(path))


def access_beside(path: Path) -> Access:
    """What is made next to a store, by the path of something there."""
    try:
        return access_of(store_file(path).stat())
    except OSError:  # it belongs to a store that is not a file
        return PRIVATE


def make_file(path: str | Path, access: Access = PRIVATE) -> bool:
    """Makes an empty file, unless there is one. True if there was none.

    Only a new one is opened and closed, which nobody has open: closing another would drop this process's locks on it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, access.file & 0o600)
    except FileExistsError:
        return False
    try:
        give(fd, access, access.file)
    finally:
        os.close(fd)
    return True


def give(fd: int, access: Access, mode: int) -> None:
    """Gives a new file its owner and its mode, in this order: a change of the owner may take bits of a mode away."""
    if os.name != "posix":
        return
    made = os.fstat(fd)
    owner = access.owner if os.geteuid() == 0 else -1  # what root makes in somebody's store is theirs, as in SQLite
    group = access.group if owner >= 0 or mode & _GROUP else -1
    if (owner >= 0 and owner != made.st_uid) or (group >= 0 and group != made.st_gid):
        with contextlib.suppress(PermissionError):  # of a group that is not ours: a folder with setgid is for that
            os.fchown(fd, owner, group)
    if stat.S_IMODE(made.st_mode) != mode:
        os.fchmod(fd, mode)


def new_text(path: Path) -> TextIO:
    """A new file to write lines to, for its owner alone. Fails if there is one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE.file)
    give(fd, PRIVATE, PRIVATE.file)
    return os.fdopen(fd, "w", encoding="utf-8", newline="\n")


def make_folder(path: Path) -> None:
    """Makes a folder and those it lies in, where they are missing: this user's own, as `Path.mkdir` would not have it
    for the ones above."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=PRIVATE.folder)
            if os.name == "posix":
                folder.chmod(PRIVATE.folder)


def make_folder_for(path: Path, access: Access) -> None:
    """Makes a folder, unless there is one, for who may reach the store that it belongs to."""
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=PRIVATE.folder)
    if os.name != "posix":
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        widen(fd, access, access.folder)
    finally:
        os.close(fd)


def widen(fd: int, access: Access, mode: int) -> None:
    """Lets in who may reach the store, where this user may say so. What is wider stays so."""
    if os.name != "posix":
        return
    found = os.fstat(fd)
    if found.st_uid == os.geteuid() and (mode & ~stat.S_IMODE(found.st_mode) or access.owner not in (-1, found.st_uid)):
        give(fd, access, mode)


# ---------------------------------------------------------------------- what is wider than it should be


def warn(address: str, path: Path) -> None:
    """Warns of files that more people can reach than a store's should be, once in a process. They stay as they are: it
    may be meant so. `path` is the store's own file."""
    if os.name != "posix":
        return
    found = _wide(_known(path))
    if not found or str(path) in _warned:
        return
    _warned.add(str(path))
    if path in found:
        found += _wide(sorted(path.parent.glob(f"{escaped(path.name)}.before-*")))
    names = " ".join(map(_quoted, found))
    log.warning(
        "store %s: other users of this machine can reach %s, and so read what was said, or stop every writer with a "
        "lock. Make it yours alone: chmod 600 %s; or let its group in on purpose: chmod 660, in a folder of mode 2770",
        address, "it" if found == [path] else "files of it", names,
    )  # fmt: skip


def _known(path: Path) -> list[Path]:
    if path.parent.name == OWN:
        stems = [path, *(path.with_name(name) for name in (SEARCH, FRAMES))]
    else:
        stems = [path, *(path.with_name(f"{path.name}.{name}") for name in (SEARCH, FRAMES))]
    return [stem.with_name(stem.name + end) for stem in stems for end in ("", "-wal", "-shm", "-gate")]


def _wide(paths: Iterable[Path]) -> list[Path]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            mode = path.stat().st_mode
            if mode & _OTHERS or (mode & _GROUP and mode & _GROUP != _GROUP):
                found.append(path)
    return found


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
