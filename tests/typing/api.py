"""What the public names give, for the type checker."""

from collections.abc import Awaitable, Iterator
from typing import assert_type

import onefold
from onefold import Material, Record, Session, Store, Summary


def text(material: Material) -> str:
    return material.previous or ""


def summary(material: Material) -> Summary:
    return Summary(text(material), cut_off=False, by="a model")


async def later(material: Material) -> str:
    return text(material)


async def summary_later(material: Material) -> Summary:
    return summary(material)


class Client:
    def __call__(self, material: Material) -> Awaitable[Summary]:
        return summary_later(material)


def every_shape_of_a_summarizer_is_taken(session: Session) -> None:
    for summarizer in (text, summary, later, summary_later, Client(), onefold.extract):
        assert_type(session.compact(summarizer), onefold.CompactResult)


def a_store_gives(store: Store) -> None:
    assert_type(onefold.open("agent.db", summarizer=later, policy=onefold.Policy(lease=30.0, renew=5.0)), Store)
    assert_type(store.session("s"), Session)
    assert_type(store.sessions(), Iterator[onefold.SessionState])
    assert_type(store.compactions(), list[onefold.Compaction])
    assert_type(store.verify(), onefold.Report)


def a_session_gives(session: Session) -> None:
    assert_type(session.append({"role": "user", "content": "hello"}, key="k"), onefold.Appended)
    assert_type(session.append([{"role": "user", "content": "hello"}]).numbers, tuple[int, ...])
    assert_type(session.context(), onefold.Context)
    assert_type(session.read(), Iterator[Record])
    assert_type(session.follow(after=3), Iterator[Record])
    assert_type(session.segments(), list[onefold.Segment])
    assert_type(session.holder(), onefold.Holder | None)
    assert_type(session.take(), Record | None)
