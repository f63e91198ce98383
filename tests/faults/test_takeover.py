"""The lease does not work, or its holder dies, stands still or hangs: still one commit, and always an end."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

import onefold
from onefold import Session, Store, SummaryInput
from onefold.compaction.holder import this_process
from onefold.journal import undo
from onefold.journal.journal import Journal
from onefold.model import Claim, ClaimDenied
from onefold.storage.memory import MemoryLeases
from onefold.storage.postgres.transaction import PostgresLeases
from onefold.storage.sqlite.transaction import SqliteLeases
from tests.support.helpers import PATIENCE, Child, Clock, await_record, converse, counted, kinds, quick, together

FINAL = {"committed", "failed", "cancelled", "superseded"}
ERRORS = ["AttributeError", "OSError"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: str, clock: Clock) -> Iterator[Store]:
    with onefold.open(path, policy=quick(), clock=clock) as opened:
        yield opened


def drop_leases(path: str) -> None:
    """Makes an older store of it, one that has no lease part."""
    connection = apsw.Connection(path)
    connection.execute("drop table leases")
    connection.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("onefold") and r.levelno >= logging.WARNING]


def nothing_is_under_way(store: Store, session: Session) -> bool:
    settled = all(c.state in FINAL for c in session.compactions())
    return settled and (session.state.open, session.compaction_holder(), store.compactions()) == (None, None, [])


def refused(log: list[str]) -> bool:
    """Whether a child brought its summary to the store and was told that it is too late."""
    return any("was not committed" in line and "nothing was written" in line for line in log)


# ---------------------------------------------------------------------- a lease part that does not work


@dataclass
class Faults:
    """Stands before the lease part: counts its uses by operation, and makes those that are chosen raise."""

    chosen: Callable[[int, str], bool] = lambda number, use: False
    error: str = "OSError"
    operation: str = ""
    uses: list[tuple[str, str]] = field(default_factory=list)
    put_twice: threading.Event = field(default_factory=threading.Event)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Faults:
        for leases in (SqliteLeases, PostgresLeases, MemoryLeases):
            for use in ("get", "put", "drop"):
                monkeypatch.setattr(leases, use, self._standing_before(getattr(leases, use), use))
        return self

    def _standing_before(self, original: Callable[..., Any], use: str) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self.uses.append((self.operation, use))
            if [u for _, u in self.uses].count("put") > 1:
                self.put_twice.set()
            if self.chosen(len(self.uses), use):
                raise getattr(builtins, self.error)("no such thing")
            return original(*arguments)

        return called


def long_story(journal: Journal, clock: Clock, faults: Faults) -> None:
    """Every operation that uses the lease part, in one life of a session, which ends with a commit."""

    def during(operation: str) -> Journal:
        faults.operation = operation
        return journal

    def claimed() -> Claim:
        """Asks and claims, as a patient caller does: when it is told until when another one holds it, it waits."""
        for _ in range(4):
            during("request").request("s", attempts=2)
            got = during("claim").claim("s", this_process(), lease=10.0, life=60.0)
            if isinstance(got, Claim):
                return got
            clock.ahead += 100.0 if got.until is None else max(0.0, got.until - clock())
        raise AssertionError(f"never granted: {got}")

    claim = claimed()
    during("holder").holder("s")
    during("renew").renew(claim)
    during("fail").fail(claim, "the model is not there", 0.0)
    claimed()
    during("claim").claim("s", this_process())
    clock.ahead += 11.0
    claimed()  # the last attempt of the one before is dead, and settled on the way
    during("cancel").cancel("s")
    claimed()
    head = journal.state("s").head
    undo.restore(during("restore"), "s", head, expect_head=head)
    claim = claimed()
    during("commit").commit(claim, "what was said", cut=journal.state("s").cut + 15)


@pytest.mark.parametrize("attempts", [3, 2], ids=["more are left", "the last one"])
def test_a_lease_that_an_earlier_attempt_left_behind_says_nothing_of_this_one(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """Its part fails when the first attempt ends and the second begins. What it still has holds nobody up while it is
    in force, and makes no attempt a dead one when it has run out."""
    journal, session = store.journal, store.session("s")
    converse(session, 20)
    journal.request("s", attempts=attempts)
    first = journal.claim("s", this_process(), lease=50.0, life=600.0)
    assert isinstance(first, Claim)
    with monkeypatch.context() as patch:
        Faults(chosen=lambda number, use: use != "get").install(patch)
        journal.fail(first, "the model is not there", 0.0)
        assert isinstance(journal.claim("s", this_process(), lease=10.0, life=600.0), Claim)

    assert session.compaction_holder() is None
    if attempts == 3:
        assert journal.claimable("s", first.compaction) is None
    clock.ahead += 60.0
    assert journal.request("s").outcome == "joined"


EVERY_USE = {
    ("request", "get"),
    ("request", "drop"),
    ("claim", "get"),
    ("claim", "put"),
    ("holder", "get"),
    ("renew", "put"),
    ("fail", "drop"),
    ("cancel", "drop"),
    ("restore", "drop"),
    ("commit", "drop"),
}


def told_with(
    monkeypatch: pytest.MonkeyPatch, address: str, faults: Faults, before: Callable[[], None] = lambda: None
) -> None:
    """Tells the long story on a new store, with these faults, and looks at how it ended."""
    clock = Clock()
    with monkeypatch.context() as patch, onefold.open(address, clock=clock) as store:
        session = store.session("s")
        converse(session, 20)
        tokens = session.context().tokens
        faults.install(patch)
        before()

        long_story(store.journal, clock, faults)

        assert session.context().tokens < tokens
        assert counted(session, "compaction.committed") == 1
        assert counted(session, "segment.opened") == 3  # made, restored, compacted
        assert all(c.state in FINAL for c in session.compactions())
        assert not [f for f in store.verify().findings if f.session is not None]


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@pytest.mark.parametrize("error", ERRORS)
def test_the_lease_part_raises_at_each_of_its_uses_and_every_operation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, error: str
) -> None:
    """Item 3. F03: an error of the lock is no reason to fork, to stop or to loop. One use at a time, all of them."""
    address = str(tmp_path / "healthy.db") if kind == "sqlite" else "memory:"
    healthy = Faults()
    told_with(monkeypatch, address, healthy)
    assert set(healthy.uses) == EVERY_USE
    assert warnings(caplog) == []

    for number, (operation, use) in enumerate(healthy.uses, 1):
        address = str(tmp_path / f"{number}.db") if kind == "sqlite" else "memory:"
        caplog.clear()
        told_with(monkeypatch, address, Faults(lambda n, _, broken=number: n == broken, error))  # type: ignore[misc]

        said = warnings(caplog)
        assert len(said) == 1, f"use {number}, {use} in {operation}: {said}"
        assert error in said[0]
        assert "onefold verify --fix" in said[0]


@pytest.mark.parametrize("kind", ["always raising", "missing whole"])
def test_every_operation_goes_on_with_no_lease_part_at_all(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Item 3: it says so once, not at every use."""
    missing = kind == "missing whole"
    faults = Faults(lambda *_: not missing, "AttributeError")

    told_with(monkeypatch, path, faults, before=(lambda: drop_leases(path)) if missing else lambda: None)

    assert len(faults.uses) > 5
    assert len(warnings(caplog)) == 1
    assert "onefold verify --fix" in warnings(caplog)[0]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("broken", ["get", "put", "drop"])
def test_a_compaction_goes_on_when_a_use_of_the_lease_raises_whenever_it_is_used(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str, error: str
) -> None:
    """Item 3, with the whole engine: a renewal, a question who holds it, and a second caller in mid summary."""
    faults = Faults(lambda _, use: use == broken, error).install(monkeypatch)
    with onefold.open(path, policy=quick(lease=5.0, lease_renew_interval=0.02)) as store:
        session, other = store.session("s"), store.session("s")
        converse(session, 20)
        tokens = session.context().tokens

        def summarise(material: SummaryInput) -> str:
            assert faults.put_twice.wait(PATIENCE)
            session.compaction_holder()
            other.compact(lambda _: "what the other one made", wait=False)
            return "what was said"

        result = session.compact(summarise)

        assert result.state == "committed"
        assert session.context().tokens < tokens
        assert {use for _, use in faults.uses} == {"get", "put", "drop"}
        assert kinds(session).count("compaction.committed") == 1
        assert len(session.segments()) == 2
        assert counted(session, "compaction.started") <= 2
        assert session.state.open is None
        assert len(warnings(caplog)) == 1
        assert "onefold verify --fix" in warnings(caplog)[0]


def test_the_remedy_that_the_warning_names_is_one(path: str, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Item 3: after it, leases work again and nothing is said."""
    session = store.session("s")
    converse(session, 20)
    drop_leases(path)
    session.compact(lambda _: "first summary")
    assert len(warnings(caplog)) == 1

    store.verify(fix=True)

    caplog.clear()
    converse(session, 20, start=21)
    with onefold.open(path, policy=quick()) as again, Child("hold", path=path, session="s") as holder:
        holder.hear("summarizing")
        held = again.session("s").compaction_holder()
        assert held is not None
        assert held.pid == holder.pid
        assert again.verify().healthy
    assert warnings(caplog) == []


@pytest.mark.parametrize("broken", ["missing", *ERRORS])
def test_two_processes_without_a_working_lease_pay_twice_and_fork_never(path: str, store: Store, broken: str) -> None:
    """Item 3. F01, F03: both make a summary each round, one moves the boundary, the other is refused."""
    session = store.session("s")
    rounds = 12
    if broken == "missing":
        drop_leases(path)
    arguments: dict[str, Any] = {"path": path, "session": "s", "broken": None if broken == "missing" else broken}

    with Child("compact_rounds", **arguments) as a, Child("compact_rounds", **arguments) as b:
        for n in range(rounds):
            converse(session, 6, start=6 * n + 1)
            for child in (a, b):
                child.say("round")
            together(a, b, overlap="pay")
            together(a, b)  # both are in their summarizers now
            one, other = a.hear("done"), b.hear("done")

            assert one["paid"] == other["paid"] == 1
            assert one["result"]["id"] == other["result"]["id"]
            assert sorted([one["result"]["applied"], other["result"]["applied"]]) == [False, True]
            assert one["result"]["segment"] == other["result"]["segment"] == session.head
            assert session.state.committed == n + 1

    for told in (one, other):
        (warning,) = told["warnings"]
        assert "onefold verify --fix" in warning
    segments = session.segments()
    assert [s.base for s in segments] == [None, *(s.number for s in segments[:-1])]
    assert [(c.state, c.attempts) for c in session.compactions()] == [("committed", 2)] * rounds


# ---------------------------------------------------------------------- holders that die on another machine


def test_a_holder_killed_in_mid_summary_is_taken_over_when_its_lease_ends(path: str, store: Store) -> None:
    """Item 4. F41: the unfinished attempt stops nobody. F40: nothing says "compacting" after that."""
    session = store.session("s")
    converse(session, 20)
    policy = {"lease": 1.0, "lease_renew_interval": 0.9}

    with Child("hold", path=path, session="s", policy=policy, elsewhere=True) as dead:
        dead.hear("summarizing")
        dead.kill()
    with (
        Child("compact_when_told", path=path, session="s") as a,
        Child("compact_when_told", path=path, session="s") as b,
    ):
        together(a, b)
        one, other = a.hear("done"), b.hear("done")

    (only,) = session.compactions()
    assert (only.state, only.attempts) == ("committed", 2)
    assert one["result"]["id"] == other["result"]["id"] == only.id
    assert sorted([one["paid"], other["paid"]]) == [[], [2]]
    assert counted(session, "compaction.committed") == 1
    assert nothing_is_under_way(store, session)


def test_a_dead_holder_is_not_called_active_once_its_lease_is_over(path: str, store: Store, clock: Clock) -> None:
    """F40: whether somebody works on it is computed, so there is nothing that could be left behind."""
    session = store.session("s")
    converse(session, 20)

    with Child("hold", path=path, session="s", agent="writer", elsewhere=True) as dead:
        dead.hear("summarizing")
        held = session.compaction_holder()
        dead.kill()
    clock.ahead = 21.0

    assert held is not None
    assert (held.pid, held.agent) == (dead.pid, "writer")
    assert held.since < held.until <= held.since + 20.0
    assert session.compaction_holder() is None


def test_a_holder_killed_in_its_last_attempt_is_settled_by_whoever_asks_next(
    path: str, store: Store, clock: Clock
) -> None:
    """Item 4. F41: while its lease is in force it is joined; after that it has failed, and a new one starts afresh."""
    session = store.session("s")
    converse(session, 20)
    with Child("hold", path=path, session="s", policy={"attempts": 1}, elsewhere=True) as dead:
        dead.hear("summarizing")
        dead.kill()
    early = session.compact(wait=False)
    assert (early.state, early.joined) == ("running", True)

    clock.ahead = 21.0
    result = session.compact(lambda _: "made afresh")

    old, new = session.compactions()
    assert (old.id, old.state, old.attempts) == (early.id, "failed", 1)
    assert str(dead.pid) in str(old.cause)
    assert (new.id, new.state, new.attempts) == (result.id, "committed", 1)
    assert result.applied
    assert session.context().summary == "made afresh"
    assert nothing_is_under_way(store, session)


def test_a_holder_killed_in_its_last_attempt_is_settled_by_whoever_looks_for_work(
    path: str, store: Store, clock: Clock
) -> None:
    """Item 4: a worker that would have taken it over finds no attempt left, and says so in the journal."""
    session = store.session("s")
    converse(session, 20)
    with Child("hold", path=path, session="s", policy={"attempts": 1}, elsewhere=True) as dead:
        dead.hear("summarizing")
        dead.kill()
    assert isinstance(store.journal.claim("s", this_process()), ClaimDenied)
    assert session.state.open is not None

    clock.ahead = 21.0
    assert store.journal.claim_next(this_process()) is None

    assert [c.state for c in session.compactions()] == ["failed"]
    assert kinds(session)[-1] == "compaction.failed"
    assert nothing_is_under_way(store, session)


def test_every_compaction_ends_even_if_each_of_its_workers_dies(path: str, store: Store, clock: Clock) -> None:
    """Item 9: an unfinished attempt is retried by the next process, a crash counts, and the count is bounded."""
    session = store.session("s")
    converse(session, 20)
    for attempt in (1, 2, 3):
        with Child("hold", path=path, session="s", ahead=21.0 * attempt, trigger="threshold") as worker:
            assert worker.hear("summarizing")["attempt"] == attempt
            worker.kill()
    assert len(session.compactions()) == 1

    clock.ahead = 21.0 * 4
    result = session.compact(lambda _: "made afresh", trigger="threshold")

    old, new = session.compactions()
    assert (old.state, old.attempts, old.requests) == ("failed", 3, 3)
    assert (new.id, new.state) == (result.id, "committed")
    assert nothing_is_under_way(store, session)


def test_an_attempt_that_failed_is_retried_and_after_a_restart_as_well(path: str, store: Store, clock: Clock) -> None:
    """Item 9: the first attempt fails, the second dies, the third is another process's and commits."""
    session = store.session("s")
    converse(session, 20)

    with Child("hold", path=path, session="s") as worker:
        worker.hear("summarizing")
        worker.say("fail")
        assert worker.hear("summarizing")["attempt"] == 2
        worker.kill()
    with Child("hold", path=path, session="s", ahead=21.0, text="third time lucky") as restarted:
        assert restarted.hear("summarizing")["attempt"] == 3
        restarted.say("finish")
        result = restarted.hear("done")["result"]

    (only,) = session.compactions()
    assert (only.id, only.state, only.attempts) == (result["id"], "committed", 3)
    assert session.context().summary == "third time lucky"
    assert nothing_is_under_way(store, session)


def test_the_wait_after_a_failure_outlives_the_process_and_a_person_may_pass_it(path: str, store: Store) -> None:
    """Item 9. F43: what a restart forgets would be tried again at once, for ever."""
    session = store.session("s")
    converse(session, 20)
    with Child("hold", path=path, session="s", policy={"backoff": [500.0]}, trigger="threshold") as worker:
        worker.hear("summarizing")
        worker.say("fail")
        await_record(session, "compaction.failed")
        worker.kill()

    waiting = session.compact(lambda _: "too early", trigger="threshold", wait=False)
    assert (waiting.state, counted(session, "compaction.started")) == ("requested", 1)
    asked = session.compact(lambda _: "a person asked")

    assert (asked.id, asked.state, asked.applied) == (waiting.id, "committed", True)
    assert nothing_is_under_way(store, session)


# ---------------------------------------------------------------------- holders that stand still


def test_a_holder_that_was_stopped_past_its_lease_is_refused_with_nothing_written(
    path: str, store: Store, clock: Clock
) -> None:
    """Item 5. F04: the slow summary comes to its end after another one, and does not land beside it."""
    session = store.session("s")
    converse(session, 20)

    with Child("hold", path=path, session="s", text="too late") as slow:
        slow.hear("summarizing")
        slow.stop()
        clock.ahead = 21.0
        result = session.compact(lambda _: "in time")
        journal = list(session.read())
        slow.resume()
        slow.say("finish")
        done = slow.hear("done")

    told = done["result"]
    assert result.applied
    assert refused(done["log"])
    assert (told["id"], told["state"], told["applied"]) == (result.id, "committed", False)
    assert told["segment"] == result.segment
    assert list(session.read()) == journal
    assert session.context().summary == "in time"
    assert nothing_is_under_way(store, session)


def test_a_stopped_holder_that_finishes_first_has_made_the_summary_and_the_other_is_refused(
    path: str, store: Store
) -> None:
    """Item 5. F04: the first valid summary wins, whoever has the lease by then."""
    session = store.session("s")
    converse(session, 20)

    with Child("hold", path=path, session="s", text="the first one's") as first:
        first.hear("summarizing")
        first.stop()
        with Child("hold", path=path, session="s", text="the second one's", ahead=21.0) as second:
            assert second.hear("summarizing")["attempt"] == 2
            first.resume()
            first.say("finish")
            won = first.hear("done")["result"]
            journal = list(session.read())
            second.say("finish")
            done = second.hear("done")

    lost = done["result"]
    assert refused(done["log"])
    assert (won["applied"], lost["applied"]) == (True, False)
    assert (won["id"], won["segment"]) == (lost["id"], lost["segment"])
    assert list(session.read()) == journal
    assert session.context().summary == "the first one's"
    assert len(session.segments()) == 2
    assert nothing_is_under_way(store, session)


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=["old claim first", "new claim first"])
def test_of_two_claims_the_second_to_commit_gets_superseded(path: str, store: Store, order: tuple[str, str]) -> None:
    """Item 5. F04 at the contract: the error says what happened and that nothing was written."""
    session = store.session("s")
    converse(session, 20)

    with (
        Child("hold_claim", path=path, session="s", cut=10) as old,
        Child("hold_claim", path=path, session="s", cut=12, ahead=61.0, waits=True) as new,
    ):
        fence = old.hear("claimed")["fence"]
        old.stop()
        new.say("go")
        assert new.hear("claimed")["fence"] > fence
        old.resume()
        first, second = ({"old": old, "new": new}[name] for name in order)
        first.say("commit")
        won = first.hear("done")
        journal = list(session.read())
        second.say("commit")
        lost = second.hear("done")

    assert (won["error"], won["segment"]) == (None, session.head)
    assert lost["error"] == "CompactionSuperseded"
    assert "nothing was written" in lost["text"]
    assert list(session.read()) == journal


def test_a_worker_that_hangs_and_renews_for_ever_is_taken_over_at_the_end_of_its_longest_life(
    path: str, store: Store
) -> None:
    """F45: it lives and renews its lease, and it is not waited for. What it makes in the end is refused."""
    session = store.session("s")
    converse(session, 20)
    policy = {"lease": 1.0, "lease_renew_interval": 0.1, "attempt_timeout": 1.5}

    with Child("hold", path=path, session="s", text="too late", policy=policy) as wedged:
        wedged.hear("summarizing")
        result = session.compact(lambda _: "by another one")
        last = session.state.last
        assert wedged.silent()
        wedged.say("finish")
        done = wedged.hear("done")

    assert not done["result"]["applied"]
    assert refused(done["log"])
    assert (result.state, result.applied, result.joined) == ("committed", True, True)
    assert session.context().summary == "by another one"
    assert session.state.last == last
    assert nothing_is_under_way(store, session)


def test_renewals_do_not_stretch_the_longest_life_of_an_attempt(path: str) -> None:
    """F45, to the second: renewed again and again, the lease ends where the attempt's life does."""
    now = [1000.0]
    with onefold.open(path, clock=lambda: now[0]) as store:
        journal = store.journal
        converse(store.session("s"), 20)
        journal.request("s")
        claim = journal.claim("s", this_process(), lease=10.0, life=25.0)
        assert isinstance(claim, Claim)

        ends = []
        for now[0] in (1008.0, 1016.0, 1024.0):
            ends.append(journal.renew(claim))
            assert isinstance(journal.claim("s", this_process()), ClaimDenied)
        now[0] = 1025.0

        assert ends == [1018.0, 1025.0, 1025.0]
        assert journal.renew(claim) is None
        assert isinstance(journal.claim("s", this_process()), Claim)
