"""The contract on every kind of store: inputs that wait for a turn."""

from __future__ import annotations

import threading

import pytest

from onefold import (
    OnefoldError,
    Record,
    Session,
    Store,
)
from onefold.journal.journal import Journal
from onefold.messages import draft
from onefold.model import Draft, Json
from tests.conftest import CountedIds, running, said
from tests.support.helpers import PATIENCE, kinds


def drafted(message: Json) -> Draft:
    return draft(message, CountedIds())


def test_an_input_waits_outside_the_context_until_it_is_taken_once(session: Session) -> None:
    number = session.queue_input(said(7))
    assert (number, session.state.pending) == (8, 1)
    assert said(7) not in session.context().messages

    taken = session.take_input()

    assert taken is not None
    assert (taken.number, taken.kind, taken.body) == (10, "message", said(7))
    assert session.take_input() is None
    assert session.state.pending == 0
    assert session.context().messages[-1] == said(7)
    assert kinds(session, 8) == ["input.queued", "input.taken", "message"]


def test_inputs_are_taken_oldest_first(session: Session) -> None:
    for n in (7, 8, 9):
        session.queue_input(said(n))

    taken = [session.take_input() for _ in range(4)]

    assert [r and r.body for r in taken] == [said(7), said(8), said(9), None]


def test_many_takers_get_each_input_exactly_once(store: Store, session: Session) -> None:
    for n in range(20):
        session.queue_input(said(n))
    start = threading.Barrier(4)
    taken: list[Record] = []

    def take_all() -> None:
        mine = store.session("s")
        start.wait(PATIENCE)
        while (record := mine.take_input()) is not None:
            taken.append(record)

    takers = [threading.Thread(target=take_all) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(PATIENCE)

    assert sorted(r.body["content"] for r in taken) == sorted(said(n)["content"] for n in range(20))
    assert session.state.pending == 0


def test_a_follow_up_lands_with_its_summary_and_is_taken_once(session: Session, journal: Journal) -> None:
    claim = running(journal)

    segment = journal.commit(claim, "short", 5, follow_up=drafted(said(7)))

    assert kinds(session, claim.fence + 1) == ["compaction.committed", "segment.opened", "input.queued"]
    assert segment.number == claim.fence + 2
    taken = session.take_input()
    assert taken is not None
    assert taken.body == said(7)
    assert session.take_input() is None


def test_a_refused_commit_leaves_no_follow_up(session: Session, journal: Journal) -> None:
    claim = running(journal)
    journal.cancel("s")
    before = session.state

    with pytest.raises(OnefoldError):
        journal.commit(claim, "short", 5, follow_up=drafted(said(7)))

    assert session.state == before
    assert session.take_input() is None


def test_a_manual_compaction_makes_no_follow_up(session: Session) -> None:
    assert session.compact(lambda m: "short").changed

    assert session.take_input() is None
