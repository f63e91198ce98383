"""The contract on every kind of store: calls that a turn leaves open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onefold import Session, Turn, TurnLost
from onefold.journal import turns
from onefold.journal.journal import Journal
from onefold.model import TURN_SETTLED, Draft, Outcome, TurnClaim
from tests.conftest import StoppedClock, said
from tests.support.helpers import counted, kinds
from tests.support.turn_histories import (
    ACP,
    ANTHROPIC,
    CHAT,
    LEASE,
    RESPONSES,
    Tools,
    assert_a_provider_takes,
    chat_call,
    forgotten,
    nothing_written,
    outcomes,
)
from verification.operations import talk

# ---------------------------------------------------------------------- calls that a turn leaves open


@pytest.fixture(params=[CHAT, ANTHROPIC, RESPONSES, ACP], ids=lambda tools: tools.format)
def tools(request: pytest.FixtureRequest) -> Tools:
    found: Tools = request.param
    return found


def _die(session: Session, clock: StoppedClock, claim: TurnClaim) -> None:
    clock.advance(LEASE)
    session.turn().end()


def _end(outcome: Outcome) -> Callable[[Session, StoppedClock, TurnClaim], None]:
    return lambda session, clock, claim: turns.end(session.journal, claim, outcome, "because")


ENDINGS: dict[str, tuple[Outcome, Callable[[Session, StoppedClock, TurnClaim], Any]]] = {
    "failed": ("failed", _end("failed")),
    "cancelled": ("cancelled", _end("cancelled")),
    "stopped": ("cancelled", lambda session, clock, claim: session.stop_turn()),
    "died": ("interrupted", _die),
}


def no_result(outcome: str) -> str:
    how = "failed" if outcome == "failed" else f"was {outcome}"
    return f"(no result: the turn {how} before it came)"


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_the_calls_of_a_turn_that_did_not_settle_get_results_that_say_so(
    session: Session, journal: Journal, clock: StoppedClock, tools: Tools, ending: str
) -> None:
    """F26: a conversation with a call that has no result is refused by providers for ever."""
    outcome, end = ENDINGS[ending]
    claim = forgotten(journal)
    drafts = session.drafts([*tools.calls, tools.result], tools.format, None)
    journal.append("s", drafts, turn=claim)
    last = session.state.last

    end(session, clock, claim)

    expected = tools.none_came("ac", no_result(outcome))
    *results, ended = session.read(last + 1, last + len(expected) + 2)
    assert [r.body for r in results] == expected
    assert {(r.kind, r.format, r.turn) for r in results} == {("message", tools.format, claim.id)}
    assert (ended.kind, ended.body["outcome"], ended.turn) == ("turn.settled", outcome, claim.id)
    context = session.context()
    assert_a_provider_takes(context)
    assert (context.left_out, 0 in context.numbers) == ((), False)


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "interrupted"])
def test_a_turn_with_all_its_results_needs_none(session: Session, tools: Tools, outcome: Outcome) -> None:
    turn = session.turn()
    turn.append(tools.calls, format=tools.format)
    turn.append([{**tools.never(id, "done")} for id in "abc"], format=tools.format)
    last = session.state.last

    turn.end(outcome)

    assert kinds(session, last + 1) == ["turn.settled"]


def test_only_the_calls_of_the_turn_itself_get_results(session: Session, other: Session) -> None:
    free = {"role": "assistant", "content": None, "tool_calls": [chat_call("free")]}
    other.append(free)
    turn = session.turn()
    turn.append(said(7))
    turn.end("failed")

    assert counted(session, "message") == 8
    other.append({"role": "tool", "tool_call_id": "free", "content": "it came"})
    assert_a_provider_takes(session.context())


def test_calls_that_were_given_up_before_are_answered_in_the_context_alone(session: Session) -> None:
    """The model was asked again without the result, and said something else: the next one is the open one."""
    turn = session.turn()
    turn.append({"role": "assistant", "content": None, "tool_calls": [chat_call("given up")]})
    turn.append(said(7))
    turn.append({"role": "assistant", "content": None, "tool_calls": [chat_call("open")]})

    turn.end("failed")

    *_, result, _ = session.read()
    assert result.body == CHAT.never("open", no_result("failed"))
    assert_a_provider_takes(session.context())


def test_an_id_that_comes_again_is_answered_for_the_call_that_is_open(session: Session) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [chat_call("same")]}
    turn = session.turn()
    turn.append([call, CHAT.never("same", "first"), call])

    turn.end("cancelled")

    *_, result, _ = session.read()
    assert result.body == CHAT.never("same", no_result("cancelled"))
    assert_a_provider_takes(session.context())


def test_the_results_and_the_end_are_written_together_or_not_at_all(
    session: Session, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = session.turn()
    turn.append(CHAT.calls)
    draft = journal.draft

    def failing(kind: str, *args: Any, **options: Any) -> Draft:
        if kind == TURN_SETTLED:
            raise RuntimeError("in between")
        return draft(kind, *args, **options)

    with monkeypatch.context() as patch, nothing_written(session):
        patch.setattr(journal, "draft", failing)
        with pytest.raises(RuntimeError, match="in between"):
            turn.end("failed")

    turn.end("failed")
    assert kinds(session, turn.number + 2) == [*["message"] * 3, "turn.settled"]


def test_an_interrupted_turn_is_settled_in_the_transaction_that_begins_the_next(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    dead = forgotten(journal, owner="gone")
    journal.append("s", session.drafts(CHAT.calls, None, None), turn=dead)
    clock.advance(LEASE)

    with session.turn(wait=False) as turn:
        turn.append(said(8))

    assert kinds(session, dead.number) == [
        "turn.started", *["message"] * 4, "turn.settled", "turn.started", "message", "turn.settled",
    ]  # fmt: skip
    ended = next(r for r in session.read(dead.number) if r.kind == "turn.settled")
    assert (ended.turn, ended.body["outcome"]) == (dead.id, "interrupted")
    assert "gone, process 1 on here" in ended.body["cause"]
    assert_a_provider_takes(session.context())


# ---------------------------------------------------------------------- a turn that settled with an open call


@pytest.fixture
def left_open(session: Session, tools: Tools) -> Turn:
    """A turn that settled although two of its three calls have no result, as one that waits for a person does."""
    with session.turn() as turn:
        turn.append(said(7))
        turn.append([*tools.calls, tools.result], format=tools.format)
    return turn


def test_a_settled_turn_leaves_its_open_calls_as_they_are(session: Session, left_open: Turn, tools: Tools) -> None:
    assert kinds(session, left_open.number) == [
        "turn.started", *["message"] * (len(tools.calls) + 2), "turn.settled",
    ]  # fmt: skip


def test_the_context_shows_made_up_results_for_what_a_settled_turn_left_open(
    session: Session, left_open: Turn, tools: Tools
) -> None:
    context = session.context()

    assert_a_provider_takes(context)
    made_up = [m for m, n in zip(context.messages, context.numbers, strict=True) if n == 0]
    assert made_up == tools.none_came("ac", "(no result: the call was interrupted)")


def test_a_result_that_comes_after_all_is_shown_instead(session: Session, left_open: Turn, tools: Tools) -> None:
    late = tools.never("c", "c came late")
    with session.turn() as turn:
        turn.append(said(9))
        turn.append(late, format=tools.format)

    context = session.context()

    assert_a_provider_takes(context)
    assert context.numbers.count(0) == 1
    assert late in context.messages
    assert tools.never("a", "(no result: the call was interrupted)") in context.messages
    assert context.messages.index(late) < context.messages.index(said(9))


def test_while_the_turn_is_open_its_open_calls_are_shown_without_a_result(session: Session, tools: Tools) -> None:
    with session.turn() as turn:
        turn.append(tools.calls, format=tools.format)
        context = session.context()

    assert 0 not in context.numbers
    assert context.messages[-len(tools.calls) :] == tools.calls


def test_a_cut_may_lie_after_what_a_settled_turn_left_open(session: Session, left_open: Turn) -> None:
    session.append(talk(20, start=101))
    assert session.compact(lambda _: "what was said").changed

    assert session.segments()[-1].cut > left_open.number + 3
    assert_a_provider_takes(session.context())


def test_no_cut_lies_after_what_an_open_turn_left_open(session: Session, tools: Tools) -> None:
    with session.turn() as turn:
        calls = turn.append(tools.calls, format=tools.format)
        turn.append([{"role": "user", "content": f"steering {n} " + "word " * 20} for n in range(20)])
        session.compact(lambda _: "what was said")

        assert session.state.cut <= calls.numbers[0]


def test_a_rewind_may_land_after_what_a_settled_turn_left_open(session: Session, left_open: Turn) -> None:
    settled = session.state.last
    session.append([said(9), said(10)])

    session.rewind(settled)

    assert said(7) in session.context().messages
    assert said(9) not in session.context().messages
    assert session.segments()[-1].hidden[0][0] == settled + 1
    assert_a_provider_takes(session.context())


def test_a_rewind_into_an_open_call_of_an_open_turn_lands_before_it_and_cancels_the_turn(
    session: Session, tools: Tools
) -> None:
    turn = session.turn()
    asked = turn.append(said(7)).numbers[0]
    turn.append(tools.calls, format=tools.format)
    last = turn.append(tools.result, format=tools.format).numbers[0]

    session.rewind(last)

    assert kinds(session, last + 1) == ["turn.settled", "segment.opened"]
    assert session.segments()[-1].hidden == ((asked + 1, last + 1),)
    assert outcomes(session) == ["cancelled"]
    assert session.context().messages[-1] == said(7)
    with pytest.raises(TurnLost):
        turn.append(said(8))
