"""The conversations of a Hermes store.

A line of sessions, each ended by a compaction and continued by the next, is one conversation. What a compaction carries
over is told once: the rows behind a summary that stood before it are found by what they say, and the summary becomes a
boundary in front of the first of them. The same holds for a compaction in place, which archives rows and writes the
carried ones once more behind them.

What a second compaction wrote over again into a session that had ended is told, and taken back at once: it is here, and
in no context.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, takewhile

import apsw

from onefold.foreign.column_values import fitted, number, parsed, statements, text
from onefold.foreign.hermes.checks import COMPRESSION, HermesSession, Lineages
from onefold.foreign.hermes.message_checks import LOOK_BACK, DuplicateFinder, MessageRow
from onefold.foreign.hermes.schema import Schema, numbers_of, rows_of
from onefold.foreign.importers.conversation import (
    BranchPoint,
    CompactionStep,
    Conversation,
    MessageStep,
    RewindStep,
    SkippedStep,
    Step,
    key_of,
    moment,
)
from onefold.foreign.readonly import tables
from onefold.messages.codecs import OPENAI_CHAT
from onefold.model import ForkKind, Json

program = "hermes"

_HEADS = 8
"""How many of the first messages a compaction may carry in front of its summary."""
_PACKED = ("\x00json:", "\x01json:")
"""How content begins that is not plain text."""
_TOLD = frozenset(
    {"id", "session_id", "role", "content", "tool_call_id", "tool_calls", "timestamp", "active", "compacted"}
)
"""Columns that a message, its key, its place and its time stand for."""
_AT_ONCE = 1.0
"""Seconds within which a compaction writes its rows. What comes later is new, whatever it says."""
_END = 1 << 62
_FOREVER = 1e300

Here = Callable[[str], str | None]
"""The session that is known by an id here already."""


def conversations(connection: apsw.Connection, here: Here) -> Iterator[Conversation]:
    """Every conversation, parents before what branched off from them."""
    store = _Store(Schema(connection, tables(connection)), here)
    done: set[str] = set()
    for line in store.lines():
        waiting = [line]
        while (origin := store.origin(waiting[-1][0])) is not None:
            before = store.line_of(origin[0].id)
            if before in waiting:
                break
            waiting.append(before)
        for some in reversed(waiting):
            if some[0].id not in done:
                done.add(some[0].id)
                yield store.conversation(some)


class _Store:
    """Which sessions are one conversation, and which branched off."""

    def __init__(self, shape: Schema, here: Here) -> None:
        self._shape = shape
        self._here = here
        self._lines = Lineages(shape)
        self._next: dict[str, HermesSession] = {}
        self._others: dict[str, list[HermesSession]] = {}
        self._doubles: dict[str, frozenset[int]] = {}
        for parent in self._lines.compacted():
            self._choose(parent)
        self._line_of: dict[str, tuple[HermesSession, ...]] = {}
        continued = {s.id for s in self._next.values()} | {
            s.id for ss in self._others.values() for s in ss if self._hollow(s)
        }
        oldest = sorted(self._lines.sessions.values(), key=lambda s: (s.started, s.id))
        for session in (*(s for s in oldest if s.id not in continued), *oldest):  # the second: circles have no first
            if session.id not in self._line_of:
                line = tuple(self._follow(session))
                hollow = (s for p in line for s in self._others.get(p.id, ()) if self._hollow(s))
                self._line_of |= {s.id: line for s in (*line, *hollow)}

    def _choose(self, parent: HermesSession) -> None:
        """Which of a parent's continuations is the conversation: the one that is here already, else the one that Hermes
        goes on with, as long as it holds anything."""
        found = self._lines.continuations(parent)
        if not found:
            return
        home = self._here(parent.id)
        ranked = sorted(
            found,
            key=lambda s: (home is None or self._here(s.id) != home, self._lines.empty(s) and s.reason != COMPRESSION),
        )
        self._next[parent.id] = ranked[0]
        self._others[parent.id] = ranked[1:]

    def _hollow(self, session: HermesSession) -> bool:
        """One continuation of several that holds nothing. Its id is one more of the conversation's."""
        return session.id not in self._next and self._lines.empty(session)

    def _follow(self, session: HermesSession | None) -> Iterator[HermesSession]:
        seen: set[str] = set()
        while session is not None and session.id not in seen and session.id not in self._line_of:
            seen.add(session.id)
            yield session
            session = self._next.get(session.id)

    def lines(self) -> Iterator[tuple[HermesSession, ...]]:
        return iter(dict.fromkeys(self._line_of.values()))

    def line_of(self, id: str) -> tuple[HermesSession, ...]:
        return self._line_of[id]

    def origin(self, session: HermesSession) -> tuple[HermesSession, ForkKind] | None:
        """What a session branched off from, if it did."""
        parent = self._lines.sessions.get(session.parent or "")
        if parent is None or parent.id == session.id or self._line_of[session.id] is self._line_of[parent.id]:
            return None
        if session in self._others.get(parent.id, ()) or session.branch_of == parent.id:
            return parent, "branch"
        if session.delegate_of == parent.id or session.source == "tool":
            return parent, "subagent"
        return None

    def conversation(self, line: tuple[HermesSession, ...]) -> Conversation:
        first = line[0]
        found = self.origin(first)
        remarks = [
            f"{parent.id} goes on as {1 + len(others)} sessions: {self._next[parent.id].id} is the conversation here, "
            f"and {', '.join(s.id for s in others)} a branch of it"
            for parent in line
            if (others := [s for s in self._others.get(parent.id, ()) if not self._lines.empty(s)])
        ]
        remarks += [
            f"{session.id} has {twice:,} messages a second time: two compactions ran at once, and the later one wrote "
            "down again what it knew; the copies are here, and in no context"
            for session in line
            if (twice := len(self.doubles(session)))
        ]
        size = sum(len(numbers_of(self._shape, s.id)) for s in line)
        if found is None:
            return Conversation(
                first.id, self._ids(line), size, lambda forked: self._told(line), remarks=tuple(remarks)
            )
        parent, kind = found
        branch = _Branch(self, parent, first, kind)
        return Conversation(
            id=first.id,
            others=self._ids(line),
            size=size,
            tell=lambda forked: branch.tell(line) if forked else self._told(line),
            origin=BranchPoint(parent.id, kind, branch.points),
            remarks=tuple(remarks),
        )

    def _ids(self, line: tuple[HermesSession, ...]) -> tuple[str, ...]:
        """All but the first; with continuations that hold nothing, whose ids somebody may have all the same."""
        hollow = (s.id for p in line for s in self._others.get(p.id, ()) if self._hollow(s))
        return (*(s.id for s in line[1:]), *hollow)

    def _told(self, line: tuple[HermesSession, ...]) -> Iterator[Step]:
        return self.teller().line(line)

    def teller(self) -> _StepReader:
        return _StepReader(self._shape, self.doubles)

    def doubles(self, session: HermesSession) -> frozenset[int]:
        """The rows that were written over again when a compaction had ended a session."""
        if session.id not in self._doubles:
            self._doubles[session.id] = _doubles(self._shape, session)
        return self._doubles[session.id]

    def upto(self, parent: HermesSession) -> tuple[HermesSession, ...]:
        """The line of a session, no further than this one."""
        line = self._line_of[parent.id]
        return line[: line.index(parent) + 1] if parent in line else line

    def backwards(self, line: tuple[HermesSession, ...], last: int, until: float) -> Iterator[str]:
        """The keys of a line's messages, the newest first, from a row and a time on."""
        columns = self._shape.tables["messages"]
        query = fitted(statements("importers/hermes.sql")["newest_first"], columns, {})
        for session in reversed(line):
            doubles = self.doubles(session)
            for (id,) in self._shape.connection.execute(query, (session.id, last, until)):
                if id not in doubles:
                    yield _key(id)
            last, until = _END, _FOREVER

    def rows(self, session: HermesSession) -> Iterator[MessageRow]:
        return rows_of(self._shape, numbers_of(self._shape, session.id))


class _Branch:
    """A session that branched off: what it has in common with its parent, and from where on it is its own."""

    def __init__(self, store: _Store, parent: HermesSession, session: HermesSession, kind: ForkKind) -> None:
        self._store = store
        self._parent = parent
        self._session = session
        self._kind = kind

    def _shared(self) -> tuple[int, int]:
        """How many rows it has from its parent, and which of those is the last. A branch begins as a copy of what was
        live; a single equal row does not prove that, and a subagent has nothing."""
        if self._kind == "subagent":
            return 0, 0
        mine = array("q", (_mark(row) for row in self._store.rows(self._session)))
        best = (0, 0)
        runs: list[int] = []
        for row in self._store.rows(self._parent):
            if row.rewound:
                continue
            mark = _mark(row)
            runs = [size + 1 for size in (*runs, 0) if size < len(mine) and mine[size] == mark]
            best = max(best, (max(runs, default=0), row.id), key=lambda b: b[0])
        return best if best[0] > 1 else (0, 0)

    def points(self) -> Iterator[str]:
        line = self._store.upto(self._parent)
        count, last = self._shared()
        if self._kind == "subagent":
            return self._store.backwards(line, _END, self._session.started)
        if count:
            return self._store.backwards(line, last, _FOREVER)
        ended = self._parent.ended if self._parent.reason == COMPRESSION else None
        return self._store.backwards(line, _END, ended if ended is not None else self._session.started)

    def tell(self, line: tuple[HermesSession, ...]) -> Iterator[Step]:
        """As a fork: its own rows alone. A subagent begins with nothing of its parent's in view."""
        teller = self._store.teller()
        if self._kind == "subagent":
            yield RewindStep(None, moment(self._session.started))
            yield from teller.line(line)
            return
        count, last = self._shared()
        for _ in teller.line(self._store.upto(self._parent), last or _END):
            pass  # so that it knows what was told before
        yield from teller.line(line, skip=count, continues=not count)


# ---------------------------------------------------------------------- telling


@dataclass(frozen=True, slots=True)
class _SeenMessage:
    """A message that was told, and what it is found again by."""

    mark: int
    at: float
    key: str


@dataclass
class _StepReader:
    """Tells rows as steps, and remembers of what it told as much as a compaction may carry over."""

    shape: Schema
    doubles: Callable[[HermesSession], frozenset[int]]
    recent: deque[_SeenMessage] = field(default_factory=lambda: deque(maxlen=LOOK_BACK))
    heads: list[_SeenMessage] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Messages that were written after their session's end: no summary knows them."""
    _away: bool = False
    """The last row was rewound, or a double: then what stands before those, and how many of them are remembered."""
    _before: str | None = None
    _rewinding: int = 0

    def line(
        self, sessions: Iterable[HermesSession], last: int = _END, *, skip: int = 0, continues: bool = False
    ) -> Iterator[Step]:
        for session in sessions:
            yield from self._session(session, last, skip, continues)
            skip, continues = 0, True

    def _session(self, session: HermesSession, last: int, skip: int, continues: bool) -> Iterator[Step]:
        numbers = [id for id in numbers_of(self.shape, session.id)[skip:] if id <= last]
        ended = session.ended if session.reason == COMPRESSION else None
        doubles = self.doubles(session)
        rows = (_taken_back(row) if row.id in doubles else row for row in rows_of(self.shape, numbers))
        window: deque[MessageRow] = deque(islice(rows, LOOK_BACK))
        fresh, archived = continues, False
        gone: MessageRow | None = None
        while window:
            row = window[0]
            fresh = fresh or (archived and row.live)
            looks = row.id not in doubles and (fresh or row.summary or not row.live)
            found = self._compaction(window, fresh) if looks else None
            used = 1
            if found is not None:
                used = found.rows
                yield from self._boundary(window, found)
            else:
                yield from self._row(row, ended, double=row.id in doubles)
            gone = window[used - 1]
            for _ in range(used):
                archived = not window[0].live and not window[0].rewound
                window.popleft()
            window.extend(islice(rows, used))
            fresh = False
            if found is None and gone.rewound and not (window and window[0].rewound):
                yield RewindStep(self._before, moment(gone.at))
                self._forget()

    def _row(self, row: MessageRow, ended: float | None, *, double: bool) -> Iterator[Step]:
        key = _key(row.id)
        if row.rewound and not self._away:
            self._before = self.recent[-1].key if self.recent else None
        self._away = row.rewound
        if not double:
            self._rewinding = self._rewinding + 1 if row.rewound else 0
            self._remember(_SeenMessage(_mark(row), row.at, key))
        if ended is not None and row.at > ended and row.live:
            self.late.append(key)
        yield self._said(row)

    def _remember(self, known: _SeenMessage) -> None:
        self.recent.append(known)
        if len(self.heads) < _HEADS:
            self.heads.append(known)

    def _forget(self) -> None:
        """What was rewound is carried nowhere."""
        for _ in range(min(self._rewinding, len(self.recent))):
            self.recent.pop()
        self._rewinding = 0
        self._away = False

    # ------------------------------------------------------------------ compactions

    def _compaction(self, window: Sequence[MessageRow], fresh: bool) -> _Compaction | None:
        """Whether the rows at hand are what a compaction left: old ones it kept in front, a summary, carried ones."""
        if not self.recent:
            return None
        place = next((i for i, row in enumerate(islice(window, _HEADS + 1)) if row.summary), None)
        if place is None and not fresh:
            return None
        rows = [*window]
        if place is None:
            place = self._unmarked(rows)
        if place is None or not all(self._is_copy(row, fresh) for row in rows[:place]):
            return self._carried_alone(rows) if fresh else None
        if not fresh and rows[place].live:
            return None  # a second one among live rows: Hermes sends it like any other message
        start, run = self._run(_at_once(rows, place))
        return _Compaction(place, run, self.recent[start].key if run else None)

    def _unmarked(self, rows: Sequence[MessageRow]) -> int | None:
        """A summary that does not say that it is one: what is new in front of what is carried."""
        for i, row in enumerate(rows[:_HEADS]):
            if not self._is_copy(row, True):
                return i if self._run(_at_once(rows, i))[1] else None
        return None

    def _carried_alone(self, rows: Sequence[MessageRow]) -> _Compaction | None:
        """Rows that were carried over with no summary in front of them: they have the times they had."""
        start, run = self._run(rows)
        same = (self.recent[start + i].at == rows[i].at for i in range(run))
        carried = sum(1 for _ in takewhile(bool, same))
        return _Compaction(None, carried, None) if carried else None

    def _is_copy(self, row: MessageRow, fresh: bool) -> bool:
        mark = _mark(row)
        return any(k.mark == mark and (fresh or k.at == row.at) for k in (*self.heads, *self.recent))

    def _run(self, rows: Sequence[MessageRow]) -> tuple[int, int]:
        """Where the carried rows begin among those told, and how many they are; the longest run, then the newest."""
        told = [k.mark for k in self.recent]
        carried = [_mark(row) for row in rows]
        best = (len(told), 0)
        for start, mark in enumerate(told):
            size = 0
            if carried and mark == carried[0]:
                while start + size < len(told) and size < len(carried) and told[start + size] == carried[size]:
                    size += 1
            if size and size >= best[1]:
                best = (start, size)
        return best

    def _boundary(self, window: Sequence[MessageRow], found: _Compaction) -> Iterator[Step]:
        if found.summary is None:
            yield SkippedStep(
                f"a compaction before message {window[0].id} left no summary; what was said before it stays in the "
                "context"
            )
            return
        row = window[found.summary]
        marks = [_mark(window[i]) for i in range(found.summary)]
        kept = tuple(k.key for m in marks for k in [self._known(m)] if k is not None)
        summary = _plain(_content(self._values(row.id)))
        yield CompactionStep(_key(row.id), summary, found.first, moment(row.at), (*kept, *self.late))
        self.late.clear()
        carried = [window[i] for i in range(found.summary + 1, found.rows)]
        back = next((i for i, r in enumerate(carried) if r.rewound), None)
        if back is not None:
            start = next(i for i, k in enumerate(self.recent) if k.key == found.first)
            before = self.recent[start + back - 1].key if start + back else None
            yield RewindStep(before, moment(carried[back].at))
            while len(self.recent) > start + back:
                self.recent.pop()

    def _known(self, mark: int) -> _SeenMessage | None:
        return next((k for k in (*self.heads, *self.recent) if k.mark == mark), None)

    # ------------------------------------------------------------------ messages

    def _said(self, row: MessageRow) -> MessageStep:
        values = self._values(row.id)
        body: dict[str, Json] = {"role": row.role, "content": _content(values)}
        calls = parsed(values.get("tool_calls"))
        extras = {n: v for n, v in values.items() if n not in _TOLD and v is not None and v not in ("", 0)}
        if isinstance(calls, list) and calls:
            body["tool_calls"] = calls
        elif values.get("tool_calls"):
            extras["tool_calls"] = values["tool_calls"]
        if values.get("tool_call_id"):
            body["tool_call_id"] = values["tool_call_id"]
        if row.role == "tool" and isinstance(name := extras.pop("tool_name", None), str):
            body["name"] = name
        if extras:
            body[program] = extras
        return MessageStep(_key(row.id), (body,), OPENAI_CHAT, moment(number(values.get("timestamp"))))

    @cached_property
    def _columns(self) -> list[str]:
        return sorted(self.shape.tables["messages"])

    @cached_property
    def _whole(self) -> str:
        quoted = (f'"{name.replace(chr(34), chr(34) * 2)}"' for name in self._columns)
        asked = ", ".join(f"case typeof({q}) when 'text' then cast({q} as blob) else {q} end" for q in quoted)
        return statements("importers/hermes.sql")["whole"].replace("{columns}", asked)

    def _values(self, id: int) -> dict[str, Json]:
        found = self.shape.connection.execute(self._whole, (id,)).fetchone()
        return {name: _text(value) for name, value in zip(self._columns, found or (), strict=bool(found))}


@dataclass(frozen=True, slots=True)
class _Compaction:
    """What a compaction left at the rows at hand."""

    summary: int | None
    """How many rows stand in front of its summary; None if it left none."""
    carried: int
    first: str | None
    """The first message that it carried, where it was told."""

    @property
    def rows(self) -> int:
        return self.carried if self.summary is None else self.summary + 1 + self.carried


def _doubles(shape: Schema, session: HermesSession) -> frozenset[int]:
    if session.reason != COMPRESSION or session.ended is None:
        return frozenset()
    newest, twice = shape.ask("times", session.id).fetchone() or (None, 0)
    if not twice and not (number(newest) or 0) > session.ended:
        return frozenset()
    found = DuplicateFinder(session.ended)
    for row in rows_of(shape, numbers_of(shape, session.id)):
        found.add(row)
    return found.found()


def _taken_back(row: MessageRow) -> MessageRow:
    return replace(row, live=False, rewound=True)


def _at_once(rows: Sequence[MessageRow], summary: int) -> list[MessageRow]:
    """The rows behind a summary that were written with it, or have older times."""
    latest = rows[summary].at + _AT_ONCE
    return [*takewhile(lambda row: row.at <= latest, islice(rows, summary + 1, None))]


def _key(id: int) -> str:
    return key_of(program, str(id))


def _mark(row: MessageRow) -> int:
    """What a row is found again by. A call and its result have ids, and may have been shortened since."""
    if row.result_of is not None:
        return hash(("result", row.result_of))
    return hash(("call", row.calls)) if row.calls else row.print


def _text(value: Json) -> Json:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _content(values: dict[str, Json]) -> Json:
    content = values.get("content")
    if isinstance(content, str) and content.startswith(_PACKED):
        packed = parsed(content[len(_PACKED[0]) :].encode("utf-8", "surrogateescape"))
        return content if packed is None else packed
    return content


def _plain(content: Json) -> str:
    if isinstance(content, list):
        return "\n".join(t for part in content if isinstance(part, dict) and (t := text(part.get("text"))))
    return content if isinstance(content, str) else ""
