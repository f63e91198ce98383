"""A lease says until when somebody is left alone: with a compaction, it saves money; with a turn, it saves waiting.
Nothing here may fail an operation.

What goes wrong with it is said once, with the remedy, and from then on counts as no lease at all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from onefold.journal.seam import Transaction
from onefold.model import Compaction, Lease, Record

T = TypeVar("T")
log = logging.getLogger("onefold.leases")


class PatientLeases:
    """A store's leases, whatever state they are in."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._warned = threading.Event()

    def held_until(self, tx: Transaction, current: Compaction) -> float | None:
        """Until when the newest attempt is left alone; None if it need not be."""
        if current.state != "running" or not current.alive(tx.now):
            return None
        lease = self.newest(tx, current)
        return lease.until if lease is not None and lease.in_force(tx.now) else None

    def newest(self, tx: Transaction, current: Compaction) -> Lease | None:
        """The lease of the newest attempt, in force or not, if it can be read."""
        lease = self._patiently(tx, lambda: tx.leases.get(current.session))
        return lease if lease is not None and lease.fence == current.fence else None

    def put(self, tx: Transaction, session: str, lease: Lease) -> None:
        self._patiently(tx, lambda: tx.leases.put(session, lease))

    def drop(self, tx: Transaction, session: str) -> None:
        self._patiently(tx, lambda: tx.leases.drop(session))

    def turn_until(self, tx: Transaction, session: str, started: Record) -> float:
        """Until when a turn's writer is left alone. Where no lease can be read, as long as it had at first."""
        lease = self._patiently(tx, lambda: tx.turn_leases.get(session))
        if lease is None or lease.fence != started.number:
            return float(started.at + started.body["lease"]) if started.at <= tx.now else tx.now
        return lease.until if lease.in_force(tx.now) else min(lease.until, tx.now)

    def put_turn(self, tx: Transaction, session: str, lease: Lease) -> None:
        self._patiently(tx, lambda: tx.turn_leases.put(session, lease))

    def drop_turn(self, tx: Transaction, session: str) -> None:
        self._patiently(tx, lambda: tx.turn_leases.drop(session))

    def _patiently(self, tx: Transaction, use: Callable[[], T]) -> T | None:
        try:
            return use()
        except Exception as error:
            if not tx.usable():
                raise
            if not self._warned.is_set():
                self._warned.set()
                log.warning(
                    "the lease part of store %s does not work (%s: %s). Nothing is lost or forked by that, but two "
                    "processes may pay for the same summary, or take a turn from each other. Remedy: `onefold verify "
                    "--fix`, and the same version of onefold in all processes",
                    self._address,
                    type(error).__name__,
                    error,
                )
            return None
