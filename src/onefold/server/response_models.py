"""Response models, as OpenAPI publishes them. Times are seconds since 1970; sizes are tokens."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

# ---------------------------------------------------------------------- what is published


class ErrorWords(TypedDict):
    kind: str
    message: str
    remedy: NotRequired[str]


class ErrorJson(TypedDict):
    error: ErrorWords


class HeaderJson(TypedDict):
    role: str
    tokens: int
    opens: list[str]
    closes: list[str]


class PartJson(TypedDict):
    """A part of a message: text, thought, call, result or media."""

    kind: Literal["text", "thought", "call", "result", "media"]
    text: NotRequired[str]
    name: NotRequired[str]
    failed: NotRequired[bool]


class RecordJson(TypedDict):
    number: int
    id: str
    kind: str
    at: float
    body: Any
    format: NotRequired[str]
    header: NotRequired[HeaderJson]
    key: NotRequired[str]
    turn: NotRequired[str]
    actor: NotRequired[str]
    text: NotRequired[str]
    parts: NotRequired[list[PartJson]]
    session: NotRequired[str]


class LimitJson(TypedDict):
    window: int
    soft: int
    hard: int


class UsageJson(TypedDict):
    used: int
    size: int


class WorkerJson(TypedDict):
    host: str
    pid: int
    thread: str
    agent: str | None


class HolderJson(WorkerJson):
    since: float
    until: float


class SessionJson(TypedDict):
    id: str
    title: str | None
    created_at: float
    touched_at: float
    last: int
    head: int
    cut: int
    messages: int
    tokens: int
    limit: LimitJson | None
    segments: int
    compactions: int
    committed: int
    open: bool
    active: bool
    holder: HolderJson | None
    pending: int
    failures: int
    parent: str | None
    forked_at: int
    turn: bool
    keeper: str
    usage: UsageJson | None
    problems: list[str]


class SessionsJson(TypedDict):
    sessions: list[SessionJson]
    next: str | None
    total: int
    complete: bool


class SegmentJson(TypedDict):
    number: int
    base: int | None
    cut: int
    source: str
    at: float
    compaction: str | None
    summary: int | None
    kept: list[int]
    tokens_before: int
    tokens_after: int
    hidden: list[list[int]]
    redo: int | None
    keeper: str
    unfolds: list[int]
    masked: list[int]


class SegmentsJson(TypedDict):
    segments: list[SegmentJson]
    head: int


class SpentJson(TypedDict):
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None


class CompactionJson(TypedDict):
    id: str
    session: str
    base: int
    trigger: str
    state: str
    requested_at: float
    attempts_allowed: int
    instructions: str | None
    requests: int
    attempts: int
    fence: int
    started_at: float | None
    not_before: float | None
    cause: str | None
    settled_at: float | None
    segment: int | None
    spent: SpentJson
    worker: WorkerJson | None
    active: bool
    holder: HolderJson | None
    age: float
    duration: float | None


class CompactionsJson(TypedDict):
    compactions: list[CompactionJson]


class TurnJson(TypedDict):
    id: str
    number: int
    owner: str | None
    since: float
    until: float
    silent: bool
    holder: WorkerJson


class ClientJson(TypedDict):
    name: str
    since: float
    kind: str


class CompactingJson(TypedDict):
    active: bool
    holder: HolderJson | None
    age: float | None
    count: int
    last_source: str | None
    last_started: float | None
    last_completed: float | None
    open: CompactionJson | None


class CountersJson(TypedDict):
    records: int
    messages: int
    tokens: int
    compactions: int
    committed: int
    failures: int


class AgentJson(TypedDict):
    name: str
    phase: str
    trouble: str | None


class QuestionJson(TypedDict):
    question: str
    method: str
    params: dict[str, Any]
    at: float


class RoomJson(TypedDict):
    session: str
    agent: str
    phase: str
    trouble: str | None
    clients: int
    questions: int


class RoomsJson(TypedDict):
    rooms: list[RoomJson]
    agents: list[str]
    may: list[str]


class PromptedJson(TypedDict):
    input: int | None
    cause: str | None


class UnqueuedJson(TypedDict):
    unqueued: bool


class StoppedJson(TypedDict):
    asked: bool


class RestartedJson(TypedDict):
    agent: str
    phase: str


class ClosedJson(TypedDict):
    closed: bool


class AnsweredJson(TypedDict):
    answered: bool


class SnapshotJson(TypedDict):
    session: SessionJson
    head: SegmentJson
    provided: list[int]
    segments: list[SegmentJson]
    turn: TurnJson | None
    queue: list[RecordJson]
    agent: AgentJson | None
    questions: list[QuestionJson]
    clients: list[ClientJson]
    compaction: CompactingJson
    counters: CountersJson
    follow_from: int
    incarnation: str


class AttachJson(SnapshotJson):
    records: list[RecordJson]
    cursor: int | None


class SnapshotsJson(TypedDict):
    sessions: list[SnapshotJson]
    next: str | None


class RecordsJson(TypedDict):
    records: list[RecordJson]
    next: int | None


class NoteJson(TypedDict):
    number: int
    kind: str
    text: str
    key: str
    actor: str | None
    at: float


class FactJson(TypedDict):
    kind: str
    key: str
    text: str
    source: int
    by: str
    until: int


class QuotationJson(TypedDict):
    number: int
    who: str
    at: float
    text: str
    kinds: list[str]
    size: int


class ContextJson(TypedDict):
    session: str
    messages: list[Any]
    tokens: int
    numbers: NotRequired[list[int]]
    formats: list[str]
    summary: str | None
    facts: list[FactJson]
    quotes: list[QuotationJson]
    notes: list[NoteJson]
    pinned: list[int]
    prompt: list[int]
    left_out: list[int]
    masked: list[int]
    segment: int
    last: int


class SentPartJson(TypedDict):
    at: int
    kind: str
    number: int
    role: str
    text: str


class SentJson(TypedDict):
    session: str
    segment: int
    last: int
    tokens: int
    numbers: list[int]
    others: list[SentPartJson]
    left_out: list[int]


class SummarizerJson(TypedDict):
    name: str | None
    by: str
    asks_model: bool | None
    instead: list[str]
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None


class SummarizersJson(TypedDict):
    session: str
    needless: str | None
    summarizers: list[SummarizerJson]


class LedgerJson(TypedDict):
    session: str
    notes: list[NoteJson]
    facts: list[FactJson]
    quotes: list[QuotationJson]
    pins: list[int]


class PointJson(TypedDict):
    number: int
    at: float
    tokens: int


class MarkJson(TypedDict):
    number: int
    at: float
    source: str
    compaction: str | None
    tokens_before: int
    tokens_after: int


class CurveJson(TypedDict):
    session: str
    points: list[PointJson]
    marks: list[MarkJson]
    limit: LimitJson | None


class SurroundingJson(TypedDict):
    number: int
    role: str
    excerpt: str


class HitJson(TypedDict):
    session: str
    number: int
    kind: str
    role: str
    at: float
    place: str
    excerpt: str
    marks: list[list[int]]
    partial: bool
    nearby: bool
    around: list[SurroundingJson]


class HitsJson(TypedDict):
    hits: list[HitJson]
    behind: int
    indexed: bool


class FindingJson(TypedDict):
    session: str | None
    what: str
    found: str
    expected: str
    mended: bool
    fatal: bool
    words: str


class ReportJson(TypedDict):
    sessions: int
    records: int
    healthy: bool
    left: int
    findings: list[FindingJson]


class AppendedJson(TypedDict):
    numbers: list[int]
    duplicate: bool
    hidden: list[int]


class NotedJson(TypedDict):
    number: int


class PinnedJson(TypedDict):
    numbers: list[int]


class WentBackJson(TypedDict):
    segment: SegmentJson
    changed: list[RecordJson]
    numbers: list[int]
    dry_run: bool


class UnfoldedJson(TypedDict):
    segment: SegmentJson
    limit: int | None
    dry_run: bool


class DraftJson(TypedDict):
    draft: str
    session: str
    head: int
    text: str | None
    present: str | None
    by: str | None
    gains: list[str]
    loses: list[str]
    tokens_before: int
    tokens_after: int
    spent: SpentJson


class ForkedJson(TypedDict):
    id: str
    parent: str
    at: int
    kind: str


class CompactedJson(TypedDict):
    id: str | None
    state: str
    changed: bool
    joined: bool
    applied: bool
    cause: str | None
    segment: int
    compaction: CompactionJson | None


class CancelledJson(TypedDict):
    cancelled: CompactionJson | None


class AliveJson(TypedDict):
    ok: bool
