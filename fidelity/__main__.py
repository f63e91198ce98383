"""`make fidelity`: measures, shows a table, and writes `docs/fidelity.md` and its plot.

It fails if a context is too large, or shows what no longer holds or what only a tool said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fidelity.measures import looks
from fidelity.plot import plot
from fidelity.report import as_json, as_page, as_text, broken, every_row, short

PAGE = Path(__file__).parent.parent / "docs" / "fidelity.md"
FULL, QUICK = 24, 4
"""Conversations; each domain has as many as the others."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fidelity", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first conversation's seed")
    parser.add_argument("--quick", action="store_true", help="a few conversations only; writes no page")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--page", type=Path, help="where to write the page; by default docs/fidelity.md")
    chosen = parser.parse_args(argv)

    seen = looks(range(chosen.seed, chosen.seed + (QUICK if chosen.quick else FULL)))
    page: Path | None = chosen.page or (None if chosen.quick or chosen.seed else PAGE)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(as_page(seen), encoding="utf-8")
        page.with_suffix(".svg").write_text(plot(every_row(seen)), encoding="utf-8")
    print(as_json(seen) if chosen.json else as_text(seen))
    for less in short(seen):
        print(f"less than aimed for: {less}", file=sys.stderr)
    for wrong in broken(seen):
        print(f"not met: {wrong}", file=sys.stderr)
    return 1 if broken(seen) else 0


if __name__ == "__main__":
    sys.exit(main())
