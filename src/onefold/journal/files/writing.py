"""Adding lines to the ends of files: who writes when, and what makes it durable.

Lines are on disk before the index says so, and before anybody is told.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import apsw

from onefold.errors import OnefoldError, OutcomeUnknown, StoreUnavailable
from onefold.journal.files.core import Behind, OpenFile
from onefold.journal.files.lag import MOST_ROWS, QUIET
from onefold.journal.files.rows import Change, FilesTransaction
from onefold.journal.files.segments import Segments
from onefold.journal.files.settling import TRIES
from onefold.journal.sqlite.backend import MOST_STATES, PAGE_SIZE
from onefold.journal.sqlite.line import Ticket

log = logging.getLogger("onefold")

MOST_NOTED = 16
"""So many sessions are named together: whoever comes after a killed process looks at each."""


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


class Writing(Segments):
    def _run_batch(self, batch: list[Ticket]) -> None:
        """Runs a batch in as few commits as there can be. Settles every ticket, unless this thread is interrupted."""
        with self._writing:
            try:
                if self._closed:
                    self._check_open()
                ours = self._lock.enter()
            except OnefoldError as error:
                self._refuse(batch, error)
                return
            try:
                if not ours:
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
            if not self._lock.own:
                self._settle_left()  # what the one before left in doubt
            tx = self._kept
            if self._seen is None or tx is None or tx.known is not self._known or len(tx.known.states) >= MOST_STATES:
                tx = self._begun()
                index = tx.index
            else:  # what is known holds: nobody else had the lock since
                index = tx.index
                index.begun, index.waiting, index.done = False, None, False
                tx.now, tx.changes = self._clock(), {}
            try:
                result = ticket.work(tx)
                if index.waiting is not None and not index.begun:
                    self._add_line(tx, index.waiting, ticket, result)
                else:
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
                if tx.open:
                    tx.close()
            return

    def _begun(self) -> FilesTransaction:
        """One in which what was known before is looked up again. Those after it that add a line alone use it too, since
        to make one for each would be a slow part of an append."""
        writer = self._begin()
        self._seen = writer.data_version()
        self._kept = self._transaction(writer)
        return self._kept

    def _add_line(self, tx: FilesTransaction, row: tuple[Any, ...], ticket: Ticket, result: Any) -> None:
        """One line at the end of a file, and nothing else: the usual case, in as few steps as can be, since after a
        wait for the disk each of them is slow. Once it is synced it stands, whatever becomes of its row in the index:
        that waits for others, or, if it is not there when somebody looks, is made from the file."""
        (change,) = tx.changes.values()
        session, lag, disk = change.session, self._lag, self._disk
        file = self._files.get(session)
        if file is None or change.ends is None or file.base != change.ends[0] or session not in self._known.sound:
            self._commit(tx, ticket, result)
            return
        base, end = change.ends
        there = disk.state(file.fd)
        if there.st_size != end or not there.st_nlink:  # changed by hand, or written anew
            self._commit(tx, ticket, result)
            return
        if len(lag.rows) >= MOST_ROWS:
            self._flush()
        if session not in self._lock.noted:
            self._note_also(session)
        stands = False
        try:
            disk.write(file.fd, change.line, end)
            disk.fdatasync(file.fd)
            stands = True
            lag.rows.append(row)
            if lag.quiet >= QUIET:
                if not lag.byte[0]:  # to set it again and again would cost every sync
                    lag.byte[0] = 1
            else:
                lag.quiet += 1
                self._try_flush()
            self._known.ends[session] = (base, end + len(change.line))
            ticket.result, ticket.done = result, True
        except BaseException as error:
            if not stands:
                self._take_lines_back([(file, end)], [session], error, unclear=False)
                raise
            self._doubt()
            lag.byte[0] = 1
            ticket.settle(result)  # interrupted after it was done
            self._forget()
            raise

    def _note_also(self, session: str) -> None:
        """The note names every session that has rows waiting."""
        noted = self._lock.noted
        if len(noted) < MOST_NOTED:
            self._lock.note([*noted, session])
        else:
            self._flush()
            self._lock.note([session])

    def _try_flush(self) -> None:
        try:
            self._flush()
        except apsw.Error as error:
            log.warning("store %s: its index is behind, and is brought up to date later: %s", self.address, error)

    def _commit(self, tx: FilesTransaction, ticket: Ticket, result: Any) -> None:
        self._log_pages += 1 + ticket.size // PAGE_SIZE
        for change in tx.changes.values():
            if not change.plain:
                self._commit_apart(tx, ticket, result)
                return
        self._commit_plain(tx, tx.changes, lambda: ticket.settle(result))

    # ------------------------------------------------------------------ many at once

    def _run_many(self, waiting: deque[Ticket]) -> None:
        self._lag.quiet = 0
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
            tx = self._transaction(connection, self._known.copy(), group.changes)
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

    def _commit_plain(self, tx: FilesTransaction, changes: dict[str, Change], answer: Callable[[], None]) -> None:
        """Adds lines to the ends of files, one write and one sync for each, and then says so in the index."""
        connection = tx.index
        if changes and not connection.begun:
            connection.begin()
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
        waited = bool(self._lag.rows)
        self._doubt()
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
        if not waited:  # else what waited for the index is still to be looked for
            self._lock.note([])
