"""The file a store lives in: invalid places, versions, copies, and what idling and following cost it.

Item 15 of the core's promises, the bad places of "bad input", and backups. Every refusal names the store and the
remedy, and leaves whatever lies there as it was.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import onefold
from onefold import StaleHandle, Store, StoreError, StoreTooNew, StoreUnavailable
from onefold.ids import random_id
from onefold.storage.sqlite import SqliteBackend, change_poller, path_checks, schema
from onefold.storage.sqlite.backend import RESTART_PAGES
from onefold.storage.sqlite.queries import check_library, migrations
from tests.support.crash_children import first_schema_only
from tests.support.fault_injection import BadDisk, Counting, HeldLine, backend_of, open_store, prints
from tests.support.helpers import Child
from verification.operations import damage, prepare, rows, talk

HERE = "tests.support.crash_children"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store with one session lies."""
    path = tmp_path / "store.db"
    prepare(str(path))
    return path


def _contents(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir() if f.is_file()}


def _refused(path: Path | str, match: str, **options: Any) -> None:
    with pytest.raises(StoreError, match=match):
        onefold.open(path, **options)


# ---------------------------------------------------------------------- invalid places


def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    _refused(tmp_path / "away" / "store.db", r"no folder .*away; make it first")

    assert list(tmp_path.iterdir()) == []


def test_a_missing_store_is_refused_when_it_should_be_there(tmp_path: Path) -> None:
    _refused(tmp_path / "store.db", r"no store at .*store\.db; check the path", create=False)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_sqlite_file(tmp_path: Path) -> None:
    _refused(f"sqlite:{tmp_path}", r"is a folder; name a file in it")

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_for_plain_files_unless_it_holds_other_things(tmp_path: Path) -> None:
    with onefold.open(tmp_path) as store:
        store.session("a").append({"role": "user", "content": "hello"})
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")

    assert (tmp_path / "a" / "0000000000.jsonl").is_file()
    _refused(other, r"holds other things, such as notes\.txt")
    assert [f.name for f in other.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("content", [b"just text\n" * 200, b"SQLite format 3\x00 and then nonsense" * 200, b"x"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    before = prints(path)

    _refused(path, r"notes\.txt")

    assert prints(path) == before
    assert [f.name for f in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("application", [0, 0x0F055112])
def test_another_program_s_database_is_left_byte_for_byte_as_it_was(
    tmp_path: Path, mode: str, application: int
) -> None:
    """Not even a log or shared memory appears beside it."""
    path = tmp_path / "theirs.db"
    damage(path, f"pragma journal_mode = {mode}", f"pragma application_id = {application}",
           "create table sessions (id, text)", "insert into sessions values (1, 'theirs')")  # fmt: skip
    before = prints(path)

    _refused(path, r"theirs\.db is another program's database; choose another path")

    assert prints(path) == before
    assert [f.name for f in tmp_path.iterdir()] == ["theirs.db"]


def test_another_program_s_database_that_is_in_use_keeps_its_log(tmp_path: Path) -> None:
    """It is open elsewhere, with rows that are in its log only."""
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.pragma("journal_mode", "wal")
    theirs.execute("create table things (id)")
    theirs.execute("insert into things values (1)")
    before = _contents(tmp_path)

    _refused(path, r"theirs\.db")

    assert _contents(tmp_path) == before
    assert theirs.execute("select * from things").fetchall() == [(1,)]
    theirs.close()


MOUNTED = """\
22 28 0:21 / /proc rw,nosuid - proc proc rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
41 28 0:35 / /srv/my\\040share rw,relatime shared:9 - nfs4 server:/share rw,vers=4.2
42 41 259:5 / /srv/my\\040share/local rw - xfs /dev/sdb1 rw
43 28 0:36 / /home/me/cloud rw - fuse.sshfs me@host:/ rw
a broken line
"""


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("/home/me/store.db", "ext4"),
        ("/srv/my share/store.db", "nfs4"),
        ("/srv/my share", "nfs4"),
        ("/srv/my shares/store.db", "ext4"),
        ("/srv/my share/local/store.db", "xfs"),
        ("/home/me/cloud/deep/store.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_the_one_mounted_nearest(where: str, kind: str) -> None:
    assert path_checks.file_system(Path(where), MOUNTED) == kind


def test_a_network_file_system_is_refused_with_nothing_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    store = tmp_path / "store"
    store.mkdir()
    mounts.write_text(f"41 28 0:35 / {store.resolve()} rw - cifs //server/share rw\n")
    monkeypatch.setattr(path_checks, "MOUNTS", mounts)

    _refused(store / "agent.db", r"agent\.db lies on a network file system \(cifs\).*local disk")

    assert list(store.iterdir()) == []


def test_an_old_sqlite_is_refused_by_its_version() -> None:
    """Its log can corrupt a database that several processes write."""
    for version in ("3.7.0", "3.40.1", "3.51.2"):
        with pytest.raises(StoreError, match=rf"SQLite {version}.*pip install -U apsw"):
            check_library(version)
    for version in ("3.51.3", "3.54.1", "4.0.0"):
        check_library(version)
    check_library()


def test_a_read_only_file_can_be_read_and_says_so_when_written(path: Path) -> None:
    """F28: an error is an error, not an empty session."""
    before = rows(path)

    with open_store(path, lambda p: apsw.Connection(p, flags=apsw.SQLITE_OPEN_READONLY)) as store:
        session = store.session("a")
        assert len(session.context().messages) > 2
        with pytest.raises(StoreUnavailable, match=r"store\.db.*read-only; nothing was written\. Make both writable"):
            session.append(talk(1))

    assert rows(path) == before


def test_a_folder_in_which_no_file_can_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    def connect(path: str) -> apsw.Connection:
        raise apsw.CantOpenError("unable to open database file")

    with pytest.raises(StoreUnavailable, match=r"store\.db.*Check that its folder exists and is writable"):
        open_store(tmp_path / "store.db", connect)
    with pytest.raises(StoreUnavailable, match=r"/proc/store\.db.*Check that its folder exists and is writable"):
        open_store(Path("/proc/store.db"))

    assert [f.stat().st_size for f in tmp_path.iterdir()] == [0]
    open_store(tmp_path / "store.db").close()


def test_a_full_disk_while_a_store_is_made_is_an_error_and_the_path_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with BadDisk() as disk:
        disk.room = 0
        with pytest.raises(StoreUnavailable, match=r"store\.db.*disk is full.*Free some space"):
            open_store(path, disk.connect)

    with open_store(path) as store:
        store.session("a").append(talk(1))
        assert store.verify().healthy


# ---------------------------------------------------------------------- versions


def _too_new(path: Path) -> None:
    damage(path, "pragma user_version = 900", "update meta set value = '99' where name = 'min_writer'")


def test_f44_an_old_program_gets_one_clear_error_from_a_newer_store(path: Path) -> None:
    """Item 15, F44: at open, with the remedy, and nothing is written."""
    _too_new(path)
    before = prints(path)

    with pytest.raises(StoreTooNew, match=r"store\.db.*99.*pip install -U onefold\. Nothing was written"):
        onefold.open(path)

    assert prints(path) == before


def test_f44_a_program_that_has_the_store_open_is_told_at_its_next_write(path: Path) -> None:
    """Item 15, F44: checked inside the transaction, so a store that moves on under a program stops it at once."""
    with open_store(path) as store:
        session = store.session("a")
        session.append(talk(1))
        _too_new(path)
        before = rows(path)

        for write in (
            lambda: session.append(talk(1)),
            session.take_input,
            lambda: store.session("new"),
            session.compact,
        ):
            with pytest.raises(StoreTooNew, match=r"store\.db.*99.*pip install -U onefold.*Nothing was written"):
                write()

        assert rows(path) == before
        assert len(list(session.read())) == session.state.last, "reading goes on"


def test_an_additive_newer_schema_leaves_this_program_working(path: Path) -> None:
    """Item 15: a higher schema that still accepts this writer, with a table and a column it does not know."""
    damage(path, "pragma user_version = 900", "create table colours (id)", "alter table records add column colour text")

    with open_store(path) as store:
        session = store.session("a")
        last = session.state.last
        assert session.append(talk(1)).numbers == (last + 1,)
        assert store.verify(fix=True).healthy
        assert session.context().messages

    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == 900
    connection.close()


def test_a_store_of_the_first_schema_is_migrated_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Item 15: and a copy of it is kept, since the program that made it cannot use it any more."""
    path = tmp_path / "older.db"
    first_schema_only(str(path))
    journal = rows(path, ("records", "keys", "inputs"))

    with open_store(path) as store:
        assert store.verify().healthy

    assert rows(path, tuple(journal)) == journal
    assert {"leases", "turn_leases", "tombstones"} <= rows(path).keys()
    kept = path.with_name("older.db.before-8")
    assert rows(kept, tuple(journal)) == journal
    assert "leases" not in rows(kept)


def test_a_program_from_before_masks_and_items_of_providers_writes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onefold.open(path) as store:
        session = store.session("s")
    monkeypatch.setattr(schema, "WRITER", 7)
    with onefold.open(path) as older, pytest.raises(StoreTooNew, match="Nothing was written"):
        older.session(session.id).append({"role": "user", "content": "hello"})


def test_a_migration_that_can_be_undone_makes_no_backup(path: Path) -> None:
    """Item 15."""
    _migrate(path, (*migrations(), (900, "-- undo: yes\ncreate table colours (id text);", True)))

    assert rows(path, ("colours",)) == {"colours": []}
    assert not list(path.parent.glob("*.before-*"))


NO_WAY_BACK = (*migrations(), (900, "-- undo: no\ndelete from keys;\ncreate table colours (id text);", False))


def _migrate(path: Path, steps: tuple[tuple[int, str, bool], ...]) -> None:
    connection = apsw.Connection(str(path))
    try:
        schema.migrate(connection, path, random_id, steps)
    finally:
        connection.close()


def test_a_migration_that_cannot_be_undone_makes_a_backup_first(path: Path) -> None:
    """Item 15: the copy is the store as it was, and the old program can go back to it."""
    before = rows(path, ("records", "keys"))

    _migrate(path, NO_WAY_BACK)

    kept = path.with_name("store.db.before-900")
    assert rows(path, ("keys",))["keys"] == []
    assert rows(kept, ("records", "keys")) == before
    with open_store(kept) as store:
        assert store.verify().healthy
    with pytest.raises(StoreTooNew):
        onefold.open(path)


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    """Item 15: all of its steps, or none."""
    broken = (*migrations(), (900, "create table colours (id text);\ninsert into nowhere values (1);", True))
    before = rows(path)

    with pytest.raises(apsw.SQLError):
        _migrate(path, broken)

    assert rows(path) == before
    with open_store(path) as store:
        assert store.verify().healthy


# ---------------------------------------------------------------------- copies


def test_a_backup_is_consistent_while_another_process_writes(path: Path, tmp_path: Path) -> None:
    """It has each append whole or not at all, has no complaint, and is another generation."""
    copy = tmp_path / "copy.db"
    with Child("append_until_told", module=HERE, path=str(path)) as writer, open_store(path) as store:
        writer.hear("ready")
        writer.say("go")
        writer.hear("writing")
        before = store.session("a").state.messages
        seen: list[tuple[int, int]] = []
        store.backup(copy, progress=lambda done, total: seen.append((done, total)))
        writer.say("stop")
        writer.hear("stopped")
        assert writer.end() == 0

        with open_store(copy) as copied:
            assert copied.verify().findings == ()
            messages = copied.session("a").state.messages
            assert messages >= before
            assert messages % 2 == 0
            assert copied.generation != store.generation
            copied.session("a").append(talk(1))
        assert seen[-1][0] == seen[-1][1]
    assert not list(tmp_path.glob("*.part-*"))


def test_a_backup_overwrites_nothing(path: Path, tmp_path: Path) -> None:
    there = tmp_path / "copy.db"
    there.write_text("precious")

    with open_store(path) as store:
        with pytest.raises(StoreError, match=r"copy\.db exists already.*overwrites nothing"):
            store.backup(there)
        with pytest.raises(StoreError, match=r"store\.db exists already"):
            store.backup(path)
        with pytest.raises(StoreError, match=r"no folder .*away; make it first"):
            store.backup(tmp_path / "away" / "copy.db")
        assert store.verify().healthy

    assert there.read_text() == "precious"


def test_a_follower_from_before_a_restore_is_told_so(path: Path, tmp_path: Path) -> None:
    """Numbers of another generation do not count, and neither do numbers beyond the head."""
    with open_store(path) as store:
        store.backup(tmp_path / "copy.db")
        session, old = store.session("a"), store.generation
        session.append(talk(4))
        cursor = session.state.last
        assert next(session.follow(cursor - 1, generation=old)).number == cursor

    with open_store(tmp_path / "copy.db") as restored:
        session = restored.session("a")
        with pytest.raises(StaleHandle, match=r"'a' ends at record .*read it again from the start"):
            next(session.follow(cursor))
        with pytest.raises(StaleHandle, match=r"restored from a backup.*read it again from the start"):
            next(session.follow(1, generation=old))
        assert next(session.follow(0, generation=restored.generation)).number == 1


def test_reopening_keeps_the_generation(path: Path) -> None:
    seen = set()
    for _ in range(2):
        with open_store(path) as store:
            seen.add(store.generation)

    assert len(seen) == 1


# ---------------------------------------------------------------------- what following and idling cost


def test_the_log_stays_bounded_although_readers_follow_all_the_time(tmp_path: Path) -> None:
    """Far more is written than the log may hold; the followers miss nothing of it."""
    path, rounds, each = tmp_path / "store.db", 120, 40
    bound = RESTART_PAGES * 4096 + (8 << 20)
    largest = 0
    with open_store(path) as store:
        session = store.session("a")
        seen: list[list[int]] = [[], []]
        followers = [threading.Thread(target=_follow, args=(session.follow(), s, 1 + rounds * each)) for s in seen]
        for follower in followers:
            follower.start()
        message = {"role": "user", "content": "x" * 20_000}
        for _ in range(rounds):
            session.append([message] * each)
            largest = max(largest, (tmp_path / "store.db-wal").stat().st_size)
        for follower in followers:
            follower.join(60)

        assert rounds * each * 20_000 > 2 * bound
        assert largest < bound
        assert seen[0] == seen[1] == list(range(1, 2 + rounds * each))


def _follow(records: Any, seen: list[int], last: int) -> None:
    for record in records:
        seen.append(record.number)
        if record.number == last:
            return


class _Noted(threading.Condition):
    """Notes how long the watch means to wait before it asks again."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if threading.current_thread().name == "onefold-watch":
            self.waits.append(timeout or 0.0)
        return super().wait_for(predicate, timeout)


def test_an_idle_follower_writes_nothing_and_asks_seldom(path: Path) -> None:
    """Not one byte, not one time of change; and after a moment of silence at most some tens of questions a second."""
    counting = Counting()
    with open_store(path, counting.connect) as store:
        session = store.session("a")
        backend_of(store)._watch._cond = noted = _Noted()
        came: list[int] = []
        last = session.state.last
        follower = threading.Thread(target=_follow, args=(session.follow(last), came, last + 1))
        before = prints(path)
        follower.start()

        for _ in range(change_poller.QUICK_FOR + 15):
            assert counting.asked.acquire(timeout=30)

        assert prints(path) == before
        assert came == []
        assert set(noted.waits[: change_poller.QUICK_FOR - 5]) == {change_poller.QUICK}
        assert set(noted.waits[change_poller.QUICK_FOR + 5 :]) == {change_poller.SLOW}
        assert change_poller.SLOW >= 0.02
        session.append(talk(1))
        follower.join(30)
        assert came == [last + 1]


def test_nobody_asks_when_nobody_waits(path: Path) -> None:
    """The watch ends by itself after the last follower, and begins again with the next."""
    counting = Counting()
    with open_store(path, counting.connect) as store:
        session = store.session("a")
        for _ in range(2):
            assert list(session.follow(session.state.last, idle=0.01)) == []
            thread = backend_of(store)._watch._thread
            if thread is not None:
                thread.join(30)
                assert not thread.is_alive()
        assert backend_of(store)._watch._thread is None
        assert counting.questions > 0


# ---------------------------------------------------------------------- a store that is closed


def test_a_closed_store_gives_a_clear_error(path: Path) -> None:
    store = open_store(path)
    session = store.session("a")
    store.close()
    store.close()

    uses: list[Callable[[], Any]] = [
        lambda: session.append(talk(1)),
        session.context,
        lambda: list(session.read()),
        lambda: next(session.follow()),
        session.compact,
        session.take_input,
        lambda: store.session("b"),
        store.verify,
        lambda: list(store.sessions()),
        lambda: store.backup(path.with_name("copy.db")),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"store\.db is closed in this process; open it again"):
            use()


def test_closing_leaves_one_file_and_the_gate(path: Path) -> None:
    """No log, no shared memory: what was acknowledged is in the file itself."""
    with open_store(path) as store:
        session = store.session("a")
        session.append(talk(3))
        assert list(session.follow(session.state.last, idle=0.01)) == []

    assert {f.name for f in path.parent.iterdir()} <= {"store.db", "store.db-gate"}


def test_closing_wakes_who_follows_and_refuses_who_waits_to_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being written is finished first; what stands behind it is not begun."""
    store = open_store(path)
    session, backend = store.session("a"), backend_of(store)
    last = session.state.last
    closed = threading.Event()
    close_gate = backend._gate.wake

    def close_and_tell() -> None:
        close_gate()
        closed.set()

    monkeypatch.setattr(backend._gate, "wake", close_and_tell)
    ends: list[BaseException] = []
    counting = threading.Event()

    def follow() -> None:
        counting.set()
        try:
            next(session.follow(last))
        except StoreError as error:
            ends.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    assert counting.wait(30)
    with HeldLine(backend) as line:
        line.behind("late", lambda: session.append(talk(1)))
        closer = threading.Thread(target=store.close)
        closer.start()
        assert closed.wait(30)
    closer.join(30)
    follower.join(30)

    assert isinstance(line.answers["late"], StoreError)
    assert "closed" in str(line.answers["late"])
    assert ["closed" in str(error) for error in ends] == [True]
    with open_store(path) as again:
        assert again.session("a").state.last == last


def test_a_store_opened_twice_in_one_process_survives_one_being_closed(path: Path) -> None:
    """Closing a file by hand would drop the other one's locks; SQLite's own bookkeeping is left to do its work."""
    numbers = itertools.count()
    first, second = open_store(path), open_store(path)
    one, two = first.session("a"), second.session("a")
    for _ in range(3):
        one.append({"role": "user", "content": f"{next(numbers)}"})
        two.append({"role": "user", "content": f"{next(numbers)}"})
    onefold.open(path).close()

    first.close()
    two.append({"role": "user", "content": f"{next(numbers)}"})

    assert [r.body["content"] for r in two.read() if r.kind == "message"][-7:] == [str(n) for n in range(7)]
    assert isinstance(second, Store)
    assert isinstance(second.journal.backend, SqliteBackend)
    assert second.verify().healthy
    second.close()


def test_a_store_opens_after_a_crash_in_the_middle_of_a_checkpoint(tmp_path: Path) -> None:
    """Page 1 counts pages that are still in the log: looking at the file alone must not call that damage."""
    path, crashed, whole = (tmp_path / n for n in ("agent.db", "crashed.db", "whole.db"))
    with onefold.open(path) as store:
        store.session("s").append([{"role": "user", "content": "x" * 4000} for _ in range(50)])
        for copy in (crashed, whole):
            shutil.copy(path, copy)
            shutil.copy(f"{path}-wal", f"{copy}-wal")
    finisher = apsw.Connection(str(whole))
    finisher.execute("select count(*) from records").fetchall()
    finisher.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    finisher.close()
    with whole.open("rb") as source, crashed.open("r+b") as target:
        target.write(source.read(4096))

    with onefold.open(crashed) as store:
        assert store.session("s", create=False).state.messages == 50
        assert store.verify().healthy
