"""What a message says, whatever format it came in: the one form that headers, search and conversion go by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from onefold.model import Header, Json

ANSWERS = frozenset({"assistant", "call", "reasoning"})
"""Roles of what a model says. Some formats have one message an answer; others a `call` or `reasoning` item each."""

_PER_MESSAGE = 4
_PER_MEDIA = 1000


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A model's reasoning. It belongs to the message after it, and no other provider takes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str
    """As JSON text."""


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, a sound, a file: shown to the model, not read by us."""

    kind: str
    url: str | None = None
    """A link or a data: URL, where there is one."""


Part: TypeAlias = Text | Thought | Call | Result | Media


@dataclass(frozen=True, slots=True)
class Said:
    role: str
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        """What a person would read in it."""
        return "\n".join(t for p in self.parts if not isinstance(p, Media) and (t := _read(p)))

    @property
    def spoken(self) -> str:
        """Its plain text alone."""
        return "\n".join(p.text for p in self.parts if isinstance(p, Text))

    def header(self) -> Header:
        tokens = _PER_MESSAGE + estimate(self.text)
        tokens += _PER_MEDIA * sum(1 for p in self.parts if isinstance(p, Media))
        closes = tuple(p.id for p in self.parts if isinstance(p, Result))
        opens = tuple(p.id for p in self.parts if isinstance(p, Call) and p.id not in closes)
        own = {p.id for p in self.parts if isinstance(p, Call)}
        return Header(self.role, tokens, opens, tuple(c for c in closes if c not in own))


def plain_header(role: str, text: str) -> Header:
    return Header(role, _PER_MESSAGE + estimate(text))


def estimate(text: str) -> int:
    """Tokens of a text, roughly: four bytes each, which errs on the safe side for prose in most languages."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def objects(value: Json) -> list[dict[str, Json]]:
    """The objects of a list, or nothing: formats grow, and what is not known is passed over."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def strings(*values: Json) -> Iterable[str]:
    return (v for v in values if isinstance(v, str))


def _read(part: Text | Thought | Call | Result) -> str:
    if isinstance(part, Call):
        return f"{part.name} {part.arguments}".strip()
    return part.text
