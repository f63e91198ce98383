"""What a doctor says: one finding in words, and what it is known by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from onefold.model import Json

Severity: TypeAlias = Literal["harm", "risk", "note"]
"""harm: something is lost, doubled or stuck now. risk: it will be, if nothing is done. note: worth knowing, and no ill;
a store with nothing but notes is healthy."""

Progress: TypeAlias = Callable[[int, int], None]
"""How much was looked at, of how much."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a store, told to its user."""

    kind: str
    """Which ill it is: `fork`, `stale-messages`. Small letters and dashes, the same in every version."""
    key: str
    """What tells it from others of its kind in this store, the same at every look: a session's id, a row's."""
    where: str
    """The place, for a person: `session abc`, `history/archive_001/.done`."""
    wrong: str
    """What is wrong."""
    means: str
    """What it means for the user."""
    remedy: str
    """What can be done. Of a mendable one: what `--fix` does."""
    severity: Severity = "harm"
    mendable: bool = False
    damage: bool = False
    """Something in the store cannot be read or is gone, and only a backup brings it back. It is not mendable."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Ids and numbers, for programs and for the mend. JSON data only."""

    @property
    def id(self) -> str:
        """What `--only` takes, as it takes the kind."""
        return f"{self.kind}:{self.key}"


def chosen(findings: Iterable[Finding], only: Iterable[str] = ()) -> list[Finding]:
    """Those that somebody asked for by id or by kind; all, if nobody asked for any."""
    wanted = frozenset(only)
    return [f for f in findings if not wanted or f.id in wanted or f.kind in wanted]


def pressing(findings: Iterable[Finding]) -> list[Finding]:
    """What somebody has to do something about: what can be mended, and damage. The rest is past and known."""
    return [f for f in findings if f.mendable or f.damage]


def ills(findings: Iterable[Finding]) -> list[Finding]:
    """All but the notes."""
    return [f for f in findings if f.severity != "note"]
