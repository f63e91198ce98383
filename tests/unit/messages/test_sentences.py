"""Taking texts apart into sentences, whatever they are made of: what a stop is, and that it takes no time."""

from __future__ import annotations

import time

import pytest

from onefold.compaction.rarity import is_identifier, names
from onefold.messages.sentences import pieces


def said(text: str) -> list[str]:
    return [text[p.start : p.end] for p in pieces(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Use version 3.5 of the package here. Then write it all to notes.txt in full.", 2),
        ("It is done, as far as I can see. and it goes on without an end here.", 1),
        ("Is that what you want from me here?! Then say so, please, once more...", 2),
        ("これは一つ目のとても長い文です。これは二つ目のとても長い文です。", 2),
        ("What does it say here, then?。これは二つ目のとても長い文です。", 2),
        ("1. The first thing that is to be done here. The second thing follows it.", 2),
    ],
)
def test_where_sentences_end(text: str, sentences: int) -> None:
    assert len(said(text)) == sentences


@pytest.mark.parametrize("sign", [".", "!", "?.", "…", "。", "?。", ".」"])
def test_a_long_row_of_signs_takes_no_time(sign: str) -> None:
    text = sign * 20_000 + "a"
    began = time.process_time()

    assert "".join(said(text)) == text
    assert time.process_time() - began < 5


@pytest.mark.parametrize("sentence", ["It is done.", "Nothing, then (or so they say)!", "go on", "Don't do it."])
def test_plain_words_are_no_names(sentence: str) -> None:
    assert not names(sentence)
    assert not any(is_identifier(word) for word in sentence.split())


@pytest.mark.parametrize("sentence", ["See a/b.", "It is 5.", "Use fooBar.", "Ask the API team.", "Look at x.py", "²"])
def test_names_and_values_are_seen_among_plain_words(sentence: str) -> None:
    assert names(sentence)
