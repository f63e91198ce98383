"""Undo, redo and rewind, on every kind of store: they cross compactions, and no summary tells what was taken back."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable

import pytest

from onefold import (
    CommitRefused,
    CompactionSuperseded,
    CompactResult,
    OnefoldError,
    Session,
    StaleHandle,
    Store,
    SummaryInput,
    TurnLost,
)
from onefold.journal import turns, undo
from onefold.journal.journal import Journal
from onefold.model import Json
from tests.conftest import running, said
from tests.support.engines import Counting, blocked
from tests.support.helpers import PATIENCE, contents, counted, said_in
from tests.support.plans import answer, calls, result, system, user
from tests.support.undone_views import fold, looked, nothing_changes
from verification.operations import talk

Opened = Callable[..., Store]


def opened_by(message: Json) -> list[str]:
    return [call["id"] for call in message.get("tool_calls", ())]


def answered_by(messages: list[Json]) -> list[str]:
    return [m["tool_call_id"] for m in messages if "tool_call_id" in m]


# ---------------------------------------------------------------------- what an undo takes back


def test_an_undo_takes_the_newest_question_back_and_all_that_came_of_it(session: Session) -> None:
    undone = session.undo()

    assert session.context().messages == [said(n) for n in range(1, 5)]
    assert (undone.source, undone.hidden, undone.base) == ("restored", ((6, 7),), 1)
    assert [r.body for r in session.read() if r.kind == "message"] == [said(n) for n in range(1, 7)]


def test_an_undo_right_after_a_compaction_gives_back_what_was_before_f75(store: Store, journal: Journal) -> None:
    session = store.session("s")
    session.append([said(1), said(2)])
    before = looked(session)
    session.append([said(3), said(4)])
    fold(journal, "all of it, the last question included")

    session.undo()

    assert looked(session) == before


def test_undoing_twice_goes_back_across_two_compactions_f75(store: Store, journal: Journal) -> None:
    session = store.session("s")
    before = []
    for n in (1, 3, 5):
        before.append(looked(session))
        session.append([said(n), said(n + 1)])
        fold(journal, f"everything up to {n + 1}")

    for expected in reversed(before):
        session.undo()

        assert looked(session) == expected
    nothing_changes(session, session.undo, OnefoldError, "nothing to undo")


def test_a_summary_that_knows_nothing_of_what_was_undone_stays(store: Store, journal: Journal) -> None:
    session = store.session("s")
    session.append([said(n) for n in range(1, 7)])
    fold(journal, "up to the second question", 4)
    newest = fold(journal, "up to the third question", 6)

    undone = session.undo()

    assert (undone.summary, undone.cut) == (newest.number, 6)
    assert session.context().summary == "up to the third question"
    session.undo()
    assert session.context().summary == "up to the second question"
    session.undo()
    assert session.context().messages == []


def test_a_summary_that_knows_what_was_undone_never_comes_back(store: Store, journal: Journal) -> None:
    session = store.session("s")
    session.append([said(1), said(2), said(3), said(4)])
    fold(journal, "knows the secret")
    session.undo()

    steps: list[Callable[[], object]] = [
        lambda: session.append([said(5), said(6)]),
        lambda: fold(journal, "knows one and five"),
        session.undo,
        session.redo,
        lambda: session.append([said(7), said(8)]),
        lambda: fold(journal, "knows one, five and seven"),
        session.undo,
        session.undo,
        session.redo,
        session.undo,
        session.undo,
    ]
    for step in steps:
        step()

        shown = json.dumps(session.context().messages)
        assert "knows the secret" not in shown
        assert "message 3 " not in shown


def test_a_summary_made_after_an_undo_stays_when_something_later_is_undone(session: Session, journal: Journal) -> None:
    session.undo()
    session.append([said(7), said(8)])
    fold(journal, "without the fifth")
    before = looked(session)
    session.append([said(9), said(10)])
    fold(journal, "without the fifth, with the ninth")

    session.undo()

    assert looked(session) == before
    assert session.context().summary == "without the fifth"


def test_redo_brings_back_the_summary_with_the_messages_it_knows(session: Session, journal: Journal) -> None:
    fold(journal, "all six")
    before = looked(session)
    session.undo()

    redone = session.redo()

    assert looked(session) == before
    assert session.context().summary == "all six"
    assert redone.hidden == ()


def test_real_compactions_are_undone_one_question_at_a_time_f75(store: Store) -> None:
    session = store.session("s")

    def list_numbers(material: SummaryInput) -> str:
        known = json.loads(material.previous or "[]")
        return json.dumps([*known, *(r.number for r in material.records)])

    asked: list[int] = []
    folded = 0
    for n in range(1, 21, 2):
        asked.append(session.append(talk(2, start=n, words=60)).numbers[0])
        folded += session.compact(list_numbers).changed
    messages = [r.number for r in session.read() if r.kind == "message"]
    assert folded > 3

    for question in reversed(asked):
        session.undo()

        context = session.context()
        shown = [*json.loads(context.summary or "[]"), *(n for n in context.numbers if n != context.segment)]
        assert shown == [n for n in messages if n < question]
        assert session.state.tokens == context.tokens


def test_an_undo_takes_back_a_whole_turn_with_what_steered_it(session: Session) -> None:
    before = looked(session)
    with session.turn() as turn:
        turn.append([user("look it up"), calls("a")])
        turn.append(user("but be quick"))
        turn.append(result("a"))
        session.queue_input(user("and brief"))
        turn.take_input()
        turn.append(answer())

    session.undo()

    assert looked(session) == before


def test_an_undo_takes_back_one_turn_and_not_the_one_before(session: Session) -> None:
    with session.turn() as turn:
        turn.append([user("first"), answer()])
    before = looked(session)
    with session.turn() as turn:
        turn.append([user("second"), user("more"), answer()])

    session.undo()

    assert looked(session) == before
    session.undo()
    assert session.context().messages == [said(n) for n in range(1, 7)]


def test_a_system_prompt_is_nothing_to_undo(store: Store) -> None:
    session = store.session("s")
    session.append([system(), user(), answer()])

    session.undo()

    assert session.context().messages == [system()]
    nothing_changes(session, session.undo, OnefoldError, "session 's': there is nothing to undo")


def test_an_empty_session_has_nothing_to_undo_or_redo(store: Store) -> None:
    session = store.session("s")

    nothing_changes(session, session.undo, OnefoldError, "nothing to undo")
    nothing_changes(session, session.redo, OnefoldError, "nothing to redo")


# ---------------------------------------------------------------------- where it lands


def test_an_undo_leaves_no_call_without_its_result_f26(store: Store) -> None:
    """The question came while the calls ran: their results are part of what came of it."""
    session = store.session("s")
    session.append([user("first"), calls("a", "b"), result("a"), user("second"), result("b"), answer()])

    session.undo()

    assert session.context().messages == [user("first")]
    assert session.state.tokens == session.context().tokens


def test_an_undo_keeps_parallel_calls_that_have_all_their_results(store: Store) -> None:
    session = store.session("s")
    first = [user("first"), calls("a", "b"), result("b"), result("a"), answer()]
    session.append([*first, user("second"), calls("c"), result("c"), answer()])

    session.undo()

    assert session.context().messages == first


def test_a_session_is_rewound_to_any_record_and_lands_at_a_closed_group(store: Store) -> None:
    session = store.session("s")
    story = [
        system(), user(), calls("a", "b"), result("b"), user("wait"), result("a"), answer(), user(), calls("c"),
        result("c"), answer(),
    ]  # fmt: skip
    session.append(story)
    whole = looked(session)
    lands = {4: 3, 5: 3, 6: 3, 10: 9}  # the calls of record 4 have their last result in 7, that of 10 in 11

    for to in range(12):
        rewound = session.rewind(to)

        context = session.context()
        assert sorted(context.numbers) == [*range(2, lands.get(to, to) + 1)]
        assert context.left_out == ()
        assert {id for m in context.messages for id in opened_by(m)} == {*answered_by(context.messages)}
        assert rewound.hidden[0][0] == lands.get(to, to) + 1
        session.redo()
        assert looked(session) == whole


@pytest.mark.parametrize(("to", "match"), [(-1, "records 1 to 7"), (8, "records 1 to 7"), (7, "nothing to hide")])
def test_a_session_cannot_be_rewound_to_where_it_never_was(session: Session, to: int, match: str) -> None:
    nothing_changes(session, lambda: session.rewind(to), OnefoldError, match)


def test_rewinding_to_what_is_hidden_already_has_nothing_to_hide(session: Session) -> None:
    session.rewind(3)

    nothing_changes(session, lambda: session.rewind(3), OnefoldError, "nothing to hide")
    nothing_changes(session, lambda: session.rewind(6), OnefoldError, "nothing to hide")


def test_rewinding_behind_a_compaction_restores_the_boundary_from_before(session: Session, journal: Journal) -> None:
    first = fold(journal, "the first four", 6)
    session.append([said(7), said(8)])
    fold(journal, "all eight")

    session.rewind(6)

    assert session.context().summary == "the first four"
    assert session.context().messages[1:] == [said(5)]
    assert session.segments()[-1].summary == first.number


# ---------------------------------------------------------------------- redo


def test_undo_undo_redo_redo_is_where_it_began(session: Session, journal: Journal) -> None:
    fold(journal, "the first four", 6)
    sights = [looked(session)]
    for _ in range(3):
        session.undo()
        sights.append(looked(session))

    for expected in reversed(sights[:-1]):
        session.redo()
        assert looked(session) == expected

    nothing_changes(session, session.redo, OnefoldError, "nothing to redo")


def test_one_redo_takes_back_one_of_two_undos_and_an_undo_takes_it_again(session: Session) -> None:
    session.undo()
    once = looked(session)
    session.undo()
    twice = looked(session)

    session.redo()
    assert looked(session) == once
    session.undo()
    assert looked(session) == twice
    session.redo()
    session.redo()

    assert session.context().messages == [said(n) for n in range(1, 7)]


def test_redo_is_refused_once_something_was_said_since(session: Session) -> None:
    session.undo()
    session.append(said(7))

    nothing_changes(session, session.redo, StaleHandle, "messages came after the undo")
    assert session.context().messages == [*(said(n) for n in range(1, 5)), said(7)]


def test_a_compaction_is_nothing_to_redo(session: Session, journal: Journal) -> None:
    session.undo()
    fold(journal, "what is left")

    nothing_changes(session, session.redo, OnefoldError, "nothing to redo")


def test_an_undo_and_its_redo_outlive_the_process(durable: str, opened: Opened) -> None:
    first = opened(durable)
    session = first.session("s")
    session.append([said(n) for n in range(1, 5)])
    before = looked(session)
    fold(first.journal, "all four")
    compacted = looked(session)
    session.append([said(5), said(6)])
    session.undo()
    session.undo()
    first.close()

    again = opened(durable).session("s")

    assert looked(again)[0] == before[0][:2]
    again.redo()
    assert looked(again) == compacted


# ---------------------------------------------------------------------- who may go back, and what it ends


def test_an_undo_is_refused_if_messages_came_that_this_handle_has_not_seen(store: Store, session: Session) -> None:
    session.context()
    store.session("s").append(said(7))

    for back in (session.undo, session.redo, lambda: session.rewind(3)):
        nothing_changes(session, back, StaleHandle, "has not seen, from record 8 on")
    session.context()
    session.undo()

    assert session.context().messages == [said(n) for n in range(1, 7)]


def test_what_a_handle_wrote_itself_it_has_seen(session: Session) -> None:
    session.context()
    session.append([said(7), said(8)])
    session.queue_input(said(9))
    session.take_input()

    session.undo()

    assert session.context().messages == [said(n) for n in range(1, 9)]


def test_what_another_wrote_between_its_own_messages_a_handle_has_not_seen(store: Store, session: Session) -> None:
    session.context()
    session.append(said(7))
    store.session("s").append(said(8))
    session.append(said(9))

    nothing_changes(session, session.undo, StaleHandle, "from record 9 on")


def test_a_compaction_is_nothing_that_a_handle_must_have_seen(store: Store, session: Session) -> None:
    session.context()
    assert store.session("s").compact(lambda m: "by somebody else").changed

    session.undo()

    assert "message 5" not in json.dumps(session.context().messages)


@pytest.mark.parametrize("ending", ["failed", "stopped"])
def test_a_turn_that_left_a_call_open_can_be_undone_by_its_own_handle(session: Session, ending: str) -> None:
    """The results that say so are written when the turn ends, and nobody else wrote them."""
    before = looked(session)
    turn = session.turn()
    turn.append([user("look it up"), calls("a")])
    if ending == "failed":
        turn.end("failed")
    else:
        session.stop_turn()
    assert counted(session, "message") == 9

    session.undo()

    assert looked(session) == before


def test_whoever_looked_at_an_older_state_goes_back_by_nothing(session: Session, journal: Journal) -> None:
    stale: list[Callable[[], object]] = [
        lambda: undo.undo(journal, "s", expect_head=1, seen=5),
        lambda: undo.redo(journal, "s", expect_head=1, seen=5),
        lambda: undo.rewind(journal, "s", 3, expect_head=1, seen=5),
        lambda: undo.restore(journal, "s", 1, expect_head=1, seen=5),
    ]
    for back in stale:
        nothing_changes(session, back, StaleHandle, "2 messages after record 5")
    fold(journal, "short")
    for back in stale:
        nothing_changes(session, back, StaleHandle, "not 1: look at it again")


def test_of_many_that_undo_the_same_state_one_does(session: Session, journal: Journal) -> None:
    start = threading.Barrier(4)
    done: list[str] = []

    def go_back() -> None:
        start.wait(PATIENCE)
        try:
            undo.undo(journal, "s", expect_head=1, seen=7)
        except StaleHandle:
            done.append("moved")
        else:
            done.append("undone")

    threads = [threading.Thread(target=go_back) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert sorted(done) == ["moved", "moved", "moved", "undone"]
    assert session.context().messages == [said(n) for n in range(1, 5)]


@pytest.mark.parametrize("back", ["undo", "redo", "rewind"])
def test_going_back_supersedes_the_compaction_that_is_open(session: Session, journal: Journal, back: str) -> None:
    session.undo()
    claim = running(journal)

    ways: dict[str, Callable[[], object]] = {
        "undo": session.undo, "redo": session.redo, "rewind": lambda: session.rewind(3),
    }  # fmt: skip
    ways[back]()

    assert journal.compaction("s", claim.compaction).state == "superseded"
    assert (session.state.open, session.compaction_holder()) == (None, None)
    nothing_changes(session, lambda: journal.commit(claim, "late", 5), CompactionSuperseded, "superseded already")


def test_whoever_waits_for_a_compaction_is_told_when_an_undo_supersedes_it(store: Store, session: Session) -> None:
    results: list[CompactResult] = []
    with blocked() as slow:
        waiting = threading.Thread(target=lambda: results.append(store.session("s").compact(slow)))
        waiting.start()
        assert slow.begun.wait(PATIENCE)

        session.undo()
        waiting.join(PATIENCE)

    (told,) = results
    assert (told.state, told.changed, told.applied, told.segment) == ("superseded", True, False, session.head)
    assert (session.context().summary, counted(session, "compaction.committed")) == (None, 0)


def test_an_undo_ends_the_turn_that_is_open_and_its_writer_is_told(store: Store, session: Session) -> None:
    before = looked(session)
    turn = session.turn(owner="gateway")
    turn.append([user("look it up"), calls("a")])
    other = store.session("s")

    other.undo()

    assert session.open_turn() is None
    assert looked(other) == before
    (ended,) = [r for r in session.read() if r.kind == "turn.settled"]
    assert (ended.body["outcome"], ended.turn) == ("cancelled", turn.id)
    nothing_changes(session, lambda: turn.append(result("a")), TurnLost, "it is over")


def test_the_calls_of_a_turn_that_was_undone_and_redone_have_a_result_that_says_so(session: Session) -> None:
    turn = session.turn()
    turn.append([user("look it up"), calls("a")])
    session.undo()

    session.redo()

    *_, call, made_up = session.context().messages
    assert (call, made_up["tool_call_id"]) == (calls("a"), "a")
    assert "no result" in made_up["content"]


# ---------------------------------------------------------------------- compactions after an undo


@pytest.mark.parametrize("trigger", ["threshold", "idle"])
def test_after_an_undo_automatic_triggers_are_held_back_with_a_cause(session: Session, trigger: str) -> None:
    session.undo()
    session.append([said(7), said(8)])
    before = session.state

    held = session.compact(lambda m: pytest.fail("nobody asked for it"), trigger=trigger)

    assert (held.state, held.changed, held.id) == ("held back", False, None)
    assert "somebody went back" in (held.cause or "")
    assert session.state == before


@pytest.mark.parametrize("trigger", ["limit", "overflow", "manual"])
def test_after_an_undo_a_full_context_and_a_person_are_heard(session: Session, trigger: str) -> None:
    session.undo()

    done = session.compact(lambda m: "short", trigger=trigger)

    assert (done.state, done.changed) == ("committed", True)
    assert session.state.tokens == session.context().tokens


def test_automatic_triggers_are_heard_again_after_the_next_compaction(session: Session) -> None:
    session.undo()
    session.compact(lambda m: "short")
    session.append([said(n) for n in range(7, 13)])

    assert session.compact(lambda m: "again", trigger="threshold").state == "committed"


def test_a_compaction_after_an_undo_is_given_nothing_that_was_undone(session: Session) -> None:
    session.undo()
    session.append([said(n) for n in range(7, 13)])
    summarizer = Counting()

    session.compact(summarizer)

    cut = session.segments()[-1].cut
    assert [r.number for r in summarizer.given[0].records] == [n for n in (2, 3, 4, 5, *range(9, 15)) if n < cut]
    assert cut > 9
    assert session.context().messages[1:] == [r.body for r in session.read(cut) if r.kind == "message"]


def test_what_was_undone_cannot_be_kept_by_name(session: Session, journal: Journal) -> None:
    session.undo()
    claim = running(journal)

    nothing_changes(
        session,
        lambda: journal.commit(claim, "short", kept=[6]),
        CommitRefused,
        r"\[6\], are messages in view before its cut",
    )
    journal.commit(claim, "short", kept=[4])

    assert contents(session.context().messages)[:-1] == [said(3)["content"]]  # nothing is behind the summary


def test_what_was_erased_shows_after_no_step_back_or_forth(session: Session, journal: Journal) -> None:
    fold(journal, "knows message 3", 6)
    session.erase(4)

    steps: list[Callable[[], object]] = [
        session.undo, session.undo, session.redo, session.redo, lambda: session.append([said(7), said(8)]),
        lambda: fold(journal, "short"), session.undo, lambda: session.rewind(3), session.redo,
    ]  # fmt: skip
    for step in steps:
        step()

        shown = json.dumps(session.context().messages)
        assert "message 3" not in shown
        assert session.state.tokens == session.context().tokens
    with pytest.raises(OnefoldError, match="erased since, and cannot be restored"):
        undo.restore(journal, "s", session.segments()[1].number, expect_head=session.head)


def test_what_was_undone_and_then_erased_is_not_redone(session: Session) -> None:
    session.undo()
    session.erase(6)

    nothing_changes(session, session.redo, OnefoldError, "nothing to redo")
    assert "message 5" not in json.dumps([r.body for r in session.read()])


# ---------------------------------------------------------------------- any story, against a list


class Model:
    """The same session as a list of the numbers in view, with a stack of what can be redone."""

    def __init__(self) -> None:
        self.view: list[int] = []
        self.users: set[int] = set()
        self.redo: list[list[int]] = []

    def before(self, number: int) -> None:
        self.redo.append(self.view)
        self.view = [n for n in self.view if n < number]


def a_step(session: Session, journal: Journal, model: Model, chance: random.Random) -> str:
    asked = [n for n in model.view if n in model.users]
    match chance.choices(["append", "compact", "undo", "redo", "rewind", "pin"], [9, 4, 4, 3, 1, 1])[0]:
        case "append":
            body: Json = talk(1, start=chance.choice([1, 2]))[0]
            (number,) = session.append(body).numbers
            model.view = [*model.view, number]
            model.users |= {number} if body["role"] == "user" else set()
            model.redo = []
            return "append"
        case "compact" if cuts := [n + 1 for n in model.view if n + 1 > session.state.cut]:
            claim = running(journal)
            cut = chance.choice(cuts)
            journal.commit(claim, json.dumps([n for n in model.view if n < cut]), cut)
            model.redo = []
            return "compact"
        case "undo" if asked:
            session.undo()
            model.before(asked[-1])
            return "undo"
        case "redo" if model.redo:
            session.redo()
            model.view = model.redo.pop()
            return "redo"
        case "redo":
            nothing_changes(session, session.redo, OnefoldError, "redo")
            return "no redo"
        case "rewind" if model.view:
            number = chance.choice(model.view)
            session.rewind(number - 1)
            model.before(number)
            return "rewind"
        case "pin" if model.view:
            session.pin(chance.choice(model.view))
            return "pin"
    return "nothing"


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_steps_show_what_a_list_would(store: Store, journal: Journal, seed: int) -> None:
    """A summary names the messages it stands for: with those that are shown, they are those in view, each once."""
    session = store.session("s")
    model, chance = Model(), random.Random(seed)
    done = []
    for _ in range(200):
        done.append(a_step(session, journal, model, chance))

        context = session.context()
        told = json.loads(context.summary or "[]")
        shown = [n for n in context.numbers if n not in (0, context.segment, *context.pinned)]
        assert [*told, *shown] == model.view
        assert {*context.pinned} <= {*told}
        assert session.state.tokens == said_in(context)[1]

    assert {*done} >= {"append", "compact", "undo", "redo", "no redo", "rewind", "pin"}


# ---------------------------------------------------------------------- what a handle has seen


def test_a_handle_that_never_looked_does_not_undo_what_others_said_since_it_was_made(store: Store) -> None:
    one, other = store.session("s"), store.session("s")
    one.append(said(1))
    other.append(said(3))

    with pytest.raises(StaleHandle, match="not seen, from record 3 on"):
        one.undo()

    one.context()
    one.undo()
    assert one.context().messages == [said(1)]


def test_two_handles_that_undo_what_both_saw_undo_it_once(store: Store, session: Session) -> None:
    other = store.session("s")
    before = session.context()
    other.context()
    session.undo()

    with pytest.raises(StaleHandle, match="took something back"):
        other.undo()

    assert other.context().messages == before.messages[:-2]


def test_a_compaction_that_a_handle_has_not_seen_keeps_it_from_no_undo(store: Store, session: Session) -> None:
    session.context()
    assert store.session("s").compact(lambda m: "short").changed

    session.undo()

    assert said(5) not in session.context().messages


def test_an_undo_takes_a_whole_turn_though_somebody_spoke_in_the_middle_of_it(session: Session) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        session.append(said(8, "user"))
        turn.append([said(9), said(10)])
    before = session.context().messages[:6]

    session.undo()

    assert session.context().messages == before


# ---------------------------------------------------------------------- keys of what was taken back


def test_a_repeated_append_says_what_was_taken_back_since(store: Store) -> None:
    """Undone, it is in no context, and its key does not bring it back."""
    session = store.session("s")
    session.append([user("hello"), answer("hi")], key="greeting")
    first = session.append([user("deploy"), answer("deployed")], key="req-7")
    assert session.append([user("deploy"), answer("deployed")], key="req-7").hidden == ()

    session.undo()

    again = session.append([user("deploy"), answer("deployed")], key="req-7")
    assert (again.numbers, again.duplicate, again.hidden) == (first.numbers, True, first.numbers)
    assert session.context().messages == [user("hello"), answer("hi")]
    with session.turn() as turn:
        assert turn.append([user("deploy"), answer("deployed")], key="req-7").hidden == first.numbers
    assert not session.append([user("deploy"), answer("deployed")], key="req-7 again").hidden

    session.rewind(first.numbers[-1])
    session.redo()
    assert session.hidden(*first.numbers) == first.numbers


def test_of_a_repeated_append_only_what_was_taken_back_is_named(store: Store, journal: Journal) -> None:
    session = store.session("s")
    several = [user("one"), answer("two"), user("three")]
    numbers = session.append(several, key="k").numbers

    undo.pop(journal, "s")
    assert session.append(several, key="k").hidden == numbers[2:]
    session.erase(numbers[0])
    assert session.append(several, key="k").hidden == (numbers[0], numbers[2])


def test_what_a_summary_stands_for_is_not_taken_back(session: Session, journal: Journal) -> None:
    done = session.append(said(7), key="k")
    journal.commit(running(journal), "short", done.numbers[0] + 1)

    assert session.append(said(7), key="k") == (done.numbers, True, ())


def test_an_input_counts_as_taken_back_when_its_message_was_or_when_it_was_withdrawn(
    session: Session, journal: Journal
) -> None:
    number = session.queue_input(said(7), key="in-1")
    assert session.hidden(number) == ()
    taken = session.take_input()
    assert taken is not None
    assert session.hidden(number, taken.number) == ()

    session.undo()

    assert session.queue_input(said(7), key="in-1") == number
    assert session.hidden(number, taken.number) == (number, taken.number)
    withdrawn = session.queue_input(said(9), key="in-2")
    assert turns.unqueue_input(journal, "s", withdrawn)
    assert session.hidden(withdrawn) == (withdrawn,)
