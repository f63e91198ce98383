"""The house rule of repetition: no run of six or more lines of logic stands twice in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "onefold"
LINES = 6
BELOW = SOURCE / "storage"
"""Stores repeat one protocol, each in its own language."""


def test_no_run_of_six_lines_of_logic_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in sorted(SOURCE.rglob("*.py")):
        if not module.is_relative_to(BELOW):
            for line, run in _runs(ast.parse(module.read_text(encoding="utf-8"))):
                places[run].append(f"{module.relative_to(SOURCE)}:{line}")

    assert {run: found for run, found in places.items() if len(found) > 1} == {}


def test_a_run_that_was_copied_is_found_whatever_is_around_it() -> None:
    copied = "\n".join(f"    total += price({n})" for n in range(LINES))
    one = ast.parse(f"def f(total):\n    begin()\n{copied}\n    return total")
    other = ast.parse(f"def g(total):\n    if total:\n{copied.replace('    ', '        ')}\n        end()")

    assert {run for _, run in _runs(one)} & {run for _, run in _runs(other)}


def _runs(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Every shortest run of statements in a block that has so many lines: where it begins, and what it says."""
    for node in ast.walk(module):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
                yield from _of(block)


def _of(block: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    said = [(one.lineno, lines) for one in block if (lines := _code(one))]
    for start, (line, _) in enumerate(said):
        run: list[str] = []
        for _, lines in said[start:]:
            run += lines
            if len(run) >= LINES:
                yield line, "\n".join(run)
                break


def _code(statement: ast.stmt) -> list[str]:
    """A statement's lines as Python itself would write them; nothing of what it imports, or says to a reader."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return []
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []
    return ast.unparse(statement).splitlines()
