"""What a conversation can be about: the things that people in it state, ask for and look up."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that has a value: a budget, a port, a door code."""

    name: str
    """As in a sentence, with its article: "the hotel budget"."""
    short: str
    """The words that must stand beside the value, or it could be anything's."""
    values: tuple[str, ...]
    """What it may be; a pattern for `fill` each."""

    @property
    def bare(self) -> str:
        return self.name.removeprefix("the ").removeprefix("our ").removeprefix("my ")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two things that are easily taken for each other, with values that differ by a digit or two."""

    one: Thing
    other: Thing
    pattern: str


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    argument: str
    output: Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    system: str
    forbidden: tuple[tuple[str, str], ...]
    """What must not be done, as "push to main" and as "pushing to main"."""
    required: tuple[str, ...]
    """What must be done, as "run the linter before you commit"."""
    preferences: tuple[tuple[str, str], ...]
    """What somebody likes, and what rather not."""
    caps: tuple[Thing, ...]
    codes: tuple[Thing, ...]
    paths: tuple[str, ...]
    values: tuple[Thing, ...]
    pairs: tuple[Pair, ...]
    tools: tuple[Tool, ...]
    requests: tuple[str, ...]
    """What the user asks for."""
    chatter: tuple[str, ...]
    """What the user says besides; no sentence of it is worth carrying."""
    prose: tuple[str, ...]
    """What the assistant says while it works."""


def fill(rng: Random, pattern: str) -> str:
    """A string of a pattern: # is a digit, ^ a capital letter, % a hexadecimal digit. No number begins with a zero."""
    made = ""
    for sign in pattern:
        if sign == "#":
            made += rng.choice(string.digits if made[-1:].isdigit() or made[-1:] == "." else string.digits[1:])
        elif sign == "^":
            made += rng.choice("ABCDEFGHJKLMNPQRTUVWXYZ")
        elif sign == "%":
            made += rng.choice("0123456789abcdef")
        else:
            made += sign
    return made


def look_alike(rng: Random, text: str) -> str:
    """The same with two neighbouring signs swapped, or one digit changed: as people misread it."""
    places = [n for n in range(1, len(text)) if text[n - 1].isalnum() and text[n].isalnum() and text[n - 1] != text[n]]
    swaps = [n for n in places if text[n - 1].isdigit() and text[n].isdigit() and text[n] != "0"]
    if swaps and rng.random() < 0.6:
        n = rng.choice(swaps)
        return text[: n - 1] + text[n] + text[n - 1] + text[n + 1 :]
    digits = [n for n, sign in enumerate(text) if sign.isdigit()]
    n = digits[-1]
    return text[:n] + rng.choice([d for d in string.digits[1:] if d != text[n]]) + text[n + 1 :]
