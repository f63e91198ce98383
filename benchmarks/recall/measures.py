"""Asks recall and plain full text every question of generated conversations, and counts what is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import onefold
from benchmarks.recall.baseline import FullText
from benchmarks.recall.conversations import Conversation, conversation
from benchmarks.recall.languages import Language
from onefold.recall import Recall
from onefold.recall.searchable_text import told

FEW, MANY = 5, 10


@dataclass(slots=True)
class Counted:
    """How many of some questions were answered among the first hits."""

    asked: int = 0
    few: int = 0
    many: int = 0

    def add(self, found: list[int], wanted: int) -> None:
        self.asked += 1
        self.few += wanted in found[:FEW]
        self.many += wanted in found[:MANY]

    @property
    def at_few(self) -> float:
        return 100 * self.few / self.asked

    @property
    def at_many(self) -> float:
        return 100 * self.many / self.asked


@dataclass(slots=True)
class Pair:
    """Recall, and plain full text beside it."""

    ours: Counted = field(default_factory=Counted)
    plain: Counted = field(default_factory=Counted)


Table = dict[tuple[str, str], Pair]
"""By language and kind of question."""


def measure(languages: Iterable[Language], seeds: Iterable[int]) -> Table:
    table: Table = {}
    chosen = [*seeds]
    for language in languages:
        for seed in chosen:
            _measure(language, conversation(language, seed), table)
    return table


def _measure(language: Language, made: Conversation, table: Table) -> None:
    now = [0.0]
    plain = FullText(language.stemmer)
    numbers: dict[str, int] = {}
    with onefold.open("memory:", clock=lambda: now[0]) as store:
        session = store.session("talk")
        for one in made.said:
            now[0] = one.at
            number = session.append(one.body).numbers[0]
            if one.asked is not None:
                numbers[one.asked] = number
        for record in session.read():
            if record.kind == "message":
                plain.add(record.number, f"{record.body.get('name', '')} {told(record)}")
        recall = Recall(store)
        recall.search("warm", patience=None)
        for question in made.questions:
            pair = table.setdefault((language.name, question.kind), Pair())
            found = recall.search(question.text, session="talk", limit=MANY, patience=None)
            pair.ours.add([hit.number for hit in found.hits], numbers[question.id])
            pair.plain.add(plain.search(question.text, MANY), numbers[question.id])


def together(pairs: Iterable[Pair]) -> Pair:
    """All of them as one."""
    all_of_them = Pair()
    for pair in pairs:
        for total, one in ((all_of_them.ours, pair.ours), (all_of_them.plain, pair.plain)):
            total.asked += one.asked
            total.few += one.few
            total.many += one.many
    return all_of_them
