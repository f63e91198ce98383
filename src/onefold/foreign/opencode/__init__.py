"""OpenCode: one SQLite database. What goes wrong in it, and how it is repaired, is in `checks`."""

from onefold.foreign.opencode.checks import examine, name, recognises, repair

__all__ = ["examine", "name", "recognises", "repair"]
