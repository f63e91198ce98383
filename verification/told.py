"""What came of a method of the proof, in numbers, and in words where something was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Told:
    faults: int = 0
    """Kills, or losses of power."""
    acknowledged: int = 0
    lost: int = 0
    between: int = 0
    """Stores that were neither in the old state nor in the new one."""
    twice: int = 0
    forked: int = 0
    stuck: int = 0
    unopenable: int = 0
    words: list[str] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return not (self.lost or self.between or self.twice or self.forked or self.stuck or self.unopenable)

    def add(self, other: Told) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __str__(self) -> str:
        numbers = ((one.name, getattr(self, one.name)) for one in fields(self) if one.name != "words")
        return ", ".join((*([] if self.well else ["BROKEN"]), *(f"{number:,} {name}" for name, number in numbers)))
