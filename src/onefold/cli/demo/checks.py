"""The demo's checks: the journal on one side, what the processes were promised on the other."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from onefold.cli.demo.runner import Played
from onefold.cli.demo.scenario import CALLERS
from onefold.messages import digest
from onefold.model import COMMITTED, JOINED, MESSAGE, REQUESTED, SEGMENT_OPENED, STARTED, Json, Record


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    words: str
    expected: int
    found: int

    @property
    def ok(self) -> bool:
        return self.expected == self.found


def check(played: Played) -> list[Check]:
    """Reads the journal again, from the first record to the last."""
    records = list(played.session.read())
    return [*_messages(played, records), *_compactions(played, records), *_afterwards(played, records)]


def _messages(played: Played, records: list[Record]) -> list[Check]:
    stands = {r.number: (r.key, digest("", r.kind, r.format, r.body)) for r in records if r.kind == MESSAGE}
    promised = {
        number: (line["key"], mark)
        for line in _heard(played, "acknowledged")
        for number, mark in zip(line["numbers"], line["digests"], strict=True)
    }
    found = sum(1 for number, what in promised.items() if stands.get(number) == what)
    again = _heard(played, "repeated")
    return [
        Check("messages", "messages promised to writers, found word for word", len(promised), found),
        Check("lost", "messages lost", 0, len(promised) - found),
        Check(
            "sent_again", "appends sent twice, answered as the first time", len(again), sum(a["same"] for a in again)
        ),
        Check("repeated", "messages that stand there twice", 0, len(stands.keys() - promised.keys())),
        Check("out_of_order", "messages out of their writer's order", 0, _out_of_order(played)),
    ]


def _compactions(played: Played, records: list[Record]) -> list[Check]:
    kinds = Counter(r.kind for r in records)
    compactions = played.session.compactions()
    callers = [r for child in played.children if child.name in CALLERS for r in child.heard("result")]
    shared = [c for c in compactions if c.id in {r["id"] for r in callers}]
    commits = Counter(r.body["compaction"] for r in records if r.kind == COMMITTED)
    taken_over = [c.id for c in compactions if c.attempts > 1]
    bases = Counter(r.body["base"] for r in records if r.kind == SEGMENT_OPENED)
    refused = sum(1 for child in played.late if child.heard("refused"))
    return [
        Check(
            "requested", "requests sent, and counted", len(_heard(played, "asking")), kinds[REQUESTED] + kinds[JOINED]
        ),
        Check("joined", "requests that joined an open compaction", len(_joiners(played)), kinds[JOINED]),
        Check(
            "at_once", "requests counted on the one asked for at once", len(CALLERS), sum(c.requests for c in shared)
        ),
        Check("one_for_all", "compactions that came of these three", 1, len(shared)),
        Check("committed", "compactions opened, and committed", kinds[REQUESTED], kinds[COMMITTED]),
        Check(
            "summaries", "claims granted, and summaries paid for", kinds[STARTED], len(_heard(played, "summarizing"))
        ),
        Check(
            "killed", "compactors killed in mid summary, and replaced", len(played.killed), _succeeded(played, records)
        ),
        Check(
            "taken_over",
            "compactions taken over, and committed once",
            len(taken_over),
            sum(commits[id] == 1 for id in taken_over),
        ),
        Check("late_refused", "commits that came too late, and were rejected", len(played.late), refused),
        Check("forks", "forks: segments with two successors", 0, sum(n - 1 for n in bases.values())),
    ]


def _afterwards(played: Played, records: list[Record]) -> list[Check]:
    context = played.session.context()
    state = played.session.state
    due = {r.number for r in records if r.kind == MESSAGE and r.number >= state.cut}
    live = [r.number for r in played.followed]
    busy = sum(1 for c in played.session.compactions() if c.open) + (played.session.compaction_holder() is not None)
    running = sum(1 for child in played.children if child.process.poll() is None)
    return [
        Check("followed", "records seen live, no gap and no repeat", len(records), _unbroken(live)),
        Check("not_in_context", "messages since the last cut, not in the context", 0, len(due - set(context.numbers))),
        Check("compacting", '"compacting" left over', 0, busy),
        Check("processes", "processes left over", 0, running),
        Check("findings", "findings of verify", 0, len(played.store.verify().findings)),
    ]


def _heard(played: Played, what: str) -> list[Json]:
    return [line for child in played.children for line in child.heard(what)]


def _joiners(played: Played) -> list[Json]:
    return [line for line in _heard(played, "asked") if line["joined"]]


def _succeeded(played: Played, records: list[Record]) -> int:
    """Processes that SIGKILL ended in mid summary, and whose compaction another one committed."""
    claims = {r.body["holder"]["pid"]: r for r in records if r.kind == STARTED}
    fences = {r.body["compaction"]: r.body["fence"] for r in records if r.kind == COMMITTED}
    return sum(
        1
        for child in played.killed
        if child.process.returncode == -signal.SIGKILL
        and child.heard("summarizing")
        and not child.heard("result")
        and (claim := claims.get(child.pid)) is not None
        and fences.get(claim.body["compaction"], 0) > claim.number
    )


def _out_of_order(played: Played) -> int:
    wrong = 0
    for child in played.children:
        numbers = [n for line in child.heard("acknowledged") for n in line["numbers"]]
        wrong += sum(1 for before, after in pairwise(numbers) if after <= before)
    return wrong


def _unbroken(numbers: list[int]) -> int:
    """How far a list goes on as 1, 2, 3 …"""
    for expected, number in enumerate(numbers, 1):
        if number != expected:
            return expected - 1
    return len(numbers)
