"""Which addresses mean a folder of plain files, where things are kept that belong to a store and are none of it, and
how those are told to forget what was erased.

What is kept there is the business of packages that this one must not know (the search index, the agents' frames). So
each is named here with the module that can clean it, which is imported only where such a file exists.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from onefold.journal.contract import Journal

log = logging.getLogger("onefold")

OWN = ".onefold"
"""In a store of plain files, the folder for everything that is no session's."""
STORE = "store.json"
SEARCH, FRAMES = "search", "frames"
_CLEANERS = {SEARCH: "onefold.recall.erasure", FRAMES: "onefold.agents.erasure"}


class Cleaner(Protocol):
    """What a module offers that keeps something beside a store."""

    def forget(self, journal: Journal, path: Path, sessions: Sequence[str], *, whole: bool) -> str | None:
        """Takes out of a file what the journal no longer has of some sessions, down to its bytes, and says in words why
        something of it may be left. `whole`: also where that takes long. It may be repeated."""


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


def data_folder() -> Path:
    """Where this user's data are that have no other place, by the XDG rules, which ignore a relative path."""
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".local/share") / "onefold"


def frames_path(address: str) -> Path:
    """Where the agents' raw frames of a store are, by the address it says it has: beside a file, else among this user's
    data."""
    if has_files(address):
        return beside(address, FRAMES)
    return data_folder() / FRAMES / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.frames"


def has_files(address: str) -> bool:
    """Whether a store is in files of this machine."""
    return "://" not in address and not address.endswith(":")


# ---------------------------------------------------------------------- forgetting


def forget(journal: Journal, sessions: Sequence[str], *, whole: bool = False) -> list[str]:
    """Has everything beside a store forget what was erased or deleted in some sessions; what was not reached, in
    words."""
    address = journal.backend.address
    left = []
    for what, module in _CLEANERS.items():
        path = _kept_in(address, what)
        if path is None or not path.exists():
            continue
        try:
            found = cast("Cleaner", import_module(module)).forget(journal, path.absolute(), sessions, whole=whole)
        except (OnefoldError, OSError, ImportError) as error:  # the journal's part is done, and stays so
            log.warning("%s: what was erased may still be in it: %s", path, error)
            found = str(error)
        if found is not None:
            left.append(f"{path}: {found}")
    return left


def _kept_in(address: str, what: str) -> Path | None:
    """A store in memory has nothing beside it, and a rehearsal not even an address. A server's store has frames alone,
    if this user has a home for them."""
    if not address or address.endswith(":"):
        return None
    try:
        return frames_path(address) if what == FRAMES else beside(address, what) if has_files(address) else None
    except RuntimeError:  # nobody knows where this user's home is
        return None


def copies(address: str, sessions: Iterable[str]) -> list[Path]:
    """What onefold itself left beside a store that may hold what sessions said: the copy that a migration made, half a
    backup, and of plain files what was cut off their ends because it was not written whole."""
    if not address or not has_files(address):
        return []
    path = path_of(address)
    if not is_folder(address):
        return sorted(p for end in ("before-*", "part-*") for p in path.parent.glob(f"{escaped(path.name)}.{end}"))
    from onefold.journal.files.layout import folder_name, is_set_aside

    folders = [path / folder_name(session) for session in sessions]
    found = [p for folder in folders if folder.is_dir() for p in folder.iterdir() if is_set_aside(p.name)]
    return sorted([*found, *path.joinpath(OWN).glob("*.before-*")])


def removed(some: Iterable[Path]) -> list[Path]:
    """Removes files; those that are still there."""
    left = []
    for path in some:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", path, error)
            left.append(path)
    return left


def escaped(name: str) -> str:
    """A name as a pattern that only it matches."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
