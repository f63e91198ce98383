"""Where sessions live, and how to open it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

from onefold.compaction.attempt import AttemptRegistry
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer
from onefold.errors import SessionNotFound, StoreDamaged, StoreError
from onefold.ids import random_id, system_clock
from onefold.journal import erasure, pins_and_notes
from onefold.journal.checks import check_name
from onefold.journal.journal import Journal
from onefold.journal.session_scan import PAGE, scan_sessions
from onefold.journal.sidecars import forget
from onefold.journal.verify import repair, verify
from onefold.model import Clock, Compaction, Deleted, Ids, Keeper, Report, SessionState
from onefold.session import Session
from onefold.storage.base import Backend, Transaction
from onefold.storage.locations import has_files, is_folder
from onefold.storage.memory import MemoryBackend
from onefold.storage.sqlite import SqliteBackend
from onefold.turn import Tenure

_PAGE, _LARGEST_PAGE = 500, 8_000
"""Sessions that are listed by activity at a time. A store sorts all of them for each page, so the pages grow."""

log = logging.getLogger("onefold")


class Store:
    """Sessions in one place. Close it, or use it in a `with` block."""

    def __init__(
        self,
        backend: Backend,
        *,
        summarizer: Summarizer | None = None,
        policy: Policy | None = None,
        ids: Ids = random_id,
        agent: str | None = None,
    ) -> None:
        if agent is not None:
            check_name("agent", agent)
        self.journal = Journal(backend, ids=ids)
        self.policy = policy or Policy()
        self._summarizer = summarizer
        self._ids = ids
        self._agent = agent
        self._runner = AttemptRegistry()
        self._turns: weakref.WeakSet[Tenure] = weakref.WeakSet()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        return self.journal.backend.address

    @property
    def generation(self) -> str:
        """Another one after every restore from a backup."""
        return self.journal.backend.generation

    def session(self, id: str, *, create: bool = True, keeper: Keeper = "onefold") -> Session:
        """A session by its id, or by any other id it is known by. Checks its derived state on the way, and repairs
        it if it is damaged. `keeper` says of a new one who compacts it: onefold, or the "agent" by itself."""
        check_name("session id", id)
        id = self.journal.backend.read(lambda tx: tx.owner(id)) or id
        if not self.journal.backend.read(lambda tx: tx.looks_right(id)):
            if create:
                id = self.journal.create(id, keeper=keeper).id
            elif not self.journal.backend.read(lambda tx: tx.last_number(id) or tx.session(id) is not None):
                raise SessionNotFound(id, deleted=self.journal.backend.read(lambda tx: tx.deleted(id)) is not None)
        return Session(
            self.journal,
            self._repaired(id),
            summarizer=self._summarizer,
            policy=self.policy,
            runner=self._runner,
            ids=self._ids,
            agent=self._agent,
            turns=self._turns,
        )

    def _repaired(self, id: str) -> SessionState:
        """A session's state. What looks wrong is folded again, in a fork's parents too: it reads its past from them."""
        state = self._looked_over(id)
        parent = state.parent
        while parent is not None and self.journal.backend.read(partial(_has_records, parent)):  # else it was deleted
            parent = self._looked_over(parent).parent
        return state

    def _looked_over(self, id: str) -> SessionState:
        if not self.journal.backend.read(lambda tx: tx.looks_right(id)):
            self.journal.backend.write(id, lambda tx: repair(tx, id, self._ids))
        return self.journal.state(id)

    def sessions(self, limit: int | None = None) -> Iterator[SessionState]:
        """Sessions, the latest activity first. It is for looking: one that is written to while the list is read moves
        to its front, and may be left out. To meet each of them, `walk`."""
        after: tuple[float, str] | None = None
        left, most = limit, _PAGE
        seen: set[str] = set()
        while left is None or left > 0:
            size = most if left is None else min(most, left)
            most = min(2 * most, _LARGEST_PAGE)
            page = self.journal.backend.read(lambda tx, n=size, a=after: tx.sessions(n, a))  # type: ignore[misc]
            new = [state for state in page if state.id not in seen]  # by a clock that was set back one comes again
            seen.update(state.id for state in new)
            yield from new
            if len(page) < size:
                return
            after = (page[-1].touched_at, page[-1].id)
            left = None if left is None else left - len(new)

    def walk(self, after: str = "", *, page: int = PAGE) -> Iterator[SessionState]:
        """Every session, in the order of ids, those behind `after`; so many are read at a time.

        One that is there before the walk and after it is met once, whatever is written meanwhile; one that is made or
        deleted meanwhile, once or not at all. Each is as it was when its page was read. A session whose row is missing
        is repaired on the way; one that cannot be is left out, with a warning.
        """
        for id, state in scan_sessions(self.journal.backend, after, page=page):
            found = state if state is not None else self._found_again(id)
            if found is not None:
                yield found

    def _found_again(self, id: str) -> SessionState | None:
        """A session whose row is missing; None if it was deleted meanwhile, or cannot be repaired."""
        if not self.journal.backend.read(partial(_has_records, id)):
            return None  # nothing was ever said in it: `verify` tells of its rows
        try:
            return self._looked_over(id)
        except SessionNotFound:
            return None
        except StoreDamaged as error:
            log.warning("session %r is left out of a walk over all sessions: %s", id, error)
            return None

    def compactions(self, *, open_only: bool = True) -> list[Compaction]:
        """Compactions of all sessions, the longest waiting first."""
        return self.journal.backend.read(lambda tx: tx.compactions(None, open_only=open_only))

    def resolve(self, any_id: str) -> str:
        """The id of the session that is known by this one, its own or any other."""
        return pins_and_notes.resolve(self.journal, any_id)

    def delete(self, any_id: str, *, remove_copies: bool = False) -> Deleted:
        """Removes a session whole, also from the sidecar files. Its ids stay taken; forks of it no longer
        see it as their past, and are named. What may still hold it is named in `remains`; see `Session.erase`."""
        id = any_id if self.journal.backend.read(lambda tx: tx.deleted(any_id)) == any_id else self.resolve(any_id)
        return erasure.delete(self.journal, id, actor=self._agent, remove_copies=remove_copies)

    def purge(self) -> bool:
        """Rewrites the store's files and its sidecar files, so that nothing erased or deleted is left in them. Writers
        wait meanwhile.

        Erasing does it by itself, but for large files. False if a reader is in the way now.
        """
        beside = forget(self.journal, (), whole=True)
        return self.journal.backend.purge(whole=True) and not beside

    def forks(self, id: str) -> list[SessionState]:
        """The sessions that have this one as their parent."""
        return self.journal.backend.read(lambda tx: tx.forks(id))

    def verify(self, fix: bool = False, *, progress: Callable[[str, int], None] | None = None) -> Report:
        """Compares everything derived with the journal; with `fix`, repairs it."""
        return verify(self.journal.backend, self._ids, fix=fix, progress=progress)

    def backup(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> None:
        """A consistent copy, while others write. It is another generation: old numbers do not count there."""
        self.journal.backend.backup(str(path), self._ids(), progress)

    def finish(self, wait: bool | float = True) -> bool:
        """Waits for the summaries that this process has under way: as long as the policy says, or so many seconds.
        False if one is not made by then; it goes on."""
        return self._runner.finish(self.policy.seconds(wait))

    def close(self, wait: bool | float = False) -> None:
        """Hands back the compactions under way, ends open turns, and lets go of the store.

        A summary that is handed back was paid for nothing, and the next one who claims starts again. With `wait`, those
        under way are given that time to be made: True for as long as the policy says, or a number of seconds.
        """
        if wait:
            self.finish(wait)
        self._runner.hand_back("its process closed the store")
        for turn in list(self._turns):
            turn.abandon("its process closed the store")
        self.journal.backend.close()


def _has_records(session: str, tx: Transaction) -> bool:
    return tx.last_number(session) > 0


def open(
    address: str | Path,
    *,
    create: bool = True,
    summarizer: Summarizer | None = None,
    policy: Policy | None = None,
    clock: Clock = system_clock,
    ids: Ids = random_id,
    agent: str | None = None,
    group: bool = False,
) -> Store:
    """Opens a store: `agent.db` or `sqlite:PATH` for SQLite, `sessions/` or `files:PATH` for plain files,
    `postgresql://…` for a server, `memory:` for tests.

    Files are made for their owner alone, whatever the umask. `group=True` makes a new store for the group of its folder
    as well; one that is there keeps the modes that it has."""
    text = str(address)
    backend: Backend
    if group and not has_files(text):
        raise StoreError(f"{text} has no files that a group could use; leave out `group`")
    if text == "memory:":
        backend = MemoryBackend(clock=clock)
    elif text.startswith(("postgresql://", "postgres://")):
        backend = _postgres(text, create=create, clock=clock, ids=ids)
    elif is_folder(text):
        backend = _files(text.removeprefix("files:"), create=create, clock=clock, ids=ids, group=group)
    else:
        backend = SqliteBackend(text.removeprefix("sqlite:"), create=create, clock=clock, ids=ids, group=group)
    return Store(backend, summarizer=summarizer, policy=policy, ids=ids, agent=agent)


def _postgres(address: str, *, create: bool, clock: Clock, ids: Ids) -> Backend:
    """A store on a server, whose own clock counts unless another one is passed in."""
    try:
        from onefold.storage.postgres import PostgresBackend
    except ModuleNotFoundError as error:
        raise StoreError(f"a PostgreSQL store needs {error.name}: pip install 'onefold[postgres]'") from error
    return PostgresBackend(address, create=create, clock=None if clock is system_clock else clock, ids=ids)


def _files(path: str, *, create: bool, clock: Clock, ids: Ids, group: bool) -> Backend:
    """A store of plain files, one folder a session."""
    try:
        from onefold.storage.jsonl import FilesBackend
    except ModuleNotFoundError as error:
        raise StoreError(f"a store of plain files needs {error.name}: pip install 'onefold[files]'") from error
    return FilesBackend(path, create=create, clock=clock, ids=ids, group=group)
