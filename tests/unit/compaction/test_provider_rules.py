"""Whatever happened to a session, its context is one that providers take, in every format: see `provider_rules`."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import onefold
from onefold import OnefoldError, Policy, Store
from onefold.model import Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.histories import EXAMPLES, FORMATS, STEPS, Lives, check


@pytest.mark.parametrize("alone", [False, True], ids=["many formats", "one format"])
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_context_is_one_that_every_provider_takes(alone: bool, data: st.DataObject) -> None:
    formats = [data.draw(st.sampled_from(sorted(FORMATS)))] if alone else sorted(FORMATS)
    with onefold.open("memory:", policy=Policy(tail_tokens=0), clock=StoppedClock(), ids=CountedIds()) as store:
        lives = Lives(store, data, formats)
        for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=12)):
            try:
                getattr(lives, step)()
            except OnefoldError:
                continue  # nothing to undo, a pin of a call that waits: refused, and nothing written
            check(lives.session.context())


PICTURE: Json = {"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo" + "A" * 300}
SHOWN: Json = {
    "type": "function_call_output",
    "call_id": "c1",
    "output": [{"type": "input_image", "image_url": "https://x/y.png"}],
}


@pytest.mark.parametrize("came", [PICTURE, SHOWN], ids=["made by the provider", "given by a tool"])
def test_a_picture_beside_a_call_that_waits_parts_it_from_no_result(store: Store, came: Json) -> None:
    session = store.session("s")
    calls = [{"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"} for id in ("c1", "c2")]
    session.append([{"role": "user", "content": "please"}, *calls, came], format="openai-responses")

    context = session.context()

    check(context)
    assert "[image]" in str(context.to("openai-chat"))
    outputs = [{"type": "function_call_output", "call_id": id, "output": "log"} for id in ("c1", "c2")]
    session.append([o for o in outputs if o["call_id"] != came.get("call_id")], format="openai-responses")
    check(session.context())
    assert "image_url" in str(session.context().to("openai-chat")), "a picture again, once nothing is due"
