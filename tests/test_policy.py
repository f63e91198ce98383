"""The numbers compaction goes by: their defaults, and what they may be."""

from __future__ import annotations

import dataclasses

import pytest

from onefold import Policy
from onefold.model import Json


def test_the_defaults_are_those_of_the_contract() -> None:
    policy = Policy()

    assert (policy.lease, policy.renew, policy.wait, policy.attempts) == (60.0, 15.0, 60.0, 3)
    assert policy.lease <= policy.life


@pytest.mark.parametrize(
    "wrong",
    [
        {"renew": 0},
        {"renew": -1},
        {"renew": 60},
        {"lease": 10},
        {"lease": 700},
        {"life": 30},
        {"attempts": 0},
        {"limit": 0},
        {"tail_messages": 0},
        {"summary_tokens": 0},
        {"shrink": 1},
        {"shrink": -0.1},
        {"tail_share": 1.5},
        {"tail_share": -0.1},
        {"renew": float("nan")},
        {"shrink": float("nan")},
    ],
    ids=str,
)
def test_numbers_that_cannot_work_are_refused(wrong: dict[str, Json]) -> None:
    with pytest.raises(ValueError, match=r"a policy needs|at least 1|are shares"):
        Policy(**wrong)


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
