"""Parses store addresses and locates a store's sidecar files: the search index, the agents' frame log."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

OWN = ".onefold"
"""In a store of plain files, the folder for everything that is not a session's."""
STORE = "store.json"
SEARCH, FRAMES = "search", "frames"


def is_folder(address: str) -> bool:
    """Whether an address means a store of plain files."""
    return address.startswith("files:") or address.endswith("/") or Path(address).is_dir()


def is_store(path: Path) -> bool:
    """Whether a folder is a store of plain files."""
    return path.joinpath(OWN, STORE).is_file()


def path_of(address: str) -> Path:
    """The file or the folder that an address names."""
    return Path(address.removeprefix("sqlite:").removeprefix("files:"))


def sidecar_path(address: str, what: str) -> Path:
    """Such as the search index of a store: beside a SQLite file, and inside the own folder of a store of files."""
    path = path_of(address)
    return path / OWN / what if is_folder(address) else path.with_name(f"{path.name}.{what}")


def data_folder() -> Path:
    """Where this user's data are that have no other place, by the XDG rules, which ignore a relative path."""
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".local/share") / "onefold"


def frames_path(address: str) -> Path:
    """Where the agents' raw frames of a store are, by the address it says it has: beside a file, else among this user's
    data."""
    if has_files(address):
        return sidecar_path(address, FRAMES)
    return data_folder() / FRAMES / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.frames"


def has_files(address: str) -> bool:
    """Whether a store is in files of this machine."""
    return "://" not in address and not address.endswith(":")


def escaped(name: str) -> str:
    """A name as a pattern that only it matches."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
