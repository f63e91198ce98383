"""Sessions as folders of JSON lines: who writes when, and what makes it durable.

The files are the truth, and SQLite has an index to them: every row that another store has, with the place of a line
where that has the body. Lines are on disk before the index says so, and whoever takes the lock after a writer that was
killed first brings the index up to date with what that left.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw
import orjson

from onefold.errors import OnefoldError, OutcomeUnknown, StoreDamaged, StoreError, StoreUnavailable
from onefold.journal.files import backups, erasing, layout, making
from onefold.journal.files.catching import Folder, catch_up
from onefold.journal.files.disk import Disk
from onefold.journal.files.lines import says_id, written
from onefold.journal.files.lock import StoreLock, Users
from onefold.journal.files.rows import Change, Deferred, FilesKnown, FilesTransaction, Place, Shifted, place
from onefold.journal.seam import Transaction
from onefold.journal.sqlite import backend as sqlite
from onefold.journal.sqlite.backend import MOST_STATES, PAGE_SIZE, Connect, SqliteBackend, connect
from onefold.journal.sqlite.engine import check_library
from onefold.journal.sqlite.line import Ticket
from onefold.model import Clock, Ids, random_id, system_clock

T = TypeVar("T")
log = logging.getLogger("onefold")

MOST_OPEN = 128
"""Files that are kept open to be written to."""
TRIES = 4
"""How often an operation is run again because a file was changed by hand meanwhile."""


class Behind(Exception):
    """The files of a session go on after what the index knows."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r}: its files change faster than they can be read; nothing was written")
        self.session = session


@dataclass(slots=True)
class OpenFile:
    """The file in force of a session, kept open to be written to."""

    fd: int
    base: int
    folder: str


class Group:
    """Operations that share a commit: all of them only add to the ends of files."""

    def __init__(self) -> None:
        self.done: list[tuple[Ticket, Any]] = []
        self.changes: dict[str, Change] = {}
        self.tx: FilesTransaction | None = None

    def take(self, ticket: Ticket, result: Any, tx: FilesTransaction) -> None:
        self.done.append((ticket, result))
        self.tx = tx
        for session, change in tx.changes.items():
            before = self.changes.setdefault(session, change)
            if before is not change:
                before.line = b""
                before.added += change.added
                before.fresh |= change.fresh


class FilesBackend(SqliteBackend):
    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Clock = system_clock,
        ids: Ids = random_id,
        connect: Connect = connect,
        disk: Disk | None = None,
        names: Ids = random_id,
    ) -> None:
        check_library()
        self._root = Path(path).absolute()
        self.address = f"{str(path).rstrip('/')}/"
        self._path = self._root / layout.OWN / layout.INDEX
        self._clock = clock
        self._ids = ids
        self._names = names
        self.connect = connect
        self._disk = disk or Disk()
        self._closed = False
        with self._translated():
            self.incarnation = making.prepare(self._disk, self._root, create=create, ids=ids, names=names)
            self._start()
            try:
                self._lock.check()
                self._open_index()
                self._look_over()
            except BaseException:
                self.close()
                raise
        sqlite._ours.add(self)

    def _start(self) -> None:
        super()._start()
        own = self._root / layout.OWN
        self._known: FilesKnown = FilesKnown()
        self._lock = StoreLock(own / layout.LOCK, own / layout.TURNS, f"{os.getpid()}-{self._names()}")
        self._users = Users(own / layout.USERS)
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._deleted_end = -1

    def _open_connection(self) -> apsw.Connection:
        connection = super()._open_connection()
        connection.execute("pragma synchronous = normal")  # the files are synced, and the index can be made anew
        return connection

    def close(self) -> None:
        if self._closed:
            return
        super().close()
        self._let_files_go()

    # ------------------------------------------------------------------ opening

    def _open_index(self) -> None:
        """Keeps the index from being replaced under this process, and makes it anew if it is not sound."""
        self._users.come()
        if making.is_sound(self.connect, self._path, self.incarnation):
            return
        self._users.go()
        self._lock.enter()
        try:
            if not making.is_sound(self.connect, self._path, self.incarnation):
                self._users.alone(self.address)
                log.info("store %s: its index is made from its files", self.address)
                making.build_index(self._disk, self._root, self.connect, self.incarnation, self._names)
                self._lock.note([])
            self._users.come()
        finally:
            self._lock.leave()

    def _look_over(self) -> None:
        """Compares every session's files with the index, and catches up where they differ. Only then is the lock taken:
        what others write meanwhile may look like a difference."""
        with self._reader() as connection:
            known = FilesTransaction(connection, 0.0, None, self._disk, self._root).run("meta", making.DELETED_END)
        self._deleted_end = int(known[0][0]) if known else 0
        if self._differences():
            with self._alone():
                for _ in range(TRIES):
                    if not (sessions := self._differences()):
                        return
                    self._catch_up(sessions)

    def _differences(self) -> list[str]:
        """Sessions whose files are not what the index says, by what can be seen without reading them whole."""
        with self._reader() as connection:
            tx = FilesTransaction(connection, 0.0, None, self._disk, self._root)
            known = {row[0]: row[1:] for row in tx.run("ends")}
            again = [session for session, _ in tx.run("damaged")]
        there = {name for name in self._disk.names(self._root) if not name.startswith(".")}
        found = [*again]
        for session, (_, id, body, head, _) in known.items():
            name = layout.folder_name(session)
            if name not in there or not self._is_same(session, f"{self._root}/{name}", id, body, head):
                found.append(session)
            there.discard(name)
        for folder in (Folder(self._disk, self._root / name, self._names) for name in sorted(there)):
            session_there = self._session_of(folder)
            if session_there is not None:
                found.append(session_there)
        if self._deleted_changed():
            found.append("")
        return [*dict.fromkeys(found)]

    def _session_of(self, folder: Folder) -> str | None:
        """Whose folder it is. One that was being removed may have lost what says so."""
        session = folder.session()
        if session is None and folder.listing() is not None:
            with self._reader() as connection:
                gone = FilesTransaction(connection, 0.0, None, self._disk, self._root).run("gone")
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
                return says_id(line, id) and self._disk.read_some(fd, len(hint) + 1) == hint
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
        """Whoever comes after another process looks whether that one finished what it wrote last."""
        left = self._lock.left()
        if left == [] and self._lock.is_ours:
            return
        self._forget()
        if left is None:
            left = self._differences()
        unfinished = [session for session in left if not self._finished(session)]
        still = self._catch_up(unfinished) if unfinished or self._deleted_changed() else []
        self._lock.note(still)
        if still:
            self._lock.doubt()

    def _finished(self, session: str) -> bool:
        with self._reader() as connection:
            tx = FilesTransaction(connection, 0.0, None, self._disk, self._root)
            rows = tx.run("end_of", session)
        if not rows:
            return not self._disk.exists(self._root / layout.folder_name(session))
        ((_, id, body, head),) = rows
        folder = f"{self._root}/{layout.folder_name(session)}"
        return self._disk.exists(folder) and self._is_same(session, folder, id, body, head)

    def _catch_up(self, sessions: Sequence[str], *, anew: bool = False) -> list[str]:
        """Brings the index up to date with the files of some sessions. Inside the lock. Gives those in which what was
        erased is still in files: the disk is full, or fails."""
        self._let_go_of_files()
        connection = self._begin()
        self._known.clear()
        tx = self._transaction(Deferred(connection, begun=True))
        done: list[Path] = []
        still: list[str] = []
        try:
            _, end = making.take_deleted(self._disk, self._root, tx)
            self._make_sure_of_deleted(end)
            for session in sessions:
                folder = self._folder(session)
                if tx.deleted(session) == session:
                    self._bury(folder)
                elif session:
                    intended, finished = erasing.intentions(folder), erasing.finish(folder, self._names)
                    done += finished
                    still += [session] if len(finished) < len(intended) else []
                    catch_up(tx, folder, session, anew=anew or bool(intended))
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
            making.sync_index(self._disk, self._root)
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

    def _bury(self, folder: Folder) -> bool:
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

    # ------------------------------------------------------------------ reading

    def read(self, work: Callable[[Transaction], T]) -> T:
        try:
            return self._read(work, sure=False)
        except Shifted:
            # A file was written anew since this view of the index, or is being: once more, while nobody writes.
            with self._writing, self._alone():
                return self._read(work, sure=True)

    def _read(self, work: Callable[[Transaction], T], *, sure: bool) -> T:
        self._check_open()
        with self._translated(), self._reader() as connection:
            tx = FilesTransaction(connection, self._clock(), None, self._disk, self._root, sure=sure)
            connection.execute("begin")
            try:
                return work(tx)
            finally:
                tx.close()
                if connection.in_transaction:
                    connection.execute("commit")

    # ------------------------------------------------------------------ writing

    def _run_batch(self, batch: list[Ticket]) -> None:
        """Runs a batch in as few commits as there can be. Settles every ticket, unless this thread is interrupted."""
        with self._writing:
            try:
                self._check_open()
                self._lock.enter()
            except OnefoldError as error:
                self._refuse(batch, error)
                return
            try:
                self._settle_left()
                if len(batch) == 1:
                    self._run_one(batch[0])
                else:
                    self._run_many(deque(batch))
            except (apsw.Error, OnefoldError, OSError) as error:
                self._roll_back()
                for ticket in batch:
                    if not ticket.done:
                        ticket.settle(error=self._translate(error))
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._lock.leave()
        self._watch.changed()

    def _run_one(self, ticket: Ticket) -> None:
        """One operation in a commit of its own."""
        for tries in range(1, TRIES + 1):
            tx = self._transaction(self._deferred())
            try:
                result = ticket.work(tx)
                self._commit(tx, ticket, result)
            except Behind as behind:
                self._roll_back()
                if tries == TRIES:
                    raise StoreUnavailable(str(behind)) from behind
                self._catch_up([behind.session])
                continue
            except Exception as error:
                self._roll_back()
                if not ticket.done:
                    ticket.settle(error=self._translate(error))
            finally:
                tx.close()
            return

    def _deferred(self) -> Deferred:
        """The connection to write with. What is known still holds if nobody else had the lock since."""
        writer = self._writer
        if writer is None or self._seen is None or writer.in_transaction or len(self._known.states) >= MOST_STATES:
            writer = self._begin()
            self._seen = writer.data_version()
            return Deferred(writer, begun=True)
        return Deferred(writer, begun=False)

    def _run_many(self, waiting: deque[Ticket]) -> None:
        while waiting:
            group = self._gather(waiting)
            if group.tx is not None and self._committed_together(group):
                continue
            self._roll_back()
            for ticket, _ in group.done:  # each one alone, so that none fails another
                self._run_one(ticket)
            if not group.done and waiting:
                self._run_one(waiting.popleft())

    def _committed_together(self, group: Group) -> bool:
        assert group.tx is not None
        try:
            self._commit_plain(group.tx, group.changes, lambda: self._answer_all(group))
        except OutcomeUnknown as error:
            for ticket, _ in group.done:
                ticket.settle(error=error)
        except (apsw.Error, OSError, OnefoldError, Behind):
            return False
        finally:
            group.tx.close()
        return True

    def _answer_all(self, group: Group) -> None:
        for ticket, result in group.done:
            ticket.settle(result)

    def _gather(self, waiting: deque[Ticket]) -> Group:
        """Runs operations one after another, each of which can be taken back alone, up to one that does more than add
        to the end of a file: that needs a commit of its own."""
        connection = self._begin()
        group = Group()
        while waiting:
            ticket = waiting[0]
            tx = self._transaction(Deferred(connection, begun=True), self._known.copy(), group.changes)
            connection.execute("savepoint operation")
            try:
                result = ticket.work(tx)
                plain = all(change.plain for change in tx.changes.values())
            except Exception as error:
                self._take_back(connection)
                if not connection.in_transaction:
                    return group
                waiting.popleft()
                ticket.settle(error=self._translate(error))
                continue
            finally:
                tx.close()
            if not plain:
                self._take_back(connection)
                return group
            connection.execute("release operation")
            waiting.popleft()
            self._known = tx.known
            group.take(ticket, result, tx)
        return group

    def _commit(self, tx: FilesTransaction, ticket: Ticket, result: Any) -> None:
        changes = tx.changes
        self._log_pages += 1 + ticket.size // PAGE_SIZE
        if len(changes) == 1:
            ((session, change),) = changes.items()
            if change.line and len(change.added) == 1 and change.plain:
                self._commit_line(tx, session, change, ticket, result)
                return
        for change in changes.values():
            if not change.plain:
                self._commit_apart(tx, ticket, result)
                return
        self._commit_plain(tx, changes, lambda: ticket.settle(result))

    def _commit_line(
        self, tx: FilesTransaction, session: str, change: Change, ticket: Ticket, result: Any
    ) -> None:  # fmt: skip
        """The same as `_commit_plain` for one line, which is the usual case: in as few steps as can be, since after a
        wait for the disk each of them is slow."""
        assert change.ends is not None
        base, end = change.ends
        file = self._file(tx, session, change)
        self._lock.note([session])
        committing = False
        try:
            self._disk.write(file.fd, change.line, end)
            self._disk.fdatasync(file.fd)
            committing = True
            tx.index.commit()
            self._known.ends[session] = (base, end + len(change.line))
            ticket.settle(result)
        except BaseException as error:
            if tx.index.done:
                ticket.settle(result)  # interrupted after it was done
                self._forget()
                raise
            self._take_lines_back([(file, end)], [session], error, unclear=committing)
            raise

    def _commit_plain(self, tx: FilesTransaction, changes: dict[str, Change], answer: Callable[[], None]) -> None:
        """Adds lines to the ends of files, one write and one sync for each, and then says so in the index."""
        connection = tx.index
        texts = []
        for session, change in changes.items():
            file = self._file(tx, session, change)
            texts.append((session, file, change, self._lines(tx, session, change)))
        if changes:
            self._lock.note([*changes])
        begun: list[tuple[OpenFile, int]] = []
        committing = False
        disk = self._disk
        try:
            for _, file, change, text in texts:
                assert change.ends is not None
                begun.append((file, change.ends[1]))
                disk.write(file.fd, text, change.ends[1])
                disk.fdatasync(file.fd)
            committing = True
            connection.commit()
            for session, _, change, text in texts:
                assert change.ends is not None
                self._known.ends[session] = (change.ends[0], change.ends[1] + len(text))
            answer()
        except BaseException as error:
            if connection.done:
                answer()  # interrupted after it was done
                self._forget()
                raise
            self._take_lines_back(begun, [s for s, *_ in texts], error, unclear=committing)
            raise

    def _take_lines_back(
        self, begun: list[tuple[OpenFile, int]], sessions: list[str], error: BaseException, *, unclear: bool
    ) -> None:  # fmt: skip
        """After a write that failed: files as they were before. Where that fails too, nobody can say what is there, and
        whoever is next looks."""
        self._lock.doubt()
        try:
            if unclear:
                self._discard_writer()
            self._roll_back()
            for file, end in begun:
                self._disk.truncate(file.fd, end)
                self._disk.fdatasync(file.fd)
            if unclear:
                self._catch_up(sessions, anew=True)
        except (OSError, apsw.Error, OnefoldError) as second:
            self._let_go_of_files()
            raise OutcomeUnknown(
                f"{self.address}: the disk failed during a write ({error}), and again when that was taken back "
                f"({second}), so it cannot be told whether it was written. Check the disk, then repeat the same call "
                "with the same key"
            ) from error
        self._lock.note([])

    def _lines(self, tx: FilesTransaction, session: str, change: Change) -> bytes:
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
            tx.put_place(session, record.number, Place(base, end, len(line)))
            lines.append(line)
            end += len(line)
        return b"".join(lines)

    def _file(self, tx: FilesTransaction, session: str, change: Change, head: int | None = None) -> OpenFile:
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
        if not there.st_nlink:  # it was written anew without what was erased
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

    def _open_file(self, session: str, base: int) -> OpenFile:
        old = self._files.pop(session, None)
        if old is not None:
            self._disk.close(old.fd)
        folder = self._root / layout.folder_name(session)
        path = folder / layout.file_name(base)
        try:
            fd = self._disk.open_append(path)
        except FileNotFoundError:
            raise Behind(session) from None
        file = self._files[session] = OpenFile(fd, base, str(folder))
        while len(self._files) > MOST_OPEN:
            self._disk.close(self._files.popitem(last=False)[1].fd)
        return file

    # ------------------------------------------------------------------ writing what opens, erases or deletes

    def _commit_apart(self, tx: FilesTransaction, ticket: Ticket, result: Any) -> None:
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
        self, tx: FilesTransaction, session: str, change: Change, ticket: Ticket, result: Any
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
                intention = erasing.intend(folder, change, self._names)
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
                making.sync_index(self._disk, self._root)
                self._clear(intention)
            elif change.rewritten:
                self._lock.doubt()  # whoever is next finishes it
        except BaseException as error:
            self._go_through(session, ticket, result, error)
            if not isinstance(error, Exception):
                raise
            return
        self._known.ends[session] = (change.opens, len(text))
        ticket.settle(result)
        self._hint(folder, session, change, tx)

    def _erase(self, tx: FilesTransaction, session: str, folder: Folder, change: Change) -> bool:
        """Writes files anew without what was erased, and says in the index where their lines are now. False if that
        could not be done: it is done later, since the intention stays."""
        new = [written(record, data) for record, data in change.rewritten.values()]
        done = True
        try:
            changed = [*erasing.replace_lines(folder, new, self._names)]
        except OSError as error:
            log.warning("%s: what was erased is still in its files: %s", folder.path, error)
            changed, done = folder.bases(), False  # nobody can say which
        for base in changed:
            for number, at in erasing.places(folder, base):
                tx.put_place(session, number, at)
        return done

    def _hint(self, folder: Folder, session: str, change: Change, tx: FilesTransaction) -> None:
        state = tx.session(session)
        try:
            if state is not None and change.opens is not None:
                folder.write_head(session, change.opens, state.head)
        except OSError as error:
            log.warning("%s: its head.json could not be written: %s", folder.path, error)

    def _delete(
        self, tx: FilesTransaction, session: str, change: Change, ticket: Ticket, result: Any
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
            tx.run("put_meta", making.DELETED_END, str(end + len(line)))
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
            self._lock.doubt()
            raise OutcomeUnknown(
                f"session {session!r}: the disk failed while it was deleted ({error}), and again when that was taken "
                f"back ({second}), so it cannot be told whether it is. Check the disk, then delete it again"
            ) from error

    def _finish(self, tx: FilesTransaction) -> None:
        self._log_pages += 10
        tx.index.commit()

    def _go_through(self, session: str, ticket: Ticket, result: Any, error: BaseException) -> None:
        """Something failed after the commit. What was written stands: the index is brought up to date with it, or, if
        that cannot be done now, nobody can say how it ended."""
        self._lock.doubt()
        self._discard_writer()
        ticket.settle(
            error=OutcomeUnknown(
                f"session {session!r}: the disk failed after a write ({error}), and it cannot be told yet whether it "
                "will stand. Check the disk, then repeat the same call with the same key"
            )
        )
        try:
            self._catch_up([session], anew=True)
        except (OSError, apsw.Error, OnefoldError) as second:
            log.warning("session %r: its index could not be brought up to date: %s", session, second)
        else:
            ticket.settle(result)

    def _clear(self, *left: Path | None) -> None:
        """Takes away what was made for a commit that did not happen."""
        for path in left:
            if path is not None:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(path)

    # ------------------------------------------------------------------ the store as a whole

    def examine(self, fix: bool) -> list[tuple[str, str, bool]]:
        found = super().examine(fix)
        with self._writing, self._alone():
            self._catch_up(self._differences())
            with self._reader() as connection:
                tx = FilesTransaction(connection, 0.0, None, self._disk, self._root)
                found += [
                    (f"session {session!r}: {layout.folder_name(session)}/{why}", "files as they were written", False)
                    for session, why in tx.run("damaged")
                ]
        return found

    def scrub(self, *, whole: bool = False) -> bool:
        self._check_open()
        try:
            with self._writing, self._alone():
                folders = making.folders(self._disk, self._root, self._names)
                left = [folder for folder in folders if self._to_erase(folder)]
        except OSError as error:
            log.warning("store %s: what was erased may still be in its files: %s", self.address, error)
            return False
        return super().scrub(whole=whole) and not left

    def _to_erase(self, folder: Folder) -> bool:
        """Finishes what was begun in a folder; True if that could not be done."""
        session = self._session_of(folder)
        if session is None:
            return False
        with self._reader() as connection:
            gone = FilesTransaction(connection, 0.0, None, self._disk, self._root).deleted(session) == session
        if gone:
            return not self._bury(folder)
        if erasing.intentions(folder):
            self._catch_up([session], anew=True)
        return bool(erasing.intentions(folder))

    def backup(self, path: str, incarnation: str, progress: Callable[[int, int], None] | None) -> None:
        self._check_open()
        source = backups.Source(self._disk, self._root, self._names, self._snapshot)
        backups.backup(source, Path(path), incarnation, progress)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[FilesTransaction]:
        """One view of the index while nobody writes: what it says is in the files."""
        with self._writing, self._alone(), self._translated(), self._reader() as connection:
            tx = FilesTransaction(connection, 0.0, None, self._disk, self._root)
            connection.execute("begin")
            try:
                yield tx
            finally:
                tx.close()
                connection.execute("commit")

    # ------------------------------------------------------------------ small parts

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes inside, and what somebody left is settled before."""
        self._check_open()
        self._lock.enter()
        try:
            self._settle_left()
            yield
        finally:
            self._lock.leave()

    def _transaction(
        self, index: Deferred, known: FilesKnown | None = None, earlier: dict[str, Change] | None = None
    ) -> FilesTransaction:  # fmt: skip
        return FilesTransaction(index, self._clock(), known or self._known, self._disk, self._root, earlier=earlier)

    def _folder(self, session: str) -> Folder:
        return Folder(self._disk, self._root / layout.folder_name(session), self._names)

    def _let_go_of_files(self) -> None:
        while self._files:
            self._disk.close(self._files.popitem()[1].fd)

    def _let_files_go(self) -> None:
        self._let_go_of_files()
        self._lock.close()
        self._users.close()

    def _begin_anew(self) -> None:
        self._let_files_go()
        super()._begin_anew()
        if not self._closed:
            self._users.come()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self._translate(error) from error

    def _translate(self, error: BaseException) -> BaseException:
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return StoreDamaged(
                f"store {self.address}: its index is damaged ({error}). Nothing of the sessions is lost: close the "
                f"store everywhere and remove {self._path}, and it is made anew"
            )
        if not isinstance(error, OSError):
            return super()._translate(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(
                f"store {self.address}: the disk is full; nothing was written. Free some space and try again"
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return StoreUnavailable(
                f"store {self.address}: {error.filename or 'a file'} may not be read or written; nothing was written. "
                "Look at its permissions"
            )
        return StoreUnavailable(
            f"store {self.address}: the disk failed ({error}); nothing was written. Check the disk, then try again"
        )
