"""What must be true of a wheel before anybody uploads it."""

from __future__ import annotations

import re
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

from release.links import relative_links


def package_files(root: Path) -> set[str]:
    """Every file of the package as a wheel names it: modules, SQL, the page, py.typed."""
    source = root / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "onefold").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def find_problems(wheel: Path, root: Path, version: str) -> list[str]:
    """In words; empty if the wheel can be uploaded."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        described = [name for name in names if name.endswith(".dist-info/METADATA")]
        if len(described) != 1:
            return [f"{wheel.name} has no metadata"]
        metadata = Parser().parsestr(archive.read(described[0]).decode())
    return [
        *_missing(wheel, package_files(root) - names),
        *_metadata_problems(metadata, version),
        *_changelog_problems((root / "CHANGELOG.md").read_text(encoding="utf-8"), version),
    ]


def _missing(wheel: Path, files: set[str]) -> list[str]:
    return [f"{wheel.name} lacks {', '.join(sorted(files))}"] if files else []


def _metadata_problems(metadata: Message, version: str) -> list[str]:
    problems = [
        f"the metadata have no {field}" for field in ("Name", "Summary", "Requires-Python") if not metadata.get(field)
    ]
    if metadata.get("Version") != version:
        problems.append(f"the metadata say version {metadata.get('Version')}, and src/onefold/version.py {version}")
    description = metadata.get_payload()
    if not isinstance(description, str) or not description.strip():
        problems.append("the metadata have no description: it should be the README")
    elif links := relative_links(description):
        problems.append(
            f"{len(links)} links of the README are relative, and broken on a package index: set Repository in "
            "[project.urls] of pyproject.toml to the address of the repository"
        )
    return problems


def _changelog_problems(changelog: str, version: str) -> list[str]:
    if re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        return []
    return [f"CHANGELOG.md has no heading `## {version} (date)`"]
