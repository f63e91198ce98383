"""When a context is too full: what a model takes, how large the context is as far as that is known, and what follows.

Pure: numbers in, a decision out. `Compactor` does what is decided here, for blocking programs and for async ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from onefold.model import MOST_TOKENS


def finite(**numbers: object) -> None:
    """Rejects what no decision can be made with: not a number passes every comparison, and nobody waits for ever."""
    for name, number in numbers.items():
        try:
            good = math.isfinite(number)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            good = isinstance(number, int)
        if not good:
            raise ValueError(f"{name} is a finite number, not {number!r}")


def _whole(name: str, tokens: float) -> int:
    """A number of tokens as an integer: stores keep it as one, and somebody may write 1e6."""
    if tokens != int(tokens) or abs(tokens) > MOST_TOKENS:
        raise ValueError(f"{name} is a whole number of tokens, at most {MOST_TOKENS:,}, not {tokens!r}")
    return int(tokens)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one model takes. Of its window, the reserve for its output is taken off; the rest is room for a context."""

    window: int
    """Tokens of input and output together."""
    output: int = 8_000
    """The reserve for what the model writes."""
    soft: float = 0.7
    """From this share of the room on, a summary is prepared while the agent goes on."""
    hard: float = 0.95
    """Over this share of the room, nothing is sent: the agent waits for the summary."""

    def __post_init__(self) -> None:
        finite(window=self.window, output=self.output, soft=self.soft, hard=self.hard)
        object.__setattr__(self, "window", _whole("window", self.window))
        object.__setattr__(self, "output", _whole("output", self.output))
        if not 0 <= self.output < self.window:
            raise ValueError(
                f"limits need 0 <= output < window, not output={self.output} of window={self.window}: "
                "what the model writes has to fit into its window beside the context"
            )
        if not 0 < self.soft < self.hard <= 1:
            raise ValueError(
                f"limits need 0 < soft < hard <= 1, as shares of the room, not soft={self.soft} and hard={self.hard}"
            )

    @classmethod
    def from_record(cls, said: Mapping[str, Any]) -> Limits | None:
        """What a session's record says; None where that makes no sense, as when somebody wrote it by hand: then nobody
        knows."""
        try:
            return cls(said["window"], said["output"], said["soft"], said["hard"])
        except (KeyError, TypeError, ValueError):
            return None

    def as_record(self, model: str | None) -> dict[str, Any]:
        """What a session's record is to say."""
        return {"model": model, "window": self.window, "output": self.output, "soft": self.soft, "hard": self.hard}

    @property
    def room(self) -> int:
        return self.window - self.output

    @property
    def soft_tokens(self) -> int:
        return int(self.room * self.soft)

    @property
    def hard_tokens(self) -> int:
        return int(self.room * self.hard)


_FELL = 0.9  # a compaction makes a context smaller by this share at least
_SAME = 0.95


@dataclass(frozen=True, slots=True)
class SizeEstimator:
    """How far estimates of one session are off with one model, by what its provider said of the last call."""

    estimated: int = 0
    measured: int = 0
    segment: int = 0
    believed: bool = True
    """Whether what the provider says goes with what it is sent."""
    factor: float = 0.0
    """After an overflow: what an estimate is multiplied by, so that the one which overflowed is over the window."""

    def size(self, estimated: int) -> int:
        """The size of a context, from its estimate and what was measured of the last one.

        What came since counts as it was measured, though no more than double: the figure may well hold tools and
        instructions that are in no context, and do not grow with it. A smaller context is smaller in proportion.
        """
        size = float(estimated)
        if self.measured and self.believed and self.estimated:
            told = max(self.measured, self.estimated / 2)  # some providers leave out what was in their cache
            slope = told / self.estimated
            size = told + (estimated - self.estimated) * (min(slope, 2.0) if estimated > self.estimated else slope)
        return math.ceil(max(size, estimated * self.factor))

    def told(self, measured: int, *, estimated: int, segment: int, window: int) -> SizeEstimator:
        """After a call that the provider took, and said to have had an input of `measured` tokens.

        A figure over the window is none of one call, and one that stays while the context falls is none of this
        context. Believing it would compact for ever: estimates have to do, until it falls as well.
        """
        fell = measured < self.measured * _SAME
        shrank = segment != self.segment and self.measured > 0 and estimated <= self.estimated * _FELL
        believed = measured <= window and (fell or (self.believed and not shrank))
        return replace(self, measured=measured, estimated=estimated, segment=segment, believed=believed)

    def overflowed(self, estimated: int, *, window: int) -> SizeEstimator:
        """After a call that the provider rejected for its size: the window ends below this estimate."""
        return replace(self, factor=max(self.factor, (window + 1) / max(1, estimated)))


Step: TypeAlias = Literal["send", "prepare", "wait"]
Underway: TypeAlias = Literal["nothing", "free", "held"]


@dataclass(frozen=True, slots=True)
class CompactionReadiness:
    """How a session stands with compaction."""

    may: bool = True
    """It is compacted here at all: it is switched on, and nobody else does it."""
    underway: Underway = "nothing"
    """Whether one is open, and if so, whether it is free to be worked on: nobody is at it, and no wait is left."""
    grown: bool = True
    """Enough was said since the last one."""


def decide(size: int, limits: Limits, standing: CompactionReadiness) -> Step:
    """What to do with a context of this size: send it, begin a summary and send it, or wait for the summary first.

    A compaction that left the context over the soft limit is not followed by the next one at once: what it could not
    take away is there still.
    """
    if not standing.may:
        return "send"
    if size > limits.hard_tokens:
        return "wait"
    if standing.underway != "nothing":
        return "prepare" if standing.underway == "free" else "send"
    return "prepare" if size > limits.soft_tokens and standing.grown else "send"
