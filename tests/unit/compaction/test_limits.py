"""When a context is too full: limits of a model, how large a context is as far as that is known, what is decided."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

import onefold
from onefold import Limits, Policy
from onefold.compaction.limits import CompactionReadiness, SizeEstimator, Step, Underway, decide
from onefold.compaction.token_counter import counted, counter
from onefold.messages.codecs import estimate
from tests.support.helpers import converse

LIMITS = Limits(window=1_000, output=200, soft=0.5, hard=0.9)


def test_the_reserve_for_output_is_taken_off_and_shares_are_of_the_rest() -> None:
    assert (LIMITS.room, LIMITS.soft_tokens, LIMITS.hard_tokens) == (800, 400, 720)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"window": 0}, "output < window"),
        ({"window": 8_000}, "output < window"),
        ({"window": 1_000, "output": -1}, "0 <= output"),
        ({"window": 10_000, "soft": 0.0}, "0 < soft"),
        ({"window": 10_000, "soft": 0.95}, "soft < hard"),
        ({"window": 10_000, "hard": 1.01}, "hard <= 1"),
        ({"window": 10_000, "soft": float("nan")}, "soft is a finite number"),
        ({"window": 10_000, "hard": float("nan")}, "hard is a finite number"),
        ({"window": 10_000.5}, "window is a whole number of tokens"),
        ({"window": 1 << 63}, "window is a whole number of tokens, at most"),
        ({"window": 1e300, "output": 1e299}, "window is a whole number of tokens, at most"),
        ({"window": 10_000, "output": 0.5}, "output is a whole number of tokens"),
    ],
    ids=str,
)
def test_limits_that_cannot_work_are_refused_with_the_reason(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Limits(**wrong)


def test_a_number_of_tokens_may_be_written_as_one_likes_and_is_an_integer() -> None:
    limits = Limits(window=1e6, output=8e3)  # type: ignore[arg-type]

    assert limits == Limits(1_000_000, 8_000)
    assert [type(n) for n in (limits.window, limits.output, limits.hard_tokens)] == [int] * 3
    assert Policy(window=1e6).of() == Limits(1_000_000, 8_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [10_000.5, 1 << 63], ids=str)
def test_a_policy_whose_window_is_none_is_refused_when_it_is_made(window: Any) -> None:
    with pytest.raises(ValueError, match="window is a whole number of tokens"):
        Policy(window=window)


def test_a_record_of_limits_that_makes_no_sense_says_nothing() -> None:
    good = LIMITS.as_record("a model")
    assert Limits.from_record(good) == LIMITS
    wrong: list[Any] = [
        {}, [], "many", good | {"window": "many"}, good | {"window": 0}, good | {"soft": 7}, good | {"hard": None},
        good | {"window": 1 << 80}, {name: value for name, value in good.items() if name != "output"},
    ]  # fmt: skip
    assert [Limits.from_record(said) for said in wrong] == [None] * len(wrong)


def test_a_policy_knows_the_limits_of_each_model_and_of_any_other() -> None:
    small = Limits(8_000, 1_000)
    models = {"small": small}
    policy = Policy(window=64_000, models=models)
    models["late"] = small

    assert policy.of("small") is small
    assert policy.of() == policy.of("unknown") == policy.of("late") == Limits(64_000, 8_000)
    assert Policy(window=64_000, limits=small).of("unknown") is small
    assert Policy(window=100).of() == Limits(100, 12)
    assert hash(policy) == hash(Policy(window=64_000))


def test_a_policy_refuses_models_that_have_no_limits() -> None:
    with pytest.raises(ValueError, match="'small'"):
        Policy(models={"small": 8_000})  # type: ignore[dict-item]


@pytest.mark.parametrize("underway", ["nothing", "free", "held"])
@pytest.mark.parametrize("size", [0, 400, 401, 720, 721])
def test_what_is_decided_at_every_limit(size: int, underway: Underway) -> None:
    steps: dict[Underway, list[Step]] = {
        "nothing": ["send", "send", "prepare", "prepare", "wait"],
        "free": ["prepare", "prepare", "prepare", "prepare", "wait"],
        "held": ["send", "send", "send", "send", "wait"],
    }
    place = [0, 400, 401, 720, 721].index(size)

    assert decide(size, LIMITS, CompactionReadiness(underway=underway)) == steps[underway][place]
    assert decide(size, LIMITS, CompactionReadiness(may=False, underway=underway)) == "send"


def test_a_compaction_that_was_not_enough_is_not_followed_by_the_next_one_at_once_f42() -> None:
    assert decide(500, LIMITS, CompactionReadiness(grown=False)) == "send"
    assert decide(800, LIMITS, CompactionReadiness(grown=False)) == "wait"


# ---------------------------------------------------------------------- how large a context is


def told(measured: int, estimated: int, *, segment: int = 1, gauge: SizeEstimator | None = None) -> SizeEstimator:
    return (gauge or SizeEstimator()).told(measured, estimated=estimated, segment=segment, window=10_000)


def test_without_a_figure_the_estimate_is_the_size() -> None:
    assert [SizeEstimator().size(n) for n in (0, 1, 1_000)] == [0, 1, 1_000]


def test_a_figure_corrects_later_estimates_in_proportion() -> None:
    gauge = told(1_500, 1_000)

    assert [gauge.size(n) for n in (1_000, 1_200, 100)] == [1_500, 1_800, 150]


def test_what_is_sent_beside_the_context_does_not_grow_with_it() -> None:
    """Ten times the estimate is tools and instructions, not words that weigh ten times as much."""
    gauge = told(5_000, 500)

    assert gauge.size(1_000) == 6_000
    assert gauge.size(250) == 2_500


def test_a_figure_without_what_was_in_the_cache_does_not_make_a_context_small() -> None:
    assert told(10, 1_000).size(2_000) == 1_000


def test_a_figure_that_stays_while_the_context_falls_is_not_believed_until_it_falls_f42() -> None:
    gauge = told(5_000, 1_000)
    stuck = told(5_000, 300, segment=9, gauge=gauge)
    again = told(5_100, 400, segment=9, gauge=stuck)
    well = told(800, 200, segment=12, gauge=again)

    assert (gauge.size(1_000), stuck.size(300), again.size(400)) == (5_000, 300, 400)
    assert well.size(200) == 800


def test_a_figure_that_falls_by_a_little_is_still_that_of_another_context_f42() -> None:
    stale = SizeEstimator(estimated=500, measured=1_000, segment=2, believed=False)

    def believed(measured: int) -> bool:
        return stale.told(measured, estimated=500, segment=2, window=10_000).believed

    assert [believed(n) for n in (1_000, 980, 951, 949, 500)] == [False, False, False, True, True]


def test_a_figure_that_falls_with_the_context_is_believed() -> None:
    fell = told(1_500, 300, segment=9, gauge=told(5_000, 1_000))

    assert fell.size(300) == 1_500


def test_a_figure_over_the_window_is_none_of_one_call() -> None:
    assert told(10_001, 1_000).size(1_000) == 1_000


def test_an_overflow_says_that_the_window_ends_below_that_estimate() -> None:
    gauge = SizeEstimator().overflowed(2_000, window=10_000)

    assert [gauge.size(n) for n in (2_000, 1_000)] == [10_001, 5_001]
    assert gauge.overflowed(4_000, window=10_000) == gauge, "the lower one holds"
    assert told(900, 1_000, gauge=gauge).size(1_000) == 5_001, "a smaller one that was taken changes nothing"
    assert SizeEstimator().overflowed(0, window=10_000).size(0) == 0


# ---------------------------------------------------------------------- exact counting


def test_a_context_is_counted_in_the_tokens_of_a_vocabulary_by_its_name() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        said = [m["content"] for m in converse(session, 6)]
        picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        session.append({"role": "user", "content": [{"type": "text", "text": "Look: \ud800"}, picture]})
        context = session.context()
        count = counter("o200k_base")

        assert counted(context, None) == context.tokens
        around = context.tokens - sum(map(estimate, said)) - estimate("Look: \ud800")
        assert around == 7 * 4 + 1_000
        assert counted(context, count) == around + sum(map(count, said)) + count("Look: ?")


def test_words_that_look_like_a_marker_of_the_model_are_counted_as_words() -> None:
    count = counter("o200k_base")

    assert count("hello world") == 2
    assert count("<|endoftext|>") > 1


def test_a_vocabulary_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"nonsense.*o200k_base"):
        counter("nonsense")


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def lacking(name: str, *arguments: Any, **others: Any) -> Any:
        if name == "splintr":
            raise ModuleNotFoundError(f"No module named {name!r}")
        return original(name, *arguments, **others)

    monkeypatch.setattr(builtins, "__import__", lacking)

    with pytest.raises(ImportError, match=r"pip install 'onefold\[tokens\]'"):
        counter("o200k_base")
