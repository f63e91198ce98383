"""The state.db of Hermes Agent: what goes wrong in it, and how it is repaired.

Hermes compacts in two ways. In place, the rows of a session are archived (`active` 0, `compacted` 1) and the summary
with the newest messages is written behind them. By rotation, the session is ended with the reason `compression`, and a
child goes on with the summary. A child is a branch or a subagent's session if its marker names its parent; with a
marker that names another session it only inherited it, and is a continuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import apsw

from onefold.foreign.column_values import number, parsed_object, readable, text
from onefold.foreign.findings import ForeignFinding, Progress
from onefold.foreign.hermes.message_checks import LOOK_BACK, MessageRow, MessageScan, SwallowedMessages, swallowed
from onefold.foreign.hermes.repairs import REPAIRS, count_of
from onefold.foreign.hermes.schema import Schema, numbers_of, rows_of
from onefold.foreign.readonly import alive, tables
from onefold.foreign.repair import Operation
from onefold.model import Json

name = "Hermes Agent"

COMPRESSION = "compression"
_RECOVERED = ("agent_close", "ws_orphan_reap")
"""Ends by accident, which Hermes itself takes back when the chat goes on."""
_LEFT_OPEN = ("active", "paused")
_NEEDED = {"sessions": {"id", "source"}, "messages": {"id", "session_id", "role", "content"}}


@dataclass(frozen=True, slots=True)
class HermesSession:
    """What is needed of a session to know its place in its line."""

    id: str
    parent: str | None
    started: float
    ended: float | None
    reason: str | None
    source: str | None
    messages: float
    calls: float | None
    branch_of: str | None
    delegate_of: str | None

    def continues(self, parent: HermesSession) -> bool:
        marked = parent.id in (self.branch_of, self.delegate_of) or self.source == "tool"
        return parent.reason == COMPRESSION and self.id != parent.id and not marked


def recognises(connection: apsw.Connection) -> str | None:
    """A Hermes store has sessions and messages of this shape, and says its schema's version."""
    shape = Schema(connection, tables(connection))
    if not all(shape.has(table, *columns) for table, columns in _NEEDED.items()):
        return None
    if not shape.has("schema_version", "version"):
        return "an early schema" if shape.has("messages", "tool_call_id") else None
    found = connection.execute("select max(version) from schema_version").fetchone()
    return f"schema {found[0] if found else '?'}"


@readable
def examine(connection: apsw.Connection, *, now: float, progress: Progress) -> Iterator[ForeignFinding]:
    shape = Schema(connection, tables(connection))
    lines = Lineages(shape)
    yield from _cycles(lines)
    for parent in lines.compacted():
        yield from _continuations(lines, parent)
    yield from _locks(lines, now)
    yield from _routes(lines)
    yield from _bindings(lines)
    yield from _goals(lines)
    yield from _messages(lines, progress)


def repair(operation: Operation, finding: ForeignFinding) -> str:
    shape = Schema(operation.connection, tables(operation.connection))
    return REPAIRS[finding.kind](operation, shape, finding.facts)


# ---------------------------------------------------------------------- lines of sessions


class Lineages:
    """All sessions, and which goes on as which."""

    def __init__(self, shape: Schema) -> None:
        self.shape = shape
        self.sessions = {found.id: found for found in _sessions(shape)}
        self._children: dict[str, list[HermesSession]] = {}
        for session in self.sessions.values():
            if session.parent is not None:
                self._children.setdefault(session.parent, []).append(session)

    def compacted(self) -> Iterator[HermesSession]:
        """Those that a compaction ended."""
        return (s for s in self.sessions.values() if s.reason == COMPRESSION)

    def continuations(self, parent: HermesSession) -> list[HermesSession]:
        """The one that Hermes goes on with comes first."""
        found = [s for s in self._children.get(parent.id, ()) if s.continues(parent)]
        return found if len(found) < 2 else sorted(found, key=self._rank, reverse=True)

    def _rank(self, session: HermesSession) -> tuple[int, float, float, str]:
        place = 2 if session.reason == COMPRESSION else 1 if session.ended is None else 0
        return place, self.newest(session) or session.started, session.started, session.id

    def newest(self, session: HermesSession) -> float | None:
        return number(self.shape.one("newest", session.id))

    def empty(self, session: HermesSession) -> bool:
        return self.shape.one("has_messages", session.id) is None

    def tip(self, session: HermesSession) -> HermesSession:
        """The newest session of a line."""
        seen = {session.id}
        while found := self.continuations(session):
            if found[0].id in seen:
                break
            session = found[0]
            seen.add(session.id)
        return session


def _sessions(shape: Schema) -> Iterator[HermesSession]:
    for id, parent, started, ended, reason, source, messages, calls, config in shape.ask("sessions", table="sessions"):
        if not isinstance(id, str):
            continue
        marks = parsed_object(config)
        yield HermesSession(
            id=id,
            parent=text(parent),
            started=number(started) or 0.0,
            ended=number(ended),
            reason=text(reason) if ended is not None else None,
            source=text(source),
            messages=number(messages) or 0,
            calls=number(calls) if shape.has("sessions", "tool_call_count") else None,
            branch_of=text(marks.get("_branched_from")),
            delegate_of=text(marks.get("_delegate_from")),
        )


def _cycles(lines: Lineages) -> Iterator[ForeignFinding]:
    done: set[str] = set()
    for start in lines.sessions.values():
        walked: dict[str, HermesSession] = {}
        at: HermesSession | None = start
        while at is not None and at.id not in done and at.id not in walked:
            walked[at.id] = at
            at = lines.sessions.get(at.parent) if at.parent is not None else None
        if at is not None and at.id in walked:
            order = [*walked]
            circle = [walked[id] for id in order[order.index(at.id) :]]
            first = min(circle, key=lambda s: (s.started, s.id))
            names = ", ".join(sorted(s.id for s in circle))
            yield ForeignFinding(
                kind="cycle",
                key=first.id,
                where=f"session {first.id}",
                wrong=f"its line of parents leads back to itself: {names}",
                means="Its history has no beginning: lists may leave it out, and whoever follows the line never ends.",
                remedy=f"{first.id} began first, so it becomes the beginning; its old parent is kept aside.",
                repairable=True,
                facts={"session": first.id, "sessions": sorted(s.id for s in circle)},
            )
        done |= {*walked}


def _continuations(lines: Lineages, parent: HermesSession) -> Iterator[ForeignFinding]:
    found = lines.continuations(parent)
    if not found:
        yield _unfinished(parent)
        return
    full = [s for s in found if not lines.empty(s)]
    if len(full) > 1:
        yield _fork(lines, parent, full)
    if found[0] not in full and not lines.continuations(found[0]):
        yield _empty(parent, found[0], bool(full))
    if found[0].source != parent.source:
        yield _elsewhere(parent, found[0])


def _unfinished(parent: HermesSession) -> ForeignFinding:
    return ForeignFinding(
        kind="ended-without-continuation",
        key=parent.id,
        where=f"session {parent.id}",
        wrong="a compaction ended it and never made the session that goes on",
        means="The conversation is closed with nothing after it: what is written to it is rejected or not seen again.",
        remedy="It is opened again, as it was before the compaction; nothing in it is lost.",
        repairable=True,
        facts={"session": parent.id},
    )


def _fork(lines: Lineages, parent: HermesSession, full: list[HermesSession]) -> ForeignFinding:
    kept, *others = full
    names = " and ".join(s.id for s in others)
    can = lines.shape.has("sessions", "model_config")
    what = f"{kept.id}, the one that Hermes goes on with, stays; {names} is marked as a branch, so that it is listed"
    return ForeignFinding(
        kind="fork",
        key=parent.id,
        where=f"session {parent.id}",
        wrong=f"it goes on as {len(full)} sessions: {', '.join(s.id for s in full)}",
        means=f"Hermes goes on with {kept.id}; what was said in {names} since the compaction is not seen again.",
        remedy=f"{what} and can be resumed. No message is moved."
        if can
        else f"Report only: this version cannot mark a branch. Resume {names} by id to see what it holds.",
        repairable=can,
        facts={"parent": parent.id, "kept": kept.id, "others": [s.id for s in others]},
    )


def _empty(parent: HermesSession, child: HermesSession, others: bool) -> ForeignFinding:
    goes_on = "the continuation that has messages" if others else f"{parent.id}, which is opened again"
    return ForeignFinding(
        kind="empty-continuation",
        key=child.id,
        where=f"session {child.id}",
        wrong=f"it is the continuation of {parent.id} and has no message",
        means="Whoever resumes the conversation finds it empty, though everything is still there before it.",
        remedy=f"{child.id} is put away as orphaned, and the conversation goes on in {goes_on}.",
        repairable=True,
        facts={"session": child.id, "parent": parent.id, "others": others},
    )


def _elsewhere(parent: HermesSession, child: HermesSession) -> ForeignFinding:
    return ForeignFinding(
        kind="continued-elsewhere",
        key=parent.id,
        where=f"session {parent.id}",
        wrong=f"it began in {parent.source}, and a compaction in {child.source} made it go on as {child.id}",
        means=f"A program that still holds the old id would write to a session that has ended; {child.id} goes on.",
        remedy=f"Report only: the store is right. Restart what still shows {parent.id}, or resume {child.id}.",
        severity="note",
        facts={"session": parent.id, "continuation": child.id},
    )


# ---------------------------------------------------------------------- locks, routes, goals


def _locks(lines: Lineages, now: float) -> Iterator[ForeignFinding]:
    if not lines.shape.has("compression_locks", "session_id", "holder", "expires_at"):
        return
    for id, holder, _, until in lines.shape.ask("locks", table="compression_locks"):
        if not isinstance(id, str):
            continue
        expires = number(until)
        session = lines.sessions.get(id)
        if expires is None or expires < now:
            wrong = f"its compaction lock ran out{_when(expires)} and was never released"
        elif session is None:
            wrong = "it does not exist, and yet it has a compaction lock"
        elif session.ended is not None:
            wrong = f"it has ended, and its compaction lock is held until{_when(expires)}"
        elif _dead(holder):
            wrong = f"its compaction lock belongs to {holder}, which no longer runs"
        else:
            continue
        yield ForeignFinding(
            kind="stale-lock",
            key=id,
            where=f"session {id}",
            wrong=wrong,
            means="A compaction was killed in the middle. While the lock is in force no other one can begin.",
            remedy="The lock is removed. The store is repaired only while no program has it open, so nobody holds it.",
            severity="risk",
            repairable=True,
            facts={"session": id, "holder": str(holder)},
        )


def _dead(holder: object) -> bool:
    found = re.match(r"pid=(\d{1,9})\b", holder) if isinstance(holder, str) else None
    return found is not None and not alive(int(found.group(1)), "")


def _when(at: float | None) -> str:
    if at is None or not 0 < at < 1e11:
        return ""
    return f" {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _routes(lines: Lineages) -> Iterator[ForeignFinding]:
    if not lines.shape.has("gateway_routing", "session_key", "entry_json"):
        return
    for rowid, scope, key, entry in lines.shape.ask("routes", table="gateway_routing"):
        session = lines.sessions.get(str(parsed_object(entry).get("session_id")))
        if session is None or session.reason is None or session.reason in _RECOVERED:
            continue
        place = f"{scope}:{key}" if scope else f"{key}"
        yield _route(lines, session, f"chat {key}", place, {"table": "gateway_routing", "row": rowid})


def _bindings(lines: Lineages) -> Iterator[ForeignFinding]:
    if not lines.shape.has("telegram_dm_topic_bindings", "chat_id", "thread_id", "session_id"):
        return
    for rowid, chat, thread, id in lines.shape.ask("bindings"):
        session = lines.sessions.get(str(id))
        if session is not None and session.reason == COMPRESSION:
            facts = {"table": "telegram_dm_topic_bindings", "row": rowid}
            yield _route(lines, session, f"topic {thread} of chat {chat}", f"topic:{chat}:{thread}", facts)


def _route(lines: Lineages, session: HermesSession, who: str, key: str, facts: dict[str, Json]) -> ForeignFinding:
    tip = lines.tip(session)
    can = session.reason == COMPRESSION and tip.id != session.id and tip.ended is None
    if facts["table"] == "telegram_dm_topic_bindings" and can:
        can = lines.shape.one("bound", tip.id) is None
    left = "Report only: Hermes drops this route by itself and starts again; to go on with the old session, resume it."
    if session.reason == COMPRESSION:
        left = "Report only: there is no session to send it to. Look at the findings about this session first."
    return ForeignFinding(
        kind="route-to-ended-session",
        key=key,
        where=who,
        wrong=f"its messages go to session {session.id}, which ended ({session.reason})",
        means="What is written there is put into a conversation that is closed, and nobody answers from what it knows.",
        remedy=f"Its messages go to {tip.id}, where the conversation goes on." if can else left,
        severity="harm" if session.reason == COMPRESSION else "risk",
        repairable=can,
        facts={**facts, "session": session.id, "to": tip.id if can else None},
    )


def _goals(lines: Lineages) -> Iterator[ForeignFinding]:
    if not lines.shape.has("state_meta", "key", "value"):
        return
    for key, value in lines.shape.ask("goals"):
        session = lines.sessions.get(str(key)[len("goal:") :])
        if session is None or session.reason != COMPRESSION:
            continue
        tip = lines.tip(session)
        if tip.id == session.id or parsed_object(value).get("status", "active") not in _LEFT_OPEN:
            continue
        taken = lines.shape.one("goal", f"goal:{tip.id}") is not None
        moved = f"{tip.id} has one of its own, so this one is closed" if taken else f"It is moved to {tip.id}"
        yield ForeignFinding(
            kind="goal-on-ended-session",
            key=session.id,
            where=f"session {session.id}",
            wrong=f"its goal is still open, and the conversation goes on in {tip.id} without it",
            means="The agent no longer works towards the goal, and does not say so.",
            remedy=f"{moved}; the old entry is kept aside.",
            repairable=True,
            facts={"session": session.id, "to": tip.id},
        )


# ---------------------------------------------------------------------- messages


def _messages(lines: Lineages, progress: Progress) -> Iterator[ForeignFinding]:
    shape = lines.shape
    total = int(shape.one("message_count"))
    done = 0
    seen: set[str] = set()
    for id, group in groupby(shape.ask("message_ids"), key=itemgetter(0)):
        numbers = [found for _, found in group if isinstance(found, int)]
        session = lines.sessions.get(id) if isinstance(id, str) else None
        if session is not None:
            seen.add(session.id)
            yield from _of_session(lines, session, _read(shape, session, numbers))
        done += len(numbers)
        progress(done, total)
    if shape.has("sessions", "message_count"):
        for session in lines.sessions.values():
            if session.messages and session.id not in seen:
                yield _count(session, MessageScan())


def _read(shape: Schema, session: HermesSession, numbers: Iterable[int]) -> MessageScan:
    messages = MessageScan(session.ended if session.reason == COMPRESSION else None)
    for found in rows_of(shape, numbers):
        messages.add(found)
    return messages.done()


def _of_session(lines: Lineages, session: HermesSession, messages: MessageScan) -> Iterator[ForeignFinding]:
    shape = lines.shape
    if found := swallowed(messages.before, messages.first):
        yield _swallowed(shape, session, session, found)
    if session.reason == COMPRESSION and (continued := lines.continuations(session)):
        child = continued[0]
        if found := swallowed(messages.newest, _first(shape, child)):
            yield _swallowed(shape, session, child, found)
    if messages.late:
        yield _late(lines, session, messages.late)
    if messages.duplicated:
        yield _duplicated(shape, session, messages)
    elif messages.doubles:
        yield _doubled(shape, session, messages)
    for id in messages.results_without_calls:
        yield _orphan(shape, session, id)
    if len(messages.summaries) > 1:
        yield _summaries(shape, session, messages.summaries)
    if shape.has("sessions", "message_count") and messages.count_is_wrong(session.messages, session.calls):
        yield _count(session, messages)


def _first(shape: Schema, session: HermesSession) -> list[MessageRow]:
    """The rows that a continuation began with, and some after them."""
    rows = rows_of(shape, numbers_of(shape, session.id)[:LOOK_BACK])
    return [found for found in rows if not found.rewound]


def _swallowed(shape: Schema, session: HermesSession, into: HermesSession, found: SwallowedMessages) -> ForeignFinding:
    ids = [r.id for r in found.rows]
    can = found.at_the_end and into.ended is None
    left = "Report only: the conversation has gone on since, and to put them behind it would change what it says."
    return ForeignFinding(
        kind="swallowed-tail",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"{count_of(ids, 'message')} came while a summary was written, and went with what it replaced",
        means="They stand neither in the summary nor after it: the agent does not know of them, and never answers.",
        remedy=f"They are put back behind the last message of {into.id}, as new messages." if can else left,
        repairable=can,
        facts={"session": session.id, "into": into.id, "messages": ids},
    )


def _late(lines: Lineages, session: HermesSession, late: list[MessageRow]) -> ForeignFinding:
    tip = lines.tip(session)
    ids = [r.id for r in late]
    newest = lines.newest(tip)
    can = (
        tip.id != session.id
        and tip.ended is None
        and lines.shape.archives
        and (newest is None or newest < late[0].at)
        and not lines.empty(tip)
    )
    if can:
        remedy = f"They are put behind the last message of {tip.id}, which is older, and archived here."
    elif tip.id == session.id:
        remedy = "Report only: it has no continuation. Once it is opened again they are part of it."
    else:
        remedy = f"Report only: {tip.id} has gone on since, and to put them behind it would change what it says."
    return ForeignFinding(
        kind="written-after-end",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"{count_of(ids, 'message')} written after a compaction ended it",
        means="A writer still held the old id. The conversation goes on elsewhere, without them.",
        remedy=remedy,
        repairable=can,
        facts={"session": session.id, "into": tip.id, "messages": ids},
    )


def _duplicated(shape: Schema, session: HermesSession, messages: MessageScan) -> ForeignFinding:
    ratio = messages.live / max(1, messages.live - len(messages.copies))
    return ForeignFinding(
        kind="duplicated-rows",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"{len(messages.copies):,} of {messages.live:,} live messages are copies of others: {ratio:.1f} rows for "
        "each message",
        means="A write was repeated row by row. The agent reads everything several times over, and is billed for it.",
        remedy="The copies are archived: they leave the live set and stay in the store."
        if shape.archives
        else "Report only: this version has no archive to put the copies in.",
        repairable=shape.archives,
        facts={"session": session.id, "live": messages.live, "copies": len(messages.copies)},
    )


def _doubled(shape: Schema, session: HermesSession, messages: MessageScan) -> ForeignFinding:
    ids = sorted(messages.doubles)
    return ForeignFinding(
        kind="written-twice",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"{len(ids):,} of its {messages.live:,} live messages were written a second time, word for word and in "
        "the same order, by whoever compacted it as well",
        means="Two compactions ran at once. The second wrote down again what it knew; nothing in it is new.",
        remedy="The copies are archived: they leave the live set and stay in the store."
        if shape.archives
        else "Report only: this version has no archive to put the copies in.",
        repairable=shape.archives,
        facts={"session": session.id, "live": messages.live, "messages": ids},
    )


def _orphan(shape: Schema, session: HermesSession, id: int) -> ForeignFinding:
    return ForeignFinding(
        kind="result-without-call",
        key=str(id),
        where=f"session {session.id}, message {id}",
        wrong="it is the result of a tool call that no message before it makes",
        means="Providers reject a conversation with such a result, every time.",
        remedy="The result is archived: it leaves the live set and stays in the store."
        if shape.archives
        else "Report only: this version has no archive to put it in.",
        repairable=shape.archives,
        facts={"session": session.id, "message": id},
    )


def _summaries(shape: Schema, session: HermesSession, found: list[MessageRow]) -> ForeignFinding:
    same = len({r.print for r in found}) == 1 and shape.archives
    return ForeignFinding(
        kind="several-summaries",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"it has {len(found)} live summaries",
        means="The agent reads more than one account of the past, and they may disagree.",
        remedy="They are equal: the newest stays, the others are archived."
        if same
        else "Report only: they differ, and what one leaves out another may hold. A new compaction makes one of them.",
        severity="risk",
        repairable=same,
        facts={"session": session.id, "messages": [r.id for r in found]},
    )


def _count(session: HermesSession, messages: MessageScan) -> ForeignFinding:
    said = f"{session.messages:.0f} messages"
    has = f"{messages.live}"
    if messages.live <= session.messages <= messages.live + messages.rewound:
        said, has = f"{session.calls or 0:.0f} tool calls", f"{messages.calls}"
    return ForeignFinding(
        kind="wrong-count",
        key=session.id,
        where=f"session {session.id}",
        wrong=f"it says that it has {said}, and has {has}",
        means="Lists show a wrong number, and a session that counts none may be cleaned up as an empty one.",
        remedy="The count is set to what is there.",
        severity="risk",
        repairable=True,
        facts={"session": session.id},
    )
