"""What onefold's integrations share here: one store, a policy without a limit, and one that compacts at once."""

from __future__ import annotations

from pathlib import Path

import onefold
from bench.peers.conversation import Left
from bench.peers.stores.onefold_bare import later, look

NEVER = onefold.Policy(limit=100_000_000)
"""So that a conversation of any length is loaded whole, as from a store that does not compact."""
NOW = onefold.Policy(limits=onefold.Limits(window=20_000, output=1_000))
"""The conversation that is compacted is above the hard limit of this, so a turn waits for its compaction."""
FULL = "WAL, synchronous=FULL"


def opened(folder: Path, *, afterwards: bool = False, policy: onefold.Policy = NOW) -> onefold.Store:
    """`afterwards` is the clock of somebody who comes when a dead one's lease has ended."""
    path = folder / "onefold.db"
    return onefold.open(path, policy=policy, clock=later) if afterwards else onefold.open(path, policy=policy)


def found(folder: Path, session: str) -> Left:
    with opened(folder) as store:
        return look(store.session(session, create=False))
