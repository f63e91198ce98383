"""Describes records in words, for people who read a journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onefold.humanize import ago, clock_time, count, listed
from onefold.messages import FORMATS, encode
from onefold.model import (
    AGENT_ENDED,
    AGENT_STARTED,
    ALIAS,
    CANCELLED,
    COMMITTED,
    DRAFTED,
    ERASED,
    FAILED,
    FORK,
    HEALED,
    INPUT_QUEUED,
    INPUT_TAKEN,
    JOINED,
    MESSAGE,
    NOTE,
    PIN_ADDED,
    PIN_REMOVED,
    QUESTION_ASKED,
    QUESTION_SETTLED,
    REQUESTED,
    SEGMENT_OPENED,
    STARTED,
    SUPERSEDED,
    TURN_SETTLED,
    TURN_STARTED,
    Json,
    OpenTurn,
    Record,
)

PERMISSION = "session/request_permission"


def said(record: Record) -> str:
    """What a person would read in a message, whatever its format."""
    known = FORMATS.get(record.format or "json")
    return known.text(record.body) if known is not None else encode(record.body)


def words(record: Record) -> str:
    """One record in words. A body that does not fit its kind is shown as it is: reading must never fail."""
    if record.kind in (MESSAGE, INPUT_QUEUED):
        return said(record)
    tell = _WORDS.get(record.kind)
    try:
        return tell(record, record.body) if tell is not None else encode(record.body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return encode(record.body)


def summary_of(record: Record) -> str | None:
    """The summary that a record holds, if it opened a segment with one of its own, or as its agent told it."""
    body = record.body if record.kind == SEGMENT_OPENED and isinstance(record.body, dict) else {}
    found = body.get("summary", body.get("said"))
    return found if isinstance(found, str) else None


def turn_words(turn: OpenTurn, now: float) -> str:
    """Whose turn is open, since when, and whether its writer still says that it lives."""
    writer = turn.owner or f"{turn.holder.host}:{turn.holder.pid}"
    silent = "" if now < turn.until else ", not heard of any more"
    return f"turn of {writer}, begun {ago(turn.since, now)}{silent}"


def numbered(numbers: Iterable[int]) -> str:
    """#2, #3, #9: records by their numbers."""
    return listed(f"#{n}" for n in numbers)


def _by(record: Record) -> str:
    return f" by {record.actor}" if record.actor else ""


def _requested(record: Record, body: Json) -> str:
    wish = f"; instructions: {body['instructions']}" if body.get("instructions") else ""
    return f"asked for{_by(record)}, trigger {body['trigger']}: compact segment {body['base']}{wish}"


def _joined(record: Record, body: Json) -> str:
    return f"asked for once more{_by(record)}, trigger {body['trigger']}: joins the one that is open"


def _started(record: Record, body: Json) -> str:
    holder = body["holder"]
    name = f" ({holder['agent']})" if holder.get("agent") else ""
    return f"{holder['host']}:{holder['pid']}{name} works on it, from what stands up to #{record.number - 1}"


def _committed(record: Record, body: Json) -> str:
    return f"done by the one that began at #{body['fence']}: opens segment {body['segment']}"


def _failed(record: Record, body: Json) -> str:
    after = "for good" if body["final"] else f"next try not before {clock_time(body['not_before'])}"
    return f"attempt {body['attempt']} failed, {after}: {body['cause']}"


def _drafted(record: Record, body: Json) -> str:
    by = f" by {body['by']}" if body.get("by") else ""
    refused = f", and rejected: {body['refusal']}" if body.get("refusal") else ""
    return f"the summary of segment {body['segment']} was written once more{by}, asked for{_by(record)}{refused}"


def _cancelled(record: Record, body: Json) -> str:
    return f"cancelled{_by(record)}"


def _superseded(record: Record, body: Json) -> str:
    return f"no longer needed: {body.get('cause', 'the head moved')}"


def _segment(record: Record, body: Json) -> str:
    if body["source"] == "created":
        return "the session begins"
    sizes = f"{body['tokens_before']:,} → {body['tokens_after']:,} tokens"
    kept = f", {numbered(body['kept'])} kept besides" if body.get("kept") else ""
    match body["source"]:
        case "restored":
            return f"{_restored(record, body)}, verbatim from #{body['cut']} on{kept}; {sizes}"
        case "provider":
            adopts = body["adopts"]
            sealed = ", sealed" if adopts["sealed"] else ""
            return f"a compaction of {adopts['origin']['provider']}'s adopted: #{adopts['window'][-1]}{sealed}; {sizes}"
        case "masked":
            many = len(body.get("masks", ()))
            return f"{count(many, 'tool result')} shown as one line each; {sizes}"
        case "forked":
            return f"begins with the boundary it had there, verbatim from #{body['cut']} on{kept}"
        case "erased":
            return f"a view without what was erased, verbatim from #{body['cut']} on{kept}; {sizes}"
        case "kept":
            return f"from now on it is compacted by {'its agent' if body.get('keeper') == 'agent' else 'onefold'}"
        case "observed":
            return f"its agent compacted by itself, seen by {_seen_by(body)}; no cut is moved"
    by = f" (by {body['by']})" if body.get("by") else ""
    return f"everything before #{body['cut']} is a summary now{by}{kept}; {sizes}"


def _restored(record: Record, body: Json) -> str:
    """An undo or a rewind hides what lies right before its own record; a redo or a restore hides nothing new."""
    if body.get("unfolds"):
        return f"unfolded: the {_compactions(body['unfolds'])} taken back"
    if body.get("refolds"):
        return f"folded again: the {_compactions(body['refolds'])} in force again"
    first, last = (body.get("hidden") or [[0, 0]])[-1]
    first = body.get("since", first)
    if body.get("redo") and last == record.number - 1:
        return f"undone: #{first} to #{last} no longer count" if first < last else f"undone: #{last} no longer counts"
    return f"back to the boundary of segment {body['restored']}"


def _compactions(segments: list[int]) -> str:
    return f"compaction {numbered(segments)} is" if len(segments) == 1 else f"compactions {numbered(segments)} are"


def _taken(record: Record, body: Json) -> str:
    if body.get("erased"):
        return f"the input #{body['input']} was erased, so nobody takes it"
    if body.get("unqueued"):
        return f"the input #{body['input']} was taken back{_by(record)}"
    return f"the input #{body['input']} is taken; it is the next message"


def _turn_started(record: Record, body: Json) -> str:
    holder = body["holder"]
    return f"a turn{_by(record)} begins: {holder['host']}:{holder['pid']} writes"


def _turn_settled(record: Record, body: Json) -> str:
    if body["outcome"] == "settled":
        return "the turn is settled"
    return f"the turn {'was ' if body['outcome'] != 'failed' else ''}{body['outcome']}{_by(record)}" + (
        f": {body['cause']}" if body.get("cause") else ""
    )


def _pin_added(record: Record, body: Json) -> str:
    if "slot" in body:
        return f"{numbered(body['numbers'])} the system prompt{_by(record)}, in place of the one before"
    return f"{numbered(body['numbers'])} pinned{_by(record)}: in every context from now on"


def _pin_removed(record: Record, body: Json) -> str:
    return f"{numbered(body['numbers'])} no longer pinned{_by(record)}"


def _note(record: Record, body: Json) -> str:
    about = f"{body['kind']} ({body['key']})" if body.get("key") else body["kind"]
    return f"{about}{_by(record)}: {body['text']}" if body["text"] else f"{about} no longer holds{_by(record)}"


def _fork(record: Record, body: Json) -> str:
    return f"it is a {body['kind']} of {body['parent']}, whose records are those up to #{body['at']}{_by(record)}"


def _erased(record: Record, body: Json) -> str:
    if "was" in body:
        return f"{'an input' if body['was'] == INPUT_QUEUED else 'a ' + body['was']} stood here; it was erased"
    gone = f"{numbered(body['numbers'])} erased for good" if body["numbers"] else "what was erased no longer counts"
    covered = listed(body["summaries"])
    return f"{gone}{_by(record)}" + (f", and the summary of segment {covered} with it" if covered else "")


def _alias(record: Record, body: Json) -> str:
    return f"it is also known as {body['alias']}{_by(record)}"


def _healed(record: Record, body: Json) -> str:
    return f"{count(len(body['findings']), 'derived row')} repaired: {listed(f['what'] for f in body['findings'])}"


CONFIDENCE: Mapping[str, str] = {
    "acp": "high",
    "hermes.meta": "high",
    "qwen.meta": "high",
    "vibe.meta": "high",
    "vibe.tool": "high",
    "hermes.stderr": "medium",
    "qwen.text": "medium",
    "text": "low",
    "usage": "low",
    "usage.meta": "low",
}
"""How sure it is that an agent compacted if only this says so."""


def confidence(signals: Iterable[str]) -> str | None:
    """How sure it is that an agent compacted, by what it was seen: `high`, `medium` or `low`. Two of different kinds
    that agree are no guess. None if none of them is a detector of onefold's."""
    known = [w for w in signals if w in CONFIDENCE]
    if not known or any(CONFIDENCE[w] == "high" for w in known):
        return "high" if known else None
    agree = len({w.partition(".")[0] for w in known}) > 1
    return "medium" if agree or any(CONFIDENCE[w] == "medium" for w in known) else "low"


def _seen_by(body: Json) -> str:
    """The strongest detector first, which is the source, and the others."""
    others = [w for w in body.get("witnesses") or () if w != body["by"]]
    told = f"{body['by']} and {listed(others)}" if others else str(body["by"])
    sure = confidence([body["by"], *others])
    return told if sure is None else f"{told} ({sure} confidence)"


_HOW = {
    "new": "with a session of its own that is new",
    "resume": "and has taken its session up again",
    "load": "and has loaded its session",
    "handover": "again; the next prompt tells it what was said",
}


def _agent_started(record: Record, body: Json) -> str:
    return f"the agent {body['agent']} runs, {_HOW.get(body['how'], body['how'])}: process {body['pid']}"


def _agent_ended(record: Record, body: Json) -> str:
    return f"the agent ended: {body['cause']}"


def _asked(record: Record, body: Json) -> str:
    if body["method"] != PERMISSION:
        return f"the agent asks the clients: {body['method']}"
    options = listed(str(o["name"]) for o in body["params"]["options"])
    return f"the agent asks: {body['params']['toolCall'].get('title') or 'may it go on?'} ({options})"


def _settled(record: Record, body: Json) -> str:
    if body["outcome"] != "answered":
        return f"the agent's question was {body['outcome']}{_by(record)}"
    said = body["answer"]
    if "error" in said:
        return f"the agent's question was answered with an error{_by(record)}: {said['error'].get('message')}"
    chosen = said["result"].get("outcome") if isinstance(said.get("result"), dict) else None
    option = chosen.get("optionId") or chosen.get("outcome") if isinstance(chosen, dict) else None
    return f"the agent's question was answered{_by(record)}" + (f": {option}" if option else "")


_WORDS: dict[str, Callable[[Record, Json], str]] = {
    REQUESTED: _requested,
    JOINED: _joined,
    STARTED: _started,
    COMMITTED: _committed,
    FAILED: _failed,
    CANCELLED: _cancelled,
    SUPERSEDED: _superseded,
    DRAFTED: _drafted,
    SEGMENT_OPENED: _segment,
    INPUT_TAKEN: _taken,
    TURN_STARTED: _turn_started,
    TURN_SETTLED: _turn_settled,
    PIN_ADDED: _pin_added,
    PIN_REMOVED: _pin_removed,
    NOTE: _note,
    FORK: _fork,
    ERASED: _erased,
    ALIAS: _alias,
    HEALED: _healed,
    AGENT_STARTED: _agent_started,
    AGENT_ENDED: _agent_ended,
    QUESTION_ASKED: _asked,
    QUESTION_SETTLED: _settled,
}
