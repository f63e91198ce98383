"""What was measured, in words: for the terminal, as JSON, and as the page in `docs/`. And what must hold of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import mean, stdev
from textwrap import wrap

from benchmarks.fidelity.languages import LANGUAGES, phrases
from benchmarks.fidelity.measures import (
    AIM,
    ALL_FITS,
    HELD_TO,
    HONEST,
    IN_FORCE,
    MANY_ROUNDS,
    MODELS,
    NEWEST,
    NO_MODEL,
    OVER,
    QUOTE_SHARE,
    QUOTES,
    ROOMS,
    SHARES,
    SUMMARY_SHARE,
    TAIL_SHARE,
    WAYS,
    Found,
    Look,
)
from benchmarks.fidelity.seen import ALONE, NEITHER, ONLY_END, ORDERED
from benchmarks.fidelity.talks import HELD_BACK, KINDS, KNOWN, Planted

LEAST = {0.10: 0.73, 0.20: 0.975, 0.30: 0.99}
"""What share of the facts of the corpus must be held at each size, in either phrasing."""
APART = 0.02
"""How much less a language may hold than English."""
_SHOWN = 12
"""How many examples the page shows."""

_INTRODUCTION = """\
# Fidelity

A compaction replaces old messages by a summary, and beside it quotes what people said, word for word. What does a
context still say when the summaries forget everything? This page is written by `make fidelity`, which measures it; the
same code gives the same page. `ARGS=--quick` is a short run that leaves this page alone, `ARGS=--json` prints the
numbers as JSON, and `ARGS="--kit FILE"` measures conversations of your own: a line of JSON each, with `messages` as
OpenAI chat messages and `needed`, a list of `{"kind": …, "needs": […]}` with strings that a user said.

## What is measured

Each conversation is appended in five stretches. After each comes a compaction whose summarizer writes fluent prose
that holds nothing of what was planted. Then the context is read as a model would read it. A fact is held if all its
parts stand together, word for word, somewhere in it.

| kind | what is planted | what must be found again |
| --- | --- | --- |
| rule | what must, or must not, be done | the clause: *don't push to main* |
| cap | a limit with its number | the number with its unit, and what it is for |
| code | order numbers, commits, door codes, grants, … | the code, and what it is the code of |
| path | files, folders, links | the path |
| preference | what somebody likes better | what is liked, or what is not |
| value | something that changes one to three times | the present value, and what it is the value of |
| pair | two things with look-alike names and values | each value with its own name |

- **The corpus** is frozen: 24 long conversations in English with tools, written once by a generator, in the phrasings
  that earlier rules were made with (*known*) and in others (*held back*).
- **Eight languages** say the same things at the same places, as people there say them: English, German, Portuguese,
  Turkish, Russian, Arabic, Chinese, Japanese. The shares of people's words, answers and tool output are alike.
- **The context** is at most 10, 20 or 30 % of the whole conversation, in the library's own estimate of tokens.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fact, over all conversations of a group."""

    kind: str
    held: int
    planted: int

    @property
    def rate(self) -> float:
        return self.held / self.planted if self.planted else 1.0

    def __str__(self) -> str:
        return f"{self.held} of {self.planted}"


def rows(found: Found, group: str, share: float, way: str = QUOTES, model: str = NO_MODEL) -> list[Row]:
    """By kind, and all together at the end."""
    marks: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    for one in _of(found, group, share, way, model):
        for kind, mark in zip(one.kinds, one.held, strict=True):
            for name in (kind, "all"):
                marks[name] += mark
                planted[name] += 1
    return [Row(kind, marks[kind], planted[kind]) for kind in (*_kinds(planted), "all")]


def total(found: Found, group: str, share: float, way: str = QUOTES, model: str = NO_MODEL) -> Row:
    return rows(found, group, share, way, model)[-1]


def broken(found: Found) -> list[str]:
    """What must hold and does not, in words."""
    return [*_held_too_little(found), *_said_wrongly(found)]


def _held_too_little(found: Found) -> Iterator[str]:
    for share in SHARES:
        for group in (KNOWN, HELD_BACK):
            row = total(found, group, share)
            if row.rate < LEAST[share]:
                yield f"{group} at {_percent(share)}: {row} is less than {_percent(LEAST[share], 1)}"
        for language in _spoken(found):
            more, off = _beside(found, language, share)
            if more < -APART:
                known = "" if more < -off else ", which its sentences cannot tell from chance"
                yield f"{_name(language)} at {_percent(share)}: {_points(more, off)} points beside English{known}"
    if lost := sum(len(one.lost) for one in found.lasting):
        yield f"facts that quotes held after five rounds, and not after {MANY_ROUNDS}: {lost}"


def _said_wrongly(found: Found) -> Iterator[str]:
    mine = [one for one in found.looks if one.way == QUOTES]
    if over := sum(one.tokens > one.original * one.share for one in mine):
        yield f"contexts larger than they may be: {over}"
    if slipped := sum(one.injected for one in mine):
        yield f"orders from tool output that are quoted: {slipped}"
    for model in MODELS:
        for what in ("torn", "labelled"):
            count = sum(getattr(one, what) for one in found.traps if one.model == model)
            if count and (what == "torn" or model in HELD_TO):
                yield f"traps {what}, {model}: {count}"
    if wrong := [one for one in found.ends if one.room == ALL_FITS and one.how != ORDERED]:
        yield f"taken back, with room for all: {len(wrong)} not shown in order"
    if wrong := [one for one in found.ends if (one.room, one.model) == (ALL_FITS, HONEST) and one.label == IN_FORCE]:
        yield f"taken back, with room for all: {len(wrong)} labels not ended"


def as_text(found: Found) -> str:
    heads = [f"{group} {_percent(share)}" for group in (KNOWN, HELD_BACK) for share in SHARES]
    lines = [f"{'':12}" + "".join(f"{head:>16}" for head in heads)]
    lines += [f"{kind:12}" + "".join(f"{cell:>16}" for cell in cells) for kind, cells in _by_kind(found)]
    lines.append("")
    for language in _spoken(found):
        lines.append(f"{_name(language):12}" + "".join(f"{total(found, language, s)!s:>16}" for s in SHARES))
    lines.append("")
    lines += [f"{row[0]:24} {', '.join(row[1:])}" for row in (*_trap_rows(found), *_end_rows(found))]
    return "\n".join(lines)


def as_json(found: Found) -> str:
    groups = dict.fromkeys((one.group, one.share, one.way, one.model) for one in found.looks)
    names = ("group", "share", "way", "model", "kind", "held", "planted")
    table = [
        dict(zip(names, (*group, r.kind, r.held, r.planted), strict=True))
        for group in groups
        for r in rows(found, *group)
    ]
    return json.dumps(
        {
            "rows": table,
            "lost_in_twenty_rounds": sum(len(one.lost) for one in found.lasting),
            "traps": [asdict(trap) for trap in found.traps],
            "ends": [asdict(end) for end in found.ends],
            "broken": broken(found),
        },
        indent=2,
        ensure_ascii=False,
    )  # fmt: skip


def of_kit(found: Found) -> str:
    """What was held of somebody else's conversations."""
    group = found.looks[0].group
    lines = []
    for way in (QUOTES, NEWEST):
        for row in zip(*(rows(found, group, share, way) for share in SHARES), strict=True):
            lines.append(f"{way:8} {row[0].kind:24}" + "".join(f"{f'{r} ({_percent(r.rate, 1)})':>24}" for r in row))
    return "\n".join([f"{'':33}" + "".join(f"{_percent(share):>24}" for share in SHARES), *lines])


def as_page(found: Found) -> str:
    groups = [f"{group}, {_percent(share)}" for group in (KNOWN, HELD_BACK) for share in SHARES]
    parts = [
        _INTRODUCTION,
        _wrapped(_room(found)),
        "## What is held\n",
        "![Share of planted facts that a context still holds, by kind and size](fidelity.svg)\n",
        _markdown(("", *groups), [(kind, *cells) for kind, cells in _by_kind(found)]),
        _verdict(found),
        "### Beside other ways\n",
        _wrapped(_OTHER_WAYS),
        _markdown(("", *map(_percent, SHARES)), [
            (way, *(_cell(found, KNOWN, share, way=way) for share in SHARES)) for way in WAYS
        ]),
        _wrapped(_WITH_MODELS.format(*(_cell(found, KNOWN, AIM, model) for model in MODELS))),
        "### In eight languages\n",
        _markdown(("", *map(_percent, SHARES), f"beside English, {_percent(SHARES[0])}"), [
            (_name(one), *(_cell(found, one, share) for share in SHARES), _points(*_beside(found, one, SHARES[0])))
            for one in _spoken(found)
        ]),
        _wrapped(_SENTENCES.format(len(_of(found, LANGUAGES[0], AIM)), len(_of(found, LANGUAGES[0], AIM)[0].kinds))),
        "### After twenty rounds\n",
        _wrapped(_lasted(found)),
        "## What is shown and asks for nothing\n",
        _wrapped(_trap_words(found)),
        _markdown(("room", *(f"{model}: {what}" for model in MODELS for what in _FATES)), _trap_rows(found)),
        _TRAP_LEGEND,
        "## What was taken back\n",
        _wrapped(_end_words(found)),
        _markdown(("room for", *_HOW), _end_rows(found)),
        "## What no longer holds\n",
        _wrapped(_FORMER.format(sum(one.injected for one in found.looks if one.way == QUOTES))),
        _markdown(("context", *(f"{group}: a former value alone" for group in (KNOWN, HELD_BACK))), [
            (_percent(share), *(str(sum(sum(one.former) for one in _of(found, group, share)))
                                for group in (KNOWN, HELD_BACK))) for share in SHARES
        ]),
        "## Size\n",
        _markdown(("context", "measured, mean", "measured, most", "quotes, mean"), _size_rows(found)),
        "## What was missed\n",
        _misses(found),
        _LIMITS,
        "## Where it is lower than it was\n",
        _wrapped(_lower(found)),
    ]  # fmt: skip
    return "\n".join(parts)


_OTHER_WAYS = """\
The known phrasings again, with the same room. *Verbatim* is people's messages whole, the newest first, until they fill
the room that quotes would have; *newest* gives that room to the newest messages; *summary* leaves it empty."""
_WITH_MODELS = """\
With a scripted model that names each planted fact as such, quotes at 20 % hold {1} instead of {0}; with one that calls
every sentence a rule, as code lets it, {2}."""
_SENTENCES = """\
{0} seeds put the same {1} sentences of a language at other places, with other names and numbers. The last column says
how many points a language is from English, sentence by sentence, and how far off that may be (95 %): what is missed are
mostly the same few, short and of common words, and with others it would be others."""
_FORMER = """\
Values change, and both the old and the new words may be quoted, in their order. Counted here is a value that no longer
holds and stands without the present one. Orders that were slipped into tool output: {0} are quoted."""
_FATES = ("shown", "torn", "labelled")
_HOW = (ORDERED, ALONE, ONLY_END, NEITHER)
_TRAP_LEGEND = """\
- *shown*: words of it are quoted. That is no fault: people pasted them, and may ask about them again.
- *torn*: they are quoted without the words that introduce them, in the same quotation or the one before it. Where
  nothing introduces a paste, its own first line has to stand with it.
- *labelled*: the message they stand in is marked as a rule, a limit or a preference. The last model calls each of them
  a rule. Code refuses what stands in quotation marks, code or documents, after a colon, or in a tool's or an agent's
  lines; what is pasted plainly, told or made up it cannot tell. That is why a label raises rank and nothing else.
"""
_LIMITS = """\
## What this does not show

- Whether a model makes use of what is there, or heeds the words that introduce the quotes. Only words are compared.
- How good a real summarizer is. A summary that holds the facts as well can only add to this.
- Real conversations. What is planted comes from lists, and each fact is said in one or two sentences. What is said only
  by implication, or over several messages, is not planted.
- Traps and ends that nobody thought of. Each language has the same thirteen traps and eight ends.
- Native speakers' judgement of the phrasings, and languages beyond the eight.
- Facts that stand only in tool output. They are not planted: what a tool says is never quoted.
"""


def _lower(found: Found) -> str:
    now = [total(found, KNOWN, share) for share in SHARES]
    return (
        "Before there were quotes, facts were found by some 3,200 lines of English patterns. Of the known phrasings, "
        "which they were made with, they held 903 of 903 at 10, 20 and 30 %; quotes hold "
        f"{now[0].held}, {now[1].held} and {now[2].held}. Of those held back they held 849 at 20 %; quotes hold "
        f"{total(found, HELD_BACK, AIM).held}. No superseded value was shown beside the present one, but 22 of 162 "
        "were shown in its place where phrasings were held back; now both may stand there, in the order in which they "
        "were said. In other languages patterns found next to nothing, and they made rules of pasted text."
    )


def _room(found: Found) -> str:
    mine = _of(found, KNOWN, AIM) + _of(found, HELD_BACK, AIM)
    sizes = [one.original for one in mine]
    spoken = [one for language in LANGUAGES for one in _of(found, language, AIM)]
    return (
        f"Of that room quotes may take {_percent(QUOTE_SHARE)}, new messages {_percent(TAIL_SHARE)} and the summary "
        f"{_percent(SUMMARY_SHARE)}; the rest is for the message at which the tail begins. Measured here: {len(mine)} "
        f"conversations of the corpus of {min(sizes):,} to {max(sizes):,} tokens with "
        f"{sum(len(one.kinds) for one in mine):,} facts, and {len(spoken)} in other languages and English with "
        f"{sum(len(one.kinds) for one in spoken):,}."
    )


def _verdict(found: Found) -> str:
    least = ", ".join(f"{_percent(rate, 1)} at {_percent(share)}" for share, rate in LEAST.items())
    aim = (
        f"What must hold: at least {least} in both phrasings; every language within two points of English; no "
        f"fact less after {MANY_ROUNDS} rounds; no trap torn, and none labelled but by the model that takes traps for "
        "rules; with room for all, everything that was taken back before what ended it, and its label ended; no word "
        "of a tool quoted."
    )
    told = _wrapped(f"{aim} {'Not met:' if (wrong := broken(found)) else 'All of it is met.'}")
    return "\n".join([told, *(f"- {words}" for words in wrong)]) + ("\n" if wrong else "")


def _lasted(found: Found) -> str:
    lost = [fact for one in found.lasting for fact in one.lost]
    return (
        f"After the five rounds come fifteen more with nothing but small talk. In {len(found.lasting)} conversations, "
        f"quotes held {sum(one.held for one in found.lasting):,} planted facts after five rounds at {_percent(AIM)}; "
        f"after {MANY_ROUNDS}, {len(lost)} of them were gone."
    )


def _trap_words(found: Found) -> str:
    mine = [one for one in found.traps if (one.room, one.model) == (ALL_FITS, NO_MODEL)]
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(one.kind for one in mine).items())
    places = ", ".join(f"{count} {place}" for place, count in Counter(one.place for one in mine).items())
    return (
        f"{len(mine)} traps in {len({one.group for one in mine})} languages: words that look like orders and are none "
        f"({kinds}), each introduced in the same message, in the one before, at its end, after a greeting, or not at "
        f"all ({places}). Counted for contexts that people's words fit into, and for smaller ones."
    )


def _trap_rows(found: Found) -> list[tuple[str, ...]]:
    made = []
    for room in dict.fromkeys(one.room for one in found.traps):
        cells = []
        for model in MODELS:
            mine = [one for one in found.traps if (one.room, one.model) == (room, model)]
            cells += [f"{sum(getattr(one, what) for one in mine)} of {len(mine)}" for what in _FATES]
        made.append((room, *cells))
    return made


def _end_words(found: Found) -> str:
    mine = [one for one in found.ends if (one.room, one.model) == (ALL_FITS, NO_MODEL)]
    named = [one for one in found.ends if (one.room, one.model) == (ALL_FITS, HONEST) and one.label]
    return (
        f"{len(mine)} rules and values in {len({one.group for one in mine})} languages that are taken back or changed "
        "in ordinary words, mostly much later: *ok, forget that*, *make it 90 after all*. Where people's words fit, "
        "what ends something stands after it. With room for half or a tenth of them, a rule can stand *alone*, without "
        f"the words that took it back. A model that calls each a rule is let to for {len(named)}, which do not "
        f"follow a colon; when it quotes what takes them back, {sum(one.label == OVER for one in named)} of these "
        f"labels are ended, and {sum(one.how == ORDERED for one in named)} times both lines stand, in order."
    )


def _end_rows(found: Found) -> list[tuple[str, ...]]:
    made = []
    for room in ROOMS:
        ways = Counter(one.how for one in found.ends if (one.room, one.model) == (room, NO_MODEL))
        name = "everything" if room == ALL_FITS else f"{room} of people's words"
        made.append((name, *(f"{ways[how]} of {ways.total()}" for how in _HOW)))
    return made


def _size_rows(found: Found) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []
    for share in SHARES:
        mine = _of(found, KNOWN, share) + _of(found, HELD_BACK, share)
        used = [one.tokens / one.original for one in mine]
        tokens = f"{mean(one.quoted for one in mine):,.0f} tokens"
        made.append((_percent(share), _percent(mean(used), 1), _percent(max(used), 1), tokens))
    return made


def _misses(found: Found) -> str:
    lost = [fact for one in _of(found, KNOWN, AIM) for fact in one.missed]
    words = f"Of the known phrasings at {_percent(AIM)}, {len(lost)} facts. What is missed of those held back is shown "
    words += "nowhere, so that nobody can mend it by heart."
    some = [f"- {fact.kind}: `` {' '.join(' … '.join(fact.said).split())} ``" for fact in _spread(lost)]
    return "\n".join([_wrapped(words), *some]) + ("\n" if some else "")


def _spread(facts: Sequence[Planted]) -> list[Planted]:
    """Some of each kind."""
    by_kind = [[fact for fact in facts if fact.kind == kind] for kind in KINDS]
    return [fact for n in range(_SHOWN) for some in by_kind for fact in some[n : n + 1]][:_SHOWN]


def _beside(found: Found, language: str, share: float) -> tuple[float, float]:
    """How much more a language holds than English, sentence by sentence, and how far off that may be."""
    mine, english = (_of(found, one, share) for one in (language, LANGUAGES[0]))
    if not mine or not english:
        return 0.0, 0.0
    missed, its = (Counter(fact.form for one in looks for fact in one.missed) for looks in (mine, english))
    apart = [its[form] / len(english) - missed[form] / len(mine) for form in missed | its]
    apart += [0.0] * (len(mine[0].kinds) - len(apart))
    return mean(apart), 1.96 * stdev(apart) / sqrt(len(apart))


def _points(more: float, off: float) -> str:
    return f"{100 * more:+.1f} \u00b1 {100 * off:.1f}"


def _of(found: Found, group: str, share: float, way: str = QUOTES, model: str = NO_MODEL) -> list[Look]:
    return [o for o in found.looks if (o.group, o.share, o.way, o.model) == (group, share, way, model)]


def _kinds(planted: Counter[str]) -> list[str]:
    ours = [kind for kind in KINDS if planted[kind]]
    return ours + sorted(kind for kind in planted if kind not in KINDS and kind != "all")


def _spoken(found: Found) -> list[str]:
    return [language for language in LANGUAGES if _of(found, language, AIM)]


def _name(language: str) -> str:
    return str(phrases(language)["name"])


def _by_kind(found: Found) -> list[tuple[str, list[str]]]:
    columns = [rows(found, group, share) for group in (KNOWN, HELD_BACK) for share in SHARES]
    made = [(cells[0].kind, [str(cell) for cell in cells]) for cells in zip(*columns, strict=True)]
    return [*made, ("", [_percent(column[-1].rate, 1) for column in columns])]


def _cell(found: Found, group: str, share: float, model: str = NO_MODEL, way: str = QUOTES) -> str:
    row = total(found, group, share, way, model)
    return f"{row} ({_percent(row.rate, 1)})"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _wrapped(words: str) -> str:
    return "\n".join(wrap(" ".join(words.split()), 120)) + "\n"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
