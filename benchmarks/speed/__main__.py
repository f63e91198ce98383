"""`make bench`: measures, shows a table, writes `docs/performance.md`, and fails if a bound is not met."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers.report import into
from benchmarks.speed.held import held_session
from benchmarks.speed.measures import FULL, QUICK, everything
from benchmarks.speed.report import as_json, as_page, as_text, busy, machine, missed

PAGE = Path(__file__).parent.parent.parent / "docs" / "performance.md"
PEERS = PAGE.with_name("peers.json")
"""What `make bench-peers` found last: its table is part of the page."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run with a smaller store; writes no page")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--dir", type=Path, help="where to make the stores; by default the system's temporary folder")
    parser.add_argument("--page", type=Path, help="where to write the page; by default docs/performance.md")
    chosen = parser.parse_args()

    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", file=sys.stderr, flush=True)

    if warning := busy():
        print(warning, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="onefold-bench-", dir=chosen.dir) as folder:
        facts = machine(Path(folder))
        size = QUICK if chosen.quick else FULL
        rows = [*everything(Path(folder), size, say), *held_session(size.rounds, say)]
    say("done")
    page: Path | None = chosen.page or (None if chosen.quick else PAGE)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        text = as_page(rows, facts, warning)
        if PEERS.exists():
            text = into(text, json.loads(PEERS.read_text(encoding="utf-8")))
        page.write_text(text, encoding="utf-8")
    print(as_json(rows, facts) if chosen.json else as_text(rows))
    for row in missed(rows):
        print(f"not met: {row.what}: {row.measured}, and it should be {row.bound}", file=sys.stderr)
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
