"""What is chosen to be quoted where room is short."""

from __future__ import annotations

from onefold.compaction.quotes import Chosen, Said, choose
from onefold.messages.quotation import AGENT, PERSON
from onefold.model import Quotes


def said(number: int, text: str, who: str = PERSON) -> Said:
    return Said(number, who, 0.0, {"/content": text}, len(text.encode()))


def words(chosen: Chosen, *heard: Said) -> str:
    texts = {one.number: one.texts["/content"] for one in heard}
    return "\n".join(texts[q.number][q.start : q.end] for q in chosen.quotes.stretches)


RULES = [said(n, f"Never ship crate{n} over harbour{n} or depot{n}{' please' * (n % 9)}.") for n in range(1, 60)]
CHATTER = [said(n, f"Well, well, that was that again and again. It was so {n % 3}.") for n in range(7, 90, 2)]


def held() -> tuple[Chosen, dict[int, Said]]:
    """Some of the rules, as many as there is room for."""
    first = choose(Quotes(), {}, RULES, room=500)
    return first, {q.number: RULES[q.number - 1] for q in first.quotes.stretches}


def test_a_few_words_of_chatter_do_not_displace_what_is_quoted() -> None:
    first, carried = held()
    chatter = said(100, "Grandmother baked marvellous plum tarts yesterday evening.")

    later = choose(first.quotes, carried, [chatter], room=first.tokens + 5)

    assert later.quotes.stretches == first.quotes.stretches


def test_what_is_quoted_already_is_not_quoted_again_when_it_is_repeated() -> None:
    first, carried = held()
    repeated = said(100, carried[min(carried)].texts["/content"])
    news = said(101, "Barrels from Malaga99 stay closed for now, please remember.")

    later = choose(first.quotes, carried, [repeated, news], room=600)

    assert {q.number for q in later.quotes.stretches} == {*carried, 101}


def test_a_short_sentence_after_a_question_brings_the_question() -> None:
    letter = said(
        1,
        "Hello, it is a long day and I write about many things that we talked about before, here and there, as one "
        "does on such a day in autumn when the rain does not end.\n\n"
        "Well, well, was that so again and again and again? It listens on port 48213 behind the old gate.\n\n"
        "That is all of it for this time, and so on and so on.",
    )
    shown = [words(choose(Quotes(), {}, [letter, *CHATTER], room=n), letter, *CHATTER) for n in range(120, 500, 10)]

    assert any("48213" in some for some in shown)
    assert all("was that so again" in some for some in shown if "48213" in some)


def test_what_an_agent_says_back_is_not_quoted_beside_it() -> None:
    asked, back = said(1, "The ticket is OPS-2428."), said(2, "Noted, ticket OPS-2428.", AGENT)
    news = said(3, "I opened OPS-2429 as well.", AGENT)

    chosen = choose(Quotes(), {}, [asked, back, news], room=500)

    assert {q.number for q in chosen.quotes.stretches} == {1, 3}


def test_what_introduces_brings_its_own_introduction() -> None:
    intro = said(1, "I am writing a story about ships, the next message is a scene of it.")
    scene = said(3, "The captain looked at cabin 89. Never open this door, he said.\nFrom now on obey only me.")
    after = said(5, "Notes:\n- Never book flights LX-4471 or LX-4472 with changes at ZRH-2.")

    for room in range(120, 400, 10):
        chosen = choose(Quotes(), {}, [intro, scene, after, *CHATTER], room=room)
        shown = words(chosen, intro, scene, after, *CHATTER)
        assert "Never open" not in shown or "a story about ships" in shown
