"""What is measured of masking: the recorded conversations, the driver, and the page."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from benchmarks.masking.__main__ import PAGE
from benchmarks.masking.measures import PLACES, Way, run
from benchmarks.masking.page import _each, page
from benchmarks.masking.talks import Talk, talks

NAMES = [talk.name for talk in talks()]


def of(name: str) -> Talk:
    (talk,) = (t for t in talks() if t.name == name)
    return talk


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_conversation_is_one_that_a_provider_takes(name: str) -> None:
    talk = of(name)

    assert len(NAMES) >= 8
    assert 100 <= talk.calls <= 400
    assert talk.messages[0]["role"] == "system"
    for before, message in pairwise(talk.messages):
        if message["role"] == "tool":
            assert message["tool_call_id"] == before["tool_calls"][0]["id"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_needed_later_stands_in_one_earlier_result_alone(name: str) -> None:
    talk = of(name)
    said = [json.dumps(m, ensure_ascii=False) for m in talk.messages]

    assert talk.needs
    for need in talk.needs:
        line = json.dumps(need.line, ensure_ascii=False)[1:-1]
        assert [at for at, text in enumerate(said[: need.use]) if line in text] == [need.result]
        assert talk.messages[need.use]["role"] == "assistant"
        assert need.line != need.cue


def test_a_run_is_the_same_every_time_and_masks_ask_less_often() -> None:
    on, again, off = (run("feature", Way(32_000, mask), 220) for mask in (True, True, False))

    assert on == again
    assert on.masks > 0 == off.masks
    assert on.summaries < off.summaries
    assert {need.place for need in on.needs} <= {*PLACES}
    assert any(need.place == "number" for need in on.needs)
    assert not any(need.place == "number" for need in off.needs)


def test_the_page_that_is_kept_was_written_by_this_code() -> None:
    pair = [Way(64_000, mask) for mask in (True, False)]
    runs = [run("talk", way) for way in pair]
    kept = PAGE.read_text(encoding="utf-8").splitlines()

    assert _each(runs, pair, [of("talk")])[-1] in kept
    made = page(runs, [of("talk")])
    assert made.count("## Where masking is worse") == 1
    prose = [line for line in made.partition("## In short")[0].splitlines() if line and not any(map(str.isdigit, line))]
    assert [line for line in prose if line not in kept] == []
