"""The recorded conversations: messages as they were sent, and what later steps need of earlier results."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from onefold.model import Json

RECORDED = Path(__file__).with_name("conversations.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Need:
    """A line that a later message uses, and that stands in one earlier result alone. Both by their places."""

    result: int
    use: int
    lag: int
    """How many results lie between."""
    cue: str
    """What whoever needs it knows of it."""
    line: str


@dataclass(frozen=True, slots=True)
class Talk:
    name: str
    about: str
    messages: Sequence[Json]
    needs: tuple[Need, ...]

    @property
    def calls(self) -> int:
        """How often the model is asked."""
        return sum(m["role"] == "assistant" for m in self.messages)


@cache
def talks() -> tuple[Talk, ...]:
    """All of them. What a tool answered is stored once for all sessions, so a message names it and its lines."""
    texts: dict[str, list[str]] = {}
    made: list[Talk] = []
    for line in gzip.decompress(RECORDED.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if "text" in row:
            texts[row["text"]] = row["lines"]
        else:
            needs = tuple(Need(**need) for need in row["needs"])
            made.append(Talk(row["talk"], row["about"], expanded(row["messages"], texts), needs))
    return tuple(made)


def expanded(messages: Sequence[Json], texts: Mapping[str, Sequence[str]]) -> list[Json]:
    return [{**m, "content": _lines(m["content"], texts)} if isinstance(m["content"], dict) else m for m in messages]


def _lines(of: Json, texts: Mapping[str, Sequence[str]]) -> str:
    lines = texts[of["of"]][of["from"] : of["to"]]
    if of["numbered"]:
        lines = [f"{n:5}\t{line}" for n, line in enumerate(lines, of["from"] + 1)]
    return "\n".join(lines)
