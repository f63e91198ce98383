"""Other ids that a session is known by: on every kind of store, an old id finds the session it became."""

from __future__ import annotations

import threading

import pytest

import onefold
from onefold import OnefoldError, Session, SessionNotFound, Store
from tests.support.helpers import kinds


def ids(store: Store) -> list[str]:
    return sorted(s.id for s in store.sessions())


def test_an_old_id_finds_the_session_and_makes_no_other_f02(store: Store, session: Session) -> None:
    session.alias("as-the-agent-calls-it")

    found = store.session("as-the-agent-calls-it")
    found.append({"role": "user", "content": "still here"})

    assert found.id == session.id
    assert store.resolve("as-the-agent-calls-it") == store.resolve(session.id) == session.id
    assert session.context().messages[-1] == {"role": "user", "content": "still here"}
    assert ids(store) == [session.id]


def test_a_caller_with_the_old_id_and_an_old_segment_compacts_nothing_twice_f02(store: Store, session: Session) -> None:
    session.alias("before")
    late = store.session("before", create=False)
    late.context()
    session.compact(lambda m: "the one summary")

    answer = late.compact(lambda m: pytest.fail("it was compacted already"))

    assert answer.joined
    assert len(session.segments()) == 2


def test_the_same_alias_again_writes_nothing(session: Session) -> None:
    session.alias("other")
    last = session.state.last

    session.alias("other")
    session.alias(session.id)

    assert session.state.last == last
    assert kinds(session).count("alias") == 1


def test_two_sessions_cannot_own_one_alias(store: Store, session: Session) -> None:
    other = store.session("another")
    session.alias("name")
    before = other.state

    with pytest.raises(OnefoldError, match=f"'name' is session '{session.id}' already.*Nothing was written"):
        other.alias("name")
    with pytest.raises(OnefoldError, match="'another' is session 'another' already"):
        session.alias("another")

    assert other.state == before
    assert store.resolve("name") == session.id


def test_threads_that_race_for_one_alias_have_one_winner(store: Store) -> None:
    sessions = [store.session(f"s{n}") for n in range(4)]
    start = threading.Barrier(len(sessions))
    won: list[str] = []

    def claim(session: Session) -> None:
        start.wait(30)
        try:
            session.alias("wanted")
        except OnefoldError:
            return
        won.append(session.id)

    threads = [threading.Thread(target=claim, args=(s,)) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert won == [store.resolve("wanted")]


def test_an_id_that_nobody_has_is_not_found(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.resolve("nobody")


@pytest.mark.parametrize("name", ["", "x" * 513, "a\nb"])
def test_an_alias_that_cannot_be_shown_is_refused(session: Session, name: str) -> None:
    with pytest.raises(OnefoldError, match="alias"):
        session.alias(name)


def test_aliases_outlive_the_process_and_are_healed_from_the_journal(tmp_path: object) -> None:
    path = f"{tmp_path}/agent.db"
    with onefold.open(path) as store:
        store.session("s").alias("old")
        store.journal.backend.write("s", lambda tx: tx.run("drop_aliases", "s"))  # type: ignore[attr-defined]

    with onefold.open(path) as store:
        found = store.verify()
        mended = store.verify(fix=True)

        assert [f.what for f in found.findings] == ["alias old"]
        assert all(f.repaired for f in mended.findings)
        assert store.verify().healthy
        assert store.session("old", create=False).id == "s"
