"""The numbers that compaction goes by. All of them can be set; the defaults suit a chat model of 128,000 tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onefold.compaction.limits import Limits, finite

LONGEST = 1e9
"""Seconds that may be waited for, some thirty years: locks take little more."""


class Guess(int):
    """A number that nobody said: good enough to be careful by, and not to act on in somebody else's session."""


USUAL_WINDOW = Guess(128_000)


@dataclass(frozen=True, slots=True)
class Policy:
    window: int = USUAL_WINDOW
    """The model's window in tokens, if `limits` does not say more. Where nobody says anything it is a guess."""
    limits: Limits | None = None
    """What a model takes that is not among `models`: by default `limit` with an eighth of it, at most 8,000, for
    output."""
    models: Mapping[str, Limits] = field(default_factory=dict, hash=False)
    """What each model takes, by the name that `Compactor` is given."""
    tail_tokens: int = 8_000
    """How much of the newest conversation stays verbatim, at most."""
    tail_share: float = 0.25
    """The same as a share of the context, for short ones."""
    tail_messages: int = 2
    """How many messages stay verbatim at least."""
    min_shrink: float = 0.1
    """By which share a compaction must make the context smaller. Less is no progress, and is not done."""
    summary_tokens: int = 4_000
    """How long a summary should be at most."""
    attempts: int = 3
    """How often one compaction is tried, crashes included."""
    backoff: tuple[float, ...] = (2.0, 15.0, 60.0)
    """Seconds to wait after the first, second, … failed attempt."""
    longest_wait: float = 300.0
    """The longest that a provider's wish to be left alone (Retry-After) is heeded, in seconds."""
    lease: float = 60.0
    """How long a silent worker is left alone."""
    lease_renew_interval: float = 15.0
    """How often a worker says that it lives."""
    attempt_timeout: float = 600.0
    """The longest life of one attempt, however often it says so."""
    wait_timeout: float = 60.0
    """How long `compact(wait=True)` and `turn(wait=True)` wait."""
    quote_tokens: int = 16_000
    """How much is quoted word for word next to the summary, at most; 0 for nothing."""
    quote_share: float = 0.125
    """The same as a share of the model's window."""
    mask_tokens: int = 200
    """From what size on an old tool result may be shown as one line instead, before anything is summarised; 0 for
    none."""
    mask_newest: int = 10
    """How many of the newest tool results are shown whole in any case."""
    enabled: bool = True
    """False: nothing is compacted by this program, whoever asks and however full the context is."""
    turn_lease: float = 30.0
    """How long the silent writer of a turn is left alone. A live one says so three times in that time."""

    def __post_init__(self) -> None:
        finite(
            window=self.window, tail_tokens=self.tail_tokens, tail_share=self.tail_share,
            tail_messages=self.tail_messages, min_shrink=self.min_shrink, summary_tokens=self.summary_tokens,
            attempts=self.attempts, longest_wait=self.longest_wait, lease=self.lease,
            lease_renew_interval=self.lease_renew_interval, attempt_timeout=self.attempt_timeout,
            wait_timeout=self.wait_timeout, quote_tokens=self.quote_tokens,
            quote_share=self.quote_share, mask_tokens=self.mask_tokens, mask_newest=self.mask_newest,
            turn_lease=self.turn_lease,
            **{f"backoff[{at}]": wait for at, wait in enumerate(self.backoff)},
        )  # fmt: skip
        if max(self.attempt_timeout, self.turn_lease, self.wait_timeout, self.longest_wait, *self.backoff) > LONGEST:
            names = "attempt_timeout, turn_lease, wait_timeout, longest_wait and backoff"
            raise ValueError(f"{names} are at most {LONGEST:,.0f} seconds")
        if min(self.wait_timeout, self.longest_wait, self.tail_tokens, *self.backoff) < 0:
            raise ValueError("wait_timeout, longest_wait, tail_tokens and backoff are at least 0")
        if not 0 < self.lease_renew_interval < self.lease <= self.attempt_timeout:
            raise ValueError("a policy needs 0 < lease_renew_interval < lease <= attempt_timeout, in seconds")
        if self.turn_lease <= 0:
            raise ValueError("turn_lease is a number of seconds above 0")
        if self.quote_tokens < 0:
            raise ValueError("quote_tokens is at least 0, which means that nothing is quoted")
        if min(self.mask_tokens, self.mask_newest) < 0:
            raise ValueError("mask_tokens and mask_newest are at least 0; mask_tokens=0 means that nothing is masked")
        if self.attempts < 1 or self.window < 1 or self.tail_messages < 1 or self.summary_tokens < 1:
            raise ValueError("attempts, window, tail_messages and summary_tokens are at least 1")
        if not all(0 <= share < 1 for share in (self.min_shrink, self.tail_share, self.quote_share)):
            raise ValueError("min_shrink, tail_share and quote_share are shares: from 0 up to, but not including, 1")

        if wrong := [name for name, of in self.models.items() if type(of) is not Limits]:
            raise ValueError(f"models maps names to Limits, and for {wrong[0]!r} it has something else")
        object.__setattr__(self, "models", dict(self.models))
        self.of()  # which rejects a window that is no number of tokens

    def of(self, model: str | None = None) -> Limits:
        """The limits of a model; of one that is not among `models`, those of any."""
        any_model = self.limits or window_of(self.window)
        return any_model if model is None else self.models.get(model, any_model)

    @property
    def said(self) -> Limits | None:
        """What it says of any model; None if nobody said anything, and the usual window is a guess."""
        return self.limits or (None if isinstance(self.window, Guess) else window_of(self.window))

    def retry_after(self, attempt: int, wished: float | None = None) -> float:
        """How long to wait after a failed attempt, by itself or as a provider wishes, which has its bound."""
        usual = self.backoff[min(attempt, len(self.backoff)) - 1] if self.backoff else 0.0
        return usual if wished is None or not wished > usual else max(usual, min(wished, self.longest_wait))

    def seconds(self, wait: bool | float) -> float:
        """For how long a caller waits that said so: True for as long as the policy says, False for not at all."""
        if wait is True:
            return self.wait_timeout
        finite(wait=wait)
        return min(max(0.0, float(wait)), LONGEST)


def window_of(tokens: int) -> Limits:
    """The limits of a model of which only its window is known: an eighth of it, at most 8,000, is for output."""
    return Limits(tokens, min(8_000, tokens // 8))
