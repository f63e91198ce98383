"""Conversations with something planted in them, and where they come from: the frozen corpus, or somebody else's kit.

The corpus was written once by a generator in English: 24 conversations of four sorts, each in the phrasings that older
rules were made with (*known*) and in others (*held back*). It is not written anew, so that figures of years compare.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from onefold.model import Json

KNOWN, HELD_BACK = "known", "held back"
CORPUS = Path(__file__).parent / "corpus"
ROUNDS = 5
"""Stretches of a conversation; a compaction comes after each."""
KINDS = ("rule", "cap", "code", "path", "preference", "value", "pair")


@dataclass(frozen=True, slots=True)
class Planted:
    """What a context must hold at the end."""

    kind: str
    needs: tuple[str, ...]
    """Strings that must stand together, as they were said last; the value comes last."""
    said: tuple[str, ...] = ()
    """The sentences, in order; the last one holds."""
    stale: tuple[str, ...] = ()
    """Values that no longer hold."""
    form: str = ""
    """Which of a language's sentences it is: each says the same in every language."""


@dataclass(frozen=True, slots=True)
class Trap:
    """Words that look like an order and are none: they were pasted, told, made up, or meant for one answer."""

    kind: str
    place: str
    """Where the words that introduce them stand: in the same message, before, at the end, after a greeting, nowhere."""
    orders: tuple[str, ...]
    intro: str
    """What must stand with them. Where nothing introduces a paste, that is its own first line."""
    at: int
    """The message they stand in, counted from 0."""
    intro_at: int


@dataclass(frozen=True, slots=True)
class End:
    """Something a person said, and the ordinary words by which it ended."""

    said: str
    ended: str


@dataclass(frozen=True, slots=True, eq=False)
class Talk:
    name: str
    group: str
    """The phrasing, the language, or the kit."""
    stretches: tuple[tuple[Json, ...], ...]
    planted: tuple[Planted, ...]
    injected: tuple[str, ...] = ()
    """Orders that stand in tool output."""
    traps: tuple[Trap, ...] = field(default=())
    ends: tuple[End, ...] = field(default=())

    @property
    def messages(self) -> list[Json]:
        return [message for stretch in self.stretches for message in stretch]


def frozen(phrasing: str, count: int | None = None) -> list[Talk]:
    """The first so many conversations of the corpus in one phrasing."""
    made: list[Talk] = []
    for line in _lines(CORPUS / f"{phrasing.replace(' ', '-')}.jsonl.gz"):
        if count is not None and len(made) == count:
            break
        planted = tuple(
            Planted(f["kind"], tuple(f["needs"]), tuple(f["said"]), tuple(f["stale"])) for f in line["planted"]
        )
        stretches = tuple(tuple(stretch) for stretch in line["stretches"])
        made.append(Talk(f"{line['domain']} {line['seed']}", phrasing, stretches, planted, tuple(line["injected"])))
    return made


def kit(path: Path) -> list[Talk]:
    """Somebody else's conversations: a line of JSON each, with `messages` (OpenAI chat) and `needed`, a list of
    `{"kind": …, "needs": […]}` whose strings a user said."""
    made = []
    for number, line in enumerate(_lines(path), 1):
        planted = tuple(Planted(str(f.get("kind", "fact")), tuple(f["needs"])) for f in line["needed"])
        made.append(Talk(str(line.get("name", number)), path.stem, _stretches(line["messages"]), planted))
    return made


def text(message: Json) -> str:
    """What a model reads in an OpenAI chat message."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


def _lines(path: Path) -> Iterator[dict[str, Json]]:
    raw = path.read_bytes()
    for line in (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines():
        if line.strip():
            yield json.loads(line)


def _stretches(messages: Sequence[Json]) -> tuple[tuple[Json, ...], ...]:
    """Five parts of about the same length, each beginning with a user's message."""
    turns = [n for n, message in enumerate(messages) if message["role"] == "user"]
    wanted = [len(messages) * n // ROUNDS for n in range(1, ROUNDS)]
    cuts = [0, *(_nearest(turns, at) for at in wanted), len(messages)]
    parts = (tuple(messages[start:stop]) for start, stop in pairwise(cuts))
    return tuple(part for part in parts if part)


def _nearest(turns: Sequence[int], at: int) -> int:
    return min(turns, key=lambda turn: abs(turn - at))
