"""Where to cut. Pure: headers in, a plan or the reason why there is none out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onefold.compaction.policy import Policy
from onefold.messages.tool_groups import Numbered, legal_cuts
from onefold.model import ASKING


@dataclass(frozen=True, slots=True)
class Plan:
    cut: int
    """The first record that stays verbatim."""
    kept: tuple[int, ...]
    """Messages before the cut that stay verbatim all the same, in order."""


@dataclass(frozen=True, slots=True)
class NoCut:
    reason: str


@dataclass(frozen=True, slots=True)
class Turns:
    """What the planner needs to know of turns."""

    over: frozenset[int] = frozenset()
    """Messages of turns that have ended: what they left open counts as closed."""
    opening: int | None = None
    """The user's message that opened the turn which is open now."""


_NO_TURNS = Turns()


def plan(
    messages: Sequence[Numbered],
    *,
    kept: Sequence[Numbered],
    total: int,
    policy: Policy,
    prompt: Collection[int] = (),
    pinned: frozenset[int] = frozenset(),
    turns: Turns = _NO_TURNS,
) -> Plan | NoCut:
    """Plans the compaction of one segment.

    `messages` are those from the segment's cut up to what the attempt may summarise, `kept` those that the segment
    shows by name from before it, `total` the size of the whole context, `prompt` the system and developer messages in
    force, which stay, `pinned` those that stay in every context anyway.

    The newest legal cut is taken that leaves the tail, and the last user message with it. In a long turn, one message
    followed by many tool calls, that would be no progress: then the cut goes on into the turn, and the messages that
    opened it are kept by name.
    """
    if not messages:
        return NoCut("there is nothing to compact since the last time")
    tail = min(policy.tail_tokens, int(total * policy.tail_share))
    legal = [c for c in legal_cuts(messages, turns.over) if c > messages[0][0]]
    last = max((n for n, h in (*kept, *messages) if h.role in ASKING), default=None)
    asked = sorted({n for n in (turns.opening, last) if n is not None})
    enough = max(1, int(total * policy.min_shrink * 2))  # room for a summary as large as what is saved

    # A huge tool result near the end would fill the tail alone, for ever: then the least tail has to do.
    for least in (tail, 0):
        latest = _latest(messages, least, policy.tail_messages)
        for cut, also in _choices([c for c in legal if c <= latest], asked):
            names = tuple(sorted({*(n for n in prompt if n < cut), *also}))
            stays = sum(h.tokens for n, h in (*kept, *messages) if n in names or (n in pinned and n < cut))
            gone = sum(h.tokens for n, h in messages if n < cut) + sum(h.tokens for _, h in kept)
            if gone - stays >= enough:
                return Plan(cut, names)
    return NoCut("no progress: what may be cut is less than a cut would have to save")


def _choices(cuts: list[int], asked: list[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The newest cut that leaves alone the turn which the user's messages opened; then the newest inside it."""
    first = min(asked, default=None)
    before = [c for c in cuts if first is None or c <= first]
    found: list[tuple[int, tuple[int, ...]]] = [(before[-1], ())] if before else []
    if cuts and first is not None and cuts[-1] > first:
        found.append((cuts[-1], tuple(n for n in asked if n < cuts[-1])))
    return found


def _latest(messages: Sequence[Numbered], tokens: int, count: int) -> int:
    """The newest message at which a cut still leaves so many tokens and messages; 0 if there are fewer."""
    left = 0
    for stays, (number, header) in enumerate(reversed(messages), start=1):
        left += header.tokens
        if left >= tokens and stays >= count:
            return number
    return 0
