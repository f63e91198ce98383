"""Which addresses mean a folder of plain files, and where things are kept that belong to a store and are none of it."""

from __future__ import annotations

from pathlib import Path

OWN = ".onefold"
"""In a store of plain files, the folder for everything that is no session's."""
STORE = "store.json"


def is_folder(address: str) -> bool:
    """Whether an address means a store of plain files."""
    return address.startswith("files:") or address.endswith("/") or Path(address).is_dir()


def is_store(path: Path) -> bool:
    """Whether a folder is a store of plain files."""
    return path.joinpath(OWN, STORE).is_file()


def path_of(address: str) -> Path:
    """The file or the folder that an address names."""
    return Path(address.removeprefix("sqlite:").removeprefix("files:"))


def beside(address: str, what: str) -> Path:
    """Such as the search index of a store: beside a SQLite file, and inside the own folder of a store of files."""
    path = path_of(address)
    return path / OWN / what if is_folder(address) else path.with_name(f"{path.name}.{what}")
