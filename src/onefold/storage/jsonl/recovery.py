"""Comparing files with the index, and bringing that up to date: when a store is opened, and after another process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from onefold.storage.jsonl import creation, file_erasure, layout
from onefold.storage.jsonl.core import FilesCore
from onefold.storage.jsonl.reindex import SessionFolder, reindex
from onefold.storage.jsonl.transaction import place

log = logging.getLogger("onefold")

TRIES = 4
"""How often something is tried again because a file was changed by hand meanwhile."""


class Settling(FilesCore):
    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes inside; what somebody left is settled before, and the index is level with the files."""
        self._check_open()
        ours = self._lock.enter()
        try:
            if not ours:
                self._settle_left()
            self._flush()
            yield
        finally:
            self._lock.leave()

    # ------------------------------------------------------------------ opening

    def _open_index(self) -> None:
        """Keeps the index from being replaced under this process, and rebuilds it if it is not sound."""
        self._users.come()
        if creation.is_sound(self.connect, self._path, self.generation):
            return
        self._users.go()
        self._lock.enter()
        try:
            if not creation.is_sound(self.connect, self._path, self.generation):
                self._users.alone(self.address)
                creation.raise_format(self._disk, self._root, self._names)
                log.info("store %s: its index is made from its files", self.address)
                creation.build_index(self._disk, self._root, self.connect, self.generation, self._names)
                self._lock.note([])
            self._users.come()
        finally:
            self._lock.leave()

    def _look_over(self) -> None:
        """Compares every session's files with the index, and catches up where they differ. Only then is the lock taken:
        what others write meanwhile may look like a difference."""
        with self._readers.one() as connection:
            known = self._view(connection).run("meta", creation.DELETED_END)
        self._deleted_end = int(known[0][0]) if known else 0
        if self._differences():
            with self._alone():
                before: list[str] = []
                for _ in range(TRIES):
                    sessions = self._differences()
                    if not sessions or sessions == before:  # what is damaged stays different
                        return
                    self._catch_up(sessions)
                    before = sessions

    def _differences(self) -> list[str]:
        """Sessions whose files are not what the index says, by what can be seen without reading them whole."""
        with self._readers.one() as connection:
            tx = self._view(connection)
            known = {row[0]: row[1:] for row in tx.run("ends")}
            again = [session for session, _ in tx.run("damaged")]
        there = {name for name in self._disk.names(self._root) if not name.startswith(".")}
        found = [*again]
        for session, (_, id, body, head, _) in known.items():
            name = layout.folder_name(session)
            if name not in there or not self._is_same(session, f"{self._root}/{name}", id, body, head):
                found.append(session)
            there.discard(name)
        for folder in (SessionFolder(self._disk, self._root / name, self._names) for name in sorted(there)):
            session_there = self._session_of(folder)
            if session_there is not None:
                found.append(session_there)
        if self._deleted_changed():
            found.append("")
        return [*dict.fromkeys(found)]

    def _session_of(self, folder: SessionFolder) -> str | None:
        """Whose folder it is. One that was being removed may have lost what says so."""
        session = folder.session()
        if session is None and folder.listing() is not None:
            with self._readers.one() as connection:
                gone = self._view(connection).run("gone")
            return next((id for (id,) in gone if layout.folder_name(id) == folder.path.name), None)
        return session

    def _is_same(self, session: str, folder: str, id: str | None, body: str | None, head: int | None) -> bool:
        """Whether a session's folder is as the index says: the newest file, its end and last record, the hint, and
        nothing left over."""
        if id is None or not body or head is None:
            return False
        at = place(body)
        name = layout.file_name(at.base)
        names = self._disk.names(folder)
        if len(names) != 2 or name not in names:  # else it is the first file and the hint
            bases = [base for other in names if (base := layout.base_of(other)) is not None]
            if not bases or max(bases) != at.base or any(layout.is_leftover(other) for other in names):
                return False
        try:
            fd = self._disk.open(f"{folder}/{name}")
            try:
                if self._disk.size(fd) != at.end:
                    return False
                line = self._disk.read(fd, at.length, at.offset)
            finally:
                self._disk.close(fd)
            hint = layout.head_json(session, at.base, head)
            fd = self._disk.open(f"{folder}/{layout.HEAD}")
            try:
                return crc32(line) == at.check and self._disk.read_some(fd, len(hint) + 1) == hint
            finally:
                self._disk.close(fd)
        except FileNotFoundError:
            return False

    def _deleted_changed(self) -> bool:
        try:
            size = self._disk.stat(self._root / layout.OWN / layout.DELETED).st_size
        except FileNotFoundError:
            size = 0
        return size != self._deleted_end

    # ------------------------------------------------------------------ catching up

    def _settle_left(self) -> None:
        """Whoever comes after another process looks whether that one finished what it wrote last. What waited here for
        the index is in it by now, or in what is looked at."""
        self._lag.clear()
        self._lag.quiet = 0
        self._forget()
        left = self._lock.left()
        if left is None:
            left = self._differences()
        unfinished = [session for session in left if not self._finished(session)]
        still: list[str] = []
        if unfinished or self._deleted_changed():
            self._lock.note(left)  # by this process: who was before it knows that the index is not as it left it
            self._lock.doubt()
            still = self._catch_up(unfinished)
        self._lag.byte[0] = 0
        self._lock.note(still)
        if still:
            self._lock.doubt()

    def _finished(self, session: str) -> bool:
        with self._readers.one() as connection:
            tx = self._view(connection)
            rows = tx.run("end_of", session)
        if not rows:
            return not self._disk.exists(self._root / layout.folder_name(session))
        ((_, id, body, head),) = rows
        folder = f"{self._root}/{layout.folder_name(session)}"
        return self._disk.exists(folder) and self._is_same(session, folder, id, body, head)

    def _catch_up(self, sessions: Sequence[str], *, rebuild: bool = False) -> list[str]:
        """Brings the index up to date with the files of some sessions. Inside the lock. Gives those in which what was
        erased is still in files: the disk is full, or fails."""
        self._let_go_of_files()
        connection = self._begin()
        self._known.clear()
        tx = self._transaction(connection)
        done: list[Path] = []
        still: list[str] = []
        try:
            _, end = creation.take_deleted(self._disk, self._root, tx)
            self._make_sure_of_deleted(end)
            for session in sessions:
                folder = self._folder(session)
                if tx.deleted(session) == session:
                    self._bury(folder)
                elif session:
                    intended, finished = file_erasure.intentions(folder), file_erasure.finish(folder, self._names)
                    done += finished
                    still += [session] if len(finished) < len(intended) else []
                    reindex(tx, folder, session, rebuild=rebuild or bool(intended))
            self._disk.fsync_folder(self._root)
            connection.execute("commit")
        except BaseException:
            self._roll_back()
            raise
        finally:
            tx.close()
        self._known.clear()
        self._deleted_end = end
        if done:
            creation.sync_index(self._disk, self._root)
            self._clear(*done)
        return still

    def _make_sure_of_deleted(self, end: int) -> None:
        """Syncs the list of deleted sessions before anybody is told of what was found in it. A torn line is taken off:
        nobody was told that it was written."""
        own = self._root / layout.OWN
        path = own / layout.DELETED
        if self._deleted_changed() and self._disk.exists(path):
            fd = self._disk.open_append(path)
            try:
                if self._disk.size(fd) > end:
                    self._disk.truncate(fd, end)
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
            self._disk.fsync_folder(own)

    def _bury(self, folder: SessionFolder) -> bool:
        """Removes the files of a session that was deleted. True if none is left."""
        try:
            for name in folder.listing() or ():
                self._disk.unlink(folder.path / name)
            if folder.listing() is not None:
                self._disk.rmdir(folder.path)
                self._disk.fsync_folder(self._root)
        except OSError as error:
            log.warning("%s: its session was deleted, and it could not be removed yet: %s", folder.path, error)
            return False
        return True

    def _clear(self, *left: Path | None) -> None:
        """Takes away what was made for a commit that did not happen."""
        for path in left:
            if path is not None:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(path)
