"""A foreign conversation as steps, in the order in which they happened.

Plain data. One module for each program turns its store into this, and `importer` turns this into sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from onefold.model import ForkKind, Json

_LATEST = 1e11
"""Seconds beyond which a time is invalid: the year 5138."""


@dataclass(frozen=True, slots=True)
class MessageStep:
    """One message of the other program. It may become several here, such as a call and its result."""

    key: str
    bodies: tuple[Json, ...]
    format: str
    at: float | None


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """A compaction that is in force: a summary, and from where on messages stay verbatim."""

    key: str
    summary: str
    first: str | None
    """The key of the first message that stays. Without it, none of the earlier ones does."""
    at: float | None
    kept: tuple[str, ...] = ()
    """Keys of older messages that stay too."""
    trigger: str = "limit"


@dataclass(frozen=True, slots=True)
class RewindStep:
    """A rewind: what came after this message is no longer in view. Without a message, everything."""

    to: str | None
    at: float | None


@dataclass(frozen=True, slots=True)
class SkippedStep:
    """What is not imported, and why, in words."""

    words: str
    lost: bool = False
    """It is a message that is missing here: it cannot be read, or cannot be stored."""


Step: TypeAlias = MessageStep | CompactionStep | RewindStep | SkippedStep


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """What a conversation branched off from."""

    session: str
    """Any id of the other conversation."""
    kind: ForkKind
    points: Callable[[], Iterator[str]]
    """Keys of the steps there up to the branch point, the newest first. Not all of them need to have been imported."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation: one session here, however many sessions it is there."""

    id: str
    others: tuple[str, ...]
    """The other ids it had there."""
    size: int
    """How many messages it has, about: for a progress bar."""
    tell: Callable[[bool], Iterator[Step]]
    """The steps. True: as a fork, so without what it has from its origin."""
    origin: BranchPoint | None = None
    remarks: tuple[str, ...] = ()


def key_of(program: str, id: str) -> str:
    """The key of a message here. An id that cannot be a key is replaced by its digest."""
    if len(id) <= 400 and id.isprintable():
        return f"{program}:{id}"
    return f"{program}:#{hashlib.blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def moment(at: float | None) -> float | None:
    """A time to the microsecond; None if it is invalid."""
    return round(float(at), 6) if at is not None and 0 < at < _LATEST else None
