"""Checks the messages of one Hermes session, row by row. Pure."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onefold.foreign.column_values import parsed
from onefold.model import Json

SUMMARIES = (b"[CONTEXT COMPACTION", b"[CONTEXT SUMMARY]:")
"""How the summaries of all versions begin."""

_TASKS = b"[Your active task list was preserved across context compression]"
LOOK_BACK = 500
"""How many rows on either side of a compaction are compared: more than any tail that is carried."""
_AT_ONCE = 1.0
"""Seconds within which the rows of one compaction are written."""
_FEW = 10
_BLOCK = 8
"""A block of fewer different messages than this may well be said again and again, as a heartbeat is."""
_SHORT = 4
"""A whole conversation of fewer messages than this may well be had again."""
_PLACES = 64
"""How many places where the same thing was said are looked at."""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message, by what tells it from others."""

    id: int
    role: str
    print: int
    """A fingerprint of what is said, good for this process."""
    at: float
    live: bool
    rewound: bool
    summary: bool
    task_list: bool
    result_of: str | None
    calls: frozenset[str] | None
    """The ids of the calls it makes; None if they cannot be read."""
    call_count: int


def row(id: int, values: Sequence[object]) -> MessageRow:
    """A row from the columns of the query `message`."""
    role, content, result_of, calls, at, active, compacted = values
    body = content.strip() if isinstance(content, bytes) else b""
    made = calls if isinstance(calls, bytes) else b""
    ids, count = _calls(made)
    name = role if isinstance(role, str) else ""
    live = active != 0
    return MessageRow(
        id=id,
        role=name,
        print=hash((name, body, result_of or None, made)),
        at=float(at) if isinstance(at, int | float) else 0.0,
        live=live,
        rewound=not live and not compacted,
        summary=body.startswith(SUMMARIES),
        task_list=body.startswith(_TASKS),
        result_of=result_of if name == "tool" and isinstance(result_of, str) and result_of else None,
        calls=ids,
        call_count=count,
    )


def _calls(made: bytes) -> tuple[frozenset[str] | None, int]:
    if not made:
        return frozenset(), 0
    calls = parsed(made)
    if not isinstance(calls, list):
        return None, 1
    return frozenset(_ids(calls)), len(calls)


def count_calls(made: object) -> int:
    """How many calls a column of them holds, as Hermes counts."""
    return _calls(made if isinstance(made, bytes) else b"")[1]


def _ids(calls: Iterable[Json]) -> Iterable[str]:
    for call in calls:
        if isinstance(call, dict):
            for name in ("id", "call_id"):
                value = call.get(name)
                if isinstance(value, str):
                    yield value
                    yield value.partition("|")[0]


@dataclass
class DuplicateFinder:
    """Finds what a second writer wrote over again into a session that a compaction ended.

    Two compactions of one session at once each write down the conversation as they know it, and whoever comes second
    writes it behind the end. A row is a double if it came after the end, or has the very time of an equal one before
    it, and stands in a run of such rows that repeats, word for word and in order, eight different messages or more that
    stand in a row before it. Fewer do if they are all that was said, at least four and none of them twice. So a word
    that somebody says again is none, nor an exchange of a few words, nor what a heartbeat says.
    """

    ended: float
    _said: array[int] = field(default_factory=lambda: array("q"))
    """What every row says, in the order in which they were written."""
    _again: list[tuple[int, int]] = field(default_factory=list)
    """The rows that may be doubles: their places, and their ids."""
    _moments: set[int] = field(default_factory=set)

    def add(self, row: MessageRow) -> None:
        if row.rewound:
            return
        if row.live:
            moment = hash((row.print, row.at))
            if row.at > self.ended or (row.at and moment in self._moments):
                self._again.append((len(self._said), row.id))
            self._moments.add(moment)
        self._said.append(row.print)

    def found(self) -> frozenset[int]:
        """The ids of all that are."""
        if not self._again:
            return frozenset()
        before = self._said[: self._again[0][0]]
        few = _SHORT <= len(before) < _BLOCK and len({*before}) == len(before)
        runs = self._runs(before, len(before)) if few else self._runs(self._said, _BLOCK)
        ids: set[int] = set()
        reach = len(self._said)
        for (place, id), run in zip(reversed(self._again), reversed(runs), strict=True):
            reach = min(reach, place - run + 1)
            if place >= reach:
                ids.add(id)
        return frozenset(ids)

    def _runs(self, said: array[int], needed: int) -> list[int]:
        """For each row that may be a double: how long the run is that ends with it; 0 if it has too little in it."""
        told = {self._said[place] for place, _ in self._again}
        places: dict[int, list[int]] = {print: [] for print in told}
        for place, print in enumerate(said):
            if print in told and len(places[print]) < _PLACES:
                places[print].append(place)
        runs: list[int] = []
        ends: dict[int, int] = {}
        window: deque[int] = deque()
        different: Counter[int] = Counter()
        last = -1
        for place, _ in self._again:
            if place != last + 1:
                ends = {}
                window.clear()
                different.clear()
            last, print = place, self._said[place]
            ends = {at: ends.get(at - 1, 0) + 1 for at in places[print] if at < place}
            window.append(print)
            different[print] += 1
            while len(different) > needed or (len(different) == needed and different[window[0]] > 1):
                first = window.popleft()
                different[first] -= 1
                if not different[first]:
                    del different[first]
            longest = max(ends.values(), default=0)
            runs.append(longest if len(different) == needed and longest >= len(window) else 0)
        return runs


@dataclass
class MessageScan:
    """Goes over the rows of a session in the order in which they were written, and notes what is needed of them."""

    ended: float | None = None
    """When a compaction ended the session."""
    live: int = 0
    rewound: int = 0
    calls: int = 0
    rewound_calls: int = 0
    orphans: list[int] = field(default_factory=list)
    """Live results of calls that no live message makes."""
    summaries: list[MessageRow] = field(default_factory=list)
    late: list[MessageRow] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    before: deque[MessageRow] = field(default_factory=lambda: deque(maxlen=LOOK_BACK))
    """The newest rows that a compaction archived, before the first live one."""
    first: list[MessageRow] = field(default_factory=list)
    """The oldest live rows."""
    newest: deque[MessageRow] = field(default_factory=lambda: deque(maxlen=LOOK_BACK))
    """The newest live rows from before the session's end."""
    doubles: frozenset[int] = frozenset()
    """What was written over again when the session had ended, once all rows were added."""
    _made: set[str] = field(default_factory=set)
    _unreadable: bool = False
    _seen: set[int] = field(default_factory=set)
    _pairs: set[int] = field(default_factory=set)
    _said: set[int] = field(default_factory=set)
    _repeated: set[int] = field(default_factory=set)
    _sure: int = 0
    _doubtful: int | None = None
    _last: int = 0
    _doubles: DuplicateFinder | None = None

    def __post_init__(self) -> None:
        self._doubles = DuplicateFinder(self.ended) if self.ended is not None else None

    def done(self) -> MessageScan:
        """Every row was added."""
        if self._doubles is not None and (found := self._doubles.found()):
            self.doubles = found
            self.late = [row for row in self.late if row.id not in found]
            self.newest = deque(row for row in self.newest if row.id not in found)
        return self

    def add(self, row: MessageRow) -> None:
        if self._doubles is not None:
            self._doubles.add(row)
        if row.rewound:
            self.rewound += 1
            self.rewound_calls += row.call_count
            return
        if not row.live:
            if not self.first:
                self.before.append(row)
            return
        self.live += 1
        self.calls += row.call_count
        if row.summary:
            self.summaries.append(row)
        if self.ended is not None and row.at > self.ended:
            self.late.append(row)
        else:
            self.newest.append(row)
        if len(self.first) < LOOK_BACK:
            self.first.append(row)
        self._pair(row)
        self._compare(row)

    def _pair(self, row: MessageRow) -> None:
        if row.calls is None:
            self._unreadable = True
        else:
            self._made |= row.calls
        if row.result_of is not None and not {row.result_of, row.result_of.partition("|")[0]} & self._made:
            self.orphans.append(row.id)

    def _compare(self, row: MessageRow) -> None:
        """A row is a copy for sure if it has a call's id or the very time of the first; and else if what stands before
        or after it is the same too."""
        moment = hash((row.print, row.at))
        pair = hash((self._last, row.print))
        again = row.print in self._seen
        sure = again and (row.result_of is not None or row.call_count > 0 or moment in self._said)
        if again and pair in self._pairs and self._doubtful is not None:
            self.copies.append(self._doubtful)
        if sure or (again and pair in self._pairs):
            self.copies.append(row.id)
            self._repeated.add(row.print)
            self._sure += sure
            self._doubtful = None
        else:
            self._doubtful = row.id if again else None
        self._seen.add(row.print)
        self._said.add(moment)
        self._pairs.add(pair)
        self._last = row.print

    @property
    def different(self) -> int:
        return len(self._seen)

    @property
    def results_without_calls(self) -> list[int]:
        return [] if self._unreadable else self.orphans

    @property
    def duplicated(self) -> bool:
        """Whether most of the live rows are copies. Some are in every session: people say the same thing twice."""
        many = len(self.copies) >= _FEW and 2 * len(self.copies) > self.live
        return many and (len(self._repeated) >= _BLOCK or 2 * self._sure > self.live)

    def count_is_wrong(self, messages: float, calls: float | None) -> bool:
        """Rewound messages may be counted or not, depending on what came after the rewind."""
        wrong = not self.live <= messages <= self.live + self.rewound
        return wrong or (
            calls is not None and not self._unreadable and not self.calls <= calls <= self.calls + self.rewound_calls
        )


@dataclass(frozen=True)
class SwallowedMessages:
    """Messages that came while a summary was written, and that stand neither in it nor after it."""

    rows: tuple[MessageRow, ...]
    at_the_end: bool
    """Nothing was said since, so that they can follow where they would have stood."""


def swallowed(before: Iterable[MessageRow], after: Sequence[MessageRow]) -> SwallowedMessages | None:
    """Compares the rows before a compaction with those after it.

    A compaction keeps the newest messages, word for word and to the last one. If it kept some but not the last ones,
    those came too late for it.
    """
    before = [*before]
    old = {row.print for row in before}
    told = (i for i, row in enumerate(after) if row.summary)
    new = (i for i, row in enumerate(after) if row.print not in old)
    summary = next(told, next(new, None))
    if summary is None or summary + 1 == len(after) or not before:
        return None
    carried, run = _run(before, after[summary + 1 :])
    lost = [row for row in before[carried:] if not row.task_list and not row.summary]
    if not run or not any(row.role == "user" for row in lost):
        return None
    here = {row.print for row in after}
    later = after[summary + 1 + run :]
    if any(row.print in here for row in lost) or (later and later[0].at <= after[summary].at + _AT_ONCE):
        return None
    return SwallowedMessages(tuple(lost), at_the_end=not later)


def _run(before: Sequence[MessageRow], tail: Sequence[MessageRow]) -> tuple[int, int]:
    """Where the carried rows end among those before, and how many they are."""
    best = (len(before), 0)
    for start, row in enumerate(before):
        if row.print != tail[0].print:
            continue
        size = 1
        while start + size < len(before) and size < len(tail) and before[start + size].print == tail[size].print:
            size += 1
        if size >= best[1]:
            best = (start + size, size)
    return best
