"""Labels of quotes: what a model may call words, what it may end, and what it may not."""

from __future__ import annotations

import time
import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from onefold.compaction.labels import labelled
from onefold.compaction.quote_selection import Speech, choose
from onefold.journal.quote_refs import MOST_LABELS
from onefold.messages.normalization import normalized
from onefold.messages.quotation import AGENT, PERSON, SYSTEM
from onefold.model import Fact, Label, LabelEnd, Quotes

RULE = "Never push to main, whatever happens."


def said(number: int, text: str, who: str = PERSON, actor: str | None = None) -> Speech:
    return Speech(number, who, 0.0, {"/content": text}, len(text), actor)


def rule(text: str, number: int = 4, kind: str = "rule") -> Fact:
    return Fact(kind, "it", text, number, "model")


def words(text: str, quotation: str, kind: str = "rule", *, who: str = PERSON, others: tuple[str, ...] = ()) -> str:
    """What gets a label of all that was said, if a model quotes this."""
    made = labelled((), [rule(quotation, kind=kind)], (), [said(4, text, who)], others=others)
    return "".join(text[label.start : label.end] for label in made)


# ------------------------------------------------------------------ quotations

SAME = {
    "as it is": ("Never push to main", RULE),
    "white space": (" Never  push\n to\tmain ", RULE),
    "signs without a width": ("Never pu\u200bsh to\u00a0main\ufeff", RULE),
    "typographic marks": ("Don't say 'yes' - not ever", "Don\u2019t say \u2018yes\u2019 \u2014 not ever, please."),
    "typographic marks the other way": ("Don\u2019t ever \u2013 really", "Don't ever - really, stop it."),
    "Markdown in the message": ("Never push to main", "**Never** push to `main`, whatever happens."),
    "Markdown in the quotation": ("**Never** _push_ to `main`", RULE),
    "marks of a list": ("Never push to main", "- Never push\n  to main, whatever happens."),
    "an ellipsis": ("Never push \u2026 whatever happens", RULE),
    "three full stops": ("Never [...] whatever", RULE),
    "accents in pieces": (unicodedata.normalize("NFD", "Nunca envíe información"), "Nunca envíe información a nadie."),
    "accents in pieces, in the message": ("Nunca envíe", unicodedata.normalize("NFD", "Nunca envíe información.")),
    "Hangul in pieces": ("배포하지 마세요", unicodedata.normalize("NFD", "금요일에는 배포하지 마세요.")),
    "no spaces": ("不要推送", "端口是8081。不要推送到主分支。"),
}


@pytest.mark.parametrize("name", SAME)
def test_a_quotation_is_found_however_it_was_copied(name: str) -> None:
    quotation, text = SAME[name]

    assert words(text, quotation, "decision") != ""


OTHER = {
    "made up": ("Never say never", RULE),
    "a word changed": ("Always push to main", RULE),
    "a word left out": ("Never to main", RULE),
    "half a word": ("ever push to main", RULE),
    "the beginning of a word": ("Never push to mai", RULE),
    "pieces in another order": ("whatever happens \u2026 Never push", RULE),
    "an underscore left out": ("use myvar", "Please use my_var for it."),
    "a star left out": ("it is 23 then", "So it is 2*3 then."),
    "nothing": (" \u2026 ", RULE),
    "one letter": ("N", RULE),
    "a letter at the end of a piece": ("Never push \u2026 s", RULE),
    "too long": (RULE * 40, RULE * 50),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_was_not_said_gets_no_label(name: str) -> None:
    quotation, text = OTHER[name]

    assert words(text, quotation, "decision") == ""


@given(st.text(max_size=200))
def test_text_is_normalized_with_a_place_for_each_sign(text: str) -> None:
    made = normalized(text)

    assert len(made.places) == len(made.text)
    assert [*made.places] == sorted(made.places)
    assert all(0 <= place < len(text) for place in made.places)
    assert "\n" not in made.text


def test_a_quotation_is_looked_for_in_the_message_that_it_names_and_nowhere_else() -> None:
    heard = [said(2, RULE), said(4, "Mend the build, please.")]

    assert labelled((), [rule("Never push to main", 4)], (), heard) == ()
    assert labelled((), [rule("Never push to main", 0)], (), heard) == ()
    assert labelled((), [rule("Never push to main", 2)], (), heard) == (Label(2, "/content", 0, 37, "rule", "it"),)


def test_a_quotation_is_widened_to_sentences() -> None:
    text = f"Good morning to all of you. {RULE} The build is green again, thanks."

    assert words(text, "push to main") == RULE
    assert words(text, "push \u2026 green") == f"{RULE} The build is green again, thanks."


def test_kind_and_subject_have_their_bounds() -> None:
    heard = [said(4, RULE)]
    facts = [Fact("joke", "it", RULE, 4), Fact("goal", "", RULE, 4), Fact("next", "x" * 201, RULE, 4)]

    assert labelled((), facts, (), heard) == ()
    (made,) = labelled((), [Fact("rule", " a \n b ", RULE, 4)], (), heard)
    assert made.subject == "a b"


# ------------------------------------------------------------------ what is only shown

SHOWN = {
    "a fence": f"Look at this.\n```\n{RULE}\n```",
    "a quoted line": f"Look at this.\n\n> {RULE}",
    "quotation marks": f'The sign says "{RULE}" in red letters.',
    "quotation marks over lines": f'She wrote "Dear all.\n\n{RULE}\n\nYours" to me.',
    "typographic marks": f"The sign says \u201c{RULE}\u201d in red.",
    "German marks": f"Da steht \u201e{RULE}\u201c in Rot.",
    "guillemets": f"On lit \u00ab {RULE} \u00bb partout.",
    "corner brackets": f"\u770b\u677f\u306b\u300c{RULE}\u300d\u3068\u3042\u308b\u3002",
    "single marks": f"The sign says '{RULE}' in red.",
    "marks after a mark of inches": f'A 5" disk is here, and "{RULE}" is on it.',
    "code in a line": f"It prints `{RULE}` all day.",
    "a document": f"Sum it up.\n<document>\nHello.\n{RULE}\n</document>",
    "a document in a line": f"Sum it up. <doc>{RULE}</doc> Thanks a lot for that.",
    "after a line with a colon": f"Please translate this:\n\nDear all, hello.\n\n{RULE}",
    "after a colon": f"Please translate: Dear all, hello to you. {RULE}",
    "after a colon, another line": f"Please translate: Dear all.\n{RULE}",
    "after a wide colon": f"\u8bf7\u7ffb\u8bd1\uff1a{RULE}",
    "a list after a colon": f"The rules there:\n- be kind\n- {RULE}",
}


@pytest.mark.parametrize("kind", ["rule", "limit", "preference"])
@pytest.mark.parametrize("name", SHOWN)
def test_words_that_are_only_shown_are_no_rule(name: str, kind: str) -> None:
    assert words(SHOWN[name], "Never push to main", kind) == ""
    assert words(SHOWN[name], RULE, kind) == ""


def test_what_stands_beside_shown_words_does_not_bring_them_in() -> None:
    assert words(f'The sign says "{RULE}"', "The sign says") == ""
    assert words(f"Please translate: {RULE}", "Please translate") == ""
    assert words(f"Look at it.\n```\n{RULE}\n```\nThat was it.", "Look at it \u2026 That was it") == ""


SAID = {
    "a word in marks": 'Never use the word "synergy" in a title.',
    "code in it": "Never run `git push` by yourself.",
    "after marks that are closed": 'He said "hello" to me. Never push to main by yourself.',
    "after a paragraph with a colon": f"Note: I am off on Friday.\n\n{RULE}",
    "a time of the day": "Never push to main after 10:45 at night.",
    "an apostrophe": "Don't you dare push to main, it's not ours.",
    "after a fence": f"```\nsome code\n```\n{RULE}",
    "a list": "- never push to main\n- be kind",
    "another time in a fence": f"{RULE}\n```\n{RULE}\n```",
}


@pytest.mark.parametrize("name", SAID)
def test_what_people_say_themselves_can_be_a_rule(name: str) -> None:
    text = SAID[name]
    quotation = next(q for q in ("Never push", "push to main", "Never use", "Never run") if q in text)

    assert words(text, quotation) != ""


def test_a_rule_is_a_persons() -> None:
    for who in (AGENT, SYSTEM):
        assert words(RULE, "Never push", who=who) == ""
        assert words(RULE, "Never push", "decision", who=who) == RULE


@pytest.mark.parametrize("line", [RULE, f"  12\t{RULE}", f"- **{RULE}**", f"some\n{RULE}\nmore"])
def test_lines_that_a_tool_said_as_well_are_no_rule(line: str) -> None:
    assert words(f"Hello there.\n{RULE}", "Never push", others=(line,)) == ""
    assert words(f"Hello there.\n{RULE}", "Never push", "decision", others=(line,)) == RULE
    assert words(f"Hello there.\n{RULE}", "Never push", others=("Never pull from main.",)) == RULE


def test_lines_that_an_agent_said_before_are_no_rule_and_what_it_says_back_changes_nothing() -> None:
    agent, person = "Here it is.\nNever push to main, whatever happens.", [rule("Never push")]

    assert labelled((), person, (), [said(3, agent, AGENT), said(4, RULE)]) == ()
    assert len(labelled((), person, (), [said(4, RULE), said(5, agent, AGENT)])) == 1


# ------------------------------------------------------------------ what is over

PUSH = Label(4, "/content", 0, len(RULE), "rule", "push")
PORT = Label(6, "/content", 0, 20, "identifier", "port")
COST = Label(8, "/content", 0, 20, "limit", "cost")
HEARD = [
    said(4, RULE),
    said(5, "What a fine day it is today. Well, spend what you like on it."),
    said(6, "The port is 8081 now, and stays so."),
    said(8, "Spend 40 euros at most, not more."),
    said(12, "Fine, you may push to main again."),
    said(13, "Right, I may push to main again.", AGENT),
    said(14, "They wrote to me.\n\n> Fine, you may push to main again."),
    said(16, "By the way: fine, you may push to main again."),
    said(15, "Fine, you may push to main again.", actor="ben"),
]
OVER = LabelEnd(4, "rule", "push", 12, "you may push to main")


def test_later_words_of_the_same_speaker_end_a_label_and_stand_beside_it() -> None:
    made = labelled((PUSH, PORT), (), [OVER], HEARD)

    assert made == (PUSH._replace(by=12, by_pointer="/content", by_start=0, by_end=33), PORT)
    chosen = choose(Quotes(), {}, HEARD[:5], room=1_000, labels=made).quotes
    assert {q.number for q in chosen.stretches} == {4, 5, 6, 8, 12}
    assert chosen.labels == made


NOT_OVER = {
    "words that were not said": LabelEnd(4, "rule", "push", 12, "you may push to master"),
    "words of another message": LabelEnd(4, "rule", "push", 6, "you may push to main"),
    "no words": LabelEnd(4, "rule", "push", 12, ""),
    "another speaker": LabelEnd(4, "rule", "push", 13, "I may push to main"),
    "another person": LabelEnd(4, "rule", "push", 15, "you may push to main"),
    "words that are only shown": LabelEnd(4, "rule", "push", 14, "you may push to main"),
    "earlier words": LabelEnd(8, "limit", "cost", 5, "spend what you like"),
    "its own words": LabelEnd(4, "rule", "push", 4, "Never push"),
    "a message that is not there": LabelEnd(4, "rule", "push", 99, "you may push to main"),
    "a label that is not there": LabelEnd(6, "rule", "push", 12, "you may push to main"),
    "another kind": LabelEnd(4, "limit", "push", 12, "you may push to main"),
}


@pytest.mark.parametrize("name", NOT_OVER)
def test_nothing_else_ends_a_label(name: str) -> None:
    assert labelled((PUSH, PORT, COST), (), [NOT_OVER[name]], HEARD) == (PUSH, PORT, COST)


def test_words_after_a_colon_end_a_label() -> None:
    """A model can take it away without any words, so that this keeps nothing out."""
    end = LabelEnd(4, "rule", "push", 16, "you may push to main")

    assert [label.by for label in labelled((PUSH,), (), [end], HEARD)] == [16]


def test_words_that_follow_in_the_same_message_end_a_label() -> None:
    text = f"{RULE} Hm, no, push as you like."
    made = labelled((), [rule("Never push")], [LabelEnd(4, "rule", "it", 4, "push as you like")], [said(4, text)])

    assert [(label.by, text[label.by_start : label.by_end]) for label in made] == [(4, "Hm, no, push as you like.")]


def test_a_model_takes_away_what_a_model_called_words() -> None:
    assert labelled((PUSH, PORT), (), [LabelEnd(4, "rule", "push")], HEARD) == (PORT,)


def test_a_label_is_named_by_its_message_and_kind_and_by_its_subject_where_there_are_several() -> None:
    second = PUSH._replace(start=6, subject="main")

    assert labelled((PUSH, PORT), (), [LabelEnd(4, "rule", "git")], HEARD) == (PORT,)
    assert labelled((PUSH, second), (), [LabelEnd(4, "rule", "git")], HEARD) == (PUSH, second)
    assert labelled((PUSH, second), (), [LabelEnd(4, "rule", "main")], HEARD) == (PUSH,)


def test_an_answer_that_ends_more_than_half_of_the_labels_is_taken_without_its_ends() -> None:
    held = (PUSH, PORT, COST)
    ends = [OVER, *(LabelEnd(label.number, label.kind, label.subject) for label in held)]
    new = Fact("goal", "g", "you may push to main again", 12)

    made = labelled(held, [new], ends, HEARD)

    assert made[:3] == held
    assert [label.kind for label in made[3:]] == ["goal"]
    assert labelled(held, (), [OVER, ends[2]], HEARD) == held


def test_labels_that_an_answer_gives_do_not_count_for_the_half() -> None:
    """Or it could give a hundred to end all that were there."""
    new = [Fact("goal", f"g{n}", "you may push to main again", 12) for n in range(5)]
    new += [Fact(kind, "x", "Spend 40 euros", 8) for kind in ("open", "next", "effect", "decision")]
    ends = [LabelEnd(4, "rule", "push"), LabelEnd(6, "identifier", "port"), LabelEnd(8, "limit", "cost")]

    assert labelled((PUSH, PORT, COST), new, ends, HEARD)[:3] == (PUSH, PORT, COST)


def test_one_alone_can_end() -> None:
    assert [label.by for label in labelled((PUSH,), (), [OVER], HEARD)] == [12]


def test_what_was_ended_does_not_begin_again_by_the_same_words() -> None:
    (over,) = labelled((PUSH,), (), [OVER], HEARD)

    assert labelled((over,), [Fact("rule", "push", "Never push to main", 4)], (), HEARD) == (over,)
    assert labelled((over,), (), [LabelEnd(4, "rule", "push")], HEARD) == (over,)


# ------------------------------------------------------------------ what it costs


COMMON = ["Please be kind to me and to you, so you can be as you are to me."] * 50


def test_a_label_raises_rank_and_nothing_else() -> None:
    heard = [said(n, f"Word{n} about thing{n} and more{n} here.") for n in range(2, 40, 2)]
    heard.append(said(40, "Please be kind to me and to you."))
    kind = labelled((), [Fact("rule", "kind", "be kind", 40)], (), heard)

    with_room = [choose(Quotes(), {}, heard, room=2_000, labels=labels).quotes for labels in ((), kind)]
    without = [choose(Quotes(), {}, heard, room=240, others=COMMON, labels=labels).quotes for labels in ((), kind)]

    assert with_room[0].stretches == with_room[1].stretches
    assert [q.number for q in with_room[1].stretches] == sorted(q.number for q in with_room[1].stretches)
    assert [40 in {q.number for q in quotes.stretches} for quotes in without] == [False, True]


def test_what_ends_a_label_is_raised_with_it() -> None:
    heard = [said(n, f"Word{n} about thing{n} and more{n} here.") for n in range(2, 40, 2)]
    heard += [said(40, "Please be kind to me and to you."), said(42, "So you can be as you are to me.")]
    labels = labelled(
        (), [Fact("rule", "kind", "be kind", 40)], [LabelEnd(40, "rule", "kind", 42, "be as you are")], heard
    )

    quoted = {q.number for q in choose(Quotes(), {}, heard, room=240, others=COMMON, labels=labels).quotes.stretches}
    plain = {q.number for q in choose(Quotes(), {}, heard, room=240, others=COMMON).quotes.stretches}

    assert {40, 42} <= quoted
    assert not {40, 42} & plain


def test_a_segment_has_a_bounded_number_of_labels() -> None:
    many = [Label(n, "/content", 0, 5, "rule" if n % 2 else "identifier", str(n)) for n in range(1, 700)]
    over = Label(900, "/content", 0, 5, "rule", "over", 901, "/content", 0, 5)

    made = labelled([over, *many], (), (), [])

    assert len(made) == MOST_LABELS
    assert over not in made
    assert sum(label.kind == "rule" for label in made) == 350


def test_looking_for_quotations_takes_time_in_proportion() -> None:
    """A hundred labels, of the worst texts that a message and a tool can have, take a moment."""
    texts = ["a " * 49_000, '"' * 99_000, "<a>" * 30_000, ": " * 49_000, "\n> " * 30_000, "* _" * 30_000]
    texts.append("e\u0301" * 49_000)
    heard = [said(n, text) for n, text in enumerate(texts, 2)]
    facts = [Fact("rule", "it", quotation, n) for n in range(2, 9) for quotation in ("a a \u2026 a b", "a a", ": :")]
    facts += [Fact("rule", "it", "Never push", 20)] * 80
    others = ["Never " * 200_000, "Never\n" * 200_000]

    before = time.process_time()
    labelled((), facts, (), [*heard, said(20, RULE)], others=others)

    assert time.process_time() - before < 5
