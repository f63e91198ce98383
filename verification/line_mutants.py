"""Single lines that a test nearby has to notice: each is changed in a copy of the source, and its test has to fail.

Where `mutants` takes the guards of the core away and whole methods of proof look for what follows, this one asks a
smaller question of many more places: would anybody see it if this line were wrong?
`python -m verification.line_mutants` tries all of them, `--only` some; each runs its one test alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "onefold"
AT_ONCE = 2
_FAILED = 1
"""What pytest ends with if a test failed. Anything else but 0 is a mistake: no such test, or no such file."""


class Outdated(RuntimeError):
    """A mutant does not fit the source or the tests any more."""


@dataclass(frozen=True, slots=True)
class Line:
    """A place in the source, what it becomes, and the test that fails then."""

    file: str
    old: str
    """Stands in the file once."""
    new: str
    tests: str
    test: str
    """The whole name of one test function in that file."""

    @property
    def name(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())}"


_RATES, _GUARD = "server/security/rate_limit.py", "tests/server/test_guard.py"
_FOLDING, _FOLDED = "acp/message_assembler.py", "tests/agents/test_message_assembler.py"
_WORKER, _WORKERS = "worker.py", "tests/unit/test_worker.py"

_MASKS, _MASKED = "journal/masks.py", "tests/contract/test_masks.py"
_UNFOLD, _UNFOLDED = "journal/unfold.py", "tests/contract/test_unfold.py"
_DRAFTS, _DRAFTED = "journal/summary_drafts.py", "tests/contract/test_drafts.py"
_ADOPTION, _ADOPTED = "journal/adoption.py", "tests/contract/test_adoption.py"

_LOOKS = "_in(tx: Transaction) -> Segment:\n        state = get_session(tx, session) if"

_STEPS: tuple[tuple[str, str, str, str, str], ...] = (
    (_MASKS, "not full or current.trigger == MANUAL:", "not full:", _MASKED,
     "test_what_a_person_asked_for_is_never_given_up"),
    (_MASKS, "if held or by_hand or not full or", "if held or by_hand or", _MASKED,
     "test_one_that_waits_is_given_up_by_a_full_context_and_not_otherwise"),
    (_MASKS, "if held or by_hand or not full", "if held or not full", _MASKED,
     "test_one_that_waits_is_given_up_by_a_full_context_and_not_otherwise"),
    (_MASKS, "stays = {*stands.pinned, ", "stays = {", _MASKED,
     "test_what_may_not_be_masked_is_left_as_it_is"),
    (_MASKS, ", *(n for n, _ in head.masked)}", "}", _MASKED,
     "test_what_is_not_in_view_or_is_one_line_already_is_not_masked"),
    (_MASKS, "return number >= cut and not", "return not", _MASKED,
     "test_what_is_not_in_view_or_is_one_line_already_is_not_masked"),
    (_MASKS, "return number >= cut and not lineage.is_hidden(hidden, number)", "return number >= cut", _MASKED,
     "test_what_is_not_in_view_or_is_one_line_already_is_not_masked"),
    (_MASKS, "may_compact(tx, state)", "pass", _MASKED,
     "test_where_onefold_may_not_compact_it_does_not_mask"),
    (_MASKS, 'if head.keeper != "onefold":', "if False:", _MASKED,
     "test_where_onefold_may_not_compact_it_does_not_mask"),
    (_UNFOLD, f"unfold{_LOOKS} expect_head is None", f"unfold{_LOOKS} True", _UNFOLDED,
     "test_whoever_saw_another_head_unfolds_nothing"),
    (_UNFOLD, f"refold{_LOOKS} expect_head is None", f"refold{_LOOKS} True", _UNFOLDED,
     "test_whoever_saw_another_head_unfolds_nothing"),
    (_UNFOLD, 'if head.keeper != "onefold":', "if False:", _UNFOLDED,
     "test_a_session_that_its_agent_keeps_has_nothing_to_unfold"),
    (_UNFOLD, "if most is None or opened.tokens_after <= most:", "if True:", _UNFOLDED,
     "test_over_the_hard_limit_it_is_refused_with_the_size_and_nothing_written"),
    (_UNFOLD, "if fits and not erased(tx, session, made):", "if fits:", _UNFOLDED,
     "test_a_summary_of_what_was_erased_since_is_not_folded_again"),
    ("journal/backoff.py", 'is not None and head.source == "restored":', "is not None and False:", _UNFOLDED,
     "test_automatic_triggers_rest_and_a_full_context_and_a_person_are_heard"),
    (_DRAFTS, "may_compact(tx, state)", "pass", _DRAFTED,
     "test_what_is_not_for_onefold_to_summarise_again_is_said"),
    (_DRAFTS, 'if head.keeper != "onefold":', "if False:", _DRAFTED,
     "test_what_is_not_for_onefold_to_summarise_again_is_said"),
    (_DRAFTS, "if not made.text.strip():", "if False:", _DRAFTED,
     "test_an_empty_or_enormous_summary_is_not_taken"),
    (_DRAFTS, '"surrogatepass"))) > SUMMARY_LIMIT:', '"surrogatepass"))) > 1 << 40:', _DRAFTED,
     "test_an_empty_or_enormous_summary_is_not_taken"),
    (_DRAFTS, "heard, head.cut)) is not None:", "heard, head.cut)) is None and False:", _DRAFTED,
     "test_quotes_are_chosen_again_and_looked_at"),
    (_DRAFTS, "if base is not None and base.cut < made.cut:", "if base is not None:", _DRAFTED,
     "test_a_summary_that_was_written_again_is_written_again_of_the_same_messages"),
    (_ADOPTION, "if not 0 < len(numbers) <= _MOST:", "if False:", _ADOPTED, "test_a_window_is_of_messages_in_view"),
    (_ADOPTION, "if missing := [n for n in numbers if n not in records]:", "if missing := []:", _ADOPTED,
     "test_a_window_is_of_messages_in_view"),
    (_ADOPTION, "if last.number < head.cut:", "if False:", _ADOPTED, "test_behind_a_cut_nothing_is_adopted"),
    (_ADOPTION, "if before is not None and before.window[-1] >= last.number:", "if False:", _ADOPTED,
     "test_an_older_item_is_not_adopted_behind_a_newer_one"),
    (_ADOPTION, "if any(not {*g}.isdisjoint(kept) for g in waiting):", "if False:", _ADOPTED,
     "test_what_is_kept_waits_for_nothing"),
    (_ADOPTION, "made.cut, hidden)) is not None:", "made.cut, hidden)) is None and False:", _ADOPTED,
     "test_an_item_quotes_what_it_stands_for_and_nothing_else"),
    (_ADOPTION, 'if head.keeper != "onefold":', "if False:", _ADOPTED,
     "test_a_session_that_its_agent_compacts_adopts_nothing"),
    ("journal/window_adoption.py", "adoption.may_adopt(journal, tx, state)", "pass", _ADOPTED,
     "test_a_window_gives_up_no_compaction_that_somebody_works_on"),
    ("compaction/context.py", "if adopted is not None and adopted.origin == origin", "if adopted is not None", _ADOPTED,
     "test_a_context_has_the_item_for_its_origin_alone"),
)  # fmt: skip
"""What each step of the ladder and each way back looks at before it writes: where, what, what else, and its test."""

LINES: tuple[Line, ...] = (
    *(Line(*step) for step in _STEPS),
    Line(
        _RATES,
        "left = min(self._burst, left + max(0.0, now - since) * self._rate)",
        "left = left + max(0.0, now - since) * self._rate",
        _GUARD,
        "test_a_bucket_holds_its_burst_and_no_more_however_long_nobody_takes",
    ),
    Line(
        _RATES,
        "self._burst = float(max(1, burst))",
        "self._burst = float(burst)",
        _GUARD,
        "test_a_bucket_without_a_burst_holds_one",
    ),
    Line(
        _RATES,
        "return 0.0 if taken else (1.0 - left) / self._rate",
        "return 0.0 if taken else 1.0 / self._rate",
        _GUARD,
        "test_a_bucket_says_how_long_it_takes_until_there_is_one_and_then_there_is",
    ),
    Line(
        _FOLDING,
        'body["messageId"] = self.message',
        "pass",
        _FOLDED,
        "test_chunks_of_one_message_are_one_and_keep_its_id",
    ),
    Line(
        _FOLDING,
        "(glued.kind, glued.message) != (kind, message)",
        "glued.kind != kind",
        _FOLDED,
        "test_another_id_or_another_kind_begins_another_message",
    ),
    Line(
        _FOLDING,
        " or glued.size >= LONGEST:",
        ":",
        _FOLDED,
        "test_a_message_that_is_too_long_goes_on_in_the_next",
    ),
    Line(
        _FOLDING,
        "self.size += sum(len(v) for v in block.values() if isinstance(v, str))",
        "pass",
        _FOLDED,
        "test_a_message_that_is_too_long_goes_on_in_the_next",
    ),
    Line(
        _FOLDING,
        " and v is not None}",
        "}",
        _FOLDED,
        "test_updates_of_a_call_become_its_one_result_and_leave_standing_what_they_do_not_name",
    ),
    Line(
        _FOLDING,
        "self._glued.first if self._glued is not None else number",
        "number",
        _FOLDED,
        "test_what_is_not_whole_yet_begins_where_its_first_frame_is",
    ),
    Line(
        _FOLDING,
        "if not _is_over(update):",
        "if True:",
        _FOLDED,
        "test_a_call_that_is_over_at_once_is_not_waited_for",
    ),
    Line(
        "compaction/cut_planner.py",
        "if left >= tokens and stays >= count:",
        "if left > tokens and stays >= count:",
        "tests/unit/compaction/test_cut_planner.py",
        "test_a_tail_that_is_as_long_as_it_should_be_to_the_token_is_long_enough",
    ),
    Line(
        "compaction/limits.py",
        "fell = measured < self.measured * _SAME",
        "fell = measured < self.measured",
        "tests/unit/compaction/test_limits.py",
        "test_a_figure_that_falls_by_a_little_is_still_that_of_another_context_f42",
    ),
    Line(
        "compaction/proposal.py",
        "previous=None if brief.stuck else work.previous,",
        "previous=work.previous,",
        "tests/contract/test_backoff.py",
        "test_a_summarizer_that_always_says_the_same_leaves_no_agent_stuck",
    ),
    Line(
        "journal/leases.py",
        "return lease if lease is not None and lease.fence == current.fence else None",
        "return lease",
        "tests/faults/test_takeover.py",
        "test_a_lease_that_an_earlier_attempt_left_behind_says_nothing_of_this_one",
    ),
    Line(
        _WORKER,
        "if claim.takes_over:",
        "if claim.attempt > 1:",
        _WORKERS,
        "test_what_was_left_without_a_word_is_counted_as_taken_over_and_what_failed_is_not",
    ),
    Line(
        _WORKER,
        "self.counts.taken_over()",
        "pass",
        _WORKERS,
        "test_what_was_left_without_a_word_is_counted_as_taken_over_and_what_failed_is_not",
    ),
    Line(
        _WORKER,
        " and now.fence == attempt.claim.fence:",
        ":",
        _WORKERS,
        "test_a_summary_that_another_brought_first_is_not_counted_as_this_workers",
    ),
    Line(
        _WORKER,
        "self._kept_up = now",
        "pass",
        _WORKERS,
        "test_quiet_sessions_are_looked_for_now_and_then_and_not_at_each_step",
    ),
    Line(
        _WORKER,
        "self.counts.took(now.settled_at - now.started_at)",
        "pass",
        _WORKERS,
        "test_how_long_each_summary_took_is_counted",
    ),
    Line(
        _WORKER,
        "self._say(trouble=None)",
        "self._say()",
        _WORKERS,
        "test_trouble_with_the_store_is_said_while_it_lasts_and_no_longer",
    ),
)


@dataclass(frozen=True, slots=True)
class Tried:
    line: Line
    noticed: bool


def changed(line: Line, text: str) -> str:
    """The file's text with the line changed."""
    if text.count(line.old) != 1:
        raise Outdated(
            f"{line.file} has {line.old!r} {text.count(line.old)} times, not once; bring the mutant up to date"
        )
    return text.replace(line.old, line.new)


def attempt(line: Line) -> Tried:
    """Runs the test on a copy of the source in which the line is another one."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "onefold" / line.file
        path.write_text(changed(line, path.read_text()))
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", line.test, line.tests],
            cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    if ran.returncode not in (0, _FAILED):
        raise Outdated(f"{line.name}: {line.tests} -k {line.test} did not run: {(ran.stdout + ran.stderr)[-1000:]}")
    return Tried(line, ran.returncode == _FAILED)


def attempts(lines: Sequence[Line] = LINES) -> Iterator[Tried]:
    """All of them, some at a time, in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(attempt, lines)


def main() -> int:
    options = argparse.ArgumentParser(description="Changes single lines of the source, and sees that it is noticed.")
    options.add_argument("--only", default="", help="a part of the file's name, or of the line")
    chosen = options.parse_args()
    missed = 0
    for tried in attempts([line for line in LINES if chosen.only in line.name]):
        missed += not tried.noticed
        print(f"{'noticed' if tried.noticed else 'NOT NOTICED'}: {tried.line.name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
