"""The contract on every kind of store: sessions, records, keys and following."""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw
import psycopg
import pytest

from onefold import (
    AppendResult,
    InvalidMessage,
    KeyConflict,
    OnefoldError,
    Record,
    Segment,
    Session,
    SessionNotFound,
    StaleHandle,
    Store,
    StoreError,
    TurnLost,
)
from onefold.journal import reader, turns, undo
from onefold.journal.journal import Journal
from onefold.messages import draft, encode
from onefold.model import Draft, Json, KeyUse, TurnClaim
from onefold.storage.base import Transaction
from onefold.storage.postgres.transaction import PostgresTransaction
from onefold.storage.sqlite.transaction import SqliteTransaction
from tests.conftest import NOON, CountedIds, StoppedClock, claimed, running, said, who
from tests.support.helpers import PATIENCE, kinds


def drafted(message: Json) -> Draft:
    return draft(message, CountedIds())


# ---------------------------------------------------------------------- appending and reading


def test_a_new_session_begins_with_the_segment_that_opens_it(store: Store, clock: StoppedClock) -> None:
    session = store.session("s")

    (first,) = session.read()

    assert (first.number, first.kind, first.at) == (1, "segment.opened", clock.now)
    assert first.body["base"] is None
    assert session.head == 1
    assert [s.number for s in session.segments()] == [1]


def test_opening_a_session_again_writes_nothing(store: Store) -> None:
    store.session("s").append(said(1))

    again = store.session("s")

    assert kinds(again) == ["segment.opened", "message"]


def test_one_message_gets_the_next_number_and_comes_back_equal(store: Store, clock: StoppedClock) -> None:
    session = store.session("s")
    clock.advance(5)

    appended = session.append(said(1), actor="somebody")

    assert appended == AppendResult((2,), duplicate=False)
    (record,) = session.read(2)
    assert record.body == said(1)
    assert (record.kind, record.at, record.actor, record.format) == ("message", clock.now, "somebody", "openai-chat")


def test_many_messages_get_numbers_in_a_row(store: Store) -> None:
    session = store.session("s")
    messages = [said(n) for n in range(1, 6)]

    appended = session.append(messages)

    assert appended.numbers == (2, 3, 4, 5, 6)
    assert [r.body for r in session.read(2)] == messages


def test_an_empty_append_is_refused_and_writes_nothing(store: Store) -> None:
    session = store.session("s")

    with pytest.raises(InvalidMessage, match=r"'s'.*nothing to append"):
        session.append([])

    assert session.state.last == 1


def test_an_append_of_no_records_at_all_changes_nothing(session: Session, journal: Journal) -> None:
    before = session.state

    assert journal.append("s", []) == AppendResult(())

    assert session.state == before


def test_one_bad_message_among_many_keeps_all_of_them_out(session: Session) -> None:
    before = session.state

    with pytest.raises(InvalidMessage):
        session.append([said(1), {"role": "nobody"}, said(2)])

    assert session.state == before


def test_a_transaction_that_fails_half_way_leaves_nothing_behind(store: Store, session: Session) -> None:
    journal, known = store.journal, session.state
    before = (known, list(session.read()), session.segments(), list(store.sessions()))
    record = Record(8, "half", "message", NOON, said(8))

    def half(tx: Transaction) -> None:
        tx.add("s", record, encode(said(8)))
        tx.put_session(known._replace(last=8, messages=7))
        tx.put_key("s", "half", KeyUse(8, 1, "digest"))
        tx.add_input("s", 8)
        tx.add_segment("s", Segment(8, 1, 5, "compaction", NOON))
        tx.add("new", record._replace(number=1), encode(said(8)))
        tx.put_session(known._replace(id="new"))
        raise LookupError("half way")

    with pytest.raises(LookupError, match="half way"):
        journal.backend.write("s", half)

    assert (session.state, list(session.read()), session.segments(), list(store.sessions())) == before
    assert session.take_input() is None
    assert session.append(said(7), key="half").numbers == (8,)


def test_record_ids_are_all_different(session: Session) -> None:
    found = [r.id for r in session.read()]

    assert len(set(found)) == len(found) == 7


def test_read_gives_the_numbers_asked_for(session: Session) -> None:
    def numbers(start: int = 1, stop: int | None = None) -> list[int]:
        return [r.number for r in session.read(start, stop)]

    assert numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(3, 5) == [3, 4]
    assert numbers(6, 100) == [6, 7]
    assert numbers(-5, 2) == [1]
    assert numbers(5, 5) == numbers(5, 2) == numbers(8) == numbers(100) == []


def test_read_goes_on_over_pages(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE", 2)

    assert [r.number for r in session.read()] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.number for r in session.follow(idle=0)] == [1, 2, 3, 4, 5, 6, 7]


def test_changing_what_was_read_changes_nothing_in_the_store(session: Session) -> None:
    (record,) = session.read(2, 3)
    record.body["content"] = "changed"
    session.context().messages[0]["content"] = "changed"

    (again,) = session.read(2, 3)

    assert again.body == said(1)


# ---------------------------------------------------------------------- keys


def test_the_same_key_again_returns_the_same_numbers_and_writes_nothing_f10(session: Session) -> None:
    first = session.append([said(7), said(8)], key="k")

    again = session.append([said(7), said(8)], key="k")

    assert first == AppendResult((8, 9))
    assert again == AppendResult((8, 9), duplicate=True)
    assert session.state.last == 9


def test_a_client_that_sends_again_after_every_answer_adds_each_message_once_f09_f10(session: Session) -> None:
    for n in range(1, 21):
        for _ in range(5):
            session.append(said(n), key=f"turn {n}")

    assert [r.body for r in session.read(8)] == [said(n) for n in range(1, 21)]


def test_the_order_of_an_objects_keys_is_no_other_content(session: Session) -> None:
    session.append({"role": "user", "content": "hello", "meta": {"a": 1, "b": 2}}, key="k")

    again = session.append({"meta": {"b": 2, "a": 1}, "content": "hello", "role": "user"}, key="k")

    assert again.duplicate


@pytest.mark.parametrize(
    "other",
    [
        [said(9)],
        [said(7)],
        [said(8), said(7)],
        [said(7), said(8), said(9)],
        [{**said(7), "extra": None}, said(8)],
    ],
    ids=["other", "fewer", "other order", "more", "one field more"],
)
def test_the_same_key_with_other_content_is_refused_and_writes_nothing(session: Session, other: list[Json]) -> None:
    session.append([said(7), said(8)], key="k")
    before = session.state

    with pytest.raises(KeyConflict, match=r"'s'.*'k'.*record 8.*nothing was written"):
        session.append(other, key="k")

    assert session.state == before


def test_the_same_content_in_another_format_is_other_content(session: Session) -> None:
    session.append(said(7), key="k")

    with pytest.raises(KeyConflict):
        session.append(said(7), key="k", format="json")


def test_keys_are_per_session(store: Store, session: Session) -> None:
    other = store.session("other")
    session.append(said(7), key="k")

    appended = other.append(said(8), key="k")

    assert appended == AppendResult((2,))


def test_keys_live_as_long_as_their_session(session: Session, clock: StoppedClock) -> None:
    first = session.append(said(7), key="k")
    clock.advance(1e9)
    assert session.compact(lambda m: "short").changed

    assert session.append(said(7), key="k") == AppendResult(first.numbers, duplicate=True)


@pytest.mark.parametrize("key", ["", "x" * 513, "two\nlines", "\ud800"])
def test_a_key_that_cannot_be_shown_is_refused(session: Session, key: str) -> None:
    with pytest.raises(OnefoldError, match=r"key .* is invalid"):
        session.append(said(7), key=key)

    assert session.state.last == 7


def test_a_request_with_a_key_is_counted_once(session: Session, journal: Journal) -> None:
    opened = journal.request("s", key="r")

    again = journal.request("s", key="r")

    assert opened.compaction == again.compaction
    assert again.outcome == "opened"
    assert session.state.last == 8


def test_a_request_with_the_key_of_an_append_is_a_key_conflict(session: Session, journal: Journal) -> None:
    session.append(said(7), key="k")
    before = session.state

    with pytest.raises(KeyConflict):
        journal.request("s", key="k")

    assert session.state == before


# ---------------------------------------------------------------------- following


def test_follow_gives_what_is_there_and_ends_when_nothing_comes(session: Session) -> None:
    assert [r.number for r in session.follow(idle=0)] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.number for r in session.follow(5, idle=0)] == [6, 7]
    assert list(session.follow(7, idle=0)) == []


def test_follow_sees_what_is_appended_later_without_gap_or_repeat(session: Session) -> None:
    seen: list[int] = []
    caught_up, done = threading.Event(), threading.Event()

    def watch() -> None:
        for record in session.follow(idle=PATIENCE):
            seen.append(record.number)
            if record.number == 7:
                caught_up.set()
            if record.number == 57:
                done.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert caught_up.wait(PATIENCE)
    for n in range(50):
        session.append(said(n))

    assert done.wait(PATIENCE)
    watcher.join(PATIENCE)
    assert seen == list(range(1, 58))


def test_a_follower_beyond_the_end_is_told_so(session: Session) -> None:
    with pytest.raises(StaleHandle, match="'s' ends at record 7, before 8"):
        next(session.follow(8))


def test_a_follower_from_another_generation_is_told_so(store: Store, session: Session) -> None:
    assert next(session.follow(generation=store.generation)).number == 1

    with pytest.raises(StaleHandle, match="restored from a backup"):
        next(session.follow(generation="another"))


def test_wait_returns_at_once_if_the_record_is_there_and_false_if_it_does_not_come(
    session: Session, journal: Journal
) -> None:
    assert journal.wait("s", 6, timeout=PATIENCE)
    assert not journal.wait("s", 7, timeout=0)
    assert not journal.wait("s", 7, timeout=0.02)


def test_wait_ends_when_a_record_comes(session: Session, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, wait = threading.Event(), journal.backend.wait

    def noticed(version: int, timeout: float) -> None:
        waiting.set()
        wait(version, timeout)

    monkeypatch.setattr(journal.backend, "wait", noticed)
    appending = threading.Thread(target=lambda: waiting.wait(PATIENCE) and session.append(said(7)))
    appending.start()

    assert journal.wait("s", 7, timeout=PATIENCE)

    appending.join(PATIENCE)


def test_waiting_for_one_session_is_not_ended_by_another(store: Store, session: Session, journal: Journal) -> None:
    store.session("other").append(said(1))

    assert not journal.wait("s", 7, timeout=0.02)


# ---------------------------------------------------------------------- sessions


def test_sessions_come_latest_activity_first(store: Store, clock: StoppedClock) -> None:
    for name in ("a", "b", "c"):
        store.session(name)
        clock.advance(1)
    store.session("a").append(said(1))

    assert [s.id for s in store.sessions()] == ["a", "c", "b"]
    assert [s.id for s in store.sessions(limit=2)] == ["a", "c"]
    assert list(store.sessions(limit=0)) == []


def test_sessions_come_once_each_over_pages_though_all_were_active_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.store._PAGE", 2)
    names = [f"session {n}" for n in range(7)]
    for name in names:
        store.session(name)

    assert [s.id for s in store.sessions()] == sorted(names, reverse=True)
    assert [s.id for s in store.sessions(limit=3)] == sorted(names, reverse=True)[:3]


def test_the_state_of_a_session_counts_what_is_in_its_journal(session: Session, journal: Journal) -> None:
    state = session.state
    assert (state.last, state.head, state.cut, state.messages, state.segments) == (7, 1, 1, 6, 1)
    assert state.tokens == session.context().tokens

    session.queue_input(said(7))
    journal.commit(running(journal), "short", 5)

    state = session.state
    assert (state.cut, state.messages, state.segments, state.compactions, state.committed) == (5, 6, 2, 1, 1)
    assert (state.pending, state.open) == (1, None)
    assert state.head == session.segments()[-1].number


OPERATIONS: dict[str, Callable[[Journal], object]] = {
    "state": lambda j: j.state("nobody"),
    "append": lambda j: j.append("nobody", [drafted(said(1))]),
    "read": lambda j: list(j.read("nobody")),
    "follow": lambda j: next(j.follow("nobody")),
    "wait": lambda j: j.wait("nobody", 0, 1),
    "request": lambda j: j.request("nobody"),
    "claim": lambda j: j.claim("nobody", who()),
    "cancel": lambda j: j.cancel("nobody"),
    "restore": lambda j: undo.restore(j, "nobody", 1, expect_head=1),
    "queue": lambda j: turns.queue_input(j, "nobody", drafted(said(1))),
    "take": lambda j: turns.take_input(j, "nobody"),
    "holder": lambda j: j.holder("nobody"),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_names_a_session_it_does_not_know(store: Store, operation: Callable[[Journal], object]) -> None:
    with pytest.raises(SessionNotFound, match=r"no session 'nobody'.*onefold sessions"):
        operation(store.journal)

    assert list(store.sessions()) == []


def test_a_session_that_is_not_to_be_made_is_not_made(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        store.session("nobody", create=False)
    with pytest.raises(SessionNotFound):
        store.resolve("nobody")

    assert list(store.sessions()) == []


def test_a_session_resolves_to_itself_and_opens_without_create(store: Store, session: Session) -> None:
    assert store.resolve("s") == "s"
    assert store.session("s", create=False).state == session.state


@pytest.mark.parametrize("name", ["", "x" * 513, "a\x00b", "\ud800"])
def test_a_session_id_that_cannot_be_shown_is_refused(store: Store, name: str) -> None:
    with pytest.raises(OnefoldError, match=r"session id .* is invalid"):
        store.session(name)

    assert list(store.sessions()) == []


def test_a_closed_store_says_so(address: str, opened: Callable[..., Store]) -> None:
    store = opened(address)
    session = store.session("s")
    store.close()

    for use in (lambda: session.append(said(1)), session.context, lambda: next(session.follow()), store.verify):
        with pytest.raises(StoreError, match="closed"):
            use()
    store.close()


def test_whoever_waits_is_told_when_the_store_is_closed(address: str, opened: Callable[..., Store]) -> None:
    store = opened(address)
    session = store.session("s")
    ended: list[BaseException] = []
    at_the_end = threading.Event()

    def watch() -> None:
        try:
            for _ in session.follow(idle=PATIENCE):
                at_the_end.set()
        except StoreError as error:
            ended.append(error)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert at_the_end.wait(PATIENCE)
    store.close()
    watcher.join(PATIENCE)

    assert "closed" in str(ended[0])


# ---------------------------------------------------------------------- sessions never wait for each other


def test_a_session_that_compacts_holds_up_no_other_f46(store: Store, session: Session, journal: Journal) -> None:
    running(journal)
    other = store.session("other")
    other.append([said(n) for n in range(6)])

    claim = running(journal, "other")

    assert journal.commit(claim, "short", 4).cut == 4


def test_claim_next_takes_the_longest_waiting_that_is_free(store: Store, journal: Journal, clock: StoppedClock) -> None:
    for name in ("c", "a", "b"):
        store.session(name)
        journal.request(name)
        clock.advance(1)
    claimed(journal, "c")

    got = [journal.claim_next(who()) for _ in range(3)]

    assert [claim and claim.session for claim in got] == ["a", "b", None]
    assert [c.session for c in store.compactions()] == ["c", "a", "b"]


# ---------------------------------------------------------------------- reads that fail


def test_a_read_that_fails_never_says_that_nothing_was_written(
    store: Store, session: Session, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if address == "memory:":
        return  # where nothing fails
    broken: Exception = apsw.IOError("disk I/O error")
    kind: type = SqliteTransaction
    if address.startswith("postgresql"):
        broken, kind = psycopg.errors.IoError("could not read block 7"), PostgresTransaction

    def fail(self: object, session: str) -> None:
        raise broken

    with monkeypatch.context() as patched:
        patched.setattr(kind, "session", fail)
        for read in (session.context, lambda: list(session.read()), lambda: store.journal.state("s")):
            with pytest.raises(StoreError, match="nothing was read") as said_so:
                read()
            assert "written" not in str(said_so.value)
        with pytest.raises(StoreError, match="nothing was written"):
            session.append(said(7))


# ---------------------------------------------------------------------- what it costs


class Counted:
    """How many transactions of each kind there were."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.writes = 0
        backend = store.journal.backend
        read, write = backend.read, backend.write

        def reading(work: Callable[[Transaction], object]) -> object:
            self.reads += 1
            return read(work)

        def writing(session: str, work: Callable[[Transaction], object], **options: Json) -> object:
            self.writes += 1
            return write(session, work, **options)

        monkeypatch.setattr(backend, "read", reading)
        monkeypatch.setattr(backend, "write", writing)


def test_a_follower_takes_two_transactions_for_a_record_at_most(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that finds it, and one that finds no other."""
    last = session.state.last
    follower = session.follow(last, idle=PATIENCE)
    counted = Counted(store, monkeypatch)
    for n in range(1, 6):
        session.append(said(n))
        assert next(follower).number == last + n

    assert counted.reads <= 2 * 5
    for n in range(3):
        session.append(said(n))
    counted.reads = 0
    assert [next(follower).number for _ in range(3)] == [last + 6, last + 7, last + 8]
    assert counted.reads <= 2


def test_records_with_a_key_each_are_one_transaction_and_repeated_none_is_written_twice(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = session.state.last
    made = [(f"frames:{n}", drafted(said(n))) for n in range(5)]
    counted = Counted(store, monkeypatch)

    assert turns.append_each(store.journal, "s", made[:3]) == [last + 1, last + 2, last + 3]
    assert turns.append_each(store.journal, "s", made) == [last + 1, last + 2, last + 3, last + 4, last + 5]

    assert counted.writes == 2
    other = ("frames:4", drafted(said(9)))
    with pytest.raises(KeyConflict):
        turns.append_each(store.journal, "s", [("frames:5", drafted(said(5))), other])
    assert session.state.last == last + 5
    assert [r.key for r in session.read(last + 1)] == [key for key, _ in made]


def test_records_with_a_key_each_are_refused_together_when_their_turn_is_over(store: Store, session: Session) -> None:
    turn = turns.start(store.journal, "s", who())
    assert isinstance(turn, TurnClaim)
    turns.append_each(store.journal, "s", [("a", drafted(said(1)))], turn=turn)
    turns.end(store.journal, turn, "settled", None)
    last = session.state.last

    assert turns.append_each(store.journal, "s", [("a", drafted(said(1)))], turn=turn) == [last - 1]
    with pytest.raises(TurnLost):
        turns.append_each(store.journal, "s", [("a", drafted(said(1))), ("b", drafted(said(2)))], turn=turn)
    assert session.state.last == last
