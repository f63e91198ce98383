"""What is wrong with a summary, by name, before it may replace anything.

A check rejects only what is surely bad: a good summary that is rejected costs an attempt, and there are few of them.
All are linear in the text, and none knows more than one language well: what it does not recognise passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from onefold.messages.codecs import estimate
from onefold.model import Summary

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
_REFUSED = r"""^\W*(
        ((i'm|i\sam)\s(very\s|really\s|so\s)?sorry|sorry|i\sapologi[sz]e|my\sapologies|unfortunately)
            \b.{0,40}?\bi(\sam|'m)?\s(can'?t|cannot|can\snot|won'?t|will\snot|unable|not\sable|must\sdecline)\b
      | (i'm|i\sam)\s(unable|not\sable)\sto\s(help|assist|comply|provide|summari[sz]e|fulfil|process|do\sth)
      | i\s(can'?t|cannot|can\snot|won'?t|will\snot|must\sdecline\sto)\s(help|assist|comply|provide|summari[sz]e
            |fulfil|engage|process|do\sth|(write|create|generate)\s(a|an|this|that|the|your)\b)
      | as\san\s(ai|artificial\sintelligence)\b(?!\s(agent|assistant)\sfor\b)
      | i\s(don'?t|do\snot)\s(see|have)\s(any|a|the|access\sto)\b.{0,40}\b(conversation|transcript|material)
      | (please|could\syou|can\syou)\b.{0,20}\b(provide|share|paste)\b.{0,40}\b(conversation|transcript|text|messages)
      | (there\sis|there's)\s(no|nothing)\b.{0,20}\bto\ssummari[sz]e
      | (es\s)?tut\smir\s(sehr\s)?leid\b.{0,20}\bich\skann | je\s(suis\s)?d[ée]sol[ée].{0,20}\bje\sne\speux
      | lo\ssiento\b.{0,20}\bno\spuedo | sinto\smuito\b.{0,20}\bn[ãa]o\sposso | mi\sdispiace\b.{0,20}\bnon\sposso
      | (很?抱歉|对不起|對不起)\W*我(无法|無法|不能) | 申し訳(ありません|ございません)
    )"""
_REFUSING = re.IGNORECASE | re.VERBOSE | re.DOTALL  # compiled when it is first needed
_SHORT = 600  # an error or a refusal is short; a long summary may well begin with the words of one

_FENCE = re.compile(r"^[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(`{3,}+|~{3,}+)([^\n`]*)$", re.MULTILINE)
_UNFINISHED = re.compile(
    r"""(
        [,\u3001\uff0c(\[{\uff08\u300c]       # a comma or an opened bracket
      | [^\W\d_]{2}-                        # half a word
      | \s[\u2013\u2014]                    # a dash
      | (^|\n)[ \t]*[-*+]                   # an item without its text
      | (^|\s)(and|or|but|the|an|because|whose|und|oder|weil|dass|mais|parce\sque|pero|porque|и|или)
    )\Z""",
    re.VERBOSE,
)
_SENTENCE = re.compile(r"[^\W\d_][^|`\n]{60,}\s[^\W\d_]+")
"""A line that is prose: not an item, a heading or a row, and with no code, number or address at its end."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_FILLERS = """
    a an the is are was were be been being has have had do does did will would it its this that these those there and
    or of in on at to for from by with as so then also now still again already currently further user agent
"""
_FILLER = frozenset(_FILLERS.split())
_EXTRACT = "extract"
_ECHO_RUN, _ECHO_SHARE, _ECHO_START = 6, 0.5, 20
_ECHO_LOOK = 32_768  # characters: an echo shows at the beginning
_COPY_RUN, _COPY_SHARE, _COPY_LEAST = 8, 0.8, 40
_SAME_RUN, _SAME_SHARE = 3, 0.9


class SummaryProblem(NamedTuple):
    """Why a summary is rejected: the name of the check, for programs, and the reason, for people."""

    name: str
    words: str


def find_problem(
    summary: Summary,
    *,
    previous: str | None,
    replaces: int,
    shrink: float,
    said: Iterable[str] | None = None,
    limit: int | None = None,
) -> SummaryProblem | None:
    """Why this summary is rejected; None if it is fine.

    `replaces` is the size of what it stands for, `said` are the texts of the messages
    that it stands for, `limit` is how long it was asked to be at most. The words are for people, and for the next
    attempt: `prompt.asked` goes by how they begin.
    """
    text = summary.text.strip()
    if not text:
        return SummaryProblem("empty", "the summary is empty")
    told = tuple(said) if said is not None else None
    return (
        _cut_off(summary, text, limit)
        or _no_summary(text)
        or _echo(summary, text, told or ())
        or _same(text, previous, told)
        or _too_large(text, replaces, shrink)
    )


def _cut_off(summary: Summary, text: str, limit: int | None) -> SummaryProblem | None:
    if summary.cut_off:
        return SummaryProblem("cut off", "the summary was cut off before its end")
    if summary.by == _EXTRACT:
        return None  # it ends as a message ends, or with the beginning of one
    if _in_code(text):
        return SummaryProblem("cut off", "the summary was cut off inside a code block")
    full = bool(summary.spent.calls) and limit is not None and estimate(text) >= limit  # as a model is that has no room
    if _UNFINISHED.search(text[-200:]) or (full and _SENTENCE.fullmatch(text.rpartition("\n")[2])):
        return SummaryProblem("cut off", f"the summary was cut off in mid sentence: it ends with {text[-40:]!r}")
    return None


def _in_code(text: str) -> bool:
    """Whether a fence that opens a code block is not closed: by one of the same sign, at least as long, alone."""
    opened = ""
    for fence in _FENCE.finditer(text):
        if not opened:
            opened = fence[1]
        elif fence[1].startswith(opened) and not fence[2].strip():
            opened = ""
    return bool(opened)


def _no_summary(text: str) -> SummaryProblem | None:
    if len(text) > _SHORT:
        return None
    if _ERROR.match(text):
        return SummaryProblem("error text", f"the summary is an error text: {text[:80]!r}")
    if re.match(_REFUSED, text.replace("\u2019", "'"), _REFUSING):
        return SummaryProblem("refusal", f"the summary is a refusal: {text[:80]!r}")
    return None


def _echo(summary: Summary, text: str, said: Sequence[str]) -> SummaryProblem | None:
    """Whether it gives back what the model was given. That it begins with our instructions is enough, or that half of
    it is theirs. Of messages, a model writes hardly anything down word for word; a method that asks no model may."""
    words = _words(text[:_ECHO_LOOK])
    if _repeats_prompt(words):
        return SummaryProblem("echo", f"the summary repeats the instructions for it: {text[:80]!r}")
    if summary.spent.calls and summary.by != _EXTRACT and len(words) >= _COPY_LEAST:
        share = _copied(words, said) / len(words)
        if share >= _COPY_SHARE:
            return SummaryProblem(
                "echo", f"the summary is a copy of the messages: {share:.0%} of it stands there as it is"
            )
    return None


def _copied(words: Sequence[str], said: Sequence[str]) -> int:
    """How many of the words stand in a message together with those around them."""
    found = set(_runs(words, _COPY_RUN)).intersection(run for t in said for run in _runs(_words(t), _COPY_RUN))
    count = until = 0
    for start, run in enumerate(_runs(words, _COPY_RUN)):
        if run in found:
            count += start + _COPY_RUN - max(start, until)
            until = start + _COPY_RUN
    return count


def _repeats_prompt(words: Sequence[str]) -> bool:
    ours = _prompt_runs()
    if len(words) < _ECHO_RUN:
        return False
    hits = [run in ours for run in _runs(words, _ECHO_RUN)]
    return sum(hits) >= _ECHO_SHARE * len(hits) or (len(words) >= _ECHO_START and all(hits[: _ECHO_START - _ECHO_RUN]))


@cache
def _prompt_runs() -> frozenset[tuple[str, ...]]:
    from onefold.compaction.prompt import CONSTANT  # its patterns are not needed to open a store

    return frozenset(run for part in CONSTANT for run in _runs(_words(part), _ECHO_RUN))


def _same(text: str, previous: str | None, said: Sequence[str] | None) -> SummaryProblem | None:
    """Whether it says what the last one said.

    The same words in the same order, or almost (the runs of three words that only one of them has are under a tenth)
    with nothing new. New is a number or a name that was not there, any other word that the messages bring in, more
    words than were taken away, and the same words in another order: what was open is done now.
    """
    if previous is None:
        return None
    new, old = _words(text), _words(previous)
    if new == old and (new or text == previous.strip()):
        return SummaryProblem("same", "the summary is the same as the one before")
    ours, theirs = set(_runs(new, _SAME_RUN)), set(_runs(old, _SAME_RUN))
    alike = len(ours & theirs) / max(1, len(ours | theirs))
    if alike < _SAME_SHARE or _is_news(Counter(new), Counter(old), said):
        return None
    return SummaryProblem(
        "same", f"the summary is almost the same as the one before, with nothing new: {alike:.0%} alike"
    )


def _is_news(new: Counter[str], old: Counter[str], said: Sequence[str] | None) -> bool:
    added, gone = new - old, old - new
    if not added:
        return not gone
    if said is None or added.total() > gone.total() or any(any(c.isdigit() for c in w) for w in added):
        return True
    telling = set(added) - _FILLER
    return any(not telling.isdisjoint(_words(text)) for text in said)


def _too_large(text: str, replaces: int, shrink: float) -> SummaryProblem | None:
    size = estimate(text)
    if size <= replaces * (1 - shrink):
        return None
    return SummaryProblem(
        "no progress", f"no progress: a summary of {size} tokens for {replaces} is not smaller enough"
    )


def _words(text: str) -> list[str]:
    """What a text says, without its form. Signs that are words of their own are taken one by one."""
    return _WORD.findall(text.casefold())


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    """Every stretch of so many words."""
    return zip(*(words[n:] for n in range(length)), strict=False)
