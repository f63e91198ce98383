"""Whole messages out of an agent's updates: what is glued, what is not, and which frames each comes from."""

from __future__ import annotations

import pytest

from onefold.acp import message_assembler
from onefold.acp.message_assembler import MOST_OPEN, CompleteMessage, MessageAssembler
from onefold.model import Json


def chunk(text: str, message: str | None = None, kind: str = "agent_message_chunk") -> dict[str, Json]:
    said: dict[str, Json] = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return said if message is None else {**said, "messageId": message}


def progress(id: str, **more: Json) -> dict[str, Json]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **more}


def folded(*updates: dict[str, Json]) -> list[CompleteMessage]:
    """Everything that comes of some updates, whose frames are numbered from 1 on."""
    fold = MessageAssembler()
    return [whole for n, update in enumerate(updates, 1) for whole in fold.take(update, n)] + fold.flush()


def texts(whole: list[CompleteMessage]) -> list[Json]:
    return [w.body["content"]["text"] for w in whole]


def test_chunks_of_one_message_are_one_and_keep_its_id() -> None:
    (whole,) = folded(chunk("a", "m1"), chunk("b", "m1"))

    assert whole == CompleteMessage(chunk("ab", "m1"), 1, 2)
    assert "messageId" not in folded(chunk("a"))[0].body


def test_another_id_or_another_kind_begins_another_message() -> None:
    assert texts(folded(chunk("a", "m1"), chunk("b", "m2"), chunk("c"))) == ["a", "b", "c"]
    assert texts(folded(chunk("a"), chunk("b", kind="agent_thought_chunk"))) == ["a", "b"]


def test_a_message_that_is_too_long_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_assembler, "LONGEST", 10)
    picture = {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x" * 10}}

    assert texts(folded(*(chunk("12345") for _ in range(5)))) == ["1234512345", "1234512345", "12345"]
    assert [(w.first, w.last) for w in folded(picture, picture, picture)] == [(1, 1), (2, 2), (3, 3)]


def test_a_message_of_no_words_is_none() -> None:
    assert folded(chunk(""), chunk("")) == []


def test_updates_of_a_call_become_its_one_result_and_leave_standing_what_they_do_not_name() -> None:
    began = {"sessionUpdate": "tool_call", "toolCallId": "t", "status": "pending", "title": "look"}
    updates = (progress("t", content=["half"], rawOutput=1), progress("t", content=None, status="completed"))

    call, result = folded(began, *updates)

    assert call == CompleteMessage(began, 1, 1)
    assert result == CompleteMessage(progress("t", content=["half"], rawOutput=1, status="completed"), 1, 3)


def test_a_call_that_is_not_over_is_told_at_the_end_as_far_as_it_came_and_one_without_news_is_not() -> None:
    quiet = {"sessionUpdate": "tool_call", "toolCallId": "quiet", "status": "pending"}
    over = {"sessionUpdate": "tool_call", "toolCallId": "over", "status": "completed"}

    assert [w.body for w in folded(quiet, over, progress("t", status="in_progress"))] == [
        quiet, over, progress("t", status="in_progress"),
    ]  # fmt: skip


def test_what_is_not_whole_yet_begins_where_its_first_frame_is() -> None:
    assert MessageAssembler().since is None

    fold = MessageAssembler()
    fold.take(chunk("a"), 3)
    fold.take(progress("t", status="in_progress"), 4)
    fold.take(chunk("b"), 5)
    assert fold.since == 3

    said, result = fold.take(progress("t", status="completed"), 6)
    assert (said.first, said.last) == (3, 5)
    assert (result.first, result.last) == (3, 6), "so that no message lies across what is not whole"
    assert fold.since is None


def test_a_call_that_is_over_at_once_is_not_waited_for() -> None:
    fold = MessageAssembler()
    fold.take({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "failed"}, 1)

    assert fold.since is None


def test_what_is_known_of_calls_that_never_end_is_bounded_and_said() -> None:
    fold = MessageAssembler()
    said: list[CompleteMessage] = []
    for n in range(1, 41):
        said += fold.take(progress(f"t{n}", status="in_progress", rawOutput="x" * (1 << 20)), n)
        assert sum(len(held["rawOutput"]) for held, _, _ in fold._calls.values()) <= MOST_OPEN

    said += fold.flush()
    assert [one.body["toolCallId"] for one in said] == [f"t{n}" for n in range(1, 41)]
    assert [(one.first, one.last) for one in said] == [(n, n) for n in range(1, 41)]


def test_calls_that_only_begin_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.message_assembler.MOST_OPEN", 10_000)
    fold = MessageAssembler()
    for n in range(1, 1_001):
        fold.take({"sessionUpdate": "tool_call", "toolCallId": f"t{n}", "status": "pending"}, n)
        assert len(fold._calls) == len(fold._weights) < 200
        assert fold._weight == sum(fold._weights.values())
