"""The model behind the real agents does as the prompts say."""

from __future__ import annotations

import pytest

from onefold.model import Json
from tests.real.model import directives
from tests.support.model_server import Asked

USER = {"role": "user", "content": "run [[tool:read {}]] [[times:2]]"}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "[[say:no]]"}


def asked(*messages: Json) -> Asked:
    return Asked("/v1/chat/completions", {}, {"model": "m", "messages": list(messages)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello [[say:hi there]]", {"say": "hi there"}),
        ("big [[say:big]] [[usage:9]]\n", {"say": "big", "usage": "9"}),
        ("a summary of: big [[say:big]] please", {}),
        ("nothing", {}),
        ("wait [[hold]]", {"hold": ""}),
    ],
)
def test_directives_stand_at_the_end_of_the_newest_prompt(text: str, told: Json) -> None:
    assert directives(asked({"role": "user", "content": "old [[say:old]]"}, {"role": "user", "content": text})) == told


def test_a_tool_is_called_as_often_as_the_prompt_says_and_then_it_is_done() -> None:
    call = {"role": "assistant", "content": ""}

    assert directives(asked(USER))["tool"] == "read {}"
    assert directives(asked(USER, call, RESULT))["tool"] == "read {}"
    assert directives(asked(USER, call, RESULT, call, RESULT)) == {"say": "Done."}
