"""Taking the newest message back alone, and clearing a session, on every kind of store: nothing is deleted by it."""

from __future__ import annotations

import pytest

from onefold import Session, Store
from onefold.journal import lineage, undo
from onefold.messages import encode
from onefold.model import Json, Ranges
from tests.conftest import running
from tests.support.helpers import contents
from tests.support.plans import calls, result, user
from verification.operations import talk


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("s")


def popped(session: Session) -> Json:
    taken = undo.pop(session.journal, session.id)
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
    session.journal.commit(running(session.journal), "four messages", numbers[4])

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
    session.journal.commit(running(session.journal), "six messages")
    session.note("rule", "Do not push.")

    undo.clear(session.journal, session.id)

    assert session.context().messages == []
    assert session.state.tokens == 0
    session.append(user("again"))
    assert session.context().messages == [user("again")]
    assert contents([r.body for r in session.read() if r.kind == "message"])[:6] == contents(said)


def test_clearing_what_is_clear_writes_nothing(session: Session) -> None:
    before = session.state

    assert undo.clear(session.journal, session.id).number == before.head
    assert popped(session) is None
    assert session.state == before


# ---------------------------------------------------------------------- again and again


def hidden(session: Session) -> Ranges:
    return session.segments()[-1].hidden


def test_what_is_taken_back_again_and_again_is_one_range_however_often(session: Session) -> None:
    session.append(user("Why?"))
    sizes = set()
    for _ in range(30):
        session.append(talk(1))
        assert popped(session) is not None
        sizes.add(len(encode(next(iter(session.read(session.state.head))).body)))

    assert len(hidden(session)) == 1
    assert max(sizes) - min(sizes) < 20  # digits
    assert session.context().messages == [user("Why?")]


def test_undone_turns_are_one_range_too(session: Session, store: Store) -> None:
    session.append(user("first"))
    for n in range(5):
        with session.turn() as turn:
            turn.append([user(f"try {n}"), {"role": "assistant", "content": "no"}])
        session.context()
        session.undo()

    assert len(hidden(session)) == 1
    assert session.context().messages == [user("first")]
    session.redo()
    assert session.context().messages[1:] == [user("try 4"), {"role": "assistant", "content": "no"}]


@pytest.mark.parametrize("between", ["a message", "a note", "a record of somebody else's"])
def test_what_can_be_seen_between_two_ranges_stays_in_view(session: Session, store: Store, between: str) -> None:
    session.append(user("first"))
    session.append(talk(1))
    popped(session)
    if between == "a message":
        session.append(user("stays"))
    elif between == "a note":
        session.note("decision", "stays")
    else:
        store.journal.append("s", [store.journal.draft("mine", {"stays": True})])
    last = session.state.last
    session.append(talk(1))
    popped(session)

    assert len(hidden(session)) == 2
    assert not any(a <= last <= b for a, b in hidden(session))
    assert next(m["content"] for m in session.context().messages if m["content"] in ("first", "stays")) == "first"
    assert "stays" in str(session.context()) or between == "a record of somebody else's"


def test_a_boundary_that_was_written_in_more_ranges_still_fits(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journals of earlier versions have a range for each pop. What they mean is compared, not how they say it."""
    session.append(user("first"))
    with monkeypatch.context() as earlier:
        earlier.setattr(lineage, "joined", lambda tx, session, hidden: hidden)
        for _ in range(3):
            session.append(talk(1))
            popped(session)
    assert len(hidden(session)) == 3
    said = talk(4)
    numbers = session.append(said).numbers
    session.journal.commit(running(session.journal), "how it began", numbers[2])
    head = session.segments()[-1]

    assert popped(session) == said[3]

    after = session.segments()[-1]
    assert len(after.hidden) == 2
    assert (after.cut, after.summary) == (head.cut, head.summary)
    assert session.context().summary == "how it began"
    session.redo()
    assert hidden(session) == head.hidden
    assert store.verify().healthy
    fork = session.fork(id="f")
    assert fork.context().messages == session.context().messages


def test_the_same_erasure_again_writes_nothing_in_a_journal_of_many_ranges(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(user("first"))
    with monkeypatch.context() as earlier:
        earlier.setattr(lineage, "joined", lambda tx, session, hidden: hidden)
        for _ in range(2):
            number = session.append(talk(1)).numbers[0]
            popped(session)
        session.erase(number)
    last = session.state.last

    session.erase(number)

    assert session.state.last == last
