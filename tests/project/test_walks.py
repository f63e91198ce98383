"""Three walks through the package stay as short as they are: a compaction, an agent's frame, a load of the page."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "onefold"

pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def walks() -> dict[str, Any]:
    """In a process of its own: every function that it calls is looked at."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.walks", "--json"],
        capture_output=True, text=True, timeout=110, check=False, cwd=SOURCE.parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_compaction_is_eighteen_calls_deep_and_no_more_files_than_it_was(walks: dict[str, Any]) -> None:
    assert walks["compact"]["hops"] <= 18
    assert len(walks["compact"]["files"]) <= 48


def test_who_waits_who_works_and_what_is_read_are_three_modules_that_need_each_other_in_one_direction() -> None:
    needs = {name: _imported(f"compaction/{name}.py") & {"job", "attempt", "material"} for name in ("job", "attempt")}

    assert needs == {"job": {"attempt", "material"}, "attempt": {"material"}}
    assert not _imported("compaction/material.py") & {"job", "attempt"}


def test_a_frame_of_an_agent_is_a_dozen_calls_deep_on_its_way_to_a_browser(walks: dict[str, Any]) -> None:
    assert walks["frame"]["hops"] <= 12
    assert len([file for file in walks["frame"]["files"] if not file.startswith("storage/")]) <= 27


def test_a_page_load_is_five_files_and_a_message_that_comes_is_no_request_at_all(walks: dict[str, Any]) -> None:
    assert len(walks["page"]["static"]) == 5
    assert len(walks["page"]["data"]) <= 8
    assert walks["page"]["live"] == []


def _imported(module: str) -> set[str]:
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    return {n.module.rpartition(".")[2] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
