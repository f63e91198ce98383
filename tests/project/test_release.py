"""What a release must have, tried on wheels that are made here; `make release` builds the real ones."""

from __future__ import annotations

import zipfile
from collections.abc import Set
from pathlib import Path

import pytest

from onefold.version import __version__
from release.checks import find_problems, package_files
from release.links import absolute_links, relative_links

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://code.example.org/onefold"
METADATA = """\
Metadata-Version: 2.4
Name: onefold
Version: {version}
Summary: A journal.
Requires-Python: >=3.11

{text}"""


def _wheel(folder: Path, *, without: Set[str] = frozenset(), version: str = __version__, text: str = "onefold") -> Path:
    path = folder / f"onefold-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in package_files(ROOT) - without:
            archive.writestr(name, "")
        metadata = METADATA.format(version=version, text=text)
        archive.writestr(f"onefold-{version}.dist-info/METADATA", metadata)
    return path


def test_a_whole_wheel_has_no_problems(tmp_path: Path) -> None:
    assert find_problems(_wheel(tmp_path), ROOT, __version__) == []


@pytest.mark.parametrize(
    "name", ["onefold/py.typed", "onefold/storage/sqlite/queries.sql", "onefold/server/web/index.html"]
)
def test_a_wheel_that_lacks_a_file_of_the_package_is_not_ready(name: str, tmp_path: Path) -> None:
    assert name in package_files(ROOT)

    (problem,) = find_problems(_wheel(tmp_path, without={name}), ROOT, __version__)

    assert problem.endswith(f"lacks {name}")


def test_relative_links_in_the_description_are_not_ready_and_the_remedy_is_named(tmp_path: Path) -> None:
    (problem,) = find_problems(_wheel(tmp_path, text="[design](docs/concepts/design.md)"), ROOT, __version__)

    assert "[project.urls]" in problem


def test_a_wheel_of_another_version_or_without_a_dated_entry_in_the_changelog_is_not_ready(tmp_path: Path) -> None:
    other, undated = find_problems(_wheel(tmp_path, version="9.9.8"), ROOT, "9.9.9")

    assert "9.9.8" in other
    assert "9.9.9 (date)" in undated


def test_every_link_of_the_readme_is_absolute_for_a_package_index() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    shown = absolute_links(readme, f"{REPOSITORY}/", "v1.2.3")

    assert relative_links(readme)
    assert relative_links(shown) == []
    assert f"]({REPOSITORY}/blob/v1.2.3/docs/quickstart.md)" in shown
    assert f"]({REPOSITORY}/raw/v1.2.3/docs/images/session-light.png)" in shown


def test_addresses_and_anchors_stay_as_they_are() -> None:
    text = "[a](https://example.org/x) [b](#below) [c](mailto:somebody@example.org)"

    assert absolute_links(text, REPOSITORY, "v1") == text
