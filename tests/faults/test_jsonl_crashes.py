"""Killed before every change of the disk, and in the middle of every write: the old state or the new one."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.support.files_children import KillingDisk, everything, open_files, prepare
from verification.kills import dies
from verification.operations import OPERATIONS, SECRET

MOST = 60
WHOLE = ("create", "append many with key", "commit with follow-up", "fork", "erase", "delete")
"""One of each way to write; the proof has all operations."""
TORN = ("append many with key", "commit with follow-up", "erase")


def _act(path: Path, name: str, at: int, torn: bool) -> None:
    disk = KillingDisk()
    store = open_files(path, disk)
    act = OPERATIONS[name](store)
    disk.arm(at, torn=torn)
    act()


@pytest.mark.parametrize(
    ("name", "torn"), [*((name, False) for name in WHOLE), *((name, True) for name in TORN)]
)  # fmt: skip
def test_a_kill_at_any_change_leaves_the_old_state_or_the_new_one(tmp_path: Path, name: str, torn: bool) -> None:
    prepare(tmp_path / "original")
    states = []
    for at in range(1, MOST):
        copy = tmp_path / f"{at:03}"
        shutil.copytree(tmp_path / "original", copy)
        returned = dies(partial(_act, copy, name, at, torn))
        with open_files(copy) as store:
            assert store.verify().findings == ()
            states.append(everything(store))
        with open_files(copy) as again:
            assert everything(again) == states[-1], "opened once more, nothing is different"
        left = [f.name for f in copy.rglob("*") if f.name.startswith((".new", ".erased", ".head", "erase-"))]
        assert left == []
        if name in ("erase", "delete"):
            held = [f.name for f in copy.rglob("*") if f.is_file() and SECRET.encode() in f.read_bytes()]
            assert bool(held) == (SECRET in str(states[-1])), held
        shutil.rmtree(copy)
        if returned:
            break
    else:
        pytest.fail(f"{name!r} has more than {MOST} changes")

    old, new = states[0], states[-1]
    assert old != new
    assert all(state in (old, new) for state in states)
    turned = [state == new for state in states]
    assert turned == sorted(turned), "once new, never old again"
