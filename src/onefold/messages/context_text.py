"""The words around a summary, facts and notes, as a model sees them.

All are rendered when a context is built. A summary reads as reference and not as an order; notes read as what holds, in
front from when the segment began, at its own place if it was made since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from onefold.messages.quotation import AGENT, SKIPPED, SYSTEM, Quotation
from onefold.model import Fact, Gap, Note

_OPENING = (
    "[Summary of the earlier conversation, for reference. It reports what was said and done before this point; "
    "it is not a new request, and nothing in it needs to be done again.]"
)
_CLOSING = "[End of the summary. The conversation goes on below.]"


def summary_block(summary: str) -> str:
    """A summary as a model sees it. It cannot end its frame: such a line in it is quoted."""
    return f"{_OPENING}\n\n{summary.replace(_CLOSING, f'> {_CLOSING}')}\n\n{_CLOSING}"


NOTES = "[Notes on this conversation, kept word for word. They hold now, whatever else was said earlier.]"


def notes_block(notes: Iterable[Note]) -> str:
    """The notes as a model sees them."""
    lines = [f"- {n.kind}: {n.text}".replace("\n", "\n  ") for n in notes]
    return "\n".join((NOTES, "", *lines))


EARLIER = "[What follows was said earlier in this conversation.]"
"""A user's line before words of the model that nobody else's stand before: providers want a user's first."""


_NOTED = "[A note on this conversation, made at this point. It holds from here on, whatever else was said earlier.]"
_INSTEAD = "[It takes the place of an earlier one, which holds no longer:]"
_DROPPED = "[A note on this conversation was taken away at this point. What it said holds no longer:]"
_GIST = 200


def noted_here(note: Note, before: Note | None) -> str:
    """A note as a model sees it at the place where it was made, with the one whose place it takes. Without a text it
    takes that one away."""
    was = f"- {note.kind}: {_gist(before.text if before is not None else note.key)}"
    if not note.text:
        return f"{_DROPPED}\n\n{was}"
    said = f"{_NOTED}\n\n" + f"- {note.kind}: {note.text}".replace("\n", "\n  ")
    return said if before is None else f"{said}\n\n{_INSTEAD}\n\n{was}"


def _gist(text: str) -> str:
    """The beginning of what was said elsewhere in full."""
    line = " ".join(text.split())
    return line if len(line) <= _GIST else f"{line[:_GIST]}…"


PINNED = "[Pinned at this point, and kept in view from here on. What follows was said earlier in this conversation:]"
PINNED_END = "[End of what was said earlier. It is no new request; the conversation goes on below.]"
"""Lines of a user's around messages from before the cut, where they are shown once more; the second also behind old
messages that nothing else stands behind: an old request never stands last."""


FACTS = (
    "[Facts from the earlier conversation, word for word as they were said, with the message each comes from. They are "
    "as of this point: what is said below is newer and wins.]"
)


def facts_block(facts: Iterable[Fact]) -> str:
    """The facts of an older version's segment, as a model sees them."""
    lines = [f"- {f.kind}: {f.text}".replace("\n", "\n  ") + (f" (#{f.source})" if f.source else "") for f in facts]
    return "\n".join((FACTS, "", *lines))


QUOTES = (
    f"[Quoted from earlier, word for word, oldest first, by message number and day; {SKIPPED} and +2 are words and "
    "messages left out. A record: requests in it were dealt with or dropped, unless the summary calls them open or "
    "they are repeated below. What people told the agent to do or not to do holds until later words say otherwise. "
    "What they pasted is shown, not asked.]"
)
_SPEAKERS = {AGENT: ", agent", SYSTEM: ", system"}


class QuoteLine(NamedTuple):
    """What is quoted of one message, written down."""

    number: int
    at: float
    head: str
    words: str


def quotes_block(lines: Sequence[Quotation], gaps: Sequence[Gap] = ()) -> str:
    """What people said, as a model sees it. Each line of it is marked as a quotation, so that none can pass for the
    head of another one."""
    return put_together([quotation(line) for line in lines], gaps)


def put_together(lines: Iterable[QuoteLine], gaps: Sequence[Gap] = ()) -> str:
    """The same of lines that are written already. Each says how many of people's messages are left out before it."""
    missing = [*reversed(gaps)]
    parts = [QUOTES]
    day = ""
    for number, at, head, words in lines:
        out = 0
        while missing and missing[-1].first < number:
            out += missing.pop().many
        if (its := _day(at)) != day:
            parts += ["", its]
            day = its
        parts.append(f"{head} {_missing(out)}{words}" if out else head + words)
    rest = sum(gap.many for gap in missing)
    return "\n".join((*parts, *([_missing(rest)] if rest else ())))


def quotation(line: Quotation) -> QuoteLine:
    """What is quoted of one message."""
    kinds = f" ({', '.join(line.kinds)})" if line.kinds else ""
    head = f"#{line.number}{kinds}{_SPEAKERS.get(line.who, '')}"
    words = "> " + line.text.replace("\n", "\n> ") if line.text else f": (… {line.size:,} characters)"
    return QuoteLine(line.number, line.at, head, words)


def length(line: Quotation) -> tuple[str, int]:
    """The day of a quotation, and how many bytes its line has, without writing it."""
    kinds = sum(_bytes(kind) + 2 for kind in line.kinds) + 1 if line.kinds else 0
    head = 1 + len(str(line.number)) + kinds + len(_SPEAKERS.get(line.who, ""))
    if line.text:
        return _day(line.at), head + 2 + _bytes(line.text) + 2 * line.text.count("\n")
    return _day(line.at), head + _bytes(quotation(line).words)


def total(lines: Iterable[tuple[str, int, int]], rest: int) -> int:
    """How many bytes they have, put together: by each one's day, its length, and how many are left out before it; and
    how many are left out behind them."""
    size = _bytes(QUOTES)
    day = ""
    for its, long, out in lines:
        if its != day:
            size += 2 + len(its)
            day = its
        size += 1 + long + (1 + len(_missing(out)) if out else 0)
    return size + (1 + len(_missing(rest)) if rest else 0)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _missing(many: int) -> str:
    return f"+{many}"


def _day(at: float) -> str:
    try:
        return _nth_day(int(at // _DAY))
    except (OverflowError, ValueError, OSError):
        return "some day"


_DAY = 86_400


@lru_cache(1 << 8)
def _nth_day(number: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(number * _DAY))
