"""The plain data of onefold: what a journal holds and what is derived from it. No database, no rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Json: TypeAlias = Any
"""JSON really is anything; what a message may be is for its codec to say."""

Clock: TypeAlias = Callable[[], float]
Ids: TypeAlias = Callable[[], str]

State: TypeAlias = Literal["requested", "running", "committed", "failed", "cancelled", "superseded", "skipped"]
OPEN: frozenset[str] = frozenset({"requested", "running"})

# Kinds of records. A kind that is not listed here is kept and passed on, and changes nothing derived.
MESSAGE = "message"
SEGMENT_OPENED = "segment.opened"
REQUESTED = "compaction.requested"
JOINED = "compaction.joined"
STARTED = "compaction.started"
COMMITTED = "compaction.committed"
FAILED = "compaction.failed"
CANCELLED = "compaction.cancelled"
SUPERSEDED = "compaction.superseded"
SKIPPED = "compaction.skipped"
DRAFTED = "summary.drafted"
TURN_STARTED = "turn.started"
TURN_SETTLED = "turn.settled"
INPUT_QUEUED = "input.queued"
INPUT_TAKEN = "input.taken"
PIN_ADDED = "pin.added"
PIN_REMOVED = "pin.removed"
NOTE = "note"
FORK = "fork"
ALIAS = "alias"
LIMITS = "limits"
HEALED = "healed"
ERASED = "erased"
AGENT_STARTED = "agent.started"
AGENT_ENDED = "agent.ended"
QUESTION_ASKED = "question.asked"
QUESTION_SETTLED = "question.settled"

MARKS = (PIN_ADDED, PIN_REMOVED, NOTE, ALIAS)
"""Kinds that are few and looked up together: what stands in every context, and other ids."""

MANUAL = "manual"
"""The one trigger that means a person asked; every other one is automatic."""
MOST_TOKENS = 1 << 53
"""More than any window has: every store and every JSON has room for it."""
FULL = frozenset({"limit", "overflow"})
"""Triggers that mean that an agent cannot go on without it."""
URGENT = FULL | {MANUAL, "erase"}
"""Triggers that are heard even after an undo: the context is full, or what stood for it is gone."""

Outcome: TypeAlias = Literal["settled", "failed", "cancelled", "interrupted"]
Slot: TypeAlias = Literal["prompt"]
"""What messages can be from a record on: the system prompt. A `pin.added` says so."""
ForkKind: TypeAlias = Literal["branch", "subagent", "review"]
Keeper: TypeAlias = Literal["onefold", "agent"]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Stretches of record numbers, both ends included, in order and apart from each other."""


PROGRAM = "program"
"""The role of what a program says in a user's place, such as a reminder. It asks like a user's: it is nobody's word."""
ASKING = frozenset({"user", PROGRAM})


@dataclass(frozen=True, slots=True)
class Header:
    """What the engine needs to know of a message without reading it."""

    role: str
    tokens: int
    call_ids: tuple[str, ...] = ()
    """Ids of the tool calls this message makes."""
    result_ids: tuple[str, ...] = ()
    """Ids of the tool calls this message is the result of."""


class Record(NamedTuple):
    """One numbered line of a session's journal. Written once, never changed.

    A tuple for the same reason as `SessionState`.
    """

    number: int
    id: str
    kind: str
    at: float
    body: Json
    format: str | None = None
    header: Header | None = None
    key: str | None = None
    turn: str | None = None
    actor: str | None = None


class Draft(NamedTuple):
    """A record before it has a number. `data` is the body as the JSON text that will be stored.

    A tuple for the same reason as `SessionState`.
    """

    id: str
    kind: str
    body: Json
    data: str
    format: str | None = None
    header: Header | None = None
    key: str | None = None
    turn: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """The journal from one boundary on, known by the number of the record that opened it."""

    number: int
    base: int | None
    """The segment it replaces. No two segments of a session have the same one, so a fork cannot be written down."""
    cut: int
    """The first record that stays verbatim."""
    source: Literal["created", "compaction", "provider", "masked", "restored", "forked", "erased", "observed", "kept"]
    at: float
    compaction: str | None = None
    summary: int | None = None
    """The number of the record that holds the summary: its own, or an older one's after a restore."""
    kept: tuple[int, ...] = ()
    """Records before the cut that stay verbatim all the same."""
    tokens_before: int = 0
    tokens_after: int = 0
    hidden: Ranges = ()
    """Records that do not count here: undone, or erased. The summary stands for the other ones before the cut."""
    redo: int | None = None
    """After an undo, the segment that `redo` goes back to."""
    keeper: Keeper = "onefold"
    """Who compacts: onefold, or the agent by itself. Then the segments of its compactions are marks."""
    unfolds: tuple[int, ...] = ()
    """The segments of the compactions that it took back, the oldest first: what they stood for is in view again."""
    masked: tuple[tuple[int, int], ...] = ()
    """Tool results that are shown as one line, each with the tokens that saves. What is pinned is shown whole."""
    origin: int | None = None
    """Of a segment that only masks: the newest one before it that does more. What holds of that one holds of this."""
    item: int | None = None
    """The segment that adopted a provider's item, while a context may have that: its own number, or an older one."""
    adopted: tuple[tuple[int, int], ...] = ()
    """Messages that a plain context shows without the provider's item in them, each with the tokens that saves."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was paid for an attempt: calls of a model, tokens in and out, and money where prices are known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else round((self.cost or 0) + (other.cost or 0), 9)
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            cost,
        )


@dataclass(frozen=True, slots=True)
class Compaction:
    """The act that closes one segment and opens the next."""

    id: str
    session: str
    base: int
    trigger: str
    state: State
    requested_at: float
    attempts_allowed: int
    instructions: str | None = None
    requests: int = 1
    attempts: int = 0
    fence: int = 0
    """The number of the newest `compaction.started`; 0 before the first claim."""
    started_at: float | None = None
    life: float = 0.0
    holder: HolderId | None = None
    not_before: float | None = None
    retry_after: float = 0.0
    cause: str | None = None
    settled_at: float | None = None
    segment: int | None = None
    """The segment it opened, once it is committed."""
    spent: Usage = Usage()
    """What its attempts cost, as far as they came to say so: one that crashed did not."""
    asked: int = 0
    """Attempts that asked a summarizer, or may have: of one that crashed nobody knows."""
    process: Json = None
    """The process of the newest attempt as its machine names it; None where that is not known."""
    input: str | None = None
    """What the last summary that failed was made of: a summarizer that always says the same is not asked again."""

    @property
    def open(self) -> bool:
        return self.state in OPEN

    def waits(self, now: float) -> bool:
        """Whether it may not be claimed yet. A wait longer than it was set for means that the clock jumped."""
        return self.not_before is not None and now < self.not_before <= now + self.retry_after

    def alive(self, now: float) -> bool:
        """Whether the newest attempt is within its longest life, which no renewal stretches."""
        return self.started_at is not None and self.started_at <= now < self.started_at + self.life


@dataclass(frozen=True, slots=True)
class HolderId:
    """Who works on a compaction, as its `compaction.started` record says it."""

    host: str
    pid: int
    thread: str
    agent: str | None
    nonce: str

    def __str__(self) -> str:
        """For people: who it was."""
        return f"{self.agent + ', ' if self.agent else ''}process {self.pid} on {self.host}, {self.thread}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who works on a compaction now, since when, and until when at the latest without renewal."""

    host: str
    pid: int
    thread: str
    agent: str | None
    nonce: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Lease:
    """Until when a compaction's newest claim, or a turn, is left alone. Nothing is unsafe without it."""

    id: str
    """Of the compaction or the turn."""
    fence: int
    until: float
    length: float

    def in_force(self, now: float) -> bool:
        """A lease with more time left than its own length is over: the clock jumped."""
        return now < self.until <= now + self.length


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a compaction: valid for the process that made it, worth nothing once it moved."""

    session: str
    compaction: str
    fence: int
    base: int
    attempt: int
    attempts_allowed: int
    lease: float
    life: float
    until: float
    pid: int
    takes_over: bool = False
    """The attempt before it ended without a word."""
    turn: int = 0
    """The number of the `turn.started` whose turn was open then; 0 if none was. What came of it since does not count
    for this attempt: it may only cut what was closed by the records it claimed."""

    @property
    def upto(self) -> int:
        """The last record this attempt may summarise: the one before its own `compaction.started`."""
        return self.fence - 1


@dataclass(frozen=True, slots=True)
class ClaimDenied:
    """The answer to a claim that was not granted: why, and when it is worth asking again."""

    reason: Literal["nothing open", "held", "waiting"]
    until: float | None = None
    near: bool = field(default=False, compare=False)
    """The holder is a process of this machine, whose death would show before that: look now and then."""


@dataclass(frozen=True, slots=True)
class TurnClaim:
    """The right to write in a turn: valid for the process that made it, and until the turn is over."""

    session: str
    id: str
    number: int
    """Of its `turn.started`: the writer fence."""
    owner: str | None
    lease: float
    until: float
    pid: int


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """The turn that is open now, and until when its writer is left alone without renewal."""

    id: str
    number: int
    owner: str | None
    holder: HolderId
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Note:
    """One fact that stands in every context, word for word."""

    number: int
    kind: str
    text: str
    key: str
    """What it is about: a later note of the same kind and key takes its place."""
    actor: str | None
    at: float


class Quote(NamedTuple):
    """A stretch of a message that a segment quotes: never its text, only where it stands."""

    number: int
    """Of the record, as the segment sees it: a fork's may be its parent's."""
    pointer: str
    """Into the stored body, such as `/content/2/text`; empty for a message that is too long to be quoted."""
    start: int
    end: int
    """Code points of the string that stands there; of one that is too long, how many there are."""
    score: float
    """By which it was taken, and gives way; 0 of a message that is quoted whole."""


class Label(NamedTuple):
    """What a model that wrote a summary called some words that it quoted. It raises their rank, and nothing else."""

    number: int
    pointer: str
    start: int
    end: int
    kind: str
    subject: str
    by: int = 0  # the message with later words of the same speaker that ended it, and where; 0 if it is in force
    by_pointer: str = ""
    by_start: int = 0
    by_end: int = 0


class Gap(NamedTuple):
    """Messages of people between two that are quoted, which are not."""

    first: int
    last: int
    many: int


@dataclass(frozen=True, slots=True)
class Quotes:
    """What a segment quotes of the messages before its cut, by reference."""

    stretches: tuple[Quote, ...] = ()
    marks: tuple[float, float] = (0.0, 0.0)
    """Scores below which nothing is taken later, of people (0 as long as their messages are whole) and of agents."""
    gaps: tuple[Gap, ...] = ()
    labels: tuple[Label, ...] = ()
    room: int = 0
    """How many tokens there was room for when it was chosen from all that was said: at twice as much, it is again."""
    covers: int = 0
    """The size in tokens of all the messages in view before the cut, which quotes are a part of."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Words that were said, and what a model called them; in segments of older versions, also what rules found."""

    kind: str
    """What sort of thing it is: a rule, a limit, a decision, …"""
    key: str
    """What it is about."""
    text: str
    source: int = 0
    """The message it was said in; 0 if that is not known. A summarizer that does not name it gives no label."""
    by: str = "extract"
    """How it got here: found by rules, or by the model that wrote the summary."""
    until: int = 0
    """The message that ended it; of an older version's, one in the tail that says otherwise. 0 if none does."""


@dataclass(frozen=True, slots=True)
class LabelEnd:
    """What a summarizer says of words that were called something before: that it is over, or that it never was so."""

    source: int
    kind: str
    key: str
    by: int = 0
    """The message in which the same speaker ended it later, in words that `text` quotes; 0 if it never was so."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was removed for good, and who else had it."""

    session: str
    numbers: tuple[int, ...]
    """Records that are tombstones now."""
    summaries: tuple[int, ...]
    """Segments whose summary covered them and was removed with them."""
    forks: tuple[str, ...]
    """Sessions that saw them as their own past. They no longer do."""
    compaction: str | None = None
    """The new summary that was asked for."""
    wiped: bool = True
    """No file of the store, sidecars included, still holds it, as far as this machine can see."""
    remains: tuple[str, ...] = ()
    """What may still hold it: files, by their paths, and what else was not reached, in words."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What is left of a session that was deleted: its id, so that nobody makes it again by accident."""

    session: str
    records: int
    forks: tuple[str, ...]
    """Sessions that saw its records as their own past. They no longer do."""
    wiped: bool = True
    """As for `Erased`."""
    remains: tuple[str, ...] = ()


class SessionState(NamedTuple):
    """What is known of a session without reading its journal: all of it can be folded from the records.

    A tuple, because every append makes two of them, and a frozen dataclass of this width is slow to make.
    """

    id: str
    created_at: float
    touched_at: float
    last: int
    """The number of its newest record."""
    head: int
    cut: int
    messages: int
    tokens: int
    """An estimate of the context's size: summary, kept records, and messages from the cut on."""
    segments: int
    compactions: int
    committed: int
    open: str | None
    pending: int
    """Inputs that wait for a turn."""
    failures: int
    """Automatic compactions of the head segment that failed in a row."""
    failed_tokens: int
    """The context's size when the last of them failed."""
    turn: int = 0
    """The number of the `turn.started` whose turn is open: the writer fence. 0 if none is."""
    parent: str | None = None
    """The session that this one is a fork of."""
    forked_at: int = 0
    """Its parent's last record that belongs to it; its own are numbered from there on."""
    aliases: int = 0
    """Other ids it is known by."""
    paid: int = 0
    """Summaries of the head segment that were begun and handed back before their end: paid for, and of no use."""
    rests: int = 0
    """The context's size when a compaction of the head segment came to nothing without a failure; 0 if none did."""
    limits: int = 0
    """The number of the record that says which limits its agent goes by; 0 if none does."""
    window: int = 0
    """The window in tokens that it says; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """What an idempotency key was used for."""

    first: int
    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The answer to a request."""

    compaction: Compaction | None
    """The one that was opened or joined; or the settled one that moved the head away from the base."""
    outcome: Literal["opened", "joined", "moved on", "held back"]
    head: int
    cause: str | None = None
    retry_at: float | None = None


class AppendResult(NamedTuple):
    """Where an append stands in the journal, and whether it stood there before."""

    numbers: tuple[int, ...]
    duplicate: bool = False
    hidden: tuple[int, ...] = ()
    """Of a duplicate, those that are in no context now, because they were undone or erased. What a summary stands for
    is not among them. To say them again, append them with another key."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a summarizer made."""

    text: str
    cut_off: bool = False
    """The model stopped for lack of room: such a summary is rejected."""
    by: str | None = None
    """The model or the method."""
    facts: tuple[Fact, ...] = ()
    """What the summarizer calls a rule, a limit and so on, in words that were said: labels of what is quoted."""
    spent: Usage = Usage()
    instead_of: tuple[str, ...] = ()
    """Who was asked before and failed, and why, if this is a fallback's."""
    ends: tuple[LabelEnd, ...] = ()  # of `Material.facts`


@dataclass(frozen=True, slots=True)
class CompactResult:
    """How a call of `compact` ended. It never hides that nothing changed."""

    id: str | None
    state: str
    changed: bool
    """The session's context is another one than the caller had measured."""
    joined: bool
    """The compaction was asked for, or done, by somebody else."""
    applied: bool
    """The summary that moved the boundary is this caller's own."""
    cause: str | None
    segment: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a store is not what its journal says, in words."""

    session: str | None
    what: str
    found: str
    expected: str
    repaired: bool = False
    fatal: bool = False
    """The journal itself is damaged: no fold can repair it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` saw."""

    sessions: int
    records: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        return not self.findings
