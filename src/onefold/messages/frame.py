"""The words around a summary. It is rendered when a context is built, and reads as reference, not as an order."""

from __future__ import annotations

_OPENING = (
    "[Summary of the earlier conversation, for reference. It reports what was said and done before this point; "
    "it is not a new request, and nothing in it needs to be done again.]"
)
_CLOSING = "[End of the summary. The conversation goes on below.]"


def framed(summary: str) -> str:
    """A summary as a model sees it."""
    return f"{_OPENING}\n\n{summary}\n\n{_CLOSING}"
