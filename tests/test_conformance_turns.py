"""The contract on every kind of store: turns, one writer at a time, and the inputs that wait for one."""

from __future__ import annotations

import asyncio
import builtins
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from onefold import Busy, Context, KeyConflict, OnefoldError, Session, Store, StoreError, Turn, TurnLost
from onefold.compaction.run import gather
from onefold.journal import turns
from onefold.journal.contract import Journal
from onefold.journal.memory import MemoryLeases
from onefold.journal.sqlite.rows import SqliteLeases
from onefold.messages import codec
from onefold.model import TURN_SETTLED, Draft, Held, Json, Lease, Outcome, Record, TurnClaim
from proof.operations import talk
from tests.conftest import StoppedClock, running, said, who
from tests.helpers import PATIENCE, counted, kinds, quick

LEASE = 30.0
HOUR = 3600.0


@pytest.fixture
def other(store: Store, session: Session) -> Session:
    """A second handle on the same session, as another writer has it."""
    return store.session("s")


def forgotten(journal: Journal, *, owner: str | None = None, lease: float = LEASE) -> TurnClaim:
    """A turn whose writer died: nobody renews it."""
    claim = turns.start(journal, "s", who("gone"), owner=owner, lease=lease)
    assert isinstance(claim, TurnClaim), claim
    return claim


def outcomes(session: Session) -> list[str]:
    return [r.body["outcome"] for r in session.read() if r.kind == "turn.settled"]


def lease_of(store: Store) -> Lease | None:
    return store.journal.backend.read(lambda tx: tx.turn_leases.get("s"))


def one_at_a_time(session: Session) -> bool:
    """Whether turns begin and end in turn, and every message in between that names a turn names that one."""
    open: str | None = None
    for record in session.read():
        if record.kind == "turn.started":
            if open is not None:
                return False
            open = record.turn
        elif record.turn is not None and record.turn != open:
            return False
        elif record.kind == "turn.settled":
            open = None
    return True


@contextmanager
def nothing_written(session: Session) -> Iterator[None]:
    before, journal = session.state, list(session.read())
    yield
    assert session.state == before
    assert list(session.read()) == journal


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "onefold" and r.levelno >= logging.WARNING]


class Waiting:
    """A writer that waits for the turn in a thread of its own. `there` is set once it really waits."""

    def __init__(self, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there = threading.Event()
        self.got: Turn | Exception | None = None
        backend = store.journal.backend
        wait = backend.wait

        def noticed(version: int, timeout: float) -> None:
            self.there.set()
            wait(version, timeout)

        def begin() -> None:
            try:
                self.got = session.turn(owner="second", wait=PATIENCE)
            except Exception as error:
                self.got = error

        monkeypatch.setattr(backend, "wait", noticed)
        self._thread = threading.Thread(target=begin)
        self._thread.start()
        assert self.there.wait(PATIENCE)

    def turn(self) -> Turn:
        self._thread.join(PATIENCE)
        assert isinstance(self.got, Turn), self.got
        return self.got


# ---------------------------------------------------------------------- one writer at a time


def test_a_turn_is_begun_written_in_and_settled(store: Store, session: Session) -> None:
    with session.turn(owner="gateway") as turn:
        there = session.open_turn()
        done = turn.append([said(7), said(8)])

    assert there is not None
    assert (there.id, there.number, there.owner) == (turn.id, turn.number, "gateway")
    assert (there.since, there.until) == (there.since, there.since + store.policy.turn_lease)
    assert kinds(session, turn.number) == ["turn.started", "message", "message", "turn.settled"]
    assert done.numbers == (turn.number + 1, turn.number + 2)
    assert {r.turn for r in session.read(turn.number)} == {turn.id}
    assert [r.turn for r in session.read(1, turn.number)] == [None] * 7
    assert (session.open_turn(), session.state.turn, lease_of(store)) == (None, 0, None)
    assert outcomes(session) == ["settled"]


@pytest.mark.parametrize("wait", [False, 0, 0.01])
def test_a_second_writer_is_told_who_has_the_turn_and_what_to_do(
    session: Session, other: Session, wait: bool | float
) -> None:
    with session.turn(owner="gateway"), nothing_written(session):
        with pytest.raises(Busy) as refused:
            other.turn(wait=wait)

        for words in ("'s'", "gateway", "nothing was written", "wait=", "session.queue(message)"):
            assert words in str(refused.value)


def test_a_writer_without_a_name_is_known_by_its_process(session: Session, other: Session) -> None:
    with session.turn():
        there = session.open_turn()
        assert there is not None
        with pytest.raises(Busy, match=f"process {there.holder.pid}"):
            other.turn(wait=False)


def test_a_second_writer_gets_the_turn_as_soon_as_the_first_ends(
    store: Store, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still, so it cannot be the lease that ended."""
    first = session.turn(owner="first")
    second = Waiting(store, other, monkeypatch)
    first.append(said(7))

    first.end()
    turn = second.turn()

    assert turn.number > first.number
    turn.append(said(8))
    turn.end()
    assert outcomes(session) == ["settled", "settled"]
    assert one_at_a_time(session)


def test_those_who_wait_for_a_turn_only_look(
    store: Store, session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write takes the store's lock: a waiter that asked by writing would spin, and keep the turn's owner out."""
    backend = store.journal.backend
    write, writes = backend.write, []

    def counting(*args: Any, **options: Any) -> Any:
        writes.append(threading.current_thread())
        return write(*args, **options)

    with session.turn():
        monkeypatch.setattr(backend, "write", counting)
        with pytest.raises(Busy):
            other.turn(wait=0.2)
        assert writes == []


def test_many_writers_at_once_get_the_turn_one_after_another(store: Store, session: Session) -> None:
    start = threading.Barrier(6)
    inside: list[str] = []
    overlaps: list[tuple[str, ...]] = []

    def work(name: str) -> None:
        mine = store.session("s")
        start.wait(PATIENCE)
        for n in range(5):
            with mine.turn(owner=name) as turn:
                inside.append(name)
                turn.append({"role": "user", "content": f"{name} asks {n}"})
                turn.append({"role": "assistant", "content": f"{name} is answered {n}"})
                if len(inside) > 1:
                    overlaps.append(tuple(inside))
                inside.remove(name)

    threads = [threading.Thread(target=work, args=(f"writer {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert overlaps == []
    assert outcomes(session) == ["settled"] * 30
    assert one_at_a_time(session)
    assert session.state.messages == 6 + 60


def test_an_input_that_cannot_wait_is_queued_for_the_next_turn(session: Session, other: Session) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        other.queue(said(9))
        turn.append(said(8))
        assert said(9) not in session.context().messages

    with other.turn() as following:
        taken = following.take()
        assert following.take() is None

    assert taken is not None
    assert (taken.body, taken.turn) == (said(9), following.id)
    assert session.context().messages[-3:] == [said(7), said(8), said(9)]


def test_appends_without_a_turn_stay_possible_beside_an_open_one(session: Session, other: Session) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        free = other.append(said(9))
        later = turn.append(said(8))

    assert free.numbers[0] + 1 == later.numbers[0]
    (between,) = session.read(free.numbers[0], free.numbers[0] + 1)
    assert (between.turn, between.body) == (None, said(9))
    assert outcomes(session) == ["settled"]


def test_turns_of_two_sessions_do_not_meet(store: Store, session: Session) -> None:
    with session.turn(), store.session("another").turn(wait=False) as turn:
        turn.append(said(1))

    assert outcomes(store.session("another")) == ["settled"]


@pytest.mark.parametrize("lease", [0, -1.0])
def test_a_lease_is_some_time(session: Session, journal: Journal, lease: float) -> None:
    with nothing_written(session), pytest.raises(OnefoldError, match="above 0"):
        turns.start(journal, "s", who(), lease=lease)


# ---------------------------------------------------------------------- a turn that was lost


@dataclass(frozen=True)
class Loss:
    """A way to lose a turn, and how it ended by that."""

    take_away: Callable[[Session, Journal, StoppedClock], Any]
    outcome: Outcome
    words: str = "it is over"


def _take_over(session: Session, journal: Journal, clock: StoppedClock) -> None:
    clock.advance(LEASE)
    forgotten(journal, owner="successor")


def _rewind(session: Session, journal: Journal, clock: StoppedClock) -> None:
    session.rewind(5)


LOSSES = {
    "taken over after its lease": Loss(_take_over, "interrupted", "successor has it since record"),
    "stopped from outside": Loss(lambda session, *_: session.stop_turn("enough"), "cancelled"),
    "rewound": Loss(_rewind, "cancelled"),
    "undone": Loss(lambda session, *_: session.undo(), "cancelled"),
}


@pytest.fixture(params=list(LOSSES))
def loss(request: pytest.FixtureRequest) -> Loss:
    return LOSSES[request.param]


def test_a_writer_that_lost_its_turn_is_refused_with_nothing_written(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    turn = session.turn(owner="slow")
    turn.append(said(7))
    session.queue(said(9))
    loss.take_away(session, journal, clock)

    with nothing_written(session):
        with pytest.raises(TurnLost) as refused:
            turn.append([said(8), said(10)])
        with pytest.raises(TurnLost):
            turn.take()
        with pytest.raises(TurnLost):
            turn.end()

    for words in ("'s'", "slow", f"record {turn.number}", loss.words, "nothing was written", "begin a new turn"):
        assert words in str(refused.value)
    assert outcomes(session) == [loss.outcome]
    assert session.state.pending == 1


def test_leaving_the_block_of_a_lost_turn_tells_of_the_loss(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            loss.take_away(session, journal, clock)

    with pytest.raises(TurnLost):
        work()

    assert outcomes(session) == [loss.outcome]


def test_leaving_the_block_of_a_lost_turn_with_an_error_keeps_that_error(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            loss.take_away(session, journal, clock)
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        work()

    assert outcomes(session) == [loss.outcome]


def test_a_lost_turn_that_was_noticed_inside_the_block_raises_once(session: Session) -> None:
    def work() -> None:
        with session.turn() as turn:
            session.stop_turn()
            turn.append(said(7))

    with pytest.raises(TurnLost) as refused:
        work()

    assert refused.value.__context__ is None


def test_a_lost_turn_renews_nothing_of_the_one_that_has_it_now(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    old = forgotten(journal)
    clock.advance(LEASE)
    new = forgotten(journal, lease=50.0)
    before = lease_of(store)

    assert turns.renew(journal, old) is None

    assert lease_of(store) == before == Lease(new.id, new.number, clock.now + 50.0, 50.0)


def test_a_turn_of_a_closed_store_is_interrupted_and_its_writer_told(
    durable: str, opened: Callable[..., Store]
) -> None:
    store = opened(durable)
    turn = store.session("s").turn(owner="gateway")
    turn.append([said(1), *CHAT.calls])
    store.close()

    for attempt in (lambda: turn.append(said(2)), turn.take, turn.end):
        with pytest.raises(TurnLost, match="closed the store"):
            attempt()

    again = opened(durable)
    session = again.session("s")
    assert outcomes(session) == ["interrupted"]
    assert kinds(session) == ["segment.opened", "turn.started", *["message"] * 5, "turn.settled"]
    assert [*session.read()][-1].body["cause"] == "its process closed the store"
    assert_a_provider_takes(session.context())
    with session.turn(wait=False) as following:
        following.append(said(3))
    assert again.verify().healthy


def test_a_block_whose_store_was_closed_inside_it_tells_of_the_loss(address: str, opened: Callable[..., Store]) -> None:
    store = opened(address)
    session = store.session("s")

    with pytest.raises(TurnLost, match="closed the store"), session.turn():
        store.close()


def test_a_block_that_failed_because_its_store_was_closed_keeps_that_error(
    address: str, opened: Callable[..., Store]
) -> None:
    store = opened(address)
    session = store.session("s")

    def work() -> None:
        with session.turn():
            store.close()
            session.append(said(1))

    with pytest.raises(StoreError, match="closed"):
        work()


def test_stopping_a_turn_says_whose_it_was_and_why(session: Session, other: Session) -> None:
    turn = session.turn(owner="gateway")

    stopped = other.stop_turn("the user pressed stop")

    assert stopped is not None
    assert (stopped.id, stopped.owner) == (turn.id, "gateway")
    ended = [*session.read()][-1]
    assert (ended.kind, ended.turn) == ("turn.settled", turn.id)
    assert ended.body == {"outcome": "cancelled", "cause": "the user pressed stop"}
    with nothing_written(session):
        assert other.stop_turn() is None


# ---------------------------------------------------------------------- how a turn ends


class Stopped(BaseException):
    """What a framework may raise to end a task."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("no \ud800 such model"), "failed"),
        (Busy("something else"), "failed"),
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError("timeout"), "cancelled"),
        (SystemExit(1), "cancelled"),
        (Stopped(), "cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_an_exception_ends_the_turn_and_passes_through(
    session: Session, error: BaseException, outcome: Outcome
) -> None:
    def work() -> None:
        with session.turn() as turn:
            turn.append(said(7))
            raise error

    with pytest.raises(type(error)) as raised:
        work()

    assert raised.value is error
    ended = [*session.read()][-1]
    assert ended.body["outcome"] == outcome
    assert ended.body["cause"].startswith(f"{type(error).__name__}: ")
    assert session.open_turn() is None


@pytest.mark.parametrize("outcome", ["settled", "failed", "cancelled", "interrupted"])
def test_a_turn_is_ended_once_however_often_it_is_said(session: Session, outcome: Outcome) -> None:
    with session.turn() as turn:
        turn.append(CHAT.calls)
        turn.end(outcome, "said first")
        with nothing_written(session):
            turn.end(outcome, "said again")

    assert outcomes(session) == [outcome]
    assert [*session.read()][-1].body["cause"] == "said first"


def test_a_turn_that_ended_is_not_ended_in_another_way(session: Session) -> None:
    turn = session.turn()
    turn.end()

    with nothing_written(session), pytest.raises(TurnLost):
        turn.end("failed")


def test_a_cancelled_turn_may_be_cancelled_by_its_writer_too(session: Session) -> None:
    turn = session.turn()
    session.stop_turn()

    with nothing_written(session):
        turn.end("cancelled")


def test_the_end_of_a_long_turn_is_found_however_much_came_before_and_after_it(session: Session) -> None:
    turn = session.turn()
    turn.append(talk(600))
    turn.end()
    session.append(talk(600))

    with nothing_written(session):
        turn.end()
        with pytest.raises(TurnLost):
            turn.end("failed")


# ---------------------------------------------------------------------- calls that a turn leaves open


@dataclass(frozen=True)
class Tools:
    """Three parallel calls a, b and c in one format, a result of b, and what stands for one that never came."""

    format: str
    calls: list[Json]
    result: Json
    never: Callable[[str, str], Json]

    def none_came(self, ids: str, why: str) -> list[Json]:
        """The same for several calls. Anthropic's results of one answer stand in one message."""
        each = [self.never(id, why) for id in ids]
        if self.format != "anthropic":
            return each
        return [{"role": "user", "content": [block for message in each for block in message["content"]]}]


def _chat_call(id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "run", "arguments": f'{{"job": "{id}"}}'}}


CHAT = Tools(
    "openai-chat",
    [{"role": "assistant", "content": None, "tool_calls": [_chat_call(id) for id in "abc"]}],
    {"role": "tool", "tool_call_id": "b", "content": "b is done"},
    lambda id, why: {"role": "tool", "tool_call_id": id, "content": why},
)
ANTHROPIC = Tools(
    "anthropic",
    [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "three at once"},
                *({"type": "tool_use", "id": id, "name": "run", "input": {"job": id}} for id in "abc"),
            ],
        }
    ],
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "b is done"}]},
    lambda id, why: {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": why, "is_error": True}],
    },
)
RESPONSES = Tools(
    "openai-responses",
    [
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "three at once"}]},
        *({"type": "function_call", "call_id": id, "name": "run", "arguments": "{}"} for id in "abc"),
    ],
    {"type": "function_call_output", "call_id": "b", "output": "b is done"},
    lambda id, why: {"type": "function_call_output", "call_id": id, "output": why},
)


def _shown(text: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


ACP = Tools(
    "acp",
    [
        {"sessionUpdate": "tool_call", "toolCallId": id, "title": "run", "status": "pending", "rawInput": {"job": id}}
        for id in "abc"
    ],
    {"sessionUpdate": "tool_call_update", "toolCallId": "b", "status": "completed", "content": _shown("b is done")},
    lambda id, why: {
        "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed", "content": _shown(why),
    },
)  # fmt: skip


@pytest.fixture(params=[CHAT, ANTHROPIC, RESPONSES, ACP], ids=lambda tools: tools.format)
def tools(request: pytest.FixtureRequest) -> Tools:
    found: Tools = request.param
    return found


def _die(session: Session, clock: StoppedClock, claim: TurnClaim) -> None:
    clock.advance(LEASE)
    session.turn().end()


def _end(outcome: Outcome) -> Callable[[Session, StoppedClock, TurnClaim], None]:
    return lambda session, clock, claim: turns.end(session._journal, claim, outcome, "because")


ENDINGS: dict[str, tuple[Outcome, Callable[[Session, StoppedClock, TurnClaim], Any]]] = {
    "failed": ("failed", _end("failed")),
    "cancelled": ("cancelled", _end("cancelled")),
    "stopped": ("cancelled", lambda session, clock, claim: session.stop_turn()),
    "died": ("interrupted", _die),
}


def no_result(outcome: str) -> str:
    how = "failed" if outcome == "failed" else f"was {outcome}"
    return f"(no result: the turn {how} before it came)"


def assert_a_provider_takes(context: Context) -> None:
    """No call without its result and no result without its call, in each format's own words and in strict ones."""
    waiting: list[str] = []
    for format, body in zip(context.formats, context.messages, strict=True):
        header = codec(format).header(body)
        for id in header.closes:
            assert id in waiting, f"a result without its call: {body}"
            waiting.remove(id)
        waiting += header.opens
    assert waiting == [], f"calls without a result in {context.messages}"
    strict: list[str] = []
    for message in context.to("openai-chat"):
        if message["role"] == "tool":
            strict.remove(message["tool_call_id"])
        else:
            assert strict == [], f"no result before {message}"
            strict = [call["id"] for call in message.get("tool_calls", ())]
    assert strict == []


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_the_calls_of_a_turn_that_did_not_settle_get_results_that_say_so(
    session: Session, journal: Journal, clock: StoppedClock, tools: Tools, ending: str
) -> None:
    """F26: a conversation with a call that has no result is refused by providers for ever."""
    outcome, end = ENDINGS[ending]
    claim = forgotten(journal)
    drafts = session._drafts([*tools.calls, tools.result], tools.format, None)
    journal.append("s", drafts, turn=claim)
    last = session.state.last

    end(session, clock, claim)

    expected = tools.none_came("ac", no_result(outcome))
    *results, ended = session.read(last + 1, last + len(expected) + 2)
    assert [r.body for r in results] == expected
    assert {(r.kind, r.format, r.turn) for r in results} == {("message", tools.format, claim.id)}
    assert (ended.kind, ended.body["outcome"], ended.turn) == ("turn.settled", outcome, claim.id)
    context = session.context()
    assert_a_provider_takes(context)
    assert (context.left_out, 0 in context.numbers) == ((), False)


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "interrupted"])
def test_a_turn_with_all_its_results_needs_none(session: Session, tools: Tools, outcome: Outcome) -> None:
    turn = session.turn()
    turn.append(tools.calls, format=tools.format)
    turn.append([{**tools.never(id, "done")} for id in "abc"], format=tools.format)
    last = session.state.last

    turn.end(outcome)

    assert kinds(session, last + 1) == ["turn.settled"]


def test_only_the_calls_of_the_turn_itself_get_results(session: Session, other: Session) -> None:
    free = {"role": "assistant", "content": None, "tool_calls": [_chat_call("free")]}
    other.append(free)
    turn = session.turn()
    turn.append(said(7))
    turn.end("failed")

    assert counted(session, "message") == 8
    other.append({"role": "tool", "tool_call_id": "free", "content": "it came"})
    assert_a_provider_takes(session.context())


def test_calls_that_were_given_up_before_are_answered_in_the_context_alone(session: Session) -> None:
    """The model was asked again without the result, and said something else: the next one is the open one."""
    turn = session.turn()
    turn.append({"role": "assistant", "content": None, "tool_calls": [_chat_call("given up")]})
    turn.append(said(7))
    turn.append({"role": "assistant", "content": None, "tool_calls": [_chat_call("open")]})

    turn.end("failed")

    *_, result, _ = session.read()
    assert result.body == CHAT.never("open", no_result("failed"))
    assert_a_provider_takes(session.context())


def test_an_id_that_comes_again_is_answered_for_the_call_that_is_open(session: Session) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [_chat_call("same")]}
    turn = session.turn()
    turn.append([call, CHAT.never("same", "first"), call])

    turn.end("cancelled")

    *_, result, _ = session.read()
    assert result.body == CHAT.never("same", no_result("cancelled"))
    assert_a_provider_takes(session.context())


def test_the_results_and_the_end_are_written_together_or_not_at_all(
    session: Session, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = session.turn()
    turn.append(CHAT.calls)
    draft = journal.draft

    def failing(kind: str, *args: Any, **options: Any) -> Draft:
        if kind == TURN_SETTLED:
            raise RuntimeError("in between")
        return draft(kind, *args, **options)

    with monkeypatch.context() as patch, nothing_written(session):
        patch.setattr(journal, "draft", failing)
        with pytest.raises(RuntimeError, match="in between"):
            turn.end("failed")

    turn.end("failed")
    assert kinds(session, turn.number + 2) == [*["message"] * 3, "turn.settled"]


def test_an_interrupted_turn_is_settled_in_the_transaction_that_begins_the_next(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    dead = forgotten(journal, owner="gone")
    journal.append("s", session._drafts(CHAT.calls, None, None), turn=dead)
    clock.advance(LEASE)

    with session.turn(wait=False) as turn:
        turn.append(said(8))

    assert kinds(session, dead.number) == [
        "turn.started", *["message"] * 4, "turn.settled", "turn.started", "message", "turn.settled",
    ]  # fmt: skip
    ended = next(r for r in session.read(dead.number) if r.kind == "turn.settled")
    assert (ended.turn, ended.body["outcome"]) == (dead.id, "interrupted")
    assert "gone, process 1 on here" in ended.body["cause"]
    assert_a_provider_takes(session.context())


# ---------------------------------------------------------------------- a turn that settled with an open call


@pytest.fixture
def left_open(session: Session, tools: Tools) -> Turn:
    """A turn that settled although two of its three calls have no result, as one that waits for a person does."""
    with session.turn() as turn:
        turn.append(said(7))
        turn.append([*tools.calls, tools.result], format=tools.format)
    return turn


def test_a_settled_turn_leaves_its_open_calls_as_they_are(session: Session, left_open: Turn, tools: Tools) -> None:
    assert kinds(session, left_open.number) == [
        "turn.started", *["message"] * (len(tools.calls) + 2), "turn.settled",
    ]  # fmt: skip


def test_the_context_shows_made_up_results_for_what_a_settled_turn_left_open(
    session: Session, left_open: Turn, tools: Tools
) -> None:
    context = session.context()

    assert_a_provider_takes(context)
    made_up = [m for m, n in zip(context.messages, context.numbers, strict=True) if n == 0]
    assert made_up == tools.none_came("ac", "(no result: the call was interrupted)")


def test_a_result_that_comes_after_all_is_shown_instead(session: Session, left_open: Turn, tools: Tools) -> None:
    late = tools.never("c", "c came late")
    with session.turn() as turn:
        turn.append(said(9))
        turn.append(late, format=tools.format)

    context = session.context()

    assert_a_provider_takes(context)
    assert context.numbers.count(0) == 1
    assert late in context.messages
    assert tools.never("a", "(no result: the call was interrupted)") in context.messages
    assert context.messages.index(late) < context.messages.index(said(9))


def test_while_the_turn_is_open_its_open_calls_are_shown_without_a_result(session: Session, tools: Tools) -> None:
    with session.turn() as turn:
        turn.append(tools.calls, format=tools.format)
        context = session.context()

    assert 0 not in context.numbers
    assert context.messages[-len(tools.calls) :] == tools.calls


def test_a_cut_may_lie_after_what_a_settled_turn_left_open(session: Session, left_open: Turn) -> None:
    session.append(talk(20, start=101))
    assert session.compact(lambda _: "what was said").changed

    assert session.segments()[-1].cut > left_open.number + 3
    assert_a_provider_takes(session.context())


def test_no_cut_lies_after_what_an_open_turn_left_open(session: Session, tools: Tools) -> None:
    with session.turn() as turn:
        calls = turn.append(tools.calls, format=tools.format)
        turn.append([{"role": "user", "content": f"steering {n} " + "word " * 20} for n in range(20)])
        session.compact(lambda _: "what was said")

        assert session.state.cut <= calls.numbers[0]


def test_a_rewind_may_land_after_what_a_settled_turn_left_open(session: Session, left_open: Turn) -> None:
    settled = session.state.last
    session.append([said(9), said(10)])

    session.rewind(settled)

    assert said(7) in session.context().messages
    assert said(9) not in session.context().messages
    assert session.segments()[-1].hidden[0][0] == settled + 1
    assert_a_provider_takes(session.context())


def test_a_rewind_into_an_open_call_of_an_open_turn_lands_before_it_and_cancels_the_turn(
    session: Session, tools: Tools
) -> None:
    turn = session.turn()
    asked = turn.append(said(7)).numbers[0]
    turn.append(tools.calls, format=tools.format)
    last = turn.append(tools.result, format=tools.format).numbers[0]

    session.rewind(last)

    assert kinds(session, last + 1) == ["turn.settled", "segment.opened"]
    assert session.segments()[-1].hidden == ((asked + 1, last + 1),)
    assert outcomes(session) == ["cancelled"]
    assert session.context().messages[-1] == said(7)
    with pytest.raises(TurnLost):
        turn.append(said(8))


# ---------------------------------------------------------------------- saying it again


def test_an_append_that_was_written_before_the_turn_was_lost_is_found_by_its_key(
    session: Session, journal: Journal, clock: StoppedClock, loss: Loss
) -> None:
    """The answer got lost, then the turn. What happened is that it was written, and that is what the writer learns."""
    turn = session.turn()
    first = turn.append([said(7), said(8)], key="k")
    loss.take_away(session, journal, clock)

    with nothing_written(session):
        again = turn.append([said(7), said(8)], key="k")
        with pytest.raises(KeyConflict):
            turn.append(said(8), key="k")
        with pytest.raises(TurnLost):
            turn.append(said(9), key="another")

    assert (again.numbers, again.duplicate, first.duplicate) == (first.numbers, True, False)


def test_taking_again_by_the_same_key_gives_the_same_input(session: Session) -> None:
    session.queue(said(7))
    session.queue(said(9))
    turn = session.turn()
    first = turn.take(key="k")

    with nothing_written(session):
        assert turn.take(key="k") == first
    second = turn.take(key="another")
    session.stop_turn()
    with nothing_written(session):
        assert turn.take(key="k") == session.take(key="k") == first

    assert first is not None
    assert second is not None
    assert (first.body, second.body) == (said(7), said(9))


def test_a_key_of_an_append_takes_nothing(session: Session) -> None:
    session.queue(said(7))
    turn = session.turn()
    turn.append(said(8), key="k")

    with nothing_written(session), pytest.raises(KeyConflict):
        turn.take(key="k")


def test_queueing_again_by_the_same_key_queues_once(session: Session) -> None:
    first = session.queue(said(7), key="k")

    with nothing_written(session):
        assert session.queue(said(7), key="k") == first
        with pytest.raises(KeyConflict):
            session.queue(said(9), key="k")
        with pytest.raises(KeyConflict):
            session.append(said(7), key="k")

    assert session.state.pending == 1


# ---------------------------------------------------------------------- inputs, each for one turn


def test_each_input_is_taken_by_exactly_one_of_many_turns(store: Store, session: Session, journal: Journal) -> None:
    claim = running(journal)
    follow_up = session._drafts({"role": "user", "content": "the follow-up"}, None, None)[0]
    journal.commit(claim, "what was said", 5, follow_up=follow_up)
    for n in range(20):
        session.queue({"role": "user", "content": f"input {n}"})
    start = threading.Barrier(4)
    taken: list[Record] = []

    def work(name: str) -> None:
        mine = store.session("s")
        start.wait(PATIENCE)
        while True:
            with mine.turn(owner=name) as turn:
                if (got := turn.take()) is None:
                    return
                taken.append(got)

    threads = [threading.Thread(target=work, args=(f"writer {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert [r.body["content"] for r in sorted(taken, key=lambda r: r.number)] == [
        "the follow-up", *(f"input {n}" for n in range(20)),
    ]  # fmt: skip
    assert len({r.turn for r in taken}) == 21
    assert session.state.pending == 0
    assert one_at_a_time(session)


def test_an_input_that_an_undone_turn_took_is_not_given_out_again(session: Session) -> None:
    session.queue(said(7))
    with session.turn() as turn:
        turn.take()
        turn.append(said(8))

    session.undo()

    assert session.take() is None
    assert session.context().messages == [said(n) for n in range(1, 7)]


# ---------------------------------------------------------------------- a turn that is compacted


def tool_loop(count: int, *, start: int = 1) -> list[Json]:
    """So many calls of a tool, each with its result."""
    loop: list[Json] = []
    for n in range(start, start + count):
        loop.append({"role": "assistant", "content": f"step {n}", "tool_calls": [_chat_call(f"call-{n}")]})
        loop.append(CHAT.never(f"call-{n}", f"result {n}: " + "word " * 20))
    return loop


OPENING = {"role": "user", "content": "make the tests pass, and do not push"}
STEERING = {"role": "user", "content": "and leave the docs alone"}


def test_a_turn_that_is_compacted_keeps_the_message_that_opened_it_and_its_end(session: Session) -> None:
    """F27: with a second message of the user in mid turn, the first one is still the order."""
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        turn.append(tool_loop(10))
        steering = turn.append(STEERING).numbers[0]
        turn.append(tool_loop(10, start=11))

        assert session.compact(lambda _: "what was said").changed

        context = session.context()
        assert session.segments()[-1].kept == (opening, steering)
        assert session.state.cut > steering
        assert context.numbers[1:3] == (opening, steering)
        assert context.messages[1:3] == [OPENING, STEERING]
        assert context.messages[-2:] == tool_loop(1, start=20)
        assert_a_provider_takes(context)
        turn.append({"role": "assistant", "content": "done"})

    assert outcomes(session) == ["settled"]
    assert session.context().messages[1:3] == [OPENING, STEERING]


def test_a_turn_that_is_compacted_again_and_again_keeps_the_message_that_opened_it(session: Session) -> None:
    system = {"role": "system", "content": "you are careful"}
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        for n in range(5):
            turn.append(tool_loop(10, start=10 * n + 1))
            turn.append({"role": "user", "content": f"steering {n}"})
            turn.append(tool_loop(10, start=10 * n + 101))
            assert session.compact(lambda _, n=n: f"summary {n}").changed  # type: ignore[misc]

            context = session.context()
            assert context.messages.count(OPENING) == 1
            assert opening in session.segments()[-1].kept
            assert {"role": "user", "content": f"steering {n}"} in context.messages
            assert context.messages[-2:] == tool_loop(1, start=10 * n + 110)
            assert_a_provider_takes(context)
        turn.append({"role": "assistant", "content": "done"})

    session.append([system, *talk(20, start=101)])
    assert session.compact(lambda _: "the turn is over").changed
    assert OPENING not in session.context().messages  # once it is over, it goes the way of all messages
    assert session.state.committed == 6


def test_a_compaction_of_an_open_turn_knows_which_one_it_is(session: Session, journal: Journal) -> None:
    """What an earlier turn left open counts as closed; what this one did may still be answered."""
    with session.turn() as before:
        earlier = before.append(CHAT.calls).numbers[0]
    with session.turn() as turn:
        opening = turn.append(OPENING).numbers[0]
        now = turn.append({"role": "assistant", "content": None, "tool_calls": [_chat_call("open")]}).numbers[0]

        known = gather(journal, running(journal)).turns

    assert known.opening == opening
    assert earlier in known.over
    assert now not in known.over


def test_a_commit_in_mid_turn_takes_the_turn_from_nobody(session: Session, journal: Journal) -> None:
    with session.turn() as turn:
        turn.append(said(7))
        journal.commit(running(journal), "what was said", 5)
        turn.append(said(8))

    assert outcomes(session) == ["settled"]
    assert session.context().messages[-2:] == [said(7), said(8)]


# ---------------------------------------------------------------------- leases and clocks


def test_the_handle_renews_its_lease_and_so_keeps_the_turn(
    address: str, opened: Callable[..., Store], clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = 0.3
    store = opened(address, policy=quick(turn_lease=lease))
    session, other = store.session("s"), store.session("s")
    renewed = threading.Semaphore(0)
    renew = turns.renew

    def noticed(journal: Journal, turn: TurnClaim) -> float | None:
        until = renew(journal, turn)
        renewed.release()
        return until

    monkeypatch.setattr(turns, "renew", noticed)
    with session.turn() as turn:
        for _ in range(4):
            clock.advance(lease * 0.7)
            while (there := session.open_turn()) is not None and there.until != clock.now + lease:
                assert renewed.acquire(timeout=PATIENCE)
            with pytest.raises(Busy):
                other.turn(wait=False)
        turn.append(said(1))

    assert outcomes(session) == ["settled"]
    assert kinds(session) == ["segment.opened", "turn.started", "message", "turn.settled"]


def test_a_renewal_that_fails_is_said_and_tried_again(
    address: str, opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)
    renew = turns.renew

    def failing_once(journal: Journal, turn: TurnClaim) -> float | None:
        tried.release()
        if not warnings(caplog):
            raise OSError("the disk is away")
        return renew(journal, turn)

    session = opened(address, policy=quick(turn_lease=0.06)).session("s")
    monkeypatch.setattr(turns, "renew", failing_once)
    with session.turn() as turn:
        for _ in range(3):
            assert tried.acquire(timeout=PATIENCE)
        turn.append(said(1))

    assert outcomes(session) == ["settled"]
    assert len(warnings(caplog)) == 1
    assert "the disk is away" in warnings(caplog)[0]


def test_a_silent_writer_is_left_alone_to_the_end_of_its_lease_and_no_longer(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    silent = forgotten(journal)
    clock.advance(LEASE - 0.001)
    with nothing_written(session), pytest.raises(Busy):
        session.turn(wait=False)

    clock.advance(0.001)
    session.turn(wait=False)

    assert outcomes(session) == ["interrupted"]
    with nothing_written(session), pytest.raises(TurnLost):
        journal.append("s", session._drafts(said(7), None, None), turn=silent)


def test_a_lease_that_is_over_takes_nothing_from_its_writer_until_somebody_wants_the_turn(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    slow = forgotten(journal)
    clock.advance(HOUR)

    journal.append("s", session._drafts(said(7), None, None), turn=slow)
    turns.end(journal, slow)

    assert outcomes(session) == ["settled"]


@pytest.mark.parametrize("jump", [6 * HOUR, -6 * HOUR, -1.0], ids=["ahead", "back", "a little back"])
def test_a_clock_that_jumps_never_opens_two_turns(
    session: Session, other: Session, clock: StoppedClock, jump: float
) -> None:
    """A turn may be taken over early by that; its writer is told at its next append, and nothing is mixed."""
    turn = session.turn(owner="first")
    turn.append(said(7))

    clock.advance(jump)
    second = other.turn(owner="second", wait=False)

    with nothing_written(session), pytest.raises(TurnLost):
        turn.append(said(8))
    second.append(said(9))
    clock.advance(-jump)
    second.append(said(10))
    second.end()
    assert outcomes(session) == ["interrupted", "settled"]
    assert one_at_a_time(session)


def test_a_lease_with_more_time_left_than_its_own_length_is_over(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    """Nobody has to wait for six hours because the clock was once six hours ahead."""
    clock.advance(6 * HOUR)
    forgotten(journal)
    clock.advance(-6 * HOUR)

    there = session.open_turn()
    assert there is not None
    assert there.until <= clock.now
    session.turn(wait=False).end()

    assert outcomes(session) == ["interrupted", "settled"]


def test_a_clock_that_went_back_is_mended_by_the_next_renewal(
    session: Session, journal: Journal, clock: StoppedClock
) -> None:
    claim = forgotten(journal)
    clock.advance(-HOUR)

    assert turns.renew(journal, claim) == clock.now + LEASE

    with pytest.raises(Busy):
        session.turn(wait=False)


# ---------------------------------------------------------------------- a lease part that does not work


def break_turn_leases(
    monkeypatch: pytest.MonkeyPatch, store: Store, error: str, uses: Sequence[str] = ("get", "put", "drop")
) -> None:
    """Makes the leases of turns raise, and those of compactions not."""
    room = getattr(store.journal.backend, "_room", None)

    def standing_before(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *arguments: Any) -> Any:
            if getattr(self, "_what", None) == "turn_lease" or (room is not None and self is room.turn_leases):
                raise getattr(builtins, error)("no such thing")
            return original(self, *arguments)

        return called

    for leases in (SqliteLeases, MemoryLeases):
        for use in uses:
            monkeypatch.setattr(leases, use, standing_before(getattr(leases, use)))


@pytest.fixture(params=["get", "put", "drop", "get put drop"])
def broken_leases(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    break_turn_leases(monkeypatch, store, "AttributeError", request.param.split())


@pytest.mark.usefixtures("broken_leases")
def test_a_turn_goes_on_without_a_working_lease_and_says_so_once(
    store: Store, session: Session, other: Session, clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """F03: an error of the lock is no reason to stop, to loop, or to mix two writers."""
    with session.turn(owner="first") as turn:
        turn.append(said(7))
        turns.renew(store.journal, turn.claim)
        clock.advance(store.policy.turn_lease - 0.001)
        with pytest.raises(Busy):
            other.turn(wait=False)
        turn.append(said(8))
    with other.turn(wait=False) as following:
        following.append(said(9))

    assert outcomes(session) == ["settled", "settled"]
    assert one_at_a_time(session)
    assert len(warnings(caplog)) == 1
    for words in ("AttributeError", "take a turn from each other", "onefold verify --fix"):
        assert words in warnings(caplog)[0]


def test_without_a_working_lease_others_wait_as_long_as_the_first_one_said(
    store: Store, session: Session, other: Session, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No renewal can be read, so a long turn may be taken over. Its writer is refused then, like any other."""
    break_turn_leases(monkeypatch, store, "OSError")
    turn = session.turn(owner="first")
    clock.advance(store.policy.turn_lease / 2)
    turns.renew(store.journal, turn.claim)
    there = session.open_turn()
    assert there is not None
    assert there.until == there.since + store.policy.turn_lease

    clock.advance(store.policy.turn_lease / 2)
    with other.turn(owner="second", wait=False) as second:
        second.append(said(9))
        with nothing_written(session), pytest.raises(TurnLost, match="second has it"):
            turn.append(said(8))

    assert outcomes(session) == ["interrupted", "settled"]
    assert one_at_a_time(session)


def test_a_lease_of_another_turn_is_not_taken_for_this_ones(
    store: Store, session: Session, journal: Journal, clock: StoppedClock
) -> None:
    """A version that does not know turns may leave an old row behind."""
    claim = forgotten(journal)
    stale = Lease("another", claim.number - 1, clock.now + 10 * HOUR, 10 * HOUR)
    journal.backend.write("s", lambda tx: tx.turn_leases.put("s", stale))

    held = turns.start(journal, "s", who("second"))

    assert isinstance(held, Held)
    assert held.until == clock.now + LEASE
