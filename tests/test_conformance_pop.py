"""Taking the newest message back alone, and clearing a session, on every kind of store: nothing is deleted by it."""

from __future__ import annotations

import pytest

from onefold import Session, Store
from onefold.journal import history
from onefold.model import Json
from proof.operations import talk
from tests.conftest import running
from tests.helpers import contents
from tests.test_groups_and_plan import calls, result, user


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("s")


def popped(session: Session) -> Json:
    taken = history.pop(session._journal, session.id)
    return None if taken is None else taken.body


def test_messages_are_popped_newest_first_until_none_is_left_and_stay_in_the_journal(session: Session) -> None:
    said = talk(4)
    session.append(said)

    assert [popped(session) for _ in range(5)] == [*said[::-1], None]
    assert session.context().messages == []
    assert [r.body for r in session.read() if r.kind == "message"] == said


def test_a_result_is_popped_without_its_call_and_can_be_given_anew(session: Session) -> None:
    asked, called, told = user("Look."), calls("a"), result("a")
    session.append([asked, called, told])

    assert popped(session) == told
    assert session.context().messages == [asked, called]

    session.append(result("a", "another"))
    assert session.context().messages == [asked, called, result("a", "another")]


def test_pops_cross_a_compaction_and_no_summary_tells_what_was_popped(session: Session) -> None:
    said = talk(6)
    numbers = session.append(said).numbers
    session._journal.commit(running(session._journal), "four messages", numbers[4])

    assert [popped(session), popped(session)] == [said[5], said[4]]
    assert session.context().summary == "four messages"

    assert popped(session) == said[3]
    assert session.context().summary is None
    assert session.context().messages == said[:3]


def test_a_pop_looks_past_a_long_stretch_without_messages(session: Session) -> None:
    session.append(user("first"))
    for n in range(600):
        session.alias(f"alias-{n}")

    assert popped(session) == user("first")


def test_what_was_popped_comes_back_by_redo(session: Session) -> None:
    said = talk(3)
    session.append(said)
    popped(session)
    session.context()

    session.redo()

    assert session.context().messages == said


def test_a_cleared_session_begins_anew_and_its_journal_keeps_everything(session: Session) -> None:
    said = talk(6)
    session.append(said)
    session._journal.commit(running(session._journal), "six messages")
    session.note("rule", "Do not push.")

    history.clear(session._journal, session.id)

    assert session.context().messages == []
    assert session.state.tokens == 0
    session.append(user("again"))
    assert session.context().messages == [user("again")]
    assert contents([r.body for r in session.read() if r.kind == "message"])[:6] == contents(said)


def test_clearing_what_is_clear_writes_nothing(session: Session) -> None:
    before = session.state

    assert history.clear(session._journal, session.id).number == before.head
    assert popped(session) is None
    assert session.state == before
