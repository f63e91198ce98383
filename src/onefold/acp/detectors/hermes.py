"""Hermes: its log on stderr, and the metadata it sends when a compaction gave the session a new id.

Its log also repeats words of the user, line breaks included, so a prompt can write a line that looks like its own.
Four things stand against that: a line counts only as a whole and in every field; not if the same words went over the
wire, in however many pieces; only for ids that are the session's own; and an end only for a beginning that counted the
same messages. A program that the agent starts and that writes to the same stderr cannot be told from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import Event, Observation, ToAgent, mapping, number, short, text_of, word
from onefold.acp.detectors.quoted_log_lines import QuotedLogLines
from onefold.acp.line_reader import StderrLine
from onefold.model import Json

_STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[%s\] %s: "
_LOG = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[[A-Z]+\] [\w.]+: .*", re.ASCII)
_BY_COMPRESSION = _STAMP % ("INFO", r"agent\.conversation_compression")
_STARTED = re.compile(
    _BY_COMPRESSION + r"context compression started: session=(?P<session>[\w.:-]+) messages=(?P<count>\d{1,9}) "
    r"tokens=~(?:(?P<tokens>[\d,]{1,19})|unknown) model=\S+ focus=[^\x00-\x1f\x85\u2028\u2029]+",
    re.ASCII,
)
_DONE = re.compile(
    _BY_COMPRESSION
    + r"context compression done: session=(?P<session>[\w.:-]+) messages=(?P<count>\d{1,9})->(?P<left>\d{1,9}) "
    r"(?:rough_tokens=~(?P<rough>[\d,]{1,19}) awaiting_real_usage=(?:true|false)|tokens=~(?P<tokens>[\d,]{1,19}))",
    re.ASCII,
)
_GIVEN_UP = re.compile(
    _STAMP
    % ("(?:INFO|WARNING)", r"agent\.conversation_compression")
    + r"(?P<why>compression skipped: .*\bsession=(?P<a>[\w.:-]+).*"
    r"|Compression made no progress \(session=(?P<b>[\w.:-]+)\).*)",
    re.ASCII,
)
_NO_SUMMARY = re.compile(
    _STAMP % ("WARNING", r"agent\.context_compressor") + r"(?P<why>Failed to generate context summary: .*)", re.ASCII
)
_TURN_ENDED = re.compile(
    _STAMP % ("INFO", r"agent\.conversation_loop") + r"Turn ended: .* session=(?P<session>[\w.:-]+)", re.ASCII
)
_ANSWER = re.compile(
    r"Context compressed: (?P<count>\d{1,9}) -> (?P<left>\d{1,9}) messages\n"
    r"~(?P<before>[\d,]{1,19}) -> ~(?P<after>[\d,]{1,19}) tokens\s*",
    re.ASCII,
)
_MARKS = ("agent.conversation_", "agent.context_compressor")
"""In every line that counts, and so in every one that could pass for it."""
_LONGEST = 2_000
"""Characters of a line. A longer one is not looked at."""
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class LoggedCompaction:
    session: str
    count: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class HermesState:
    ids: frozenset[str] = frozenset()
    """Under which the agent knows this session, or did."""
    newest: str | None = None
    """The id that the metadata told last: it comes by another pipe, and may be faster than the log."""
    ahead: Mapping[str, str] = field(default_factory=dict)
    """Old and new id of rotations that the metadata told, and the log has not yet."""
    depth: int | None = None
    """How often it was given a new id."""
    open: LoggedCompaction | None = None
    trouble: str | None = None
    """What was logged about the one that is open."""
    quotes: QuotedLogLines = field(default_factory=QuotedLogLines)
    """What went over the wire and looks like its log."""
    logs: bool = False
    """It does log: then its answers to a person tell nothing new."""


def step(state: HermesState, moment: ObservedEvent) -> tuple[HermesState, tuple[Observation, ...]]:
    event = moment.event
    if isinstance(event, StderrLine):
        return _line(state, event.text, moment)
    if moment.now.session is not None and moment.now.session not in state.ids:
        state = replace(state, ids=state.ids | {moment.now.session})
    state = overhear(state, event)
    if isinstance(event, ToAgent):
        return state, ()
    if result := moment.result:
        return _know(state, _provenance(result)), ()
    if update := moment.update:
        return _update(state, update, moment)
    return state, ()


# ---------------------------------------------------------------------- its log


def _line(state: HermesState, text: str, moment: ObservedEvent) -> tuple[HermesState, tuple[Observation, ...]]:
    if not state.logs and _LOG.fullmatch(text):
        state = replace(state, logs=True)
    if state.quotes.too_many or len(text) > _LONGEST or not any(mark in text for mark in _MARKS):
        return state, ()
    if text in state.quotes:
        return state, ()
    if line := _STARTED.fullmatch(text):
        return _started(state, line, moment)
    if line := _DONE.fullmatch(text):
        return _done(state, line)
    if state.open is None:
        return state, ()
    if line := _NO_SUMMARY.fullmatch(text):
        return replace(state, trouble=short(line["why"])), ()
    if (line := _GIVEN_UP.fullmatch(text)) and (line["a"] or line["b"]) == state.open.session:
        return _failed(state, short(line["why"]), text)
    if (line := _TURN_ENDED.fullmatch(text)) and line["session"] == state.open.session:
        return _failed(state, state.trouble or "its turn ended without the end of it", text)
    return state, ()


def _started(
    state: HermesState, line: re.Match[str], moment: ObservedEvent
) -> tuple[HermesState, tuple[Observation, ...]]:
    if state.ids and line["session"] not in state.ids:
        return state, ()  # a subagent's
    started = LoggedCompaction(line["session"], int(line["count"]), _tokens(line["tokens"]))
    seen = Observation(
        "started",
        "hermes.stderr",
        short(line[0]),
        act=state.ahead.get(started.session),
        old=started.session,
        before=started.tokens,
        automatic=not moment.now.asked if moment.now.running else None,
    )
    return replace(state, open=started, trouble=None), (seen,)


def _done(state: HermesState, line: re.Match[str]) -> tuple[HermesState, tuple[Observation, ...]]:
    began, session, after = state.open, line["session"], _tokens(line["rough"] or line["tokens"])
    if began is None or began.count != int(line["count"]):
        return state, ()
    rotated = session != began.session
    if rotated and session in state.ids and session != state.newest and session not in state.ahead.values():
        return state, ()  # an id of the past
    shrank = int(line["left"]) < began.count or began.tokens is None or after is None or after < began.tokens
    if not rotated and not shrank:
        return _failed(state, "nothing became smaller", line[0])
    seen = Observation(
        "done",
        "hermes.stderr",
        short(line[0]),
        act=session if rotated else None,
        old=began.session,
        new=session if rotated else None,
        before=began.tokens,
        after=after,
    )
    ahead = {old: new for old, new in state.ahead.items() if old != began.session}
    return replace(state, open=None, trouble=None, ids=state.ids | {session}, ahead=ahead), (seen,)


def _failed(state: HermesState, cause: str, evidence: str) -> tuple[HermesState, tuple[Observation, ...]]:
    seen = Observation("failed", "hermes.stderr", short(evidence), cause=cause)
    return replace(state, open=None, trouble=None), (seen,)


def _tokens(text: str | None) -> int | None:
    digits = (text or "").replace(",", "")
    return int(digits) if digits else None


# ---------------------------------------------------------------------- its metadata and its answers


def _update(
    state: HermesState, update: dict[str, Json], moment: ObservedEvent
) -> tuple[HermesState, tuple[Observation, ...]]:
    told = _provenance(update)
    old, new = word(told.get("previousHermesSessionId")), word(told.get("currentHermesSessionId"))
    if told.get("reason") == "compression" and new is not None and new != old:
        depth = number(told.get("compressionDepth"))
        steps = depth - state.depth if depth is not None and state.depth is not None else 1
        seen = Observation("done", "hermes.meta", f"sessionProvenance: {old} is now {new}", act=new, old=old, new=new)
        unnamed = replace(seen, act=None, new=None, evidence="sessionProvenance: one before the last")
        ahead = dict(list(state.ahead.items())[-_DEEPEST:])
        if old is not None and steps == 1 and new not in state.ids:
            ahead[old] = new
        return replace(_know(state, told), newest=new, ahead=ahead), (*(unnamed,) * (min(steps, _DEEPEST) - 1), seen)
    if not state.logs and moment.now.asked and update.get("sessionUpdate") == "agent_message_chunk":
        return state, _answer(text_of(update.get("content")))
    return state, ()


def _answer(text: str) -> tuple[Observation, ...]:
    """What a person who typed the command is told. It says as much when nothing could be done."""
    said = _ANSWER.fullmatch(text)
    if said is None or int(said["left"]) >= int(said["count"]):
        return ()
    before, after = _tokens(said["before"]), _tokens(said["after"])
    return (Observation("done", "text", short(text), before=before, after=after, automatic=False),)


def _provenance(holder: dict[str, Json]) -> dict[str, Json]:
    return mapping(mapping(mapping(holder.get("_meta")).get("hermes")).get("sessionProvenance"))


def _know(state: HermesState, told: dict[str, Json]) -> HermesState:
    """Takes the session's ids. Only an answer, or a rotation, is of the newest id: an update of the title is not."""
    names = (told.get("acpSessionId"), told.get("currentHermesSessionId"), told.get("previousHermesSessionId"))
    ids = frozenset(name for name in names if isinstance(name, str) and name)
    depth = number(told.get("compressionDepth"))
    return replace(state, ids=state.ids | ids, depth=depth if depth is not None else state.depth) if told else state


# ---------------------------------------------------------------------- what a log line could be copied from


def overhear(state: HermesState, event: Event) -> HermesState:
    """Remembers what its log may repeat, also of what is said of other sessions: they have the same log."""
    if isinstance(event, StderrLine):
        return state
    frame, quotes = event.frame, state.quotes
    if isinstance(event, ToAgent) and frame.method == "session/prompt":
        quotes = quotes.next_turn()
    kind = frame.update.get("sessionUpdate") or frame.method
    return replace(state, quotes=quotes.heard(str(kind), frame.body))
