"""Summarizers from a script: each writes well and remembers nothing that was planted. Two of them label what they see:
one as it is, and what is taken back as over; the other every trap as a rule, or every sentence if there are none."""

from __future__ import annotations

import re
from itertools import cycle

from benchmarks.fidelity.talks import Talk
from onefold import Fact, LabelEnd, Summary, SummaryInput

_LABELS = {
    "rule": "rule", "cap": "limit", "preference": "preference",
    "code": "identifier", "path": "identifier", "value": "identifier", "pair": "identifier",
}  # fmt: skip
"""What a model would call each kind of planted fact."""

_TEXTS = """\
The conversation opened with introductions and a first round of questions. The user described the situation in broad
strokes, and the assistant looked around with its tools, reported what it saw, and suggested where to begin. Several
points were settled along the way, and both sides agreed to continue step by step.

Work continued in good spirits. A number of lookups were made, some of them twice, and their output was discussed in
detail. The user gave further guidance on how things ought to be done, which the assistant acknowledged. Nothing was
left hanging when this part ended.

Most of the latest exchanges were about tidying up. Open ends were collected, answers given, and the plan for the coming
days was reviewed. Both agreed that the essentials were in place and that the rest could be handled as it comes up.
"""


class Forgetful:
    """Another fluent text each time, whatever it is given; the summary before it is not carried on either."""

    def __init__(self) -> None:
        self._texts = cycle(" ".join(text.split()) for text in _TEXTS.split("\n\n"))

    def __call__(self, material: SummaryInput) -> str:
        return next(self._texts)


_ENDS = re.compile(r"(?<=[.!?。！？؟])\s*|\n+")  # noqa: RUF001  signs of many scripts


class Honest:
    """Forgets as well, but names each planted fact that is in front of it, and each end of one, in the words that were
    said."""

    def __init__(self, talk: Talk) -> None:
        self._facts = [(_LABELS[fact.kind], said) for fact in talk.planted for said in fact.said]
        self._ends = talk.ends
        self._at: dict[str, int] = {}
        self._forgetful = Forgetful()

    def __call__(self, material: SummaryInput) -> Summary:
        told = [(record.number, material.text(record)) for record in material.records]
        said = [*self._facts, *(("rule", end.said) for end in self._ends)]
        found = [Fact(kind, words, words, n, by="model") for n, text in told for kind, words in said if words in text]
        self._at |= {fact.key: fact.source for fact in found}
        ends = [
            LabelEnd(self._at[end.said], "rule", end.said, n, end.ended)
            for n, text in told
            for end in self._ends
            if end.ended in text and self._at.get(end.said, n) < n
        ]
        return Summary(self._forgetful(material), by="model", facts=tuple(found), ends=tuple(ends))


class Eager:
    """Calls every trap in users' messages a rule, and where there are none every sentence, whatever it is."""

    def __init__(self, talk: Talk) -> None:
        self._orders = [order for trap in talk.traps for order in trap.orders]
        self._forgetful = Forgetful()

    def __call__(self, material: SummaryInput) -> Summary:
        found = [
            Fact("rule", words, words, record.number, by="model")
            for record in material.records
            if record.header is not None and record.header.role == "user"
            for words in self._orders or _sentences(material.text(record))
            if words in material.text(record)
        ]
        return Summary(self._forgetful(material), by="model", facts=tuple(found))


def _sentences(words: str) -> list[str]:
    return [part.strip() for part in _ENDS.split(words) if len(part.strip()) > 3]
