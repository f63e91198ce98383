"""`make fidelity`: measures, shows a table, and writes `docs/fidelity.md` and its plot.

It fails if something that must hold does not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fidelity.measures import everything, measured, of_kit
from benchmarks.fidelity.plot import plot
from benchmarks.fidelity.report import as_json, as_page, as_text, broken
from benchmarks.fidelity.report import of_kit as kit_as_text

PAGE = Path(__file__).parent.parent.parent / "docs" / "fidelity.md"
FULL, QUICK = (24, 16), (4, 1)
"""Conversations of the corpus, and seeds in each language."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few conversations only; writes no page")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--page", type=Path, help="where to write the page; by default docs/fidelity.md")
    parser.add_argument("--kit", type=Path, help="measure the conversations in this file instead; writes no page")
    chosen = parser.parse_args(argv)

    processes = os.cpu_count() or 1
    if chosen.kit is not None:
        print(kit_as_text(measured(of_kit(chosen.kit), processes)))
        return 0
    found = measured(everything(*(QUICK if chosen.quick else FULL)), processes)
    page: Path | None = chosen.page or (None if chosen.quick else PAGE)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(as_page(found), encoding="utf-8")
        page.with_suffix(".svg").write_text(plot(found), encoding="utf-8")
    print(as_json(found) if chosen.json else as_text(found))
    for wrong in broken(found):
        print(f"not met: {wrong}", file=sys.stderr)
    return 1 if broken(found) else 0


if __name__ == "__main__":
    sys.exit(main())
