"""What the store of another program tells: its conversations, each as steps in the order in which they happened.

Plain data. One module for each program turns its store into this, and `writing` turns this into sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from onefold.model import ForkKind, Json

_LATEST = 1e11
"""Seconds beyond which a time is none: the year 5138."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the other program. It may take several of ours to say it, such as a call and its result."""

    key: str
    bodies: tuple[Json, ...]
    format: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """A compaction that is in force: a summary, and from where on messages stay verbatim."""

    key: str
    summary: str
    first: str | None
    """The key of the first message that stays. Without it none does of those told before."""
    at: float | None
    kept: tuple[str, ...] = ()
    """Keys of older messages that stay all the same."""
    trigger: str = "limit"


@dataclass(frozen=True, slots=True)
class Back:
    """Somebody went back: what was told after this message is no longer in view. Without it, all of it."""

    to: str | None
    at: float | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is not taken in, and why, in words."""

    words: str
    lost: bool = False
    """Somebody said it, and it is not here: it cannot be read, or cannot be stored."""


Step: TypeAlias = Said | Boundary | Back | LeftOut


@dataclass(frozen=True, slots=True)
class Origin:
    """What a conversation branched off from."""

    session: str
    """The other one's id, any of them."""
    kind: ForkKind
    points: Callable[[], Iterator[str]]
    """Keys of what was told there up to the place, the newest first. Not all of them need to have been taken in."""


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: one session here, however many it was there."""

    id: str
    others: tuple[str, ...]
    """The other ids it had there."""
    size: int
    """How many messages it has, about: for a progress bar."""
    tell: Callable[[bool], Iterator[Step]]
    """The steps. True: as a fork, so without what it has from its origin."""
    origin: Origin | None = None
    remarks: tuple[str, ...] = ()


def key_of(program: str, id: str) -> str:
    """What a message is known by here. An id that cannot be a key is told by its digest."""
    if len(id) <= 400 and id.isprintable():
        return f"{program}:{id}"
    return f"{program}:#{hashlib.blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def moment(at: float | None) -> float | None:
    """A time to the microsecond, if it is one."""
    return round(float(at), 6) if at is not None and 0 < at < _LATEST else None
