"""The conversations of OpenViking: a session's archives in order, then its live messages, each message once.

A finished archive with a summary is a boundary. It stands behind the messages that the commit kept live, in front of
the first of them: so they stay verbatim, as OpenViking sends them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, cast

from onefold.errors import OnefoldError
from onefold.foreign import readonly
from onefold.foreign.importers.conversation import (
    CompactionStep,
    Conversation,
    MessageStep,
    SkippedStep,
    Step,
    key_of,
    moment,
)
from onefold.foreign.openviking import reader, units
from onefold.messages.codecs import PLAIN
from onefold.model import Json

program = "openviking"

_ABSTRACT = ".abstract.md"
_TRIES = 3
_SPOOL = 8 << 20


def conversations(path: Path) -> Iterator[Conversation]:
    """Every session at or below a path."""
    for unit in units(path):
        meta = reader.told(unit / reader.META).value
        named = meta.get("session_id")
        id = named if isinstance(named, str) and named else unit.absolute().name
        others = tuple({unit.absolute().name} - {id})
        yield Conversation(id, others, _size(meta), partial(_tell, unit))


def _size(meta: dict[str, Json]) -> int:
    counts = (meta.get("total_message_count"), meta.get("message_count"))
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)


def _tell(unit: Path, forked: bool) -> Iterator[Step]:
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as live:
        archives = _at_rest(unit, cast(IO[bytes], live))
        teller = _StepReader()
        for archive in archives:
            yield from teller.archive(unit / reader.HISTORY / archive)
        yield from teller.file(cast(IO[bytes], live), reader.LIVE)
        yield from teller.end()


def _at_rest(unit: Path, live: IO[bytes]) -> list[str]:
    """Copies the live file and lists the archives, as of one moment: a commit moves messages from one to the other."""
    for _ in range(_TRIES):
        before = readonly.signature(unit)
        live.seek(0)
        live.truncate()
        with (unit / reader.LIVE).open("rb") as file:
            shutil.copyfileobj(file, live)
        archives = reader.archive_names(unit)
        if readonly.signature(unit) == before:
            live.seek(0)
            return archives
    raise OnefoldError(f"session {unit.name!r} is being written to; import it again in a moment")


@dataclass
class _StepReader:
    """Goes over the lines of a session and tells each message once."""

    seen: set[int] = field(default_factory=set)
    nameless: dict[str, int] = field(default_factory=dict)
    waiting: _Commit | None = None

    def archive(self, folder: Path) -> Iterator[Step]:
        commit = _commit(folder)
        log = folder / reader.LIVE
        if log.is_file():
            with log.open("rb") as file:
                yield from self.file(file, f"{reader.HISTORY}/{folder.name}/{reader.LIVE}", commit)
        yield from self.end()
        if not commit.finished:
            yield SkippedStep(f"{folder.name} is not finished; its messages stay in the context")
        elif not commit.summary.strip():
            yield SkippedStep(f"{folder.name} has no summary; its messages stay in the context")
        else:
            self.waiting = commit

    def file(self, file: IO[bytes], name: str, commit: _Commit | None = None) -> Iterator[Step]:
        here: dict[int, int] = {}
        foreign = 0
        for _, line in reader.lines(file):
            id, is_message = reader.identity(line)
            if not is_message:
                foreign += 1
                continue
            key = self._key(id, line, here)
            if self.waiting is not None and key is not None and (id is None or hash(id) not in self.waiting.retained):
                yield from self.end()
            for some in (self.waiting, commit):
                if some is not None and some.first is None and id is not None and hash(id) in some.retained:
                    some.first = key_of(program, id)
            if key is not None:
                body = reader.parsed(line)
                yield MessageStep(key, (body,), PLAIN, _time(body.get("created_at")))
        if foreign:
            yield SkippedStep(
                f"{foreign:,} line{'' if foreign == 1 else 's'} of {name} cannot be read as a message", lost=True
            )

    def _key(self, id: str | None, line: bytes, here: dict[int, int]) -> str | None:
        """What a message is told under; None if it was told before. Of two in one file that share an id and differ,
        both are."""
        digest = hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
        if id is None:
            self.nameless[digest] = self.nameless.get(digest, 0) + 1
            return key_of(program, f"line {digest} {self.nameless[digest]}")
        mark, body = hash(id), hash(digest)
        before = here.setdefault(mark, body)
        if before != body:
            return key_of(program, f"{id} {digest}")
        if mark in self.seen:
            return None
        self.seen.add(mark)
        return key_of(program, id)

    def end(self) -> Iterator[Step]:
        """Tells the commit that waited for what it kept."""
        if (commit := self.waiting) is not None:
            self.waiting = None
            key = key_of(program, commit.name)
            yield CompactionStep(key, commit.summary, commit.first, commit.at, trigger="manual")


@dataclass
class _Commit:
    """What an archive stands for."""

    name: str
    finished: bool
    summary: str
    retained: frozenset[int]
    at: float | None
    first: str | None = None
    """The first message that stays, once it was met."""


def _commit(folder: Path) -> _Commit:
    phase = reader.told(folder / reader.META).value.get("phase1")
    phase = phase if isinstance(phase, dict) else {}
    kept = phase.get("retained_message_ids")
    return _Commit(
        name=folder.name,
        finished=reader.told(folder / reader.DONE, empty=True).state == "there",
        summary=_words(folder / reader.OVERVIEW) or _words(folder / _ABSTRACT),
        retained=frozenset(hash(id) for id in kept if isinstance(id, str)) if isinstance(kept, list) else frozenset(),
        at=_time(phase.get("created_at")),
    )


def _words(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


def _time(value: Json) -> float | None:
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        return moment(datetime.fromisoformat(value).timestamp())
    return None
