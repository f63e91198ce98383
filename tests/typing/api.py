"""What the public names give, for the type checker."""

from collections.abc import Awaitable, Iterator
from typing import assert_type

import onefold
from onefold import Record, Session, Store, Summary, SummaryInput


def text(material: SummaryInput) -> str:
    return material.previous or ""


def summary(material: SummaryInput) -> Summary:
    return Summary(text(material), cut_off=False, by="a model")


async def later(material: SummaryInput) -> str:
    return text(material)


async def summary_later(material: SummaryInput) -> Summary:
    return summary(material)


class Client:
    def __call__(self, material: SummaryInput) -> Awaitable[Summary]:
        return summary_later(material)


def every_shape_of_a_summarizer_is_taken(session: Session) -> None:
    for summarizer in (text, summary, later, summary_later, Client(), onefold.extractive_summary):
        assert_type(session.compact(summarizer), onefold.CompactResult)


def a_store_gives(store: Store) -> None:
    assert_type(
        onefold.open("agent.db", summarizer=later, policy=onefold.Policy(lease=30.0, lease_renew_interval=5.0)), Store
    )
    assert_type(store.session("s"), Session)
    assert_type(store.sessions(), Iterator[onefold.SessionState])
    assert_type(store.walk("s", page=10), Iterator[onefold.SessionState])
    assert_type(store.compactions(), list[onefold.Compaction])
    assert_type(store.verify(), onefold.Report)
    assert_type(store.session("s", keeper="agent"), Session)
    assert_type(store.resolve("any id"), str)
    assert_type(store.forks("s"), list[onefold.SessionState])
    assert_type(store.delete("s"), onefold.Deleted)


def a_session_gives(session: Session) -> None:
    assert_type(session.append({"role": "user", "content": "hello"}, key="k"), onefold.AppendResult)
    assert_type(session.append([{"role": "user", "content": "hello"}]).numbers, tuple[int, ...])
    assert_type(session.context(), onefold.Context)
    assert_type(session.read(), Iterator[Record])
    assert_type(session.follow(after=3), Iterator[Record])
    assert_type(session.segments(), list[onefold.Segment])
    assert_type(session.compaction_holder(), onefold.Holder | None)
    assert_type(session.take_input(), Record | None)


def a_turn_gives(session: Session) -> None:
    with session.turn(owner="gateway", wait=2.5) as turn:
        assert_type(turn, onefold.Turn)
        assert_type(turn.append({"role": "user", "content": "hello"}, key="k"), onefold.AppendResult)
        assert_type(turn.take_input(), Record | None)
        turn.end("failed", "no answer")
    assert_type(session.open_turn(), onefold.OpenTurn | None)
    assert_type(session.stop_turn("a person pressed stop"), onefold.OpenTurn | None)
    assert_type(session.queue_input({"role": "user", "content": "hello"}, key="k"), int)


def going_back_gives(session: Session) -> None:
    for moved in (
        session.undo(),
        session.redo(),
        session.rewind(7),
        session.set_compaction_owner("agent"),
        session.record_agent_compaction("acp"),
    ):
        assert_type(moved, onefold.Segment)
    assert_type(session.head, int)
    assert_type(session.fork(), Session)
    assert_type(session.fork("review", 7, id="second-look"), Session)
    assert_type(session.erase(3), onefold.Erased)


def what_stands_gives(session: Session) -> None:
    assert_type(session.pin(3), tuple[int, ...])
    assert_type(session.unpin(3, actor="ana"), tuple[int, ...])
    assert_type(session.pins(), tuple[int, ...])
    assert_type(session.note("rule", "Do not push.", "push"), int)
    assert_type(session.notes(), tuple[onefold.Note, ...])
    assert_type(session.context().pinned, tuple[int, ...])
    assert_type(session.context().notes, tuple[onefold.Note, ...])
    assert_type(session.aliases(), list[str])
