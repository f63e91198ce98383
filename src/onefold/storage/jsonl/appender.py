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
from onefold.storage.jsonl.core import Behind, OpenFile
from onefold.storage.jsonl.deferred_index import MOST_ROWS, QUIET
from onefold.storage.jsonl.recovery import TRIES
from onefold.storage.jsonl.segment_files import Segments
from onefold.storage.jsonl.transaction import FilesTransaction, LineChange
from onefold.storage.sqlite.backend import MOST_STATES, PAGE_SIZE
from onefold.storage.sqlite.group_commit import PendingWrite

log = logging.getLogger("onefold")

MOST_NOTED = 16
"""So many sessions are named together: whoever comes after a killed process looks at each."""


class BatchedLines:
    """Operations that share a commit: all of them only add to the ends of files."""

    def __init__(self) -> None:
        self.done: list[tuple[PendingWrite, Any]] = []
        self.changes: dict[str, LineChange] = {}
        self.tx: FilesTransaction | None = None

    def take(self, ticket: PendingWrite, result: Any, tx: FilesTransaction) -> None:
        self.done.append((ticket, result))
        self.tx = tx
        for session, change in tx.changes.items():
            before = self.changes.setdefault(session, change)
            if before is not change:
                before.line = b""
                before.added += change.added
                before.fresh |= change.fresh


class Writing(Segments):
    def _run_batch(self, batch: list[PendingWrite]) -> None:
        """Runs a batch in as few commits as there can be. Settles every ticket, unless this thread is interrupted."""
        with self._writing:
            try:
                if self._closed:
                    self._check_open()
                ours = self._lock.enter()
            except (OnefoldError, OSError) as error:
                self._refuse(batch, error)
                return
            try:
                if not ours:
                    self._settle_left()
                if len(batch) > 1:
                    self._run_many(deque(batch))
                elif self._kept is None:
                    self._run_one(batch[0])
                else:
                    self._run_known(self._kept, batch[0])
            except (apsw.Error, OnefoldError, OSError) as error:
                self._roll_back()
                for ticket in batch:
                    if not ticket.done:
                        ticket.settle(error=self._translate(error, reading=ticket.reading))
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._lock.leave()
        watch = self._watch
        watch.version = next(watch.versions)
        if watch.waiters:
            watch.wake()

    def _run_known(self, tx: FilesTransaction, ticket: PendingWrite) -> None:
        """One operation where what is known holds: nobody else had the lock since. Most add one line to the end of a
        file, and nothing else: in as few steps as can be, since after a wait for the disk each of them is slow."""
        fresh = index = tx.index
        known, lag, disk = tx.known, self._lag, self._disk
        fresh.begun, fresh.waiting = False, None
        tx.now, tx.changes, tx.later = self._clock(), {}, lag.quiet >= QUIET
        begun: tuple[OpenFile, int] | None = None
        stands = False
        try:
            result = ticket.work(tx)
            row = index.waiting
            if row is None or index.begun:
                self._commit(tx, ticket, result)
                return
            ((session, change),) = tx.changes.items()
            base, end = known.ends[session]
            file, line = self._files.get(session), change.line
            if (
                file is None
                or file.base != base
                or session not in known.sound
                or (there := disk.state(file.fd)).st_size != end  # changed by hand
                or not there.st_nlink  # rewritten
            ):
                self._commit(tx, ticket, result)
                return
            if len(lag.rows) >= MOST_ROWS:
                self._flush()
            if session not in self._lock.noted:
                self._note_also(session)
            begun = file, end
            disk.write(file.fd, line, end)
            disk.fdatasync(file.fd)
            # Now it stands, whatever becomes of its row in the index: that waits for others, or, if it is not there
            # when somebody looks, is made from the file.
            stands = True
            lag.rows.append(row)
            if tx.later:
                lag.states[session] = known.states[session]
                if not lag.byte[0]:  # to set it again and again would cost every sync
                    lag.byte[0] = 1
            else:
                lag.quiet += 1
                self._try_flush()
            known.ends[session] = (base, end + len(line))
            ticket.result, ticket.done = result, True
        except BaseException as error:
            if stands:  # and whatever came after that does not change it
                self._doubt()
                lag.byte[0] = 1
                ticket.settle(result)
            elif begun is not None:
                self._take_lines_back([begun], [session], error, unclear=False)
            self._failed(ticket, error)
        finally:
            if tx.open:
                tx.close()

    def _failed(self, ticket: PendingWrite, error: BaseException) -> None:
        """Tells of what went wrong with an operation. If its session was changed by hand, it is run again."""
        self._roll_back()
        if isinstance(error, Behind):
            self._catch_up([error.session])
            self._run_one(ticket)
        elif not isinstance(error, Exception):
            raise error  # this thread is interrupted
        elif not ticket.done:
            ticket.settle(error=self._translate(error, reading=ticket.reading))

    def _run_one(self, ticket: PendingWrite) -> None:
        """One operation, with all that it has to know looked up."""
        for tries in range(1, TRIES + 1):
            if not self._lock.own:
                self._settle_left()  # what the one before left in doubt
            tx = self._begun()
            try:
                self._commit(tx, ticket, ticket.work(tx))
            except Behind as behind:
                self._roll_back()
                if tries == TRIES:
                    raise StoreUnavailable(str(behind)) from behind
                self._catch_up([behind.session])
                continue
            except Exception as error:
                self._failed(ticket, error)
            finally:
                tx.close()
            return

    def _begun(self) -> FilesTransaction:
        """One in which what was known before is looked up again. Those after it use it too, as long as that holds:
        to make one for each would be a slow part of an append."""
        writer = self._begin()
        self._seen = writer.data_version()
        self._kept = self._transaction(writer)
        return self._kept

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

    def _commit(self, tx: FilesTransaction, ticket: PendingWrite, result: Any) -> None:
        self._log_pages += 1 + ticket.size // PAGE_SIZE
        if len(self._known.states) >= MOST_STATES:
            self._kept = None
        for change in tx.changes.values():
            if not change.plain:
                self._commit_apart(tx, ticket, result)
                return
        self._commit_plain(tx, tx.changes, lambda: ticket.settle(result))

    # ------------------------------------------------------------------ many at once

    def _run_many(self, waiting: deque[PendingWrite]) -> None:
        self._lag.quiet = 0
        while waiting:
            group = self._gather(waiting)
            if group.tx is not None and self._committed_together(group):
                continue
            self._roll_back()
            for ticket, _ in group.done:  # each one alone, so that none fails another
                self._run_alone(ticket)
            if not group.done and waiting:
                self._run_alone(waiting.popleft())

    def _run_alone(self, ticket: PendingWrite) -> None:
        if self._kept is None:
            self._run_one(ticket)
        else:
            self._run_known(self._kept, ticket)

    def _committed_together(self, group: BatchedLines) -> bool:
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

    def _answer_all(self, group: BatchedLines) -> None:
        for ticket, result in group.done:
            ticket.settle(result)

    def _gather(self, waiting: deque[PendingWrite]) -> BatchedLines:
        """Runs operations one after another, each of which can be taken back alone, up to one that does more than add
        to the end of a file: that needs a commit of its own."""
        connection = self._begin()
        group = BatchedLines()
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
                ticket.settle(error=self._translate(error, reading=ticket.reading))
                continue
            finally:
                tx.close()
            if not plain:
                self._take_back(connection)
                return group
            connection.execute("release operation")
            waiting.popleft()
            self._known, self._kept = tx.known, None
            group.take(ticket, result, tx)
        return group

    def _commit_plain(self, tx: FilesTransaction, changes: dict[str, LineChange], answer: Callable[[], None]) -> None:
        """Adds lines to the ends of files, one write and one sync for each, and then says so in the index."""
        connection = tx.index
        connection.done = False
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
                self._catch_up(sessions, rebuild=True)
        except (OSError, apsw.Error, OnefoldError) as second:
            self._let_go_of_files()
            raise OutcomeUnknown(
                f"{self.address}: the disk failed during a write ({error}), and again when that was taken back "
                f"({second}), so it cannot be told whether it was written. Check the disk, then repeat the same call "
                "with the same key"
            ) from error
        if not waited:  # else what waited for the index is still to be looked for
            self._lock.note([])
