"""Power lost, and processes killed, at every moment of every operation: a little of what `make soak` does at length."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest

from verification import cuts, power
from verification.disk import LOSSES, Disk, Event
from verification.mutants import Mutant, attempt, one_of_each


@pytest.mark.parametrize("name", power.NAMES)
def test_power_lost_at_any_moment_leaves_the_old_state_or_the_new_one(name: str) -> None:
    told = power.operation(name, seed=1, losses=LOSSES)

    assert told.well, told.words
    assert told.faults >= 10


def test_power_lost_in_a_longer_life_takes_nothing_that_was_acknowledged() -> None:
    told = power.story(seed=1, losses=LOSSES)

    assert told.well, told.words
    assert told.acknowledged > 1000


def test_what_was_not_synced_is_lost_by_the_disk_that_is_used_for_it() -> None:
    disk = Disk()
    for event in (
        Event("write", "a", 0, b"old"),
        Event("sync", "a"),
        Event("write", "a", 0, b"new"),
        Event("write", "b", 2, b"never synced"),
    ):
        disk.happen(event)
    chance = random.Random(1)

    assert disk.after("everything unsynced", chance) == {"a": b"old"}
    assert disk.after("nothing", chance) == {"a": b"new", "b": b"\0\0never synced"}


NOTHING = "0 lost, 0 between, 0 twice, 0 forked, 0 stuck, 0 unopenable"
OTHERS = ("masks", "adoption", "power loss", "engine", "model")


@pytest.mark.parametrize("mutant", [m for m in one_of_each() if m.caught_by in OTHERS], ids=lambda m: m.name)
def test_a_guard_that_is_taken_away_is_missed(mutant: Mutant) -> None:
    """Each method can fail. All of the guards are tried by `make soak`, which takes longer."""
    tried = attempt(mutant)

    assert tried.caught, tried.said


def _run(*arguments: str) -> str:
    """In a process of its own: it forks, and changes how SQLite calls the system."""
    ran = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ["append one", "commit with follow-up", "erase an input"])
def test_a_process_killed_at_any_system_call_leaves_the_old_state_or_the_new_one(name: str) -> None:
    said = _run("verification.kills", "--only", name)

    faults = re.match(
        r"(\d+) faults, 1 acknowledged, 0 lost, 0 between, 0 twice, 0 forked, 0 stuck, 0 unopenable", said
    )
    assert faults is not None, said
    assert int(faults[1]) >= 10


def test_writers_that_are_killed_at_random_lose_nothing_and_fork_nothing() -> None:
    said = _run("verification.load", "--kills", "40")

    assert re.fullmatch(rf"40 faults, [\d,]+ acknowledged, {NOTHING}", said), said


def test_real_power_cuts_lose_nothing_where_they_can_be_made_and_say_why_where_they_cannot() -> None:
    why_not = cuts.why_not()
    found: list[cuts.Cut] = []

    if why_not is None:
        cuts.rounds(3, 1, found.append)

    assert [(c.lost, c.wrong) for c in found] == ([([], None)] * 3 if why_not is None else [])
    assert why_not is None or why_not
