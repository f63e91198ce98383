"""Power lost, processes killed and disks full in a store of plain files: a little of what `make soak` does."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onefold.storage.jsonl import FilesBackend
from verification import cuts, files
from verification.folders import Event, Machine, NotedDisk, Tree, moments
from verification.mutants import MUTANTS, Mutant, attempt

EACH_WAY = (
    "create", "append one", "append while rows wait", "append many with key", "commit with follow-up", "alias",
    "take in a turn", "fork", "erase an input that waits", "delete",
)  # fmt: skip
"""One of each way to write; the soak has all operations."""
GUARDS = [m for m in MUTANTS if m.name.startswith("files") and m.caught_by != "files, erased"]  # which takes longest
NOTHING = "0 lost, 0 between, 0 twice, 0 forked, 0 stuck, 0 unopenable"


@pytest.mark.parametrize("name", EACH_WAY)
def test_power_lost_at_any_moment_leaves_the_old_state_or_the_new_one(name: str) -> None:
    told = files.power(name, seed=1, sparing=True)

    assert told.well, told.words
    assert told.faults >= 4


@pytest.mark.parametrize("name", ["append many with key", "delete"])
def test_power_lost_again_while_a_store_is_opened_after_it_leaves_the_old_state_or_the_new_one(name: str) -> None:
    told = files.twice(name, seed=1, sparing=True)

    assert told.well, told.words


def test_power_lost_in_a_longer_life_takes_nothing_that_was_acknowledged() -> None:
    told = files.story(seed=1, sparing=True)

    assert told.well, told.words
    assert told.acknowledged > 500


@pytest.mark.parametrize("name", ["create", "append while rows wait", "append many with key", "delete"])
def test_after_a_kill_at_any_call_another_goes_on_and_a_power_cut_takes_nothing_of_that(name: str) -> None:
    told = files.bystander(name, seed=1, sparing=True)

    assert told.well, told.words
    assert told.faults >= 8


@pytest.mark.parametrize(
    "name", ["create", "append while rows wait", "append many with key", "erase an input that waits", "delete"]
)
def test_a_full_disk_and_a_sync_that_fails_are_told_as_they_are_and_it_goes_on_after_them(name: str) -> None:
    told = files.failing(name, seed=1, sparing=True)

    assert told.well, told.words
    assert told.faults >= 2


@pytest.mark.parametrize("name", ["append while rows wait", "redo", "delete"])
def test_rows_wait_for_the_index_when_an_operation_begins(name: str) -> None:
    with files.staged(name) as stage:
        backend = stage.store.journal.backend

        assert isinstance(backend, FilesBackend)
        assert len(backend._lag.rows) >= 2


def test_names_and_content_are_lost_apart_by_the_disk_that_is_used_for_it() -> None:
    tree = Tree()
    for event in (
        Event("create", 0, name="kept", target=1),
        Event("write", 1, data=b"old"),
        Event("sync", 1),
        Event("sync", 0),
        Event("write", 1, offset=3, data=b" and new"),
        Event("create", 0, name="beside", target=2),
        Event("write", 2, data=b"content"),
        Event("link", 0, name="linked", target=2),
        Event("sync", 2),
    ):
        tree.happen(event)

    def after(loss: str) -> dict[str, bytes]:
        left = tree.after(loss, random.Random(1))
        return {name: left.contents[node] for name, node in left.files.items()}

    assert after("everything unsynced") == {"kept": b"old"}
    assert after("content to zeros, and no name")["kept"] == b"old" + b"\0" * 8
    assert after("content, and no name") == {"kept": b"old", "beside": b"content", "linked": b"content"}
    assert after("names, and no content") == {"kept": b"old and new"}


def test_two_names_of_one_file_are_so_after_a_power_cut_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    disk = NotedDisk(machine)
    disk.write_new(tmp_path / "one", b"content")
    disk.link(tmp_path / "one", tmp_path / "two")
    *_, (_, _, tree, _) = moments(machine.events)
    found = tmp_path / "found"
    found.mkdir()

    tree.after("nothing", random.Random(1)).lay_out(found)

    assert found.joinpath("one").samefile(found / "two")


@pytest.mark.parametrize("mutant", GUARDS, ids=lambda m: m.name)
def test_a_guard_that_is_taken_away_is_missed(mutant: Mutant) -> None:
    tried = attempt(mutant)

    assert tried.caught, tried.said
    assert "BROKEN" in tried.said


def _run(*arguments: str) -> str:
    """In a process of its own: it forks, and changes how the system is called."""
    ran = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()[-1]


def test_a_process_killed_at_any_system_call_leaves_the_old_state_or_the_new_one() -> None:
    said = _run("verification.kills", "--files", "--only", "append one")

    faults = re.fullmatch(rf"(\d+) faults, 1 acknowledged, {NOTHING}", said)
    assert faults is not None, said
    assert int(faults[1]) >= 10


def test_writers_that_are_killed_at_random_lose_nothing_and_fork_nothing() -> None:
    said = _run("verification.load", "--kills", "20", "--store", "sessions/")

    assert re.fullmatch(rf"20 faults, [\d,]+ acknowledged, {NOTHING}", said), said


def test_a_real_power_cut_loses_nothing_where_it_can_be_made() -> None:
    found: list[cuts.Cut] = []

    if cuts.why_not() is None:
        cuts.rounds(1, 1, found.append, files=True)

    assert all((c.lost, c.wrong) == ([], None) for c in found)
