"""`onefold import` of another program's store, as people run it: killed, twice, in use, damaged, into a full store."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import onefold
from onefold.model import Json
from tests.support.command_line import clean, program, run
from tests.support.hermes_store import SUMMARY, Hermes
from tests.support.imports import context, records
from tests.support.openviking_folders import Commit, ids, session
from tests.support.session_lives import fine


@pytest.fixture
def hermes(tmp_path: Path) -> Path:
    """A store with a conversation of two sessions, a branch of it, and another one."""
    store = Hermes(tmp_path / "state.db")
    store.session("s0")
    store.talk("s0", 8)
    store.compact("s0", into="s1")
    store.talk("s1", 3, "more")
    store.session("b", "s0")
    store.say("b", "user", f"{SUMMARY} of b")
    store.say("b", "assistant", "work in b")
    store.session("t")
    store.talk("t", 5)
    store.say("s1", "user", "newest")
    return store.done()


def stands(folder: Path, name: str = "new.db") -> dict[str, list[Json]]:
    with onefold.open(folder / name, create=False) as store:
        return records(store)


def without_ids(held: dict[str, list[Json]]) -> dict[str, list[Json]]:
    """What two imports of one store have in common: all but the ids and holders that are made anew."""
    same = ("message", "alias")
    return {
        session: [(number, kind, at, body if kind in same else None) for number, _, kind, at, body in rows]
        for session, rows in held.items()
    }


def test_a_store_is_recognised_and_taken_in_and_a_second_run_changes_nothing(tmp_path: Path, hermes: Path) -> None:
    before = hermes.read_bytes()
    fine(run(tmp_path, "init", "new.db"))

    told = fine(run(tmp_path, "import", hermes, "--into", "new.db"))
    held = stands(tmp_path)
    again = fine(run(tmp_path, "import", hermes, "--into", "new.db"))

    assert "3 sessions: 50 messages imported, 2 compactions, 1 fork" in told
    assert "s0 goes on as 2 sessions" in told
    assert "`onefold doctor" in told
    assert "3 sessions: 50 there already" in again
    assert stands(tmp_path) == held
    assert hermes.read_bytes() == before
    assert not [*tmp_path.glob("state.db-*")]
    assert "newest" in fine(run(tmp_path, "context", "s1", "--store", "new.db"))


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))
    before = (tmp_path / "new.db").read_bytes()

    dry = json.loads(fine(run(tmp_path, "import", hermes, "--into", "new.db", "--dry-run", "--json")))
    untouched = (tmp_path / "new.db").read_bytes() == before
    done = json.loads(fine(run(tmp_path, "import", hermes, "--into", "new.db", "--json")))

    assert untouched
    assert dry["dry_run"]
    assert not done["dry_run"]
    assert dry["sessions"] == done["sessions"]
    assert (done["program"], done["new"], done["refused"]) == ("Hermes Agent", 50, 0)
    assert [f["id"] for f in done["findings"]] == ["fork:s0"]


def test_only_some_sessions_by_any_of_their_ids(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))

    fine(run(tmp_path, "import", hermes, "--into", "new.db", "--only", "s1"))
    unknown = run(tmp_path, "import", hermes, "--into", "new.db", "--only", "nobody")

    assert {*stands(tmp_path)} == {"s0"}
    assert unknown.returncode == 2
    assert "'nobody'" in unknown.stderr


_KILLED = """
import os, signal
from onefold.cli import main
from onefold.foreign.importers import importer

left = int(os.environ["CALLS"])
real = importer.Importer._written

def written(*arguments, **named):
    global left
    left -= 1
    if not left and os.environ["WHEN"] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    done = real(*arguments, **named)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

importer.Importer._written = written
importer._STEPS = 4
main()
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("deadly", [1, 6, 9, 11])
def test_an_import_that_was_killed_goes_on_where_it_stopped(
    tmp_path: Path, hermes: Path, deadly: int, when: str
) -> None:
    for name in ("new.db", "whole.db"):
        fine(run(tmp_path, "init", name))
    fine(run(tmp_path, "import", hermes, "--into", "whole.db"))

    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "import", str(hermes), "--into", "new.db"],
        cwd=tmp_path, env=clean(tmp_path, CALLS=str(deadly), WHEN=when), timeout=60, check=False, capture_output=True,
    )  # fmt: skip
    half = stands(tmp_path)
    healthy = run(tmp_path, "verify", "--store", "new.db")
    fine(run(tmp_path, "import", hermes, "--into", "new.db"))
    after = stands(tmp_path)

    assert killed.returncode == -9, killed.stderr
    assert healthy.returncode == 0, healthy.stdout
    assert sum(map(len, half.values())) < sum(map(len, after.values()))
    assert all(after[s][: len(rows)] == rows for s, rows in half.items())
    assert without_ids(after) == without_ids(stands(tmp_path, "whole.db"))


def test_a_store_that_its_program_has_open_is_read_as_of_one_moment(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))
    with contextlib.closing(apsw.Connection(str(hermes))) as writer:
        writer.execute("pragma journal_mode = wal")
        writer.execute("insert into messages (session_id, role, content, timestamp) values ('t', 'user', 'seen', 2e9)")
        writer.execute("begin immediate")
        writer.execute(
            "insert into messages (session_id, role, content, timestamp) values ('t', 'user', 'not yet', 2e9)"
        )

        done = program(tmp_path, "import", hermes, "--into", "new.db", "--json")
        writer.execute("commit")
        then = program(tmp_path, "import", hermes, "--into", "new.db", "--json")

    assert (json.loads(fine(done))["new"], json.loads(fine(then))["new"]) == (51, 1)


def test_of_a_damaged_file_what_can_be_read_is_taken_in_and_the_rest_is_told(tmp_path: Path) -> None:
    store = Hermes(tmp_path / "state.db")
    for name in ("s", "t"):
        store.session(name)
        for number in range(60):
            store.say(name, "user", f"{name} {number} " + "x" * 3000)
    path = store.done()
    content = bytearray(path.read_bytes())
    at = content.index(b"t 30 xxx") // 4096 * 4096
    content[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    fine(run(tmp_path, "init", "new.db"))

    done = run(tmp_path, "import", path, "--into", "new.db")

    assert done.returncode == 1, done.stdout
    assert "rejected: " in done.stderr
    assert "onefold doctor" in done.stdout + done.stderr
    assert sum(1 for _, _, kind, _, _ in stands(tmp_path)["s"] if kind == "message") == 60
    assert path.read_bytes() == content
    assert run(tmp_path, "verify", "--store", "new.db").returncode == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_store_with_random_damage_gives_an_answer_or_a_clear_error_and_is_not_written_to(
    tmp_path: Path, hermes: Path, seed: int
) -> None:
    dice = random.Random(seed)
    content = bytearray(hermes.read_bytes())
    if seed % 3 == 0:
        del content[dice.randrange(len(content)) :]
    for _ in range(seed * 3):
        content[dice.randrange(len(content))] = dice.randrange(256)
    hermes.write_bytes(content)
    fine(run(tmp_path, "init", "new.db"))

    done = run(tmp_path, "import", hermes, "--into", "new.db")

    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    assert hermes.read_bytes() == content
    assert run(tmp_path, "verify", "--store", "new.db").returncode == 0


def test_an_id_that_another_session_has_here_is_left_to_it(tmp_path: Path, hermes: Path) -> None:
    with onefold.open(tmp_path / "new.db") as store:
        store.session("s0").append({"role": "user", "content": "mine"})
        store.session("elsewhere").alias("t")
        store.session("elsewhere").append({"role": "user", "content": "mine too"})

    told = fine(run(tmp_path, "import", hermes, "--into", "new.db"))
    fine(run(tmp_path, "import", hermes, "--into", "new.db"))

    assert "'s0' is another session here, so it is 'hermes-s0'" in told
    with onefold.open(tmp_path / "new.db") as store:
        assert {s.id for s in store.sessions()} == {"s0", "elsewhere", "hermes-s0", "hermes-t", "b"}
        assert context(store, "s0") == [{"role": "user", "content": "mine"}]
        assert store.resolve("s1") == "hermes-s0"
        assert store.session("b").state.parent == "hermes-s0"


def test_what_was_deleted_here_does_not_come_back(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))
    fine(run(tmp_path, "import", hermes, "--into", "new.db"))
    fine(run(tmp_path, "delete", "t", "--yes", "--store", "new.db"))

    done = run(tmp_path, "import", hermes, "--into", "new.db")

    assert done.returncode == 1
    assert "deleted" in done.stderr
    assert {*stands(tmp_path)} == {"s0", "b"}


def test_what_was_erased_here_stays_erased(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))
    fine(run(tmp_path, "import", hermes, "--into", "new.db"))
    fine(run(tmp_path, "erase", "t", "3", "--yes", "--store", "new.db"))
    before = stands(tmp_path)["t"]

    told = run(tmp_path, "import", hermes, "--into", "new.db")

    assert told.returncode == 0, told.stderr
    assert stands(tmp_path)["t"] == before


def test_a_session_that_was_imported_goes_on_and_compacts_here(tmp_path: Path, hermes: Path) -> None:
    fine(run(tmp_path, "init", "new.db"))
    fine(run(tmp_path, "import", hermes, "--into", "new.db"))

    with onefold.open(tmp_path / "new.db", summarizer=lambda material: "All of it, in short.") as store:
        talk = store.session("s1")
        talk.append([{"role": "user", "content": "word " * 400} for _ in range(30)])
        done = talk.compact()
        now = talk.context()

    assert done.applied
    assert now.summary == "All of it, in short."


@pytest.mark.parametrize("what", ["empty folder", "another database", "own store"])
def test_what_is_no_store_of_a_known_program_is_refused(tmp_path: Path, what: str) -> None:
    fine(run(tmp_path, "init", "new.db"))
    (tmp_path / "folder").mkdir()
    with contextlib.closing(apsw.Connection(str(tmp_path / "some.db"))) as other:
        other.execute("create table a (b)")
    path = {"empty folder": "folder", "another database": "some.db", "own store": "new.db"}[what]

    done = run(tmp_path, "import", path, "--into", "new.db")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_bar_is_shown_on_a_terminal_and_the_folder_of_openviking_is_taken(tmp_path: Path) -> None:
    session(tmp_path / "bench", ids(5, 6), Commit(ids(1, 4)))
    fine(run(tmp_path, "init", "new.db"))
    ours, theirs = pty.openpty()

    done = subprocess.run(
        [sys.executable, "-m", "onefold", "import", "bench", "--into", "new.db"],
        cwd=tmp_path, env=clean(tmp_path, TERM="xterm"), stderr=theirs, stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)

    assert done.returncode == 0
    assert b"6 messages imported, 1 compaction" in done.stdout
    assert "importing messages" in shown
