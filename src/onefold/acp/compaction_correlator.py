"""Correlates what the detectors report into compactions: begun, finished or failed, each once.

Several words about one act are one compaction, in whatever order they come, and however often. Detectors that name the
act are matched by that name. The others are matched by count: the second compaction that a source tells of in a turn is
the second one of that turn for every source.

A stronger kind of detector silences the weaker ones from then on: they are still named as detectors of an act, and no
longer make, end or fail one. An agent may report by one signal what it does by itself, and by another what it is asked
for; so a detector silences others only for compactions of the sort that it has reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from onefold.acp.detectors.observation import METADATA, STDERR, STRENGTHS, Observation, kind
from onefold.describe import confidence
from onefold.model import MANUAL, Ids

BOUND = 600.0
"""Seconds that a compaction may take."""
GRACE = 2.0
"""Seconds for which lines of stderr may come after the end of their turn: they come by another pipe."""
BY_ITSELF = "agent"
"""The trigger of a compaction that nobody asked for."""
_UNENDED = "the turn ended without the end of it"


@dataclass(frozen=True, slots=True)
class CompactionBegan:
    id: str
    trigger: str
    source: str


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """The agent has compacted. It had begun under this id, or its end is the first that was seen of it."""

    id: str
    trigger: str
    source: str
    """The strongest detector."""
    signals: tuple[str, ...]
    """All that had spoken by then, the strongest first."""
    key: str | None
    """The agent's own id of the act. To be remembered: told again after a restart, it is the same act."""
    mark: int
    """What was passed in when its end was first seen: there the new segment begins."""
    summary: str | None
    aliases: tuple[str, ...]
    """Where the agent's own id of the session rotated: the ids, the newest last."""
    before: int | None
    after: int | None
    """Tokens."""
    evidence: tuple[str, ...]

    @property
    def confidence(self) -> str:
        """How sure it is that it was one."""
        return confidence(self.signals) or "low"


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    id: str
    cause: str


Outcome: TypeAlias = CompactionBegan | CompactionFinished | CompactionFailed


@dataclass(slots=True, eq=False)
class _Compaction:
    """`heard` is one that counts for nothing yet: only silenced detectors have reported it."""

    state: Literal["heard", "open", "finished", "failed"] = "heard"
    id: str = ""
    since: float = 0.0
    seen: list[Observation] = field(default_factory=list)
    late: float | None = None
    """Since when it is waited for only because its detectors read another pipe."""
    mark: int = 0

    def names(self, kind: str | None = None) -> set[str]:
        return {one.key for one in self.seen if one.key is not None and kind in (None, one.kind)}

    def may_be(self, seen: Observation) -> bool:
        """Whether detectors of this kind know it by no other name."""
        return seen.key is None or not self.names(seen.kind) - {seen.key}

    @property
    def end(self) -> float:
        bound = self.since + BOUND
        return bound if self.late is None else min(bound, self.late + GRACE)

    def fail(self, cause: str) -> CompactionFailed:
        self.state = "failed"
        return CompactionFailed(self.id, cause)


class CompactionCorrelator:
    """The compactions of one session's agent, as they are seen."""

    def __init__(
        self, ids: Ids, *, remembered: Iterable[str] = (), sources: Iterable[str] = (), asked: Iterable[str] = ()
    ) -> None:
        """`remembered` are the keys of compactions that are in the journal already, `sources` the sources of those that
        the agent began by itself, and `asked` of those that somebody asked for."""
        self._ids = ids
        self._known = set(remembered)
        self._loudest = {BY_ITSELF: _strongest(sources), MANUAL: _strongest(asked)}
        """The strongest source so far, of those that began by themselves and of those that were asked for."""
        self._all: list[_Compaction] = []
        """Of this turn and the time after it, and those that are still open."""
        self._told: dict[str, int] = {}
        """How many of them each source has told of."""
        self._begun: dict[str, _Compaction] = {}
        """Which of them each source has seen begin, and not end."""
        self._running = False
        self._settled = float("-inf")
        self._replaying = False
        self._asked = False

    @property
    def open(self) -> str | None:
        """The compaction that runs now."""
        return next((one.id for one in self._open()), None)

    @property
    def due(self) -> float | None:
        """When the next tick has something to do."""
        return min((one.end for one in self._open()), default=None)

    # ------------------------------------------------------------------ what happens around it

    def asked(self) -> None:
        """In this turn the agent is asked to compact: what it does is by hand."""
        self._asked = True

    def turn_started(self) -> None:
        self._running, self._asked = True, False
        for one in self._all:
            if one.state == "finished":
                self._known |= one.names()
        self._all = self._open()
        self._told = {seen.source: i for i, one in enumerate(self._all, 1) for seen in one.seen}
        self._begun = {source: one for source, one in self._begun.items() if one.state == "open"}

    def turn_settled(self, at: float) -> list[Outcome]:
        """To be told after the frame that settles the turn was shown to the detectors."""
        self._running, self._settled = False, at
        failed: list[Outcome] = []
        for one in self._open():
            if max(seen.strength for seen in one.seen) == STDERR:
                one.late = at if one.late is None else one.late
            else:
                failed.append(one.fail(_UNENDED))
        return failed

    def agent_died(self, cause: str) -> list[Outcome]:
        return self._none_open(f"the agent ended: {cause}")

    def agent_started(self) -> list[Outcome]:
        return self._none_open("the agent was restarted")

    def replay_began(self) -> None:
        """The agent tells what was, and nothing of it happens now. In `session/load`, detectors see that themselves."""
        self._replaying = True

    def replay_ended(self) -> None:
        self._replaying = False

    def tick(self, at: float) -> list[Outcome]:
        late = f"it did not end within {BOUND:.0f} seconds"
        return [one.fail(late if one.late is None else _UNENDED) for one in self._open() if at >= one.end]

    def _none_open(self, cause: str) -> list[Outcome]:
        self._running, self._replaying, self._asked = False, False, False
        return [one.fail(cause) for one in self._open()]

    def _open(self) -> list[_Compaction]:
        return [one for one in self._all if one.state == "open"]

    # ------------------------------------------------------------------ what detectors report

    def observed(self, seen: Observation, at: float, mark: int = 0) -> list[Outcome]:
        """`mark` says where in the journal this was seen."""
        if seen.replayed or self._replaying:
            for trigger in self._loudest:
                self._hear(seen, trigger)  # of the past it is seldom said who asked
            if seen.what == "done" and seen.key is not None:
                self._known.add(seen.key)
            return []
        if not self._is_expected(seen, at):
            return []
        begun = self._begun.get(seen.source)
        one = self._match(seen, begun)
        if one is None:
            return []
        silenced = self._silenced(one, seen)
        acts: list[Outcome] = []
        if begun is not None and begun is not one and begun.state == "open" and self._begun.get(seen.source) is one:
            acts.append(begun.fail("another one began"))
        if seen.what == "done" and not any(other.what == "done" for other in one.seen):
            one.mark = mark
        if one.state in ("heard", "open") or seen.key not in one.names():
            one.seen.append(seen)
        return acts if silenced else acts + self._decide(one, seen, at)

    def _silenced(self, one: _Compaction, seen: Observation) -> bool:
        """Whether somebody stronger, of another kind, tells of such a compaction, or of this very one."""
        trigger = self._trigger(one, seen)
        loudest = self._loudest[trigger]
        self._hear(seen, trigger)
        others = [loudest, *(other.source for other in one.seen)]
        return any(STRENGTHS.get(other, 0) > seen.strength and kind(other) != seen.kind for other in others)

    def _hear(self, seen: Observation, trigger: str) -> None:
        if seen.strength > STRENGTHS.get(self._loudest[trigger], 0):
            self._loudest[trigger] = seen.source

    def _is_expected(self, seen: Observation, at: float) -> bool:
        """Weak words count only where they make sense: a beginning in a turn, an end on stderr after its beginning."""
        if seen.what == "started":
            return seen.strength > STDERR or self._running or at - self._settled <= GRACE
        return seen.strength != STDERR or seen.source in self._begun

    def _match(self, seen: Observation, begun: _Compaction | None) -> _Compaction | None:
        """The compaction that a detector reports; None if it is a past one."""
        one = next((o for o in self._all if seen.key is not None and seen.key in o.names()), None)
        if one is None and seen.key in self._known:
            return None
        if one is None and begun is not None and seen.what != "started" and begun.may_be(seen):
            one = begun
        if one is None:
            i = self._told.get(seen.source, 0)
            while i < len(self._all) and not self._all[i].may_be(seen):
                i += 1
            if i == len(self._all):
                self._all.append(_Compaction())
            one = self._all[i]
        self._told[seen.source] = max(self._told.get(seen.source, 0), self._all.index(one) + 1)
        if seen.what == "started" and seen.key is None:
            self._begun[seen.source] = one
        elif begun is one:
            del self._begun[seen.source]
        return one

    def _decide(self, one: _Compaction, seen: Observation, at: float) -> list[Outcome]:
        match seen.what, one.state:
            case "started", "heard":
                one.state, one.id, one.since = "open", self._ids(), at
                one.late = at if seen.strength <= STDERR and not self._running else None
                return [CompactionBegan(one.id, self._trigger(one), seen.source)]
            case "done", "heard" | "open":
                return [self._finish(one)]
            case "done", "failed" if seen.strength >= METADATA:
                return [self._finish(one)]
            case "failed", "open":
                return [one.fail(seen.cause or "the agent says so")]
            case "failed", "heard":
                one.state = "failed"
        return []

    def _finish(self, one: _Compaction) -> CompactionFinished:
        if one.state != "open":
            one.id = self._ids()  # what was told to have failed stays so: this is another one
        one.state = "finished"
        told = sorted(one.seen, key=lambda seen: -seen.strength)
        rotated = [name for seen in one.seen if seen.new is not None for name in (seen.old, seen.new)]
        return CompactionFinished(
            one.id,
            self._trigger(one),
            source=told[0].source,
            signals=tuple(dict.fromkeys(name for seen in told for name in (seen.source, *seen.backed_by))),
            key=next((seen.key for seen in told if seen.key is not None), None),
            mark=one.mark,
            summary=next((seen.summary for seen in told if seen.summary), None),
            aliases=tuple(dict.fromkeys(name for name in rotated if name is not None)),
            before=next((seen.before for seen in told if seen.before is not None), None),
            after=next((seen.after for seen in told if seen.after is not None), None),
            evidence=tuple(dict.fromkeys(seen.evidence for seen in told)),
        )

    def _trigger(self, one: _Compaction, *more: Observation) -> str:
        told = (seen.automatic for seen in (*one.seen, *more) if seen.automatic is not None)
        return BY_ITSELF if next(told, not self._asked) else MANUAL


def _strongest(sources: Iterable[str]) -> str:
    return max(sources, key=lambda source: STRENGTHS.get(source, 0), default="")
