"""Makes each response model from the library's data, one function each. Pure."""

from __future__ import annotations

import json

import orjson

from onefold.compaction.context import Context
from onefold.compaction.limits import Limits
from onefold.context_parts import parts
from onefold.describe import words
from onefold.errors import OnefoldError
from onefold.export import plain
from onefold.messages import FORMATS, codec, encode
from onefold.messages.parts import MediaPart, OpaquePart, Part, ReasoningPart, ToolCall, ToolProgress, ToolResult
from onefold.messages.parts import shown as words_of
from onefold.messages.quotation import Quotation
from onefold.model import (
    MESSAGE,
    Compaction,
    CompactResult,
    Fact,
    Finding,
    Holder,
    HolderId,
    Json,
    Note,
    OpenTurn,
    Record,
    Report,
    Segment,
    SessionState,
    Usage,
)
from onefold.recall import Hit
from onefold.server.response_models import (
    CompactedJson,
    CompactionJson,
    ContextJson,
    FactJson,
    FindingJson,
    HitJson,
    HolderJson,
    LimitJson,
    NoteJson,
    PartJson,
    QuotationJson,
    RecordJson,
    ReportJson,
    SegmentJson,
    SentJson,
    SentPartJson,
    SessionJson,
    SpentJson,
    SummarizerJson,
    TurnJson,
    UsageJson,
    WorkerJson,
)
from onefold.summarizers.estimate import CostEstimate, SummarizerInfo


def dumps(value: Json) -> bytes:
    """JSON as bytes. A message may hold what orjson rejects, such as half a character or an integer of 30 digits."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def read_as(record: Record) -> str:
    """What a person would read in a record. Reading must never fail."""
    try:
        return words(record)
    except OnefoldError:
        return encode(record.body)


def record_json(record: Record, session: str | None = None) -> RecordJson:
    """A record as every answer and every event has it. With `session`, where records of several come together."""
    made: RecordJson = {
        "number": record.number,
        "id": record.id,
        "kind": record.kind,
        "at": record.at,
        "body": record.body,
        "text": read_as(record),
    }
    if parts := parts_json(record, made["text"]):
        made["parts"] = parts
    if record.format is not None:
        made["format"] = record.format
    if record.header is not None:
        header = record.header
        made["header"] = {
            "role": header.role,
            "tokens": header.tokens,
            "opens": list(header.call_ids),
            "closes": list(header.result_ids),
        }
    if record.key is not None:
        made["key"] = record.key
    if record.turn is not None:
        made["turn"] = record.turn
    if record.actor is not None:
        made["actor"] = record.actor
    if session is not None:
        made["session"] = session
    return made


def parts_json(record: Record, text: str) -> list[PartJson]:
    """What a message says, part by part; nothing where that is one text. The text of a part that is all there is stands
    in the record already."""
    known = FORMATS.get(record.format or "json") if record.kind == MESSAGE else None
    try:
        parts = known.parse(record.body).parts if known is not None else ()
    except OnefoldError:
        return []
    made = [shown for part in parts if (shown := _part_json(part)) is not None]
    if all(one["kind"] == "text" for one in made):
        return []
    if len(made) == 1 and made[0].get("text") == text:
        del made[0]["text"]
    return made


def _part_json(part: Part) -> PartJson | None:
    match part:
        case ReasoningPart(text):
            return {"kind": "thought", "text": text}
        case OpaquePart():
            return {"kind": "thought", "text": "(only its provider can read it)"}
        case ToolCall(_, name, arguments):
            return {"kind": "call", "name": name, "text": arguments}
        case ToolResult(_, text, failed):
            return {"kind": "result", "text": text, "failed": failed}
        case ToolProgress(_, text):
            return {"kind": "result", "text": text} if text else None
        case MediaPart(kind):
            return {"kind": "media", "text": kind}
    return {"kind": "text", "text": text} if (text := words_of(part)) else None


def limit_json(limits: Limits | None) -> LimitJson | None:
    """What a context is measured against; None where nobody knows."""
    if limits is None:
        return None
    return {"window": limits.window, "soft": limits.soft_tokens, "hard": limits.hard_tokens}


def worker_json(who: HolderId) -> WorkerJson:
    return {"host": who.host, "pid": who.pid, "thread": who.thread, "agent": who.agent}


def holder_json(holder: Holder | None) -> HolderJson | None:
    if holder is None:
        return None
    return {
        "host": holder.host, "pid": holder.pid, "thread": holder.thread, "agent": holder.agent,
        "since": holder.since, "until": holder.until,
    }  # fmt: skip


def session_json(
    state: SessionState,
    *,
    title: str | None,
    limits: Limits | None,
    holder: Holder | None,
    keeper: str,
    usage: UsageJson | None,
    problems: list[str],
) -> SessionJson:
    return {
        "id": state.id,
        "title": title,
        "created_at": state.created_at,
        "touched_at": state.touched_at,
        "last": state.last,
        "head": state.head,
        "cut": state.cut,
        "messages": state.messages,
        "tokens": state.tokens,
        "limit": limit_json(limits),
        "segments": state.segments,
        "compactions": state.compactions,
        "committed": state.committed,
        "open": state.open is not None,
        "active": holder is not None,
        "holder": holder_json(holder),
        "pending": state.pending,
        "failures": state.failures,
        "parent": state.parent,
        "forked_at": state.forked_at,
        "turn": state.turn > 0,
        "keeper": keeper,
        "usage": usage,
        "problems": problems,
    }


def segment_json(of: Segment) -> SegmentJson:
    return {
        "number": of.number,
        "base": of.base,
        "cut": of.cut,
        "source": of.source,
        "at": of.at,
        "compaction": of.compaction,
        "summary": of.summary,
        "kept": list(of.kept),
        "tokens_before": of.tokens_before,
        "tokens_after": of.tokens_after,
        "hidden": [[first, last] for first, last in of.hidden],
        "redo": of.redo,
        "keeper": of.keeper,
        "unfolds": list(of.unfolds),
        "masked": [number for number, _ in of.masked],
    }


def spent_json(of: Usage) -> SpentJson:
    return {
        "calls": of.calls, "input_tokens": of.input_tokens, "output_tokens": of.output_tokens, "cost": of.cost,
    }  # fmt: skip


def compaction_json(of: Compaction, holder: Holder | None, now: float) -> CompactionJson:
    return {
        "id": of.id,
        "session": of.session,
        "base": of.base,
        "trigger": of.trigger,
        "state": of.state,
        "requested_at": of.requested_at,
        "attempts_allowed": of.attempts_allowed,
        "instructions": of.instructions,
        "requests": of.requests,
        "attempts": of.attempts,
        "fence": of.fence,
        "started_at": of.started_at,
        "not_before": of.not_before,
        "cause": of.cause,
        "settled_at": of.settled_at,
        "segment": of.segment,
        "spent": spent_json(of.spent),
        "worker": worker_json(of.holder) if of.holder is not None else None,
        "active": holder is not None,
        "holder": holder_json(holder),
        "age": max(0.0, round(now - of.requested_at, 6)),
        "duration": None if of.settled_at is None else max(0.0, round(of.settled_at - of.requested_at, 6)),
    }


def turn_json(turn: OpenTurn, now: float) -> TurnJson:
    return {
        "id": turn.id,
        "number": turn.number,
        "owner": turn.owner,
        "since": turn.since,
        "until": turn.until,
        "silent": now >= turn.until,
        "holder": worker_json(turn.holder),
    }


def note_json(note: Note) -> NoteJson:
    return {
        "number": note.number, "kind": note.kind, "text": note.text, "key": note.key, "actor": note.actor,
        "at": note.at,
    }  # fmt: skip


def fact_json(fact: Fact) -> FactJson:
    return {
        "kind": fact.kind, "key": fact.key, "text": fact.text, "source": fact.source, "by": fact.by,
        "until": fact.until,
    }  # fmt: skip


def quotation_json(quoted: Quotation) -> QuotationJson:
    return {
        "number": quoted.number, "who": quoted.who, "at": quoted.at, "text": quoted.text,
        "kinds": list(quoted.kinds), "size": quoted.size,
    }  # fmt: skip


def context_json(session: str, context: Context, format: str | None) -> ContextJson:
    """In another format the messages are others, perhaps more or fewer: then no numbers go with them."""
    made: ContextJson = {
        "session": session,
        "messages": context.messages,
        "tokens": context.tokens,
        "numbers": list(context.numbers),
        "formats": list(context.formats),
        "summary": context.summary,
        "facts": [fact_json(f) for f in context.facts],
        "quotes": [quotation_json(q) for q in context.quotes],
        "notes": [note_json(n) for n in context.notes],
        "pinned": list(context.pinned),
        "prompt": list(context.prompt),
        "left_out": list(context.left_out),
        "masked": list(context.masked),
        "segment": context.segment,
        "last": context.last,
    }
    if format is not None:
        made["messages"] = context.to(format)
        made["formats"] = [format] * len(made["messages"])
        del made["numbers"]
    return made


def summarizer_json(name: str | None, info: SummarizerInfo, cost: CostEstimate | None) -> SummarizerJson:
    return {
        "name": name,
        "by": info.by,
        "asks_model": info.asks_model,
        "instead": list(info.instead),
        "input_tokens": cost.input_tokens if cost is not None else None,
        "output_tokens": cost.output_tokens if cost is not None else None,
        "cost": cost.cost if cost is not None else None,
    }


def sent_json(session: str, context: Context) -> SentJson:
    """A context, with texts for those parts alone that its records do not have."""
    others: list[SentPartJson] = []
    for at, part in enumerate(parts(context)):
        if part.kind != "record":
            how = codec(part.format)
            role, text = how.header(part.body).role, how.text(part.body)
            text = "" if part.kind == "summary" else text
            others.append({"at": at, "kind": part.kind, "number": part.number, "role": role, "text": text})
    return {
        "session": session,
        "segment": context.segment,
        "last": context.last,
        "tokens": context.tokens,
        "numbers": list(context.numbers),
        "others": others,
        "left_out": list(context.left_out),
    }


def hit_json(hit: Hit) -> HitJson:
    return {
        "session": hit.session,
        "number": hit.number,
        "kind": hit.kind,
        "role": hit.role,
        "at": hit.at,
        "place": hit.place,
        "excerpt": hit.excerpt,
        "marks": [[start, stop] for start, stop in hit.marks],
        "partial": hit.partial,
        "nearby": hit.nearby,
        "around": [{"number": one.number, "role": one.role, "excerpt": one.excerpt} for one in hit.around],
    }


def report_json(report: Report) -> ReportJson:
    return {
        "sessions": report.sessions,
        "records": report.records,
        "healthy": report.healthy,
        "left": sum(1 for f in report.findings if not f.repaired),
        "findings": [_finding(f) for f in report.findings],
    }


def _finding(found: Finding) -> FindingJson:
    where = f"session {found.session}, {found.what}" if found.session is not None else found.what
    state = (
        "it was repaired"
        if found.repaired
        else "the journal itself is damaged"
        if found.fatal
        else "it can be repaired"
    )
    return {**plain(found), "words": f"{where}: there was {found.found}, and should be {found.expected}; {state}"}  # type: ignore[typeddict-item]


def compacted_json(result: CompactResult, compaction: CompactionJson | None) -> CompactedJson:
    return {
        "id": result.id,
        "state": result.state,
        "changed": result.changed,
        "joined": result.joined,
        "applied": result.applied,
        "cause": result.cause,
        "segment": result.segment,
        "compaction": compaction,
    }
