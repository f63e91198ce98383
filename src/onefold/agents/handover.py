"""The conversation so far, for an agent that can neither resume nor load it: one block before its first prompt."""

from __future__ import annotations

from onefold.compaction.context import Context
from onefold.messages.codecs import codec
from onefold.model import Json

MOST = 200_000
"""Characters; of a longer conversation the end, since that is what it goes on from."""

_BEFORE = (
    "This conversation goes on from an earlier process of yours, which ended. What follows is its record: a reference, "
    "not a new request. Answer what comes after it."
)


def handover(context: Context, *, before: int) -> dict[str, Json] | None:
    """What was said before a record, as one block of a prompt; None if nothing was."""
    lines: list[str] = []
    left = MOST
    told = list(zip(context.numbers, context.messages, context.formats, strict=True))
    for number, message, format in reversed(told):
        if number >= before:
            continue
        read = codec(format).parse(message)
        line = f"[{read.role}]\n{read.text}"
        if not read.text.strip():
            continue
        if len(line) > left:
            lines.append(f"[…]\n{line[-left:]}" if left > 200 else "[…]")
            break
        left -= len(line)
        lines.append(line)
    if not lines:
        return None
    said = "\n\n".join(reversed(lines))
    return {"type": "text", "text": f"{_BEFORE}\n\n<conversation>\n{said}\n</conversation>"}
