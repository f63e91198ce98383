"""What happens in a room, as lines for a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from onefold.cli.conversation_view import ConversationView, Line, Question


def update(kind: str, **fields: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"update": {"sessionUpdate": kind, **fields}}}


def says(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return update(kind, content={"type": "text", "text": text})


def told(method: str, **params: Any) -> dict[str, Any]:
    return {"method": f"onefold/{method}", "params": params}


def shown(view: ConversationView, *frames: dict[str, Any]) -> list[str]:
    return [line.text for frame in frames for line in view.frame(frame)]


def test_a_message_is_shown_by_lines_and_its_rest_when_it_is_over() -> None:
    view = ConversationView("me")

    assert shown(view, says("one\ntw"), says("o\nthr")) == ["one", "two"]
    assert shown(view, says("hm", "agent_thought_chunk")) == ["thr"]
    assert shown(view, told("turn_settled", outcome="completed")) == ["· hm"]
    assert shown(view, says("what now?\nsoon", "user_message_chunk"), says("yes")) == ["» what now?", "  soon"]


def test_nothing_that_acts_on_a_terminal_comes_through() -> None:
    view = ConversationView("me")
    evil = "a\x1b[2Jb\x07\r\u202e"
    call = {"toolCallId": "t", "title": evil}
    asks = {"id": 1, "method": "session/request_permission", "params": {"toolCall": call, "options": [
        {"optionId": "x", "name": evil}]}}  # fmt: skip

    lines = shown(
        view,
        says(evil + "\n"),
        update("tool_call", **call),
        asks,
        told("agent_ended", cause=evil),
        told("cancelling", by=evil),
        told("compaction_done", state="failed", cause=evil),
    )

    assert len(lines) == 7
    assert all(line.isprintable() for line in lines)


def test_a_tool_is_told_when_it_begins_and_when_it_ends() -> None:
    view = ConversationView("me")

    assert shown(
        view,
        update("tool_call", toolCallId="t", title="read a file", status="pending"),
        update("tool_call_update", toolCallId="t", status="in_progress"),
        update("tool_call_update", toolCallId="t", status="completed"),
        update("tool_call_update", toolCallId="u", title="run it", status="failed"),
    ) == ["→ read a file", "✓ read a file", "✗ run it"]


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (told("turn_settled", outcome="cancelled", cause="ann stopped it"), "the turn was cancelled: ann stopped it"),
        (told("compaction_started", source="acp"), "── compacting …"),
        (
            told("compaction_done", state="committed", witnesses=["acp", "usage"], confidence="high"),
            "── compacted, seen by acp, usage (high confidence)",
        ),
        (told("compaction_done", state="failed", cause="no model"), "── not compacted: no model"),
        (told("agent_ended", cause="signal 9"), "the agent ended: signal 9"),
        (told("agent_started", how="resume"), "the agent runs again (resume)"),
        (told("question_settled", question="q", by="ann (phone)"), "ann (phone) answered"),
    ],
)
def test_what_the_room_says_is_a_sentence(frame: dict[str, Any], line: str) -> None:
    assert shown(ConversationView("me"), frame) == [line]


def test_what_concerns_nobody_is_not_shown() -> None:
    view = ConversationView("me")

    quiet = [told("head_changed", head=3), told("presence", clients=[]), told("agent_started", how="new")]
    assert shown(view, *quiet, told("question_settled", question="q", by="me (phone)"), update("usage_update")) == []


def test_it_is_known_whether_a_turn_runs_and_what_is_asked() -> None:
    view = ConversationView("me")
    asks = {"id": "q", "method": "session/request_permission", "params": {"options": []}}

    shown(view, told("turn_started", owner="me"), asks)
    assert (view.running, list(view.questions)) == (True, ["q"])
    shown(view, {"method": "$/cancel_request", "params": {"requestId": "q"}}, told("turn_settled", outcome="completed"))
    assert (view.running, list(view.questions)) == (False, [])


@pytest.mark.parametrize(
    ("typed", "chosen"), [("1", "a"), (" 2 ", "b"), ("deny", "b"), ("allow once", "a"), ("allow", None), ("4", None)]
)
def test_an_option_is_chosen_by_its_number_or_the_beginning_of_its_name(typed: str, chosen: str | None) -> None:
    question = Question("q", "go on", (("a", "Allow once"), ("b", "Deny"), ("c", "Allow always")))

    assert question.chosen(typed) == chosen


def test_who_attaches_is_shown_what_was_said_and_how_the_agent_is() -> None:
    view = ConversationView("me")
    history = [{"update": says("hello", "user_message_chunk")["params"]["update"]}]
    agent = {"name": "scripted", "phase": "down", "trouble": "it cannot start"}

    lines = list(view.attached({"sessionId": "s", "history": history, "turn": None, "agent": agent}))

    assert lines == [
        Line("» hello", "bold"),
        Line("session s: the agent scripted is down: it cannot start", "dim"),
    ]
