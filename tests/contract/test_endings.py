"""Every compaction ends: random schedules of everybody who may touch one, on a clock that jumps."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import onefold
from onefold import CommitRefused, Compaction, StaleHandle, Store
from onefold.journal import undo
from onefold.journal.journal import Journal
from onefold.model import Claim, ClaimDenied
from tests.conftest import CountedIds, StoppedClock, said, who

FINAL = {"committed", "failed", "cancelled", "superseded"}


class Schedule(RuleBasedStateMachine):
    """Requests, claims, crashes, late workers, restores and a jumping clock, in any order."""

    @initialize()
    def begin(self) -> None:
        self.clock = StoppedClock()
        self.store: Store = onefold.open("memory:", clock=self.clock, ids=CountedIds())
        self.journal: Journal = self.store.journal
        self.session = self.store.session("s")
        self.session.append([said(n) for n in range(1, 5)])
        self.claims: list[Claim] = []
        self.settled: dict[str, Compaction] = {}
        self.bodies = [r.body for r in self.session.read()]

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.comes_to_an_end()
        assert self.store.verify().healthy
        self.store.close()

    # ------------------------------------------------------------------ what may happen

    @rule(trigger=st.sampled_from(["manual", "threshold"]), attempts=st.integers(1, 3))
    def request(self, trigger: str, attempts: int) -> None:
        asked = self.journal.request("s", trigger=trigger, attempts=attempts)
        assert asked.outcome in ("opened", "joined", "held back")

    @rule(lease=st.sampled_from([1.0, 60.0]), life=st.sampled_from([5.0, 600.0]))
    def claim(self, lease: float, life: float) -> None:
        got = self.journal.claim("s", who(), lease=lease, life=life)
        if isinstance(got, Claim):
            self.claims.append(got)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), wait=st.sampled_from([None, 0.0, 30.0]))
    def fail(self, data: st.DataObject, wait: float | None) -> None:
        self.journal.fail(self.one_of_the_claims(data), "failed", wait)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claim = self.one_of_the_claims(data)
        until = self.journal.renew(claim)
        assert until is None or until <= self.clock.now + claim.lease

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), back=st.integers(-1, 4))
    def commit(self, data: st.DataObject, back: int) -> None:
        claim = self.one_of_the_claims(data)
        before, known = self.session.state, self.journal.compaction("s", claim.compaction)
        cut = claim.fence - back
        base = next(s for s in self.session.segments() if s.number == claim.base)
        valid = known.open and base.cut < cut <= claim.fence
        try:
            segment = self.journal.commit(claim, f"summary at {before.last}", cut)
        except CommitRefused:
            assert not valid
            assert self.session.state == before
        else:
            assert segment.base == claim.base
            assert valid or (known.fence == claim.fence and known.segment == segment.number)

    @rule()
    def cancel(self) -> None:
        self.journal.cancel("s")

    @rule(behind=st.integers(0, 2))
    def restore(self, behind: int) -> None:
        segments = self.session.segments()
        older = segments[max(0, len(segments) - 1 - behind)]
        undo.restore(self.journal, "s", older.number, expect_head=segments[-1].number)
        if len(segments) > 1:
            try:
                undo.restore(self.journal, "s", older.number, expect_head=segments[0].number)
            except StaleHandle:
                return
            raise AssertionError("it was restored on a head that moved")

    @rule()
    def append(self) -> None:
        self.session.append(said(self.session.state.last))

    @rule(seconds=st.sampled_from([0.5, 2.0, 61.0, 4000.0, -0.5, -4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # ------------------------------------------------------------------ what is always so

    @invariant()
    def at_most_one_is_open_and_attempts_are_bounded(self) -> None:
        known = self.session.compactions()
        still_open = [c.id for c in known if c.open]
        assert still_open == ([self.session.state.open] if self.session.state.open else [])
        assert all(c.attempts <= c.attempts_allowed for c in known)

    @invariant()
    def what_is_settled_stays_as_it_was(self) -> None:
        for c in self.session.compactions():
            if c.state in FINAL:
                assert self.settled.setdefault(c.id, c) == c

    @invariant()
    def segments_are_one_chain_and_each_commit_has_its_own(self) -> None:
        chain = self.session.segments()
        assert [s.base for s in chain] == [None, *(s.number for s in chain[:-1])]
        assert self.session.head == chain[-1].number
        made = [s.compaction for s in chain if s.compaction]
        assert sorted(made) == sorted(c.id for c in self.session.compactions() if c.state == "committed")

    @invariant()
    def what_was_written_stands(self) -> None:
        now = [r.body for r in self.session.read()]
        assert now[: len(self.bodies)] == self.bodies
        self.bodies = now

    # ------------------------------------------------------------------ and in the end

    def comes_to_an_end(self) -> None:
        """One process lives on, and it is a bad one: it claims, crashes, and comes back later."""
        id = self.session.state.open
        if id is None:
            return
        left = self.journal.compaction("s", id)
        for _ in range(2 * (left.attempts_allowed - left.attempts) + 3):
            got = self.journal.claim("s", who("the last one"), lease=60, life=600)
            if got == ClaimDenied("nothing open"):
                break
            self.clock.advance(4000)
        assert self.journal.compaction("s", id).state == "failed"
        assert self.session.state.open is None

    def one_of_the_claims(self, data: st.DataObject) -> Claim:
        return data.draw(st.sampled_from(self.claims))


TestEveryCompactionEnds = Schedule.TestCase
TestEveryCompactionEnds.settings = settings(settings.default, max_examples=60, stateful_step_count=40)


def test_a_claim_kept_from_an_earlier_compaction_never_fits_a_later_one() -> None:
    """The mix-ups the schedule cannot make by itself: the parts of two claims in one."""
    with onefold.open("memory:") as store:
        session, journal = store.session("s"), store.journal
        session.append([said(n) for n in range(1, 5)])
        journal.request("s")
        old = journal.claim("s", who())
        assert isinstance(old, Claim)
        journal.commit(old, "short", 3)
        journal.request("s")
        new = journal.claim("s", who())
        assert isinstance(new, Claim)
        before = session.state

        for mixed in (replace(new, fence=old.fence), replace(new, base=old.base), replace(new, session="other")):
            try:
                journal.commit(mixed, "shorter", 4)
            except onefold.OnefoldError:
                continue
            raise AssertionError(mixed)

        assert session.state == before
