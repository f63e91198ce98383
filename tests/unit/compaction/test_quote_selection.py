"""What is chosen to be quoted where room is short."""

from __future__ import annotations

from onefold.compaction.quote_selection import Chosen, Speech, choose
from onefold.compaction.rarity import Rarity
from onefold.messages.quotation import AGENT, PERSON
from onefold.model import Quotes


def said(number: int, text: str, who: str = PERSON) -> Speech:
    return Speech(number, who, 0.0, {"/content": text}, len(text.encode()))


def words(chosen: Chosen, *heard: Speech) -> str:
    texts = {one.number: one.texts["/content"] for one in heard}
    return "\n".join(texts[q.number][q.start : q.end] for q in chosen.quotes.stretches)


RULES = [said(n, f"Never ship crate{n} over harbour{n} or depot{n}{' please' * (n % 9)}.") for n in range(1, 60)]
CHATTER = [said(n, f"Well, well, that was that again and again. It was so {n % 3}.") for n in range(7, 90, 2)]


def held() -> tuple[Chosen, dict[int, Speech]]:
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


SETTLED = [
    said(1, "What do we have for the first author at the moment?"),
    said(3, "It has to be Kenji, they told me just now."),
    *(said(n, f"The sample {word} goes into the {word} drawer, and so it stays.") for n, word in
      zip(range(5, 45, 2), ("amber", "basalt", "copper", "dolomite", "emerald", "feldspar", "garnet", "halite",
                            "iron", "jasper", "kyanite", "lignite", "marble", "nickel", "onyx", "pyrite", "quartz",
                            "rutile", "silver", "topaz"), strict=True)),
]  # fmt: skip


def small_talk(number: int) -> Speech:
    """Words that nobody said before, and no name or value among them."""
    words = ("".join(chr(97 + (number * k * k + 7 * j * k) % 26) for j in range(4 + k % 4)) for k in range(2, 10))
    return said(number, " ".join(words) + ".")


def rounds(first: Chosen, heard: list[Speech], *, room: int, many: int = 15) -> tuple[Chosen, list[Speech]]:
    """So many rounds with three messages of small talk in each."""
    now = first
    for turn in range(many):
        idle = [small_talk(100 + 10 * turn + 2 * n) for n in range(3)]
        heard = [*heard, *idle]
        quoted = {q.number for q in now.quotes.stretches}
        now = choose(now.quotes, {s.number: s for s in heard if s.number in quoted}, idle, room=room)
    return now, heard


def test_small_talk_displaces_nothing_when_messages_stop_fitting_whole() -> None:
    first = choose(Quotes(), {}, SETTLED, room=700)
    assert all(q.score == 0 for q in first.quotes.stretches), "all of it fits, whole"

    last, heard = rounds(first, SETTLED, room=700)

    assert any(q.score for q in last.quotes.stretches), "the choosing went over to sentences"
    assert {one.number for one in SETTLED} <= {q.number for q in last.quotes.stretches}
    assert "first author" in words(last, *heard)


def test_what_is_left_out_at_the_end_costs_no_quote_however_much_it_is() -> None:
    for room in range(300, 420):
        first = choose(Quotes(), {}, RULES, room=room)
        last, _ = rounds(first, RULES, room=room, many=4)
        assert {*first.quotes.stretches} <= {*last.quotes.stretches}, room
        assert last.tokens <= room


def test_a_name_takes_the_place_of_less_also_where_little_is_said() -> None:
    first = choose(Quotes(), {}, SETTLED, room=700)
    settled, heard = rounds(first, SETTLED, room=700)
    carried = {q.number: s for q in settled.quotes.stretches for s in heard if s.number == q.number}
    news = said(900, "Key K-7741 opens depot D-22, gate G-31 and vault V-8.")

    later = choose(settled.quotes, carried, [news], room=700)

    assert 900 in {q.number for q in later.quotes.stretches}


def test_words_that_are_said_now_and_then_count_little_beside_one_that_is_said_once() -> None:
    often, once = "heating neighbour cinema soup rain coffee cold lake", "zinc tubs"
    rarity = Rarity((*[often] * 10, once, *["and so on"] * 39), (), 0)
    rarity.narrow([often, once])

    assert rarity.of(once) > rarity.of(often)


def test_an_answer_at_length_is_one_in_every_script() -> None:
    """As many bytes of an answer as make one in English: what was said before it is no introduction."""
    asked = said(1, "週末からずっと雨が降っています。")
    answer = said(2, "届いたものにすべて目を通し、日付順に並べました。ほとんどは前回と同じで、順番が少し違うだけです。"
                  "二つの項目が重複しているようです。", AGENT)  # fmt: skip
    news = said(3, "コーヒーメーカーがまた音を立てます。予約番号はXY-4471-Kです。"
                "写真は/srv/media/fair-12/rawに入れてください。娘は今週、宇宙飛行士になりたいそうです。")  # fmt: skip
    chatter = [said(n, "それでは、また後で話しましょう。そうですね。") for n in range(11, 90, 2)]

    shown = [choose(Quotes(), {}, [asked, answer, news, *chatter], room=room) for room in range(130, 260, 10)]

    quoted = [{q.number for q in chosen.quotes.stretches if q.score > 0} for chosen in shown]
    first = next(some for some in quoted if 3 in some)
    assert 1 not in first


def test_what_was_quoted_whole_stands_when_messages_are_taken_apart() -> None:
    settled = [said(n, " ".join(f"{a}{chr(96 + n)}st" for a in ("ba", "lo", "mi", "fu"))) for n in range(1, 24, 2)]
    room = next(n for n in range(100, 900) if not choose(Quotes(), {}, settled, room=n).quotes.marks[0])
    first = choose(Quotes(), {}, settled, room=room)
    idle = [small_talk(100 + 2 * n) for n in range(4)]

    later = choose(first.quotes, {one.number: one for one in settled}, idle, room=room)

    assert later.quotes.marks[0], "not all of it fits any more"
    assert {one.number for one in settled} <= {q.number for q in later.quotes.stretches}


def test_the_less_is_said_the_more_it_has_to_be_worth() -> None:
    told = [said(n, f"And so it is b{chr(96 + n)}st by now, and so on it goes.") for n in range(1, 26)]
    first = choose(Quotes(), {}, told, room=400)
    carried = {q.number: one for q in first.quotes.stretches for one in told if one.number == q.number}
    assert first.quotes.marks[0]

    later = choose(first.quotes, carried, [small_talk(200)], room=400)

    assert {*first.quotes.stretches} <= {*later.quotes.stretches}
