"""Why an operation is rejected, in words: what happened, to which session, and what to do."""

from __future__ import annotations

import math
import os
from typing import get_args

from onefold.errors import CommitRefused, CompactionDisabled, KeyConflict, OnefoldError, TurnLost
from onefold.model import Claim, KeyUse, SessionState, TurnClaim
from onefold.storage.base import Transaction


def compacts(tx: Transaction, state: SessionState) -> bool:
    """A review fork never compacts: it is for reading, once."""
    said = None if state.parent is None else tx.record(state.id, state.forked_at + 1)
    return said is None or said.body.get("kind") != "review"


def may_compact(tx: Transaction, state: SessionState) -> None:
    if not compacts(tx, state):
        raise CompactionDisabled(
            f"session {state.id!r} is a review of session {state.parent!r} and does not compact, whatever the trigger; "
            f"compact {state.parent!r}, or fork it as a branch"
        )


def turn_lost(tx: Transaction, turn: TurnClaim) -> TurnLost:
    """Why a turn's writer is rejected."""
    now = tx.session(turn.session)
    who = tx.record(turn.session, now.turn) if now is not None and now.turn else None
    how = f"{who.body.get('owner') or 'another writer'} has it since record {who.number}" if who else "it is over"
    return TurnLost(
        f"session {turn.session!r}: the turn of {turn.owner or 'this writer'} that began at record {turn.number} was "
        f"lost ({how}); nothing was written. Read the context again and begin a new turn"
    )


def check_owner_process(claim: Claim | TurnClaim) -> None:
    if claim.pid != os.getpid():
        what = "claim" if isinstance(claim, Claim) else "turn"
        raise OnefoldError(
            f"this {what} on session {claim.session!r} belongs to process {claim.pid}: a forked child makes its own"
        )


def check_seconds(session: str, **seconds: float) -> None:
    """A lease or a life without an end would be nobody's after a crash, for ever."""
    for name, number in seconds.items():
        if not 0 < number < math.inf:
            raise OnefoldError(
                f"session {session!r}: a {name.replace('_', ' ')} is a finite number of seconds above 0, not {number}"
            )


def check_choice(session: str, what: str, word: str, words: object) -> None:
    """A word that is none of the contract's would stand in the journal for good, and mean nothing."""
    if word not in get_args(words):
        raise OnefoldError(
            f"session {session!r}: {word!r} is not a valid {what}; use one of {', '.join(get_args(words))}"
        )


def key_conflict(session: str, key: str, use: KeyUse) -> KeyConflict:
    return KeyConflict(
        f"session {session!r}: the key {key!r} was used for other content at record {use.first}; "
        "nothing was written. Use a new key for new content"
    )


def commit_refused(kind: type[CommitRefused], claim: Claim, why: str) -> CommitRefused:
    return kind(
        f"session {claim.session!r}: compaction {claim.compaction} was not committed, because {why}; "
        "nothing was written",
        session=claim.session,
        compaction=claim.compaction,
    )


def check_name(what: str, name: str) -> None:
    """Ids and keys are short and printable, so that they can be stored, shown and typed."""
    if not 0 < len(name) <= 512 or not name.isprintable():
        raise OnefoldError(f"{what} {name!r:.80} is invalid: use 1 to 512 printable characters")
