"""What the next segment quotes, from what an attempt has to work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from onefold.compaction.cut_planner import Plan
from onefold.compaction.labels import labelled
from onefold.compaction.material import CompactionMaterial
from onefold.compaction.policy import Policy
from onefold.compaction.quote_selection import Chosen, Speech, choose, said
from onefold.messages import codec
from onefold.messages.codecs import PLAIN
from onefold.messages.tool_groups import LEADING
from onefold.model import Fact, LabelEnd, Quotes, Record

_NEAR = 8
_ENOUGH, _MANY = 256 << 10, 200


def quoted_of(
    work: CompactionMaterial, planned: Plan, facts: Sequence[Fact], *, policy: Policy, window: int, removed: int,
    texts: Mapping[int, str], pause: Callable[[], object], ends: Sequence[LabelEnd] = (),
) -> Chosen:  # fmt: skip
    """What is quoted of all that the next segment cuts away, with what a model called it (`facts`) and what it says is
    over (`ends`). `removed` is the size of what it replaces, which quotes
    must not outweigh. `texts` is what can be read in the messages that are cut, by their numbers."""
    before = work.quoting.quotes
    cut_away = [r for r in work.messages if r.number < planned.cut]
    covers = work.covered + sum(r.header.tokens for r in cut_away if r.header is not None)
    room = min(policy.quote_tokens, int(window * policy.quote_share), covers // 4)
    room = min(room, work.quoting.tokens + (removed - work.quoting.tokens) // 4)
    # From everything that was said: where the base was made without quotes, and when there is twice the room.
    again = not work.filled or (before.marks[0] > 0 and room >= 2 * before.room)
    gone = {r.number: r for r in (*(work.earlier() if again else ()), *work.kept, *cut_away)}
    prompt = [
        r.number for r in (*work.kept, *cut_away) if _leads(r) and r.number in {*planned.kept, *_numbers(work.kept)}
    ]
    heard, others = _heard([gone[n] for n in sorted(gone.keys() - {*prompt})], texts, pause)
    carried = {} if again else {s.number: s for r in work.quoting.records if (s := said(r)) is not None}
    near = [s for r in work.before[-_NEAR:] if r.number not in carried and (s := said(r)) is not None]
    background = [] if again else [codec(r.format or PLAIN).text(r.body) for r in work.before]
    labels = labelled(
        before.labels, (*_of_a_model(work.facts), *facts), ends, [*carried.values(), *heard],
        others=others, pause=pause,
    )  # fmt: skip
    made = choose(
        Quotes() if again else replace(before, labels=()), carried, heard, room=room,
        earlier=() if again else near, others=_some([*others, *background]), labels=labels, pause=pause,
    )  # fmt: skip
    # As long as all of people's words fit, nothing is left out that more room could bring back.
    left_out = before.marks[0] > 0 and before.room > 0 and not again
    chosen_in = before.room if left_out else room
    return made._replace(quotes=replace(made.quotes, room=chosen_in, covers=covers))


def _some(texts: Sequence[str]) -> list[str]:
    """Enough of them, from everywhere, to tell how rare words are: so many, or so many characters."""
    step = max(1, sum(map(len, texts)) // _ENOUGH, -(-len(texts) // _MANY))
    return [*texts[::step]]


def _numbers(records: Iterable[Record]) -> set[int]:
    return {r.number for r in records}


def _heard(
    records: Iterable[Record], texts: Mapping[int, str], pause: Callable[[], object]
) -> tuple[list[Speech], list[str]]:  # fmt: skip
    """Who said what, and the texts of what nobody said."""
    heard: list[Speech] = []
    others: list[str] = []
    for record in records:
        pause()
        one = said(record)
        if one is not None:
            heard.append(one)
        elif (text := texts.get(record.number)) is not None:
            others.append(text)
        else:
            others.append(codec(record.format or PLAIN).text(record.body))
    return heard, others


def _of_a_model(facts: Sequence[Fact]) -> list[Fact]:
    """Those of an older version's facts that a model gave: those of rules go."""
    return [f for f in facts if f.by != "extract"]


def _leads(record: Record) -> bool:
    return record.header is not None and record.header.role in LEADING
