"""The models fit the specification as it is; whether the checker finds what it has to, `make spec` tries."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from verification.spec import MODELS, SAFETY, SPEC, STEPS, Model

MODULE = SPEC.read_text()
GUARDS = {*re.findall(r'\b(?:Guard|Spares)\("([^"]+)"', MODULE)}
PROMISES = {*SAFETY, *STEPS, "EveryEnds"}


def test_every_guard_is_taken_away_by_a_model_that_then_finds_something() -> None:
    assert GUARDS - {guard for model in MODELS if model.finds for guard in model.off} == set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_takes_away_what_is_there(model: Model) -> None:
    """A name that the module does not know would take nothing away, and nobody would do anything."""
    assert {*model.off} <= GUARDS
    assert {*model.people} <= {*re.findall(r'"(\w+)" \\in People', MODULE)}


def test_every_promise_is_written_down_and_broken_by_a_model() -> None:
    told = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", SPEC.with_name("README.md").read_text(), re.MULTILINE)

    assert {*re.findall(r"`(\w+)`", " ".join(told))} == PROMISES
    assert {model.finds for model in MODELS if model.finds} == PROMISES
    assert {*re.findall(r"^(\w+)\s+== ", MODULE.rpartition("----")[2], re.MULTILINE)} >= PROMISES


def test_each_thing_that_is_done_is_done_in_a_model_of_the_design() -> None:
    done = {word for model in MODELS if not model.off and not model.long for word in model.people}

    assert {*re.findall(r'"(\w+)" \\in People', MODULE)} - done == set()
    assert [name for name, times in Counter(model.name for model in MODELS).items() if times > 1] == []
