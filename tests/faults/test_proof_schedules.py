"""Every order of steps of two and three actors, to a depth; and that a race which is there is found."""

from __future__ import annotations

import contextlib
import random

import pytest

import onefold
from onefold.journal.process_liveness import Whereabouts
from onefold.model import Clock, Json
from onefold.storage.base import Backend
from verification.mutants import MUTANTS, ROOT, Mutant, attempt, one_of_each, without
from verification.schedules import (
    Living,
    Stage,
    canary,
    explore,
    explore_adoptions,
    explore_drafts,
    explore_masks,
    explore_plans,
    walk,
)


def test_a_race_that_is_there_is_found() -> None:
    found = canary()

    assert found is not None
    assert found.what == "two compactions are open"
    assert len(found.path) == 4


@pytest.mark.parametrize(("actors", "depth"), [(2, 6), (3, 5)])
def test_no_order_of_steps_breaks_a_promise(actors: int, depth: int) -> None:
    found = explore(depth, actors=actors)

    assert found.broken is None
    assert found.depth == depth
    assert found.refused > 100, "many of the steps were wrong ones, and refused"


def test_no_order_of_reading_planning_and_committing_cuts_an_open_call_from_its_result() -> None:
    found = explore_plans(7)

    assert found.broken is None
    assert found.depth == 7


def test_no_order_of_masks_compactions_and_ways_back_breaks_a_promise() -> None:
    found = explore_masks(6)

    assert found.broken is None
    assert found.depth == 6


def test_no_order_of_drafts_compactions_and_ways_back_breaks_a_promise() -> None:
    found = explore_drafts(6)

    assert found.broken is None
    assert found.depth == 6


def test_no_order_of_adoptions_compactions_and_ways_back_breaks_a_promise() -> None:
    found = explore_adoptions(5)

    assert found.broken is None
    assert found.depth == 5


def test_live_holders_that_are_called_dead_break_no_promise() -> None:
    """Should a machine be wrong about its processes, a summary is paid for twice, and that is all."""

    class Wrong(Living):
        def whereabouts(self, process: Json) -> Whereabouts:
            return "gone"

    stage = Stage()
    stage.journal.leases.machine = Wrong()

    found = explore(5, stage=stage)

    assert found.broken is None
    assert found.depth == 5


@pytest.mark.parametrize("seed", range(12))
def test_no_long_walk_of_three_actors_on_any_store_breaks_a_promise(address: str, seed: int) -> None:
    with contextlib.ExitStack() as stack:

        def opened(clock: Clock) -> Backend:
            return stack.enter_context(onefold.open(address, clock=clock)).journal.backend

        found = walk(Stage(opened), 120, random.Random(seed))

    assert found.broken is None
    assert found.steps == 120


def test_every_guard_is_where_it_is_looked_for() -> None:
    """So that `make soak`, which takes each of them away, does not find out an hour later."""
    for edit in (edit for mutant in MUTANTS for edit in mutant.edits):
        text = (ROOT / "src/onefold" / edit.file).read_text(encoding="utf-8")

        assert without(edit, text) != text


@pytest.mark.parametrize(
    "mutant", [m for m in one_of_each() if str(m.caught_by).startswith("schedules")], ids=lambda m: m.name
)
def test_a_guard_that_is_taken_away_is_missed(mutant: Mutant) -> None:
    tried = attempt(mutant)

    assert tried.caught, tried.said
    assert "BROKEN" in tried.said
