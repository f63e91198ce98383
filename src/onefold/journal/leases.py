"""A lease says until when somebody is left alone: with a compaction, it saves money; with a turn, it saves waiting.
Nothing here may fail an operation.

What goes wrong with it is said once, with the remedy, and from then on counts as no lease at all. A lease whose holder
is certainly gone, as a machine knows of its own processes, is over at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar

from onefold.journal.process_liveness import MACHINE, Machine, Whereabouts
from onefold.model import ClaimDenied, Compaction, HolderId, Json, Lease, Record
from onefold.storage.base import Transaction

T = TypeVar("T")
log = logging.getLogger("onefold.leases")

GLANCE = 0.25
"""Seconds after which whoever waits for a process of this machine looks again: its death writes nothing."""


def patience(held: ClaimDenied, now: float) -> float:
    """For how many seconds to wait at most, before what was held is worth asking for again."""
    left = max(0.0, (held.until or now) - now) + 0.001
    return min(left, GLANCE) if held.near else left


class BestEffortLeases:
    """A store's leases, whatever state they are in."""

    def __init__(self, address: str, machine: Machine = MACHINE) -> None:
        self.machine = machine
        self._address = address
        self._warned = threading.Event()

    def holder(self, who: HolderId) -> dict[str, Json]:
        """Who makes a claim or begins a turn, as the record says it. The process stands beside the holder, where a
        program that does not know it passes it over."""
        return {"holder": asdict(who), "process": self.machine.this()}

    def whereabouts(self, process: Json) -> Whereabouts:
        """Of the process that made a claim or began a turn, and no other may go on with it."""
        return self.machine.whereabouts(process)

    def near(self, process: Json) -> bool:
        """Whether that process is one of this machine. It may have died since it was looked at a moment ago."""
        return self.whereabouts(process) != "elsewhere"

    def held(self, tx: Transaction, current: Compaction) -> ClaimDenied | None:
        """Until when the newest attempt is left alone; None if it need not be."""
        if current.state != "running" or not current.alive(tx.now):
            return None
        lease = self.newest(tx, current)
        if lease is None or not lease.in_force(tx.now):
            return None
        where = self.whereabouts(current.process)
        return None if where == "gone" else ClaimDenied("held", lease.until, near=where == "here")

    def over(self, tx: Transaction, current: Compaction) -> bool:
        """Whether the newest attempt certainly has nobody any more, or nobody who said so in time. Where no lease can
        be read, its worker may well be alive."""
        lease = self.newest(tx, current)
        if lease is not None and not lease.in_force(tx.now):
            return True
        return self.whereabouts(current.process) == "gone"

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
        if self.whereabouts(started.body.get("process")) == "gone":
            return min(started.at, tx.now)
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
