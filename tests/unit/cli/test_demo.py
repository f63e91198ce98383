"""The demo, played briskly: its numbers are right, its checks can fail, and it leaves nothing behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import onefold
from onefold.cli.demo.chart import draw
from onefold.cli.demo.checks import check
from onefold.cli.demo.runner import Played, Point
from onefold.cli.demo.scenario import CALLERS, conversation
from onefold.ids import random_id
from onefold.messages import decode, digest, draft
from onefold.messages.tool_groups import group


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo in a process group of its own, with `folder` as the place for temporary files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONEFOLD_")}
    return subprocess.Popen(
        [sys.executable, "-m", "onefold", "demo", *arguments],
        env=kept | {"TMPDIR": str(folder), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        process_group=0,
    )


def actors(folder: Path) -> list[str]:
    """Processes that play in a store of this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "onefold.cli.demo.workers" in line and str(folder) in line:
            found.append(line)
    return found


def test_the_demo_plays_and_its_numbers_are_right(tmp_path: Path) -> None:
    """F01, F04, F06, F07, F10, F20, F40, F41, F70: all in one story, counted from the journal."""
    kept = tmp_path / "kept.db"
    with start(tmp_path, "--pace", "0.3", "--json", "--store", str(kept)) as demo:
        out, err = demo.communicate(timeout=100)

    assert demo.returncode == 0, out + err
    told = decode(out)
    assert told["ok"]
    found = {name: numbers["found"] for name, numbers in told["checks"].items()}
    assert found["messages"] > 200
    assert found["sent_again"] > 10
    assert found["at_once"] == len(CALLERS) == 3
    assert (found["one_for_all"], found["killed"], found["late_refused"]) == (1, 1, 1)
    nothing = ("lost", "repeated", "out_of_order", "forks", "not_in_context", "compacting", "processes", "findings")
    assert {found[name] for name in nothing} == {0}
    assert actors(tmp_path) == []

    with onefold.open(kept, create=False) as store:
        session = store.session(told["session"], create=False)
        done = session.compactions()
        assert {c.state for c in done} == {"committed"}
        assert len(done) == found["committed"] == session.state.segments - 1
        assert sum(c.requests for c in done) == found["requested"]
        assert sum(c.attempts > 1 for c in done) >= 2, "one after a kill, one after a stop"
        assert session.state.messages == found["messages"]
        assert session.compaction_holder() is None


def test_a_demo_that_is_stopped_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    with start(tmp_path, "--pace", "0.3") as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if "commits:" in line)
        assert actors(tmp_path) != []

        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=60)

    assert "→" in line
    assert demo.returncode == 130
    assert err == "onefold: stopped; no process is left over\n"
    assert actors(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_reader_leaves_ends_quietly(tmp_path: Path) -> None:
    with start(tmp_path, "--pace", "0.3") as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("onefold demo")

        demo.stdout.close()
        code = demo.wait(timeout=60)
        assert demo.stderr is not None
        said = demo.stderr.read()

    assert (code, said) == (0, "")
    assert actors(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_another_programs_file_is_no_stage(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 100)

    with start(tmp_path, "--store", str(tmp_path / "notes.txt")) as demo:
        _, err = demo.communicate(timeout=60)

    assert demo.returncode == 2
    assert "not a database" in err


# ---------------------------------------------------------------------- the checks can fail


class Said:
    """A process of the story that said these things."""

    def __init__(self, name: str, *lines: dict[str, Any], returncode: int = 0) -> None:
        self.name = name
        self.pid = 1
        self.lines = lines
        self.process = SimpleNamespace(poll=lambda: returncode, returncode=returncode)

    def heard(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["say"] == what]


@pytest.fixture
def played() -> Played:
    """A story of two messages, with everything in order."""
    store = onefold.open("memory:")
    session = store.session("demo")
    lines: list[dict[str, Any]] = []
    for i in range(2):
        body = {"role": "user", "content": f"message {i}"}
        numbers = session.append(body, key=f"k{i}").numbers
        mark = digest("", "message", "openai-chat", body)
        lines.append({"say": "acknowledged", "key": f"k{i}", "numbers": list(numbers), "digests": [mark]})
    told = cast("Any", [Said("ada", *lines)])
    return Played(store, session, told, [], [], list(session.read()))


def wrong(played: Played) -> set[str]:
    """The checks that failed, without those that need a whole story."""
    return {c.name for c in check(played) if not c.ok} - {"at_once", "one_for_all"}


def test_a_message_that_was_promised_and_is_not_there_is_found(played: Played) -> None:
    assert wrong(played) == set()
    ada = cast("Any", played.children[0])

    ada.lines[1]["numbers"] = [99]

    assert wrong(played) >= {"messages", "lost", "repeated"}


def test_a_message_whose_content_changed_is_found(played: Played) -> None:
    cast("Any", played.children[0]).lines[0]["digests"] = ["other"]

    assert wrong(played) == {"messages", "lost"}


def test_a_message_that_nobody_was_promised_is_found(played: Played) -> None:
    played.session.append({"role": "user", "content": "message 1"})

    assert wrong(played) == {"repeated", "followed"}


def test_a_follower_that_missed_or_repeated_a_record_is_found(played: Played) -> None:
    assert wrong(dataclasses.replace(played, followed=[*played.followed[:1], *played.followed])) == {"followed"}
    assert wrong(dataclasses.replace(played, followed=played.followed[1:])) == {"followed"}


def test_a_compaction_that_is_still_open_and_a_request_nobody_sent_are_found(played: Played) -> None:
    played.session.journal.request("demo")

    assert wrong(played) >= {"committed", "compacting", "requested"}


def test_a_fork_is_found_although_no_store_can_hold_one(played: Played) -> None:
    twin = played.followed[0]._replace(number=4, body={**played.followed[0].body, "source": "compaction"})
    forked = SimpleNamespace(
        read=lambda: [*played.followed, twin],
        compactions=played.session.compactions,
        context=played.session.context,
        state=played.session.state,
        compaction_holder=played.session.compaction_holder,
    )

    assert wrong(dataclasses.replace(played, session=cast("Any", forked), followed=[*played.followed, twin])) == {
        "forks"
    }


def test_a_process_that_still_runs_and_one_that_was_not_killed_are_found(played: Played) -> None:
    runs = cast("Any", Said("eve", returncode=0))
    runs.process.poll = lambda: None

    assert wrong(dataclasses.replace(played, children=[*played.children, runs], killed=[runs], late=[runs])) == {
        "processes",
        "killed",
        "late_refused",
    }


# ---------------------------------------------------------------------- the picture


def test_the_picture_shows_a_saw_tooth_within_eighty_columns() -> None:
    curve = [Point(i * 0.1, 1000 + (i % 50) * 60) for i in range(201)]
    commits = [5.0, 10.0, 15.0, 20.0]

    lines = draw(curve, commits)

    assert max(map(len, lines)) <= 80
    heights = [line[8:].ljust(66) for line in lines if "┤" in line or "│" in line]
    assert len(heights) == 10
    filled = [sum(row[column] != " " for row in heights) for column in range(66)]
    falls = [column for column in range(1, 66) if filled[column] < filled[column - 1] - 3]
    assert len(falls) == 3, "one after each compaction but the last, which ends the picture"
    marks = next(line for line in lines if line.strip() and not line.strip("▲ "))
    assert marks.count("▲") == 4
    assert lines[1].split()[0] == "4,000"


@pytest.mark.parametrize("curve", [[], [Point(0.0, 0)], [Point(0.0, 7), Point(0.0, 8)], [Point(3.0, 10**7)]])
def test_the_picture_of_next_to_nothing_is_no_error(curve: list[Point]) -> None:
    assert all(len(line) <= 80 for line in draw(curve, []))


def test_the_writers_lines_make_closed_tool_groups() -> None:
    messages = [m for turn in range(9) for append in conversation("ada", turn) for m in append]
    headers = [draft(m, random_id).header for m in messages]

    grouped = group((i, h) for i, h in enumerate(headers) if h is not None)

    assert len(grouped.groups) == 9
    assert all(g.closed for g in grouped.groups)
    assert not grouped.orphans
