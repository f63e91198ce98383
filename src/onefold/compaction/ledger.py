"""The ledger: facts that are carried word for word from segment to segment, outside the prose of summaries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onefold.journal.view import is_hidden
from onefold.model import Fact, Note, Ranges, Record


def carried(
    base: Sequence[Fact],
    found: Sequence[Fact],
    *,
    later: Sequence[Fact] = (),
    settled: Sequence[tuple[str, str]] = (),
    room: int,
) -> tuple[Fact, ...]:
    """The ledger of the next segment: that of its base, and what was found in the messages that are cut away now.

    A later fact of the same kind and key takes the place of an earlier one. `later` are those of the messages that stay
    verbatim: they are not carried, since they are in view, but say until when what is carried holds. `settled` names
    lines that no longer matter. What does not fit into `room` tokens gives way, in the order that this module states.
    """
    facts = {(f.kind, f.key): f for f in (*base, *found)}
    return tuple(facts.values())


def current(
    facts: Sequence[Fact], *, notes: Sequence[Note] = (), dropped: Mapping[tuple[str, str], int], hidden: Ranges = ()
) -> tuple[Fact, ...]:
    """Those of a segment's facts that hold now: no note of the same kind and key took their place or took them away
    later, and the message that says otherwise, if one does, is not in view."""
    replaced = {(n.kind, n.key): n.number for n in notes} | dict(dropped)
    return tuple(
        f for f in facts if replaced.get((f.kind, f.key), 0) <= f.source and (not f.until or is_hidden(hidden, f.until))
    )


def quoted(facts: Sequence[Fact], records: Sequence[Record]) -> tuple[Fact, ...]:
    """Those of the facts a summarizer gave that stand word for word in the messages it was given, each with the message
    it comes from: what was never said is no fact, and no tool's output makes a rule."""
    return ()


def lost(base: Sequence[Fact], settled: Sequence[tuple[str, str]]) -> tuple[Fact, ...]:
    """Those of the facts in force that a summarizer gave up and may not: rules and the like end by somebody's word."""
    return ()
