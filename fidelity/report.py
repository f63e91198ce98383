"""What was measured, in words: for the terminal, as JSON, and as the page in `docs/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import mean
from textwrap import wrap

from fidelity.conversations import KINDS, Conversation, Planted
from fidelity.measures import (
    AIM,
    LEDGER,
    LEDGER_SHARE,
    NOTES,
    OTHERWISE,
    SHARES,
    SUMMARY_SHARE,
    TAIL,
    TAIL_SHARE,
    UNBOUNDED,
    WAYS,
    Look,
    Row,
    missed,
    rows,
)

_SHOWN = 12
"""How many examples the page shows of each sort."""

_INTRODUCTION = """\
# Fidelity

What does a context still hold after five compactions by a summarizer that forgets everything? This page is written by
`make fidelity`, which measures it; the same seeds give the same page. `make fidelity ARGS=--quick` is a short run that
leaves this page alone, `ARGS="--seed 1000"` takes other conversations, `ARGS=--json` prints the numbers as JSON.

## What is measured

A generator writes long conversations from a seed: a coding agent, a support team, a researcher, an office and travel
assistant, as OpenAI chat messages with tool calls and long tool output. Facts are planted in what the user says, and a
few in what the assistant reports: at the start of a message, in the middle of a long one, in lists, in an aside, more
of them early than late, some just before a compaction. Around them stand small talk, questions, other people's rules,
numbers that mean nothing, and tool output full of identifiers. The ledger does not use the generator, but its rules
were made with these phrasings in view: its columns show what such rules can hold, and *held back* what to expect.

| kind | what is planted | what must be found again, word for word |
| --- | --- | --- |
| rule | what must, or must not, be done | the clause: *don't push to main* |
| cap | a limit with its number | the number with its unit, and what it is for |
| code | order numbers, commits, door codes, grants, … | the code, and what it is the code of |
| path | files, folders, links | the path |
| preference | what somebody likes better | what is liked, or what is not |
| value | something that changes one to three times | the present value, and what it is the value of |
| pair | two things with look-alike names and values | each value with its own name |

All parts of a fact have to stand together: in one line of the ledger, or in one message that is still there. After
each fifth of the conversation comes a compaction. Its summarizer writes fluent prose that holds none of the facts.

The context is at most 10, 20 or 30 % of the whole conversation, in the library's own estimate of tokens.
"""


def broken(seen: Sequence[Look]) -> list[str]:
    """What must hold and does not, in words."""
    wrong = []
    for share in SHARES:
        mine, size = _of(seen, share, LEDGER), _percent(share)
        if count := _sum(mine, "superseded"):
            wrong.append(f"superseded values shown as current at {size}: {count}")
        if count := _sum(mine, "injected"):
            wrong.append(f"orders from tool output shown at {size}: {count}")
        if over := sum(one.tokens > one.original * share for one in mine):
            wrong.append(f"contexts larger than {size}: {over}")
    return wrong


def short(seen: Sequence[Look]) -> list[str]:
    """Where less is held than was aimed for, in words."""
    kinds = [row for row in rows(seen, AIM, LEDGER) if row.kind != "all" and row.held < row.planted]
    return [f"{row.kind}, at {_percent(AIM)}: {row.held} of {row.planted}" for row in kinds]


def every_row(seen: Sequence[Look]) -> list[Row]:
    at_aim = [(AIM, way) for way in (UNBOUNDED, OTHERWISE, NOTES)]
    places = [(share, way) for share in SHARES for way in WAYS] + at_aim
    return [row for share, way in places for row in rows(seen, share, way)]


def as_text(seen: Sequence[Look]) -> str:
    lines = [f"{'':12}" + "".join(f"{head:>16}" for head in (*(f"ledger {_percent(s)}" for s in SHARES), *_OTHERS))]
    for kind, cells in _table(seen):
        lines.append(f"{kind:12}" + "".join(f"{cell:>16}" for cell in cells))
    lines.append("")
    for share in SHARES:
        mine = _of(seen, share, LEDGER)
        lines.append(
            f"{_percent(share)}: superseded shown {_sum(mine, 'superseded')}, injected shown {_sum(mine, 'injected')}, "
            f"context {_percent(mean(one.tokens / one.original for one in mine), 1)}, ledger {_ledger_size(mine)}"
        )
    return "\n".join(lines)


def as_json(seen: Sequence[Look]) -> str:
    table = [
        {"kind": r.kind, "share": r.share, "way": r.way, "held": r.held, "planted": r.planted} for r in every_row(seen)
    ]
    sizes = [
        {
            "share": share,
            "superseded": _sum(mine, "superseded"),
            "injected": _sum(mine, "injected"),
            "context": round(mean(one.tokens / one.original for one in mine), 4),
            "quote_tokens": round(mean(one.quote_tokens for one in mine)),
            "ledger_lines": round(mean(len(one.lines) for one in mine), 1),
            "idle_lines": round(mean(len(one.idle) for one in mine), 1),
        }
        for share in SHARES
        if (mine := _of(seen, share, LEDGER))
    ]
    lost = [
        {"kind": fact.kind, "said": list(fact.said), "seed": one.conversation.seed} for one, fact in missed(seen, AIM)
    ]
    return json.dumps(
        {"rows": table, "sizes": sizes, "missed": lost, "broken": broken(seen), "short": short(seen)},
        indent=2,
        ensure_ascii=False,
    )


def as_page(seen: Sequence[Look]) -> str:
    talks = [one.conversation for one in _of(seen, AIM, LEDGER)]
    sizes = [one.original for one in _of(seen, AIM, LEDGER)]
    parts = [
        _INTRODUCTION,
        "\n".join(wrap(_room(talks, sizes), 120)) + "\n",
        "## What is held\n",
        "![Share of planted facts that a context still holds, by kind and size](fidelity.svg)\n",
        _markdown(("", *(f"ledger, {_percent(s)}" for s in SHARES), *_OTHERS), [(k, *c) for k, c in _table(seen)]),
        _LEGEND,
        _verdict(seen),
        "## What must not be shown\n",
        _markdown(
            ("context", "superseded values shown as current", "orders from tool output shown"),
            [
                *((_percent(s), _of_changed(seen, s, LEDGER), _of_injected(seen, s, LEDGER)) for s in SHARES),
                (f"{_percent(AIM)}, held back", _of_changed(seen, AIM, OTHERWISE), _of_injected(seen, AIM, OTHERWISE)),
            ],
        ),
        _SUPERSEDED,
        *_shown_examples(seen),
        "## Size\n",
        _markdown(
            ("context", "measured, mean", "measured, most", "ledger", "lines", "of them planted"),
            [_size_row(seen, share) for share in SHARES],
        ),
        "## What was missed\n",
        _misses(seen),
        _LIMITS,
    ]
    return "\n".join(parts)


def _room(talks: Sequence[Conversation], sizes: Sequence[int]) -> str:
    messages = [len(talk.messages) for talk in talks]
    facts = [fact for talk in talks for fact in talk.planted]
    return (
        f"Of that room the ledger may take {_percent(LEDGER_SHARE)}, new messages {_percent(TAIL_SHARE)} and the "
        f"summary {_percent(SUMMARY_SHARE)}; the rest is for the message at which the tail begins. Measured here: "
        f"{len(talks)} conversations of {min(messages)} to {max(messages)} messages and {min(sizes):,} to "
        f"{max(sizes):,} tokens, with {len(facts):,} facts, {sum(bool(fact.stale) for fact in facts)} of which change, "
        f"and {sum(len(talk.injected) for talk in talks)} orders slipped into tool output."
    )


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


_OTHERS = (
    *(f"{what}, {_percent(AIM)}" for what in ("unbounded", "held back", "notes")),
    *(f"without, {_percent(s)}" for s in SHARES),
)

_LEGEND = """\
- *ledger*: as the library does it by default, with the room stated above.
- *unbounded*: a ledger that nothing has to leave. What it lacks was not found; what only the bounded one lacks had to
  give way.
- *held back*: the ledger again, with every fact said in other ways. What is missed there is shown nowhere, so that
  nobody can mend it by heart: this column is the best guess for conversations of your own.
- *notes*: no ledger, but an agent that writes down every rule, preference and value with `session.note` as it is told.
  Notes are never lost; the table shows what nobody noted.
- *without*: neither. The ledger's room goes to the newest messages instead, so this is what they hold by themselves.
"""

_SUPERSEDED = """\
A value counts as shown if a line of the ledger or of the notes has a former value and not the present one, also if the
change was said in messages that are still there below it. A line such as *the room is Trieste instead of Bergen* is
fine. An order counts as shown if its words stand in any line.
"""

_LIMITS = """\
## What this does not show

- Whether a model makes use of what is there. Only words are compared.
- How good a real summarizer is. A summary that holds the facts as well can only add to this.
- Real conversations. The phrasings are many, but they come from a list, in English, and each fact is said in one or two
  sentences. What is said only by implication, over several messages, or in other languages is not planted.
- Facts that stand only in tool output. They are not planted, since the ledger should not take a tool's word for a rule.
"""


def _of(seen: Sequence[Look], share: float, way: str) -> list[Look]:
    return [one for one in seen if one.share == share and one.way == way]


def _table(seen: Sequence[Look]) -> list[tuple[str, list[str]]]:
    columns = [rows(seen, share, LEDGER) for share in SHARES]
    columns += [
        *(rows(seen, AIM, way) for way in (UNBOUNDED, OTHERWISE, NOTES)),
        *(rows(seen, share, TAIL) for share in SHARES),
    ]
    return [(kind, [_cell(column[n]) for column in columns]) for n, kind in enumerate((*KINDS, "all"))]


def _cell(row: Row) -> str:
    return f"{row.held} of {row.planted}"


def _sum(seen: Sequence[Look], what: str) -> int:
    return sum(len(getattr(one, what)) for one in seen)


def _of_changed(seen: Sequence[Look], share: float, way: str) -> str:
    mine = _of(seen, share, way)
    return f"{_sum(mine, 'superseded')} of {sum(bool(fact.stale) for one in mine for fact in one.conversation.planted)}"


def _of_injected(seen: Sequence[Look], share: float, way: str) -> str:
    mine = _of(seen, share, way)
    return f"{_sum(mine, 'injected')} of {sum(len(one.conversation.injected) for one in mine)}"


def _size_row(seen: Sequence[Look], share: float) -> tuple[str, ...]:
    mine = _of(seen, share, LEDGER)
    used = [one.tokens / one.original for one in mine]
    lines, idle = sum(len(one.lines) for one in mine), sum(len(one.idle) for one in mine)
    return (
        f"{_percent(share)}",
        f"{_percent(mean(used), 1)}",
        f"{_percent(max(used), 1)}",
        f"{mean(one.quote_tokens for one in mine):,.0f} tokens",
        f"{lines / len(mine):.0f}",
        f"{_percent((lines - idle) / max(1, lines))}",
    )


def _ledger_size(mine: Sequence[Look]) -> str:
    lines, idle = mean(len(one.lines) for one in mine), mean(len(one.idle) for one in mine)
    return f"{mean(one.quote_tokens for one in mine):,.0f} tokens in {lines:.0f} lines, {idle:.0f} of them not planted"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _verdict(seen: Sequence[Look]) -> str:
    aim = f"The aim is everything at {_percent(AIM)}, no superseded value, no order from tool output."
    wanting = [f"- {words}" for words in (*short(seen), *broken(seen))]
    verdict = f"{aim} It is {'not met' if wanting else 'met'} with phrasings that are known{':' if wanting else '.'}"
    return "\n".join([verdict, "", *wanting]) + "\n"


def _shown_examples(seen: Sequence[Look]) -> list[str]:
    """Lines that should not be there, at the size of the aim."""
    mine = _of(seen, AIM, LEDGER)
    former = [f"- {_code(line)}, while it is {_code(fact.value)}" for one in mine for fact, line in one.superseded]
    slipped = [f"- {_code(line)}" for one in mine for line in one.injected]
    if not former and not slipped:
        return []
    step = max(1, len(former) // _SHOWN)
    return ["\n".join(["For example:", "", *former[::step][:_SHOWN], *slipped[:_SHOWN]]) + "\n"]


def _code(text: str) -> str:
    return f"`` {' '.join(text.split())} ``"


def _misses(seen: Sequence[Look]) -> str:
    lost = missed(seen, AIM)
    if not lost:
        return f"Nothing at {_percent(AIM)}.\n"
    found = [
        {fact for fact, mark in zip(one.conversation.planted, one.held, strict=True) if mark}
        for one in _of(seen, AIM, UNBOUNDED)
    ]
    by_seed = dict(zip((one.conversation.seed for one in _of(seen, AIM, UNBOUNDED)), found, strict=True))
    unfound = [fact for one, fact in lost if fact not in by_seed[one.conversation.seed]]
    words = f"At {_percent(AIM)}, {len(lost)} facts are not held: {len(unfound)} were not found, "
    words += f"{len(lost) - len(unfound)} were found and gave way."
    return "\n".join([words, "", *(_example(fact) for fact in _spread(unfound or [f for _, f in lost]))]) + "\n"


def _spread(facts: Sequence[Planted]) -> list[Planted]:
    """Some of each kind."""
    by_kind = [[fact for fact in facts if fact.kind == kind] for kind in KINDS]
    turns = [fact for n in range(_SHOWN) for some in by_kind for fact in some[n : n + 1]]
    return turns[:_SHOWN]


def _example(fact: Planted) -> str:
    return f"- {fact.kind}: {_code(' … '.join(fact.said))}"
