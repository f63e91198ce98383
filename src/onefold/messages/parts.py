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
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """A model's reasoning. It belongs to the message after it, and no other provider takes it."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """As JSON text."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    text: str
    failed: bool = False
    name: str = ""
    """Of the tool, where the call is at hand."""


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A picture, a sound, a file: shown to the model, not read by us."""

    kind: str
    url: str | None = None
    """A link or a data: URL, where there is one."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A text that came along: a file, a page, what a provider says of itself. It is read, and it is nobody's words."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class OpaquePart:
    """What only its provider can read, such as encrypted reasoning. It counts by its size."""

    tokens: int


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """What is known of a call before it is over. A result that says nothing itself is what was shown last."""

    id: str
    text: str
    arguments: str | None = None
    """What it was called with, where that was not known when it began."""


Part: TypeAlias = (
    TextPart | ReasoningPart | ToolCall | ToolResult | MediaPart | DocumentPart | OpaquePart | ToolProgress
)


@dataclass(frozen=True, slots=True)
class ParsedMessage:
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
        return "\n".join(p.text for p in self.parts if isinstance(p, TextPart))

    def header(self) -> Header:
        tokens = _PER_MESSAGE + estimate(self.text)
        tokens += _PER_MEDIA * sum(1 for p in self.parts if isinstance(p, MediaPart))
        tokens += sum(p.tokens for p in self.parts if isinstance(p, OpaquePart))
        called = [p.id for p in self.parts if isinstance(p, ToolCall)]
        answered = [p.id for p in self.parts if isinstance(p, ToolResult)]
        over, own = {*answered}, {*called}
        opens, closes = (id for id in called if id not in over), (id for id in answered if id not in own)
        return Header(self.role, tokens, tuple(opens), tuple(closes))


def merge_into_turns(said: Iterable[ParsedMessage]) -> list[ParsedMessage]:
    """The same as providers want it: an answer is one message with all its calls, and their results follow it. What
    says nothing is left out."""
    made: list[ParsedMessage] = []
    answer: list[Part] = []
    sources: list[Json] = []
    given: list[Part] = []  # what calls of this answer gave while it went on
    waiting: set[str] = set()

    def end() -> None:
        if answer:
            made.append(
                ParsedMessage("assistant", tuple(answer), sources[0] if len(sources) == 1 and not given else None)
            )
        if given:
            made.append(ParsedMessage("tool", tuple(_in_words(given) if waiting else given)))
        answer.clear()
        sources.clear()
        given.clear()
        waiting.clear()

    for one in map(_worded, _over(list(said))):
        if not one.parts:
            continue
        if one.role not in ANSWERS:
            if waiting and all(isinstance(p, ReasoningPart) for p in one.parts):
                continue  # news for clients, which parts no call from its result
            if answered := waiting & {p.id for p in one.parts if isinstance(p, ToolResult)}:
                given += one.parts
                waiting -= answered
                continue
            end()
            made.append(one)
            continue
        goes_on = one.role != "assistant" and any(isinstance(p, ToolCall) for p in one.parts)
        if not waiting and not goes_on:
            end()
        sources.append(one.source)
        brought = False  # by a result of this message
        for part in one.parts:
            if isinstance(part, ToolResult):
                given.append(part)
                waiting.discard(part.id)
                brought = True
                continue
            if brought and isinstance(part, MediaPart | OpaquePart):
                given.append(part)
                continue
            brought = False
            if given and not waiting:
                end()
                sources.append(None)  # a part of it
            answer.append(part)
            if isinstance(part, ToolCall):
                waiting.add(part.id)
    end()
    return made


def _in_words(given: list[Part]) -> list[Part]:
    """Results, with what came along told in their words: where others are due, nothing but results may stand before
    them."""
    told: list[Part] = []
    for part in given:
        if told and isinstance(last := told[-1], ToolResult) and isinstance(part, TextPart | MediaPart | DocumentPart):
            told[-1] = replace(last, text="\n".join(filter(None, (last.text, shown(part)))))
        elif not isinstance(part, OpaquePart):
            told.append(part)
    return told


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


def _worded(one: ParsedMessage) -> ParsedMessage:
    """Without texts that are nothing but white space."""
    if all(p.text.strip() for p in one.parts if isinstance(p, TextPart)):
        return one
    return ParsedMessage(one.role, tuple(p for p in one.parts if not isinstance(p, TextPart) or p.text.strip()))


def _over(said: list[ParsedMessage]) -> list[ParsedMessage]:
    """What was said of a call on its way, told by the call and its result alone."""
    if not any(isinstance(p, ToolProgress) for one in said for p in one.parts):
        return said
    told = [list(one.parts) for one in said]
    calls: dict[str, tuple[list[Part], int, ToolCall]] = {}
    shown: dict[str, str] = {}
    for parts in told:
        for j, part in enumerate(parts):
            match part:
                case ToolCall(id):
                    calls[id] = parts, j, part
                    shown.pop(id, None)
                case ToolProgress(id, text, arguments):
                    shown[id] = text or shown.get(id, "")
                    if arguments is not None and id in calls:
                        of, place, call = calls[id]
                        of[place] = replace(call, arguments=arguments)
                case ToolResult(id, ""):
                    parts[j] = replace(part, text=shown.get(id, ""))
    return [
        ParsedMessage(one.role, tuple(p for p in parts if not isinstance(p, ToolProgress)), one.source)
        for one, parts in zip(said, told, strict=True)
    ]


def shown(part: Part) -> str:
    """How a text, or what came along with one, is told in a format that has nothing else for it."""
    match part:
        case TextPart(text):
            return text
        case DocumentPart(text, name):
            return f"[{name}]\n{text}" if name and text else text or f"[{name}]"
        case MediaPart(kind):
            return f"[{kind}]"
    return ""


def _read(part: Part) -> str:
    match part:
        case MediaPart() | OpaquePart():
            return ""
        case DocumentPart():
            return shown(part)
        case ToolCall(_, name, arguments):
            return f"{name} {arguments}".strip()
        case ToolProgress(_, text, arguments):
            return f"{arguments or ''}\n{text}".strip()
    return part.text
