"""Sessions of OpenViking, healthy and ill: each finding with a folder that shows it and a neighbour that does not."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onefold import foreign
from onefold.errors import StoreError
from onefold.foreign import Outcome, openviking
from onefold.foreign.openviking import checks, repairs
from tests.support.openviking_folders import NOW, Commit, ids, line, live_ids, log, session, tree

OLD_LOCK = f"handle:{int((NOW - 4000) * 1e9)}:T"
YOUNG_LOCK = f"handle:{int((NOW - 60) * 1e9)}:T"


def look(folder: Path) -> list[foreign.ForeignFinding]:
    return list(foreign.examine(foreign.store_at(folder), now=NOW, progress=lambda done, total: None).findings)


def repair(folder: Path, *only: str) -> Outcome:
    backups = folder.parent.parent / "backups"
    return foreign.repair_store(
        foreign.store_at(folder), only, backups=backups, now=NOW, progress=lambda done, total: None
    )


def kinds(folder: Path) -> list[str]:
    return [finding.kind for finding in look(folder)]


# ---------------------------------------------------------------------- archived messages that live again


def test_with_nothing_kept_all_stale_messages_go_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)

    outcome = repair(folder)

    assert [m.finding.kind for m in outcome.repaired] == ["stale-messages"]
    assert live_ids(folder) == ids(51, 60)
    assert not look(folder)
    after = tree(folder)
    assert not repair(folder).repaired
    assert tree(folder) == after


def test_with_some_kept_exactly_these_stay_in_order_f22(tmp_path: Path) -> None:
    kept = [*ids(7, 7), *ids(46, 60)]
    folder = session(tmp_path / "s" / "bench", ids(1, 64), Commit(ids(1, 50), kept), count=20)

    outcome = repair(folder)

    assert [m.finding.kind for m in outcome.repaired] == ["stale-messages"]
    assert live_ids(folder) == [*ids(7, 7), *ids(46, 64)]
    assert not look(folder)
    after = tree(folder)
    assert not repair(folder).repaired
    assert tree(folder) == after


def test_of_a_consistent_session_not_a_byte_and_not_a_time_stamp_changes_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(46, 64), Commit(ids(1, 50), ids(46, 60)))
    before = tree(folder.parent)

    for _ in range(2):
        assert not look(folder)
        assert repair(folder) == Outcome((), ())
        assert tree(folder.parent) == before
    assert not (tmp_path / "backups").exists()


def test_without_a_meta_file_a_session_is_reported_and_untouched_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), meta=None)
    before = tree(folder.parent)

    for _ in range(2):
        assert kinds(folder) == ["no-meta", "stale-messages"]
        assert not any(finding.repairable for finding in look(folder))
        assert not repair(folder).repaired
        assert tree(folder.parent) == before
    assert not (tmp_path / "backups").exists()


def test_an_id_in_no_archive_ends_what_is_stale_f22(tmp_path: Path) -> None:
    live = [*ids(1, 3), *ids(90, 90), *ids(4, 5)]
    folder = session(tmp_path / "s" / "bench", live, Commit(ids(1, 50)), count=3)

    repair(folder)

    assert live_ids(folder) == [*ids(90, 90), *ids(4, 5)]
    assert kinds(folder) == ["archived-behind-new"]


def test_counts_alone_drop_nothing_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(51, 60), Commit(ids(1, 50)), count=0)

    repair(folder)

    assert live_ids(folder) == ids(51, 60)
    assert json.loads((folder / ".meta.json").read_text())["message_count"] == 10


def test_what_an_unfinished_archive_has_is_not_stale_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50), ids(51, 60), done=None), commit_count=0)

    repair(folder)

    assert live_ids(folder) == ids(1, 60)
    assert not (folder / "history" / "archive_001").exists()


def test_what_the_older_of_two_archives_kept_is_stale_once_the_newer_took_it_f22(tmp_path: Path) -> None:
    first, second = Commit(ids(1, 50), ids(46, 60)), Commit(ids(46, 80), ids(76, 80))
    folder = session(tmp_path / "s" / "bench", ids(46, 82), first, second, count=7)

    repair(folder)

    assert live_ids(folder) == ids(76, 82)


def test_a_message_without_an_id_stays_and_ends_what_is_stale_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", [*ids(1, 2), None, *ids(3, 4)], Commit(ids(1, 50)), count=3)

    repair(folder)

    assert live_ids(folder) == [None, *ids(3, 4)]


def test_a_line_ends_at_a_newline_and_nowhere_else_f29(tmp_path: Path) -> None:
    odd = line(ids(51, 51)[0], "one\u2028two\u2029three\u0085four\x0bfive\x0c")
    folder = session(tmp_path / "s" / "bench", log(ids(1, 50)) + odd, Commit(ids(1, 50)), count=1)

    repair(folder)

    assert (folder / "messages.jsonl").read_bytes() == odd.encode()
    assert not look(folder)


def test_what_leaves_the_live_file_is_in_quarantine_and_the_folder_as_it_was_in_the_backup_f22(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    before = {name: content for name, (content, *_) in tree(folder).items()}

    outcome = repair(folder)

    assert outcome.backup is not None
    kept = [json.loads(entry) for entry in (outcome.backup / "quarantine.jsonl").read_text().splitlines()]
    assert [entry["value"] for entry in kept] == log(ids(1, 50)).splitlines(keepends=True)
    assert {entry["finding"] for entry in kept} == {"stale-messages:bench"}
    assert {name: content for name, (content, *_) in tree(outcome.backup / "before" / "bench").items()} == before
    assert str(outcome.backup / "before") in (outcome.backup / "HOW-TO-GO-BACK.txt").read_text()
    assert (outcome.backup.stat().st_mode & 0o077) == 0


# ---------------------------------------------------------------------- every finding, and its neighbour


@dataclass(frozen=True)
class Case:
    kind: str
    ill: Callable[[Path], object]
    well: Callable[[Path], object]
    repairable: bool
    severity: str = "risk"


def _with(path: str, content: str, *live: str) -> Callable[[Path], object]:
    def build(folder: Path) -> None:
        session(folder, list(live) or ids(51, 60), Commit(ids(1, 50)))
        (folder / path).write_text(content)

    return build


def _without_meta(folder: Path) -> None:
    session(folder, ids(1, 2), meta=None)


def _gap(folder: Path) -> None:
    session(folder, ids(31, 32), Commit(ids(1, 10)), Commit(ids(11, 20)), Commit(ids(21, 30)))
    shutil.rmtree(folder / "history" / "archive_002")


def _plain(folder: Path) -> None:
    session(folder, ids(51, 60), Commit(ids(1, 50)))


def _unfinished(live: list[str], **changes: object) -> Callable[[Path], object]:
    commit = Commit(ids(11, 20), ids(21, 25), **{"done": None, **changes})  # type: ignore[arg-type]
    return lambda folder: session(folder, live, Commit(ids(1, 10)), commit)


def _two(live: list[str], first: Commit, second: Commit) -> Callable[[Path], object]:
    return lambda folder: session(folder, live, first, second)


HALF = log(ids(11, 15)) + line(ids(16, 16)[0])[:30]
FAILED = '{"stage": "memory", "error": "timeout", "failed_at": "2026-11-15T22:48:11Z"}'
GLUED = line(ids(51, 51)[0]) + line(ids(52, 52)[0])[:40] + line(ids(53, 53)[0])

DAMAGE = {"no-meta", "meta-unreadable", "archive-unreadable", "messages-lost"}
"""What a backup alone brings back. Other kinds are, where they cannot be repaired."""
CASES = [
    Case(
        "stale-messages",
        lambda f: session(f, ids(1, 60), Commit(ids(1, 50)), count=10),
        lambda f: session(f, ids(41, 60), Commit(ids(1, 50), ids(41, 50))),
        repairable=True,
        severity="harm",
    ),
    Case(
        "archived-behind-new",
        lambda f: session(f, [*ids(60, 60), *ids(3, 3)], Commit(ids(1, 50))),
        lambda f: session(f, [*ids(60, 60), *ids(61, 61)], Commit(ids(1, 50))),
        repairable=False,
    ),
    Case("no-meta", _without_meta, lambda f: session(f, ids(1, 2)), repairable=False),
    Case(
        "meta-unreadable",
        lambda f: session(f, ids(1, 2), meta='{"message_count": 2'),
        lambda f: session(f, ids(1, 2), meta='{"message_count": 2}'),
        repairable=False,
    ),
    Case("no-id", lambda f: session(f, [None]), lambda f: session(f, ids(1, 1)), repairable=False),
    Case(
        "unended-line",
        lambda f: session(f, log(ids(1, 2))[:-1], count=2),
        lambda f: session(f, log(ids(1, 2)), count=2),
        repairable=True,
    ),
    Case(
        "torn-line",
        lambda f: session(f, log(ids(1, 2)) + line(ids(3, 3)[0])[:25], count=2),
        lambda f: session(f, log(ids(1, 2)), count=2),
        repairable=True,
        severity="harm",
    ),
    Case(
        "foreign-lines",
        lambda f: session(f, log(ids(1, 1)) + "not a message\n" + log(ids(2, 2)), count=2),
        lambda f: session(f, log(ids(1, 1)) + "\n" + log(ids(2, 2)), count=2),
        repairable=True,
        severity="harm",
    ),
    Case(
        "duplicate-messages",
        lambda f: session(f, [*ids(1, 2), *ids(1, 1)], count=2),
        lambda f: session(f, ids(1, 3)),
        repairable=True,
        severity="harm",
    ),
    Case(
        "duplicate-ids",
        lambda f: session(f, line("msg_1", "yes") + line("msg_1", "no")),
        lambda f: session(f, line("msg_1", "yes") + line("msg_2", "yes")),
        repairable=False,
        severity="harm",
    ),
    Case(
        "archived-twice",
        _two(ids(31, 32), Commit(ids(1, 20)), Commit(ids(15, 30))),
        _two(ids(31, 32), Commit(ids(1, 20), ids(15, 20)), Commit(ids(15, 30))),
        repairable=False,
        severity="note",
    ),
    Case(
        "archive-empty",
        _unfinished(ids(11, 25), data=None, status="preparing"),
        _unfinished(ids(21, 25), done="{}"),
        repairable=True,
    ),
    Case(
        "archive-half-written",
        _unfinished(ids(11, 25), data=HALF, status="preparing"),
        _unfinished(ids(21, 25), done="{}"),
        repairable=True,
    ),
    Case(
        "archive-not-applied",
        _unfinished(ids(11, 25), status="preparing"),
        _unfinished(ids(21, 25), done="{}"),
        repairable=True,
    ),
    Case(
        "archive-superseded",
        lambda f: session(f, ids(11, 13), Commit(ids(1, 10), done=None, status="preparing"), Commit(ids(1, 10))),
        _two(ids(21, 23), Commit(ids(1, 10)), Commit(ids(11, 20))),
        repairable=True,
    ),
    Case(
        "archive-not-ready",
        _unfinished(ids(21, 25), status="preparing"),
        _unfinished(ids(21, 25), done="{}"),
        repairable=True,
    ),
    Case("archive-not-done", _unfinished(ids(21, 25)), _unfinished(ids(21, 25), done="{}"), repairable=True),
    Case(
        "archive-mixed",
        _unfinished(ids(15, 25), status="preparing"),
        _unfinished(ids(21, 25), done="{}"),
        repairable=False,
    ),
    Case(
        "done-without-data",
        lambda f: session(f, ids(1, 12), Commit(ids(1, 10), ids(11, 12), data=None), commit_count=0),
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10), ids(11, 12))),
        repairable=True,
        severity="harm",
    ),
    Case(
        "failed-without-data",
        lambda f: session(f, ids(1, 2), Commit([], data=None, done=None, failed=FAILED), commit_count=0),
        lambda f: session(f, ids(3, 4), Commit(ids(1, 2), done=None, failed=FAILED), commit_count=0),
        repairable=True,
    ),
    Case(
        "both-markers",
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10), failed=FAILED)),
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10))),
        repairable=True,
    ),
    Case(
        "done-disagrees",
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10), done='{"ending_message_id": "msg_x"}')),
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10), done="")),
        repairable=False,
    ),
    Case(
        "archive-unreadable",
        lambda f: session(f, ids(1, 12), Commit(ids(1, 10), done='{"start'), count=12, commit_count=0),
        lambda f: session(f, ids(11, 12), Commit(ids(1, 10))),
        repairable=False,
    ),
    Case(
        "messages-lost",
        lambda f: session(f, ids(13, 14), Commit(ids(1, 10), ids(11, 14))),
        lambda f: session(f, ids(11, 14), Commit(ids(1, 10), ids(11, 14))),
        repairable=False,
        severity="harm",
    ),
    Case(
        "meta-count",
        lambda f: session(f, ids(11, 14), Commit(ids(1, 10)), count=3),
        lambda f: session(f, ids(11, 14), Commit(ids(1, 10)), count=4),
        repairable=True,
    ),
    Case(
        "meta-commits",
        lambda f: session(f, ids(11, 14), Commit(ids(1, 10)), commit_count=0),
        lambda f: session(f, ids(11, 14), Commit(ids(1, 10)), commit_count=1),
        repairable=True,
    ),
    Case("archives-missing", _gap, _plain, repairable=False, severity="note"),
    Case("stale-lock", _with(".path.ovlock", OLD_LOCK), _with(".path.ovlock", YOUNG_LOCK), repairable=True),
]
NAMES = [case.kind for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_an_ill_session_shows_its_finding_and_its_neighbour_shows_none(case: Case, tmp_path: Path) -> None:
    ill, well = tmp_path / "ill" / "bench", tmp_path / "well" / "bench"
    case.ill(ill)
    case.well(well)
    before = tree(tmp_path)

    (finding,) = [f for f in look(ill) if f.kind == case.kind]

    assert (finding.repairable, finding.severity) == (case.repairable, case.severity)
    assert finding.damage is (case.kind in DAMAGE)
    assert all((finding.where, finding.wrong, finding.means, finding.remedy))
    assert json.dumps(dict(finding.facts))
    assert kinds(well) == []
    assert tree(tmp_path) == before


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_repair_takes_the_finding_away_loses_nothing_and_repeated_changes_nothing(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    case.ill(folder)
    before, contents = tree(folder.parent), _contents(folder)

    outcome = repair(folder)

    if case.repairable:
        assert case.kind in [m.finding.kind for m in outcome.repaired]
        assert case.kind not in kinds(folder)
        assert list(outcome.left) == look(folder)
        assert contents <= _contents(folder, *(tmp_path / "backups").rglob("*"))
    else:
        assert tree(folder.parent) == before
    after = tree(folder.parent)
    assert repair(folder).backup is None
    assert tree(folder.parent) == after


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_dry_run_says_what_a_repair_does_and_changes_nothing(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    case.ill(folder)
    before = tree(tmp_path)

    told = foreign.dry_run(foreign.store_at(folder), (), now=NOW, progress=lambda done, total: None)

    assert tree(tmp_path) == before
    done = repair(folder)
    assert (told.repaired, told.left) == (done.repaired, done.left)


def test_every_kind_of_finding_and_every_repair_has_a_case() -> None:
    source = Path(checks.__file__).read_text()
    known = set(re.findall(r'(?:kind=|UnfinishedArchive\(\s*)"([a-z-]+)"', source)) | {"meta-unreadable"}

    assert known == set(NAMES)
    assert set(repairs._REPAIRS) == {case.kind for case in CASES if case.repairable}


def _contents(folder: Path, *more: Path) -> set[str]:
    """Every message that stands in a session, or in files besides."""
    found = set()
    for path in (*folder.rglob("messages.jsonl"), *(p for p in more if p.name == "messages.jsonl")):
        found |= {entry for entry in path.read_bytes().decode().split("\n") if entry}
    for path in more:
        if path.name.startswith("quarantine"):
            found |= {str(json.loads(entry)["value"]).rstrip("\n") for entry in path.read_text().splitlines()}
    return found


# ---------------------------------------------------------------------- ways an archive is ended


def test_an_archive_whose_work_was_done_is_marked_as_done(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(21, 25))(folder)

    repair(folder)

    done = json.loads((folder / "history/archive_002/.done").read_text())
    assert (done["starting_message_id"], done["ending_message_id"]) == (ids(11, 11)[0], ids(20, 20)[0])
    assert not look(folder)


@pytest.mark.parametrize("missing", ["overview", "learnt"])
def test_an_archive_whose_work_was_not_done_is_left_to_the_next_commit(tmp_path: Path, missing: str) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(21, 25), **{missing: False})(folder)

    repair(folder)

    assert json.loads((folder / "history/archive_002/.failed.json").read_text())["stage"] == "interrupted"
    assert not (folder / "history/archive_002/.done").exists()
    assert not look(folder)


def test_an_archive_of_an_old_version_without_a_summary_is_reported_only(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(21, 25), status=None, overview=False)(folder)

    (finding,) = look(folder)

    assert (finding.kind, finding.repairable) == ("archive-not-done", False)


def test_a_commit_that_was_not_ready_is_rolled_forward_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(21, 25), status="preparing")(folder)

    outcome = repair(folder)

    assert [m.finding.kind for m in outcome.repaired][:1] == ["archive-not-ready"]
    phase = json.loads((folder / "history/archive_002/.meta.json").read_text())["phase1"]
    assert (phase["status"], phase["ready_at"]) == ("ready", "2027-01-15T08:00:00.000Z")


def test_a_rolled_back_archive_lies_in_the_backup_whole(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(11, 25), status="preparing")(folder)
    before = {name: content for name, (content, *_) in tree(folder / "history/archive_002").items()}

    outcome = repair(folder)

    assert outcome.backup is not None
    moved = tree(outcome.backup / "removed/bench/history/archive_002")
    assert {name: content for name, (content, *_) in moved.items()} == before


def test_done_without_data_is_only_reported_if_the_messages_are_gone(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(11, 12), Commit(ids(1, 10), ids(11, 12), data=None))

    found = {finding.kind: finding for finding in look(folder)}

    assert set(found) == {"done-without-data", "messages-lost"}
    assert not any(finding.repairable for finding in found.values())
    assert found["messages-lost"].facts["ids"] == ids(1, 10)


def test_half_an_archive_is_left_alone_if_it_is_the_only_copy(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "bench"
    _unfinished(ids(21, 25), data=HALF, status="preparing")(folder)

    found = {finding.kind: finding for finding in look(folder)}

    assert set(found) == {"archive-half-written", "messages-lost"}
    assert not any(finding.repairable for finding in found.values())


def test_a_whole_message_behind_a_torn_one_on_the_same_line_is_kept_f29(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", GLUED, count=2)

    repair(folder)

    assert live_ids(folder) == [*ids(51, 51), *ids(53, 53)]
    assert not look(folder)


def test_stale_messages_behind_a_torn_line_go_as_well_f29(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", "torn{\n" + log(ids(1, 52)), Commit(ids(1, 50)), count=2)

    outcome = repair(folder)

    assert [m.finding.kind for m in outcome.repaired] == ["foreign-lines", "meta-count", "stale-messages", "meta-count"]
    assert live_ids(folder) == ids(51, 52)


# ---------------------------------------------------------------------- workspaces, and stores in use


def test_a_workspace_is_looked_at_session_by_session(tmp_path: Path) -> None:
    root = tmp_path / "s" / "workspace"
    sessions = root / "viking" / "default" / "user" / "ada" / "sessions"
    ill = session(sessions / "ill", ids(1, 60), Commit(ids(1, 50)), count=10)
    well = session(sessions / "well", ids(51, 60), Commit(ids(1, 50)))
    before = tree(well)

    examined = foreign.examine(foreign.store_at(root), now=NOW, progress=lambda done, total: None)
    outcome = repair(root)

    assert examined.units == 2
    assert [f.id for f in examined.findings] == ["stale-messages:viking/default/user/ada/sessions/ill"]
    assert len(outcome.repaired) == 1
    assert live_ids(ill) == ids(51, 60)
    assert tree(well) == before


def test_only_what_was_chosen_is_repaired(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10, commit_count=0)

    outcome = repair(folder, "meta-commits")

    assert [m.finding.id for m in outcome.repaired] == ["meta-commits:bench"]
    assert live_ids(folder) == ids(1, 60)


@pytest.mark.parametrize("sign", ["lock", "server", "file"])
def test_a_session_in_use_is_looked_at_and_not_repaired(tmp_path: Path, sign: str) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    # The child's command line has the program's name in it, as a server's has.
    script = (
        f"import sys; f = open({str(folder / 'messages.jsonl')!r}, 'ab') if {sign == 'file'} else 'openviking'; print()"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", f"{script}; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        if sign == "lock":
            (folder / ".path.ovlock").write_text(YOUNG_LOCK)
        elif sign == "server":
            (tmp_path / ".openviking.pid").write_text(str(child.pid))
        before = tree(folder)

        examined = foreign.examine(foreign.store_at(folder), now=NOW, progress=lambda done, total: None)

        assert examined.users == (("lock .path.ovlock",) if sign == "lock" else (f"process {child.pid}",))
        assert [f.kind for f in examined.findings] == ["stale-messages"]
        with pytest.raises(foreign.StoreInUse, match="in use"):
            repair(folder)
        assert tree(folder) == before


def test_the_number_of_a_dead_server_is_not_taken_for_a_live_one(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    up = "import sys; print(flush=True); sys.stdin.read()"
    command, pipe = [sys.executable, "-c", up], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as another:
        assert another.stdout is not None
        another.stdout.readline()  # before that it may still have the name of the process that started it
        (tmp_path / ".openviking.pid").write_text(str(another.pid))  # given to another program meanwhile

        assert openviking.users(folder, NOW) == ()
        assert repair(folder).repaired
        another.communicate()


def test_a_session_with_a_link_in_it_is_not_repaired(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    (folder / "history").rename(tmp_path / "history")
    (folder / "history").symlink_to(tmp_path / "history")
    before = tree(folder), tree(tmp_path / "history")

    outcome = repair(folder)

    assert not outcome.repaired
    assert "is a symbolic link" in outcome.refused[0]
    assert (tree(folder), tree(tmp_path / "history")) == before


def test_a_session_that_changes_during_the_repair_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    repairing_one = repairs._REPAIRS["stale-messages"]

    def meanwhile(operation: foreign.repair.FolderOperation, finding: foreign.ForeignFinding) -> str:
        with (folder / "messages.jsonl").open("a") as file:
            file.write(line(ids(61, 61)[0]))
        return repairing_one(operation, finding)

    monkeypatch.setitem(repairs._REPAIRS, "stale-messages", meanwhile)

    outcome = repair(folder)

    assert "changed by another program meanwhile" in outcome.refused[0]
    assert live_ids(folder) == ids(1, 61)


# ---------------------------------------------------------------------- anything that may lie there


_numbers = st.lists(st.integers(1, 12), max_size=10)
_commits = st.lists(
    st.builds(
        Commit,
        takes=st.lists(st.integers(1, 12).map(lambda n: ids(n, n)[0]), min_size=1, max_size=8, unique=True),
        keeps=st.lists(st.integers(1, 12).map(lambda n: ids(n, n)[0]), max_size=4, unique=True),
        status=st.sampled_from(["ready", "preparing", None]),
        done=st.sampled_from(["{}", "{}", None, "", "{"]),
        failed=st.sampled_from([None, None, FAILED]),
        data=st.sampled_from(["", "", None, HALF]),
        overview=st.booleans(),
        learnt=st.booleans(),
    ),
    max_size=3,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    live=_numbers, commits=_commits, tail=st.sampled_from(["", "torn", "no\n", '{"role": "user"}\n']), count=_numbers
)
def test_whatever_the_state_a_repair_loses_no_message_and_keeps_the_order(
    tmp_path_factory: pytest.TempPathFactory, live: list[int], commits: list[Commit], tail: str, count: list[int]
) -> None:
    root = tmp_path_factory.mktemp("any")
    text = log(ids(n, n)[0] for n in live) + tail
    folder = session(root / "s" / "bench", text, *commits, count=len(count))
    contents = _contents(folder)
    archived = {name for commit in commits if commit.done is not None for name in (*commit.takes, *ids(11, 16))}
    before = [name for name in live_ids_loosely(folder) if name]

    outcome = repair(folder)

    after = [name for name in live_ids_loosely(folder) if name]
    assert not outcome.refused
    assert contents <= _contents(folder, *(root / "backups").rglob("*"))
    assert set(before) - archived <= set(after)
    assert after == [name for name, stays in _matched(before, after) if stays]
    settled = tree(folder.parent)
    assert not repair(folder).repaired
    assert tree(folder.parent) == settled
    shutil.rmtree(root)


def live_ids_loosely(folder: Path) -> list[str | None]:
    found = []
    for entry in (folder / "messages.jsonl").read_bytes().decode().split("\n"):
        try:
            found.append(json.loads(entry).get("id"))
        except ValueError:
            continue
    return found


def _matched(before: list[str], after: list[str]) -> list[tuple[str, bool]]:
    """Each message of the old order, and whether it is the next one of the new order."""
    rest = iter([*after, ""])
    wanted = next(rest)
    matched = []
    for name in before:
        stays = name == wanted
        matched.append((name, stays))
        if stays:
            wanted = next(rest)
    return matched


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_fuzzed_or_truncated_session_gives_an_answer_or_a_clear_error_and_is_never_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("fuzzed")
    folder = session(root / "bench", ids(1, 4), Commit(ids(1, 3), ids(3, 4)), Commit(ids(3, 3), done=None))
    (folder / ".path.ovlock").write_text(OLD_LOCK)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        junk = data.draw(
            st.one_of(st.binary(max_size=40), st.sampled_from([b"[" * 5000, b"null", b'{"phase1": 1}', b"NaN"]))
        )
        path.write_bytes(data.draw(st.sampled_from([content[:cut], content[:cut] + junk + content[cut:], junk])))
    before = tree(root)

    with contextlib.suppress(StoreError):
        found = openviking.examine(folder, name="bench", now=NOW, progress=lambda done, total: None)
        assert all(finding.where and finding.wrong for finding in found)
        openviking.recognises(folder)
    assert tree(root) == before
    shutil.rmtree(root)
