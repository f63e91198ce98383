"""The proof must be able to fail: each guard is taken out of a copy of the source, and a method has to notice.

A guard whose removal nothing notices is dead code or an unproved promise. Some promises have several guards; those are
taken away in groups as well, and what is covered by others alone is said to be.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

CONTRACT = "journal/journal.py"
FOLD = "storage/projection.py"
LEASES = "journal/leases.py"
UNDO = "journal/undo.py"
UNFOLD = "journal/unfold.py"
MASKS = "journal/masks.py"
SUMMARIES = "journal/summary_drafts.py"
ADOPTION = "journal/adoption.py"
MODEL = "model.py"

_FILES = ["-m", "verification.files", "--quick", "--first", "--method"]
METHODS: dict[str, list[str]] = {
    "schedules": ["-m", "verification.schedules", "--depth", "6"],
    **{
        f"schedules of {what}": ["-m", "verification.schedules", "--depth", "6", "--only", what]
        for what in ("plans", "masks", "drafts", "adoptions", "compactions")
    },
    "power loss": ["-m", "verification.power", "--quick"],
    "files, power lost": [*_FILES, "power", "--only", "create", "--only", "append one", "--only", "erase an"],
    "files, erased": ["-m", "verification.files", "--first", "--method", "power", "--only", "erase an"],
    "files, deleted": [*_FILES, "power", "--only", "delete"],
    "files, behind": ["-m", "verification.files", "--first", "--method", "bystander", "--only", "rows wait"],
    "files, killed": ["-m", "verification.files", "--first", "--method", "bystander", "--only", "append one"],
    "model": ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/faults/test_life_model.py"],
    **{
        what: [
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            f"tests/contract/test_{what}.py",
            "-k",
            "memory",
        ]
        for what in ("masks", "adoption")
    },
    "engine": ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/contract/test_engine.py"],
}


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes the one place where the text stands; or, where it stands in several, the first after another text."""

    file: str
    old: str
    new: str = "if False:"
    after: str = ""


BASE = Edit(CONTRACT, "if state.head != claim.base:")
UNIQUE = Edit("storage/memory_projection.py", "if segment.base in self._by_base:")
OPEN = Edit(
    CONTRACT, "if not current.open:", after='raise commit_refused(CompactionCancelled, claim, "it was cancelled")'
)
CANCELLED = Edit(CONTRACT, 'if current.state == "cancelled":')
SETTLES = Edit(CONTRACT, "if state.open is not None:", after="def open_segment(")
RANGE = Edit(CONTRACT, "if not base.cut < at <= claim.fence:", "if not base.cut < at:")
ONE_OPEN = Edit(CONTRACT, "if current is not None:", after="state = self._settle_dead(tx, state, current)")
NAMES_BASE = Edit(CONTRACT, "if base is not None and base != state.head:")
FENCE = Edit(CONTRACT, "or current.fence != claim.fence:", "or False:", after="def fail(")
DEAD = Edit(CONTRACT, "if self._dead_last_attempt(tx, current):", after="def claim(")
LIFE = Edit(MODEL, "self.started_at <= now < self.started_at + self.life", "True")
RENEWED = Edit(
    CONTRACT, "min(tx.now + claim.lease, (current.started_at or tx.now) + current.life)", "tx.now + claim.lease"
)
GONE = Edit(LEASES, 'None if where == "gone" else ClaimDenied(', "ClaimDenied(")
GONE_LAST = Edit(LEASES, 'self.whereabouts(current.process) == "gone"', "False")
GONE_WRITER = Edit(LEASES, 'if self.whereabouts(started.body.get("process")) == "gone":')
ALL_DEAD = Edit(LEASES, "return self.machine.whereabouts(process)", 'return "gone"')
COUNTED = Edit(FOLD, "attempts=known.attempts + 1,", "attempts=known.attempts,")
KEY = Edit(CONTRACT, "if key is not None and (use := tx.key(session, key)) is not None:", after="def append(")
HIDDEN = Edit("journal/lineage.py", "if [*visible(one, 1, cut)] == [*visible(other, 1, cut)]:", "if True:")
CARRIED = Edit("compaction/proposal.py", "previous=work.previous,", "previous=None,", after="SummaryInput(")
WRITER = Edit(CONTRACT, "if turn is not None and state.turn != turn.number:", after="def append(")
CLAIMED = Edit(
    "compaction/material.py", "claim.session, claim.turn,", "claim.session, get_session(tx, claim.session).turn,"
)
UNFOLDS = Edit(
    UNFOLD, "journal, tx, state, before, head.hidden, actor", "journal, tx, state, before, before.hidden, actor"
)
IN_FORCE = Edit(UNFOLD, "if not folds or fold not in (None, folds[-1]):", "if not folds:")
FITS = Edit(UNFOLD, "lineage.same_before(tx, session, made.cut, made.hidden, head.hidden)", "True")
FARTHER = Edit(UNFOLD, "fits = again and", "fits =")
SAME_DRAFT = Edit(SUMMARIES, "if not lineage.masked_since(tx, session, head, expect_head):")
DRAFT_SPARES = Edit(SUMMARIES, "if state.open is not None:")
TAKEN_ONCE = Edit(SUMMARIES, '.get("draft") == number:', '.get("draft") == 0:')
SINCE = Edit(UNDO, "if stands.unfolds and not said_since(tx, state, stands):", "if stands.unfolds:")
SPARED = Edit(MASKS, "if held or by_hand or not full or", "if by_hand or not full or")
SAW = Edit(MASKS, "if state.head != expect_head:")
RESTS = Edit(
    MASKS, "if not by_hand and not full and lineage.origin(tx, state.id, head).source", "if False and head.source"
)
STANDS = Edit(
    "journal/lineage.py", "found = None if of.origin is None else segment(tx, session, of.origin)", "found = None"
)
OUTLIVED = Edit(FOLD, 'if opened.source == "masked":')
CLOSED = Edit(MASKS, "*(n for members in waiting for n in members), ", "")
BEHIND_CUT = Edit("journal/lineage.py", "for m in base.masked if m[0] >= cut", "for m in base.masked")
ADOPTED_ON = Edit(ADOPTION, "if state.head != expect_head:")
ITEM_SPARES = Edit(
    ADOPTION, "(journal.holds(tx, current) is not None or current.trigger == MANUAL)", "current.trigger == MANUAL"
)
ITEM_WAITS = Edit(ADOPTION, "is not None or current.trigger == MANUAL)", "is not None)")
PARTED = Edit(ADOPTION, "if split := [*split, *(g for g in waiting if not covered.isdisjoint(g))]:")
SENT = Edit(ADOPTION, "if (gone := _taken_back(sight, before, elsewhere)) is not None:")
TOLD = Edit(ADOPTION, "if unseen := sorted(n for n in left if n < head.cut and n not in shown):")
AS_SENT = Edit(ADOPTION, "or not lineage.same_before(tx, session, found.cut, made.hidden, on.hidden)", "")
ACROSS = Edit(UNDO, "if adoption.beyond(tx, state.id, fits, to):")
MADE_OF = Edit("journal/erasure.py", "items = adoption.windows(tx, state, gone.said)", "items: list[int] = []")
ONLY_CLEARED = Edit(
    "journal/window_adoption.py", "or lineage.last_message(tx, session, state.last + 1, head.hidden)", ""
)
SYNC = Edit("storage/sqlite/backend.py", "pragma synchronous = full", "pragma synchronous = off")

LINES = "storage/jsonl/appender.py"
SEGMENTS = "storage/jsonl/segment_files.py"
APPENDED = Edit(LINES, "disk.fdatasync(file.fd)", "pass", after="def _commit_plain(")
ONE_LINE = Edit(LINES, "disk.fdatasync(file.fd)", "pass", after="def _run_known(")
BEHIND = Edit(LINES, "lag.byte[0] = 1", "pass", after="if tx.later:")
NAMES_ALL = Edit(LINES, "self._lock.note([*noted, session])", "self._lock.note([session])")
LINKED = Edit(SEGMENTS, "self._disk.write_new(beside, text)", "self._disk.write_new(beside, text, sync=False)")
NAMED = Edit(SEGMENTS, "self._disk.fsync_folder(folder.path)", "pass", after="def _open_segment(")
MADE = Edit(SEGMENTS, "self._disk.fsync_folder(self._root)", "pass", after="def _open_segment(")
DELETED = Edit(SEGMENTS, "self._disk.fsync(fd)", "pass", after="def _delete(")
INTENDED = Edit("storage/jsonl/file_erasure.py", "folder.disk.fsync_folder(folder.path)", "pass", after="def intend(")
NOTED = Edit("storage/jsonl/store_lock.py", "os.pwrite(self._fd, note, 0)", "pass", after="def note(")
CAUGHT_UP = Edit("storage/jsonl/reindex.py", "folder.sync(", "str(")


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    edits: tuple[Edit, ...]
    caught_by: str | None
    """The method; None if other guards cover it alone."""


MUTANTS: tuple[Mutant, ...] = (
    Mutant("base segment, alone", (BASE,), None),
    Mutant("unique key, alone", (UNIQUE,), None),
    Mutant("base segment and unique key", (BASE, UNIQUE), None),
    Mutant("base segment, unique key, settling", (BASE, UNIQUE, SETTLES), "schedules of compactions"),
    Mutant("base segment, unique key, open state", (BASE, UNIQUE, OPEN, CANCELLED), "schedules of compactions"),
    Mutant("settling on a moved head", (SETTLES,), "schedules of compactions"),
    Mutant("open state", (OPEN, CANCELLED), "schedules of compactions"),
    Mutant("range fixed at claim", (RANGE,), "schedules of compactions"),
    Mutant("one open compaction", (ONE_OPEN,), "schedules of compactions"),
    Mutant("request names its base", (NAMES_BASE,), "schedules of compactions"),
    Mutant("fence on fail", (FENCE,), "schedules of compactions"),
    Mutant("dead last attempt is settled", (DEAD,), "schedules of compactions"),
    Mutant("longest life", (LIFE, RENEWED), "schedules of compactions"),
    Mutant("a dead holder is not waited for", (GONE,), "schedules of compactions"),
    Mutant("a dead last attempt is known", (GONE_LAST,), "schedules of compactions"),
    Mutant("a dead writer is not waited for", (GONE_WRITER,), "model"),
    Mutant("live holders are called dead", (ALL_DEAD,), None),
    Mutant("attempts are counted at claim", (COUNTED,), "schedules of compactions"),
    Mutant("key uniqueness", (KEY,), "schedules of compactions"),
    Mutant("an old boundary knows nothing hidden", (HIDDEN,), "schedules of compactions"),
    Mutant("an unfolding hides what is hidden now", (UNFOLDS,), "model"),
    Mutant("only what is in force is unfolded", (IN_FORCE,), "model"),
    Mutant("a summary that is folded again knows nothing hidden", (FITS,), "model"),
    Mutant("only what was unfolded is folded again", (FARTHER,), "model"),
    Mutant("an undo takes no unfolding back once something was said", (SINCE,), "model"),
    Mutant("a draft is for the head that it was made for", (SAME_DRAFT,), "schedules of drafts"),
    Mutant("a draft spares what is open", (DRAFT_SPARES,), "schedules of drafts"),
    Mutant("a draft is taken once", (TAKEN_ONCE,), "model"),
    Mutant("a mask spares what somebody works on", (SPARED,), "schedules of masks"),
    Mutant("a mask is of the head that was seen", (SAW,), "model"),
    Mutant("a mask waits where somebody went back", (RESTS,), "model"),
    Mutant("a mask stands on the segment before it", (STANDS,), "model"),
    Mutant("failures outlive a mask", (OUTLIVED,), "masks"),
    Mutant("a result of an open group is not masked", (CLOSED,), "masks"),
    Mutant("a commit masks only behind its cut", (BEHIND_CUT,), "schedules of masks"),
    Mutant("an item is adopted on the head that was seen", (ADOPTED_ON,), "schedules of adoptions"),
    Mutant("an item spares what somebody works on", (ITEM_SPARES,), "schedules of adoptions"),
    Mutant("an item spares what a person asked for", (ITEM_WAITS,), "schedules of adoptions"),
    Mutant("an item parts no call from its result", (PARTED,), "schedules of adoptions"),
    Mutant("an item covers nothing that was taken back", (SENT,), "schedules of adoptions"),
    Mutant("an item leaves out nothing that only a summary tells", (TOLD,), "adoption"),
    Mutant("an item is in force while what it covers is in view", (AS_SENT,), "model"),
    Mutant("an undo across an item leaves it behind", (ACROSS,), "model"),
    Mutant("what an item covers is erased with it", (MADE_OF,), "model"),
    Mutant("a window takes back no clear that something followed", (ONLY_CLEARED,), "adoption"),
    Mutant("what is over is decided at claim", (CLAIMED,), "schedules of plans"),
    Mutant("previous summary carried", (CARRIED,), "engine"),
    Mutant("writer fence of a turn", (WRITER,), "model"),
    Mutant("sync before acknowledge", (SYNC,), "power loss"),
    Mutant("files: a line is synced", (APPENDED, ONE_LINE), "files, power lost"),
    Mutant("files: synced before it is linked", (LINKED,), "files, power lost"),
    Mutant("files: the name of a segment is synced", (NAMED,), "files, power lost"),
    Mutant("files: the folder of a session is synced", (MADE,), "files, power lost"),
    Mutant("files: a deletion is synced", (DELETED,), "files, deleted"),
    Mutant("files: an erasure is intended for good", (INTENDED,), "files, erased"),
    Mutant("files: a note of what is written", (NOTED,), "files, killed"),
    Mutant("files: what is caught up is synced", (CAUGHT_UP,), "files, killed"),
    Mutant("files: others know the index is behind", (BEHIND,), "files, behind"),
    Mutant("files: the note names all whose rows wait", (NAMES_ALL,), "files, behind"),
)


@dataclass(frozen=True, slots=True)
class Tried:
    mutant: Mutant
    caught: bool
    said: str

    @property
    def as_it_should(self) -> bool:
        return self.caught == (self.mutant.caught_by is not None)


def one_of_each() -> list[Mutant]:
    """For each method the first of the guards that it has to miss."""
    return [*{m.caught_by: m for m in reversed(MUTANTS)}.values()]


def attempt(mutant: Mutant) -> Tried:
    """Runs the method that should notice on a copy of the source without the guard. One that is covered by others is
    tried with the schedules, which have to find nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        for edit in mutant.edits:
            file = source / "onefold" / edit.file
            file.write_text(without(edit, file.read_text()))
        ran = subprocess.run(
            [sys.executable, *METHODS[mutant.caught_by or "schedules"]],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    lines = [line for line in ran.stdout.splitlines() if line.strip()] or ran.stderr.splitlines()[-1:]
    return Tried(mutant, ran.returncode != 0, lines[-1] if lines else "")


def without(edit: Edit, text: str) -> str:
    """A file's text without the guard."""
    before, anchor, after = text.partition(edit.after) if edit.after else ("", "", text)
    if edit.old not in after or (not edit.after and after.count(edit.old) != 1):
        raise RuntimeError(
            f"{edit.file} no longer has {edit.old!r} where it is looked for; bring the mutant up to date"
        )
    return before + anchor + after.replace(edit.old, edit.new, 1)


def main() -> int:
    options = argparse.ArgumentParser(description="Takes guards out of the source, and sees that it is noticed.")
    options.add_argument("--only", help="a part of the name")
    options.add_argument("--method", help="only mutants that this method catches", choices=list(METHODS))
    chosen = options.parse_args()
    wrong = 0
    for mutant in MUTANTS:
        if (chosen.only and chosen.only not in mutant.name) or (chosen.method and chosen.method != mutant.caught_by):
            continue
        tried = attempt(mutant)
        wrong += not tried.as_it_should
        verdict = "" if tried.as_it_should else "NOT as it should be: "
        print(f"{mutant.name:42} {mutant.caught_by or 'covered by others':18} {verdict}{tried.said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
