"""Hermes Agent: one SQLite database. Its tables are in `schema`, what goes wrong in `checks`, repairs in `repairs`."""

from onefold.foreign.hermes.checks import examine, name, recognises, repair

__all__ = ["examine", "name", "recognises", "repair"]
