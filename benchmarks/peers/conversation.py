"""The conversation that every store is given, and what a store under test can do. Nothing here needs a framework.

Each text begins with a mark of its own, such as `[m0007]`, so that what is lost or doubled can be told by looking.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MESSAGES = 4
"""Of one exchange: a question, a call, its result, an answer."""
SESSION = "the-conversation"
SUMMARY = "[summary]"
TOOL = "read_file"

_TEXT = (
    "the build fails on the second machine because its cache holds a file from the branch we left last week and "
    "nobody cleared it after the rename so the linker takes an old symbol table for the new one while the tests of "
    "the parser pass with either since they never touch the part that moved between both modules in that commit"
)
_WORDS = _TEXT.split(" ")
_MARK = re.compile(r"\[m\d{4,}\]")

Summarize = Callable[[], Awaitable[str]]
"""What stands in for the model that writes a summary. It counts how often it is asked, and so paid."""


@dataclass(frozen=True)
class Exchange:
    """What one turn of an agent leaves: four messages, with a call and its result among them."""

    number: int
    question: str
    path: str
    result: str
    answer: str
    note: str

    @property
    def call(self) -> str:
        return f"call_{self.number}"


@dataclass(frozen=True)
class Left:
    """What a store gives to somebody who opens it."""

    context: list[str]
    """What the next call of the model would be sent, a text each, in order."""
    stored: list[str]
    """Every text that is to be had from the store, by whatever way it offers."""
    held: float = 0.0
    """Seconds for which nobody else can compact, because the dead one's lease or lock is still in force."""


class Store(Protocol):
    """A store that takes a conversation message by message, or run by run where its framework writes that way."""

    async def open(self, folder: Path) -> None: ...
    async def say(self, exchange: Exchange) -> None: ...
    async def load(self) -> int: ...
    async def close(self) -> None: ...
    def settings(self) -> str: ...


class Compacts(Protocol):
    """A store with a compaction of its own, as its framework drives it."""

    async def fill(self, folder: Path, exchanges: Sequence[Exchange]) -> None: ...
    async def say(self, folder: Path, turn: Exchange) -> None:
        """What comes before the compaction, where that is a call of its own."""

    async def compact(self, folder: Path, turn: Exchange, summarize: Summarize) -> None: ...
    async def left(self, folder: Path) -> Left: ...
    async def go_on(self, folder: Path, turn: Exchange, summarize: Summarize) -> None: ...


def exchanges(count: int, *, first: int = 0, seed: int = 7) -> Iterator[Exchange]:
    """The same conversation every time: about 600 bytes a message, and results of tools that vary most."""
    chance = random.Random(seed + first)
    for number in range(first, first + count):
        at = number * MESSAGES
        yield Exchange(
            number,
            question=f"{mark(at)} {_words(chance, 8, 60)}",
            path=f"src/module_{chance.randrange(400)}/part_{chance.randrange(40)}.py",
            note=f"{mark(at + 1)} {_words(chance, 4, 24)}",
            result=f"{mark(at + 2)} {_words(chance, 20, 460)}",
            answer=f"{mark(at + 3)} {_words(chance, 20, 140)}",
        )


def mark(number: int) -> str:
    return f"[m{number:04}]"


def marks(texts: Sequence[str]) -> list[str]:
    """The marks that texts carry, in order, as often as they carry them."""
    return [found for text in texts for found in _MARK.findall(text)]


def _words(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(chance.randint(least, most)))


@dataclass
class Meter:
    """Counts what is asked of the model that summarises, also by processes that do not come back."""

    path: Path
    on_call: Callable[[], None] = field(default=lambda: None)

    async def __call__(self) -> str:
        with self.path.open("a") as calls:
            calls.write("asked\n")
        self.on_call()
        return f"{SUMMARY} All of it was about a build that fails."

    @property
    def asked(self) -> int:
        return len(self.path.read_text().splitlines()) if self.path.exists() else 0
