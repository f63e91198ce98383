"""What the tests of all frameworks share: pages and examples that are run, and what holds of a journal that several
processes wrote through a framework."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from onefold import Session
from onefold.messages.tool_groups import group
from onefold.model import Json, Record
from tests.frameworks.environments import ROOT

_PATIENCE = 60.0


def run_example(path: str, folder: Path) -> str:
    """What an example prints, run as a reader runs it, in a folder of its own and without a key or a model outside."""
    nowhere = {"HOME": str(folder), "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:The model:DeprecationWarning", str(ROOT / path)],
        cwd=folder, env={**os.environ, **nowhere}, capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def said(session: Session) -> list[Record]:
    """Every message of a session's journal, whatever was compacted."""
    return [record for record in session.read() if record.kind == "message"]


def one_line(session: Session) -> int:
    """Whether each segment replaced the one before it, so that nothing ever forked; how many compactions there were."""
    segments = session.segments()
    assert [s.base for s in segments[1:]] == [s.number for s in segments[:-1]]
    return sum(1 for s in segments if s.source == "compaction")


def every_call_has_its_result(records: Sequence[Record]) -> None:
    grouped = group((r.number, r.header) for r in records if r.header is not None)
    assert [g for g in grouped.groups if g.waiting] == []
    assert grouped.orphans == frozenset()


def bodies(records: Sequence[Record]) -> list[Json]:
    return [r.body for r in records]
