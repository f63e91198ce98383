"""`python -m benchmarks.recall`: how much is found among the first five and ten hits, in eight languages, beside plain
full text with stemming.

Ends with an error if recall is behind in a language or a kind, or less than ten points ahead in all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from benchmarks.recall.conversations import KINDS
from benchmarks.recall.languages import LANGUAGES
from benchmarks.recall.measures import Pair, Table, measure, together

_AHEAD = 10.0
_SEEDS = range(101, 106)
"""Other conversations than those that the weights were chosen by, which are 1 to 5."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*_SEEDS], help="which conversations, by number")
    parser.add_argument("--languages", nargs="+", choices=[one.name for one in LANGUAGES], help="by default all eight")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args()
    languages = [one for one in LANGUAGES if not chosen.languages or one.name in chosen.languages]
    table = measure(languages, chosen.seeds)
    rows = [*_rows(table)]
    if chosen.json:
        print(json.dumps({name: _numbers(pair) for name, pair in rows}, indent=2))
    else:
        print("\n".join(_lines(rows)))
    behind = [name for name, pair in rows if pair.ours.at_many < pair.plain.at_many]
    ahead = rows[-1][1].ours.at_many - rows[-1][1].plain.at_many
    for name in behind:
        print(f"not met: {name}: plain full text finds more", file=sys.stderr)
    if ahead < _AHEAD:
        print(f"not met: {ahead:.1f} points ahead in all, and it should be {_AHEAD:.0f}", file=sys.stderr)
    return 1 if behind or ahead < _AHEAD else 0


def _rows(table: Table) -> Iterator[tuple[str, Pair]]:
    for language in dict.fromkeys(name for name, _ in table):
        yield language, together(pair for (name, _), pair in table.items() if name == language)
    for kind in KINDS:
        yield kind, together(pair for (_, name), pair in table.items() if name == kind)
    yield "all", together(table.values())


def _numbers(pair: Pair) -> dict[str, float]:
    return {
        "questions": pair.ours.asked,
        "recall@5": round(pair.ours.at_few, 1),
        "recall@10": round(pair.ours.at_many, 1),
        "plain@5": round(pair.plain.at_few, 1),
        "plain@10": round(pair.plain.at_many, 1),
    }


def _lines(rows: list[tuple[str, Pair]]) -> Iterator[str]:
    yield "| | questions | recall@5 | plain@5 | recall@10 | plain@10 |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, pair in rows:
        ours, plain = pair.ours, pair.plain
        yield (
            f"| {name} | {ours.asked} | {ours.at_few:.1f} | {plain.at_few:.1f} | {ours.at_many:.1f} | "
            f"{plain.at_many:.1f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
