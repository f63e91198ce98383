"""Erasing and deleting: on every kind of store, what a person removes is gone from everything that came from it, in
forks as well, and nothing that comes late brings it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace

import pytest

from onefold import CommitRefused, Moved, OnefoldError, Record, Session, SessionNotFound, Store, Superseded
from onefold.compaction.run import gather
from onefold.compaction.summarizers import Material
from onefold.journal import copying, history, marks, privacy, turns
from onefold.journal.contract import Journal
from onefold.model import Segment
from proof.operations import talk
from tests.conftest import claimed, running, said, who
from tests.helpers import PATIENCE, contents, converse, kinds

SECRET = "zebra-4711"
OTHER = {"role": "user", "content": "quite another thing"}


def secret(role: str = "user") -> dict[str, str]:
    return {"role": role, "content": f"my password is {SECRET}"}


def tell(session: Session, role: str = "user", *, key: str | None = None) -> int:
    """Says the secret; the number of the record that holds it."""
    return session.append(secret(role), key=key).numbers[0]


def compacted(journal: Journal, text: str, *, cut: int | None = None, session: str = "s") -> Segment:
    return journal.commit(running(journal, session), text, cut)


def noting(seen: list[Material], text: str) -> Callable[[Material], str]:
    """A summarizer that keeps what it was given to read."""

    def summarize(material: Material) -> str:
        seen.append(material)
        return text

    return summarize


def told(store: Store) -> str:
    """Everything that the sessions of a store say, of themselves and of their past, in whatever way they are asked."""
    parts: list[object] = []
    for state in store.sessions():
        session = store.session(state.id)
        parts += [astuple(record) for record in session.read(1)]
        parts += [session.context(s.number).messages for s in session.segments()]
        parts += [session.context().messages, session.notes(), session.compactions()]
    return repr(parts)


def at(session: Session, number: int) -> Record:
    (found,) = session.read(number, number + 1)
    return found


def everything(store: Store) -> dict[str, list[Record]]:
    """Every record of every session, for comparing."""
    return {s.id: list(store.session(s.id).read(1)) for s in sorted(store.sessions(), key=lambda s: s.id)}


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
    assert (erased.session, erased.numbers, erased.forks, erased.wiped) == ("s", (number,), (), True)
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

    erased = privacy.erase(journal, "s", [number], actor="ana")

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
    history.restore(journal, "s", 1, expect_head=opened.number)
    restored = history.restore(journal, "s", opened.number, expect_head=session.head)
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
    note = marks.note(journal, "s", "fact", f"the password is {SECRET}", source=(number,))
    converse(session, 6, start=20)
    compacted(journal, f"they said {SECRET}", cut=note + 3)
    session.erase(number)
    seen: list[Material] = []

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
    session.keep("agent")
    session.observe("a hook")

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
    assert SECRET in repr(gather(journal, claim))

    erased = session.erase(number)

    before = everything(store)
    with pytest.raises(Superseded, match="nothing was written"):
        journal.commit(claim, f"they said {SECRET}")
    assert everything(store) == before
    assert journal.compaction("s", claim.compaction).state == "superseded"
    assert session.holder() is None
    assert erased.compaction is not None, "whoever asked for a summary still wants one"
    assert SECRET not in told(store)


def test_the_next_claim_reads_nothing_of_what_was_erased(journal: Journal, session: Session) -> None:
    number = tell(session)
    running(journal)
    session.erase(number)

    work = gather(journal, claimed(journal))

    assert SECRET not in repr(work)
    assert [r.number for r in work.messages] == [2, 3, 4, 5, 6, 7]


def test_a_late_commit_in_a_fork_is_refused_as_well(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    session.fork(id="f")
    claim = running(journal, "f")
    assert SECRET in repr(gather(journal, claim))

    session.erase(number)

    with pytest.raises(Superseded, match="nothing was written"):
        journal.commit(claim, f"they said {SECRET}")
    assert SECRET not in told(store)


# ---------------------------------------------------------------------- notes


def test_a_note_goes_with_the_message_it_comes_from(store: Store, journal: Journal, session: Session) -> None:
    number = tell(session)
    from_it = marks.note(journal, "s", "fact", f"the password is {SECRET}", key="password", source=(3, number))
    marks.note(journal, "s", "fact", "they like tea", source=(3,))
    session.note("rule", "be brief")

    erased = session.erase(number)

    assert erased.numbers == (number, from_it)
    assert [n.text for n in session.notes()] == ["they like tea", "be brief"]
    assert at(session, from_it).body == {"was": "note"}
    assert session.state.tokens == session.context().tokens
    assert SECRET not in told(store)


def test_a_note_is_erased_alone(store: Store, session: Session) -> None:
    number = session.note("fact", f"the password is {SECRET}")
    before = contents(session.context().messages)[1:]

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
    queued = session.queue(secret())
    session.append(OTHER)
    taken = session.take()
    assert taken is not None

    erased = session.erase(queued if which == "input" else taken.number)

    assert erased.numbers == (queued, taken.number)
    assert at(session, queued).body == {"was": "input.queued"}
    assert at(session, taken.number).body == {"was": "message"}
    assert SECRET not in told(store)


def test_an_erased_input_is_taken_by_nobody(store: Store, session: Session) -> None:
    session.queue({"role": "user", "content": "first"})
    number = session.queue(secret())
    session.queue({"role": "user", "content": "third"})

    session.erase(number)

    assert session.state.pending == 2
    taken = [session.take(), session.take(), session.take()]
    assert [t and t.body["content"] for t in taken] == ["first", "third", None]
    assert session.state.pending == 0
    assert SECRET not in told(store)


def test_a_follow_up_that_waits_is_erased_like_any_input(store: Store, session: Session) -> None:
    converse(session, 20)
    session.compact(lambda m: "short", follow_up=secret())
    (number,) = [r.number for r in session.read() if r.kind == "input.queued"]

    session.erase(number)

    assert session.take() is None
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
    number = session.queue(secret(), key="k")
    session.erase(number)

    assert session.queue(secret(), key="k") == number
    assert session.take() is None
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
    compacted(session._journal, f"they said {SECRET}")
    return number


def _noted(session: Session) -> int:
    number = tell(session)
    marks.note(session._journal, "s", "fact", SECRET, source=(number,))
    return number


def _waiting(session: Session) -> int:
    return session.queue(secret())


def _taken(session: Session) -> int:
    session.queue(secret())
    taken = session.take()
    assert taken is not None
    return taken.number


def _undone(session: Session) -> int:
    number = tell(session)
    session.undo()
    return number


def _forked(session: Session) -> int:
    number = tell(session)
    session.fork(id="f").append(OTHER)
    compacted(session._journal, f"they said {SECRET}", session="f")
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
        with pytest.raises(OnefoldError, match=r"messages, inputs and notes can be erased"):
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
        privacy.erase(journal, "nobody", [1])

    assert not refused.value.deleted
    assert list(store.sessions()) == []


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
    inherited = marks.note(journal, "s", "fact", f"inherited: {SECRET}", source=(number,))
    child = session.fork(id="f")
    marks.note(journal, "f", "fact", f"its own: {SECRET}", source=(number,))
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
    marks.note(journal, "f", "fact", f"its own: {SECRET}", source=(number,))

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
    queued = session.queue(secret())
    child = session.fork(id="f")
    converse(child, 10)
    session.append(OTHER)
    taken = session.take()
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
    note = marks.note(journal, "s", "fact", SECRET, source=(number,))
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
        history.restore(journal, "s", opened, expect_head=session.head)

    assert everything(store) == before


def test_restoring_the_first_segment_shows_everything_but_what_was_erased(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    compacted(journal, f"they said {SECRET}")
    session.erase(number)

    history.restore(journal, "s", 1, expect_head=session.head)

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
    queued = session.queue(secret())
    taken = session.take()
    assert taken is not None
    number = queued if how == "input" else taken.number
    child = session.fork(id="f")
    child.append(OTHER)
    grandchild = child.fork(id="g")
    for id in ("f", "g"):
        compacted(journal, f"{id} knows {SECRET}", session=id)
        marks.note(journal, id, "fact", f"{id} notes {SECRET}", source=(taken.number,))
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


# ---------------------------------------------------------------------- deleting


def test_a_deleted_session_is_gone_with_all_it_held(store: Store, journal: Journal, session: Session) -> None:
    tell(session)
    session.note("fact", SECRET)
    session.queue(secret())
    compacted(journal, f"they said {SECRET}")
    running(journal)
    session.alias("also-s")
    turns.start(journal, "s", who())
    last = session.state.last
    store.session("other").append(OTHER)

    deleted = store.delete("s")

    assert (deleted.session, deleted.records, deleted.forks, deleted.wiped) == ("s", last, (), True)
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
    "queue": lambda store, s: s.queue(OTHER),
    "take": lambda store, s: s.take(),
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
    "restore": lambda store, s: history.restore(store.journal, "s", 1, expect_head=1),
    "fork": lambda store, s: s.fork(),
    "erase": lambda store, s: s.erase(2),
    "alias": lambda store, s: s.alias("one-more"),
    "keep": lambda store, s: s.keep("agent"),
    "observe": lambda store, s: s.observe("a hook"),
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

    for write in (lambda: turn.append(OTHER), turn.take, turn.end):
        with pytest.raises(SessionNotFound, match="was deleted"):
            write()

    assert list(store.sessions()) == []
    turn.let_go("the test is over")


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
            copying.take_in(journal, id, copy)
    with pytest.raises(OnefoldError, match="another session's id for an alias"):
        copying.take_in(journal, "new", copy)
    named = replace(next(r for r in copy if r.kind == "alias"), number=other.state.last + 1, body={"alias": "s"})
    with pytest.raises(OnefoldError, match="another session's id for an alias"):
        copying.take_in(journal, "other", [named])

    assert everything(store) == before


def test_a_copy_from_before_does_not_bring_an_erased_message_back(
    store: Store, journal: Journal, session: Session
) -> None:
    number = tell(session)
    copy = list(session.read())
    session.erase(number)
    before = everything(store)

    with pytest.raises(Moved, match=f"record {number} is another one here"):
        copying.take_in(journal, "s", copy)

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
    marks.note(journal, "s", "fact", f"inherited: {SECRET}")
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
    seen: list[Material] = []

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
