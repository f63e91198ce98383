"""The doctor's frame: it reads without a trace, repairs all or nothing, and says how to restore the store.

The ills of each program are told in tests of their own. Here a made-up one stands for all that keep a database.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onefold
from onefold import foreign
from onefold.errors import StoreError, StoreUnavailable
from onefold.foreign import ForeignFinding, detection, readonly, repair
from onefold.foreign.findings import Progress
from onefold.foreign.repair import DatabaseProgram, Operation, RepairAborted
from tests.support.command_line import program, run
from tests.support.openviking_folders import NOW, Commit, ids, session, tree


class Ledger:
    """A made-up program: each account has entries, and the number of them. `x` stands for an entry that is an ill."""

    name = "Ledger"

    def __init__(self) -> None:
        self.looks = 0
        self.trouble = ""

    def recognises(self, connection: apsw.Connection) -> str | None:
        return "two tables" if readonly.tables(connection).keys() >= {"account", "entry"} else None

    def examine(self, connection: apsw.Connection, *, now: float, progress: Progress) -> Iterator[ForeignFinding]:
        self.looks += 1
        for number, word in connection.execute("select rowid, word from entry where word like 'x%'").fetchall():
            repairable = word not in ("x for ever", "x is gone")
            yield _ill("bad-entry", str(number), repairable=repairable, damage=word == "x is gone")
        wrong = "select id from account where number <> (select count(*) from entry where account = account.id)"
        for (id,) in connection.execute(wrong).fetchall():
            yield _ill("wrong-number", str(id), repairable=True)
        if self.trouble == "worse" and not connection.execute("select * from entry where word like 'x%'").fetchall():
            yield _ill("new-ill", "1", repairable=False)
        progress(1, 1)

    def repair(self, operation: Operation, finding: ForeignFinding) -> str:
        if self.trouble == "refuses":
            raise RepairAborted("better not")
        if self.trouble == "idle":
            return ""
        if finding.kind == "wrong-number":
            change = "update account set number = (select count(*) from entry where account = account.id) where id = ?"
            operation.connection.execute(change, (int(finding.key),))
            return "counted anew"
        row = operation.connection.execute("select word, raw from entry where rowid = ?", (finding.key,)).fetchall()[0]
        operation.keep("entry", dict(zip(("word", "raw"), row, strict=True)))
        operation.connection.execute("delete from entry where rowid = ?", (finding.key,))
        return "taken out"


def _ill(kind: str, key: str, *, repairable: bool, damage: bool = False) -> ForeignFinding:
    return ForeignFinding(
        kind, key, f"row {key}", "it is wrong", "it is bad", "it is repaired", repairable=repairable, damage=damage
    )


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    made = Ledger()
    typed: DatabaseProgram = made
    monkeypatch.setattr(detection, "DATABASES", (typed,))
    return made


def store(
    path: Path, *, words: tuple[str, ...] = ("a", "x1", "x2"), number: int | None = None, mode: str = "delete"
) -> Path:
    path.parent.mkdir(exist_ok=True)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", mode)
        connection.pragma("synchronous", "off")
        connection.execute("create table account (id, number); create table entry (account, word, raw)")
        connection.execute("insert into account values (1, ?)", (len(words) if number is None else number,))
        connection.executemany("insert into entry values (1, ?, x'00ff')", [(word,) for word in words])
    return path


def look(path: Path) -> foreign.Examination:
    return foreign.examine(foreign.store_at(path), now=NOW, progress=lambda done, total: None)


def fix(path: Path, *only: str) -> foreign.Outcome:
    backups = path.parent.parent / "backups"
    return foreign.repair_store(
        foreign.store_at(path), only, backups=backups, now=NOW, progress=lambda done, total: None
    )


def words(path: Path) -> list[str]:
    with readonly.sqlite_store(path) as sight:
        return [row[0] for row in sight.connection.execute("select word from entry order by rowid")]


# ---------------------------------------------------------------------- looking


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_look_leaves_no_trace(tmp_path: Path, ledger: Ledger, mode: str) -> None:
    path = store(tmp_path / "s" / "store.db", mode=mode)
    before = tree(tmp_path)

    examined = look(path)

    assert [f.id for f in examined.findings] == ["bad-entry:2", "bad-entry:3"]
    assert (examined.store.name, examined.store.version, examined.users) == ("Ledger", "two tables", ())
    assert tree(tmp_path) == before


_CRASH = """
import apsw, os, signal, sys
connection = apsw.Connection(sys.argv[1])
if sys.argv[2] == "delete":
    connection.pragma("cache_size", 1)
    connection.pragma("cache_spill", 1)
    connection.execute("begin")
    connection.execute("update entry set word = 'half'")
    connection.executemany("insert into entry values (1, ?, null)", [("b" * 3000,)] * 200)
else:
    connection.execute("insert into entry values (1, 'x3', null)")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("mode", ["delete", "wal", "wal without index"])
def test_a_store_left_in_the_middle_of_a_write_is_read_as_its_program_would_and_not_touched(
    tmp_path: Path, ledger: Ledger, mode: str
) -> None:
    path = store(tmp_path / "s" / "store.db", mode=mode.removesuffix(" without index"))
    ended = subprocess.run([sys.executable, "-c", _CRASH, str(path), mode], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    if mode == "wal without index":
        path.with_name("store.db-shm").unlink()
    before = tree(tmp_path)

    found = [f.id for f in look(path).findings]

    assert found == ["bad-entry:2", "bad-entry:3", *(["bad-entry:4", "wrong-number:1"] if mode != "delete" else [])]
    assert tree(tmp_path) == before


_HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("begin")
does = {"writes": "insert into entry values (1, 'x of another', null)", "reads": "select * from entry"}
connection.execute(does[sys.argv[2]]).fetchall()
print("held", flush=True)
for line in sys.stdin:
    connection.execute("commit")
    print("done", flush=True)
"""


@contextlib.contextmanager
def held(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.stdin.close()


@pytest.mark.parametrize("how", ["reads", "writes"])
def test_a_store_in_use_is_recognised_read_as_of_one_moment_and_not_repaired(
    tmp_path: Path, ledger: Ledger, how: str
) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    with held(path, how) as child:
        examined = look(path)
        with pytest.raises(foreign.StoreInUse, match=f"process {child.pid}"):
            fix(path)

        assert examined.users == (f"process {child.pid}",)
        assert [f.id for f in examined.findings] == ["bad-entry:2", "bad-entry:3"]
    assert "x1" in words(path)
    assert not (tmp_path / "backups").exists()


def test_everything_a_look_reads_is_of_one_moment_while_others_write(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    with held(path, "writes") as child, readonly.sqlite_store(path) as sight:
        assert child.stdin is not None
        assert child.stdout is not None
        before = sight.connection.execute("select count(*) from entry").fetchall()
        child.stdin.write("commit\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"

        assert sight.connection.execute("select count(*) from entry").fetchall() == before
    assert len(words(path)) == 4


def test_without_a_list_of_processes_the_lock_tells_that_a_store_is_in_use(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    monkeypatch.setattr(readonly, "_PROCESSES", tmp_path / "nowhere")
    monkeypatch.setattr(repair, "_PATIENCE", 10)
    with held(path, "reads"):
        assert look(path).users == ()
        with pytest.raises(foreign.StoreInUse, match="in use"):
            fix(path)


def test_a_writer_that_holds_the_whole_file_is_named_as_the_reason(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(tmp_path / "s" / "store.db")
    monkeypatch.setattr(readonly, "PATIENCE", 10)
    with contextlib.closing(apsw.Connection(str(path))) as writer:
        writer.execute("begin exclusive")
        with pytest.raises(StoreUnavailable, match="locked by a program"):
            foreign.store_at(path)


@functools.cache
def _healthy(mode: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return store(Path(folder) / "store.db", words=("a", "x1") * 40, mode=mode).read_bytes()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_fuzzed_or_truncated_database_gives_an_answer_or_a_clear_error_and_is_never_written(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzzed")
    mode = data.draw(st.sampled_from(["delete", "wal"]))
    path = folder / "store.db"
    content = bytearray(_healthy(mode))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    for end in data.draw(st.lists(st.sampled_from(["-wal", "-shm", "-journal"]), unique=True)):
        path.with_name(path.name + end).write_bytes(data.draw(st.binary(max_size=64)))
    before = tree(folder)

    with contextlib.suppress(StoreError):
        assert all(f.where and f.wrong for f in look(path).findings)

    assert tree(folder) == before
    shutil.rmtree(folder)


def test_a_damaged_file_is_a_finding_and_is_not_repaired(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db", words=("a", "x1") * 400)
    content = bytearray(path.read_bytes())
    content[-8192:-4096] = b"\xff" * 4096
    path.write_bytes(content)
    before = tree(path.parent)

    found = look(path).findings

    assert found[0].kind == "damaged-file"
    with pytest.raises(RepairAborted, match="damaged as a file"):
        fix(path)
    assert tree(path.parent) == before


# ---------------------------------------------------------------------- recognising


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: None, "there is no store at"),
        (lambda p: p.touch(), "is empty"),
        (lambda p: p.write_text("words"), "not a database"),
        (lambda p: p.mkdir(), "no program is recognised"),
        (lambda p: apsw.Connection(str(p)).execute("create table t (a)"), "no program is recognised"),
    ],
)
def test_what_is_no_known_store_is_refused_in_words(tmp_path: Path, ledger: Ledger, make: Any, why: str) -> None:
    path = tmp_path / "thing"
    make(path)

    with pytest.raises(StoreError, match=why):
        foreign.store_at(path)


# ---------------------------------------------------------------------- repairing


def test_a_repair_repairs_what_it_brings_up_as_well_and_repeated_changes_nothing(
    tmp_path: Path, ledger: Ledger
) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")

    outcome = fix(path)

    assert [m.finding.id for m in outcome.repaired] == ["bad-entry:2", "bad-entry:3", "wrong-number:1"]
    assert (words(path), look(path).findings) == (["a"], ())
    assert outcome.backup is not None
    assert words(outcome.backup / "store.db") == ["a", "x1", "x2"]
    kept = [json.loads(entry) for entry in (outcome.backup / "quarantine.jsonl").read_text().splitlines()]
    assert kept[0] == {"finding": "bad-entry:2", "what": "entry", "value": {"word": "x1", "raw": {"bytes": "00ff"}}}
    assert outcome.back in (outcome.backup / "HOW-TO-GO-BACK.txt").read_text()
    assert (outcome.backup.stat().st_mode & 0o077) == 0
    before = tree(path.parent)
    assert run(tmp_path, "doctor", path, "--fix").returncode == 0
    assert tree(path.parent) == before


def test_going_back_as_told_gives_the_store_as_it_was(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db")
    found = look(path).findings
    outcome = fix(path)
    assert outcome.backup is not None

    shutil.copyfile(outcome.backup / "store.db", path)

    assert words(path) == ["a", "x1", "x2"]
    assert look(path).findings == found


@pytest.mark.parametrize(
    ("trouble", "why"),
    [("refuses", "better not"), ("idle", "still there after"), ("worse", "would cause new-ill:1")],
)
def test_a_repair_that_cannot_be_whole_writes_nothing(tmp_path: Path, ledger: Ledger, trouble: str, why: str) -> None:
    path = store(tmp_path / "s" / "store.db", number=7)
    ledger.trouble = trouble
    before = path.read_bytes()

    with pytest.raises(RepairAborted, match=why):
        fix(path)

    assert path.read_bytes() == before


def test_a_backup_that_is_not_equal_stops_the_repair(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(tmp_path / "s" / "store.db")
    monkeypatch.setattr(repair, "_copy_database", lambda source, target: store(target, words=("a",)))

    with pytest.raises(RepairAborted, match=r"backup .* differs"):
        fix(path)

    assert words(path) == ["a", "x1", "x2"]


def test_a_dry_run_says_the_same_words_and_only_reads(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    before = tree(tmp_path)

    told = foreign.dry_run(foreign.store_at(path), (), now=NOW, progress=lambda done, total: None)

    assert tree(tmp_path) == before
    done = fix(path)
    assert (told.repaired, told.left, told.backup) == (done.repaired, done.left, None)


_KILLED = """
import os, signal, sys
from pathlib import Path
from onefold.foreign import detection
from tests.unit.foreign import test_doctor
ledger = test_doctor.Ledger()
ledger.repair = lambda operation, finding: os.kill(os.getpid(), signal.SIGKILL)
detection.DATABASES = (ledger,)
test_doctor.fix(Path(sys.argv[1]))
"""


def test_a_repair_killed_before_its_end_leaves_the_store_as_it_was(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL

    assert words(path) == ["a", "x1", "x2"]
    assert len(fix(path).repaired) == 3


# ---------------------------------------------------------------------- the command


def test_the_command_says_what_is_wrong_and_changes_nothing_by_itself(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    before = tree(tmp_path)

    told = program(tmp_path, "doctor", folder)

    assert told.returncode == 1
    assert told.stderr == ""
    assert "OpenViking (0.5" in told.stdout
    assert "harm: stale-messages:bench" in told.stdout
    assert "50 of 60 live messages were archived before (archive_001), and are live again" in told.stdout
    assert told.stdout.endswith("1 session checked: 1 finding; --fix repairs 1\n")
    assert tree(tmp_path) == before


def test_a_dry_run_tells_what_would_be_done_and_a_repair_does_it(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)
    before = tree(tmp_path)

    dry = run(tmp_path, "doctor", folder, "--dry-run")
    assert tree(tmp_path) == before
    done = run(tmp_path, "doctor", folder, "--fix", XDG_DATA_HOME=str(tmp_path / "data"))
    again = run(tmp_path, "doctor", folder, "--fix", XDG_DATA_HOME=str(tmp_path / "data"))

    assert (dry.returncode, done.returncode, again.returncode) == (1, 0, 0)
    assert "would repair: stale-messages:bench\n  50 messages moved out of messages.jsonl" in dry.stdout
    assert "repaired: stale-messages:bench\n  50 messages moved out of messages.jsonl" in done.stdout
    assert "to go back: Stop OpenViking" in done.stdout
    assert done.stdout.endswith("1 session checked: nothing is left\n")
    assert again.stdout.endswith("1 session checked: nothing is wrong\n")
    assert len(list((tmp_path / "data" / "onefold" / "doctor").iterdir())) == 1


def test_the_command_takes_ids_and_kinds_and_knows_when_there_is_no_such_thing(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10, commit_count=0)

    wrong = run(tmp_path, "doctor", folder, "--fix", "--only", "no-such-ill")
    one = run(tmp_path, "doctor", folder, "--fix", "--only", "meta-commits:bench", "--backups", tmp_path / "kept")
    left = run(tmp_path, "doctor", folder)

    assert (wrong.returncode, one.returncode, left.returncode) == (2, 0, 1)
    assert "no finding has the id or kind 'no-such-ill'" in wrong.stderr
    assert "stale-messages" not in one.stdout
    assert "stale-messages:bench" in left.stdout
    assert "meta-commits" not in left.stdout
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_answer_for_programs_is_one_json_document(tmp_path: Path) -> None:
    folder = session(tmp_path / "s" / "bench", ids(1, 60), Commit(ids(1, 50)), count=10)

    look_at = json.loads(run(tmp_path, "doctor", folder, "--json").stdout)
    repaired = json.loads(run(tmp_path, "doctor", folder, "--fix", "--json", "--backups", tmp_path / "kept").stdout)

    (finding,) = look_at["findings"]
    assert finding["id"] == "stale-messages:bench"
    assert finding["facts"] == {"count": 50, "kept": 0, "live": 60, "archives": ["archive_001"]}
    assert (look_at["program"], look_at["healthy"], look_at["left"]) == ("OpenViking", False, [finding["id"]])
    assert (repaired["healthy"], repaired["left"], [m["id"] for m in repaired["mended"]]) == (True, [], [finding["id"]])
    assert Path(repaired["backup"]).is_dir()


def test_a_store_in_use_is_told_with_its_findings_and_left(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db", mode="wal")
    with held(path, "reads") as child:
        told = run(tmp_path, "doctor", path, "--fix")

    assert told.returncode == 1
    assert f"in use by process {child.pid}: checked, not repaired" in told.stdout
    assert "harm: bad-entry:2" in told.stdout
    assert words(path) == ["a", "x1", "x2"]


def test_a_refused_repair_is_told_with_its_reason(tmp_path: Path, ledger: Ledger) -> None:
    path = store(tmp_path / "s" / "store.db")
    ledger.trouble = "refuses"

    told = run(tmp_path, "doctor", path, "--fix", "--backups", tmp_path / "kept")

    assert told.returncode == 1
    assert "better not" in told.stderr
    assert "2 findings left" in told.stdout


def test_notes_alone_are_no_ill(tmp_path: Path) -> None:
    twice = (Commit(ids(1, 20)), Commit(ids(15, 30)))
    folder = session(tmp_path / "s" / "bench", ids(31, 32), *twice)

    told = run(tmp_path, "doctor", folder)

    assert told.returncode == 0
    assert "note: archived-twice:bench" in told.stdout


def test_the_exit_code_is_that_of_what_somebody_has_to_do_something_about(tmp_path: Path, ledger: Ledger) -> None:
    reported = store(tmp_path / "s" / "reported.db", words=("a", "x for ever"))
    damaged = store(tmp_path / "s" / "damaged.db", words=("a", "x for ever", "x is gone"))
    repairable = store(tmp_path / "s" / "repairable.db", words=("a", "x for ever", "x1"))
    kept = ("--backups", tmp_path / "kept")

    looks = [run(tmp_path, "doctor", path) for path in (reported, damaged, repairable)]
    strict = run(tmp_path, "doctor", reported, "--strict")
    fixed = run(tmp_path, "doctor", repairable, "--fix", *kept)
    fixed_strictly = run(tmp_path, "doctor", repairable, "--fix", "--strict", *kept)

    assert [told.returncode for told in looks] == [0, 1, 1]
    assert (strict.returncode, fixed.returncode, fixed_strictly.returncode) == (1, 0, 1)
    assert looks[0].stdout.endswith("1 finding, only reported: nothing to repair\n")
    assert looks[1].stdout.endswith("2 findings\n")
    assert looks[2].stdout.endswith("2 findings; --fix repairs 1\n")
    assert json.loads(run(tmp_path, "doctor", reported, "--json").stdout)["healthy"] is False


def test_a_store_of_onefold_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with onefold.open(path) as opened:
        opened.session("talk").append({"role": "user", "content": "hello"})

    healthy = run(tmp_path, "doctor", path)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("update sessions set messages = 9")
    ill = run(tmp_path, "doctor", path)
    dry = run(tmp_path, "doctor", path, "--fix", "--dry-run")
    wrong = run(tmp_path, "doctor", path, "--only", "anything")
    repaired = run(tmp_path, "doctor", path, "--fix")

    assert "everything agrees with the journal" in healthy.stdout
    assert [r.returncode for r in (healthy, ill, dry, wrong, repaired)] == [0, 1, 1, 2, 0]
    assert "all repaired" in repaired.stdout


def test_a_onefold_store_of_plain_files_is_verified_too(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    with onefold.open(f"{folder}/") as opened:
        opened.session("talk").append({"role": "user", "content": "hello"})

    healthy = run(tmp_path, "doctor", folder)
    file = folder / "talk" / "0000000000.jsonl"
    file.write_text(file.read_text().replace("hello", "HELLO"))
    ill = run(tmp_path, "doctor", folder, "--fix")

    assert "1 session, 2 records: everything agrees with the journal" in healthy.stdout
    assert [r.returncode for r in (healthy, ill)] == [0, 1]
    assert "0000000000.jsonl, line 2: record 2 is not as it was written" in ill.stdout.replace("\n", " ")
    assert "do what they say" in ill.stdout


def test_a_path_that_holds_nothing_is_an_error_of_its_own(tmp_path: Path) -> None:
    told = program(tmp_path, "doctor", tmp_path / "nowhere")

    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.startswith("onefold: there is no store at")
