"""The page on coverage says what was measured."""

from __future__ import annotations

from tests.support.coverage_page import page


def _summary(statements: int, covered: int, branches: int = 0, covered_branches: int = 0) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": covered,
            "num_branches": branches,
            "covered_branches": covered_branches,
        }
    }


def test_the_share_of_a_package_is_of_all_its_lines_and_branches() -> None:
    files = {
        "src/onefold/journal/turns.py": _summary(90, 90, 10, 5),
        "src/onefold/journal/undo.py": _summary(100, 0),
        "src/onefold/model.py": _summary(10, 10),
    }
    report = {"files": files, "totals": _summary(200, 100, 10, 5)["summary"]}

    written = page(report, "Measured now.")

    assert "| `journal` | 47.5 % |\n| `onefold` | 100.0 % |\n| **all** | 50.0 % |" in written
    assert written.endswith("Measured now.\n")
