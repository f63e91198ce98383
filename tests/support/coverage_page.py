"""Writes docs/coverage.md from what coverage.py measured: `python -m tests.support.coverage_page REPORT PAGE`."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INTRODUCTION = """# Coverage

This page is written by `make check-coverage`: which lines and branches of the package the tests reach, in the processes
of the tests themselves. Child processes are not counted, so code that only they run is covered better than it says
here. A line that is reached need not be tested: [reliability](reliability.md#the-proof-can-fail) has tests of the
tests.
"""


def page(report: Mapping[str, Any], measured_on: str) -> str:
    """`report` is coverage.py's JSON report."""
    packages: dict[str, list[Mapping[str, int]]] = {}
    for name, file in report["files"].items():
        packages.setdefault(_package(name), []).append(file["summary"])
    rows = [_row(f"`{package}`", _share(summaries)) for package, summaries in sorted(packages.items())]
    total = _row("**all**", _share([report["totals"]]))
    return "\n".join([INTRODUCTION, "| package | covered |", "| --- | --: |", *rows, total, "", measured_on, ""])


def _package(file: str) -> str:
    parts = Path(file).parts
    inside = parts[parts.index("onefold") + 1 :]
    return inside[0] if len(inside) > 1 else "onefold"


def _share(summaries: list[Mapping[str, int]]) -> float:
    """Of statements and branches together, as coverage.py counts."""
    counted = sum(s["num_statements"] + s.get("num_branches", 0) for s in summaries)
    covered = sum(s["covered_lines"] + s.get("covered_branches", 0) for s in summaries)
    return 100 * covered / counted if counted else 100.0


def _row(name: str, share: float) -> str:
    return f"| {name} | {share:.1f} % |"


def main() -> None:
    report, target = map(Path, sys.argv[1:])
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    measured = json.loads(report.read_text(encoding="utf-8"))
    text = page(measured, f"Measured on {when}, Python {platform.python_version()}.")
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
