"""What a message says, whatever format it came in: the one form that headers, search and conversion go by."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from onefold.model import Header, Json

AGENT = "agent"
"""The role of what an agent streams while it works: its tools run meanwhile, several at once."""

ANSWERS = frozenset({"assistant", "call", "reasoning", AGENT})
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
    name: str = ""
    """Of the tool, where the call is at hand."""


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, a sound, a file: shown to the model, not read by us."""

    kind: str
    url: str | None = None
    """A link or a data: URL, where there is one."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text that came along: a file, a page, what a provider says of itself. It is read, and it is nobody's words."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What only its provider can read, such as encrypted reasoning. It counts by its size."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a call before it is over. A result that says nothing itself is what was shown last."""

    id: str
    text: str
    arguments: str | None = None
    """What it was called with, where that was not known when it began."""


Part: TypeAlias = Text | Thought | Call | Result | Media | Document | Sealed | Progress


@dataclass(frozen=True, slots=True)
class Said:
    role: str
    parts: tuple[Part, ...] = ()
    source: Json = field(default=None, compare=False, repr=False)
    """The message that says this and nothing else, where it is at hand."""

    @property
    def text(self) -> str:
        """What a person would read in it."""
        return "\n".join(t for p in self.parts if (t := _read(p)))

    @property
    def spoken(self) -> str:
        """Its plain text alone."""
        return "\n".join(p.text for p in self.parts if isinstance(p, Text))

    def header(self) -> Header:
        tokens = _PER_MESSAGE + estimate(self.text)
        tokens += _PER_MEDIA * sum(1 for p in self.parts if isinstance(p, Media))
        tokens += sum(p.tokens for p in self.parts if isinstance(p, Sealed))
        called = [p.id for p in self.parts if isinstance(p, Call)]
        answered = [p.id for p in self.parts if isinstance(p, Result)]
        over, own = {*answered}, {*called}
        opens, closes = (id for id in called if id not in over), (id for id in answered if id not in own)
        return Header(self.role, tokens, tuple(opens), tuple(closes))


def in_turn(said: Iterable[Said]) -> list[Said]:
    """The same as providers want it: an answer is one message with all its calls, and their results follow it. What
    says nothing is left out."""
    made: list[Said] = []
    answer: list[Part] = []
    sources: list[Json] = []
    given: list[Part] = []  # what calls of this answer gave while it went on
    waiting: set[str] = set()

    def end() -> None:
        if answer:
            made.append(Said("assistant", tuple(answer), sources[0] if len(sources) == 1 and not given else None))
        if given:
            made.append(Said("tool", tuple(given)))
        answer.clear()
        sources.clear()
        given.clear()
        waiting.clear()

    for one in map(_worded, _over(list(said))):
        if not one.parts:
            continue
        if one.role not in ANSWERS:
            if waiting and all(isinstance(p, Thought) for p in one.parts):
                continue  # news for clients, which parts no call from its result
            if answered := waiting & {p.id for p in one.parts if isinstance(p, Result)}:
                given += one.parts
                waiting -= answered
                continue
            end()
            made.append(one)
            continue
        goes_on = one.role != "assistant" and any(isinstance(p, Call) for p in one.parts)
        if not waiting and not goes_on:
            end()
        sources.append(one.source)
        brought = False  # by a result of this message
        for part in one.parts:
            if isinstance(part, Result):
                given.append(part)
                waiting.discard(part.id)
                brought = True
                continue
            if brought and isinstance(part, Media | Sealed):
                given.append(part)
                continue
            brought = False
            if given and not waiting:
                end()
                sources.append(None)  # a part of it
            answer.append(part)
            if isinstance(part, Call):
                waiting.add(part.id)
    end()
    return made


@functools.lru_cache(2048)
def plain_header(role: str, words: int) -> Header:
    """The header of a message that is nothing but words of so many tokens. Made once for all of a size: most messages
    are short, and there are very many."""
    return Header(role, _PER_MESSAGE + words)


def estimate(text: str) -> int:
    """Tokens of a text, roughly: four bytes each, which errs on the safe side for prose in most languages."""
    return ((len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) + 3) // 4


def objects(value: Json) -> list[dict[str, Json]]:
    """The objects of a list, or nothing: formats grow, and what is not known is passed over."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def plain_words(body: Json, roles: Container[str]) -> bool:
    """Whether a message is a role and a text, or a list of text blocks, and nothing else: several formats say it so."""
    if not isinstance(body, dict) or body.keys() != {"role", "content"}:
        return False
    role, content = body["role"], body["content"]
    if not isinstance(role, str) or role not in roles:
        return False
    if isinstance(content, list):
        return bool(content) and all(_text_block(block) for block in content)
    return isinstance(content, str) and bool(content.strip())


def _text_block(block: Json) -> bool:
    known = (
        isinstance(block, dict) and block.get("type") == "text" and block.keys() <= {"type", "text", "cache_control"}
    )
    return known and isinstance(block.get("text"), str) and bool(block["text"].strip())


def strings(*values: Json) -> Iterator[str]:
    return (v for v in values if isinstance(v, str))


def _worded(one: Said) -> Said:
    """Without texts that are nothing but white space."""
    if all(p.text.strip() for p in one.parts if isinstance(p, Text)):
        return one
    return Said(one.role, tuple(p for p in one.parts if not isinstance(p, Text) or p.text.strip()))


def _over(said: list[Said]) -> list[Said]:
    """What was said of a call on its way, told by the call and its result alone."""
    if not any(isinstance(p, Progress) for one in said for p in one.parts):
        return said
    told = [list(one.parts) for one in said]
    calls: dict[str, tuple[list[Part], int, Call]] = {}
    shown: dict[str, str] = {}
    for parts in told:
        for j, part in enumerate(parts):
            match part:
                case Call(id):
                    calls[id] = parts, j, part
                    shown.pop(id, None)
                case Progress(id, text, arguments):
                    shown[id] = text or shown.get(id, "")
                    if arguments is not None and id in calls:
                        of, place, call = calls[id]
                        of[place] = replace(call, arguments=arguments)
                case Result(id, ""):
                    parts[j] = replace(part, text=shown.get(id, ""))
    return [
        Said(one.role, tuple(p for p in parts if not isinstance(p, Progress)), one.source)
        for one, parts in zip(said, told, strict=True)
    ]


def shown(part: Part) -> str:
    """How a text, or what came along with one, is told in a format that has nothing else for it."""
    match part:
        case Text(text):
            return text
        case Document(text, name):
            return f"[{name}]\n{text}" if name and text else text or f"[{name}]"
        case Media(kind):
            return f"[{kind}]"
    return ""


def _read(part: Part) -> str:
    match part:
        case Media() | Sealed():
            return ""
        case Document():
            return shown(part)
        case Call(_, name, arguments):
            return f"{name} {arguments}".strip()
        case Progress(_, text, arguments):
            return f"{arguments or ''}\n{text}".strip()
    return part.text
