"""Pins and notes, on every kind of store: what stands in every context, word for word, and who said so."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from onefold import Context, InvalidMessage, MessageTooLarge, OnefoldError, Session, Store, SummaryInput
from onefold.journal.journal import Journal
from tests.conftest import NOON, running, said
from tests.support.engines import Counting
from tests.support.helpers import contents, counted, said_in
from tests.support.plans import answer, calls, result, system, user
from tests.support.undone_views import fold, looked, nothing_changes
from verification.operations import talk

LAW = "Do NOT push to main. Ever.\n\n  (Not even “just once”.)"


def notes_of(context: Context) -> str:
    """The one message in front that tells the notes."""
    (told,) = [
        m["content"]
        for n, m in zip(context.numbers, context.messages, strict=True)
        if n == 0 and m["content"].startswith("[Notes")
    ]
    return str(told)


def noted_in(context: Context) -> list[str]:
    """Notes that stand at their own places."""
    return [m["content"] for m in context.messages if m["content"].startswith("[A note")]


def weighed(session: Session) -> Context:
    """The context, which has to be as large as the session thinks it is."""
    context = session.context()
    assert session.state.tokens == said_in(context)[1]
    return context


class Forgetful(Counting):
    """A summarizer that forgets everything."""

    def __init__(self) -> None:
        super().__init__(lambda m: f"Something was said, for the {self.calls}. time.")


# ---------------------------------------------------------------------- pins


def test_a_rule_that_was_pinned_and_noted_survives_five_compactions_word_for_word_f27(store: Store) -> None:
    session = store.session("s")
    (rule,) = session.append(user(LAW)).numbers
    session.append(answer("Understood."))
    session.pin(rule)
    session.note("rule", LAW, key="push")
    summarizer = Forgetful()

    for n in range(5):
        session.append(talk(6, start=1 + 6 * n, words=40))
        assert session.compact(summarizer).state == "committed"

        context = weighed(session)
        assert context.messages[0] == user(LAW)
        assert context.pinned == (rule,)
        assert [(note.kind, note.text) for note in context.notes] == [("rule", LAW)]
        assert LAW.splitlines()[0] in notes_of(context)
        assert "push" not in (context.summary or "")
    assert summarizer.calls == 5


def test_without_a_pin_such_a_rule_is_forgotten(store: Store) -> None:
    """What the test above would show if pins did nothing."""
    session = store.session("s")
    session.append([user(LAW), answer("Understood."), *talk(6, words=40)])

    session.compact(Forgetful())

    assert "push" not in json.dumps(session.context().messages)


def test_a_pinned_message_is_summarised_like_the_rest(session: Session) -> None:
    session.pin(2)
    summarizer = Counting()

    session.compact(summarizer)

    assert said(1) in summarizer.given[0].messages
    assert weighed(session).messages[0] == said(1)


def test_letting_a_pin_go_loses_nothing_since_the_summary_knows_it(session: Session) -> None:
    def list_numbers(material: SummaryInput) -> str:
        return json.dumps([*json.loads(material.previous or "[]"), *(r.number for r in material.records)])

    session.pin(2)
    session.compact(list_numbers)
    session.append([said(n) for n in range(7, 13)])
    session.compact(list_numbers)

    assert session.unpin(2) == (2,)

    assert session.pins() == ()
    assert weighed(session).pinned == (2,), "what stands in front stays until the next segment"
    session.append([said(n) for n in range(13, 19)])
    session.compact(list_numbers)
    context = weighed(session)
    assert context.pinned == ()
    assert said(1) not in context.messages
    messages = [r.number for r in session.read() if r.kind == "message"]
    assert [*json.loads(context.summary or ""), *context.numbers[1:]] == messages


def test_a_pin_says_who_set_it_and_who_let_it_go(session: Session) -> None:
    session.pin(2, actor="alice")
    session.unpin(2, actor="bob")

    marks = [(r.kind, r.body["numbers"], r.actor) for r in session.read(8)]
    assert marks == [("pin.added", [2], "alice"), ("pin.removed", [2], "bob")]


def test_pinning_what_is_pinned_writes_nothing_and_neither_does_letting_go_what_is_not(session: Session) -> None:
    session.pin(2)
    before = session.state

    assert session.pin(2) == (2,)
    assert session.unpin(3) == ()
    assert session.state == before
    session.unpin(2)
    assert session.unpin(2) == ()

    assert counted(session, "pin.added") == counted(session, "pin.removed") == 1


@pytest.mark.parametrize("number", [3, 4, 5])
def test_a_pinned_call_brings_its_results_and_a_result_its_call(store: Store, journal: Journal, number: int) -> None:
    session = store.session("s")
    session.append([user(), calls("a", "b"), result("b"), result("a"), answer(), user(), answer()])

    assert session.pin(number) == (3, 4, 5)
    fold(journal, "short", 7)

    context = weighed(session)
    assert context.messages[1:4] == [calls("a", "b"), result("b"), result("a")]
    assert context.pinned == (3, 4, 5)
    assert session.unpin(5) == (3, 4, 5)
    fold(journal, "shorter")
    assert weighed(session).pinned == ()


def test_a_pinned_group_stands_together_although_something_was_said_in_between(store: Store, journal: Journal) -> None:
    session = store.session("s")
    session.append([user("wait"), calls("a"), user("hm"), result("a"), answer(), user(), answer()])
    session.pin(4)

    assert session.pin(3) == (3, 5)
    fold(journal, "short", 7)

    assert weighed(session).messages[1:4] == [calls("a"), result("a"), user("hm")]


def test_a_call_that_waits_for_its_result_is_not_pinned(store: Store) -> None:
    session = store.session("s")
    session.append([user(), calls("a", "b"), result("a")])

    for number in (3, 4):
        nothing_changes(session, lambda n=number: session.pin(n), OnefoldError, "no result yet; pin it when it has")  # type: ignore[misc]
    session.append(result("b"))

    assert session.pin(3) == (3, 4, 5)


def test_a_pinned_call_that_was_given_up_has_a_result_that_says_so(store: Store, journal: Journal) -> None:
    """The answer that gave it up is cut away, but no provider takes the call alone."""
    session = store.session("s")
    session.append([user(), calls("a"), user("never mind"), answer(), user(), answer()])

    assert session.pin(3) == (3,)
    fold(journal, "short", 6)

    _, call, made_up, *_ = session.context().messages
    assert (call, made_up["tool_call_id"]) == (calls("a"), "a")
    assert session.context().numbers[:3] == (0, 3, 0)


def test_a_pin_can_be_let_go_while_its_answer_goes_on(store: Store) -> None:
    session = store.session("s")
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I will look."}]}
    session.append([user(), {"type": "reasoning", "id": "r", "summary": []}, text])
    assert session.pin(4) == (3, 4)
    session.append({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"})

    assert session.unpin(4) == (3, 4)

    assert session.pins() == ()


def test_a_pin_in_the_tail_is_shown_once_and_costs_nothing(session: Session, journal: Journal) -> None:
    before = looked(session)

    session.pin(6)

    assert looked(session) == before
    fold(journal, "short", 6)
    context = weighed(session)
    assert context.numbers.count(6) == 1
    assert context.pinned == ()
    fold(journal, "shorter")
    assert weighed(session).pinned == (6,)


def test_a_pin_that_is_kept_by_name_as_well_is_shown_once(session: Session, journal: Journal) -> None:
    session.pin(2)

    journal.commit(running(journal), "short", 6, kept=[2, 4])

    context = weighed(session)
    assert context.numbers == (context.segment, 2, 4, 6, 7)
    session.unpin(2)
    assert weighed(session).numbers == context.numbers
    session.pin(4)
    fold(journal, "shorter")
    assert weighed(session).numbers == (4, session.head)


def test_pins_after_a_cut_bring_back_what_was_cut_at_their_own_place(session: Session, journal: Journal) -> None:
    fold(journal, "short", 6)
    small = weighed(session)

    session.pin(3)
    session.append(said(7))
    session.pin(2)

    context = session.context()
    assert context.messages[: len(small.messages)] == small.messages, "what was sent stays as it is"
    assert context.numbers[len(small.numbers) :] == (0, 3, 0, session.state.last - 1, 0, 2, 0)
    assert context.pinned == (3, 2)
    assert session.state.tokens == context.tokens > small.tokens
    session.unpin(2)
    session.unpin(3)
    assert session.context().messages == context.messages
    session.pin(2)
    assert session.context().messages == context.messages, "it is there already"

    fold(journal, "shorter")
    assert weighed(session).numbers == (2, session.head)


def test_a_pin_of_a_call_after_a_cut_brings_its_results_and_parts_no_call_that_is_open(
    store: Store, journal: Journal
) -> None:
    session = store.session("s")
    session.append([user(), calls("a"), result("a"), answer(), user(), answer()])
    fold(journal, "short", 6)
    session.append([user("go on"), calls("b")])
    session.pin(3)

    waiting = session.context()
    assert waiting.numbers[-7:] == (session.state.last - 2, session.state.last - 1, 0, 0, 3, 4, 0)
    assert "still at work" in waiting.messages[-5]["content"]
    assert waiting.messages[-3:-1] == [calls("a"), result("a")]
    session.append(result("b"))

    last = session.state.last
    assert session.context().numbers[-7:] == (last - 3, last - 2, last, 0, 3, 4, 0)


def test_a_pinned_system_message_is_a_pin_among_others(store: Store, journal: Journal) -> None:
    session = store.session("s")
    session.append([user("one"), answer(), system("Be brief."), user("two"), answer()])
    session.pin(2)
    session.pin(4)

    fold(journal, "short")

    assert weighed(session).messages[:2] == [user("one"), system("Be brief.")]
    assert session.context().prompt == ()


@pytest.mark.parametrize(("number", "match"), [(1, "is a segment.opened; only messages"), (99, "is not there; only")])
def test_only_messages_are_pinned(session: Session, number: int, match: str) -> None:
    nothing_changes(session, lambda: session.pin(number), OnefoldError, match)


def test_what_was_undone_is_not_pinned(session: Session) -> None:
    session.undo()

    nothing_changes(session, lambda: session.pin(6), OnefoldError, "message 6 was undone; redo it first")
    session.redo()

    assert session.pin(6) == (6,)


def test_what_was_erased_is_pinned_no_longer(session: Session, journal: Journal) -> None:
    session.pin(2)
    fold(journal, "short", 6)

    session.erase(2)

    assert session.pins() == ()
    assert "message 1" not in json.dumps(weighed(session).messages)


def test_pins_hold_when_the_conversation_after_them_is_undone(session: Session, journal: Journal) -> None:
    """A pin is somebody's decision about a message, and no part of what was said."""
    session.append([said(7), said(8)])
    session.pin(2)
    session.unpin(2)
    session.pin(3)

    session.undo()

    assert session.pins() == (3,)
    fold(journal, "short")
    assert weighed(session).pinned == (3,)


def test_a_pinned_message_that_is_undone_goes_and_comes_back_with_redo(session: Session, journal: Journal) -> None:
    session.pin(6)
    fold(journal, "all six")
    before = looked(session)

    session.undo()
    assert (session.pins(), weighed(session).pinned) == ((), ())
    session.redo()

    assert session.pins() == (6,)
    assert looked(session) == before


def test_with_everything_pinned_a_compaction_ends_as_no_progress_and_is_paid_by_nobody_f42(session: Session) -> None:
    for number in range(2, 8):
        session.pin(number)

    done = session.compact(lambda m: pytest.fail("nothing can be saved"))

    assert (done.state, done.changed) == ("skipped", False)
    assert (done.cause or "").startswith("no progress")
    assert weighed(session).messages == [said(n) for n in range(1, 7)]


def test_with_everything_pinned_automatic_compactions_end_too_f42(session: Session) -> None:
    for number in range(2, 8):
        session.pin(number)
    before = session.state

    states = {session.compact(lambda m: pytest.fail("nothing to save"), trigger="threshold").state for _ in range(50)}

    assert (states, session.state) == ({"skipped"}, before)


def test_once_enough_is_let_go_the_session_compacts_again(session: Session) -> None:
    for number in range(2, 8):
        session.pin(number)
    assert session.compact(lambda m: "short").state == "skipped"

    for number in range(2, 6):
        session.unpin(number)

    assert session.compact(lambda m: "short").state == "committed"
    assert contents(weighed(session).messages)[-2:] == contents([said(5), said(6)])


def test_a_pin_set_while_a_summary_is_written_stands_in_the_next_context(session: Session, journal: Journal) -> None:
    claim = running(journal)
    session.pin(2)
    session.note("rule", "do not push")

    journal.commit(claim, "short", 6)

    context = weighed(session)
    assert context.numbers == (2, context.segment, 0, 6, 7)
    assert "do not push" in notes_of(context)


# ---------------------------------------------------------------------- notes


def test_notes_stand_behind_the_summary_with_who_wrote_them(session: Session, journal: Journal) -> None:
    first = session.note("rule", "do not push", actor="alice")
    second = session.note("goal", "ship it", key="goal")
    fold(journal, "short", 6)

    context = weighed(session)

    assert [(n.number, n.kind, n.text, n.key, n.actor, n.at) for n in session.notes()] == [
        (first, "rule", "do not push", f"#{first}", "alice", NOON),
        (second, "goal", "ship it", "goal", None, NOON),
    ]
    assert context.notes == session.notes()
    assert context.numbers == (context.segment, 0, 6, 7)
    assert notes_of(context).splitlines()[-2:] == ["- rule: do not push", "- goal: ship it"]
    assert next(r.actor for r in session.read(first, first + 1)) == "alice"


def test_a_note_takes_the_place_of_the_one_with_its_kind_and_key(session: Session, journal: Journal) -> None:
    session.note("path", "/old", key="config")
    session.note("path", "/other", key="log")
    session.note("goal", "not this one", key="config")

    session.note("path", "/new", key="config")

    assert [(n.kind, n.text) for n in session.notes()] == [
        ("path", "/other"),
        ("goal", "not this one"),
        ("path", "/new"),
    ]
    assert [text.count("/old") for text in noted_in(weighed(session))] == [1, 0, 0, 1], "which it takes the place of"
    fold(journal, "short")
    told = notes_of(weighed(session))
    assert "/old" not in told
    assert "/new" in told


def test_notes_without_a_key_stand_beside_each_other(session: Session, journal: Journal) -> None:
    session.note("rule", "one")
    session.note("rule", "one")

    assert [n.text for n in session.notes()] == ["one", "one"]
    assert len(noted_in(weighed(session))) == 2
    fold(journal, "short")
    assert notes_of(weighed(session)).count("- rule: one") == 2


def test_a_note_is_taken_away_by_its_key(session: Session, journal: Journal) -> None:
    session.note("path", "/old", key="config")
    session.note("rule", "one")
    keyless = session.notes()[-1].key

    session.note("path", "", key="config")
    assert [n.text for n in session.notes()] == ["one"]
    session.note("rule", "  ", key=keyless)

    assert session.notes() == ()
    assert noted_in(weighed(session))[2:] == [
        "[A note on this conversation was taken away at this point. What it said holds no longer:]\n\n- path: /old",
        "[A note on this conversation was taken away at this point. What it said holds no longer:]\n\n- rule: one",
    ]
    fold(journal, "short")
    assert weighed(session).numbers == (session.head,)


def test_a_note_stands_at_its_place_until_the_next_segment(session: Session, journal: Journal) -> None:
    before = session.context()

    number = session.note("rule", "two\nlines", key="k")
    session.append(said(7))

    context = weighed(session)
    assert context.messages[: len(before.messages)] == before.messages
    assert context.numbers[len(before.numbers) :] == (number, number + 1)
    opening = (
        "[A note on this conversation, made at this point. It holds from here on, whatever else was said earlier.]"
    )
    assert noted_in(context) == [f"{opening}\n\n- rule: two\n  lines"]
    fold(journal, "short", 6)
    assert noted_in(weighed(session)) == []
    assert weighed(session).numbers == (session.head, 0, 6, 7, number + 1)


def test_a_note_made_before_anything_was_said_stands_behind_the_prompt(store: Store) -> None:
    session = store.session("s")
    number = session.note("rule", "do not push")
    session.append([system(), user()])

    assert weighed(session).numbers == (number + 1, number, number + 2)


def test_the_same_note_again_writes_nothing(session: Session) -> None:
    number = session.note("path", "/here", key="config")
    before = session.state

    assert session.note("path", "/here", key="config") == number
    assert session.state == before


def test_a_note_that_says_nothing_is_refused(session: Session) -> None:
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: session.note("rule", " "), InvalidMessage, "needs a text"),
        (lambda: session.note("", "text"), InvalidMessage, "needs a kind"),
        (lambda: session.note("a\nb", "text"), InvalidMessage, "needs a kind"),
        (
            lambda: session.note("rule", "", key="nobody"),
            OnefoldError,
            "no note and no fact of kind 'rule' with the key",
        ),
        (lambda: session.note("rule", "x" * 20_000), MessageTooLarge, "over the limit of 16,384"),
    ]
    for act, error, match in wrong:
        nothing_changes(session, act, error, match)


def test_notes_are_undone_and_redone_with_the_conversation(session: Session) -> None:
    session.note("goal", "the first", key="goal")
    session.append([said(7), said(8)])
    session.note("goal", "the second", key="goal")
    session.note("rule", "new")

    session.undo()
    assert [n.text for n in session.notes()] == ["the first"]
    assert "the second" not in notes_of(weighed(session))
    session.redo()

    assert "the second" in notes_of(weighed(session))
    assert [n.text for n in session.notes()] == ["the second", "new"]


def test_a_note_taken_away_after_the_question_is_back_once_that_is_undone(session: Session) -> None:
    session.note("goal", "ship it", key="goal")
    session.append([said(7), said(8)])
    session.note("goal", "", key="goal")

    session.undo()

    assert [n.text for n in session.notes()] == ["ship it"]
    weighed(session)


def test_notes_written_after_an_undo_stay(session: Session) -> None:
    session.undo()
    session.note("rule", "after")

    session.redo()

    assert [n.text for n in session.notes()] == ["after"]
    weighed(session)


def test_a_note_that_was_erased_is_gone(session: Session) -> None:
    number = session.note("secret", "the password is mellon", key="k")

    session.erase(number)

    assert session.notes() == ()
    assert "mellon" not in json.dumps([r.body for r in session.read()])
    assert "mellon" not in json.dumps(weighed(session).messages)


def test_pins_and_notes_outlive_the_process(durable: str, opened: Callable[..., Store]) -> None:
    first = opened(durable)
    session = first.session("s")
    session.append([said(n) for n in range(1, 7)])
    session.pin(2, actor="alice")
    session.note("rule", LAW, key="push", actor="alice")
    fold(first.journal, "short", 6)
    before, notes = looked(session), session.notes()
    first.close()

    again = opened(durable)

    assert looked(again.session("s")) == before
    assert (again.session("s").notes(), again.session("s").pins()) == (notes, (2,))
    assert again.verify().healthy
