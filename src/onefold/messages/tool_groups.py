"""Which messages belong together: a tool call and its results are one group, parallel calls included."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from onefold.messages.parts import AGENT, ANSWERS
from onefold.model import ASKING, Header

Numbered = tuple[int, Header]

_ITEMS = frozenset({"call", "reasoning", AGENT})

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


def group(messages: Iterable[Numbered], over: Container[int] = ()) -> Grouped:
    """Groups of a run of messages. A call's id may come again later: a result answers the latest open one.

    `over` are messages of turns that have ended: what they left open, nobody will answer.

    Where an answer comes as several items (reasoning, text, calls), they are one group: no provider takes a part. What
    an agent streams while its tools run gives up no call, unless a user has spoken since. News of a call that does not
    close it belongs to it.
    """
    groups: list[Group] = []
    open_calls: dict[str, Group] = {}
    orphans: set[int] = set()
    answer: Group | None = None
    thought: list[int] = []  # the reasoning that the answer ends in, so far
    asked = 0
    for number, header in messages:
        if answer is not None and header.role in ANSWERS:
            if answer.waiting.isdisjoint(header.call_ids):
                answer.members.append(number)
                thought = [*thought, number] if header.role == "reasoning" else []
                _open(open_calls, answer, header)
                continue
            del answer.members[
                len(answer.members) - len(thought) :
            ]  # an id again: this is another answer, and thought so
        else:
            thought = []
        if header.role == "tool" and not header.result_ids:
            running = next(reversed(open_calls.values()), None)
            if running is not None and not running.abandoned:
                running.members.append(number)
            continue
        answer = None
        asked = number if header.role in ASKING else asked
        if header.role in ANSWERS:
            for other in open_calls.values():
                other.abandoned = other.abandoned or header.role != AGENT or other.first < asked
        if header.result_ids and not _close(open_calls, number, header):
            orphans.add(number)
        if header.call_ids or header.role == "reasoning":
            made = Group([*thought, number])
            groups.append(made)
            _open(open_calls, made, header)
            answer = made if header.role in _ITEMS else None
            thought = [number] if header.role == "reasoning" else []
    for left in groups:
        left.abandoned = left.abandoned or left.first in over
    return Grouped(tuple(groups), frozenset(orphans))


def _close(open_calls: dict[str, Group], number: int, header: Header) -> bool:
    """Whether a message answers a call that is open. One that answers the same call twice answers it once."""
    answered = {id: open_calls.pop(id) for id in dict.fromkeys(header.result_ids) if id in open_calls}
    for id, owner in answered.items():
        owner.waiting.discard(id)
        if owner.last != number:
            owner.members.append(number)
    return bool(answered)


def _open(open_calls: dict[str, Group], by: Group, header: Header) -> None:
    for id in header.call_ids:
        if (before := open_calls.pop(id, by)) is not by:
            before.abandoned = True  # its result would be taken for the later call's
        open_calls[id] = by
        by.waiting.add(id)


def legal_cuts(messages: Sequence[Numbered], over: Container[int] = ()) -> list[int]:
    """Numbers of messages before which a cut separates no call from its result, in order."""
    spans = [(g.first, g.last if g.closed else messages[-1][0]) for g in group(messages, over).groups]
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
