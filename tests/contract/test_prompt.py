"""The system prompt in force, on every kind of store: what a session begins with, or what replaced it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold import InvalidMessage, KeyConflict, OnefoldError, Session, Store, TurnLost
from onefold.journal import replication
from onefold.journal.journal import Journal
from tests.conftest import running, said
from tests.support.engines import Counting
from tests.support.helpers import contents, said_in
from tests.support.plans import answer, system, user
from tests.support.undone_views import fold, nothing_changes
from verification.operations import talk

OLD, NEW, NEWER = system("You are version 1."), system("You are version 2."), system("You are version 3.")


def begun(store: Store) -> Session:
    """Records 2 to 8: a prompt, and six messages."""
    session = store.session("s")
    session.append([OLD, *talk(6, words=40)])
    return session


def weighed(session: Session) -> list[str]:
    """The texts of the context, which has to be as large as the session thinks it is."""
    context = session.context()
    left_out = [r.header.tokens for n in context.left_out for r in session.read(n, n + 1) if r.header]
    assert session.state.tokens == said_in(context)[1] + sum(left_out)
    return contents(context.messages)


def compacted(session: Session) -> None:
    session.append(talk(6, words=40))
    assert session.compact(Counting(lambda m: f"up to {m.records[-1].number}")).state == "committed"


def test_the_prompt_that_holds_stays_and_the_one_it_replaced_goes_c3(store: Store) -> None:
    session = begun(store)
    compacted(session)
    (number,) = session.append(NEW, slot="prompt").numbers

    for _ in range(3):
        compacted(session)

        texts = weighed(session)
        assert texts[0] == NEW["content"]
        assert OLD["content"] not in texts
        assert session.context().prompt == (number,)
    assert session.segments()[-1].kept == (number,)


def test_a_prompt_made_since_stands_at_its_place_until_the_next_segment(store: Store, journal: Journal) -> None:
    session = begun(store)
    fold(journal, "short", 6)
    before = session.context()
    session.append(NEW, slot="prompt")
    session.append(said(7))

    context = session.context()
    assert context.messages == [*before.messages, NEW, said(7)]
    assert context.prompt == (2,)

    fold(journal, "shorter", 8)
    assert weighed(session)[0] == NEW["content"], "also if it stands behind the cut"
    assert session.context().messages.count(NEW) == 1
    assert OLD["content"] not in weighed(session)


def test_of_prompts_behind_the_cut_only_the_one_in_force_is_shown(store: Store, journal: Journal) -> None:
    session = begun(store)
    first = session.append(NEW, slot="prompt").numbers[0]
    session.append(said(7))
    session.append(NEWER, slot="prompt")
    session.append(said(8))

    fold(journal, "short", 4)

    texts = weighed(session)
    assert texts[0] == NEWER["content"]
    assert not {OLD["content"], NEW["content"]} & {*texts}
    assert session.context().left_out == (first,)


def test_a_prompt_that_comes_while_a_summary_is_written_is_the_one_in_force(store: Store, journal: Journal) -> None:
    session = begun(store)
    claim = running(journal)
    session.append(NEW, slot="prompt")

    journal.commit(claim, "short", 6, kept=[2])

    assert weighed(session)[0] == NEW["content"]
    assert OLD["content"] not in weighed(session)


def test_a_prompt_may_be_several_messages_and_the_first_thing_that_is_said(store: Store, journal: Journal) -> None:
    session = store.session("s")
    brief = {"role": "developer", "content": "Be brief."}
    assert session.append([OLD, brief], slot="prompt").numbers == (2, 3)
    session.append(talk(6, words=40))

    fold(journal, "short", 8)

    assert weighed(session)[:2] == [OLD["content"], "Be brief."]
    assert session.context().prompt == (2, 3)


def test_a_system_message_without_a_slot_is_conversation_and_is_summarised(store: Store, journal: Journal) -> None:
    session = begun(store)
    session.append([system("The disk is full."), *talk(4, words=40)])
    assert weighed(session)[7] == "The disk is full.", "at its place while it is in the tail"

    fold(journal, "short", 11)

    assert weighed(session)[0] == OLD["content"]
    assert "The disk is full." not in weighed(session)


def test_a_prompt_is_no_pin(store: Store) -> None:
    session = begun(store)
    (number,) = session.append(NEW, slot="prompt").numbers

    assert session.pins() == ()
    assert session.unpin(number) == ()
    mark = [r for r in session.read() if r.kind == "pin.added"]
    assert [m.body for m in mark] == [{"numbers": [number], "slot": "prompt", "tokens": 0}]


def test_a_prompt_that_was_pinned_stays_when_it_is_replaced(store: Store, journal: Journal) -> None:
    session = begun(store)
    session.pin(2)
    session.append(NEW, slot="prompt")

    fold(journal, "short")

    assert weighed(session)[:2] == [NEW["content"], OLD["content"]]


def test_only_system_and_developer_messages_are_a_prompt(store: Store) -> None:
    session = begun(store)

    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (
            lambda: session.append([NEW, user("hello")], slot="prompt"),
            InvalidMessage,
            "role 'user' is not a system prompt",
        ),
        (lambda: session.append(answer(), slot="prompt"), InvalidMessage, "role 'assistant' is not a system prompt"),
        (lambda: session.append(NEW, slot="mood"), OnefoldError, "'mood' is not a valid slot; use one of prompt"),  # type: ignore[arg-type]
        (lambda: session.append([], slot="prompt"), InvalidMessage, "nothing to append"),
    ]
    for act, error, match in wrong:
        nothing_changes(session, act, error, match)


def test_a_prompt_that_is_undone_gives_way_to_the_one_before_and_comes_back(store: Store, journal: Journal) -> None:
    session = begun(store)
    session.append(said(7))
    session.append(NEW, slot="prompt")
    session.append(said(8))
    fold(journal, "short")
    assert weighed(session)[0] == NEW["content"]

    session.undo()
    assert weighed(session)[0] == OLD["content"]
    assert NEW["content"] not in weighed(session)

    session.redo()
    assert weighed(session)[0] == NEW["content"]
    assert OLD["content"] not in weighed(session)


def test_a_prompt_that_is_erased_gives_way_to_the_one_before(store: Store, journal: Journal) -> None:
    session = begun(store)
    (number,) = session.append(NEW, slot="prompt").numbers
    session.append(talk(4, words=40))
    fold(journal, "short")

    session.erase(number)

    assert weighed(session)[0] == OLD["content"]
    assert "version 2" not in json.dumps([r.body for r in session.read()])


def test_a_fork_has_the_prompt_as_it_was_and_its_own(store: Store, journal: Journal) -> None:
    session = begun(store)
    (number,) = session.append(NEW, slot="prompt").numbers
    session.append(said(7))

    early, late = session.fork(at=number - 1), session.fork()
    late.append(NEWER, slot="prompt")
    late.append(said(8))

    assert (weighed(early)[0], weighed(late)[0]) == (OLD["content"], NEW["content"])
    journal.commit(running(journal, late.id), "short")
    assert weighed(late)[0] == NEWER["content"]
    assert weighed(session)[0] == OLD["content"], "in its own segment nothing has moved"


def test_a_prompt_goes_with_a_copy(
    store: Store, journal: Journal, opened: Callable[..., Store], tmp_path: Path
) -> None:
    session = begun(store)
    session.append(NEW, slot="prompt", key="v2")
    session.append(said(7))
    fold(journal, "short", 6)
    target = opened(str(tmp_path / "copy.db"))

    wanted = replication.wanted(journal.backend)
    assert [done.cause for done in replication.copy(journal.backend, target.journal, wanted, lambda _: None)] == [None]

    assert target.session("s").context() == session.context()
    assert target.session("s").context().prompt == session.context().prompt


def test_a_prompt_and_its_mark_are_one_part_of_a_copy(store: Store) -> None:
    session = begun(store)
    session.append(NEW, slot="prompt")
    records = [(record, replication.MOST_BYTES) for record in session.read()]  # each as large as a part may be

    parts = [[r.kind for r in part] for part in replication.parts(records)]

    assert parts[-1] == ["message", "pin.added"]


def test_a_repeated_key_writes_the_prompt_once(store: Store) -> None:
    session = begun(store)
    first = session.append([NEW], slot="prompt", key="v2")
    before = session.state

    again = session.append([NEW], slot="prompt", key="v2")

    assert (again.numbers, again.duplicate, session.state) == (first.numbers, True, before)
    for act in (
        lambda: session.append([NEWER], slot="prompt", key="v2"),
        lambda: session.append([NEW], key="v2"),
    ):
        nothing_changes(session, act, KeyConflict, "'v2' was used for other content")
    session.append([NEW], key="plain")
    nothing_changes(session, lambda: session.append([NEW], slot="prompt", key="plain"), KeyConflict, "'plain' was used")


def test_a_prompt_in_a_turn_holds_only_while_that_is_open(store: Store) -> None:
    session = begun(store)
    with session.turn() as turn:
        (number,) = turn.append(NEW, slot="prompt").numbers
        turn.append(said(7))
    session.undo()
    assert [r.turn == turn.id for r in session.read(number, number + 2)] == [True, True]

    nothing_changes(session, lambda: turn.append(NEWER, slot="prompt"), TurnLost, "nothing was written")


def test_without_a_slot_the_prompt_is_what_a_session_begins_with_whatever_is_kept(
    store: Store, journal: Journal
) -> None:
    session = store.session("s")
    session.append([OLD, {"role": "developer", "content": "Be brief."}, *talk(6, words=40), system("later")])

    journal.commit(running(journal), "short", 8)

    assert weighed(session)[:2] == [OLD["content"], "Be brief."]
    assert session.context().prompt == (2, 3)


@pytest.mark.parametrize("format", ["openai-chat", "anthropic", "openai-responses", "langchain"])
def test_a_prompt_may_be_of_any_format_that_has_one(store: Store, journal: Journal, format: str) -> None:
    body = {"type": "system", "data": {"content": "Be brief."}} if format == "langchain" else system("Be brief.")
    session = begun(store)

    session.append(body, slot="prompt", format=format)
    fold(journal, "short")

    assert session.context().messages[0] == body
