"""What a kind of store must offer. Everything above it, the rules included, is the same for all of them.

A backend runs a function inside one transaction: all of its writes become durable together, or none does. It may
run the function again if the transaction did not happen, so such a function touches nothing but its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from onefold.model import Compaction, Header, KeyUse, Lease, Record, Segment, SessionState

T = TypeVar("T")


class UniqueViolation(Exception):
    """A unique key stands there already: a segment's base, which makes a fork impossible to write, or an alias."""


class SessionLocked(Exception):
    """Somebody else writes to the session now, and the caller would rather not wait."""


class Leases(Protocol):
    """Who is left alone, and until when. Whatever it raises is a warning, never a failure: see `leases`."""

    def get(self, session: str) -> Lease | None: ...
    def put(self, session: str, lease: Lease) -> None: ...
    def drop(self, session: str) -> None: ...


class MessageHeader(NamedTuple):
    """A message without its body."""

    number: int
    header: Header
    turn: str | None


@dataclass(slots=True)
class ProjectionSnapshot:
    """The projection of one session, for comparing it with what the journal says."""

    state: SessionState | None = None
    segments: dict[int, Segment] = field(default_factory=dict)
    compactions: dict[str, Compaction] = field(default_factory=dict)
    keys: dict[str, KeyUse] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)


class ProjectionTables(Protocol):
    """The projection's tables, as `projection.apply` changes them."""

    def add_segment(self, session: str, segment: Segment) -> None:
        """Adds a row; raises `Taken` if a segment with this base stands there already."""

    def compaction(self, session: str, id: str) -> Compaction | None: ...
    def put_compaction(self, compaction: Compaction) -> None: ...
    def key(self, session: str, key: str) -> KeyUse | None: ...
    def put_key(self, session: str, key: str, use: KeyUse) -> None: ...
    def add_input(self, session: str, number: int) -> None: ...
    def drop_input(self, session: str, number: int) -> None: ...
    def add_alias(self, session: str, alias: str) -> None:
        """Adds a row; raises `Taken` if any session is known by this id already."""


class Transaction(ProjectionTables, Protocol):
    """One transaction on the journal and its projection."""

    @property
    def now(self) -> float:
        """The time of this transaction, by the store's clock where it has one."""

    @property
    def leases(self) -> Leases:
        """Of compactions."""

    @property
    def turn_leases(self) -> Leases: ...

    def usable(self) -> bool:
        """Whether the transaction still stands after an error inside it."""

    # the journal
    def add(self, session: str, record: Record, data: str) -> None: ...
    def record(self, session: str, number: int) -> Record | None: ...
    def records(self, session: str, start: int, stop: int, limit: int) -> list[Record]: ...
    def messages(self, session: str, start: int, stop: int) -> list[Record]: ...
    def some(self, session: str, numbers: Sequence[int]) -> list[Record]:
        """The messages among these records, in order and all at once. One that is not there is left out."""

    def headers(self, session: str, start: int, stop: int, *, tools_only: bool = False) -> list[MessageHeader]:
        """Of the messages in a range, without their bodies; of those that make or answer calls alone, if asked."""

    def tokens(self, session: str, start: int, stop: int) -> int: ...
    def last_user(self, session: str, start: int, stop: int) -> int | None:
        """The newest message of a user in a range."""

    def marks(self, session: str, start: int, stop: int) -> list[Record]:
        """Pins, notes and aliases in a range."""

    def last_number(self, session: str) -> int: ...
    def rewrite(self, session: str, record: Record, data: str) -> None:
        """Puts a tombstone in a record's place. For people who erase, and for nothing else."""

    # what is derived from it
    def session(self, session: str) -> SessionState | None: ...
    def put_session(self, state: SessionState) -> None: ...
    def sessions(self, limit: int, after: tuple[float, str] | None) -> list[SessionState]:
        """A page of them, the latest activity first. From one transaction to the next sessions move in that order: to
        meet each of them, ask for all at once, or `walk`."""

    def walk(self, limit: int, after: str) -> list[tuple[str, SessionState | None]]:
        """A page of every session that has a record or a derived row, in the order of ids, with its state; None if its
        row is missing. The next page begins after the last id of this one, whatever was written in between."""

    def lasts(self, sessions: Sequence[str]) -> dict[str, int]:
        """The last numbers of several sessions, all at once. A session that is not there is left out."""

    def keys(self, session: str, keys: Sequence[str]) -> dict[str, KeyUse]:
        """What several keys were used for, all at once. One that was not used is left out."""

    def segment(self, session: str, number: int) -> Segment | None: ...
    def segment_at(self, session: str, number: int) -> Segment | None:
        """The one in force at a number."""

    def successor(self, session: str, base: int) -> Segment | None: ...
    def segments(self, session: str) -> list[Segment]: ...
    def compactions(self, session: str | None, *, open_only: bool) -> list[Compaction]: ...
    def open_compactions(self) -> Iterator[Compaction]:
        """Those of all sessions that are not settled, the longest waiting first, and read no further than they are
        asked for: thousands may wait."""

    def next_input(self, session: str) -> int | None: ...
    def inputs(self, session: str) -> list[int]:
        """All that wait, the longest waiting first."""

    def owner(self, alias: str) -> str | None:
        """The session that is known by this other id."""

    def forks(self, session: str) -> list[SessionState]:
        """The sessions that have this one as their parent."""

    # what is gone
    def wipe(self, session: str, ids: Sequence[str]) -> None:
        """Removes a session whole, and keeps these ids of it as tombstones."""

    def deleted(self, id: str) -> str | None:
        """The session that this id was of, if that was deleted."""

    def tombstones(self, limit: int, after: str) -> list[tuple[str, str]]:
        """A page of all ids of deleted sessions, in the order of ids, each with the session that it was of."""

    # checking one against the other
    def looks_right(self, session: str) -> bool:
        """Whether the projection agrees with the journal, as far as constant time can tell."""

    def derived(self, session: str) -> ProjectionSnapshot: ...
    def replace(self, session: str, derived: ProjectionSnapshot) -> None: ...


class Backend(Protocol):
    """A kind of store."""

    @property
    def address(self) -> str: ...
    @property
    def generation(self) -> str:
        """Another one after every restore from a backup, so that old numbers are not taken for new ones."""

    def write(
        self, session: str, work: Callable[[Transaction], T], *, size: int = 0, patient: bool = True
    ) -> T:  # fmt: skip
        """Runs `work` in one durable transaction. `size` is a hint: large work does not share a commit.

        Not `patient`: where sessions are written to apart from each other, raises `InUse` instead of waiting for
        whoever writes to this one.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Runs `work` on one consistent view. Never waits for a writer."""

    @property
    def writing(self) -> bool:
        """Whether a thread of this process writes at the moment: a hint for whoever computes meanwhile."""

    def version(self) -> int:
        """Grows with every change of the store that this process has learned of."""

    def wait(self, version: int, timeout: float) -> None:
        """Returns once the version is no longer this one, or after `timeout` seconds."""

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        """What is wrong with the store as a whole: (found, expected, repaired)."""

    def purge(self, *, whole: bool = False) -> bool:
        """Sees to it that the store's files no longer hold what was erased: as far as it is quick, or `whole`. False if
        something is left, or somebody is in the way now."""

    def backup(self, path: str, generation: str, progress: Callable[[int, int], None] | None) -> None: ...
    def close(self) -> None: ...
