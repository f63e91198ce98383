"""What choosing quotes does not look at, since it would make no difference."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.compaction import quote_selection
from onefold.compaction.quote_material import _some
from onefold.compaction.quote_selection import Speech, choose
from onefold.compaction.quote_sizes import Sizes, Unit
from onefold.compaction.rarity import Rarity
from onefold.journal.quote_refs import read
from onefold.messages.codecs import estimate
from onefold.messages.context_text import quotes_block
from onefold.messages.quotation import AGENT, PERSON, SYSTEM, Quotation, Utterance, gaps
from onefold.messages.sentences import pieces
from onefold.model import Gap, Label, Quotes

_WORDS = ["the", "a", "of", "and", "it", "to", "in", "is", "that", "was", "for", "on", "so", "we", "as"]
_WORDS += [f"{c}o{c}a{n}"[: 3 + n % 5] for n in range(9) for c in "klmnprst"]
_ODD = ["src/a.py", "camelCase", "HTTP", "don't", "3.5", "v1.2.3", "a@b.de", "#42", "x::y", "No."]
_FOREIGN = ["na\u00efve", "Stra\u00dfe", "\u4eca\u65e5\u306f", "$5"]


def talk(seed: int) -> list[list[Speech]]:
    """Some rounds of a conversation: things said again, with other values or in the same words, names and lists."""
    chance = random.Random(seed)
    plain, before = seed % 3 > 0, ["So it is."]
    number = 0

    def sentence() -> str:
        if chance.random() < 0.2:
            return " ".join(str(chance.randrange(99)) if w.isdigit() else w for w in chance.choice(before).split(" "))
        some = [chance.choice(_WORDS[: chance.choice((5, 20, 99))]) for _ in range(chance.randint(2, 14))]
        if chance.random() < 0.3:
            some.append(chance.choice(_ODD if plain else _ODD + _FOREIGN))
        if chance.random() < 0.3:
            some.insert(2, str(chance.randrange(10**4)))
        if chance.random() < 0.01:
            some.append("x" * 300 + str(chance.randrange(9)))
        before.append(" ".join(some).capitalize() + chance.choice(".....?!:"))
        return before[-1]

    rounds = []
    for _ in range(4):
        said = []
        for _ in range(chance.choice((5, 40))):
            number += chance.choice((1, 1, 3))
            who = chance.choice((PERSON, PERSON, AGENT, AGENT, SYSTEM if chance.random() < 0.05 else PERSON))
            text = chance.choice((" ", " ", "\n", "\n- ")).join(sentence() for _ in range(chance.choice((1, 2, 2, 5))))
            said.append(Speech(number, who, 86_400.0 * (number // 20), {"/content": text}, len(text.encode())))
        rounds.append(said)
    return rounds


def chosen(rounds: list[list[Speech]], room: int) -> list[quote_selection.Chosen]:
    known: dict[int, Speech] = {}
    made = [quote_selection.Chosen(Quotes(), 0)]
    for said in rounds:
        before = made[-1].quotes
        carried = {q.number: known[q.number] for q in before.stretches}
        known |= {one.number: one for one in said}
        labels = [Label(said[0].number, "/content", 0, 5, "rule", "it")] if room % 2 else []
        others = [one.words[::-1] for one in said[::3]]
        made.append(choose(before, carried, said, room=room, others=others, labels=labels))
    return made


@given(st.integers(0, 10**6), st.sampled_from((140, 201, 300, 601, 1_500)))
def test_what_is_not_looked_at_would_not_have_been_chosen(seed: int, room: int) -> None:
    rounds = talk(seed)
    with (
        patch.object(Rarity, "most", return_value=float("inf")),
        patch.object(quote_selection, "_rarest", return_value=None),
    ):
        expected = chosen(rounds, room)

    assert chosen(rounds, room) == expected


@given(st.integers(0, 10**6), st.integers(0, 900))
def test_what_is_quoted_never_exceeds_its_room_and_has_the_size_that_is_told(seed: int, room: int) -> None:
    rounds = talk(seed)
    heard = {one.number: Utterance(one.number, one.who, one.at, one.texts) for said in rounds for one in said}

    for made in chosen(rounds, room):
        written = read(made.quotes, (), (), heard)
        assert made.tokens == written.tokens <= room


@given(st.text(st.sampled_from('ab Z1.!?)"<:\n\t-,'), max_size=60) | st.text(st.characters(max_codepoint=127)))
def test_plain_text_has_the_same_sentences_as_any_other(text: str) -> None:
    beside = pieces(f"{text}\n\n\u00e9")

    assert [p[:2] for p in pieces(text)] == [p[:2] for p in beside if p.end <= len(text)]


texts = st.text(st.sampled_from("ab \n>é。\ud800"), min_size=1, max_size=30)


@given(
    st.dictionaries(
        st.integers(1, 60),
        st.tuples(st.sampled_from((PERSON, AGENT, SYSTEM)), st.floats(0, 4e5), texts, st.booleans(), st.booleans()),
        min_size=1,
    ),
    st.lists(st.tuples(st.integers(1, 70), st.integers(1, 200))),
    st.sampled_from(((), ("rule",), ("règle", "limit"))),
)
def test_a_size_is_that_of_what_is_written(
    messages: dict[int, tuple[str, float, str, bool, bool]], before: list[tuple[int, int]], kinds: tuple[str, ...]
) -> None:
    numbers = sorted(messages)
    people = [n for n in numbers if messages[n][0] == PERSON]
    there = [n for n in numbers if messages[n][3]]
    earlier = [Gap(first, first, many) for first, many in before]

    def line(number: int, _: object) -> Quotation | None:
        who, at, text, _, shown = messages[number]
        return Quotation(number, who, at, text, kinds) if shown else Quotation(number, who, at, "", kinds, 12_345)

    units: list[Unit] = [(n, "/content", 0, 1) for n in there]
    missing = gaps([*earlier, *(Gap(n, n, 1) for n in people if n not in there)], there)
    written = quotes_block([q for n in there if (q := line(n, ())) is not None], missing)

    assert Sizes(numbers, people, earlier).of(units, line) == (estimate(written) if there else 0)


@pytest.mark.parametrize("many", [1, 2])
def test_what_is_quoted_of_a_message_may_be_nothing(many: int) -> None:
    there = [Quotation(n, PERSON, 0.0, "yes") for n in range(many)]
    sizes = Sizes(range(10), range(10), ())

    size = sizes.of([(n, "", 0, 1) for n in range(5)], lambda n, _: there[n] if n < many else None)

    assert size == estimate(quotes_block(there, gaps((Gap(n, n, 1) for n in range(5, 10)), range(5))))


@pytest.mark.parametrize(("many", "length", "some"), [(200, 9, 200), (201, 9, 101), (10_000, 9, 200), (600, 4_000, 67)])
def test_how_rare_words_are_is_told_by_some_texts_from_everywhere(many: int, length: int, some: int) -> None:
    texts = [f"{n:0{length}}" for n in range(many)]

    taken = [int(text) for text in _some(texts)]

    assert len(taken) == some
    assert taken[-1] >= many - many // some - 1, "the last ones count as the first ones do"
