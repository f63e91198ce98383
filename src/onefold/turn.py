"""A turn in the hands of its writer: from an input to its settled answer, with nobody else writing in between."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from onefold.errors import Busy, OnefoldError, SessionNotFound, TurnLost
from onefold.journal import turns
from onefold.journal.contract import Journal
from onefold.journal.refusals import check_name
from onefold.model import Appended, Draft, Held, HolderId, Json, Outcome, Record, TurnClaim

log = logging.getLogger("onefold")


class Drafts(Protocol):
    """Makes a message ready for the journal."""

    def __call__(self, messages: Json | Sequence[Json], format: str | None, actor: str | None) -> list[Draft]: ...


class Turn:
    """The right to write, renewed in the background until it ends. Use it in a `with` block, or call `end`.

    Leaving the block settles the turn; an exception makes it failed, Ctrl-C or a cancelled task cancelled. The calls it
    left open then get results that say so.
    """

    def __init__(
        self, journal: Journal, claim: TurnClaim, drafts: Drafts, wrote: Callable[[Sequence[int]], None]
    ) -> None:
        self.claim = claim
        self._journal = journal
        self._drafts = drafts
        self._wrote = wrote
        self._over = threading.Event()
        threading.Thread(target=self._renew, name=f"onefold-turn-{claim.number}", daemon=True).start()

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
    ) -> Appended:
        """Adds messages to the turn, all or none; `TurnLost`, and nothing written, once it is over."""
        if key is not None:
            check_name("key", key)
        drafts = self._drafts(messages, format, actor)
        with self._noticing():
            done = self._journal.append(self.claim.session, drafts, key=key, turn=self.claim)
        self._wrote(done.numbers)
        return done

    def take(self, *, key: str | None = None) -> Record | None:
        """Takes the oldest input that waits, as a message of this turn; None if none does."""
        with self._noticing():
            taken = turns.take(self._journal, self.claim.session, turn=self.claim, key=key)
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
        if self._over.is_set():
            return
        outcome, cause = outcome_of(error)
        try:
            self.end(outcome, cause)
        except TurnLost:
            if error is None:
                raise  # else beside the point: the block failed of something else
        finally:
            self._over.set()

    def let_go(self, why: str) -> None:
        """Ends the turn because its store is closed under it."""
        if self._over.is_set() or self.claim.pid != os.getpid():
            return
        self._over.set()
        try:
            turns.end(self._journal, self.claim, "interrupted", why)
        except (TurnLost, SessionNotFound):
            pass  # somebody else has ended it
        except OnefoldError as error:
            log.warning("session %r: its turn could not be ended: %s", self.claim.session, error)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except TurnLost:
            self._over.set()
            raise

    def _renew(self) -> None:
        while not self._over.wait(self.claim.lease / 3):
            try:
                if turns.renew(self._journal, self.claim) is None:
                    return
            except Exception as error:
                if self._over.is_set():
                    return
                log.warning("session %r: the turn could not be renewed: %s", self.claim.session, error)


def outcome_of(error: BaseException | None) -> tuple[Outcome, str | None]:
    """How a turn ended that was left with this exception."""
    if error is None:
        return "settled", None
    cause = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
    return ("failed" if isinstance(error, Exception) else "cancelled"), cause


def begin(
    journal: Journal, session: str, who: HolderId, *, owner: str | None, lease: float, seconds: float
) -> TurnClaim:
    """Begins a turn, waiting for the one that is open."""
    deadline = time.monotonic() + seconds
    while True:
        version = journal.backend.version()
        got = turns.start(journal, session, who, owner=owner, lease=lease)
        if isinstance(got, TurnClaim):
            return got
        left = deadline - time.monotonic()
        if left <= 0:
            raise busy(journal, session)
        journal.backend.wait(version, min(left, patience(journal, got)))


def patience(journal: Journal, held: Held) -> float:
    """How long to wait at most before the turn is worth asking for again."""
    now = journal.backend.read(lambda tx: tx.now)
    return max(0.001, (held.until or now) - now + 0.001)


def busy(journal: Journal, session: str) -> Busy:
    """Who has the turn, in words."""
    current = turns.current(journal, session)
    who = "another writer" if current is None else current.owner or f"process {current.holder.pid}"
    return Busy(
        f"session {session!r} is in a turn of {who}; nothing was written. Wait for it (wait=…), or queue the input "
        "with session.queue(message)"
    )
