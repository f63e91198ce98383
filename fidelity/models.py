"""Summarizers from a script: each writes well and remembers nothing that was planted. Two of them label what they see,
one as it is, one everything as a rule."""

from __future__ import annotations

import re

from fidelity.talks import Talk
from onefold import Fact, Material, Summary

_LABELS = {
    "rule": "rule", "cap": "limit", "preference": "preference",
    "code": "identifier", "path": "identifier", "value": "identifier", "pair": "identifier",
}  # fmt: skip
"""What a model would call each kind of planted fact."""

_TEXTS = (
    (
        "The conversation opened with introductions and a first round of questions. The user described the "
        "situation in broad strokes, and the assistant looked around with its tools, reported what it saw, and "
        "suggested where to begin. Several points were settled along the way, and both sides agreed to continue "
        "step by step."
    ),
    (
        "Work continued in good spirits. A number of lookups were made, some of them twice, and their output was "
        "discussed in detail. The user gave further guidance on how things ought to be done, which the assistant "
        "acknowledged. Nothing was left hanging when this part ended."
    ),
    (
        "Most of the latest exchanges were about tidying up. Open ends were collected, answers given, and the plan "
        "for the coming days was reviewed. Both agreed that the essentials were in place and that the rest could "
        "be handled as it comes up."
    ),
)


class Forgetful:
    """Another fluent text each time, whatever it is given; the summary before it is not carried on either."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self, material: Material) -> str:
        text = _TEXTS[self._made % len(_TEXTS)]
        self._made += 1
        return text


_ENDS = re.compile(r"(?<=[.!?。！？؟])\s*|\n+")  # noqa: RUF001  signs of many scripts


class Honest:
    """Forgets as well, but names each planted fact that is in front of it, in the words that were said."""

    def __init__(self, talk: Talk) -> None:
        self._facts = [(_LABELS[fact.kind], said) for fact in talk.planted for said in fact.said]
        self._forgetful = Forgetful()

    def __call__(self, material: Material) -> Summary:
        found = [
            Fact(kind, said, said, record.number, by="model")
            for record in material.records
            for kind, said in self._facts
            if said in material.text(record)
        ]
        return Summary(self._forgetful(material), by="model", facts=tuple(found))


class Eager:
    """Calls every sentence of every user's message a rule, whatever it is."""

    def __init__(self) -> None:
        self._forgetful = Forgetful()

    def __call__(self, material: Material) -> Summary:
        found = [
            Fact("rule", sentence, sentence, record.number, by="model")
            for record in material.records
            if record.header is not None and record.header.role == "user"
            for sentence in _sentences(material.text(record))
        ]
        return Summary(self._forgetful(material), by="model", facts=tuple(found))


def _sentences(words: str) -> list[str]:
    return [part.strip() for part in _ENDS.split(words) if len(part.strip()) > 3]
