"""Erasing and deleting: on every kind of store, what a person removes is gone from everything that came from it, in
forks as well, and nothing that comes late brings it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from onefold import CompactionSuperseded, OnefoldError, Session, SessionNotFound, Store
from onefold.compaction.material import load_material
from onefold.compaction.summarizer import SummaryInput
from onefold.journal import erasure, pins_and_notes, undo
from onefold.journal.journal import Journal
from tests.conftest import claimed, running, said
from tests.support.erasures import OTHER, SECRET, at, compacted, everything, noting, secret, tell, told
from tests.support.helpers import PATIENCE, contents, converse, kinds
from verification.operations import talk

# ---------------------------------------------------------------------- the record itself


def test_an_erased_message_is_a_tombstone_with_its_number(store: Store, session: Session) -> None:
    number = tell(session)
    session.append(OTHER)
    before = at(session, number)

    erased = session.erase(number)

    stone = at(session, number)
    assert (stone.kind, stone.body) == ("erased", {"was": "message"})
    assert (stone.number, stone.id, stone.at) == (before.number, before.id, before.at)
    assert (stone.format, stone.header) == (None, None)
    assert (erased.session, erased.numbers, erased.forks) == ("s", (number,), ())
    assert erased.wiped is not store.address.startswith("postgresql:")  # whose files `purge` alone reaches
    assert SECRET not in told(store)
    assert [r.number for r in session.read(1)] == list(range(1, session.state.last + 1))


def test_everything_else_stays_in_the_context(session: Session) -> None:
    before = contents(session.context().messages)
    number = tell(session)
    session.append(OTHER)

    session.erase(number)

    context = session.context()
    assert contents(context.messages) == [*before, OTHER["content"]]
    assert session.state.tokens == context.tokens
    assert session.state.messages == 8


def test_the_journal_says_what_was_erased_and_who_did_it(journal: Journal, session: Session) -> None:
    number = tell(session)
    opened = compacted(journal, f"a summary that knows {SECRET}").number

    erased = erasure.erase(journal, "s", [number], actor="ana")

    (said_so,) = [r for r in session.read(opened + 1) if r.kind == "erased"]
    assert said_so.body == {"numbers": [number], "summaries": [opened]}
    assert said_so.actor == "ana"
    assert erased.summaries == (opened,)


def test_a_follower_sees_that_something_was_erased(session: Session) -> None:
    number = tell(session)
    follower = session.follow(number, idle=PATIENCE)

    session.erase(number)

    seen = next(follower)
    assert (seen.kind, seen.body["numbers"]) == ("erased", [number])


def test_a_message_in_an_open_turn_is_erased_and_the_turn_goes_on(store: Store, session: Session) -> None:
    with session.turn() as turn:
        (number,) = turn.append(secret()).numbers

        session.erase(number)
        turn.append(OTHER)

    assert SECRET not in told(store)
    assert session.context().messages[-1] == OTHER
    assert kinds(session).count("turn.settled") == 1


def test_a_result_without_its_erased_call_is_left_out_of_the_context(store: Store, session: Session) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps({"for": SECRET})}}
    asked, found = session.append(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing there"},
        ]
    ).numbers
    session.append(OTHER)

    session.erase(asked)

    context = session.context()
    assert context.left_out == (found,)
    assert asked not in context.numbers
    assert SECRET not in told(store)


def test_a_pinned_message_that_is_erased_is_no_longer_pinned(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.pin(number)
    compacted(journal, "a summary", cut=number + 1)

    session.erase(number)

    assert session.pins() == ()
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


def test_a_message_kept_by_name_is_erased_with_its_place(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    journal.commit(running(journal), "a summary", kept=[2, number])

    session.erase(number)

    assert number not in session.segments()[-1].kept
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- summaries


def test_the_summary_in_force_goes_with_what_it_covers(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    opened = compacted(journal, f"they said {SECRET}").number

    erased = session.erase(number)

    assert erased.summaries == (opened,)
    assert session.context().summary is None
    assert contents(session.context().messages) == [said(n)["content"] for n in range(1, 7)]
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


def test_every_older_summary_that_covers_it_goes_too(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    opened = []
    for n in range(3):
        session.append(talk(2, start=10 * n))
        opened.append(compacted(journal, f"summary {n} that knows {SECRET}").number)

    erased = session.erase(number)

    assert erased.summaries == tuple(opened)
    assert SECRET not in told(store)


def test_the_newest_summary_that_knows_nothing_of_it_is_in_force_again(
    store: Store, journal: Journal, session: Session
) -> None:
    early = compacted(journal, "what was said early", cut=5)
    number = tell(session)
    late = compacted(journal, f"all of it, and {SECRET}")

    erased = session.erase(number)

    context = session.context()
    assert erased.summaries == (late.number,)
    assert context.summary == "what was said early"
    assert session.state.cut == early.cut
    assert contents(context.messages)[1:] == [said(n)["content"] for n in range(4, 7)]
    assert SECRET not in told(store)


def test_a_summary_from_before_it_was_said_stays(store: Store, journal: Journal, session: Session) -> None:
    compacted(journal, "what was said before")
    number = tell(session)

    erased = session.erase(number)

    assert (erased.summaries, erased.compaction) == ((), None)
    assert session.context().summary == "what was said before"
    assert session.state.open is None


def test_a_restored_segment_that_points_at_the_summary_has_none(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    opened = compacted(journal, f"they said {SECRET}")
    undo.restore(journal, "s", 1, expect_head=opened.number)
    restored = undo.restore(journal, "s", opened.number, expect_head=session.head)
    assert SECRET in (session.context().summary or "")

    session.erase(number)

    assert session.context().summary is None
    assert SECRET not in str(session.context(restored.number).summary)
    assert SECRET not in told(store)


def test_a_summary_made_while_it_was_undone_stays(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.undo()
    session.append(OTHER)
    opened = compacted(journal, "a summary of what is in view")

    erased = session.erase(number)

    assert erased.summaries == ()
    assert session.context().summary == "a summary of what is in view"
    assert session.segments()[-1].summary == opened.number
    assert SECRET not in told(store)


def test_a_new_summary_is_asked_for_when_one_was_lost(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    compacted(journal, f"they said {SECRET}")

    erased = session.erase(number)

    (asked,) = store.compactions()
    assert (asked.id, asked.trigger, asked.state) == (erased.compaction, "erase", "requested")
    assert asked.base == session.head


def test_no_summary_is_asked_for_when_none_was_lost(store: Store, session: Session) -> None:
    number = tell(session)

    erased = session.erase(number)

    assert erased.compaction is None
    assert store.compactions(open_only=False) == []


def test_what_is_summarised_anew_holds_nothing_of_it(store: Store, journal: Journal, session: Session) -> None:
    converse(session, 12)
    number = tell(session)
    note = pins_and_notes.note(journal, "s", "fact", f"the password is {SECRET}", source=(number,))
    converse(session, 6, start=20)
    compacted(journal, f"they said {SECRET}", cut=note + 3)
    session.erase(number)
    seen: list[SummaryInput] = []

    result = session.compact(noting(seen, "what remains, in short"))

    assert result.applied
    assert SECRET not in repr(seen)
    assert number not in [r.number for r in seen[0].records]
    assert session.context().summary == "what remains, in short"
    assert {c.trigger for c in session.compactions()} == {"manual", "erase"}
    assert SECRET not in told(store)


def test_a_session_that_its_agent_compacts_is_not_asked_for_a_summary(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    opened = compacted(journal, f"they said {SECRET}")
    session.set_compaction_owner("agent")
    session.record_agent_compaction("a hook")

    erased = session.erase(number)

    assert (erased.summaries, erased.compaction) == ((opened.number,), None)
    assert session.state.open is None
    assert session.segments()[-1].keeper == "agent"
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- a compaction that is under way


def test_a_late_commit_of_what_was_erased_is_refused_with_nothing_written(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    claim = running(journal)
    assert SECRET in repr(load_material(journal, claim))

    erased = session.erase(number)

    before = everything(store)
    with pytest.raises(CompactionSuperseded, match="nothing was written"):
        journal.commit(claim, f"they said {SECRET}")
    assert everything(store) == before
    assert journal.compaction("s", claim.compaction).state == "superseded"
    assert session.compaction_holder() is None
    assert erased.compaction is not None, "whoever asked for a summary still wants one"
    assert SECRET not in told(store)


def test_the_next_claim_reads_nothing_of_what_was_erased(journal: Journal, session: Session) -> None:
    number = tell(session)
    running(journal)
    session.erase(number)

    work = load_material(journal, claimed(journal))

    assert SECRET not in repr(work)
    assert [r.number for r in work.messages] == [2, 3, 4, 5, 6, 7]


def test_a_late_commit_in_a_fork_is_refused_as_well(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.fork(id="f")
    claim = running(journal, "f")
    assert SECRET in repr(load_material(journal, claim))

    session.erase(number)

    with pytest.raises(CompactionSuperseded, match="nothing was written"):
        journal.commit(claim, f"they said {SECRET}")
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- notes


def test_a_note_goes_with_the_message_it_comes_from(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    from_it = pins_and_notes.note(journal, "s", "fact", f"the password is {SECRET}", key="password", source=(3, number))
    pins_and_notes.note(journal, "s", "fact", "they like tea", source=(3,))
    session.note("rule", "be brief")

    erased = session.erase(number)

    assert erased.numbers == (number, from_it)
    assert [n.text for n in session.notes()] == ["they like tea", "be brief"]
    assert at(session, from_it).body == {"was": "note"}
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


def test_a_note_is_erased_alone(store: Store, session: Session) -> None:
    number = session.note("fact", f"the password is {SECRET}")
    before = contents(session.context().messages)[:-1]

    erased = session.erase(number)

    assert erased.numbers == (number,)
    assert session.notes() == ()
    assert contents(session.context().messages) == before
    assert SECRET not in told(store)


def test_a_note_that_came_late_goes_when_it_is_erased_again(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.erase(number)
    late = session.append(OTHER).numbers[0] + 1
    journal.append("s", [journal.draft("note", {"kind": "fact", "text": SECRET, "key": None, "tokens": 0,
                                                "source": [number]})])  # fmt: skip

    erased = session.erase(number)

    assert erased.numbers == (late,)
    assert session.notes() == ()
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- inputs


@pytest.mark.parametrize("which", ["input", "message"])
def test_an_input_and_the_message_it_became_are_erased_together(store: Store, session: Session, which: str) -> None:
    queued = session.queue_input(secret())
    session.append(OTHER)
    taken = session.take_input()
    assert taken is not None

    erased = session.erase(queued if which == "input" else taken.number)

    assert erased.numbers == (queued, taken.number)
    assert at(session, queued).body == {"was": "input.queued"}
    assert at(session, taken.number).body == {"was": "message"}
    assert SECRET not in told(store)


def test_an_erased_input_is_taken_by_nobody(store: Store, session: Session) -> None:
    session.queue_input({"role": "user", "content": "first"})
    number = session.queue_input(secret())
    session.queue_input({"role": "user", "content": "third"})

    session.erase(number)

    assert session.state.pending == 2
    taken = [session.take_input(), session.take_input(), session.take_input()]
    assert [t and t.body["content"] for t in taken] == ["first", "third", None]
    assert session.state.pending == 0
    assert SECRET not in told(store)


def test_a_follow_up_that_waits_is_erased_like_any_input(store: Store, session: Session) -> None:
    converse(session, 20)
    session.compact(lambda m: "short", follow_up=secret())
    (number,) = [r.number for r in session.read() if r.kind == "input.queued"]

    session.erase(number)

    assert session.take_input() is None
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- keys


@pytest.mark.parametrize("again", [secret(), OTHER, [secret(), OTHER]])
def test_the_key_of_an_erased_message_stays_taken_and_revives_nothing(
    store: Store, session: Session, again: object
) -> None:
    number = tell(session, key="k")
    session.erase(number)
    before = everything(store)

    answer = session.append(again, key="k")

    assert answer.duplicate
    assert answer.numbers == (number,)
    assert everything(store) == before


def test_of_many_messages_with_one_key_the_others_stay(store: Store, session: Session) -> None:
    one, two, three = session.append([OTHER, secret(), said(9)], key="k").numbers
    session.erase(two)

    answer = session.append([OTHER, secret(), said(9)], key="k")

    assert answer.duplicate
    assert answer.numbers == (one, two, three)
    assert session.context().messages[-2:] == [OTHER, said(9)]
    assert SECRET not in told(store)


def test_the_key_of_an_erased_input_stays_taken(store: Store, session: Session) -> None:
    number = session.queue_input(secret(), key="k")
    session.erase(number)

    assert session.queue_input(secret(), key="k") == number
    assert session.take_input() is None
    assert SECRET not in told(store)


def test_not_even_a_digest_of_it_stays(journal: Journal, session: Session) -> None:
    number = tell(session, key="k")

    session.erase(number)

    use = journal.backend.read(lambda tx: tx.key("s", "k"))
    assert use is not None
    assert use.digest == "erased"


# ---------------------------------------------------------------------- once more, and what cannot be erased


def _plain(session: Session) -> int:
    return tell(session)


def _summarised(session: Session) -> int:
    number = tell(session)
    compacted(session.journal, f"they said {SECRET}")
    return number


def _noted(session: Session) -> int:
    number = tell(session)
    pins_and_notes.note(session.journal, "s", "fact", SECRET, source=(number,))
    return number


def _waiting(session: Session) -> int:
    return session.queue_input(secret())


def _taken(session: Session) -> int:
    session.queue_input(secret())
    taken = session.take_input()
    assert taken is not None
    return taken.number


def _undone(session: Session) -> int:
    number = tell(session)
    session.undo()
    return number


def _forked(session: Session) -> int:
    number = tell(session)
    session.fork(id="f").append(OTHER)
    compacted(session.journal, f"they said {SECRET}", session="f")
    return number


@pytest.mark.parametrize("how", [_plain, _summarised, _noted, _waiting, _taken, _undone, _forked])
def test_erasing_again_changes_nothing(store: Store, session: Session, how: Callable[[Session], int]) -> None:
    number = how(session)
    first = session.erase(number)
    before = everything(store)

    again = session.erase(number)

    assert number in first.numbers
    assert (again.numbers, again.summaries, again.compaction) == ((), (), None)
    assert again.forks == first.forks
    assert everything(store) == before


def test_a_record_that_nobody_said_is_not_erased(store: Store, journal: Journal, session: Session) -> None:
    session.alias("also-s")
    number = tell(session)
    session.pin(number)
    compacted(journal, "short")
    session.erase(number)
    nothing_said = [r.number for r in session.read() if r.kind not in ("message", "note", "input.queued")]
    nothing_said.remove(number)
    before = everything(store)

    for other in nothing_said:
        with pytest.raises(OnefoldError, match=r"messages, inputs, notes and questions can be erased"):
            session.erase(other)

    assert len(nothing_said) >= 8
    assert everything(store) == before


@pytest.mark.parametrize("number", [0, -3, 8, 1 << 40])
def test_a_number_that_does_not_exist_is_not_erased(store: Store, session: Session, number: int) -> None:
    before = everything(store)

    with pytest.raises(OnefoldError, match=f"'s' has no record {number}; nothing was erased"):
        session.erase(number)

    assert everything(store) == before


def test_a_fork_does_not_erase_its_parents_records_and_says_whose_they_are(store: Store, session: Session) -> None:
    number = tell(session)
    child = session.fork(id="f")
    grandchild = child.fork(id="g")
    before = everything(store)

    for fork in (child, grandchild):
        with pytest.raises(
            OnefoldError, match=f"{number} of session '{fork.id}' belongs to session 's'; erase it there"
        ):
            fork.erase(number)

    assert everything(store) == before


def test_nothing_is_erased_in_a_session_that_is_not_there(store: Store, journal: Journal) -> None:
    with pytest.raises(SessionNotFound) as refused:
        erasure.erase(journal, "nobody", [1])

    assert not refused.value.deleted
    assert list(store.sessions()) == []
