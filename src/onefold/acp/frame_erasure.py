"""Erases the frames of a room when records of its session are erased, and removes the room of a deleted session.

Which frames those are is read from the journal's tombstones, which keep their numbers and keys. So it can be found
again after a crash, and whoever comes to it first may do it: who erases, the room that is open in another process, the
next one that opens the room. A frame that says so is kept at the end; by it all of them know that it is done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onefold.acp.frame_log import FrameLog
from onefold.acp.frame_pages import LoggedFrame, NewFrame
from onefold.journal.erasure import about
from onefold.journal.journal import Journal
from onefold.jsonrpc import Frame, notification, parse, text
from onefold.model import ERASED, INPUT_QUEUED, INPUT_TAKEN, MESSAGE, Json, Record
from onefold.storage.base import Transaction

log = logging.getLogger("onefold.acp")

ERASED_FRAME = "onefold/erased"
"""Without an id, in the place of a frame that was erased; with one, at the end, it says that records were."""
FROM_FRAMES = "frames:"
"""So begins the key of a message that comes from frames: the first and the last of them follow."""
SAYS_NOTHING = frozenset(
    {"usage_update", "current_mode_update", "available_commands_update", "config_option_update"}
)  # fmt: skip
"""Updates of an agent that quote nothing of the conversation."""

_CALLS = frozenset({"tool_call", "tool_call_update"})
_CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_NOTHING = "{}"
_CAUSE = "(erased)"


def frames_of(key: str | None) -> tuple[int, int] | None:
    """The frames that a message comes from, the first and the last."""
    if key is None or not key.startswith(FROM_FRAMES):
        return None
    first, _, last = key.removeprefix(FROM_FRAMES).partition("-")
    return int(first), int(last)


def stone(session: str) -> str:
    """What stands in the place of a frame that was erased."""
    return text(notification(ERASED_FRAME, {"sessionId": session}))


@dataclass(slots=True)
class ErasedFrames:
    """What was erased in a session, as far as frames are concerned. It is a frames' `Erasure`."""

    session: str
    id: str
    """Of the newest record that says that something was erased."""
    record: int
    numbers: tuple[int, ...]
    """Everything that was ever erased in it."""
    prompts: set[int] = field(default_factory=set)
    inputs: set[int] = field(default_factory=set)
    questions: set[str] = field(default_factory=set)
    firsts: dict[int, int] = field(default_factory=dict)
    """Of each message the first frame, by the last one."""
    calls: set[str] = field(default_factory=set)
    chunks: set[int] = field(default_factory=set)
    """Frames. What agents call their calls, and which frames are chunks, is learned from the frames."""
    is_done: bool = False

    def see(self, row: LoggedFrame) -> None:
        """The last frame of a message says what it was: a chunk, or an update of a call."""
        first = self.firsts.get(row.number)
        if first is None and not (row.kind == "note" and ERASED_FRAME in row.text):
            return
        frame = _told(row.kind, row.text)
        if frame is None:
            return
        if row.kind == "note":
            self.is_done = self.is_done or (frame.method == ERASED_FRAME and frame.params.get("id") == self.id)
        elif first is not None:
            call = frame.update.get("toolCallId")
            if frame.update.get("sessionUpdate") in _CALLS and isinstance(call, str):
                self.calls.add(call)
            else:
                self.chunks.update(range(first, row.number + 1))

    def left_of(self, row: LoggedFrame) -> str:
        return self.left(row.kind, row.text, row.record, row.number)

    def left(self, kind: str, said: str, record: int, number: int = 0) -> str:
        """What may stay of a frame. Of what no client is ever told (what went to the agent, its answers and questions,
        its stderr, what it told again) nothing does: nobody can say what of it is quoted there."""
        frame = _told(kind, said)
        if frame is None:
            return _NOTHING
        if said == stone(self.session) or (kind == "note" and frame.method == ERASED_FRAME):
            return said
        params = self._left_of_note(frame, record) if kind == "note" else self._left_of_update(frame, number)
        if params is None:
            return stone(self.session)
        return said if params is frame.params else text(notification(frame.method or "", params))

    def _left_of_update(self, frame: Frame, number: int) -> dict[str, Json] | None:
        kind = frame.update.get("sessionUpdate")
        if kind in _CALLS:
            goes = frame.update.get("toolCallId") in self.calls
        elif kind == "user_message_chunk":  # a prompt that the agent says back
            goes = bool(self.prompts) or number in self.chunks
        elif kind in _CHUNKS:
            goes = number in self.chunks
        else:
            goes = kind not in SAYS_NOTHING
        return None if goes else frame.params

    def _left_of_note(self, frame: Frame, record: int) -> dict[str, Json] | None:
        params = frame.params
        if frame.method == "session/update":
            return None if record in self.prompts else params
        if frame.method == "onefold/question_asked":
            goes = params.get("question") in self.questions or about(params.get("params")) in self.calls
            return None if goes else params
        queue = params.get("queue")
        if isinstance(queue, list) and any(isinstance(q, dict) and q.get("input") in self.inputs for q in queue):
            return None
        return {**params, "cause": _CAUSE} if params.get("cause") not in (None, _CAUSE) else params

    @property
    def mark(self) -> NewFrame:
        told = {"sessionId": self.session, "id": self.id, "record": self.record, "numbers": list(self.numbers)}
        return NewFrame("note", text(notification(ERASED_FRAME, told)), self.record)


def _told(kind: str, said: str) -> Frame | None:
    """The notification that clients are told, if a frame is one."""
    if kind not in ("in", "note"):
        return None
    with contextlib.suppress(ValueError):
        frames = parse(said)
        if len(frames) == 1 and frames[0].is_notification:
            return frames[0]
    return None


# ---------------------------------------------------------------------- what the journal says


def newest(tx: Transaction, session: str) -> int:
    """The number of the newest segment that an erasure opened; 0 if nothing was ever erased."""
    return max((s.number for s in tx.segments(session) if s.source == "erased"), default=0)


def gone(tx: Transaction, session: str) -> ErasedFrames | None:
    """All that was erased in a session; None if nothing was, or the session is not there."""
    said = [a for s in tx.segments(session) if s.source == "erased" and (a := _announced(tx, session, s.number))]
    if not said:
        return None
    numbers = tuple(sorted({n for a in said for n in a.body["numbers"]}))
    found = ErasedFrames(session, said[-1].id, said[-1].number, numbers)
    for number in numbers:
        stone = tx.record(session, number)
        if stone is not None:
            _learn(found, tx, stone)
    return found


def _learn(found: ErasedFrames, tx: Transaction, stone: Record) -> None:
    was = stone.body.get("was")
    if (some := frames_of(stone.key)) is not None:
        found.firsts[some[1]] = some[0]
    elif was == MESSAGE:
        found.prompts.add(stone.number)
        before = tx.record(found.session, stone.number - 1)
        if before is not None and before.kind == INPUT_TAKEN:
            found.inputs.add(before.body["input"])
    elif was == INPUT_QUEUED:
        found.inputs.add(stone.number)
    if isinstance(question := stone.body.get("question"), str):
        found.questions.add(question)


def _announced(tx: Transaction, session: str, segment: int) -> Record | None:
    """The record that says what was erased: right before the segment that it opened, or a little earlier."""
    for number in range(segment - 1, max(0, segment - 8), -1):
        record = tx.record(session, number)
        if record is not None and record.kind == ERASED and "numbers" in record.body:
            return record
    return None


# ---------------------------------------------------------------------- carrying it out


def carry_out(journal: Journal, frames: FrameLog, session: str) -> bool:
    """Applies what the journal says of a session to its room's frames. Returns whether there was anything to do."""

    def read_carry_out(tx: Transaction) -> tuple[bool, ErasedFrames | None]:
        if tx.session(session) is None:
            return tx.deleted(session) is not None, None
        return False, gone(tx, session)

    deleted, erased = journal.backend.read(read_carry_out)
    if deleted:
        return frames.drop_room(session)
    return erased is not None and frames.erase(session, erased)


def forget(journal: Journal, path: Path, sessions: Sequence[str], *, whole: bool = False) -> str | None:
    """The same for sessions of a store that somebody erased something of, and for the bytes of the file."""
    with contextlib.closing(FrameLog(str(path))) as frames:
        for session in sessions:
            carry_out(journal, frames, session)
        if frames.wipe(whole=whole):
            return None
    return "a reader holds the file, or it is large; erase again later, or call Store.purge()"


def settle(journal: Journal, frames: FrameLog, *sessions: str) -> None:
    """The same by whoever keeps rooms, for some of them; if none is named, for those whose session was deleted while
    somebody was killed in the middle."""
    some = sessions or [*_left_behind(journal, frames)]
    done = [carry_out(journal, frames, session) for session in some]
    if any(done) and not frames.wipe():
        log.warning("erased content may still be in the bytes of the frame log: erase it again, or call Store.purge()")


def _left_behind(journal: Journal, frames: FrameLog) -> Iterator[str]:
    for session in frames.known():
        if journal.backend.read(lambda tx, s=session: tx.session(s) is None and tx.deleted(s) is not None):  # type: ignore[misc]
            yield session
