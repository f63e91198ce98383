"""What makes a summary: any callable. One that needs no model is here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from onefold.messages import codec
from onefold.model import Fact, Json, Record, Summary


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """What a summarizer is given: the summary in force, and every message since that will be cut."""

    session: str
    previous: str | None
    records: tuple[Record, ...]
    instructions: str | None
    max_tokens: int
    attempt: int
    facts: tuple[Fact, ...] = ()
    """What was called a rule, a limit and so on before, in words that are quoted next to the summary."""
    refused: str | None = None
    """Why the attempt before this one failed: its summary was rejected, or its model did not answer."""
    stopped: Callable[[], bool] = bool
    """Whether nobody wants the summary any more: worth a look between two calls of a model."""

    @property
    def messages(self) -> list[Json]:
        return [r.body for r in self.records]

    def text(self, record: Record) -> str:
        """What a person would read in a message."""
        return codec(record.format or "json").text(record.body)


Made: TypeAlias = str | Summary
Summarizer: TypeAlias = Callable[[SummaryInput], Made | Awaitable[Made]]


def extractive_summary(material: SummaryInput) -> Summary:
    """A summary without a model: the old one shortened, then the beginnings of what was said. Always the same."""
    room = material.max_tokens * 4
    lines: list[str] = []
    if material.previous:
        lines += ["Earlier:", _shorten(material.previous.replace("Earlier:\n", ""), room // 3), "Then:"]
    said = [(r, " ".join(material.text(r).split())) for r in material.records]
    left = room - sum(_size(line) + 1 for line in lines)
    width = max(24, left // max(1, len(said)) - 16)
    for record, text in said:
        role = record.header.role if record.header else "other"
        line = f"- {role} (#{record.number}): {_shorten(text, width)}"
        left -= _size(line) + 1
        if left < 0:
            lines.append(f"- … up to #{material.records[-1].number}")
            break
        lines.append(line)
    return Summary("\n".join(lines), by="extract")


extractive_summary.deterministic = True  # type: ignore[attr-defined]


def always_says_the_same(summarizer: Summarizer) -> bool:
    """Whether a summarizer says of itself that the same material gives the same summary (`deterministic = True`): then
    one that was rejected is not asked for again until there is something else to summarise."""
    return bool(getattr(summarizer, "deterministic", False))


def call(summarizer: Summarizer, material: SummaryInput) -> Summary:
    """Calls a summarizer of either colour from a thread of its own, and takes its answer in either shape."""
    made = summarizer(material)
    if isinstance(made, Awaitable):
        import asyncio  # 60 ms that a caller without coroutines need not pay

        made = asyncio.run(_awaited(made))
    if isinstance(made, str):
        return Summary(made)
    if isinstance(made, Summary):
        return made
    raise TypeError(f"a summarizer returns a str or a Summary, not a {type(made).__name__}")


def budget(removed: int, wanted: int) -> int:
    """How long a summary may be, so that it is worth having."""
    return max(16, min(wanted, removed // 3))


async def _awaited(made: Awaitable[Made]) -> Made:
    return await made


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _shorten(text: str, size: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= size else raw[: max(0, size - 3)].decode("utf-8", "ignore") + "…"
