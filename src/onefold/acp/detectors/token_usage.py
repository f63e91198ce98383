"""Token counts in `_meta`, of agents that send no `usage_update`.

`_meta.usage` comes with a message, `_meta.quota` with the end of a turn. Both count tokens that were sent and received:
a turn in which the model was called three times counts its context three times, and what a subagent used is in it, too.
So they only ever say too much. Turns that call a tool are left out, and a fall counts if the turn before the highest
one was above it as well: a single turn that counted too much explains nothing then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import Observation, mapping, number, word
from onefold.model import Json

_TOTAL = ("totalTokens", "total_tokens")
_PARTS = ("inputTokens", "outputTokens"), ("input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class TurnTotals:
    """What turns without a tool call used."""

    last: tuple[int, ...] = ()
    """Of the last two of them."""
    models: frozenset[str] = frozenset()
    """That they were said to have used."""
    told: int | None = None
    """By messages of the turn that runs."""
    tools: bool = False
    """A tool was called in it."""
    better: bool = False
    """The agent sends `usage_update`, which says what the context holds."""

    @property
    def newest(self) -> int | None:
        return self.last[-1] if self.last and not self.better else None

    def forget(self) -> TurnTotals:
        return TurnTotals(better=self.better, tools=True)

    def step(self, moment: ObservedEvent) -> tuple[TurnTotals, tuple[Observation, ...]]:
        if moment.began is not None:
            return replace(self, told=None, tools=moment.now.slash), ()
        if moment.ended is not None:
            return self._ended(moment)
        if moment.before.loading:
            return TurnTotals(better=self.better), ()
        match moment.update.get("sessionUpdate"):
            case "usage_update":
                return TurnTotals(better=True), ()
            case "tool_call" | "tool_call_update":
                return replace(self, tools=True), ()
        used = reported(moment.update)
        return (replace(self, told=used) if used else self), ()

    def _ended(self, moment: ObservedEvent) -> tuple[TurnTotals, tuple[Observation, ...]]:
        if moment.ended is not None and moment.ended.slash:
            return self.forget(), ()  # it may have cleared the context
        used = self.told or spent(moment.result) or 0
        if self.better or self.tools or not used or moment.result.get("stopReason") != "end_turn":
            return replace(self, told=None, tools=False), ()
        models = _models(moment.result)
        if models != self.models:
            return TurnTotals((used,), models), ()
        if len(self.last) < 2 or not (used * 2 < self.last[1] and used < self.last[0]):
            return TurnTotals((*self.last[-1:], used), models), ()
        where = "_meta.usage" if self.told else "_meta.quota"
        seen = Observation(
            "done", "usage.meta", f"{where} fell from {self.last[1]} to {used}", before=self.last[1], after=used
        )
        return TurnTotals((used,), models), (seen,)


def reported(update: Mapping[str, Json]) -> int | None:
    """What a message says to have used in its `_meta`; None if it says nothing."""
    return _sum(mapping(mapping(update.get("_meta")).get("usage")))


def spent(result: Mapping[str, Json]) -> int | None:
    """What the `_meta` of an answer says that its turn used."""
    return _sum(mapping(_quota(result).get("token_count")))


def _quota(result: Mapping[str, Json]) -> Mapping[str, Json]:
    return mapping(mapping(result.get("_meta")).get("quota"))


def _sum(told: Mapping[str, Json]) -> int | None:
    for name in _TOTAL:
        if total := number(told.get(name)):
            return total
    for parts in _PARTS:
        if total := sum(number(told.get(name)) or 0 for name in parts):
            return total
    return None


def _models(result: Mapping[str, Json]) -> frozenset[str]:
    listed = _quota(result).get("model_usage")
    names = [word(mapping(one).get("model")) for one in listed] if isinstance(listed, list) else []
    return frozenset(name for name in names if name is not None)
