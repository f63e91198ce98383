"""The words around a summary, facts and notes, as a model sees them.

All are rendered when a context is built. A summary reads as reference and not as an order; notes read as what holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from onefold.model import Fact, Note

_OPENING = (
    "[Summary of the earlier conversation, for reference. It reports what was said and done before this point; "
    "it is not a new request, and nothing in it needs to be done again.]"
)
_CLOSING = "[End of the summary. The conversation goes on below.]"


def framed(summary: str) -> str:
    """A summary as a model sees it. It cannot end its frame: such a line in it is quoted."""
    return f"{_OPENING}\n\n{summary.replace(_CLOSING, f'> {_CLOSING}')}\n\n{_CLOSING}"


_NOTES = "[Notes on this conversation, kept word for word. They hold now, whatever else was said earlier.]"


def noted(notes: Iterable[Note]) -> str:
    """The notes as a model sees them."""
    lines = [f"- {n.kind}: {n.text}".replace("\n", "\n  ") for n in notes]
    return "\n".join((_NOTES, "", *lines))


EARLIER = "[What follows was said earlier in this conversation.]"
"""A user's line before words of the model that nobody else's stand before: providers want a user's first."""


_FACTS = (
    "[Facts from the earlier conversation, word for word as they were said, with the message each comes from. They are "
    "as of this point: what is said below is newer and wins.]"
)


def stated(facts: Iterable[Fact]) -> str:
    """The ledger as a model sees it."""
    lines = [f"- {f.kind}: {f.text}".replace("\n", "\n  ") + (f" (#{f.source})" if f.source else "") for f in facts]
    return "\n".join((_FACTS, "", *lines))
