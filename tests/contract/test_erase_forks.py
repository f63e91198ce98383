"""The contract on every kind of store: what is erased is gone from forks too, and comes back by no way."""

from __future__ import annotations

import pytest

from onefold import OnefoldError, Session, Store
from onefold.journal import pins_and_notes, undo
from onefold.journal.journal import Journal
from tests.conftest import said
from tests.support.erasures import OTHER, SECRET, at, compacted, everything, secret, tell, told
from tests.support.helpers import contents, converse
from tests.support.turn_histories import assert_a_provider_takes, chat_call

# ---------------------------------------------------------------------- forks


def test_forks_and_their_forks_lose_it_with_the_summaries_they_made(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    child = session.fork(id="f")
    child.append([OTHER, said(20)])
    grandchild = child.fork(id="g")
    grandchild.append(said(30))
    grown = [compacted(journal, f"{id} knows {SECRET}", session=id).number for id in ("s", "f", "g")]

    erased = session.erase(number)

    assert erased.forks == ("f", "g")
    assert erased.summaries == (grown[0],)
    assert SECRET not in told(store)
    for fork, own in ((child, [OTHER, said(20)]), (grandchild, [OTHER, said(20), said(30)])):
        context = fork.context()
        assert context.summary is None
        assert context.messages == [*(said(n) for n in range(1, 7)), *own]
        assert fork.state.tokens == context.tokens
        assert journal.compaction(fork.id, fork.state.open or "").trigger == "erase"


def test_a_fork_that_inherited_the_summary_has_none(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    compacted(journal, f"they said {SECRET}")
    child = session.fork(id="f")
    assert SECRET in (child.context().summary or "")

    session.erase(number)

    assert child.context().summary is None
    assert SECRET not in told(store)


def test_a_fork_made_of_an_older_view_shows_what_was_not_erased(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    opened = compacted(journal, f"they said {SECRET}", cut=number + 1).number
    session.append(OTHER)
    session.erase(number)

    child = session.fork(id="f", at=opened + 1)

    assert child.context().summary is None
    assert child.context().messages == [*(said(n) for n in range(1, 7)), OTHER]
    assert child.state.tokens == child.context().tokens
    assert SECRET not in told(store)


def test_notes_of_a_fork_that_come_from_it_go_too(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    inherited = pins_and_notes.note(journal, "s", "fact", f"inherited: {SECRET}", source=(number,))
    child = session.fork(id="f")
    pins_and_notes.note(journal, "f", "fact", f"its own: {SECRET}", source=(number,))
    child.note("rule", "be brief")

    erased = session.erase(number)

    assert erased.numbers == (number, inherited)
    assert [n.text for n in child.notes()] == ["be brief"]
    assert child.state.tokens == child.context().tokens
    assert SECRET not in told(store)


def test_a_note_of_a_fork_goes_even_if_the_fork_had_undone_the_message(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    child = session.fork(id="f")
    child.undo()
    pins_and_notes.note(journal, "f", "fact", f"its own: {SECRET}", source=(number,))

    session.erase(number)

    assert child.notes() == ()
    assert SECRET not in told(store)


def test_a_fork_from_before_it_is_not_touched(store: Store, session: Session) -> None:
    early = session.fork(id="f", at=4)
    number = tell(session)
    converse(early, 10)
    before = list(early.read())

    erased = session.erase(number)

    assert erased.forks == ()
    assert list(early.read()) == before
    assert before[number - 1].kind == "message", "it has a message of its own under that number"


def test_a_fork_between_an_input_and_its_message_keeps_its_own_records(store: Store, session: Session) -> None:
    queued = session.queue_input(secret())
    child = session.fork(id="f")
    converse(child, 10)
    session.append(OTHER)
    taken = session.take_input()
    assert taken is not None
    own = list(child.read(child.state.forked_at + 1))

    erased = session.erase(taken.number)

    assert erased.numbers == (queued, taken.number)
    assert list(child.read(child.state.forked_at + 1))[: len(own)] == own
    assert at(child, taken.number).kind == "message"
    assert SECRET not in told(store)


def test_a_fork_between_a_message_and_its_note_keeps_its_own_records(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    child = session.fork(id="f")
    converse(child, 10)
    session.append([OTHER, said(9), said(10)])
    note = pins_and_notes.note(journal, "s", "fact", SECRET, source=(number,))
    assert at(child, note).kind == "message"
    own = list(child.read(child.state.forked_at + 1))

    erased = session.erase(number)

    assert erased.numbers == (number, note)
    assert list(child.read(child.state.forked_at + 1))[: len(own)] == own
    assert SECRET not in told(store)


def test_what_a_fork_says_itself_is_erased_there_alone(store: Store, journal: Journal, session: Session) -> None:
    child = session.fork(id="f")
    number = tell(child)
    grandchild = child.fork(id="g")
    sibling = session.fork(id="h")
    before = list(session.read()), list(sibling.read())

    erased = child.erase(number)

    assert erased.forks == ("g",)
    assert at(grandchild, number).kind == "erased"
    assert (list(session.read()), list(sibling.read())) == before
    assert SECRET not in told(store)


def test_a_review_that_may_not_compact_is_not_asked_to(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    compacted(journal, f"they said {SECRET}")
    review = session.fork("review", id="r")

    session.erase(number)

    assert review.state.open is None
    assert review.context().summary is None
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- going back


def test_undo_and_redo_after_an_erasure_do_not_bring_it_back(store: Store, session: Session) -> None:
    number = tell(session)
    session.append(OTHER)
    session.erase(number)
    seen = [contents(session.context().messages)]

    session.undo()
    seen.append(contents(session.context().messages))
    session.redo()
    seen.append(contents(session.context().messages))

    assert seen[0] == seen[2]
    assert seen[1] == seen[0][:-1]
    assert SECRET not in told(store)


def test_a_redo_does_not_bring_back_what_was_erased_while_it_was_undone(store: Store, session: Session) -> None:
    number = tell(session)
    session.undo()
    before = contents(session.context().messages)

    session.erase(number)
    session.context()

    with pytest.raises(OnefoldError, match="nothing to redo"):
        session.redo()
    assert contents(session.context().messages) == before
    assert SECRET not in told(store)


def test_an_undo_over_a_compaction_does_not_bring_an_erased_summary_back(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    session.append(said(8))
    compacted(journal, f"they said {SECRET}")
    session.append([OTHER, said(10)])
    session.erase(number)
    session.context()

    session.undo()

    assert session.context().summary is None
    assert contents(session.context().messages) == [*(said(n)["content"] for n in range(1, 7)), said(8)["content"]]
    assert SECRET not in told(store)


def test_a_segment_whose_summary_was_erased_cannot_be_restored(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    opened = compacted(journal, f"they said {SECRET}").number
    session.erase(number)
    before = everything(store)

    with pytest.raises(OnefoldError, match="was erased since, and cannot be restored"):
        undo.restore(journal, "s", opened, expect_head=session.head)

    assert everything(store) == before


def test_restoring_the_first_segment_shows_everything_but_what_was_erased(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    compacted(journal, f"they said {SECRET}")
    session.erase(number)

    undo.restore(journal, "s", 1, expect_head=session.head)

    assert contents(session.context().messages) == [said(n)["content"] for n in range(1, 7)]
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


def test_a_rewind_to_the_erased_record_itself_shows_what_was_before_it(store: Store, session: Session) -> None:
    number = tell(session)
    session.append([OTHER, said(10)])
    session.erase(number)
    session.context()

    session.rewind(number)

    assert contents(session.context().messages) == [said(n)["content"] for n in range(1, 7)]
    assert SECRET not in told(store)


def test_an_undo_takes_back_the_message_before_the_erased_one(store: Store, session: Session) -> None:
    number = tell(session)
    session.erase(number)
    session.context()

    session.undo()

    assert contents(session.context().messages) == [said(n)["content"] for n in range(1, 5)]


def test_a_result_erased_while_its_turn_is_open_does_not_hold_forks_back(store: Store, session: Session) -> None:
    """For the parent the call waits as long as its turn is open; for a fork that turn is over, and nobody answers."""
    turn = session.turn()
    turn.append({"role": "assistant", "content": "", "tool_calls": [chat_call("c")]})
    (result,) = turn.append({"role": "tool", "tool_call_id": "c", "content": "found"}).numbers
    child = session.fork(id="f")
    child.append([said(n, "user") for n in (21, 22, 23)])

    session.erase(result)
    grandchild = child.fork(id="g")
    of_the_parent = session.fork(id="h")

    assert contents(grandchild.context().messages)[-3:] == [said(n)["content"] for n in (21, 22, 23)]
    assert_a_provider_takes(grandchild.context())
    assert contents(of_the_parent.context().messages) == [said(n)["content"] for n in range(1, 7)]
    child.context()
    child.undo()
    assert contents(child.context().messages)[-2:] == [said(n)["content"] for n in (21, 22)]
    assert_a_provider_takes(child.context())
    turn.end()


# ---------------------------------------------------------------------- a crash between a session and its forks


class Crash(BaseException):
    """The process dies here."""


def dying(monkeypatch: pytest.MonkeyPatch, journal: Journal, *, after: int) -> None:
    """Lets so many transactions through, and dies at the next one."""
    write, done = journal.backend.write, [0]

    def write_or_die(*given: object, **named: object) -> object:
        if done[0] == after:
            raise Crash
        done[0] += 1
        return write(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(journal.backend, "write", write_or_die)


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("how", ["message", "input"])
def test_an_erasure_that_died_before_its_forks_is_finished_by_saying_it_again(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch, after: int, how: str
) -> None:
    journal = store.journal
    queued = session.queue_input(secret())
    taken = session.take_input()
    assert taken is not None
    number = queued if how == "input" else taken.number
    child = session.fork(id="f")
    child.append(OTHER)
    grandchild = child.fork(id="g")
    for id in ("f", "g"):
        compacted(journal, f"{id} knows {SECRET}", session=id)
        pins_and_notes.note(journal, id, "fact", f"{id} notes {SECRET}", source=(taken.number,))
    with monkeypatch.context() as patch:
        dying(patch, journal, after=after)
        with pytest.raises(Crash):
            session.erase(number)
    assert store.verify().findings == ()
    assert SECRET in told(store)

    erased = session.erase(number)

    assert erased.numbers == ()
    assert erased.forks == ("f", "g")
    assert SECRET not in told(store)
    for fork in (child, grandchild):
        assert fork.context().summary is None
        assert fork.state.tokens == fork.context().tokens


@pytest.mark.parametrize("after", [1, 2])
def test_a_deletion_that_died_before_its_forks_is_finished_by_saying_it_again(
    store: Store, journal: Journal, session: Session, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    tell(session)
    child = session.fork(id="f")
    child.append(OTHER)
    child.fork(id="g").append(said(9))
    for id in ("f", "g"):
        compacted(journal, f"{id} knows {SECRET}", session=id)
    with monkeypatch.context() as patch:
        dying(patch, journal, after=after)
        with pytest.raises(Crash):
            store.delete("s")
    assert store.verify().findings == ()
    assert SECRET in told(store)

    deleted = store.delete("s")

    assert deleted.forks == ("f", "g")
    assert SECRET not in told(store)
    assert store.session("f").context().messages == [OTHER]
    assert store.session("g").context().messages == [OTHER, said(9)]


def test_a_fork_that_is_deleted_meanwhile_holds_nothing_up(
    store: Store, journal: Journal, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = tell(session)
    for id in ("f", "g"):
        session.fork(id=id)
    write = journal.backend.write

    def delete_first(id: str, *given: object, **named: object) -> object:
        if id == "f":
            monkeypatch.undo()
            store.delete("f")
        return write(id, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(journal.backend, "write", delete_first)

    erased = session.erase(number)

    assert erased.forks == ("g",)
    assert SECRET not in told(store)
