"""A turn in the hands of its writer: from an input to its settled answer, with nobody else writing in between."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Protocol

from onefold.errors import OnefoldError, SessionNotFound, TurnBusy, TurnLost
from onefold.journal import pins_and_notes, turns
from onefold.journal.checks import check_name
from onefold.journal.journal import Journal
from onefold.journal.leases import patience
from onefold.journal.reader import WaitFor
from onefold.model import AppendResult, Draft, HolderId, Json, Outcome, Record, Slot, TurnClaim

log = logging.getLogger("onefold")


class DraftMaker(Protocol):
    """Makes a message ready for the journal."""

    def __call__(
        self, messages: Json | Sequence[Json], format: str | None, actor: str | None, *, program: bool = False
    ) -> list[Draft]: ...


class Over:
    """Whether a turn is over, for its thread to wait for; `ring` only wakes that up.

    What runs when a handle is dropped may run anywhere, also in the middle of an event's own lock. A simple queue is
    made for that.
    """

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()
        self._set = False

    def set(self) -> None:
        self._set = True
        self.ring()

    def is_set(self) -> bool:
        return self._set

    def ring(self) -> None:
        self._rung.put(None)

    def wait(self, seconds: float) -> bool:
        """False if nobody rang in time."""
        try:
            self._rung.get(timeout=seconds)
        except Empty:
            return False
        return True


class Tenure:
    """A turn that this process has, renewed in a thread until it is over.

    It knows nothing of its handle but whether there still is one: a turn that was dropped without an end is abandoned.
    """

    def __init__(self, journal: Journal, claim: TurnClaim, handle: object) -> None:
        self.claim = claim
        self.over = Over()
        self.abandoned_for: str | None = None
        self._journal = journal
        dropped = weakref.ref(handle, lambda _: self.over.ring())
        threading.Thread(
            target=self._renew, args=(dropped,), name=f"onefold-turn-{claim.number}", daemon=True
        ).start()  # fmt: skip

    def abandon(self, why: str) -> None:
        """Ends the turn as interrupted, from outside of its block."""
        if self.over.is_set() or self.claim.pid != os.getpid():
            return
        self.abandoned_for = why
        self.over.set()
        try:
            turns.end(self._journal, self.claim, "interrupted", why)
        except (TurnLost, SessionNotFound):
            pass  # somebody else has ended it
        except OnefoldError as error:
            log.warning("session %r: its turn could not be ended: %s", self.claim.session, error)

    def _renew(self, handle: weakref.ref[object]) -> None:
        while not self.over.wait(self.claim.lease / 3):
            try:
                if turns.renew(self._journal, self.claim) is None:
                    return
            except Exception as error:
                if self.over.is_set():
                    return
                log.warning("session %r: the turn could not be renewed: %s", self.claim.session, error)
        if handle() is None and not self.over.is_set():
            log.warning(
                "session %r: the turn that began at record %d was dropped without an end, and is interrupted; use it "
                "in a `with` block, or call end()",
                self.claim.session,
                self.claim.number,
            )
            self.abandon("its program dropped it without an end")


class Turn:
    """The right to write, renewed in the background until it ends. Use it in a `with` block, or call `end`.

    Leaving the block settles the turn; an exception makes it failed, Ctrl-C or a cancelled task cancelled. The calls it
    left open then get results that say so. One that is dropped without an end is interrupted.
    """

    def __init__(
        self, journal: Journal, claim: TurnClaim, drafts: DraftMaker, wrote: Callable[[Sequence[int]], None]
    ) -> None:
        self.claim = claim
        self._journal = journal
        self._drafts = drafts
        self._wrote = wrote
        self.tenure = Tenure(journal, claim, self)
        self._over = self.tenure.over

    def __repr__(self) -> str:
        return f"Turn({self.claim.session!r}, {self.id!r})"

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def number(self) -> int:
        """The number of its `turn.started`: its writer fence."""
        return self.claim.number

    def append(
        self,
        messages: Json | Sequence[Json],
        *,
        key: str | None = None,
        format: str | None = None,
        actor: str | None = None,
        slot: Slot | None = None,
        program: bool = False,
    ) -> AppendResult:
        """Adds messages to the turn, all or none; `TurnLost`, and nothing written, once it is over. `slot` is as in
        `Session.append`."""
        if key is not None:
            check_name("key", key)
        drafts = self._drafts(messages, format, actor, program=program)
        with self._noticing():
            if slot is None:
                done = self._journal.append(self.claim.session, drafts, key=key, turn=self.claim)
            else:
                done = pins_and_notes.append(self._journal, self.claim.session, drafts, slot, key=key, turn=self.claim)
        self._wrote(done.numbers)
        return done

    def take_input(self, *, key: str | None = None) -> Record | None:
        """Takes the oldest input that waits, as a message of this turn; None if none does."""
        with self._noticing():
            taken = turns.take_input(self._journal, self.claim.session, turn=self.claim, key=key)
        if taken is not None:
            self._wrote((taken.number,))
        return taken

    def end(self, outcome: Outcome = "settled", cause: str | None = None) -> None:
        """Ends the turn. `TurnLost` if somebody else has ended it in another way."""
        with self._noticing():
            turns.end(self._journal, self.claim, outcome, cause)
        self._over.set()

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over.is_set() and self.tenure.abandoned_for is None:
            return
        outcome, cause = outcome_of(error)
        try:
            self.end(outcome, cause)
        except OnefoldError as ended:
            if error is None:
                raise
            log.info(
                "session %r: the turn ended otherwise, too: %s", self.claim.session, ended
            )  # the block's own counts
        finally:
            self._over.set()

    def abandon(self, why: str) -> None:
        """Ends the turn because its store is closed under it."""
        self.tenure.abandon(why)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        if self.tenure.abandoned_for is not None:
            raise TurnLost(
                f"session {self.claim.session!r}: the turn that began at record {self.number} was ended, because "
                f"{self.tenure.abandoned_for}; nothing was written. Open the store again and begin a new turn"
            )
        try:
            yield
        except TurnLost:
            self._over.set()
            raise


def outcome_of(error: BaseException | None) -> tuple[Outcome, str | None]:
    """How a turn ended that was left with this exception."""
    if error is None:
        return "settled", None
    cause = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
    return ("failed" if isinstance(error, Exception) else "cancelled"), cause


class TurnRequest:
    """A turn that is asked for, step by step: for a caller that blocks while it waits, and for one that does not."""

    def __init__(
        self, journal: Journal, session: str, who: HolderId, *, owner: str | None, lease: float, seconds: float
    ) -> None:
        self.session = session
        self.claim: TurnClaim | None = None
        self._journal = journal
        self._who = who
        self._owner = owner
        self._lease = lease
        self._deadline = time.monotonic() + seconds

    def step(self) -> TurnClaim | WaitFor:
        """Begins the turn, or says what to wait for; `Busy` once the time for that is over."""
        while True:
            version = self._journal.backend.version()
            held = turns.held(self._journal, self.session)
            if held is None:
                got = turns.start(self._journal, self.session, self._who, owner=self._owner, lease=self._lease)
                if isinstance(got, TurnClaim):
                    self.claim = got
                    return got
                continue
            now = time.monotonic()
            if now >= self._deadline:
                raise busy(self._journal, self.session)
            wait = patience(held, self._journal.backend.read(lambda tx: tx.now))
            return WaitFor(version, min(self._deadline, now + wait))

    def give_up(self, why: str) -> None:
        """Ends the turn again, if it has begun: its caller left before it could be handed over."""
        if self.claim is not None:
            turns.end(self._journal, self.claim, "cancelled", why)


def acquire_turn(asked: TurnRequest, journal: Journal) -> TurnClaim:
    """Begins a turn, waiting for the one that is open."""
    while isinstance(got := asked.step(), WaitFor):
        got.wait(journal.backend)
    return got


def busy(journal: Journal, session: str) -> TurnBusy:
    """Who has the turn, in words."""
    current = turns.current(journal, session)
    who = "another writer" if current is None else current.owner or f"process {current.holder.pid}"
    return TurnBusy(
        f"session {session!r} is in a turn of {who}; nothing was written. Wait for it (wait=…), or queue the input "
        "with session.queue_input(message)"
    )
