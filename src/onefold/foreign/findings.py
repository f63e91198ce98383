"""A finding of a check: what is wrong, in words, and the id it is known by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from onefold.model import Json

Severity: TypeAlias = Literal["harm", "risk", "note"]
"""harm: something is lost, doubled or stuck now. risk: it will be, if nothing is done. note: worth knowing, not a
problem; a store with nothing but notes is healthy."""

Progress: TypeAlias = Callable[[int, int], None]
"""How much was checked, of how much."""


@dataclass(frozen=True)
class ForeignFinding:
    """One problem in a store, described for its user."""

    kind: str
    """Which problem it is: `fork`, `stale-messages`. Small letters and dashes, the same in every version."""
    key: str
    """What tells it from others of its kind in this store, the same at every check: a session's id, a row's."""
    where: str
    """The place, for a person: `session abc`, `history/archive_001/.done`."""
    wrong: str
    """What is wrong."""
    means: str
    """What it means for the user."""
    remedy: str
    """What can be done. If it is repairable: what `--fix` does."""
    severity: Severity = "harm"
    repairable: bool = False
    damage: bool = False
    """Something in the store cannot be read or is gone, and only a backup restores it. It is not repairable."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Ids and numbers, for programs and for the repair. JSON data only."""

    @property
    def id(self) -> str:
        """What `--only` takes, as it takes the kind."""
        return f"{self.kind}:{self.key}"


def chosen(findings: Iterable[ForeignFinding], only: Iterable[str] = ()) -> list[ForeignFinding]:
    """The findings that were selected by id or by kind; all, without a selection."""
    wanted = frozenset(only)
    return [f for f in findings if not wanted or f.id in wanted or f.kind in wanted]


def pressing(findings: Iterable[ForeignFinding]) -> list[ForeignFinding]:
    """What needs action: what can be repaired, and damage. The rest is past and known."""
    return [f for f in findings if f.repairable or f.damage]


def ills(findings: Iterable[ForeignFinding]) -> list[ForeignFinding]:
    """All but the notes."""
    return [f for f in findings if f.severity != "note"]
