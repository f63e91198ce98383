"""The numbers compaction goes by: their defaults, and what they may be."""

from __future__ import annotations

import dataclasses
import math

import pytest

import onefold
from onefold import Compactor, Limits, OnefoldError, Policy, SummarizerFailed
from onefold.journal import turns
from onefold.model import Json
from tests.conftest import who


def test_the_defaults_are_those_of_the_contract() -> None:
    policy = Policy()

    assert (policy.lease, policy.lease_renew_interval, policy.wait_timeout, policy.attempts) == (60.0, 15.0, 60.0, 3)
    assert policy.lease <= policy.attempt_timeout


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_renew_interval": 0},
        {"lease_renew_interval": -1},
        {"lease_renew_interval": 60},
        {"lease": 10},
        {"lease": 700},
        {"attempt_timeout": 30},
        {"attempts": 0},
        {"window": 0},
        {"tail_messages": 0},
        {"summary_tokens": 0},
        {"min_shrink": 1},
        {"min_shrink": -0.1},
        {"tail_share": 1.5},
        {"tail_share": -0.1},
        {"wait_timeout": -5.0},
        {"tail_tokens": -5},
        {"backoff": (2.0, -1.0)},
        {"turn_lease": 0},
        {"quote_tokens": -1},
        {"mask_tokens": -1},
        {"mask_newest": -1},
        {"attempt_timeout": 1e300},
        {"wait_timeout": 2e9},
        {"turn_lease": 2e9},
        {"backoff": (2e9,)},
    ],
    ids=str,
)
def test_numbers_that_cannot_work_are_refused(wrong: dict[str, Json]) -> None:
    with pytest.raises(ValueError, match=r"a policy needs|at least [01]|are shares|above 0|at most 1,000,000,000 sec"):
        Policy(**wrong)


NUMBERS = [f.name for f in dataclasses.fields(Policy) if f.type in ("int", "float")]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, "60", None], ids=repr)
@pytest.mark.parametrize("name", [*NUMBERS, "backoff"])
def test_what_is_no_finite_number_is_refused_by_name(name: str, number: Json) -> None:
    assert len(NUMBERS) == 17
    given: dict[str, Json] = {name: (2.0, number) if name == "backoff" else number}
    with pytest.raises(ValueError, match=rf"^{name}(\[1\])? is a finite number, not "):
        Policy(**given)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=repr)
@pytest.mark.parametrize("name", ["window", "output", "soft", "hard"])
def test_so_it_is_in_the_limits_of_a_model(name: str, number: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is a finite number, not "):
        Limits(**{"window": 10_000, name: number})  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=repr)
def test_nobody_waits_for_ever_or_for_nothing_that_is_a_number(number: float) -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        session.append({"role": "user", "content": "hello"})
        last = session.state.last

        for call in (
            lambda: session.compact(wait=number),
            lambda: session.turn(wait=number),
            lambda: Compactor(store).compact_idle(0, wait=number),
        ):
            with pytest.raises(ValueError, match=r"^wait is a finite number, not "):
                call()
        for claim in (
            lambda: store.journal.claim("s", who(), lease=number),
            lambda: store.journal.claim("s", who(), life=number),
            lambda: turns.start(store.journal, "s", who(), lease=number),
        ):
            with pytest.raises(OnefoldError, match="is a finite number of seconds above 0, not "):
                claim()
        assert session.state.last == last


def test_a_wait_is_what_the_policy_says_or_the_caller() -> None:
    policy = Policy(wait_timeout=7.0)

    assert [policy.seconds(wait) for wait in (True, False, 0, 2, 2.5, -1.0)] == [7.0, 0.0, 0.0, 2.0, 2.5, 0.0]


def test_a_provider_that_asks_to_be_left_alone_for_ever_says_nothing_by_that() -> None:
    asked = [SummarizerFailed("no", kind="rate limit", retry_after=n).retry_after for n in (3.0, math.inf, math.nan)]

    assert asked == [3.0, None, None]


def test_a_policy_cannot_be_changed_once_it_is_made() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().lease = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [((2.0, 15.0, 60.0), [2.0, 15.0, 60.0, 60.0]), ((5.0,), [5.0, 5.0, 5.0, 5.0]), ((), [0.0, 0.0, 0.0, 0.0])],
)
def test_the_wait_after_each_attempt(backoff: tuple[float, ...], waits: list[float]) -> None:
    policy = Policy(backoff=backoff)

    assert [policy.retry_after(n) for n in (1, 2, 3, 4)] == waits
