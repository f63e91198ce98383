"""The bench that `docs/scaling.md` comes from, with a store of a few sessions: what it measures is a sound store."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from benchmarks.scaling.__main__ import Bench, Size, bare, beside_a_held_one, contexts, looks
from benchmarks.scaling.page import Line, Measured, page, plot, text
from benchmarks.speed.report import Row
from tests.support.postgres_server import Server

SIZE = Size(sessions=6, long=600, seconds=0.3, processes=(1,), rounds=1, followed=2)


def test_the_store_that_is_measured_verifies_and_everybody_gets_something_done() -> None:
    server = Server(quick=True, settings=("autovacuum=off",))
    try:
        bench = Bench(server, SIZE, lambda _: None)
        rows: list[Row] = [*contexts(bench), bare(bench)[0], beside_a_held_one(bench)]
        found = bench.run("turns", 1, 1, 2)
        rows.append(looks(bench))
    finally:
        server.stop()

    assert bench.verified == 600 + 20 * 1_000
    assert all(row.value > 0 for row in rows)
    assert {what for what, point in found.items() if point.rate > 0} >= {"open", "context", "append", "server"}
    measured = Measured(
        rows, 1000.0, {"appends": Line({1: found["append"]}, {1: 0.5})}, {1: found}, {"cores": "2"}, 6, 6_600, 1_000, ""
    )
    assert all(f"| {row.what} |" in page(measured) for row in rows)
    assert rows[0].what in text(measured)
    assert ET.fromstring(plot(measured)).tag.endswith("svg")
