"""`make bench-peers`: measures, and writes `docs/peers.md`, its plot, its numbers, and a table of `performance.md`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import measures, report
from benchmarks.peers.environments import python, versions
from benchmarks.peers.plot import plot
from benchmarks.speed.report import busy, machine

_DOCS = Path(__file__).parent.parent.parent / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", help="by name; all by default. With names, nothing is written")
    parser.add_argument("--short", action="store_true", help="a few seconds of each; writes nothing")
    parser.add_argument("--part", choices=("speed", "kills"), help="measure this alone; the rest of the page stays")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument(
        "--from", dest="numbers", type=Path, help="write the page from these numbers, measuring nothing"
    )
    parser.add_argument("--dir", type=Path, help="where to make the stores; by default the system's temporary folder")
    chosen = parser.parse_args()
    if chosen.numbers:
        write(json.loads(chosen.numbers.read_text(encoding="utf-8")))
        return 0
    found = {**(_before() if chosen.part else {}), **_measured(chosen)}
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report.as_text(found))
    if not chosen.short and not chosen.peers:
        write(found)
    return 0


def _measured(chosen: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", file=sys.stderr, flush=True)

    if warning := busy():
        print(warning, file=sys.stderr)
    peers = measures.chosen(chosen.peers)
    timed, killed = [p for p in peers if p.store], [p for p in peers if p.compacts]
    for environment in dict.fromkeys(peer.environment for peer in peers):
        python(environment)
    say("installed")
    found: dict[str, Any] = {
        "versions": {e: versions(e) for e in dict.fromkeys(p.environment for p in peers) if e != "onefold"},
    }
    if chosen.part != "kills":
        size = measures.SHORT if chosen.short else measures.FULL
        found["machine"] = {**machine(chosen.dir or Path(tempfile.gettempdir())), "warning": warning}
        found["speed"] = measures.speeds(timed, size, chosen.dir, say)
        found["syncs"] = {peer.name: measures.syncs(peer, chosen.dir) for peer in timed}
        say("syncs counted")
    if chosen.part != "speed":
        found["kills"] = measures.endings(killed, "kills", say)
        found["both"] = measures.endings(killed, "both", say)
    return found


def _before() -> dict[str, Any]:
    """What was found last."""
    path = _DOCS / "peers.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(found: dict[str, Any]) -> None:
    (_DOCS / "peers.md").write_text(report.as_page(found), encoding="utf-8")
    (_DOCS / "peers.svg").write_text(plot(found), encoding="utf-8")
    performance = _DOCS / "performance.md"
    performance.write_text(report.into(performance.read_text(encoding="utf-8"), found), encoding="utf-8")
    (_DOCS / "peers.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
