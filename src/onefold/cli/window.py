"""How full a context is, in words: a window that nobody named is said to be unknown."""

from __future__ import annotations

from onefold.compaction.limits import Limits


def of_window(tokens: int, limits: Limits | None) -> str:
    """For a sentence."""
    return f"{tokens:,} tokens of {window_words(limits)}"


def window_words(limits: Limits | None) -> str:
    return f"{limits.window:,}" if limits is not None else "a window that nobody named"
