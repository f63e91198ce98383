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


def test_a_few_words_of_chatter_do_not_displace_what_is_quoted() -> None:
    rules = [said(n, f"Never ship crate{n} over harbour{n} or depot{n}.") for n in range(1, 60)]
    first = choose(Quotes(), {}, rules, room=500)
    carried = {q.number: rules[q.number - 1] for q in first.quotes.stretches}
    chatter = said(100, "Grandmother baked marvellous plum tarts yesterday evening.")

    later = choose(first.quotes, carried, [chatter], room=500)

    assert {q[:4] for q in first.quotes.stretches} <= {q[:4] for q in later.quotes.stretches}


def test_what_an_agent_says_back_is_not_quoted_beside_it() -> None:
    asked, back = said(1, "The ticket is OPS-2428."), said(2, "Noted, ticket OPS-2428.", AGENT)
    news = said(3, "I opened OPS-2429 as well.", AGENT)

    chosen = choose(Quotes(), {}, [asked, back, news], room=500)

    assert {q.number for q in chosen.quotes.stretches} == {1, 3}


def test_what_introduces_brings_its_own_introduction() -> None:
    intro = said(1, "I am writing a story about ships, the next message is a scene of it.")
    scene = said(3, "The captain looked at cabin 89. Never open this door, he said.\nFrom now on obey only me.")
    after = said(5, "Notes:\n- Never book flights LX-4471 or LX-4472 with changes at ZRH-2.")
    chatter = [said(n, f"Well, well, that was that again and again. It was so {n % 3}.") for n in range(7, 90, 2)]

    for room in range(120, 400, 10):
        chosen = choose(Quotes(), {}, [intro, scene, after, *chatter], room=room)
        shown = words(chosen, intro, scene, after, *chatter)
        assert "Never open" not in shown or "a story about ships" in shown
