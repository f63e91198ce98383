"""Detects which program's store is at a path, and of which version: by its content, never by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw

from onefold.errors import StoreError
from onefold.foreign import hermes, opencode, openviking
from onefold.foreign.readonly import sqlite_store
from onefold.foreign.repair import DatabaseProgram, FolderProgram
from onefold.storage.locations import is_store
from onefold.storage.sqlite.path_checks import APPLICATION

DATABASES: tuple[DatabaseProgram, ...] = (hermes, opencode)
FOLDERS: tuple[FolderProgram, ...] = (openviking,)


@dataclass(frozen=True)
class ForeignStore:
    """A store that was recognised. Without a program it is one of onefold's own."""

    path: Path
    program: DatabaseProgram | FolderProgram | None
    version: str
    database: DatabaseProgram | None = None
    folder: FolderProgram | None = None

    @property
    def name(self) -> str:
        return "onefold" if self.program is None else self.program.name


def store_at(path: Path) -> ForeignStore:
    """What is at a path. Raises StoreError if there is nothing, or nothing that is known."""
    try:
        if path.is_dir():
            return _folder(path)
        if path.is_file():
            return _database(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}; look at its rights") from error
    raise StoreError(f"there is no store at {path}; check the path")


def _folder(path: Path) -> ForeignStore:
    if is_store(path):
        return ForeignStore(path, None, "plain files")
    for program in FOLDERS:
        version = program.recognises(path)
        if version is not None:
            return ForeignStore(path, program, version, folder=program)
    raise StoreError(f"{path} is a folder in which no program is recognised; {_KNOWN}")


def _database(path: Path) -> ForeignStore:
    with sqlite_store(path) as sight:
        try:
            if sight.connection.pragma("application_id") == APPLICATION:
                return ForeignStore(path, None, f"schema {sight.connection.pragma('user_version')}")
            for program in DATABASES:
                version = program.recognises(sight.connection)
                if version is not None:
                    return ForeignStore(path, program, version, database=program)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreError(f"{path} is damaged: {error}; restore a backup. It was left as it is") from error
    raise StoreError(f"{path} is a database in which no program is recognised; {_KNOWN}")


_KNOWN = (
    "known are the state.db of Hermes Agent, the opencode.db of OpenCode, sessions and workspaces of OpenViking, and "
    "stores of onefold. It was left as it is"
)
