"""The ledger on every kind of store: facts stand for what a summary stands for, whatever is done to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import onefold
from onefold import Context, Material, OnefoldError, Session, Store
from onefold.journal.contract import Journal
from onefold.messages.codecs import draft
from onefold.model import Fact
from tests.conftest import running, said
from tests.helpers import converse, quick

LEDGER = quick(ledger_tokens=2_000)
RULE = "Never push to main."
OLD, NEW = "The staging port is 8081.", "The staging port is now 9090."


@pytest.fixture
def store(address: str, opened: Callable[..., Store]) -> Iterator[Store]:
    """As everywhere, but with a ledger."""
    store = opened(address, policy=LEDGER)
    yield store
    assert store.verify().findings == ()


def forgetful(material: Material) -> str:
    return f"They talked, up to message {material.records[-1].number}."


def folded(session: Session, *spoken: str, more: int = 8) -> Context:
    """Says something, then much else, and compacts it away with a summarizer that forgets it."""
    session.append([{"role": "user", "content": text} for text in spoken])
    converse(session, more, words=60)
    result = session.compact(forgetful)
    assert result.changed, result.cause
    return session.context()


def texts(session: Session) -> list[str]:
    return [f.text for f in session.facts()]


def numbers(session: Session, text: str) -> list[int]:
    """The messages that say something."""
    return [r.number for r in session.read() if r.kind == "message" and r.body["content"] == text]


def told(context: Context) -> str:
    """The one message that tells the facts; nothing if there is none."""
    found = [m["content"] for n, m in zip(context.numbers, context.messages, strict=True) if n == 0]
    return "".join(text for text in found if isinstance(text, str) and text.startswith("[Facts"))


def test_a_rule_that_the_summary_forgot_is_in_the_context_word_for_word_f27(session: Session) -> None:
    context = folded(session, RULE)

    assert RULE not in str(context.summary)
    assert RULE in told(context)
    assert [f.source for f in context.facts if f.text == RULE] == numbers(session, RULE)
    assert session.facts() == context.facts
    assert session.state.tokens == context.tokens


def test_facts_outlive_many_compactions(session: Session) -> None:
    for n in range(6):
        folded(session, RULE if n == 0 else f"Round {n} is over, thanks.")

    assert texts(session).count(RULE) == 1


def test_a_restart_keeps_the_ledger(durable: str, opened: Callable[..., Store]) -> None:
    folded(opened(durable, policy=LEDGER).session("s"), RULE)

    again = opened(durable, policy=LEDGER).session("s")

    assert RULE in texts(again)
    assert RULE in told(again.context())


def test_a_later_value_takes_the_place_of_the_earlier(session: Session) -> None:
    folded(session, OLD)
    assert OLD in texts(session)

    folded(session, NEW)

    assert NEW in texts(session)
    assert OLD not in texts(session)


def test_a_value_that_the_tail_changes_is_not_shown_until_that_is_taken_back(session: Session) -> None:
    session.append({"role": "user", "content": OLD})
    converse(session, 8, words=60)
    session.append({"role": "user", "content": NEW})
    assert session.compact(forgetful).changed
    hidden = session.context()

    session.undo()

    assert OLD not in told(hidden)
    assert NEW in str(hidden.messages)
    assert OLD in told(session.context())
    session.redo()
    assert OLD not in told(session.context())


def test_what_the_tail_changed_is_not_lost_by_another_compaction(session: Session) -> None:
    """It is hidden, and not gone: the fact that hides it is carried in its turn."""
    session.append({"role": "user", "content": OLD})
    converse(session, 8, words=60)
    session.append({"role": "user", "content": NEW})
    assert session.compact(forgetful).changed

    folded(session, "Thanks so far.")

    assert NEW in texts(session)
    assert OLD not in texts(session)


def test_an_undo_takes_back_the_facts_of_what_it_takes_back(session: Session) -> None:
    converse(session, 4)
    folded(session, RULE)

    session.rewind(4)

    assert texts(session) == []
    assert told(session.context()) == ""


def test_a_fork_has_the_ledger_of_its_past_and_its_parent_is_not_changed_by_it(session: Session) -> None:
    folded(session, OLD)
    fork = session.fork("branch")
    folded(fork, NEW)

    assert OLD in texts(session)
    assert OLD not in texts(fork)
    assert NEW in texts(fork)


def test_an_older_segment_tells_its_own_facts(session: Session) -> None:
    folded(session, OLD)
    first = session.head
    folded(session, NEW)

    assert OLD in told(session.context(segment=first))


def test_what_is_erased_is_in_no_ledger(session: Session) -> None:
    secret = "My password is hunter2-4711."
    folded(session, secret, RULE)
    assert "hunter2" in str(session.facts())

    session.erase(*numbers(session, secret))

    assert "hunter2" not in str(session.facts())
    assert not any("hunter2" in str(r.body) for r in session.read())


def test_a_note_takes_the_place_of_a_fact(session: Session) -> None:
    folded(session, OLD)
    (fact,) = [f for f in session.facts() if f.text == OLD]

    session.note(fact.kind, "The staging port is 7000.", fact.key)

    assert OLD not in texts(session)
    assert "7000" in session.context().messages[-1]["content"], "at its place; what stands in front stays"
    assert session.state.tokens == session.context().tokens
    folded(session, "Thanks.")
    assert OLD not in told(session.context())


def test_an_empty_note_takes_a_fact_away_until_it_is_said_again(session: Session) -> None:
    folded(session, OLD)
    (fact,) = [f for f in session.facts() if f.text == OLD]

    session.note(fact.kind, "", fact.key)
    assert OLD not in texts(session)
    assert session.state.tokens == session.context().tokens
    folded(session, "Thanks.")
    assert OLD not in texts(session)

    folded(session, OLD)
    assert OLD in texts(session)


def test_what_is_neither_noted_nor_a_fact_cannot_be_taken_away(session: Session) -> None:
    folded(session, RULE)

    with pytest.raises(OnefoldError, match="no note and no fact"):
        session.note("rule", "", "nothing of the kind")


def test_a_ledger_is_as_long_as_the_policy_says_and_no_longer(opened: Callable[..., Store]) -> None:
    session = opened("memory:", policy=quick()).session("s")

    folded(session, RULE)

    assert session.facts() == ()
    assert told(session.context()) == ""


def test_facts_are_written_with_the_summary_or_not_at_all(journal: Journal) -> None:
    journal.create("s")
    journal.append("s", [draft(said(n), journal.new_id) for n in range(1, 9)])
    claim = running(journal)
    facts = (Fact("rule", "push main", RULE, 2), Fact("identifier", "port", OLD, 3, "model", 7))

    opened = journal.commit(claim, "They talked.", 6, facts=facts)

    (record,) = [r for r in journal.read("s") if r.number == opened.number]
    assert record.body["facts"] == [
        ["rule", "push main", RULE, 2, "extract", 0],
        ["identifier", "port", OLD, 3, "model", 7],
    ]
    with onefold.open("memory:") as other:
        assert other.session("t").facts() == ()


def test_the_facts_of_a_summarizer_count_only_if_somebody_said_them(session: Session) -> None:
    def inventive(material: Material) -> onefold.Summary:
        made = (
            Fact("decision", "database", "We take the blue one from the second shop", by="model"),
            Fact("rule", "deploy", "Always deploy on Fridays.", by="model"),
        )
        return onefold.Summary("They talked.", facts=made)

    session.append({"role": "user", "content": "Hm. We take the blue one from the second shop, I think it is best."})
    converse(session, 8, words=60)
    session.compact(inventive)

    assert any("blue one" in text for text in texts(session))
    assert not any("Fridays" in text for text in texts(session))
