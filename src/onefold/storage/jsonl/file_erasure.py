"""Taking content out of files for good: the one case in which a file is rewritten.

What is to be done is written down first, in a file of its own that says nothing of the content. The transaction's own
records are the commit. A crash between the two and the end is finished by whoever comes next: if the records are there
the lines are replaced, and if not, nothing happens.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from onefold.messages import encode
from onefold.model import Ids, Record
from onefold.storage.jsonl import layout
from onefold.storage.jsonl.record_lines import lines, parsed, written
from onefold.storage.jsonl.reindex import SessionFolder
from onefold.storage.jsonl.transaction import LineChange, LinePosition

log = logging.getLogger("onefold")
_BLOCK = 1 << 20


def intend(folder: SessionFolder, change: LineChange, names: Ids) -> Path:
    """Writes down which lines are to be replaced by which, and the record that says that it happens."""
    new = {str(number): written(record, data).decode() for number, (record, data) in change.rewritten.items()}
    path = folder.path / f"erase-{names()}.json"
    folder.disk.write_new(path, orjson.dumps({"commit": change.added[-1][0].id, "lines": new}))
    folder.disk.fsync_folder(folder.path)
    return path


def intentions(folder: SessionFolder) -> list[Path]:
    return [folder.path / name for name in folder.listing() or () if layout.is_intention(name)]


def finish(folder: SessionFolder, names: Ids) -> list[Path]:
    """Does what was intended, where it was committed. Gives the intentions that are done with, which the caller removes
    when the index surely knows where lines are now."""
    done = []
    for path in intentions(folder):
        try:
            _finish(folder, path, names)
        except OSError as error:
            log.warning("%s: what was erased is still in its files: %s", folder.path, error)
        else:
            done.append(path)
    return done


def _finish(folder: SessionFolder, path: Path, names: Ids) -> None:
    try:
        said = orjson.loads(folder.disk.read_whole(path))
        commit, new = str(said["commit"]), [str(line).encode() for line in said["lines"].values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # torn, so that nothing was committed after it
    if _is_there(folder, commit):
        for _ in replace_lines(folder, new, names):
            pass


def replace_lines(folder: SessionFolder, new: list[bytes], names: Ids) -> Iterator[int]:
    """Rewrites those files that have lines of the same numbers, and says which, each when it is done."""
    by_number = {(record := parsed(line).record).number: record for line in new}
    for base in folder.bases():
        if _replace_in(folder, folder.path / layout.file_name(base), by_number, names):
            yield base


def places(folder: SessionFolder, base: int) -> Iterator[tuple[int, LinePosition]]:
    """Where the records of a file are."""
    fd = folder.disk.open(folder.path / layout.file_name(base))
    try:
        for offset, line in lines(folder.disk, fd):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                yield parsed(line).record.number, LinePosition.of(base, offset, line)
    finally:
        folder.disk.close(fd)


def _replace_in(folder: SessionFolder, path: Path, new: dict[int, Record], names: Ids) -> bool:
    disk = folder.disk
    beside = folder.path / f".erased-{names()}"
    fd = disk.open(path)
    try:
        if not any(_replaced(line, new) != line for _, line in lines(disk, fd)):
            return False
        copy = disk.create(beside)
        try:
            end = 0
            for some in _in_blocks(_replaced(line, new) for _, line in lines(disk, fd)):
                disk.write(copy, some, end)
                end += len(some)
            disk.fsync(copy)
        finally:
            disk.close(copy)
        disk.rename(beside, path)
        disk.fsync_folder(folder.path)
    finally:
        disk.close(fd)
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(beside)
    return True


def _replaced(line: bytes, new: dict[int, Record]) -> bytes:
    """A line, or the one in its place; what is not a record stays as it is."""
    try:
        said = parsed(line)
    except (ValueError, TypeError, KeyError):
        return line
    record = new.get(said.record.number)
    return line if record is None else written(record, encode(record.body), more=said.more, session=said.session)


def _in_blocks(some: Iterable[bytes]) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for line in some:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def _is_there(folder: SessionFolder, id: str) -> bool:
    """Whether a record was committed. It opened a segment, so it is near the beginning of a file."""
    return any(_has(folder, base, id) for base in reversed(folder.bases()))


def _has(folder: SessionFolder, base: int, id: str) -> bool:
    fd = folder.disk.open(folder.path / layout.file_name(base))
    try:
        for _, line in lines(folder.disk, fd):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                if line.endswith(b"\n") and parsed(line).record.id == id:
                    return True
    finally:
        folder.disk.close(fd)
    return False
