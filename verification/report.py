"""What the proof found, as a page: docs/reliability.md, written by the run itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"

WORDS = Path(__file__).with_name("reliability.md")
"""What the page says before its numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One method and what came of it."""

    method: str
    tried: str
    faults: int | None = None
    acknowledged: int | None = None
    lost: int = 0
    forked: int = 0
    stuck: int = 0
    unopenable: int = 0
    seconds: float = 0.0
    unnoticed: int = 0
    """Mistakes that were made on purpose and that nothing noticed."""
    left_out: str | None = None
    """Why it was not run here."""

    @property
    def well(self) -> bool:
        return not (self.lost or self.forked or self.stuck or self.unopenable or self.unnoticed)


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard that was taken away, and who noticed."""

    name: str
    caught_by: str
    said: str


def table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| method | tried | faults | acknowledged | lost | forked | stuck | unopenable | minutes |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row.left_out is not None:
            lines.append(f"| {row.method} | **not run here**: {row.left_out} | | | | | | | |")
            continue
        faults, said = _number(row.faults), _number(row.acknowledged)
        tried = f"{row.tried}; **{row.unnoticed} not noticed**" if row.unnoticed else row.tried
        ends = f"{row.lost} | {row.forked} | {row.stuck} | {row.unopenable} | {row.seconds / 60:.1f}"
        lines.append(f"| {row.method} | {tried} | {faults} | {said} | {ends} |")
    return lines


def page(rows: Sequence[Row], guards: Sequence[Guard], date: str) -> str:
    missed = ["| guard | noticed by | how |", "| --- | --- | --- |"]
    missed += [f"| {g.name} | {g.caught_by} | {g.said} |" for g in guards]
    system = f"{platform.system()} {platform.release()}"
    versions = f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    return WORDS.read_text().format(
        numbers="\n".join(table(rows)),
        guards="\n".join(missed),
        where=f"{date}, {os.cpu_count()} cores, {system}, {versions}.",
    )


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
