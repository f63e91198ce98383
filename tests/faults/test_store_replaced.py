"""A SQLite file that is replaced, removed or given a second name under those who have it open, and logs without theirs.

Whoever begins after that is refused with the remedy; nothing is acknowledged that nobody will find, and nothing of the
file that is there now, or of its log, is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold import Session, Store, StoreError, StoreUnavailable
from onefold.storage.sqlite import change_poller, store_file
from tests.support.fault_injection import HeldLine, backend_of, open_store, prints
from tests.support.helpers import Child
from tests.support.pages import ROOT, blocks_of, run_page
from verification.operations import prepare, talk

WAIT = 30
PAGE = ROOT / "docs/how-to/backup.md"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store with one session lies, and nothing but its file."""
    folder = tmp_path / "stores"
    folder.mkdir()
    prepare(str(folder / "store.db"))
    return folder / "store.db"


# ---------------------------------------------------------------------- what may happen to a file


def _restored(path: Path) -> None:
    """A backup is moved over it."""
    path.with_name("backup.db").replace(path)


def _exchanged(path: Path) -> None:
    """A plain copy is moved over it, which has the same generation."""
    path.with_name("copy.db").replace(path)


def _removed(path: Path) -> None:
    path.unlink()


def _moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def _folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _led_elsewhere(path: Path) -> None:
    """Its path is a link from the beginning, and leads to another file now."""
    path.unlink()
    path.symlink_to(path.with_name("backup.db"))


GONE = [_restored, _exchanged, _removed, _moved, _folder_moved, _led_elsewhere]
THERE_AFTER = [_restored, _exchanged, _led_elsewhere]


@pytest.fixture(params=GONE, ids=lambda way: way.__name__[1:])
def way(request: pytest.FixtureRequest, path: Path) -> Callable[[Path], None]:
    shutil.copy(path, path.with_name("copy.db"))
    with open_store(path) as store:
        store.session("a").append(talk(2))
        store.backup(path.with_name("backup.db"))
    if request.param is _led_elsewhere:
        path.rename(path.with_name("real.db"))
        path.symlink_to("real.db")
    chosen: Callable[[Path], None] = request.param
    return chosen


USES: dict[str, Callable[[Store, Session], Any]] = {
    "append": lambda store, session: session.append(talk(1)),
    "new session": lambda store, session: store.session("new").append(talk(1)),
    "delete": lambda store, session: store.delete("a"),
    "erase": lambda store, session: session.erase(2),
    "context": lambda store, session: session.context(),
    "read": lambda store, session: list(session.read()),
    "follow": lambda store, session: next(session.follow(session.state.last)),
    "sessions": lambda store, session: list(store.sessions()),
    "verify": lambda store, session: store.verify(),
    "verify and mend": lambda store, session: store.verify(fix=True),
    "purge": lambda store, session: store.journal.backend.purge(),
    "backup": lambda store, session: store.backup(Path(store.address).parent.parent / "late.db"),
}


@pytest.mark.parametrize("use", USES)
def test_whatever_begins_after_the_file_is_gone_is_refused_and_stays_so(
    path: Path, way: Callable[[Path], None], use: str
) -> None:
    """Also if it comes back: what was written there meanwhile is not known here."""
    store = open_store(path)
    session = store.session("a")
    session.append(talk(1))
    way(path)
    now = prints(path) if path.exists() else {}

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"store\.db (is another file|was moved or removed).*open it again"):
            USES[use](store, session)
    if way is _moved:
        path.with_name("elsewhere.db").rename(path)
        with pytest.raises(StoreUnavailable, match=r"was moved or removed.*open it again"):
            USES[use](store, session)
    elif way in THERE_AFTER:
        assert prints(path) == now
    store.close()


@pytest.mark.parametrize("pages", [1, 10_000_000], ids=["checkpoints often", "never"])
def test_closing_leaves_the_new_file_and_its_log_alone(
    path: Path, way: Callable[[Path], None], pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite ends a log when it closes the last connection, and knows it by its name."""
    if way not in THERE_AFTER:
        return
    monkeypatch.setattr("onefold.storage.sqlite.backend.CHECKPOINT_PAGES", pages)
    store = open_store(path)
    session = store.session("a")
    session.append(talk(3))
    with HeldLine(backend_of(store)) as line:  # it began before the file was replaced
        way(path)
        for end in ("-wal", "-shm"):  # as the page says, but for ending the program first
            old = Path(os.path.realpath(path) if way is not _led_elsewhere else path.with_name("real.db"))
            old.with_name(old.name + end).rename(path.with_name(f"old{end}"))
        with Child("write", path=str(path), session="a", count=3) as child:
            last = child.hear("written")["last"]
            line.behind("late", lambda: session.append(talk(1)))
    with contextlib.suppress(StoreUnavailable):
        session.append(talk(1))
    store.close()

    assert isinstance(line.answers["late"], StoreUnavailable)
    with open_store(path) as now:
        assert now.session("a").state.last == last
        assert now.verify().healthy


def test_an_append_that_begins_after_a_restore_is_never_acknowledged(path: Path) -> None:
    """With threads that write all the time, in groups."""
    with open_store(path) as store:
        store.backup(path.with_name("backup.db"))
    replaced, wrong, refused = threading.Event(), [], []

    with open_store(path) as store:
        session = store.session("a")
        begun = threading.Barrier(5)

        def write() -> None:
            begun.wait(WAIT)
            while True:
                after = replaced.is_set()
                try:
                    session.append(talk(1))
                except StoreUnavailable as error:
                    refused.append(str(error))
                    return
                if after:
                    wrong.append("acknowledged")
                    return

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait(WAIT)
        for _ in range(3):
            session.append(talk(1))
        _restored(path)
        replaced.set()
        for thread in threads:
            thread.join(WAIT)

    assert wrong == []
    assert len(refused) == 4


def test_who_follows_is_told_although_nobody_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_poller, "IDLE", 0.01)
    ends: list[str] = []
    waiting = threading.Event()
    with open_store(path) as store:
        session = store.session("a")
        last = session.state.last
        wait = backend_of(store).wait

        def told(version: int, timeout: float) -> None:
            waiting.set()
            wait(version, timeout)

        monkeypatch.setattr(backend_of(store), "wait", told)

        def follow() -> None:
            try:
                next(session.follow(last))
            except StoreUnavailable as error:
                ends.append(str(error))

        thread = threading.Thread(target=follow)
        thread.start()
        assert waiting.wait(WAIT)
        _removed(path)
        thread.join(WAIT)

    assert ["was moved or removed" in end for end in ends] == [True], ends


def test_connections_that_are_made_later_are_not_of_the_new_file(path: Path) -> None:
    """Those of readers that come together, and of a fork's parent and child."""
    with open_store(path) as store:
        store.backup(path.with_name("backup.db"))
        backend = backend_of(store)
        _restored(path)
        before = prints(path)

        with pytest.raises(StoreUnavailable, match="is another file by now"):
            backend._open_connection()

        assert prints(path) == before


def test_a_path_that_is_replaced_between_two_looks_is_found_out(path: Path) -> None:
    """Just when SQLite opens it."""
    with open_store(path) as store:
        store.backup(path.with_name("backup.db"))
        connect = backend_of(store).connect

    def late(name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            _restored(path)
        return connect(name)

    with pytest.raises(StoreUnavailable, match="is another file by now"):
        open_store(path, late)
    open_store(path).close()


def test_a_folder_that_cannot_be_looked_into_is_an_error_that_passes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    with open_store(path) as store:
        session = store.session("a")
        with monkeypatch.context() as patched:
            patched.setattr("onefold.storage.sqlite.store_file.os.stat", refuse)
            with pytest.raises(StoreUnavailable, match=r"cannot be looked at \(Permission denied\)"):
                session.append(talk(1))
        session.append(talk(1))


# ---------------------------------------------------------------------- two names


def test_a_file_with_two_names_is_refused_under_both_and_left_as_it_is(path: Path) -> None:
    second = path.with_name("second.db")
    os.link(path, second)
    before = prints(path)

    for name in (path, second):
        with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\).*Remove the others"):
            onefold.open(name)

    assert prints(path) == before
    second.unlink()
    with onefold.open(path) as store:
        store.session("a").append(talk(1))


def test_a_second_name_that_is_given_later_is_noticed_until_it_is_gone(path: Path) -> None:
    second = path.with_name("second.db")
    with open_store(path) as store:
        session = store.session("a")
        last = session.state.last
        os.link(path, second)

        for use in (lambda: session.append(talk(1)), session.context):
            with pytest.raises(StoreUnavailable, match="has 2 names"):
                use()
        second.unlink()

        assert session.append(talk(1)).numbers == (last + 1,)


# ---------------------------------------------------------------------- a log and its database


@pytest.fixture
def killed(path: Path) -> Path:
    """A store whose process was killed: its newest records are in the log."""
    shutil.copy(path, path.with_name("copy.db"))
    with open_store(path) as store:
        store.backup(path.with_name("backup.db"))
    with Child("write", path=str(path), session="a", count=5) as child:
        child.hear("written")
        child.kill()
    return path


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_no_store_is_made_beside_a_log_whose_database_is_gone(killed: Path, left: str, create: bool) -> None:
    last = _last(killed)
    away = killed.with_name("away.db")
    killed.rename(away)
    if left == "an empty file":
        killed.touch()
    before = prints(killed)

    for _ in range(2):
        with pytest.raises(StoreError, match=r"its log .*store\.db-wal is still there.*Put the database back"):
            onefold.open(killed, create=create)

    assert prints(killed) == before
    away.replace(killed)
    with open_store(killed) as store:
        assert store.session("a").state.last == last
        assert store.verify().healthy


@pytest.mark.parametrize("how", ["moved over", "copied over", "moved over, of the same generation"])
def test_a_backup_beside_the_log_of_the_old_store_is_refused_until_the_log_is_moved(killed: Path, how: str) -> None:
    if how == "copied over":
        shutil.copy(killed.with_name("backup.db"), killed)
    else:
        killed.with_name("backup.db" if how == "moved over" else "copy.db").replace(killed)
    before = prints(killed)

    with pytest.raises(StoreError, match=r"the log .*store\.db-wal is not of the database that is at .*store\.db now"):
        onefold.open(killed)

    assert prints(killed) == before
    for end in ("-wal", "-shm"):
        killed.with_name(f"store.db{end}").rename(killed.with_name(f"old{end}"))
    with open_store(killed) as store:
        store.session("a").append(talk(1))
        assert store.verify().healthy
    open_store(killed).close()


def test_a_store_that_was_copied_or_moved_with_its_log_is_opened(killed: Path, tmp_path: Path) -> None:
    last = _last(killed)
    for way in (shutil.copytree, shutil.move):
        there = tmp_path / way.__name__
        way(str(killed.parent), str(there))

        assert _last(there / "store.db") == last
        with open_store(there / "store.db") as store:
            assert store.session("a").state.last == last


def test_processes_that_open_a_restored_store_at_once_all_get_in(path: Path) -> None:
    """Although what the gate says is of the old one, until one of them has written it anew."""
    with open_store(path) as store:
        store.session("a").append(talk(1))
        store.backup(path.with_name("backup.db"))
    note = store_file.read_note(store_file.beside(path).gate)
    assert note is not None
    _restored(path)
    inside, go = threading.Event(), threading.Event()
    connect = backend_of(store).connect

    def slowly(name: str) -> Any:
        """The log is there before the gate says whose it is."""
        connection = connect(name)
        connection.execute("select count(*) from meta").fetchall()
        inside.set()
        assert go.wait(WAIT)
        return connection

    first = threading.Thread(target=lambda: open_store(path, slowly).close())
    first.start()
    assert inside.wait(WAIT)
    try:
        with open_store(path) as second:
            second.session("a").append(talk(1))
    finally:
        go.set()
        first.join(WAIT)


def test_a_link_to_a_store_shares_its_gate(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    with open_store(path) as store, open_store(link) as other:
        store.session("a").append(talk(1))
        other.session("a").append(talk(1))

    assert [f.name for f in tmp_path.iterdir() if f.name.startswith("link")] == ["link.db"]


def _last(path: Path) -> int:
    """The newest number of a session, by another process that leaves everything as it is: by being killed."""
    with Child("write", path=str(path), session="a", count=0) as child:
        return int(str(child.hear("written")["last"]))


# ---------------------------------------------------------------------- the page


@pytest.mark.parametrize("before", ["closed", "killed"])
def test_the_way_back_that_the_page_tells_works(tmp_path: Path, before: str) -> None:
    (commands,) = (b for b in blocks_of(PAGE) if any(line.startswith("mv ") for line in b.commands))
    path = tmp_path / "agent.db"
    with onefold.open(path) as store:
        store.session("build").append({"role": "user", "content": "kept"})
        store.backup(tmp_path / "monday.db")
    with Child("write", path=str(path), session="build", count=2) as child:
        last = child.hear("written")["last"]
        if before == "killed":
            child.kill()
        else:
            child.say("close")
            assert child.end() == 0

    run_page(PAGE, tmp_path, [commands])

    with onefold.open(path) as store:
        assert [m["content"] for m in store.session("build").context().messages] == ["kept"]
        assert store.verify().healthy
    with onefold.open(tmp_path / "before-monday" / "agent.db") as old:
        assert old.session("build").state.last == last
        assert old.verify().healthy
