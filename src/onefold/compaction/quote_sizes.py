"""How large the message is that quotes some stretches: told by the lengths of its lines, which are not written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from onefold.messages.context_text import length, total
from onefold.messages.quotation import Quotation
from onefold.model import Gap

Unit: TypeAlias = tuple[int, str, int, int]
"""A stretch: the number of its message, where in it a text stands, and from where to where in that."""


class Sizes:
    """What is quoted of each message is measured once, and people's messages that are left out are counted once."""

    def __init__(self, numbers: Sequence[int], people: Collection[int], gaps: Iterable[Gap]) -> None:
        """`numbers` are all messages that may be quoted, in order, `people` those that count if they are left out, and
        `gaps` is what was left out before."""
        self._lengths: dict[tuple[Unit, ...], tuple[str, int] | None] = {}
        missing = sorted([*((n, 1) for n in people), *((gap.first, gap.many) for gap in gaps)], reverse=True)
        self._people = {*people}
        self._before: dict[int, int] = {}
        """How many would be missing before a message, if none was quoted."""
        count = 0
        for number in numbers:
            while missing and missing[-1][0] < number:
                count += missing.pop()[1]
            self._before[number] = count
        self._all = count + sum(many for _, many in missing)

    def of(
        self, units: Iterable[Unit], quotation: Callable[[int, Sequence[Unit]], Quotation | None],
        behind: int | None = None,
    ) -> int:  # fmt: skip
        """Tokens of the message that quotes these; 0 if there is none. `quotation` is what is quoted of a message, and
        `behind` how many messages to count as left out behind the last one, if not those that are."""
        of: dict[int, list[Unit]] = {}
        for unit in units:
            of.setdefault(unit[0], []).append(unit)
        lengths, before, people = self._lengths, self._before, self._people
        lines: list[tuple[str, int, int]] = []
        out = counted = 0
        for number, stretches in sorted(of.items()):
            some = tuple(stretches)
            if some not in lengths:
                line = quotation(number, some)
                lengths[some] = None if line is None else length(line)
            missing = before[number]
            out += missing - counted
            counted = missing + (number in people)
            if (long := lengths[some]) is not None:
                lines.append((*long, out))
                out = 0
        rest = out + self._all - counted if behind is None else behind
        return (total(lines, rest) + 3) // 4 if lines else 0
