"""Facts of a long conversation are found in a process of their own: the same ones, and nothing hangs on it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold.compaction import apart
from onefold.compaction.apart import WORTH_IT, extracted_apart
from onefold.compaction.extraction import extracted
from onefold.messages.codecs import draft
from onefold.model import Json, Record, random_id

PADDING = "and so it went on with nothing in particular to report " * 8


def record(number: int, text: str) -> Record:
    made = draft({"role": "user", "content": text}, random_id)
    return Record(number, made.id, made.kind, 0.0, made.body, made.format, made.header)


def long_talk(count: int = 200) -> list[Record]:
    orders = ["Never push to main. ", "The port is 5544. ", "We decided to use Postgres. ", "", ""]
    return [record(n, f"{orders[n % len(orders)]}{PADDING}") for n in range(1, count + 1)]


def never() -> bool:
    return False


def nothing() -> None:
    pass


def test_a_child_finds_what_this_process_would_find() -> None:
    talk = long_talk()

    found = extracted_apart([talk[:150], talk[150:], []], pause=nothing, stopped=never)

    assert found == [extracted(talk[:150]), extracted(talk[150:]), []]
    assert len(found[0]) > 2


def test_a_short_talk_is_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)

    assert extracted_apart([long_talk(3)], pause=nothing, stopped=never) is None


DO_NOT_WORK = {"missing": "/nonexistent/python", "fails": "/bin/false", "mute": "/bin/true", "talks": "/bin/echo"}


@pytest.mark.parametrize("program", DO_NOT_WORK.values(), ids=DO_NOT_WORK)
def test_a_child_that_does_not_work_is_told_and_done_without(
    program: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", program)

    assert extracted_apart([long_talk()], pause=nothing, stopped=never) is None
    assert "facts are looked for in this process" in caplog.text


def test_nobody_waits_for_a_child_whose_answer_is_not_wanted_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec cat /dev/zero > /dev/null\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    children: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(real(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", started)
    looks = iter([False, False, True])

    assert extracted_apart([long_talk()], pause=nothing, stopped=lambda: next(looks)) is None

    assert children[0].returncode is not None  # killed, and waited for


def test_a_compaction_carries_the_same_ledger_whoever_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def ledger(name: str) -> list[tuple[str, str, int]]:
        with onefold.open(tmp_path / name, summarizer=_short) as store:
            session = store.session("s")
            session.append([r.body for r in long_talk(400)])
            assert session.compact().applied
            return [(f.kind, f.text, f.source) for f in session.context().facts]

    asked: list[int] = []
    real = apart._asked

    def counted(question: bytes, stopped: Callable[[], bool]) -> bytes | None:
        asked.append(len(question))
        return real(question, stopped)

    monkeypatch.setattr(apart, "_asked", counted)
    by_a_child = ledger("one.db")
    assert asked
    monkeypatch.setattr(apart, "WORTH_IT", 1 << 40)
    here = ledger("two.db")

    assert by_a_child == here
    assert by_a_child
    assert len(asked) == 1
    assert not caplog.records


def _short(material: onefold.Material) -> str:
    return f"The summary of {len(material.records)} messages. " * 3


def test_appends_go_on_while_a_child_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that compacts waits for the child outside of every lock."""
    asked, go = threading.Event(), threading.Event()

    def waits(*arguments: Json) -> None:
        asked.set()
        assert go.wait(30)

    monkeypatch.setattr(apart, "_asked", waits)
    with onefold.open(tmp_path / "a.db", summarizer=_short) as store:
        session = store.session("s")
        session.append([r.body for r in long_talk(400)])
        started = session.compact(wait=False)
        assert asked.wait(30)

        done = session.append({"role": "user", "content": "still here"})
        go.set()
        session.compact(base=started.segment)

        assert session.context().messages[-1]["content"] == "still here"
        assert done.numbers


def test_the_limit_is_about_what_a_process_costs() -> None:
    assert sum(4 * r.header.tokens for r in long_talk() if r.header) > WORTH_IT
