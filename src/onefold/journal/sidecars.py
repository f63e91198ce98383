"""Erases from a store's sidecar files what was erased from its journal, and finds the copies that onefold left.

What is in those files belongs to packages above this one (the search index, the agents' frame log). So each is named
here with the module that can clean it, which is imported only where such a file exists.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from onefold.errors import OnefoldError
from onefold.journal.journal import Journal
from onefold.storage.locations import (
    FRAMES,
    OWN,
    SEARCH,
    escaped,
    frames_path,
    has_files,
    is_folder,
    path_of,
    sidecar_path,
)

log = logging.getLogger("onefold")

_CLEANERS = {SEARCH: "onefold.recall.index_erasure", FRAMES: "onefold.acp.frame_erasure"}


class Cleaner(Protocol):
    """What a module with a sidecar file offers."""

    def forget(self, journal: Journal, path: Path, sessions: Sequence[str], *, whole: bool) -> str | None:
        """Takes out of a file what the journal no longer has of some sessions, down to its bytes, and says in words why
        something of it may be left. `whole`: also where that takes long. It may be repeated."""


def forget(journal: Journal, sessions: Sequence[str], *, whole: bool = False) -> list[str]:
    """Has the sidecar files of a store forget what was erased or deleted in some sessions; what was not reached, in
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
    """A store in memory has nothing next to it, and a dry run not even an address. A server's store has frames alone,
    if this user has a home for them."""
    if not address or address.endswith(":"):
        return None
    try:
        return frames_path(address) if what == FRAMES else sidecar_path(address, what) if has_files(address) else None
    except RuntimeError:  # nobody knows where this user's home is
        return None


def copies(address: str, sessions: Iterable[str]) -> list[Path]:
    """What onefold itself left next to a store that may hold what sessions said: the copy that a migration made, half a
    backup, and of plain files what was cut off their ends because it was not written whole."""
    if not address or not has_files(address):
        return []
    path = path_of(address)
    if not is_folder(address):
        return sorted(p for end in ("before-*", "part-*") for p in path.parent.glob(f"{escaped(path.name)}.{end}"))
    from onefold.storage.jsonl.layout import folder_name, is_set_aside

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
