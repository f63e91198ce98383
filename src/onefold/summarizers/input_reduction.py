"""Makes a long conversation fit the model that summarises it: prunes, then splits it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from onefold.compaction.prompt import PromptMessage
from onefold.messages.codecs import estimate

_WHOLE = 3
"""So many of the newest results stay as they are: the agent is at work with them."""
_PER_MESSAGE = 12


def size(records: Iterable[PromptMessage]) -> int:
    """Tokens that messages take in a prompt, roughly: with number and role, and every further line indented."""
    return sum(_PER_MESSAGE + estimate(r.text) + r.text.count("\n") // 2 for r in records)


def pruned(records: Sequence[PromptMessage], results: Collection[int], keep: int) -> tuple[PromptMessage, ...]:
    """Messages whose old tool results keep so many tokens each: their beginning and their end. `results` says, by
    number, which messages are results."""
    newest = set(islice((r.number for r in reversed(records) if r.number in results), _WHOLE))
    return tuple(_short(r, keep) if r.number in results and r.number not in newest else r for r in records)


def squeezed(records: Sequence[PromptMessage], room: int) -> tuple[PromptMessage, ...]:
    """Messages that take so many tokens together, if that can be had: the longest ones are shortened to one length."""
    if size(records) <= room:
        return tuple(records)
    least, most = 0, room
    while least < most:
        keep = (least + most + 1) // 2
        if sum(min(size([r]), keep) for r in records) <= room:
            least = keep
        else:
            most = keep - 1
    return tuple(_short(r, max(1, least - _PER_MESSAGE)) for r in records)


def split(records: Sequence[PromptMessage], room: int) -> list[tuple[PromptMessage, ...]]:
    """Messages in order, in parts that take so many tokens each. One that is longer than that is cut to pieces."""
    parts: list[tuple[PromptMessage, ...]] = []
    part: list[PromptMessage] = []
    left = room
    for piece in (p for r in records for p in _pieces(r, room)):
        needs = size([piece])
        if part and needs > left:
            parts.append(tuple(part))
            part, left = [], room
        part.append(piece)
        left -= needs
    return [*parts, tuple(part)] if part else parts


def _pieces(record: PromptMessage, room: int) -> Iterable[PromptMessage]:
    if size([record]) <= room:
        return [record]
    width = max(64, (room - _PER_MESSAGE) * 2)  # characters: as many tokens as fit even where most are of two bytes
    text, texts = record.text, []
    while len(text) > width:
        at = text.rfind("\n", width // 2, width) + 1 or width
        texts.append(text[:at])
        text = text[at:]
    texts.append(text)
    return [
        PromptMessage(record.number, f"{record.role} (piece {n} of {len(texts)})", t) for n, t in enumerate(texts, 1)
    ]


def _short(record: PromptMessage, keep: int) -> PromptMessage:
    if size([record]) <= keep + _PER_MESSAGE:
        return record
    raw = record.text.encode("utf-8", "replace")
    room = keep * 4
    head = raw[: room * 2 // 3].decode("utf-8", "ignore")
    tail = raw[len(raw) - room // 3 :].decode("utf-8", "ignore")
    gone = len(record.text) - len(head) - len(tail)
    return (
        PromptMessage(record.number, record.role, f"{head}\n[… {gone:,} characters left out …]\n{tail}")
        if gone > 60
        else record
    )
