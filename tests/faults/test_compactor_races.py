"""Every pair of the compactor's ways in, at once: one new segment, one bill, and both may go on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

import onefold
from onefold import Compactor, Context, Limits, Session, Store, SummaryInput
from onefold.model import Lease
from tests.support.helpers import PATIENCE, await_record, converse, counted, quick

LIMITS = Limits(window=1_000, output=100, soft=0.5, hard=0.9)
POLICY = quick(limits=LIMITS, quote_tokens=0)
WAYS: dict[str, Callable[[Compactor, Session], object]] = {
    "before_turn": lambda compactor, session: compactor.before_turn(session),
    "mid_turn": lambda compactor, session: compactor.mid_turn(session),
    "after_overflow": lambda compactor, session: compactor.after_overflow(session, RuntimeError("too long")),
    "by_hand": lambda compactor, session: compactor.compact_now(session),
    "upkeep": lambda compactor, session: compactor.compact_idle(0),
    "from_outside": lambda compactor, session: compactor.request(session),
}
PAIRS = list(itertools.combinations_with_replacement(WAYS, 2))


@dataclass
class Bill:
    """A summarizer that both sides share. It answers once the other one has come, whether it waits or went on."""

    came: threading.Event = field(default_factory=threading.Event)
    paid: list[str] = field(default_factory=list)

    def __call__(self, material: SummaryInput) -> str:
        self.paid.append(threading.current_thread().name)
        assert self.came.wait(PATIENCE)
        return f"{len(material.records)} messages."


@pytest.fixture
def stores(address: str) -> Iterator[list[Store]]:
    """Two, as two processes have them; of a store in memory there is but one."""
    first = onefold.open(address, policy=POLICY)
    second = first if address == "memory:" else onefold.open(address, policy=POLICY)
    yield [first, second]
    first.close()
    second.close()


def lease_of(store: Store, session: str) -> Lease | None:
    return store.journal.backend.read(lambda tx: tx.leases.get(session))


def at_once(bill: Bill, *work: Callable[[], object]) -> list[object]:
    """Does all of it from a barrier, each in a thread. The bill is open until one of them is through."""
    barrier = threading.Barrier(len(work), timeout=PATIENCE)
    answers: list[object] = [None] * len(work)

    def run(place: int) -> None:
        barrier.wait()
        try:
            answers[place] = work[place]()
        except Exception as error:
            answers[place] = error
        bill.came.set()

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return answers


def joined(store: Store, bill: Bill) -> None:
    """Lets the summary come as soon as the second one waits for it."""
    for record in store.session("s").follow(idle=PATIENCE):
        if record.kind in ("compaction.joined", "compaction.committed"):
            bill.came.set()
            return


@pytest.mark.parametrize("messages", [16, 28], ids=["at the soft limit", "at the hard limit"])
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_ways_in_at_once_are_one_segment_and_one_bill(
    stores: list[Store], pair: tuple[str, str], messages: int
) -> None:
    bill = Bill()
    converse(stores[0].session("s"), messages)
    compactors = [Compactor(store, bill) for store in stores]
    sessions = [store.session("s") for store in stores]
    for session in sessions:
        session.context()
    looked = sessions[0].context()
    assert (looked.tokens > LIMITS.hard_tokens) == (messages == 28)
    watch = threading.Thread(target=joined, args=(stores[0], bill), daemon=True)
    watch.start()

    def go(n: int) -> Callable[[], object]:
        return lambda: WAYS[pair[n]](compactors[n], sessions[n])

    answers = at_once(bill, go(0), go(1))

    await_record(sessions[0], "compaction.committed")
    assert [a for a in answers if isinstance(a, Exception)] == []
    for answer in answers:
        assert not isinstance(answer, Context) or answer.tokens <= LIMITS.hard_tokens
    for compactor, session in zip(compactors, sessions, strict=True):
        context = compactor.before_turn(session)
        assert context.summary is not None
        assert context.tokens <= LIMITS.hard_tokens
    assert len(bill.paid) == 1
    assert counted(sessions[0], "segment.opened") == 2
    assert [(c.state, c.attempts) for c in sessions[0].compactions()] == [("committed", 1)]
    assert (sessions[0].state.open, sessions[1].compaction_holder(), lease_of(stores[0], "s")) == (None, None, None)
    assert stores[0].verify().healthy
    watch.join(PATIENCE)


def test_all_ways_in_at_once_are_one_segment_and_one_bill(stores: list[Store]) -> None:
    bill = Bill()
    converse(stores[0].session("s"), 28)
    works = []
    for n, way in enumerate([*WAYS.values(), *WAYS.values()]):
        store = stores[n % 2]
        session, compactor = store.session("s"), Compactor(store, bill)
        session.context()
        works.append(lambda way=way, compactor=compactor, session=session: way(compactor, session))

    answers = at_once(bill, *works)

    await_record(stores[0].session("s"), "compaction.committed")
    assert [a for a in answers if isinstance(a, Exception)] == []
    assert len(bill.paid) == 1
    assert counted(stores[0].session("s"), "segment.opened") == 2
    assert (stores[0].session("s").compaction_holder(), lease_of(stores[0], "s")) == (None, None)
