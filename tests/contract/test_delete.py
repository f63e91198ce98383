"""The contract on every kind of store: sessions that were deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onefold import CommitRefused, OnefoldError, Session, SessionNotFound, StaleHandle, Store
from onefold.compaction.summarizer import SummaryInput
from onefold.journal import pins_and_notes, replication, turns, undo
from onefold.journal.journal import Journal
from tests.conftest import running, said, who
from tests.support.erasures import OTHER, SECRET, compacted, everything, noting, secret, tell, told
from tests.support.helpers import converse

# ---------------------------------------------------------------------- deleting


def test_a_deleted_session_is_gone_with_all_it_held(store: Store, journal: Journal, session: Session) -> None:
    tell(session)
    session.note("fact", SECRET)
    session.queue_input(secret())
    compacted(journal, f"they said {SECRET}")
    running(journal)
    session.alias("also-s")
    turns.start(journal, "s", who())
    last = session.state.last
    store.session("other").append(OTHER)

    deleted = store.delete("s")

    assert (deleted.session, deleted.records, deleted.forks) == ("s", last, ())
    assert deleted.wiped is not store.address.startswith("postgresql:")  # whose files `purge` alone reaches
    assert [s.id for s in store.sessions()] == ["other"]
    assert store.compactions(open_only=False) == []
    assert SECRET not in told(store)
    assert store.verify().sessions == 1


def test_a_session_is_deleted_by_any_of_its_ids(store: Store, session: Session) -> None:
    session.alias("also-s")

    deleted = store.delete("also-s")

    assert deleted.session == "s"
    assert list(store.sessions()) == []


WRITES: dict[str, Callable[[Store, Session], object]] = {
    "append": lambda store, s: s.append(OTHER),
    "append with the key of before": lambda store, s: s.append(said(1), key="before"),
    "queue": lambda store, s: s.queue_input(OTHER),
    "take": lambda store, s: s.take_input(),
    "turn": lambda store, s: s.turn(wait=False),
    "stop the turn": lambda store, s: s.stop_turn(),
    "compact": lambda store, s: s.compact(wait=False),
    "request": lambda store, s: store.journal.request("s"),
    "claim": lambda store, s: store.journal.claim("s", who()),
    "cancel": lambda store, s: s.cancel(),
    "pin": lambda store, s: s.pin(2),
    "note": lambda store, s: s.note("rule", "be brief"),
    "undo": lambda store, s: s.undo(),
    "redo": lambda store, s: s.redo(),
    "rewind": lambda store, s: s.rewind(3),
    "restore": lambda store, s: undo.restore(store.journal, "s", 1, expect_head=1),
    "fork": lambda store, s: s.fork(),
    "erase": lambda store, s: s.erase(2),
    "alias": lambda store, s: s.alias("one-more"),
    "keep": lambda store, s: s.set_compaction_owner("agent"),
    "observe": lambda store, s: s.record_agent_compaction("a hook"),
    "open": lambda store, s: store.session("s"),
    "open by another id": lambda store, s: store.session("also-s"),
    "look for": lambda store, s: store.session("s", create=False),
    "look for by another id": lambda store, s: store.session("also-s", create=False),
    "create": lambda store, s: store.journal.create("s"),
    "create by another id": lambda store, s: store.journal.create("also-s"),
    "create for an agent": lambda store, s: store.session("s", keeper="agent"),
    "resolve": lambda store, s: store.resolve("s"),
    "resolve another id": lambda store, s: store.resolve("also-s"),
    "delete by another id": lambda store, s: store.delete("also-s"),
    "context": lambda store, s: s.context(),
    "read": lambda store, s: list(s.read()),
    "follow": lambda store, s: next(s.follow()),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_deleted_session_is_not_written_or_opened_again(store: Store, session: Session, what: str) -> None:
    session.append(said(1), key="before")
    session.alias("also-s")
    store.delete("s")

    with pytest.raises(SessionNotFound, match="was deleted") as refused:
        WRITES[what](store, session)

    assert refused.value.deleted
    assert list(store.sessions()) == []


def test_a_writer_whose_session_is_deleted_under_it_writes_nothing(store: Store, session: Session) -> None:
    turn = session.turn()
    store.delete("s")

    for write in (lambda: turn.append(OTHER), turn.take_input, turn.end):
        with pytest.raises(SessionNotFound, match="was deleted"):
            write()

    assert list(store.sessions()) == []
    turn.abandon("the test is over")


def test_a_late_commit_to_a_deleted_session_writes_nothing(store: Store, journal: Journal, session: Session) -> None:
    claim = running(journal)
    store.delete("s")

    with pytest.raises(SessionNotFound, match="was deleted"):
        journal.commit(claim, "too late")
    with pytest.raises(SessionNotFound, match="was deleted"):
        journal.fail(claim, "too late", None)
    assert journal.renew(claim) is None
    assert journal.claim_next(who()) is None
    assert list(store.sessions()) == []


@pytest.mark.parametrize("id", ["s", "also-s"])
def test_no_other_session_gets_an_id_of_a_deleted_one(
    store: Store, journal: Journal, session: Session, id: str
) -> None:
    session.alias("also-s")
    other = store.session("other")
    converse(other, 8)
    store.delete("s")
    claim = running(journal, "other")
    before = everything(store)

    with pytest.raises(OnefoldError, match=f"'{id}' is of a session that was deleted"):
        other.alias(id)
    with pytest.raises(CommitRefused, match=f"'{id}' is of a session that was deleted"):
        journal.commit(claim, "short", alias=id)
    with pytest.raises(OnefoldError, match=f"'{id}' is, or was, another session's id"):
        other.fork(id=id)

    assert everything(store) == before


def test_a_copy_from_before_does_not_bring_a_deleted_session_back(
    store: Store, journal: Journal, session: Session
) -> None:
    session.alias("also-s")
    tell(session)
    copy = list(session.read())
    other = store.session("other")
    store.delete("s")
    before = everything(store)

    for id in ("s", "also-s"):
        with pytest.raises(SessionNotFound, match="was deleted"):
            replication.ingest(journal, id, copy)
    with pytest.raises(OnefoldError, match="another session's id for an alias"):
        replication.ingest(journal, "new", copy)
    named = next(r for r in copy if r.kind == "alias")._replace(number=other.state.last + 1, body={"alias": "s"})
    with pytest.raises(OnefoldError, match="another session's id for an alias"):
        replication.ingest(journal, "other", [named])

    assert everything(store) == before


def test_a_copy_from_before_does_not_bring_an_erased_message_back(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    copy = list(session.read())
    session.erase(number)
    before = everything(store)

    with pytest.raises(StaleHandle, match=f"record {number} differs from the one in this store"):
        replication.ingest(journal, "s", copy)

    assert everything(store) == before


def test_deleting_again_changes_nothing(store: Store, session: Session) -> None:
    child = session.fork(id="f")
    child.append(OTHER)
    first = store.delete("s")
    before = everything(store)

    again = store.delete("s")

    assert (first.forks, again.forks) == (("f",), ("f",))
    assert (again.session, again.records) == ("s", 0)
    assert everything(store) == before


def test_a_session_that_never_was_is_not_deleted(store: Store) -> None:
    with pytest.raises(SessionNotFound, match="no session 'nobody'") as refused:
        store.delete("nobody")

    assert not refused.value.deleted


def test_forks_live_on_without_the_past_they_had_from_it(store: Store, journal: Journal, session: Session) -> None:
    tell(session)
    pins_and_notes.note(journal, "s", "fact", f"inherited: {SECRET}")
    compacted(journal, f"they said {SECRET}")
    child = session.fork(id="f")
    child.append([OTHER, said(20)])
    grandchild = child.fork(id="g")
    grandchild.append(said(30))
    compacted(journal, f"f knows {SECRET}", session="f")

    deleted = store.delete("s")

    assert deleted.forks == ("f", "g")
    assert SECRET not in told(store)
    assert child.context().messages == [OTHER, said(20)]
    assert grandchild.context().messages == [OTHER, said(20), said(30)]
    for fork in (child, grandchild):
        assert fork.state.tokens == fork.context().tokens
        fork.append(said(40))
        assert fork.context().messages[-1] == said(40)
        assert store.session(fork.id, create=False).id == fork.id


def test_forks_of_a_deleted_session_go_on_compacting(store: Store, journal: Journal, session: Session) -> None:
    tell(session)
    child = session.fork(id="f")
    converse(child, 20)
    store.delete("s")
    seen: list[SummaryInput] = []

    result = child.compact(noting(seen, "in short"))

    assert result.applied
    assert SECRET not in repr(seen)
    assert child.context().summary == "in short"
    child.undo()
    assert SECRET not in told(store)


def test_a_fork_of_a_fork_from_before_that_one_began_keeps_its_own(store: Store, session: Session) -> None:
    """The grandchild left the inherited past early, so its own records have numbers that its parent's past has too."""
    tell(session)
    child = session.fork(id="f")
    child.append(OTHER)
    grandchild = child.fork(id="g", at=3)
    own = converse(grandchild, 10)

    deleted = store.delete("s")

    assert deleted.forks == ("f", "g")
    assert grandchild.context().messages == own
    assert SECRET not in told(store)


def test_deleting_a_fork_touches_nothing_of_its_parent(store: Store, session: Session) -> None:
    child = session.fork(id="f")
    tell(child)
    grandchild = child.fork(id="g")
    grandchild.append(OTHER)
    before = list(session.read())

    deleted = store.delete("f")

    assert deleted.records == 3
    assert deleted.forks == ("g",)
    assert list(session.read()) == before
    assert SECRET not in told(store)
    assert grandchild.context().messages == [OTHER]


def test_what_is_deleted_is_not_there_after_opening_the_store_again(durable: str, opened: Callable[..., Store]) -> None:
    first = opened(durable)
    session = first.session("s")
    tell(session)
    first.delete("s")
    first.close()

    again = opened(durable)

    with pytest.raises(SessionNotFound, match="was deleted"):
        again.session("s")
    assert again.verify().healthy
