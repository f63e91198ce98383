"""The measurement itself: its corpus is what it was, its judges can tell, and on a small part what must hold does."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.fidelity import languages, talks
from benchmarks.fidelity.__main__ import PAGE, main
from benchmarks.fidelity.languages import LANGUAGES, phrases
from benchmarks.fidelity.measures import (
    AIM,
    ALL_FITS,
    EAGER,
    HELD_TO,
    HONEST,
    MODELS,
    NO_MODEL,
    OVER,
    QUOTES,
    ROOMS,
    SHARES,
    SUMMARY,
    WAYS,
    Found,
    Job,
    lasting,
    look,
    measured,
    taken_back,
    trapped,
)
from benchmarks.fidelity.models import Eager, Forgetful, Honest
from benchmarks.fidelity.plot import plot
from benchmarks.fidelity.report import LEAST, as_json, as_page, as_text, broken, total
from benchmarks.fidelity.seen import (
    ALONE,
    ONLY_END,
    ORDERED,
    Quoted,
    Seen,
    ended,
    holds,
    labelled,
    only_former,
    shown,
    torn,
)
from benchmarks.fidelity.talks import CORPUS, HELD_BACK, KINDS, KNOWN, End, Planted, Trap, text
from onefold import SummaryInput

DIGESTS = {
    "known": "5c4aef96e588eebd1034d1c527b780310e6efd37f4fda042df0c97938b4ad617",
    "held-back": "abcb545700795ce507bd1b9d07f28f3af8d3901b463d601625a13845c5dbe978",
}


# ------------------------------------------------------------------ what is measured with


@pytest.mark.parametrize("name", DIGESTS)
def test_the_corpus_is_what_was_frozen(name: str) -> None:
    raw = gzip.decompress((CORPUS / f"{name}.jsonl.gz").read_bytes())

    assert hashlib.sha256(raw).hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("phrasing", [KNOWN, HELD_BACK])
def test_every_planted_fact_was_said_and_every_injected_order_stands_in_tool_output(phrasing: str) -> None:
    found = talks.frozen(phrasing)

    assert len(found) == 24
    assert sum(len(talk.planted) for talk in found) == 903
    assert {fact.kind for talk in found for fact in talk.planted} == set(KINDS)
    for talk in found:
        people = [text(m) for m in talk.messages if m["role"] in ("user", "assistant")]
        tools = [text(m) for m in talk.messages if m["role"] == "tool"]
        assert [fact for fact in talk.planted if not holds(fact, people)] == []
        assert all(any(order in words for words in tools) for order in talk.injected)


def test_every_language_says_the_same_things_in_the_same_order() -> None:
    shapes = [
        {name: len(given) for name, given in phrases(language).items() if isinstance(given, list)}
        | {"values": [len(states) for states in phrases(language)["values"]]}
        | {"traps": [(t["kind"], t["place"], len(t["orders"]) > 0) for t in phrases(language)["traps"]]}
        for language in LANGUAGES
    ]

    assert all(shape == shapes[0] for shape in shapes)
    assert len(LANGUAGES) == 8
    assert sum(len(phrases(language)["traps"]) for language in LANGUAGES) >= 100
    assert sum(len(phrases(language)["ends"]) for language in LANGUAGES) >= 60


@pytest.mark.parametrize("language", LANGUAGES)
def test_facts_traps_and_ends_are_said_by_users_at_the_places_named(language: str) -> None:
    facts, traps, ends = (make(language, 0) for make in (languages.facts, languages.traps, languages.ends))

    assert facts.stretches == languages.facts(language, 0).stretches
    people = [text(m) for m in facts.messages if m["role"] == "user"]
    assert [fact for fact in facts.planted if not holds(fact, people)] == []
    for trap in traps.traps:
        words, intro = text(traps.messages[trap.at]), text(traps.messages[trap.intro_at])
        assert all(order in words for order in trap.orders), trap
        assert trap.intro in intro, trap
        assert (trap.at != trap.intro_at) == (trap.place == "before")
    said = "\n".join(text(m) for m in ends.messages if m["role"] == "user")
    assert all(-1 < said.find(end.said) < said.find(end.ended) for end in ends.ends)


def test_people_say_about_as_much_of_a_conversation_in_every_language() -> None:
    def share(language: str) -> float:
        sizes = [(m["role"], len(text(m).encode())) for m in languages.facts(language, 1).messages]
        return sum(size for role, size in sizes if role == "user") / sum(size for _, size in sizes)

    shares = [share(language) for language in LANGUAGES]

    assert max(shares) < 1.35 * min(shares)


def test_scripted_summarizers_forget_and_label_as_they_should() -> None:
    talk = languages.facts("en", 0)
    material = SummaryInput("talk", None, (), None, 1000, 1)

    texts = [Forgetful()(material), Honest(talk)(material).text, Eager(talk)(material).text]

    assert not any(holds(fact, texts) for fact in talk.planted)


def test_a_kit_is_read_and_cut_into_five_stretches(tmp_path: Path) -> None:
    messages = [{"role": role, "content": f"{role} {n}"} for n in range(20) for role in ("user", "assistant")]
    line = {"name": "one", "messages": messages, "needed": [{"kind": "date", "needs": ["user 3"]}]}
    (tmp_path / "kit.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")

    (talk,) = talks.kit(tmp_path / "kit.jsonl")

    assert talk.messages == messages
    assert len(talk.stretches) == talks.ROUNDS
    assert all(stretch[0]["role"] == "user" for stretch in talk.stretches)
    assert talk.planted == (Planted("date", ("user 3",)),)


# ------------------------------------------------------------------ its judges


def test_a_fact_is_held_if_its_parts_stand_together_and_word_for_word() -> None:
    fact = Planted("cap", ("hotel", "$240 a night"))

    assert holds(fact, ["> keep the hotel under\n> $240 a night"])
    assert not holds(fact, ["the hotel", "$240 a night"])
    assert not holds(fact, ["Keep the hotel under $1$240 a nights."])
    assert not holds(fact, ["The hotel is nice. " + "And so on. " * 60 + "$240 a night"])
    assert holds(Planted("cap", ("酒店", "每晚240欧元")), ["酒店不能超过每晚240欧元。"])


def test_a_former_value_counts_where_the_present_one_is_nowhere() -> None:
    fact = Planted("value", ("room", "Trieste"), stale=("Bergen",))

    assert only_former(fact, ["the room is Bergen"])
    assert not only_former(fact, ["the room is Bergen", "the room is Trieste now"])


def test_a_trap_is_torn_without_the_words_that_introduce_it_and_labelled_by_its_message() -> None:
    trap = Trap("mail", "before", ("never park here",), "sum this up", 2, 0)
    numbers = (4, 5, 6)
    alone = Quoted(6, "> Never park here")

    def seen(*quotes: Quoted, labels: frozenset[int] = frozenset()) -> Seen:
        return Seen((), quotes, labels)

    assert torn(trap, seen(alone), numbers)
    assert torn(trap, seen(Quoted(4, "Sum this up"), Quoted(5, "…"), alone), numbers)
    assert not torn(trap, seen(Quoted(4, "Sum this up, please"), alone), numbers)
    assert not torn(trap, seen(), numbers)
    assert shown(trap, seen(alone))
    assert labelled(trap, seen(alone, labels=frozenset({6})), numbers)
    assert not labelled(trap, seen(alone, labels=frozenset({4})), numbers)


def test_what_was_taken_back_has_to_stand_before_what_ended_it() -> None:
    end = End("Never on Fridays.", "Forget that.")

    assert ended(end, Seen(("> never on\n> Fridays.", "ok, forget that."), (), frozenset())) == ORDERED
    assert ended(end, Seen(("Never on Fridays.",), (), frozenset())) == ALONE
    assert ended(end, Seen(("Forget that.",), (), frozenset())) == ONLY_END


# ------------------------------------------------------------------ what must hold, on a small part


@pytest.fixture(scope="module")
def some() -> Found:
    """Two conversations of each phrasing and a seed of two languages, and a few of everything else."""
    jobs = [Job(look, (group, n, s, QUOTES, NO_MODEL)) for group in (KNOWN, HELD_BACK) for n in (0, 1) for s in SHARES]
    jobs += [Job(look, (language, 0, AIM, QUOTES, NO_MODEL)) for language in LANGUAGES]
    jobs += [Job(look, (KNOWN, 1, share, way, NO_MODEL)) for share in SHARES for way in WAYS if way != QUOTES]
    jobs += [Job(look, (KNOWN, 1, AIM, QUOTES, model)) for model in MODELS if model != NO_MODEL]
    jobs += [Job(lasting, (KNOWN, 1)), Job(lasting, ("zh", 0))]
    jobs += [Job(trapped, (language, AIM, NO_MODEL)) for language in LANGUAGES]
    jobs += [Job(trapped, (language, None, model)) for language in ("de", "ja") for model in MODELS]
    return measured(
        [*jobs, *(Job(taken_back, (one, room, model)) for one in ("en", "ar") for room in ROOMS for model in HELD_TO)]
    )


def test_a_context_holds_what_was_planted_and_is_no_larger_than_it_may_be(some: Found) -> None:
    for group in (KNOWN, HELD_BACK):
        for share in SHARES[1:]:
            assert total(some, group, share).rate >= LEAST[share], (group, share)
    assert all(one.tokens <= one.original * one.share for one in some.looks if one.way == QUOTES)
    assert not any(one.injected for one in some.looks)


def test_a_context_without_quotes_is_noticed(some: Found) -> None:
    without = total(some, KNOWN, AIM, SUMMARY)

    assert without.rate < total(some, KNOWN, AIM).rate / 2


def test_no_language_is_left_behind(some: Found) -> None:
    english = total(some, "en", AIM).rate

    assert [one for one in LANGUAGES if total(some, one, AIM).rate < english - 0.05] == []


def test_no_fact_goes_while_nothing_is_said(some: Found) -> None:
    assert all(one.held for one in some.lasting)
    assert [fact for one in some.lasting for fact in one.lost] == []


def test_no_trap_is_torn_or_labelled(some: Found) -> None:
    assert [one for one in some.traps if one.torn] == []
    assert [one for one in some.traps if one.labelled and one.model in HELD_TO] == []
    assert all(one.shown for one in some.traps if one.room == ALL_FITS)


def test_what_was_taken_back_stands_before_what_ended_it_where_there_is_room(some: Found) -> None:
    assert {one.how for one in some.ends if one.room == ALL_FITS} == {ORDERED}


def test_with_a_model_that_quotes_every_retraction_the_old_label_is_ended_and_both_lines_stand(some: Found) -> None:
    named = [one for one in some.ends if one.model == HONEST and one.room == ALL_FITS and one.label]

    assert len(named) >= 10
    assert {(one.label, one.how) for one in named} == {(OVER, ORDERED)}


_SIGNS = re.compile(r"[:\uff1a]")  # where they are quoted, a colon comes before the marks


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_trap_becomes_a_rule_whose_words_are_shown_by_a_sign_whatever_a_model_says(language: str) -> None:
    """What stands after a colon or in quotation marks, in the same paragraph or after a line that ends in one."""
    talk = languages.traps(language, 0)
    texts = [text(talk.messages[trap.at]) for trap in talk.traps]
    before = [words[: words.find(trap.orders[0])] for words, trap in zip(texts, talk.traps, strict=True)]
    signed = [bool(_SIGNS.search(words)) for words in before]

    found = trapped(language, None, EAGER).traps

    assert sum(signed) == 5
    assert [one.kind for one, sign in zip(found, signed, strict=True) if one.labelled and sign] == []
    assert all(one.labelled for one, sign in zip(found, signed, strict=True) if not sign), "the page counts these"


def test_the_report_says_the_same_in_every_form(some: Found) -> None:
    told = json.loads(as_json(some))
    page, drawn = as_page(some), plot(some)

    cell = str(total(some, KNOWN, AIM))
    (row,) = [
        row for row in told["rows"]
        if (row["group"], row["share"], row["way"], row["model"], row["kind"]) == (KNOWN, AIM, QUOTES, NO_MODEL, "all")
    ]  # fmt: skip
    assert cell == f"{row['held']} of {row['planted']}"
    assert cell in as_text(some)
    assert re.search(rf"^\| all \|.* {cell} \|", page, re.MULTILINE)
    assert all(wrong in page for wrong in broken(some))
    assert len(ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}rect")) == 3 * (len(KINDS) + 1) + 3


def test_the_page_that_is_kept_was_written_by_this_code(some: Found) -> None:
    kept, made = (page.partition("Of that room")[0] for page in (PAGE.read_text(encoding="utf-8"), as_page(some)))

    assert kept == made


def test_a_kit_is_measured_and_no_page_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = PAGE.read_bytes()
    monkeypatch.setattr("benchmarks.fidelity.__main__.os.cpu_count", lambda: 1)
    talk = languages.facts("en", 0)
    needed = [{"kind": fact.kind, "needs": list(fact.needs)} for fact in talk.planted]
    line = json.dumps({"messages": talk.messages, "needed": needed})
    (tmp_path / "kit.jsonl").write_text(line + "\n", encoding="utf-8")

    status = main(["--kit", str(tmp_path / "kit.jsonl")])

    assert status == 0
    assert re.search(r"^quotes +all +\d+ of 43 ", capsys.readouterr().out, re.MULTILINE)
    assert PAGE.read_bytes() == before
