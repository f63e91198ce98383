"""`make bench-masking`: measures what masking saves on recorded conversations, and writes `docs/masking.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.masking.measures import WINDOWS, everything, measured
from benchmarks.masking.page import page
from benchmarks.masking.talks import talks

PAGE = Path(__file__).parent.parent.parent / "docs" / "masking.md"
QUICK = ("failing tests", "small steps")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.masking", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two conversations, in one window; writes no page")
    parser.add_argument("--page", type=Path, help="where to write the page; by default docs/masking.md")
    chosen = parser.parse_args(argv)
    names = QUICK if chosen.quick else [t.name for t in talks()]
    runs = measured(everything(names, WINDOWS[:1] if chosen.quick else WINDOWS))
    made = page(runs, [t for t in talks() if t.name in names])
    to: Path | None = chosen.page or (None if chosen.quick else PAGE)
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(made, encoding="utf-8")
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
