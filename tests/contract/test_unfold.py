"""Unfold and refold, on every kind of store: a compaction is taken back, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from onefold import (
    CompactionSuperseded,
    Compactor,
    ContextTooLarge,
    Limits,
    OnefoldError,
    Segment,
    Session,
    StaleHandle,
    Store,
)
from onefold.journal import undo, unfold
from onefold.journal.journal import Journal
from tests.conftest import running, said
from tests.support.helpers import PATIENCE, contents, quick
from tests.support.undone_views import fold, looked, nothing_changes

Opened = Callable[..., Store]


def texts(session: Session) -> list[str]:
    return contents(session.context().messages)


def folded(session: Session, journal: Journal, times: int = 1) -> list[Segment]:
    """So many compactions, each of all but the newest message, with two messages between them."""
    made = []
    for n in range(times):
        last = [r.number for r in session.read() if r.kind == "message"][-1]
        made.append(fold(journal, f"summary {n + 1}", last))
        session.append([said(10 * n + 11), said(10 * n + 12)])
    return made


def test_what_a_compaction_stood_for_is_in_view_again_and_what_was_said_since_stays(
    session: Session, journal: Journal
) -> None:
    before = texts(session)
    (made,) = folded(session, journal)
    opened = session.unfold(made.number)
    assert texts(session) == [*before, said(11)["content"], said(12)["content"]]
    assert (opened.unfolds, opened.cut, session.context().summary) == ((made.number,), 1, None)
    assert opened.tokens_after == session.state.tokens == session.context().tokens


def test_an_older_compaction_is_unfolded_with_all_that_were_made_of_it(session: Session, journal: Journal) -> None:
    one, two, three = folded(session, journal, 3)
    opened = session.unfold(two.number)
    assert opened.unfolds == (two.number, three.number)
    assert (session.context().summary, opened.cut, opened.summary) == ("summary 1", one.cut, one.number)
    assert session.context().numbers[1:] == tuple(
        r.number for r in session.read(one.cut) if r.kind == "message" and r.number >= one.cut
    )


def test_without_a_number_the_newest_compaction_is_unfolded(session: Session, journal: Journal) -> None:
    _, two = folded(session, journal, 2)
    assert session.unfold().unfolds == (two.number,)
    assert session.unfold().cut == 1
    nothing_changes(session, session.unfold, OnefoldError, "no compaction is in force")


def test_what_was_taken_back_since_stays_hidden(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    session.append([said(21), said(22)])
    session.undo()
    hidden = session.segments()[-1].hidden
    opened = session.unfold(made.number)
    assert opened.hidden == hidden
    assert not any("message 21" in text for text in texts(session))
    assert any("message 12" in text for text in texts(session))
    session.redo()
    assert any("message 21" in text for text in texts(session))


def test_a_compaction_that_an_undo_has_crossed_is_not_in_force(session: Session, journal: Journal) -> None:
    made = fold(journal, "all of it")
    session.undo()
    assert session.context().summary is None
    nothing_changes(session, lambda: session.unfold(made.number), OnefoldError, "no compaction is in force")


@pytest.mark.parametrize("what", ["a restored one", "nothing", "an older one"])
def test_what_is_no_compaction_in_force_cannot_be_unfolded(session: Session, journal: Journal, what: str) -> None:
    (made,) = folded(session, journal)
    if what == "an older one":
        session.unfold(made.number)
        again = fold(journal, "another summary")
        nothing_changes(
            session, lambda: session.unfold(made.number), OnefoldError, f"the newest that are: {again.number}"
        )
        return
    number = 1 if what == "a restored one" else 999
    nothing_changes(
        session, lambda: session.unfold(number), OnefoldError, f"segment {number} is not a compaction in force"
    )


def test_an_undo_takes_an_unfolding_back_and_no_message(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    before = looked(session)
    session.unfold(made.number)
    whole = looked(session)
    opened = session.undo()
    assert looked(session) == before
    assert opened.hidden == ()
    assert session.redo().unfolds == (made.number,)
    assert looked(session) == whole
    session.undo()
    assert looked(session) == before


def test_once_something_was_said_an_undo_takes_that_back_and_refold_the_unfolding(
    session: Session, journal: Journal
) -> None:
    one, two = folded(session, journal, 2)
    session.unfold(one.number)
    session.append([said(31), said(32)])
    session.undo()
    assert session.context().summary is None
    assert not any("message 31" in text for text in texts(session))
    session.append([said(41), said(42)])
    opened = session.refold()
    assert (opened.cut, session.context().summary) == (two.cut, "summary 2")
    assert any("message 41" in text for text in texts(session))
    assert not any("message 31" in text for text in texts(session))


def test_what_was_undone_before_is_not_redone_once_something_was_said(session: Session, journal: Journal) -> None:
    folded(session, journal)
    session.append([said(21), said(22)])
    session.undo()
    session.append([said(31), said(32)])
    session.unfold()
    nothing_changes(session, session.redo, OnefoldError, "nothing to redo")


def test_one_of_several_that_were_unfolded_can_be_folded_again(session: Session, journal: Journal) -> None:
    one, two = folded(session, journal, 2)
    session.unfold(one.number)
    assert session.refold(one.number).summary == one.number
    nothing_changes(session, lambda: session.refold(one.number), OnefoldError, "not a compaction that was unfolded")
    assert session.refold(two.number).summary == two.number
    assert [r.body.get("refolds") for r in session.read() if r.kind == "segment.opened"][-2:] == [
        [one.number], [two.number],
    ]  # fmt: skip


def test_a_summary_that_knows_what_was_taken_back_since_is_not_folded_again(session: Session, journal: Journal) -> None:
    made = fold(journal, "all of it")
    session.unfold(made.number)
    session.append([said(11), said(12)])
    session.undo()
    session.undo()
    assert not any("message 5" in text for text in texts(session))
    for number in (None, made.number):
        nothing_changes(session, lambda number=number: session.refold(number), OnefoldError, "compact it")  # type: ignore[misc]


def test_a_summary_of_what_was_erased_since_is_not_folded_again(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    session.unfold(made.number)
    session.erase(3)
    nothing_changes(session, lambda: session.refold(made.number), OnefoldError, "compact it")
    assert not any("message 2" in text for text in texts(session))
    undo.restore(journal, "s", 1, expect_head=session.head)  # a view from before, which does not hide the tombstone
    nothing_changes(session, lambda: session.refold(made.number), OnefoldError, "compact it")


def test_an_unfolding_supersedes_the_compaction_that_is_open(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    claim = running(journal)
    session.unfold(made.number)
    assert journal.compaction("s", claim.compaction).state == "superseded"
    before = session.state
    with pytest.raises(CompactionSuperseded):
        journal.commit(claim, "too late")
    assert session.state == before


def test_an_open_turn_goes_on(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    with session.turn() as turn:
        turn.append(said(21))
        session.unfold(made.number)
        turn.append(said(22))
        session.refold(made.number)
        session.unfold(made.number)
        session.undo()
        session.redo()
        turn.append(said(24))
    assert [r.body["outcome"] for r in session.read() if r.kind == "turn.settled"] == ["settled"]


@pytest.mark.parametrize("trigger", ["threshold", "upkeep", "outside"])
def test_automatic_triggers_rest_and_a_full_context_and_a_person_are_heard(
    session: Session, journal: Journal, trigger: str
) -> None:
    (made,) = folded(session, journal)
    session.unfold(made.number)
    assert "somebody went back" in (journal.request("s", trigger=trigger).cause or "")
    assert journal.request("s", trigger="limit").outcome == "opened"
    journal.cancel("s")
    assert journal.request("s", trigger="manual").outcome == "opened"


def test_a_compaction_after_it_has_everything_that_is_in_view(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    session.unfold(made.number)
    claim = running(journal)
    again = journal.commit(claim, "better", made.cut)
    assert (again.base, again.cut) == (claim.base, made.cut)
    assert session.context().summary == "better"
    assert session.unfold().cut == 1


def test_over_the_hard_limit_it_is_refused_with_the_size_and_nothing_written(
    session: Session, journal: Journal
) -> None:
    (made,) = folded(session, journal)
    small = session.state.tokens
    session.go_by(Limits(small + 60, 50, 0.5, 1.0))
    nothing_changes(
        session, lambda: session.unfold(made.number), ContextTooLarge, r"about \d+ tokens, over the \d+ that"
    )
    session.go_by(Limits(10_000))
    session.unfold(made.number)


def test_pins_and_notes_that_were_made_since_stay(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    session.note("rule", "be brief")
    session.pin(2)
    session.unfold(made.number)
    assert session.pins() == (2,)
    assert [n.text for n in session.context().notes] == ["be brief"]
    assert session.context().numbers.count(2) == 1
    session.undo()
    assert session.context().numbers.count(2) == 1
    assert session.state.tokens == session.context().tokens


def test_a_fork_unfolds_a_compaction_of_its_past_and_its_parent_stays_as_it_is(
    store: Store, session: Session, journal: Journal
) -> None:
    one, two = folded(session, journal, 2)
    was = looked(session)
    child = session.fork(id="f")
    child.append([said(51), said(52)])
    assert child.unfold(one.number).unfolds == (one.number, two.number)
    assert texts(child)[0] == said(1)["content"]
    assert texts(child)[-1] == said(52)["content"]
    assert looked(session) == was
    assert child.refold().summary == two.number
    assert looked(store.session("s")) == was


def test_a_session_that_its_agent_keeps_has_nothing_to_unfold(session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    session.set_compaction_owner("agent")
    for act in (session.unfold, session.refold):
        nothing_changes(session, act, OnefoldError, "compacted by its agent")
    session.set_compaction_owner("onefold")
    assert session.unfold().unfolds == (made.number,)


def test_whoever_saw_another_head_unfolds_nothing(session: Session, journal: Journal) -> None:
    one, two = folded(session, journal, 2)
    for act in (unfold.unfold, unfold.refold):
        stale = partial(act, journal, "s", expect_head=one.number)
        nothing_changes(session, stale, StaleHandle, "look at it again")
    assert unfold.unfold(journal, "s", expect_head=two.number).unfolds == (two.number,)


def test_of_many_that_unfold_the_same_one_does(store: Store, session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    outcomes: list[str] = []
    ready = threading.Barrier(4)

    def act() -> None:
        mine = store.session("s")
        ready.wait(PATIENCE)
        try:
            mine.unfold(made.number)
            outcomes.append("unfolded")
        except OnefoldError:
            outcomes.append("refused")

    threads = [threading.Thread(target=act) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(outcomes) == ["refused", "refused", "refused", "unfolded"]


def test_an_unfolding_and_its_way_back_outlive_the_process(durable: str, opened: Opened) -> None:
    store = opened(durable)
    session = store.session("s")
    session.append([said(n) for n in range(1, 7)])
    (made,) = folded(session, store.journal)
    before = looked(session)
    session.unfold(made.number)
    store.close()
    again = opened(durable)
    assert again.verify().findings == ()
    assert again.session("s").segments()[-1].unfolds == (made.number,)
    again.session("s").undo()
    assert looked(again.session("s")) == before


def test_an_agent_in_mid_turn_goes_on_with_what_was_unfolded(store: Store, session: Session, journal: Journal) -> None:
    (made,) = folded(session, journal)
    compactor = Compactor(store, policy=quick(window=10_000))
    assert compactor.before_turn(session).segment == made.number
    unfolded = session.unfold()
    context = compactor.mid_turn(session)
    assert (context.segment, context.summary) == (unfolded.number, None)
    assert session.state.open is None
