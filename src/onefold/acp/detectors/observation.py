"""What a detector is given and what it returns: the types that all detectors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from onefold.acp.line_reader import StderrLine
from onefold.jsonrpc import Frame
from onefold.model import Json

PROTOCOL = 4
METADATA = 3
STDERR = 2
GUESS = 1

STRENGTHS: Mapping[str, int] = {
    "acp": PROTOCOL,
    "hermes.meta": METADATA,
    "qwen.meta": METADATA,
    "vibe.meta": METADATA,
    "vibe.tool": METADATA,
    "hermes.stderr": STDERR,
    "qwen.text": GUESS,
    "text": GUESS,
    "usage": GUESS,
    "usage.meta": GUESS,
}
"""The sources there are, and how much each is worth."""

LONGEST_SUMMARY = 1 << 20
"""Characters; what an agent tells beyond that is cut off."""
_EVIDENCE = 200


class FromAgent(NamedTuple):
    """A frame from the agent."""

    frame: Frame


class ToAgent(NamedTuple):
    """A frame to the agent, as it goes over its wire."""

    frame: Frame


Event: TypeAlias = FromAgent | ToAgent | StderrLine
What: TypeAlias = Literal["started", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One detector's report of one compaction."""

    what: What
    source: str
    evidence: str
    """What was seen, in short, for people."""
    act: str | None = None
    """The agent's own id of the compaction, if the detector names one."""
    old: str | None = None
    new: str | None = None
    """The agent's own session ids where they rotate: the one before, and the one from now on."""
    summary: str | None = None
    before: int | None = None
    after: int | None = None
    """Tokens."""
    automatic: bool | None = None
    """Whether the agent began by itself; None if the detector cannot tell."""
    cause: str | None = None
    """Why it failed."""
    backed_by: tuple[str, ...] = ()
    """Other sources that say the same at this moment, such as a usage that fell while a command was answered."""
    replayed: bool = False
    """Told while a session was loaded: it is about the past."""

    @property
    def strength(self) -> int:
        return STRENGTHS[self.source]

    @property
    def kind(self) -> str:
        """Detectors of one kind share their ids, and confirm each other rather than compete."""
        return kind(self.source)

    @property
    def key(self) -> str | None:
        """The act's id, told apart from those of other kinds."""
        return f"{self.kind}:{self.act}" if self.act is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedText:
    """A text that grows by chunks, and is not copied for each: who has an older one does not see the newer parts."""

    parts: list[str] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, text: str) -> ChunkedText:
        if not text or self.size >= LONGEST_SUMMARY:
            return self
        parts = self.parts if len(self.parts) == self.count else self.parts[: self.count]
        parts.append(text)
        return ChunkedText(parts, self.count + 1, self.size + len(text))

    def __str__(self) -> str:
        return "".join(self.parts[: self.count])[:LONGEST_SUMMARY]

    def __bool__(self) -> bool:
        return self.count > 0


def kind(source: str) -> str:
    return source.partition(".")[0]


def short(text: str) -> str:
    """Evidence: one line, and not long."""
    line = " ".join(text.split())
    return line if len(line) <= _EVIDENCE else line[: _EVIDENCE - 1] + "…"


def text_of(content: Json) -> str:
    """The text of a content block, or of a list of them."""
    blocks = content if isinstance(content, list) else [content]
    texts = (b.get("text") for b in blocks if isinstance(b, dict) and b.get("type") == "text")
    return "".join(t for t in texts if isinstance(t, str))


def mapping(value: Json) -> dict[str, Json]:
    """An object, or an empty one for anything else: an agent may send what it likes."""
    return value if isinstance(value, dict) else {}


def word(value: Json) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
