"""The mutants of single lines fit the source and the tests as they are; whether they are noticed, `make soak` tries."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from verification import line_mutants
from verification.line_mutants import LINES, PACKAGE, ROOT, Line, Outdated, changed

NAMES = [line.name for line in LINES]


@pytest.mark.parametrize("line", LINES, ids=NAMES)
def test_a_mutant_still_applies_and_its_test_is_there(line: Line) -> None:
    text = (PACKAGE / line.file).read_text()
    mutated = changed(line, text)

    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(text))
    tests = ast.parse((ROOT / line.tests).read_text()).body
    assert [t.name for t in tests if isinstance(t, ast.FunctionDef) and line.test in t.name] == [line.test]


def test_each_mutant_is_another_one() -> None:
    assert [name for name, times in Counter(NAMES).items() if times > 1] == []


def test_a_mutant_that_no_longer_fits_is_said_loudly() -> None:
    for text in ("a = 2\n", "a = 1\na = 1\n"):
        with pytest.raises(Outdated, match="bring the mutant up to date"):
            changed(Line("some.py", "a = 1", "a = 0", "tests/test_some.py", "test_some"), text)


def test_a_mutant_is_noticed_or_not_by_its_own_test() -> None:
    """One that changes what a test looks at, one that changes nothing, and one whose test is not there."""
    noticed = next(line for line in LINES if line.file == "acp/message_assembler.py")
    silent = Line(noticed.file, noticed.old, f"{noticed.old}  # the same", noticed.tests, noticed.test)
    lost = Line(noticed.file, noticed.old, noticed.new, noticed.tests, "test_that_nobody_wrote")

    assert [tried.noticed for tried in line_mutants.attempts([noticed, silent])] == [True, False]
    with pytest.raises(Outdated, match="did not run"):
        line_mutants.attempt(lost)
