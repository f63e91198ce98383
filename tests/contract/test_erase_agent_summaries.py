"""Erasing what came from a message without being a summary of ours: what an agent told of itself, what failed and says
why, what an agent asked. On every kind of store.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onefold import Session, Store
from onefold.journal import agent_compactions
from onefold.journal.journal import Journal
from onefold.model import AGENT_ENDED, QUESTION_ASKED, QUESTION_SETTLED, Json
from tests.conftest import running
from tests.support.erasures import OTHER, SECRET, at, everything, tell, told

CALL = {"sessionUpdate": "tool_call", "toolCallId": "c-1", "title": f"echo {SECRET}", "rawInput": {"text": SECRET}}


def told_by_agent(journal: Journal, session: str = "s", *, key: str | None = None) -> int:
    """An agent compacts by itself, and tells of its summary."""
    agent_compactions.set_compaction_owner(journal, session, "agent")
    return agent_compactions.record_agent_compaction(
        journal, session, source="stream", said=f"they spoke of {SECRET}", key=key
    ).number


def asked(journal: Journal, question: str, call: str) -> tuple[int, int]:
    """A question about a call, and its answer."""
    params: Json = {"toolCall": {"toolCallId": call, "rawInput": {"text": SECRET}}, "options": []}
    ask = journal.draft(
        QUESTION_ASKED, {"question": question, "method": "session/request_permission", "params": params}
    )
    settled = {"question": question, "outcome": "answered", "answer": {"result": {"text": SECRET}}}
    answer = journal.draft(QUESTION_SETTLED, settled)
    return journal.append("s", [ask]).numbers[0], journal.append("s", [answer]).numbers[0]


# ---------------------------------------------------------------------- what an agent told of itself


def test_the_summary_that_an_agent_told_of_goes(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    segment = told_by_agent(journal)

    erased = session.erase(number)

    assert erased.summaries == (segment,)
    assert at(session, segment).body["erased"] is True
    assert SECRET not in told(store)
    assert store.verify().findings == ()


def test_every_summary_that_an_agent_told_of_since_goes(store: Store, journal: Journal, session: Session) -> None:
    """Also of what was undone meanwhile: nobody here knows what the agent has kept in mind."""
    number = tell(session)
    first = told_by_agent(journal)
    session.undo()
    second = told_by_agent(journal)

    erased = session.erase(number)

    assert erased.summaries == (first, second)
    assert SECRET not in told(store)


def test_what_an_agent_told_before_it_was_said_stays(journal: Journal, session: Session) -> None:
    agent_compactions.set_compaction_owner(journal, "s", "agent")
    before = agent_compactions.record_agent_compaction(journal, "s", source="stream", said="nothing yet").number

    erased = session.erase(tell(session))

    assert erased.summaries == ()
    assert at(session, before).body["said"] == "nothing yet"


def test_a_note_that_an_agent_may_have_read_takes_its_summary_along(
    store: Store, journal: Journal, session: Session
) -> None:
    number = session.note("rule", f"the word is {SECRET}")
    segment = told_by_agent(journal)

    assert session.erase(number).summaries == (segment,)
    assert SECRET not in told(store)


def test_an_input_that_nobody_took_leaves_the_summary_alone(journal: Journal, session: Session) -> None:
    number = session.queue_input(OTHER)
    agent_compactions.set_compaction_owner(journal, "s", "agent")
    agent_compactions.record_agent_compaction(journal, "s", source="stream", said="of other things")

    assert session.erase(number).summaries == ()


def test_told_again_under_its_key_it_does_not_come_back(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    segment = told_by_agent(journal, key="act:1")
    session.erase(number)
    before = everything(store)

    again = told_by_agent(journal, key="act:1")

    assert again == segment
    assert everything(store) == before
    assert SECRET not in told(store)


def test_what_an_agent_tells_after_an_erasure_goes_when_it_is_erased_again(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    session.erase(number)
    late = told_by_agent(journal)
    assert SECRET in told(store)

    assert session.erase(number).summaries == (late,)
    assert SECRET not in told(store)


@pytest.mark.parametrize("gone", ["erased", "deleted"])
def test_what_the_agent_of_a_fork_told_goes_too(store: Store, journal: Journal, session: Session, gone: str) -> None:
    number = tell(session)
    fork = session.fork(id="f")
    fork.append(OTHER)
    segment = told_by_agent(journal, "f")
    deeper = fork.fork(id="g")
    in_the_deeper = told_by_agent(journal, "g")

    forks = session.erase(number).forks if gone == "erased" else store.delete("s").forks

    assert forks == ("f", "g")
    assert at(fork, segment).body["erased"] is True
    assert at(deeper, in_the_deeper).body["erased"] is True
    assert SECRET not in told(store)
    assert store.verify().findings == ()


# ---------------------------------------------------------------------- why something failed


def failed_attempt(journal: Journal, session: Session) -> None:
    journal.fail(running(journal, "s"), f"the summary is an error text: {SECRET}", None)


def failed_and_to_be_tried_again(journal: Journal, session: Session) -> None:
    journal.fail(running(journal, "s", attempts=3), f"the summary is an error text: {SECRET}", 5.0)


def failed_turn(journal: Journal, session: Session) -> None:
    with pytest.raises(RuntimeError), session.turn():
        raise RuntimeError(f"the provider says: {SECRET}")


def ended_agent(journal: Journal, session: Session) -> None:
    journal.append("s", [journal.draft(AGENT_ENDED, {"code": 1, "cause": f"it ended with: {SECRET}"})])


@pytest.mark.parametrize("fails", [failed_attempt, failed_and_to_be_tried_again, failed_turn, ended_agent])
def test_a_cause_that_may_quote_it_goes(
    store: Store, journal: Journal, session: Session, fails: Callable[[Journal, Session], None]
) -> None:
    before = len(list(session.read(1)))
    number = tell(session)
    fails(journal, session)
    assert SECRET in repr([r.body for r in session.read(number + 1)])

    session.erase(number)

    assert SECRET not in told(store)
    assert store.verify().findings == ()
    assert len(list(session.read(1))) > before
    again = everything(store)
    session.erase(number)
    assert everything(store) == again


def test_a_cause_from_before_it_was_said_stays(journal: Journal, session: Session) -> None:
    journal.fail(running(journal, "s"), "the disk was full", None)

    session.erase(tell(session))

    assert [c.cause for c in session.compactions()] == ["the disk was full"]


def test_a_fork_loses_the_causes_that_may_quote_its_past(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.fork(id="f").append(OTHER)
    journal.fail(running(journal, "f"), f"the summary is an error text: {SECRET}", None)

    session.erase(number)

    assert SECRET not in told(store)
    assert store.verify().findings == ()


# ---------------------------------------------------------------------- what an agent asked


def test_what_was_asked_about_a_call_and_answered_goes_with_the_call(
    store: Store, journal: Journal, session: Session
) -> None:
    (number,) = session.append(CALL, format="acp").numbers
    question, answer = asked(journal, "q-1", "c-1")
    another = journal.draft(QUESTION_ASKED, {"question": "q-2", "method": "m", "params": {"of": "something else"}})
    (other,) = journal.append("s", [another]).numbers

    erased = session.erase(number)

    assert erased.numbers == (number, question, answer)
    assert at(session, question).body == {"was": QUESTION_ASKED, "question": "q-1"}
    assert at(session, answer).body == {"was": QUESTION_SETTLED, "question": "q-1"}
    assert at(session, other).kind == QUESTION_ASKED
    assert SECRET not in told(store)
    assert store.verify().findings == ()


@pytest.mark.parametrize("which", [0, 1], ids=["the question", "the answer"])
def test_a_question_and_its_answer_are_erased_together(
    store: Store, journal: Journal, session: Session, which: int
) -> None:
    session.append(OTHER)
    both = asked(journal, "q-1", "another")

    erased = session.erase(both[which])

    assert erased.numbers == both
    assert SECRET not in told(store)
    again = everything(store)
    assert session.erase(both[1 - which]).numbers == ()
    assert everything(store) == again


def test_a_message_that_has_a_question_in_it_is_no_question(store: Store, session: Session) -> None:
    (number,) = session.append({"question": ["a", "list"]}, format="json").numbers

    assert session.erase(number).numbers == (number,)
