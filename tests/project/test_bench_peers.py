"""The comparison with other stores, as far as it needs none of them: the conversation, the counting, the page."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.peers import report
from benchmarks.peers.conversation import MESSAGES, SUMMARY, Left, Meter, exchanges, marks
from benchmarks.peers.kills import _points, _state
from benchmarks.peers.measures import counted
from benchmarks.peers.plot import plot
from benchmarks.peers.table import PEERS


def _at(messages: int, rate: float, load: float, size: float) -> dict[str, float]:
    return {"messages": messages, "rate": rate, "seconds": 1.0, "written": size, "size": size, "load": load}


def _try(state: str, **more: Any) -> dict[str, Any]:
    return {"before": "commit", "state": state, "lost": 0, "doubled": 0, "gone": 0, "held": 0.0, "asked": 1,
            "goes_on": "", "finished": True, **more}  # fmt: skip


FOUND: dict[str, Any] = {
    "machine": {"date": "2026-01-01 00:00 UTC", "cores": "2", "warning": ""},
    "versions": {"openai-agents": "openai-agents 1.0"},
    "speed": {
        "onefold": {"settings": "WAL", "at": [_at(500, 1000, 0.004, 5e5), _at(2000, 900, 0.03, 2e6)]},
        "openai-sqlite": {"settings": "WAL", "at": [_at(500, 800, 0.003, 5e5), _at(2000, 700, 0.012, 2e6)]},
        "langgraph": {"settings": "WAL", "at": [_at(500, 30, 0.03, 1e8)]},
        "claude-jsonl": {"settings": "a file", "at": [_at(500, 20000, 0.01, 5e5), _at(2000, 20000, 0.04, 2e6)]},
    },
    "syncs": {"onefold": 1.0, "openai-sqlite": 1.0, "langgraph": None, "claude-jsonl": 0.0},
    "kills": {
        "onefold": {"writes": [], "whole": {}, "found": [_try("as before", asked=2, held=59.6), _try("done")]},
        "openai-manual": {
            "writes": [],
            "whole": {},
            "found": [_try("0 messages, no summary", lost=160, gone=160), _try("done", gone=120)],
        },
    },
    "both": {
        "onefold": {"asked": 1, "summaries": 1, "doubled": 0, "gone": 0, "turns lost": 0, "errors": []},
        "adk-sqlite": {"asked": 1, "summaries": 1, "doubled": 0, "gone": 0, "turns lost": 2,
                       "errors": ["StaleSessionError: reload"]},
    },
}  # fmt: skip


def test_the_page_says_where_onefold_is_behind_and_that_the_other_does_not_sync() -> None:
    page = report.as_page(FOUND)

    assert "load 30 ms against 12 ms (1)." in page
    assert "\n1. What is loaded is a context:" in page
    assert "900 against 20,000 appends a second. It does not sync" in page
    assert "| **onefold**, no framework | 900 | 1.00 | 30 ms |" in page


def test_a_reason_is_on_the_page_only_where_its_row_is_behind() -> None:
    even: dict[str, Any] = {"onefold": {"settings": "WAL", "at": [_at(2000, 900, 0.03, 2e6)]},
                            "openai-sqlite": {"settings": "WAL", "at": [_at(2000, 900, 0.03, 2e6)]}}  # fmt: skip
    larger = even | {"onefold": {"settings": "WAL", "at": [_at(2000, 900, 0.03, 3e6)]}}

    assert report.behind({"speed": even}) == "onefold is ahead on every row.\n"
    assert report.behind({"speed": larger}).endswith("\n1. Beside its text a message has a number, an id, a time and a "
                                                     "header.\n")  # fmt: skip


def test_the_page_shows_what_a_kill_left() -> None:
    page = report.as_page(FOUND)

    assert "| 2 | 1 | 1 | 0 |  |  | 1 | 60 s |" in page
    assert "0 messages, no summary (1 kills)" in page
    assert "`StaleSessionError`" in page


def test_a_store_that_did_not_get_that_far_is_shown_as_far_as_it_came() -> None:
    assert "(500 messages) | 30 | unknown |" in report.table(FOUND)


def test_the_page_on_performance_has_table_and_plot_once_however_often_it_is_written() -> None:
    once = report.into("# Performance\n\nText.\n", FOUND)

    assert report.into(once, FOUND) == once
    assert once.startswith("# Performance\n\nText.\n")
    assert once.count("## Side by side") == 1
    assert once.count("](peers.svg)") == 1


def test_the_plot_is_well_formed() -> None:
    drawn = ElementTree.fromstring(plot(FOUND))

    assert len(drawn.findall(".//{*}title")) == 3 * 3


def test_the_conversation_is_the_same_every_time_and_each_text_has_its_own_mark() -> None:
    first, again = list(exchanges(50)), list(exchanges(50))

    texts = [text for e in first for text in (e.question, e.note, e.result, e.answer)]
    assert first == again
    assert len(set(marks(texts))) == len(texts) == 50 * MESSAGES


def test_syncs_are_counted_between_the_marks_only() -> None:
    trace = "1 fsync(3) = 0\n1 fsync(1000000) = -1 EBADF\n1 fdatasync(4) = 0\n2 fsync(5 <unfinished ...>\n"

    assert counted(f"{trace}1 fsync(1000000) = -1 EBADF\n1 fsync(7) = 0\n") == 2


def test_of_many_writes_alike_the_first_and_the_last_are_killed() -> None:
    assert _points(["delete a", *["insert a"] * 5, "commit"]) == [1, 2, 6, 7, 8]


@pytest.mark.parametrize(
    ("context", "state", "lost", "doubled"),
    [
        (["[m0001]", "[m0002]", "[m0003]"], "as before", 0, 0),
        ([SUMMARY, "[m0003]"], "done", 0, 0),
        ([], "0 messages, no summary", 3, 0),
        ([SUMMARY], "0 messages, a summary", 1, 0),
        ([SUMMARY, "[m0003]", "[m0003]"], "1 messages, a summary", 0, 1),
    ],
)
def test_what_is_left_is_told_from_its_marks(context: list[str], state: str, lost: int, doubled: int) -> None:
    before = Left(["[m0001]", "[m0002]", "[m0003]"], [])
    done = Left([SUMMARY, "[m0003]", "[m0004]"], [])

    assert _state(Left(context, []), before, done) == (state, lost, doubled)


def test_a_summary_that_was_asked_for_is_counted_across_processes(tmp_path: Path) -> None:
    meter = Meter(tmp_path / "calls")

    assert asyncio.run(meter()).startswith(SUMMARY)
    assert Meter(tmp_path / "calls").asked == 1


_TRIPPED = """
import sqlite3, sys
from pathlib import Path
from benchmarks.peers.trip import Trip
path, seen, at = sys.argv[1:]
Trip(int(at), Path(seen)).watch()
db = sqlite3.connect(path)
db.execute("create table said (text)")
db.execute("select 1").fetchall()
for text in ("one", "two"):
    db.execute("insert into said values (?)", (text,))
db.commit()
"""


@pytest.mark.parametrize(("at", "rows"), [(1, 0), (3, 0), (4, 2)])
def test_a_process_dies_before_the_write_that_was_named(tmp_path: Path, at: int, rows: int) -> None:
    path, seen = tmp_path / "a.db", tmp_path / "seen"

    done = subprocess.run(
        [sys.executable, "-c", _TRIPPED, str(path), str(seen), str(at)],
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )

    assert done.returncode == (-9 if at < 4 else 0)
    assert seen.read_text().split("\n")[at - 1 : at] == [["insert said", "insert said", "commit", ""][at - 1]]
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from said").fetchone()[0] == rows
    db.close()


def test_onefold_alone_goes_through_the_same_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.drive", "speed", "onefold", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        input="say 20\nlook\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    answers = [json.loads(line.removeprefix("ANSWER ")) for line in done.stdout.splitlines() if line.startswith("ANS")]
    assert answers[2]["loaded"] == 20
    assert answers[2]["size"] > 0


def test_every_peer_names_what_is_there() -> None:
    stores = Path(report.__file__).parent / "stores"

    for peer in PEERS.values():
        for called in filter(None, (peer.store, peer.compacts)):
            module, _, rest = called.partition(":")
            assert f"class {rest.split(' ')[0]}" in (stores / f"{module}.py").read_text(encoding="utf-8"), peer.name
