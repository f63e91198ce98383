"""Who compacts, on every kind of store: onefold, the agent by itself, or a program that keeps its own transcripts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from onefold import (
    CommitRefused,
    CompactionDisabled,
    CompactionSuperseded,
    OnefoldError,
    Session,
    SessionNotFound,
    Store,
)
from onefold.journal import undo
from onefold.journal.journal import Journal
from onefold.messages import draft
from onefold.model import Claim, Segment
from tests.conftest import CountedIds, StoppedClock, claimed, running, said, who
from tests.support.forks import all_of
from tests.support.helpers import PATIENCE, counted, kinds, said_in
from tests.support.undone_views import fold, looked, nothing_changes


def keeper(session: Session) -> str:
    return session.segments()[-1].keeper


# ---------------------------------------------------------------------- an agent that compacts by itself


def test_a_session_that_its_agent_keeps_is_not_compacted_by_onefold(session: Session) -> None:
    kept = session.set_compaction_owner("agent")

    assert (kept.keeper, kept.source, kept.cut, kept.hidden) == ("agent", "kept", 1, ())
    for trigger in ("manual", "threshold", "limit", "overflow"):
        nothing_changes(
            session,
            lambda t=trigger: session.compact(lambda m: pytest.fail("it is not ours"), trigger=t),  # type: ignore[misc]
            CompactionDisabled,
            "'s' is compacted by its agent; ask the agent, or call set_compaction_owner",
        )


def test_a_new_session_may_be_its_agents_from_the_start(store: Store) -> None:
    session = store.session("s", keeper="agent")
    session.append([said(1), said(2)])

    assert keeper(session) == "agent"
    assert keeper(store.session("s")) == "agent"
    with pytest.raises(CompactionDisabled):
        session.compact()


def test_a_commit_of_what_was_asked_for_is_refused_in_a_session_of_its_agent(
    session: Session, journal: Journal
) -> None:
    session.set_compaction_owner("agent")
    claim = running(journal)

    nothing_changes(
        session, lambda: journal.commit(claim, "short", 5), CommitRefused, "agent compacts it; its compactions are"
    )


def test_giving_a_session_to_its_agent_supersedes_the_compaction_that_is_open(
    session: Session, journal: Journal
) -> None:
    claim = running(journal)

    session.set_compaction_owner("agent")

    assert journal.compaction("s", claim.compaction).state == "superseded"
    nothing_changes(session, lambda: journal.commit(claim, "late", 5), CompactionSuperseded, "superseded already")


def test_a_session_goes_to_its_agent_and_back_and_shows_the_same(session: Session, journal: Journal) -> None:
    fold(journal, "the first four", 6)
    before = looked(session)

    session.set_compaction_owner("agent")
    assert looked(session) == before
    session.set_compaction_owner("onefold")

    assert looked(session) == before
    session.append([said(n) for n in range(7, 13)])
    assert session.compact(lambda m: "again").state == "committed"


def test_saying_again_who_keeps_a_session_writes_nothing(session: Session) -> None:
    session.set_compaction_owner("onefold")
    assert session.state.last == 7
    first = session.set_compaction_owner("agent")

    assert session.set_compaction_owner("agent") == first
    assert session.state.last == first.number


def test_the_keeper_stays_the_same_through_everything_else(session: Session, journal: Journal) -> None:
    session.set_compaction_owner("agent")

    steps: list[Callable[[], object]] = [
        lambda: session.record_agent_compaction("a hook"),
        session.undo,
        session.redo,
        lambda: session.rewind(3),
        lambda: session.erase(2),
        lambda: undo.restore(journal, "s", 1, expect_head=session.head),
    ]
    for step in steps:
        step()
        assert keeper(session) == "agent"
        assert session.state.tokens == said_in(session.context())[1]
    assert keeper(session.fork()) == "onefold", "the agent knows nothing of a fork"


def test_the_keeper_stays_the_same_through_compactions_and_undos_of_onefold(session: Session, journal: Journal) -> None:
    session.set_compaction_owner("agent")
    session.set_compaction_owner("onefold")
    fold(journal, "all six")

    session.undo()

    assert keeper(session) == "onefold"
    undo.restore(journal, "s", session.segments()[1].number, expect_head=session.head)
    assert keeper(session) == "onefold"


# ---------------------------------------------------------------------- what is observed of it


def test_an_observed_compaction_moves_no_cut_and_hides_nothing(session: Session, journal: Journal) -> None:
    fold(journal, "the first four", 6)
    session.set_compaction_owner("agent")
    before, last = looked(session), session.state.last

    seen = session.record_agent_compaction("hook", ["a transcript shrank", "the agent said so"])

    assert looked(session) == before
    assert (seen.source, seen.cut, seen.hidden, seen.keeper) == ("observed", 6, (), "agent")
    assert seen == session.segments()[-1]
    requested, committed, opened = session.read(last + 1)
    assert [requested.kind, committed.kind, opened.kind] == [
        "compaction.requested", "compaction.committed", "segment.opened",
    ]  # fmt: skip
    assert (opened.body["by"], opened.body["witnesses"]) == ("hook", ["a transcript shrank", "the agent said so"])
    assert [r.body for r in session.read() if r.kind == "message"] == [said(n) for n in range(1, 7)]


def test_what_is_observed_settles_the_request_that_is_open_and_counts_once(session: Session, journal: Journal) -> None:
    session.set_compaction_owner("agent")
    asked = journal.request("s", trigger="manual").compaction
    assert asked is not None

    seen = session.record_agent_compaction("hook")

    (only,) = session.compactions()
    assert (only.id, only.state, only.segment) == (asked.id, "committed", seen.number)
    state = session.state
    assert (state.open, state.compactions, state.committed) == (None, 1, 1)


def test_what_nobody_asked_for_counts_once_too(session: Session) -> None:
    session.set_compaction_owner("agent")

    session.record_agent_compaction("hook")
    session.record_agent_compaction("hook")

    assert [(c.trigger, c.state) for c in session.compactions()] == [("observed", "committed")] * 2
    assert (session.state.open, session.state.committed) == (None, 2)
    assert counted(session, "compaction.committed") == 2


def test_what_is_observed_while_somebody_works_on_it_settles_that_and_its_lease(
    session: Session, journal: Journal
) -> None:
    session.set_compaction_owner("agent")
    claim = running(journal)

    seen = session.record_agent_compaction("hook")

    assert session.compaction_holder() is None
    assert journal.backend.read(lambda tx: tx.leases.get("s")) is None
    assert journal.compaction("s", claim.compaction).segment == seen.number
    assert session.state.committed == 1
    late = partial(journal.commit, claim, "late", 5, alias="never published")
    nothing_changes(session, late, CompactionSuperseded, "committed already")


def test_a_session_that_onefold_keeps_has_nothing_to_observe(session: Session) -> None:
    nothing_changes(
        session,
        lambda: session.record_agent_compaction("hook"),
        OnefoldError,
        r"call set_compaction_owner\('agent'\) first",
    )


def test_observed_compactions_are_undone_with_the_conversation_and_nothing_is_lost(session: Session) -> None:
    session.set_compaction_owner("agent")
    before = looked(session)
    session.append([said(7), said(8)])
    session.record_agent_compaction("hook")

    session.undo()

    assert looked(session) == before
    session.redo()
    assert session.context().messages == [said(n) for n in range(1, 9)]


def test_the_keeper_outlives_the_process(durable: str, opened: Callable[..., Store]) -> None:
    first = opened(durable)
    session = first.session("s", keeper="agent")
    session.append([said(1), said(2)])
    session.record_agent_compaction("hook")
    first.close()

    again = opened(durable)

    assert keeper(again.session("s")) == "agent"
    assert again.verify().healthy
    with pytest.raises(CompactionDisabled):
        again.session("s").compact()


# ---------------------------------------------------------------------- a program that keeps its own transcripts


def test_a_host_publishes_its_summary_and_its_new_id_together(store: Store, session: Session, journal: Journal) -> None:
    claim = running(journal)

    moved = journal.commit(claim, "what the host made of it", alias="transcript 2")

    assert (moved.cut, moved.source) == (claim.fence, "compaction")
    assert session.context().messages[0]["content"].count("what the host made of it") == 1
    assert len(session.context().messages) == 1
    assert store.resolve("transcript 2") == store.resolve("s") == "s"
    assert store.session("transcript 2", create=False).context() == session.context()
    assert kinds(session, claim.fence + 1) == ["compaction.committed", "segment.opened", "alias"]


def test_the_ids_of_a_host_are_listed_with_the_newest_last(store: Store, session: Session, journal: Journal) -> None:
    names = ["transcript 2", "a transcript", "transcript 10"]
    for name in names:
        session.append([said(7), said(8)])
        journal.commit(running(journal), f"summary in {name}", alias=name)

    assert session.aliases() == names
    assert {store.resolve(name) for name in ("s", *names)} == {"s"}
    assert session.state.aliases == 3


def test_a_host_that_writes_no_message_here_rotates_its_transcript_again_and_again_f02(
    store: Store, journal: Journal
) -> None:
    session = store.session("transcript 1")

    for n in range(2, 6):
        late = store.session(f"transcript {n - 1}", create=False)
        claim = running(journal, late.id)
        journal.commit(claim, f"what is in transcript {n}", alias=f"transcript {n}")

    assert session.aliases() == [f"transcript {n}" for n in range(2, 6)]
    assert {store.resolve(f"transcript {n}") for n in range(1, 6)} == {"transcript 1"}
    assert session.context().summary == "what is in transcript 5"
    assert [s.id for s in store.sessions()] == ["transcript 1"]


def test_with_an_id_that_is_taken_neither_summary_nor_id_is_published(
    store: Store, session: Session, journal: Journal, ids: CountedIds
) -> None:
    store.session("other").alias("another's name")
    store.session("gone").append(said(1))
    store.delete("gone")
    claim = running(journal)
    before = all_of(journal, "s")

    for taken in ("other", "another's name", "gone"):
        with pytest.raises(CommitRefused, match=f"{taken}.*nothing was written"):
            journal.commit(claim, "short", alias=taken, follow_up=draft(said(9), ids))
        assert all_of(journal, "s") == before

    assert (store.resolve("other"), store.resolve("another's name")) == ("other", "other")
    assert journal.commit(claim, "short", alias="free").cut == claim.fence


def test_an_id_that_cannot_be_shown_is_refused_with_its_summary(session: Session, journal: Journal) -> None:
    claim = running(journal)

    nothing_changes(session, lambda: journal.commit(claim, "short", alias="a\nb"), OnefoldError, "alias")


def test_a_repeated_commit_publishes_nothing_twice(store: Store, session: Session, journal: Journal) -> None:
    claim = running(journal)
    moved = journal.commit(claim, "short", alias="transcript 2")
    before = all_of(journal, "s")

    assert journal.commit(claim, "short", alias="transcript 2") == moved
    assert journal.commit(claim, "short") == moved

    assert all_of(journal, "s") == before


def test_a_host_may_publish_under_an_id_that_is_the_sessions_already(session: Session, journal: Journal) -> None:
    session.alias("mine")

    journal.commit(running(journal), "short", alias="mine")
    session.append([said(7), said(8)])
    journal.commit(running(journal), "shorter", alias="s")

    assert session.aliases() == ["mine"]
    assert session.context().summary == "shorter"


def test_a_host_that_comes_late_publishes_no_id(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    late = running(journal)
    clock.advance(61)
    journal.commit(claimed(journal, name="another"), "first", alias="of the first")
    before = session.state

    with pytest.raises(CompactionSuperseded):
        journal.commit(late, "second", alias="of the second")

    assert session.state == before
    with pytest.raises(SessionNotFound):
        store.resolve("of the second")


def test_of_hosts_that_publish_one_id_at_once_one_does(store: Store, journal: Journal) -> None:
    claims: list[Claim] = []
    for name in ("a", "b", "c"):
        store.session(name).append([said(n) for n in range(1, 5)])
        journal.request(name)
        claim = journal.claim(name, who(name))
        assert isinstance(claim, Claim)
        claims.append(claim)
    start = threading.Barrier(len(claims))
    done: list[Segment] = []
    refused: list[str] = []

    def publish(claim: Claim) -> None:
        start.wait(PATIENCE)
        try:
            done.append(journal.commit(claim, f"of {claim.session}", alias="wanted"))
        except CommitRefused as error:
            refused.append(error.session)

    threads = [threading.Thread(target=publish, args=(c,)) for c in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert (len(done), len(refused)) == (1, 2)
    winner = store.resolve("wanted")
    assert store.session(winner).context().summary == f"of {winner}"
    for name in refused:
        assert store.session(name).context().summary is None
        assert store.session(name).state.open is not None
