"""Which messages belong together: a tool call and its results are one group, parallel calls included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onefold.messages.said import ANSWERS
from onefold.model import Header

Numbered = tuple[int, Header]

_ITEMS = frozenset({"call", "reasoning"})

LEADING = frozenset({"system", "developer"})
"""Roles of a system prompt, which stands first in every context."""


@dataclass(slots=True)
class Group:
    """A message with tool calls, and the messages that answer them."""

    members: list[int]
    waiting: set[str] = field(default_factory=set)
    """Calls without a result yet."""
    abandoned: bool = False
    """The model was asked again before all results were there, so the missing ones will never be sent."""

    @property
    def first(self) -> int:
        return self.members[0]

    @property
    def last(self) -> int:
        return self.members[-1]

    @property
    def closed(self) -> bool:
        return not self.waiting or self.abandoned


@dataclass(frozen=True, slots=True)
class Grouped:
    groups: tuple[Group, ...]
    orphans: frozenset[int]
    """Results of a call that is not there: no provider takes them."""


def group(messages: Iterable[Numbered]) -> Grouped:
    """Groups of a run of messages. A call's id may come again later: a result answers the latest open one.

    Where an answer comes as several items (reasoning, text, calls), they are one group: no provider takes a part.
    """
    groups: list[Group] = []
    open_calls: dict[str, Group] = {}
    orphans: set[int] = set()
    answer: Group | None = None
    for number, header in messages:
        if answer is not None and header.role in ANSWERS:
            answer.members.append(number)
            answer.waiting.update(header.opens)
            open_calls.update(dict.fromkeys(header.opens, answer))
            continue
        answer = None
        if header.role in ANSWERS:
            for other in open_calls.values():
                other.abandoned = True
        answered = [id for id in header.closes if id in open_calls]
        for id in answered:
            owner = open_calls.pop(id)
            owner.waiting.discard(id)
            if owner.last != number:
                owner.members.append(number)
        if header.closes and not answered:
            orphans.add(number)
        if header.opens or header.role == "reasoning":
            made = Group([number], set(header.opens))
            groups.append(made)
            open_calls.update(dict.fromkeys(header.opens, made))
            answer = made if header.role in _ITEMS else None
    return Grouped(tuple(groups), frozenset(orphans))


def legal_cuts(messages: Sequence[Numbered]) -> list[int]:
    """Numbers of messages before which a cut separates no call from its result, in order."""
    spans = [(g.first, g.last if g.closed else messages[-1][0]) for g in group(messages).groups]
    cuts: list[int] = []
    inside_until = 0
    pending = iter(spans)
    span = next(pending, None)
    for number, _ in messages:
        while span is not None and span[0] < number:
            inside_until = max(inside_until, span[1])
            span = next(pending, None)
        if number > inside_until:
            cuts.append(number)
    return cuts
