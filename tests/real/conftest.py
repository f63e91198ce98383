"""What every test against a real program may ask for. A program that cannot be had leaves its tests out, aloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from onefold.model import Json
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.programs import CannotInstall

Doctor = Callable[..., Json]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    yield from _left_out()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield from _left_out()


def _left_out() -> Generator[None]:
    try:
        yield
    except CannotInstall as error:
        pytest.skip(str(error))


@pytest.fixture
def outside() -> Iterator[Outside]:
    """Nothing goes out, and nothing tries to."""
    with Outside() as made:
        yield made
    assert made.tried == []


@pytest.fixture
def model() -> Iterator[DirectedModel]:
    with DirectedModel() as made:
        yield made


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """`onefold doctor` as a user runs it, and what it says for programs."""

    def run(path: Path, *options: str) -> Json:
        backups = tmp_path / "backups"
        done = subprocess.run(
            [sys.executable, "-m", "onefold", "doctor", str(path), "--json", "--backups", str(backups), *options],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    return run
