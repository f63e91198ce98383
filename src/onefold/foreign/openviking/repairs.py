"""Repairs of an OpenViking session, on a copy of its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from onefold.foreign.findings import ForeignFinding
from onefold.foreign.openviking.reader import (
    DONE,
    FAILED,
    HISTORY,
    LIVE,
    META,
    archive_names,
    archive_number,
    identity,
    lines,
    named,
    read_log,
    told,
)
from onefold.foreign.repair import FolderOperation, RepairAborted
from onefold.model import Json

Keep = Callable[[int, bytes], bytes | None]
"""What becomes of a line, by its number: what stays of it, or None."""


def repair(operation: FolderOperation, finding: ForeignFinding) -> str:
    """Repairs one, and says in words what was done."""
    return _REPAIRS[finding.kind](operation, finding)


def _drop_stale(operation: FolderOperation, finding: ForeignFinding) -> str:
    newest, kept = _archived(operation.folder)
    leading = True

    def keep(number: int, line: bytes) -> bytes | None:
        nonlocal leading
        id, _ = identity(line)
        leading = leading and id in newest
        return line if not leading or id is None or id in kept or id in newest[id] else None

    dropped = _rewrite(operation, LIVE, keep)
    return f"{_count(dropped, 'message')} moved out of {LIVE}; the archives have them" if dropped else ""


def _archived(folder: Path) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Each id in a finished archive, with what the newest archive that has it keeps; and what the newest one keeps."""
    newest: dict[str, frozenset[str]] = {}
    kept: frozenset[str] = frozenset()
    for name in archive_names(folder):
        archive = folder / HISTORY / name
        ids = list(_ids(archive / LIVE)) if told(archive / DONE, empty=True).state == "there" else []
        if ids:
            kept = frozenset(named(folder, name)[1])
            newest.update(dict.fromkeys(ids, kept))
    return newest, kept


def _ids(log: Path) -> Iterator[str]:
    if log.is_file():
        with log.open("rb") as file:
            for _, line in lines(file):
                id, _ = identity(line)
                if id is not None:
                    yield id


def _drop_foreign(operation: FolderOperation, finding: ForeignFinding) -> str:
    def keep(number: int, line: bytes) -> bytes | None:
        return line if identity(line)[1] else _salvaged(line)

    dropped = _rewrite(operation, LIVE, keep)
    return f"{_count(dropped, 'line')} that could not be read moved out of {LIVE}" if dropped else ""


def _salvaged(line: bytes) -> bytes | None:
    """A whole message at the end of a line whose beginning was cut off: it was written onto a torn one."""
    place = line.find(b'{"id"', 1)
    while place > 0:
        if identity(line[place:])[1]:
            return line[place:]
        place = line.find(b'{"id"', place + 1)
    return None


def _drop_copies(operation: FolderOperation, finding: ForeignFinding) -> str:
    first: dict[str, bytes] = {}

    def keep(number: int, line: bytes) -> bytes | None:
        id, _ = identity(line)
        if id is None:
            return line
        if id in first:
            return None if first[id] == line.strip() else line
        first[id] = line.strip()
        return line

    dropped = _rewrite(operation, LIVE, keep)
    return f"{_count(dropped, 'copy', 'copies')} moved out of {LIVE}" if dropped else ""


def _end_line(operation: FolderOperation, finding: ForeignFinding) -> str:
    with (operation.folder / LIVE).open("ab") as file:
        file.write(b"\n")
    return f"a newline added to {LIVE}"


def _rewrite(operation: FolderOperation, name: str, keep: Keep) -> int:
    """Rewrites a file of lines. What goes is kept in quarantine; how many lines that were is returned."""
    path = operation.folder / name
    fresh = path.with_name(path.name + ".mended")
    dropped = 0
    with path.open("rb") as source, fresh.open("wb") as target:
        for number, line in lines(source):
            stays = keep(number, line)
            if stays != line:
                dropped += 1
                operation.keep(f"{name}, line {number}", _readable(line))
            if stays is not None:
                target.write(stays)
    if dropped:
        shutil.copymode(path, fresh)
        fresh.replace(path)
    else:
        fresh.unlink()
    return dropped


def _count_live(operation: FolderOperation, finding: ForeignFinding) -> str:
    log = read_log(operation.folder / LIVE, lambda _: None)
    return _set(operation, "message_count", 0 if log is None else log.messages)


def _count_commits(operation: FolderOperation, finding: ForeignFinding) -> str:
    finished = [
        archive_number(name)
        for name in archive_names(operation.folder)
        if told(operation.folder / HISTORY / name / DONE, empty=True).state == "there"
        and next(_ids(operation.folder / HISTORY / name / LIVE), None) is not None
    ]
    return _set(operation, "commit_count", max(finished, default=0))


def _set(operation: FolderOperation, name: str, value: int) -> str:
    path = operation.folder / META
    meta = told(path).value
    if meta.get(name) == value:
        return ""
    operation.keep(META, _readable(path.read_bytes()))
    said = meta.get(name)
    _write(path, {**meta, name: value})
    return f"{name} in {META} is {value}; it was {said}"


def _roll_back(operation: FolderOperation, finding: ForeignFinding) -> str:
    folder = _archive(operation, finding)
    if not folder.is_dir():
        return ""
    shutil.rmtree(folder)
    return f"{HISTORY}/{folder.name} moved out"


def _make_ready(operation: FolderOperation, finding: ForeignFinding) -> str:
    path = _archive(operation, finding) / META
    meta = told(path).value
    phase = meta.get("phase1")
    if not isinstance(phase, dict) or phase.get("status") != "preparing":
        return ""
    operation.keep(path.relative_to(operation.folder).as_posix(), _readable(path.read_bytes()))
    _write(path, {**meta, "phase1": {**phase, "status": "ready", "ready_at": _stamp(operation.now)}})
    return f"{HISTORY}/{path.parent.name} is ready"


def _finish(operation: FolderOperation, finding: ForeignFinding) -> str:
    folder = _archive(operation, finding)
    if not finding.facts.get("worked"):
        why = "it was cut off before its work was done; marked by a repair"
        _write(folder / FAILED, {"stage": "interrupted", "error": why, "failed_at": _stamp(operation.now)})
        return f"{FAILED} written in {HISTORY}/{folder.name}: the next commit takes it up"
    log = read_log(folder / LIVE, lambda _: None)
    if log is None or log.first is None:
        raise RepairAborted(f"{HISTORY}/{folder.name} has no message with an id; it is not marked as done")
    ends: dict[str, Json] = {"starting_message_id": log.first, "ending_message_id": log.last}
    _write(
        folder / DONE,
        {
            **ends,
            "coverage_start_archive": folder.name,
            "coverage_end_archive": folder.name,
            "covered_failed_archives": [],
        },
    )
    return f"{DONE} written in {HISTORY}/{folder.name}"


def _drop_failed(operation: FolderOperation, finding: ForeignFinding) -> str:
    path = _archive(operation, finding) / FAILED
    if not path.is_file():
        return ""
    operation.keep(path.relative_to(operation.folder).as_posix(), _readable(path.read_bytes()))
    path.unlink()
    return f"{FAILED} moved out of {HISTORY}/{path.parent.name}"


def _drop_lock(operation: FolderOperation, finding: ForeignFinding) -> str:
    path = operation.folder / str(finding.facts["file"])
    if not path.is_file():
        return ""
    path.unlink()
    return f"{finding.facts['file']} moved out"


def _archive(operation: FolderOperation, finding: ForeignFinding) -> Path:
    return operation.folder / HISTORY / str(finding.facts["archive"])


def _write(path: Path, value: Json) -> None:
    text = json.dumps(value, ensure_ascii=False)
    fresh = path.with_name(path.name + ".mended")
    fresh.write_bytes(text.encode(errors="surrogatepass"))
    fresh.replace(path)


def _readable(content: bytes) -> Json:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


_REPAIRS: dict[str, Callable[[FolderOperation, ForeignFinding], str]] = {
    "stale-messages": _drop_stale,
    "torn-line": _drop_foreign,
    "foreign-lines": _drop_foreign,
    "unended-line": _end_line,
    "duplicate-messages": _drop_copies,
    "meta-count": _count_live,
    "meta-commits": _count_commits,
    "archive-empty": _roll_back,
    "archive-half-written": _roll_back,
    "archive-not-applied": _roll_back,
    "archive-superseded": _roll_back,
    "done-without-data": _roll_back,
    "failed-without-data": _roll_back,
    "archive-not-ready": _make_ready,
    "archive-not-done": _finish,
    "both-markers": _drop_failed,
    "stale-lock": _drop_lock,
}
