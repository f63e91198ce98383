"""The doctor and Hermes: no false alarm on what the program made, and the program goes on with what was mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.agents import hermes
from tests.real.conftest import Doctor
from tests.real.hermes import inside
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.stores import count

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by rotation"])
def test_a_store_with_a_thousand_messages_and_ten_compactions_of_its_own_is_healthy(
    tmp_path: Path, model: DirectedModel, outside: Outside, doctor: Doctor, in_place: bool
) -> None:
    agent = hermes(tmp_path, model, outside, in_place=in_place)

    lived = inside(agent, "live", rounds=10, messages=100)

    assert count(agent.store, "messages") >= 1000
    assert len(lived["compactions"]) == 10
    assert len(lived["sessions"]) == (1 if in_place else 11)
    assert doctor(agent.store)["findings"] == []


def test_a_mended_store_is_opened_gone_on_with_and_appended_to(
    tmp_path: Path, model: DirectedModel, outside: Outside, doctor: Doctor
) -> None:
    agent = hermes(tmp_path, model, outside)
    inside(agent, "harm")
    found = {f["id"] for f in doctor(agent.store)["findings"]}
    assert found >= {
        "fork:forked",
        "ended-without-continuation:abandoned",
        "empty-continuation:empty",
        "wrong-count:miscounted",
    }

    mended = doctor(agent.store, "--fix")

    assert mended["refused"] == []
    assert [f["id"] for f in doctor(agent.store)["findings"]] == mended["left"]
    expected = {"forked": "winner", "abandoned": "abandoned", "late": "late", "orphan": "orphan"}
    for session, tip in {**expected, "miscounted": "miscounted"}.items():
        went_on = inside(agent, "continue", session=session)
        assert went_on["answer"] == "I am."
        assert went_on["tip"] == tip
        assert went_on["before"] >= 4
        assert [m["content"] for m in went_on["after"]][-3:] == [
            "Are you there? [[say:I am.]]",
            "I am.",
            "Then I will go on.",
        ]
        assert went_on["counted"] == went_on["before"] + 3
    assert [f["id"] for f in doctor(agent.store)["findings"]] == mended["left"]
