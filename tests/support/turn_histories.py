"""What tests of turns say."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from onefold import Context, Session, Store, Turn
from onefold.journal import turns
from onefold.journal.journal import Journal
from onefold.messages import codec
from onefold.model import Json, Lease, TurnClaim
from tests.conftest import who
from tests.support.helpers import PATIENCE

LEASE = 30.0
HOUR = 3600.0


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
    return [r.getMessage() for r in caplog.records if r.name.startswith("onefold") and r.levelno >= logging.WARNING]


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


def chat_call(id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "run", "arguments": f'{{"job": "{id}"}}'}}


CHAT = Tools(
    "openai-chat",
    [{"role": "assistant", "content": None, "tool_calls": [chat_call(id) for id in "abc"]}],
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


def assert_a_provider_takes(context: Context) -> None:
    """No call without its result and no result without its call, in each format's own words and in strict ones."""
    waiting: list[str] = []
    for format, body in zip(context.formats, context.messages, strict=True):
        header = codec(format).header(body)
        for id in header.result_ids:
            assert id in waiting, f"a result without its call: {body}"
            waiting.remove(id)
        waiting += header.call_ids
    assert waiting == [], f"calls without a result in {context.messages}"
    strict: list[str] = []
    for message in context.to("openai-chat"):
        if message["role"] == "tool":
            strict.remove(message["tool_call_id"])
        else:
            assert strict == [], f"no result before {message}"
            strict = [call["id"] for call in message.get("tool_calls", ())]
    assert strict == []
