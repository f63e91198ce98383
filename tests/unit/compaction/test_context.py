"""What a model is sent: order, summary, kept messages, and what is left out."""

from __future__ import annotations

import pytest

from onefold import OnefoldError, Session, Store
from onefold.compaction.context import Context, ContextView, render
from onefold.journal.journal import Journal
from onefold.journal.lineage import PinsAndNotes
from onefold.messages import codec
from onefold.model import Header, Json, Note, Record, Segment
from tests.conftest import claimed, running, said
from tests.support.plans import answer, calls, result, system, user


def records(messages: list[Json], start: int = 2) -> list[Record]:
    headers = [codec("openai-chat").header(m) for m in messages]
    return [
        Record(number=n, id=f"id-{n}", kind="message", at=0.0, body=m, format="openai-chat", header=h)
        for n, (m, h) in enumerate(zip(messages, headers, strict=True), start=start)
    ]


def rendered(
    messages: list[Json],
    *,
    summary: str | None = None,
    prompt: list[Json] | None = None,
    kept: list[Json] | None = None,
    pinned: list[Json] | None = None,
    notes: tuple[Note, ...] = (),
    turn: str | None = None,
    live: str | None = None,
) -> Context:
    segment = Segment(number=90, base=1, cut=50, source="compaction", at=0.0)
    tail = [r._replace(turn=turn) for r in records(messages, start=50)]
    pins = tuple(records(pinned or [], start=20))
    first = tuple(records(prompt or []))
    by_name = tuple(records(kept or [], start=2 + len(first)))
    standing = PinsAndNotes(frozenset(r.number for r in pins), notes, prompt=tuple(r.number for r in first))
    return render(ContextView(segment, summary, by_name, pins, standing, prompt=first), tail, 99, live)


def noted(kind: str, text: str, key: str = "k") -> Note:
    return Note(number=30, kind=kind, text=text, key=key, actor=None, at=0.0)


def test_an_empty_session_has_an_empty_context(store: Store) -> None:
    context = store.session("s").context()

    assert (context.messages, context.tokens, context.segment, context.last) == ([], 0, 1, 1)
    assert (context.summary, context.left_out, context.numbers) == (None, (), ())


def test_before_the_first_compaction_a_context_is_everything_said(session: Session) -> None:
    context = session.context()

    assert context.messages == [said(n) for n in range(1, 7)]
    assert context.numbers == (2, 3, 4, 5, 6, 7)
    assert context.tokens == session.state.tokens


def test_system_prompt_then_summary_then_what_was_kept_then_the_rest() -> None:
    context = rendered([answer("last")], summary="what happened", prompt=[system()], kept=[user("do it")])

    assert [m["role"] for m in context.messages] == ["system", "user", "user", "assistant"]
    assert context.numbers == (2, 90, 3, 50)
    assert "what happened" in context.messages[1]["content"]
    assert (context.summary, context.segment, context.last) == ("what happened", 90, 99)


def test_prompt_pins_summary_notes_kept_and_the_rest_stand_in_this_order_f27() -> None:
    """The steadiest first: what changes least from segment to segment."""
    context = rendered(
        [user("new"), answer("last")],
        summary="what happened",
        prompt=[system("first")],
        kept=[user("do it")],
        pinned=[user("do not push"), system("pinned"), calls("a"), result("a")],
        notes=(noted("rule", "never"), noted("goal", "ship")),
    )

    assert context.numbers == (2, 20, 21, 22, 23, 90, 0, 3, 50, 51)
    assert [m["content"] for m in context.messages[:3]] == ["first", "do not push", "pinned"]
    assert (context.pinned, context.prompt) == ((20, 21, 22, 23), (2,))


def test_notes_read_as_what_holds_and_not_as_a_story_f27() -> None:
    notes = (noted("rule", "do not push"), noted("path", "line one\nline two"))

    (message,) = rendered([], notes=notes).messages

    assert message["role"] == "user"
    assert message["content"] == (
        "[Notes on this conversation, kept word for word. They hold now, whatever else was said earlier.]\n\n"
        "- rule: do not push\n- path: line one\n  line two"
    )


def test_a_pinned_call_without_its_result_was_given_up_and_gets_one_that_says_so() -> None:
    context = rendered([user("new")], pinned=[calls("a", "b"), result("b"), user("never mind")])

    assert context.numbers == (0, 20, 21, 0, 22, 50)
    assert context.messages[3]["tool_call_id"] == "a"


@pytest.mark.parametrize(("live", "numbers"), [("t", (50, 51)), (None, (50, 51, 0)), ("another", (50, 51, 0))])
def test_a_call_is_waited_for_while_its_turn_is_open_and_no_longer(live: str | None, numbers: tuple[int, ...]) -> None:
    assert rendered([user(), calls("a")], turn="t", live=live).numbers == numbers


def test_a_pinned_answer_never_stands_before_the_first_words_of_a_user() -> None:
    context = rendered([user("new")], summary="s", pinned=[answer("keep this"), calls("a"), result("a")])

    assert context.numbers == (0, 20, 21, 22, 90, 50)
    assert context.messages[0]["role"] == "user"
    assert rendered([user("new")], pinned=[user("why?"), answer("so")]).numbers == (20, 21, 50)


def test_an_old_request_never_stands_last() -> None:
    """With nothing behind the cut, as after a rewind to it."""
    rule = (noted("rule", "never"),)
    context = rendered([], summary="it was done", prompt=[system()], kept=[user("do it")], notes=rule)

    assert context.numbers == (2, 3, 90, 0)
    alone = rendered([], pinned=[user("do it")])
    assert alone.numbers == (20, 0)
    assert "It is no new request" in alone.messages[-1]["content"]


def test_a_call_that_is_kept_by_name_without_its_result_is_answered_and_a_result_without_its_call_left_out() -> None:
    context = rendered([user("new")], summary="s", kept=[calls("a"), user("do it"), result("b")])

    assert context.numbers == (90, 2, 0, 3, 50)
    assert context.left_out == (4,)


@pytest.mark.parametrize(("behind", "numbers"), [([], (50, 51)), ([user("wait")], (50, 51, 0, 52))])
def test_a_call_at_work_has_a_made_up_result_once_somebody_else_speaks(
    behind: list[Json], numbers: tuple[int, ...]
) -> None:
    context = rendered([user(), calls("a"), *behind])

    assert context.numbers == numbers
    assert not behind or "still at work" in context.messages[2]["content"]


def test_reasoning_without_what_it_led_to_is_left_out(store: Store) -> None:
    session = store.session("s")
    thought = {"type": "reasoning", "id": "r", "summary": []}
    session.append([user(), thought, answer(), thought, user("and?"), thought], format="openai-responses")

    context = session.context()

    assert context.messages == [user(), thought, answer(), user("and?")]
    assert context.left_out == (5, 7)


def test_a_result_that_is_given_twice_in_one_message_answers_its_call_once(store: Store) -> None:
    session = store.session("s")
    block = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    session.append([user(), call, {"role": "user", "content": [block, block]}], format="anthropic")

    assert len(session.context().to("openai-chat")) == 3


def test_a_summary_reads_as_reference_and_not_as_a_request_f62() -> None:
    (message,) = rendered([], summary="Delete everything.").messages

    opening, text, closing = message["content"].split("\n\n")
    assert "for reference" in opening
    assert "nothing in it needs to be done again" in opening
    assert text == "Delete everything."
    assert closing.startswith("[End of the summary.")


def test_a_group_stands_together_and_what_came_in_between_follows_it_f26() -> None:
    history = [user(), calls("a", "b"), user("wait"), result("b"), answer("hm"), result("a"), user("go on")]

    context = rendered(history)

    assert context.numbers == (50, 51, 53, 55, 52, 54, 56)
    assert context.left_out == ()


def test_a_result_without_its_call_is_flagged_and_left_out(store: Store) -> None:
    session = store.session("s")
    session.append([user(), result("unknown"), answer()])

    context = session.context()

    assert context.messages == [user(), answer()]
    assert context.left_out == (3,)
    assert [r.body for r in session.read(3, 4)] == [result("unknown")]


def test_a_message_that_answers_one_call_and_makes_another_stands_once_between_both() -> None:
    chained = {**result("a"), "tool_calls": calls("b")["tool_calls"]}

    context = rendered([user(), calls("a"), user("wait"), chained, result("b")])

    assert context.numbers == (50, 51, 53, 54, 52)


def test_a_message_that_answers_calls_of_two_groups_stands_once_after_both() -> None:
    first, second, both = records([calls("a"), calls("b"), user("both results")], start=50)
    both = Record(both.number, both.id, both.kind, both.at, both.body, both.format, Header("user", 5, (), ("a", "b")))
    segment = Segment(number=90, base=1, cut=50, source="compaction", at=0.0)

    context = render(ContextView(segment, None, (), (), PinsAndNotes()), [first, second, both], 99)

    assert context.numbers == (0, 50, 51, 52)


def test_the_context_of_an_older_segment_is_still_there(session: Session, journal: Journal) -> None:
    whole = session.context()
    compacted = journal.commit(running(journal), "short", 5)
    session.append(said(7))

    older = session.context(segment=1)

    assert older.messages == [*whole.messages, said(7)]
    assert older.segment == 1
    assert session.context().segment == compacted.number


def test_looking_at_an_older_segment_does_not_change_what_was_measured(session: Session) -> None:
    session.compact(lambda m: "short")
    session.append([said(n) for n in range(7, 13)])
    session.context()
    session.context(segment=1)

    result = session.compact(lambda m: "another")

    assert (result.applied, result.joined) == (True, False)


def test_a_segment_that_never_was_has_no_context(session: Session) -> None:
    with pytest.raises(OnefoldError, match="'s' has no segment 5; its newest are 1"):
        session.context(segment=5)


def test_records_of_other_kinds_are_no_part_of_a_context(session: Session, journal: Journal) -> None:
    journal.request("s")
    claim = claimed(journal)
    session.queue_input(said(7))
    journal.fail(claim, "no answer", retry_after=0)

    assert session.context().messages == [said(n) for n in range(1, 7)]
    assert session.context().last == session.state.last
