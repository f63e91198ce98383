"""Request parameters and bodies, with their bounds. Anything else is answered with 422."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from onefold.errors import OnefoldError
from onefold.journal.checks import check_name
from onefold.journal.pins_and_notes import NOTE_LIMIT
from onefold.messages.codecs import FORMATS
from onefold.model import ForkKind, Json, Slot
from onefold.server.error_responses import BadCursor

LAST = (1 << 32) - 1
"""The highest number that a record can have."""


def _named(name: str) -> str:
    try:
        check_name("id", name)
    except OnefoldError:
        raise ValueError("use 1 to 512 printable characters") from None
    return name


def _format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"there is no such format; there are {', '.join(sorted(FORMATS))}")
    return name


Name: TypeAlias = Annotated[str, AfterValidator(_named), Field(min_length=1, max_length=512)]
Number: TypeAlias = Annotated[int, Field(ge=0, le=LAST)]
Format: TypeAlias = Annotated[str, AfterValidator(_format), Field(json_schema_extra={"enum": sorted(FORMATS)})]
Words: TypeAlias = Annotated[str, Field(max_length=20_000)]

SessionParam: TypeAlias = Annotated[Name, Query(description="The session's id, or any other it is known by.")]
AnySession: TypeAlias = Annotated[Name | None, Query(description="The session's id; without it, all sessions.")]
LimitParam: TypeAlias = Annotated[int, Query(ge=1, le=LAST, description="At most so many; the server has a bound too.")]
AfterParam: TypeAlias = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]
Order: TypeAlias = Literal["oldest", "newest"]
History: TypeAlias = Literal["none", "segment", "all"]


class Body(BaseModel):
    """A field that is not known is a mistake, and is said to be one."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AppendBody(Body):
    messages: Any = Field(description="One message, or a list of them: all are written, or none is.")
    key: Name | None = Field(default=None, description="The same key again writes nothing and gives the same numbers.")
    format: Format | None = None
    actor: Name | None = None
    queue: bool = Field(default=False, description="Keeps one message as an input until a turn takes it.")
    slot: Slot | None = Field(
        default=None, description="`prompt`: these system and developer messages are the system prompt from here on."
    )


class NoteBody(Body):
    kind: Annotated[Name, Field(max_length=100)]
    text: Annotated[str, Field(max_length=NOTE_LIMIT)]
    key: Name | None = None
    actor: Name | None = None
    source: list[Number] = Field(default=[], max_length=1_000)


class PinBody(Body):
    number: Number
    actor: Name | None = None


class UndoBody(Body):
    """Names what the client saw, so that nobody takes back what they have not seen."""

    seen: Number = Field(description="The newest record that the client has seen: `last` of what it attached to.")
    head: Number = Field(description="The segment in force that it saw.")
    to: Number | None = Field(
        default=None, description="Back to this record, rather than to before the user's last message."
    )
    dry_run: bool = Field(default=False, description="Says what it would do, and does nothing.")


class RedoBody(Body):
    seen: Number
    head: Number
    dry_run: bool = False


class UnfoldBody(Body):
    """Names the segment in force that the client saw: what it was told of the cost is of that one."""

    head: Number
    segment: Number | None = Field(
        default=None, description="The segment that the compaction opened; by default the newest that fits."
    )
    dry_run: bool = Field(default=False, description="Says what it would cost in tokens, and does nothing.")


class MaskBody(Body):
    """Names the segment in force that the client saw."""

    head: Number
    numbers: list[Number] = Field(
        default=[], description="The results to show as one line; by default old large ones, as the policy says."
    )
    dry_run: bool = Field(default=False, description="Says what it would save in tokens, and does nothing.")


class ForkBody(Body):
    kind: ForkKind = "branch"
    at: Number | None = None
    id: Name | None = None


class CompactBody(Body):
    instructions: Words | None = None
    wait: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=0.0, description="Seconds to wait for its end; the server has a bound too."
    )
    head: Number | None = Field(
        default=None, description="The segment that the client saw; if it is not in force, nothing."
    )
    summarizer: Name | None = Field(default=None, description="One of /api/summarizers; else the server's usual one.")


class DraftBody(Body):
    """Names the segment in force that the client saw."""

    head: Number
    instructions: Words | None = None
    summarizer: Name | None = Field(default=None, description="One of /api/summarizers; else the server's usual one.")


class TakeBody(Body):
    draft: Name


class PromptBody(Body):
    text: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    key: Name | None = Field(default=None, description="The same key again is the same prompt.")
    steer: bool = Field(default=False, description="Ends the turn that runs, and comes before all that waits.")


class UnqueueBody(Body):
    input: Number = Field(description="The number of the prompt that waits.")


class AnswerBody(Body):
    question: Name
    answer: Any = Field(description="What the agent gets as the result of its question.")


class VerifyBody(Body):
    fix: bool = False


def write_cursor(*parts: Json) -> str:
    """Where a page ended, for the next one. Nobody but this server reads it."""
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The parts of a cursor, each of the kind it has to be."""
    if cursor is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        parts = orjson.loads(raw)
    except (ValueError, binascii.Error):
        raise BadCursor("`after` is none of this server's cursors") from None
    fits = isinstance(parts, list) and [type(part) for part in parts] == [*kinds]
    if not fits:
        raise BadCursor("`after` is a cursor of another list")
    return tuple(parts)
