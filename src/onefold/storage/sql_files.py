"""Loads the package's .sql files: statements by name, and migrations by number. The one loader for all of them."""

from __future__ import annotations

import re
from importlib import resources

_STATEMENT = re.compile(r"^-- (\w+): [^\n]*\n(.*?;)\n", flags=re.MULTILINE | re.DOTALL)


def read(package: str, file: str) -> str:
    return resources.files(package).joinpath(file).read_text(encoding="utf-8")


def statements(package: str, file: str) -> dict[str, str]:
    """The statements of a file by name."""
    return named(read(package, file))


def named(text: str) -> dict[str, str]:
    """Statements by name, each under a comment with its name and a sentence."""
    return {name: statement.rstrip(";") for name, statement in _STATEMENT.findall(text + "\n")}


def migrations(package: str) -> list[tuple[int, str, bool]]:
    """(number, script, whether an older program can still use the store after it), in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    scripts = [(int(name[:4]), folder.joinpath(name).read_text(encoding="utf-8")) for name in files]
    return [(number, text, "-- undo: yes" in text) for number, text in scripts]
