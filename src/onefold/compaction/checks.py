"""What is wrong with a summary, by name, before it may replace anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from onefold.messages.codecs import estimate
from onefold.model import Fact, Summary

_ERROR = re.compile(
    r"""^\W*(
        (internal\s)?(server\s)?error(\scode)?\s*(\W*$|[:(\d])  # Error, Error: …, Internal server error (…
      | [\w.]*(Error|Exception)\s*[:(]               # RateLimitError: …
      | Traceback\s\(most\srecent
      | (HTTP(/[\d.]+)?|status|code)\W{0,3}[45]\d\d\b
      | [45]\d\d\s(Bad|Unauthorized|Forbidden|Not|Too|Internal|Service|Gateway)\b
      | rate\slimit(\sis|\swas|\shas)?(\sbeen)?\s*(exceeded|reached|error|\W*$|:)
      | service\sunavailable\b | bad\sgateway\b | gateway\stimeout\b
      | "?(error|message)"?\s*:\s*[{"] | "?type"?\s*:\s*"error"
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SHORT = 600  # an error text is short; a long summary may well begin with the word


class Refusal(NamedTuple):
    """Why a summary is refused: the name of the check, for programs, and the reason, for people."""

    name: str
    words: str


def complaint(
    summary: Summary, *, previous: str | None, replaces: int, shrink: float, facts: Sequence[Fact] = ()
) -> Refusal | None:
    """Why this summary is refused; None if it is fine. `replaces` is the size of what it stands for, `facts` is the
    ledger in force."""
    text = summary.text.strip()
    if not text:
        return Refusal("empty", "the summary is empty")
    if summary.cut_off:
        return Refusal("cut off", "the summary was cut off before its end")
    if text.count("```") % 2:
        return Refusal("cut off", "the summary was cut off inside a code block")
    if len(text) <= _SHORT and _ERROR.match(text):
        return Refusal("error text", f"the summary is an error text: {text[:80]!r}")
    if previous is not None and _plain(text) == _plain(previous):
        return Refusal("same", "the summary is the same as the one before")
    if estimate(text) > replaces * (1 - shrink):
        size = estimate(text)
        return Refusal("no progress", f"no progress: a summary of {size} tokens for {replaces} is not smaller enough")
    return None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
