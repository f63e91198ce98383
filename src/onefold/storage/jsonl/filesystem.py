"""Every call that reads or changes a file of the store goes through here, so that a proof can note, lose, fail or kill
any of them. The index is SQLite's own affair: it may be lost at any time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from onefold.storage.permissions import PRIVATE, Access, give

_LARGEST_READ = 1 << 30
_fdatasync: Callable[[int], None] = os.fdatasync
_fstat: Callable[[int], os.stat_result] = os.fstat
"""Called as they are: to wrap them would be a slow part of an append."""


class Disk:
    """The file system, one method a call."""

    access: Access = PRIVATE
    """Who may reach what is made."""

    # ------------------------------------------------------------------ changing

    def create(self, path: Path) -> int:
        """A new file, open for reading and writing. Fails if there is one."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE.file)
        give(fd, self.access, self.access.file)
        return fd

    def open_append(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        done = os.pwrite(fd, data, offset)
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], offset + done)

    fdatasync = staticmethod(_fdatasync)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fsync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def link(self, path: Path, name: Path) -> None:
        """Gives a file one more name. Fails if that name is taken: the commit of every new file."""
        os.link(path, name)

    def rename(self, path: Path, name: Path) -> None:
        os.replace(path, name)  # noqa: PTH105  one method a call

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108

    def mkdir(self, path: Path) -> None:
        os.mkdir(path, PRIVATE.folder)  # noqa: PTH102
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            give(fd, self.access, self.access.folder)
        finally:
            os.close(fd)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)  # noqa: PTH106

    # ------------------------------------------------------------------ reading

    def open(self, path: str | Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """So many bytes, fewer only where the file ends."""
        data = os.pread(fd, min(size, _LARGEST_READ), offset)
        while data and len(data) < size:
            more = os.pread(fd, min(size - len(data), _LARGEST_READ), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_some(self, fd: int, most: int) -> bytes:
        """The beginning of a small file, in one call."""
        return os.pread(fd, most, 0)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    state = staticmethod(_fstat)

    def stat(self, path: str | Path) -> os.stat_result:
        return os.stat(path)  # noqa: PTH116

    def exists(self, path: str | Path) -> bool:
        return os.access(path, os.F_OK)

    def names(self, path: str | Path) -> list[str]:
        """What a folder holds. An error is an error, and never an empty folder."""
        return os.listdir(path)  # noqa: PTH208

    # ------------------------------------------------------------------ made of these

    def read_whole(self, path: str | Path) -> bytes:
        fd = self.open(path)
        try:
            return self.read(fd, self.size(fd) + 1, 0)
        finally:
            self.close(fd)

    def write_new(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """A new file with this content. Leaves none behind if it fails."""
        fd = self.create(path)
        try:
            self.write(fd, data, 0)
            if sync:
                self.fsync(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise
        finally:
            self.close(fd)
