"""Stores and exports that an older program made, before names and modules changed, work as they are.

`made_before/` holds a SQLite store with schema 7, a store of plain files, an export of the first, and what the older
program said of their sessions.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold.model import Json

MADE = Path(__file__).parents[1] / "support" / "made_before"
SAID: dict[str, Any] = json.loads((MADE / "said.json").read_text(encoding="utf-8"))
EXPORT = gzip.decompress((MADE / "export.jsonl.gz").read_bytes()).decode()


@pytest.fixture(params=["agent.db", "sessions/"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    with tarfile.open(MADE / "stores.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return f"{tmp_path}/{request.param}"


def test_an_older_store_says_what_it_said_and_goes_on(address: str) -> None:
    with onefold.open(address, create=False) as store:
        assert store.generation == SAID["files" if address.endswith("/") else "sqlite"]
        assert {id: _said(store, id) for id in SAID["sessions"]} == SAID["sessions"]
        assert store.verify().findings == ()

        session = store.session("main", create=False)
        session.append({"role": "user", "content": "And the day after?"})

        assert session.context().messages[-1]["content"] == "And the day after?"
        assert session.append(
            {"role": "user", "content": "Never push to main. The staging port is 8081."}, key="k1"
        ).numbers == (2,)
        assert store.verify().findings == ()


def _said(store: onefold.Store, id: str) -> dict[str, Json]:
    session = store.session(id, create=False)
    state, context = session.state, session.context()
    return {
        "last": state.last, "messages": state.messages, "tokens": state.tokens, "head": state.head,
        "context": context.messages,
    }  # fmt: skip


@pytest.mark.parametrize("address", ["agent.db"], indirect=True)
def test_what_is_exported_of_an_older_store_is_what_the_older_program_exported(address: str) -> None:
    done = _onefold("export", "--store", address, "--all")

    assert _lines(done.stdout) == _lines(EXPORT)


def test_an_older_export_is_imported_and_exported_again_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text(EXPORT, encoding="utf-8")
    new = str(tmp_path / "new.db")
    onefold.open(new).close()

    _onefold("import", str(tmp_path / "old.jsonl"), "--into", new)

    assert _lines(_onefold("export", "--store", new, "--all").stdout) == _lines(EXPORT)


def _lines(export: str) -> list[Json]:
    return sorted((json.loads(line) for line in export.splitlines()), key=lambda r: (r["session"], r["number"]))


def _onefold(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "onefold", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done
