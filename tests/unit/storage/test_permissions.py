"""Who may reach the files of a store: its owner alone, whatever the umask, or a group that was let in on purpose."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import onefold
from onefold import StoreError
from onefold.acp.agent_config import AgentUnusable
from onefold.acp.frame_log import FrameLog, RoomRow
from onefold.acp.host import RoomHost
from onefold.recall import Recall
from onefold.storage import permissions
from onefold.storage.locations import frames_path
from tests.support.crash_children import first_schema_only

NOBODY = 65534
_AS_NOBODY = """
import fcntl, json, os, sys
paths = json.load(sys.stdin)
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
reached = []
for path in paths:
    try:
        with open(path, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 120)  # on an index of a log: the lock of who writes
        reached.append(path)
    except PermissionError:
        pass
print(json.dumps(reached))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody can look into, as a home or a project often is."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture(autouse=True)
def _nothing_was_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "_warned", set())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, str]:
    """What lies in a folder, at any depth, with the mode of each."""
    return {str(path.relative_to(folder)): oct(mode(path)) for path in sorted(folder.rglob("*"))}


def wide(folder: Path, *, file: int = 0o600, inside: int = 0o700) -> dict[str, str]:
    """What is not as it should be."""
    return {
        name: found
        for name, found in modes(folder).items()
        if found != oct(inside if folder.joinpath(name).is_dir() else file)
    }


def onefold_does(folder: Path, *args: str) -> str:
    """A command, for a user whose own folders are not there yet."""
    homes = {name: str(folder / "home" / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    ran = subprocess.run(
        [sys.executable, "-m", "onefold", *args],
        env={**os.environ, **homes},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout + ran.stderr


def everything(folder: Path, address: str, *, group: bool = False) -> onefold.Store:
    """A store with all that is made beside it, still open."""
    store = onefold.open(address, group=group)
    session = store.session("one")
    session.append([{"role": "user", "content": "the password is hunter2"}])
    assert Recall(store).search("hunter2")
    frames = FrameLog(str(frames_path(store.address)))
    frames.put_room(RoomRow("one", "gone", [], str(folder), None, 0.0, None))
    frames.close()
    asyncio.run(_look_for_its_agent(store))
    store.backup(folder / "copy")
    session.rewind(1)
    session.append([{"role": "user", "content": "another one"}])
    return store


async def _look_for_its_agent(store: onefold.Store) -> None:
    """It cannot be started, and so it is looked whether another process has it: that takes its lock."""
    host = RoomHost(store, frames_path(store.address))
    try:
        with pytest.raises(AgentUnusable):
            await host.enter("one")
    finally:
        await host.close()


def reached_by_another_user(folder: Path) -> list[str]:
    """Files that somebody else can read, or lock. Where this test may not become somebody else, the modes alone are
    looked at, by who calls."""
    control = folder / "control"
    control.write_text("everybody may read this")
    control.chmod(0o644)
    if os.geteuid() != 0:
        return []
    paths = [str(path) for path in folder.rglob("*") if path.is_file()]
    ran = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(NOBODY)],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    reached: list[str] = json.loads(ran.stdout)
    assert str(control) in reached
    control.unlink()
    return [path for path in reached if path != str(control)]


# ---------------------------------------------------------------------- for its owner alone


@pytest.mark.parametrize("address", ["agent.db", "sessions/"])
def test_everything_is_for_its_owner_alone_whatever_the_umask(folder: Path, umask: int, address: str) -> None:
    """H4. With it open, since a log and its index are there only then; and another user reads and locks nothing."""
    with everything(folder, f"{folder}/{address}"):
        onefold_does(folder, "export", "one", "--store", f"{folder}/{address}", "--out", str(folder / "export.jsonl"))
        found = modes(folder)
        assert wide(folder) == {}
        assert reached_by_another_user(folder) == []

    if address == "agent.db":
        assert {"agent.db-wal", "agent.db-shm", "agent.db-gate", "agent.db.search", "agent.db.frames"} <= found.keys()
    else:
        assert {f"sessions/.onefold/{name}" for name in ("store.json", "lock", "search", "frames")} <= found.keys()
    assert {"copy", "export.jsonl"} <= found.keys()


def test_the_folders_and_files_of_a_user_are_its_own(folder: Path, umask: int) -> None:
    """H4: the usual store, the config file and the tokens, with the folders above them that were not there."""
    (folder / "home").mkdir(mode=0o700)
    (folder / "home").chmod(0o700)
    onefold_does(folder, "init", "--config")
    onefold_does(folder, "token", "new", "me", "--scope", "read")

    assert wide(folder) == {}
    found = modes(folder)
    assert "home/XDG_DATA_HOME/onefold/onefold.db" in found
    assert {name for name in found if name.startswith("home/XDG_CONFIG_HOME/onefold/")} >= {
        "home/XDG_CONFIG_HOME/onefold/config.toml",
        "home/XDG_CONFIG_HOME/onefold/tokens.json",
    }


def test_the_copy_of_a_migration_is_its_owner_s_even_if_the_store_is_not(
    folder: Path, umask: int, caplog: pytest.LogCaptureFixture
) -> None:
    """H4: a store of an older program may be for everybody; the copy that is made of it is not."""
    path = folder / "older.db"
    first_schema_only(str(path))
    path.chmod(0o644)

    onefold.open(path).close()

    assert mode(folder / "older.db.before-8") == 0o600
    assert mode(path) == 0o644  # not changed silently
    assert "chmod 600" in caplog.text


def test_an_index_that_is_gone_is_made_anew_for_its_owner_alone(folder: Path, umask: int) -> None:
    """H4: of plain files, whoever opens them next builds it."""
    with everything(folder, f"{folder}/sessions/"):
        pass
    for index in (folder / "sessions/.onefold").glob("index*"):
        index.unlink()

    with onefold.open(f"{folder}/sessions/") as store:
        assert store.verify().healthy
        assert wide(folder) == {}


# ---------------------------------------------------------------------- for a group


@pytest.mark.parametrize("address", ["agent.db", "sessions/"])
def test_a_store_for_a_group_is_for_nobody_else(
    folder: Path, umask: int, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H4: said once, when it is made; after that the store's own file decides, whoever opens it."""
    folder.chmod(0o2750)
    with everything(folder, f"{folder}/{address}", group=True):
        assert wide(folder, file=0o660, inside=0o2770) == {}
    (folder / "agent.db-gate").unlink(missing_ok=True)

    with onefold.open(f"{folder}/{address}") as store:
        store.session("two").append([{"role": "user", "content": "later"}])
        assert wide(folder, file=0o660, inside=0o2770) == {}

    folder.chmod(0o755)
    assert reached_by_another_user(folder) == []
    assert caplog.text == ""


@pytest.mark.parametrize("address", ["agent.db", "sessions/"])
def test_init_makes_a_store_for_a_group_and_says_what_its_folder_lacks(folder: Path, umask: int, address: str) -> None:
    said = onefold_does(folder, "init", "--group", f"{folder}/{address}")

    assert wide(folder, file=0o660, inside=0o2770) == {}
    assert ("chmod 2770" in said) == (address == "agent.db")


def test_the_locks_of_rooms_are_opened_to_a_group_that_was_let_in_later(folder: Path, umask: int) -> None:
    path = folder / "agent.db"
    everything(folder, str(path)).close()
    locks = folder / "agent.db.frames.locks"
    (lock,) = locks.iterdir()
    assert (mode(locks), mode(lock)) == (0o700, 0o600)
    for one in (path, folder / "agent.db.frames"):
        one.chmod(0o660)

    with onefold.open(path) as store:
        asyncio.run(_look_for_its_agent(store))

    assert (mode(locks), mode(lock)) == (0o2770, 0o660)


def test_a_lock_that_is_not_to_be_had_starts_nothing_and_says_what_to_do(folder: Path) -> None:
    path = folder / "agent.db"
    with everything(folder, str(path)) as store:
        (lock,) = (folder / "agent.db.frames.locks").iterdir()
        lock.unlink()
        lock.symlink_to(folder / "elsewhere")
        with pytest.raises(
            StoreError, match=r"cannot be locked .*, so the agent of session 'one' was not started.*chmod"
        ):
            asyncio.run(_look_for_its_agent(store))


@pytest.mark.parametrize("address", ["memory:", "postgresql://127.0.0.1/none"])
def test_a_store_without_files_has_none_for_a_group(address: str) -> None:
    with pytest.raises(StoreError, match="no files that a group could use"):
        onefold.open(address, group=True)


def test_what_root_makes_in_somebody_s_store_is_theirs(folder: Path) -> None:
    """Else the owner could not use the gate, the index or the frames any more."""
    path = folder / "agent.db"
    onefold.open(path).close()
    (folder / "agent.db-gate").unlink()
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    os.chown(path, owner, -1)

    with everything(folder, str(path)):
        found = {name: folder.joinpath(name).stat().st_uid for name in modes(folder) if name.startswith("agent.db")}

    assert set(found.values()) == {owner}
    assert {"agent.db-wal", "agent.db-gate", "agent.db.search", "agent.db.frames"} <= found.keys()


# ---------------------------------------------------------------------- wider than that


@pytest.mark.parametrize("given", [0o644, 0o640, 0o604, 0o664, 0o606])
@pytest.mark.parametrize("kind", ["agent.db", "sessions/"])
def test_a_store_that_others_can_reach_is_warned_of_once_and_left_as_it_is(
    folder: Path, kind: str, given: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{folder}/{kind}"
    own = folder / "agent.db" if kind == "agent.db" else folder / "sessions/.onefold/store.json"
    onefold.open(address).close()
    beside = own.with_name(own.name + ".search") if kind == "agent.db" else own.with_name("search")
    beside.touch(mode=0o644)
    beside.chmod(0o644)
    own.chmod(given)
    caplog.set_level(logging.WARNING, "onefold")

    for _ in range(2):
        onefold.open(address).close()

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(own) in caplog.text
    assert str(beside) in caplog.text
    assert mode(own) == given
    remedy = caplog.messages[0].partition("chmod 600 ")[2].partition(";")[0]
    subprocess.run(f"chmod 600 {remedy}", shell=True, check=True)
    permissions._warned.clear()
    onefold.open(address).close()
    assert len(caplog.records) == 1


def test_the_remedy_names_old_copies_too_and_can_be_pasted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "my [agent]; touch x.db"
    onefold.open(path).close()
    old = path.with_name(f"{path.name}.before-8")
    old.touch()
    for wide in (path, old):
        wide.chmod(0o644)

    onefold.open(path).close()

    remedy = caplog.messages[0].partition("chmod 600 ")[2].partition("; or ")[0]
    subprocess.run(f"chmod 600 {remedy}", shell=True, check=True, cwd=folder)
    assert (mode(path), mode(old)) == (0o600, 0o600)
    assert sorted(f.name for f in folder.iterdir() if "before" not in f.name and "-gate" not in f.name) == [path.name]
