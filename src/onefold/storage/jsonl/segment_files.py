"""Writing what opens a segment, erases or deletes: a file of its own for each, and the name of that is the commit."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import apsw
import orjson

from onefold.errors import OnefoldError, OutcomeUnknown, StoreDamaged, StoreError
from onefold.storage.jsonl import creation, file_erasure, layout
from onefold.storage.jsonl.core import Behind, OpenFile
from onefold.storage.jsonl.record_lines import written
from onefold.storage.jsonl.recovery import Settling
from onefold.storage.jsonl.reindex import SessionFolder
from onefold.storage.jsonl.transaction import FilesTransaction, LineChange, LinePosition
from onefold.storage.sqlite.group_commit import PendingWrite

log = logging.getLogger("onefold")


class Segments(Settling):
    def _commit_apart(self, tx: FilesTransaction, ticket: PendingWrite, result: Any) -> None:
        if len(tx.changes) != 1:
            raise StoreError(f"{self.address}: one transaction changed the segments of several sessions: a bug")
        ((session, change),) = tx.changes.items()
        if session not in self._known.sound:
            self._check_sound(tx, session)
        self._lock.note([session])
        if change.wiped:
            self._delete(tx, session, change, ticket, result)
        else:
            self._open_segment(tx, session, change, ticket, result)

    def _open_segment(
        self, tx: FilesTransaction, session: str, change: LineChange, ticket: PendingWrite, result: Any
    ) -> None:  # fmt: skip
        """A new file with all of a transaction's lines. Its link is the commit: a second one to the same name fails."""
        if change.opens is None:
            raise StoreError(f"session {session!r}: content was erased without a new segment: a bug")
        folder = self._folder(session)
        if change.ends is not None:
            self._file(tx, session, change, change.opens)
        text = self._lines(tx, session, change)
        beside = folder.path / f".new-{self._names()}"
        intention: Path | None = None
        try:
            if change.ends is None:
                with contextlib.suppress(FileExistsError):
                    self._disk.mkdir(folder.path)
            if change.rewritten:
                intention = file_erasure.intend(folder, change, self._names)
            self._disk.write_new(beside, text)
            self._disk.link(beside, folder.path / layout.file_name(change.opens))
        except BaseException as error:
            self._clear(beside, intention)
            if isinstance(error, FileExistsError):
                raise Behind(session) from None
            raise
        try:
            self._disk.fsync_folder(folder.path)
            if change.ends is None:
                self._disk.fsync_folder(self._root)
            self._disk.unlink(beside)
            done = change.rewritten and self._erase(tx, session, folder, change)
            self._finish(tx)
            if done:  # and not before: where lines are now, the index surely has only then
                creation.sync_index(self._disk, self._root)
                self._clear(intention)
            elif change.rewritten:
                self._doubt()  # whoever is next finishes it
        except BaseException as error:
            self._go_through(session, ticket, result, error)
            if not isinstance(error, Exception):
                raise
            return
        self._known.ends[session] = (change.opens, len(text))
        ticket.settle(result)
        self._hint(folder, session, change, tx)

    def _erase(self, tx: FilesTransaction, session: str, folder: SessionFolder, change: LineChange) -> bool:
        """Rewrites files without what was erased, and says in the index where their lines are now. False if that
        could not be done: it is done later, since the intention stays."""
        new = [written(record, data) for record, data in change.rewritten.values()]
        done = True
        try:
            changed = [*file_erasure.replace_lines(folder, new, self._names)]
        except OSError as error:
            log.warning("%s: what was erased is still in its files: %s", folder.path, error)
            changed, done = folder.bases(), False  # nobody can say which
        for base in changed:
            for number, at in file_erasure.places(folder, base):
                tx.put_place(session, number, at)
        return done

    def _hint(self, folder: SessionFolder, session: str, change: LineChange, tx: FilesTransaction) -> None:
        state = tx.session(session)
        try:
            if state is not None and change.opens is not None:
                folder.write_head(session, change.opens, state.head)
        except OSError as error:
            log.warning("%s: its head.json could not be written: %s", folder.path, error)

    def _delete(
        self, tx: FilesTransaction, session: str, change: LineChange, ticket: PendingWrite, result: Any
    ) -> None:  # fmt: skip
        """One more line in the list of deleted sessions is the commit; the files go after it."""
        own = self._root / layout.OWN
        path = own / layout.DELETED
        new = not self._disk.exists(path)
        line = orjson.dumps({"session": session, "ids": list(change.wiped), "at": tx.now}) + b"\n"
        fd = self._disk.create(path) if new else self._disk.open_append(path)
        try:
            end = self._disk.size(fd)
            try:
                self._disk.write(fd, line, end)
                self._disk.fsync(fd)
                self._disk.fsync_folder(own)
            except BaseException as error:
                self._take_deletion_back(fd, end, session, error)
                raise
        finally:
            self._disk.close(fd)
        try:
            tx.run("put_meta", creation.DELETED_END, str(end + len(line)))
            self._finish(tx)
        except BaseException as error:
            self._go_through(session, ticket, result, error)
            if not isinstance(error, Exception):
                raise
            return
        self._deleted_end = end + len(line)
        self._let_go_of_files()
        ticket.settle(result)
        self._bury(self._folder(session))

    def _take_deletion_back(self, fd: int, end: int, session: str, error: BaseException) -> None:
        try:
            self._disk.truncate(fd, end)
            self._disk.fsync(fd)
        except OSError as second:
            self._doubt()
            raise OutcomeUnknown(
                f"session {session!r}: the disk failed while it was deleted ({error}), and again when that was taken "
                f"back ({second}), so it cannot be told whether it is. Check the disk, then delete it again"
            ) from error

    def _finish(self, tx: FilesTransaction) -> None:
        self._log_pages += 10
        tx.index.commit()

    def _go_through(self, session: str, ticket: PendingWrite, result: Any, error: BaseException) -> None:
        """Something failed after the commit. What was written stands: the index is brought up to date with it, or, if
        that cannot be done now, nobody can say how it ended."""
        self._doubt()
        self._discard_writer()
        ticket.settle(
            error=OutcomeUnknown(
                f"session {session!r}: the disk failed after a write ({error}), and it cannot be told yet whether it "
                "will stand. Check the disk, then repeat the same call with the same key"
            )
        )
        try:
            self._catch_up([session], rebuild=True)
        except (OSError, apsw.Error, OnefoldError) as second:
            log.warning("session %r: its index could not be brought up to date: %s", session, second)
        else:
            ticket.settle(result)

    # ------------------------------------------------------------------ files, and the lines for them

    def _file(self, tx: FilesTransaction, session: str, change: LineChange, head: int | None = None) -> OpenFile:
        """The file in force of a session, which has to end where the index says, and to be the newest."""
        if session not in self._known.sound:
            self._check_sound(tx, session)
        if change.ends is None:
            raise StoreDamaged(f"session {session!r} has no file; run `onefold verify --fix`")
        base, end = change.ends
        file = self._files.get(session)
        if file is None or file.base != base:
            file = self._open_file(session, base)
        there = self._disk.state(file.fd)
        if not there.st_nlink:  # it was rewritten without what was erased
            file = self._open_file(session, base)
            there = self._disk.state(file.fd)
        if head is None:
            state = tx.session(session)
            head = state.head if state is not None else 0
        if there.st_size != end or self._disk.exists(f"{file.folder}/{head:010}.jsonl"):
            raise Behind(session)
        return file

    def _check_sound(self, tx: FilesTransaction, session: str) -> None:
        damage = tx.run("damage_of", session)
        if damage:
            raise StoreDamaged(
                f"session {session!r}: {damage[0][0]}. Nothing was written. Mend the file in "
                f"{self._root / layout.folder_name(session)}, or restore a backup, and open the store again"
            )
        self._known.sound.add(session)

    def _lines(self, tx: FilesTransaction, session: str, change: LineChange) -> bytes:
        """The text of what a change adds, with the places of its lines put right in the index."""
        if change.line and len(change.added) == 1 and change.opens is None:
            return change.line
        new = change.opens is not None
        base, end = (change.opens or 0, 0) if new or change.ends is None else change.ends
        lines: list[bytes] = []
        more = len(change.added)
        for record, data in change.added:
            more -= 1
            line = written(record, data, more=more, session=session if new and not lines else None)
            tx.put_place(session, record.number, LinePosition.of(base, end, line))
            lines.append(line)
            end += len(line)
        return b"".join(lines)
