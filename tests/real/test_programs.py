"""A program that cannot be had says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real import programs
from tests.real.programs import CannotInstall, Program, installed


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FOLDER", tmp_path)


@pytest.mark.parametrize(
    "program",
    [
        Program("nothing-npm", ("/no/such/package.tgz",), "node_modules/nothing/index.js"),
        Program("nothing-pip", ("/no/such/package.whl",), "bin/python"),
        Program("headless", ("pip",), "bin/no-such-command"),
    ],
    ids=lambda program: program.name,
)
def test_a_program_that_cannot_be_installed_says_why(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(programs.PROGRAMS, program.name, program)

    with pytest.raises(CannotInstall, match=rf"{program.name} cannot be installed here: .*no.such"):
        installed(program.name)
    assert not (program.folder / ".installed").exists()
