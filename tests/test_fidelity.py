"""The generator is the same each time and says what it claims; the measure sees what is held, and what is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from fidelity import __main__ as command
from fidelity.__main__ import PAGE
from fidelity.conversations import DOMAINS, KINDS, STRETCHES, Conversation, Planted, conversation
from fidelity.forgetful import Forgetful
from fidelity.held_back import HELD_BACK
from fidelity.measures import AIM, LEDGER, NOTED, NOTES, SHARES, TAIL, Look, holds, look, looks, rows, shows_former
from fidelity.phrases import USUAL, Phrasing
from fidelity.plot import plot
from fidelity.report import as_json, as_page, as_text, every_row
from onefold import Material
from onefold.compaction import extraction
from onefold.messages import codec

SEEDS = range(4)
"""One conversation of each domain."""


@pytest.fixture(scope="module")
def talks() -> list[Conversation]:
    return [conversation(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def seen(talks: list[Conversation]) -> list[Look]:
    return [look(talk, AIM, LEDGER) for talk in talks]


def _said(talk: Conversation, role: str) -> Iterator[str]:
    for message in talk.messages:
        if message["role"] == role:
            yield codec("openai-chat").text(message).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


# ------------------------------------------------------------------ the generator


def test_a_seed_gives_the_same_conversation_and_another_seed_another_one() -> None:
    assert conversation(7) == conversation(7)
    assert conversation(7).stretches != conversation(11).stretches


def test_the_conversations_are_long_and_of_every_domain_and_kind(talks: list[Conversation]) -> None:
    assert {talk.domain for talk in talks} == {domain.name for domain in DOMAINS}
    for talk in talks:
        assert len(talk.stretches) == STRETCHES
        assert 190 <= len(talk.messages) <= 700
        assert {fact.kind for fact in talk.planted} == set(KINDS)


@pytest.mark.parametrize("phrasing", [USUAL, HELD_BACK], ids=["usual", "held back"])
def test_every_planted_fact_was_said_and_every_injected_order_stands_in_tool_output(phrasing: Phrasing) -> None:
    for talk in (conversation(seed, phrasing) for seed in SEEDS):
        people = [text for role in ("user", "assistant") for text in _said(talk, role)]
        tools = list(_said(talk, "tool"))

        assert [fact for fact in talk.planted if not holds(fact, people)] == []
        assert [fact for fact in talk.planted if fact.kind != "path" and holds(fact, tools)] == []
        assert all(any(order in text for text in tools) for order in talk.injected)
        assert not any(order in text for order in talk.injected for text in people)


def test_a_former_value_is_said_before_the_present_one_and_is_nothing_elses(talks: list[Conversation]) -> None:
    changed = [(talk, fact) for talk in talks for fact in talk.planted if fact.stale]

    assert len(changed) > 15
    for talk, fact in changed:
        others = [other.said[-1] for other in talk.planted if other.needs != fact.needs and other.kind != "pair"]
        assert len(fact.said) == len(fact.stale) + 1
        assert shows_former(fact, fact.said[:-1]) is not None
        assert shows_former(fact, [fact.said[-1], *others]) is None


def test_some_values_change_right_before_a_compaction_with_the_old_one_cut_away(talks: list[Conversation]) -> None:
    assert sum(fact.late for talk in talks for fact in talk.planted if fact.stale) >= 3


def test_the_forgetful_summarizer_repeats_nothing_that_was_planted(talks: list[Conversation]) -> None:
    forgetful = Forgetful()
    material = Material("talk", None, (), None, 1000, 1)

    texts = [forgetful(material) for _ in range(STRETCHES)]

    assert len(set(texts)) == STRETCHES
    assert not any(holds(fact, texts) for talk in talks for fact in talk.planted)


# ------------------------------------------------------------------ the measure


def test_a_fact_is_held_if_its_parts_stand_together_and_word_for_word() -> None:
    fact = Planted("cap", "the hotel", ("hotel", "$240 a night"), ("Keep the hotel under $240 a night.",))

    assert holds(fact, ["keep the hotel under\n$240 a night"])
    assert not holds(fact, ["the hotel", "$240 a night"])
    assert not holds(fact, ["Keep the hotel under $1$240 a nights."])
    assert not holds(fact, ["The hotel is nice. " + "And so on. " * 60 + "$240 a night"])


def test_a_former_value_is_shown_unless_the_present_one_stands_beside_it() -> None:
    fact = Planted("value", "room", ("room", "Trieste"), (), ("Bergen",), "Trieste")

    assert shows_former(fact, ["value: the room is Bergen"]) == "value: the room is Bergen"
    assert shows_former(fact, ["value: the room is Trieste instead of Bergen", "path: /bergenhus"]) is None


def test_the_context_is_never_larger_than_its_share(talks: list[Conversation]) -> None:
    for share in SHARES:
        for way in (LEDGER, TAIL):
            one = look(talks[1], share, way)
            assert one.tokens <= one.original * share, (share, way)


def test_notes_are_all_held_and_show_no_former_value(talks: list[Conversation]) -> None:
    noted = [look(talk, SHARES[0], NOTES) for talk in talks]

    assert all(row.rate == 1.0 for row in rows(noted, SHARES[0], NOTES) if row.kind in NOTED)
    assert not any(one.superseded for one in noted)


# ------------------------------------------------------------------ what the ledger holds


FLOORS = dict.fromkeys((*KINDS, "all"), 1.0)


def test_a_context_of_a_fifth_holds_what_was_planted(seen: list[Look]) -> None:
    held = {row.kind: row.rate for row in rows(seen, AIM, LEDGER)}

    assert {kind: (held[kind], floor) for kind, floor in FLOORS.items() if held[kind] < floor} == {}


def test_no_former_value_is_shown(seen: list[Look]) -> None:
    assert [(fact.said, line) for one in seen for fact, line in one.superseded] == []


def test_no_order_of_a_tool_is_shown(seen: list[Look]) -> None:
    assert [line for one in seen for line in one.injected] == []


def test_a_ledger_that_finds_nothing_is_noticed(
    talks: list[Conversation], seen: list[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "extracted", lambda *_, **__: [])

    blind = [look(talk, AIM, LEDGER) for talk in talks]

    assert not any(one.lines for one in blind)
    assert sum(map(sum, (one.held for one in blind))) < sum(map(sum, (one.held for one in seen))) / 2


# ------------------------------------------------------------------ the report


@pytest.fixture(scope="module")
def some() -> list[Look]:
    return looks([2])


def test_the_report_says_the_same_in_every_form(some: list[Look]) -> None:
    told = json.loads(as_json(some))
    page, drawn = as_page(some), plot(every_row(some))

    table = {(row["kind"], row["share"], row["way"]): row for row in told["rows"]}
    everything = table["all", AIM, LEDGER]
    cell = f"{everything['held']} of {everything['planted']}"
    assert cell in as_text(some)
    assert re.search(rf"^\| all \|.* {cell} \|", page, re.MULTILINE)
    assert "prefers-color-scheme: dark" in drawn
    assert len(ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}rect")) == 3 * (len(KINDS) + 1) + 3


def test_the_page_that_is_kept_was_written_by_this_code(some: list[Look]) -> None:
    kept = PAGE.read_text(encoding="utf-8")

    assert kept.splitlines()[:12] == as_page(some).splitlines()[:12]


def test_a_quick_run_prints_the_table_and_writes_no_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = PAGE.read_bytes()
    monkeypatch.setattr(command, "QUICK", 1)

    status = command.main(["--quick", "--seed", "2"])

    told = capsys.readouterr()
    assert status == (1 if "not met" in told.err else 0)
    assert re.search(r"^all .* of ", told.out, re.MULTILINE)
    assert PAGE.read_bytes() == before
