"""Where sessions live, and how to open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from onefold.compaction.policy import Policy
from onefold.compaction.run import Runner
from onefold.compaction.summarizers import Summarizer
from onefold.errors import SessionNotFound, StoreError
from onefold.journal.contract import Journal
from onefold.journal.memory import MemoryBackend
from onefold.journal.seam import Backend
from onefold.journal.sqlite import SqliteBackend
from onefold.journal.verify import heal, verify
from onefold.model import Clock, Compaction, Ids, Report, SessionState, random_id, system_clock
from onefold.session import Session, check_name

_PAGE = 500


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
        self._runner = Runner()

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
    def incarnation(self) -> str:
        """Another one after every restore from a backup."""
        return self.journal.backend.incarnation

    def session(self, id: str, *, create: bool = True) -> Session:
        """A session by its id, or by any other id it is known by. Looks its derived state over on the way, and mends
        it if it is damaged."""
        check_name("session id", id)
        id = self.journal.backend.read(lambda tx: tx.owner(id)) or id
        if not self.journal.backend.read(lambda tx: tx.looks_right(id)):
            if create:
                id = self.journal.create(id).id
            elif not self.journal.backend.read(lambda tx: tx.last_number(id) or tx.session(id) is not None):
                raise SessionNotFound(id)
            if not self.journal.backend.read(lambda tx: tx.looks_right(id)):
                self.journal.backend.write(id, lambda tx: heal(tx, id, self._ids))
        return Session(
            self.journal,
            id,
            summarizer=self._summarizer,
            policy=self.policy,
            runner=self._runner,
            ids=self._ids,
            agent=self._agent,
        )

    def sessions(self, limit: int | None = None) -> Iterator[SessionState]:
        """All sessions, the latest activity first."""
        after: tuple[float, str] | None = None
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self.journal.backend.read(lambda tx, n=size, a=after: tx.sessions(n, a))  # type: ignore[misc]
            yield from page
            if len(page) < size:
                return
            after = (page[-1].touched_at, page[-1].id)
            left = None if left is None else left - len(page)

    def compactions(self, *, open_only: bool = True) -> list[Compaction]:
        """Compactions of all sessions, the longest waiting first."""
        return self.journal.backend.read(lambda tx: tx.compactions(None, open_only=open_only))

    def resolve(self, any_id: str) -> str:
        """The id of the session that is known by this one, its own or any other."""
        return self.journal.resolve(any_id)

    def verify(self, fix: bool = False, *, progress: Callable[[str, int], None] | None = None) -> Report:
        """Compares everything derived with the journal; with `fix`, mends it."""
        return verify(self.journal.backend, self._ids, fix=fix, progress=progress)

    def backup(self, path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> None:
        """A consistent copy, while others write. It is another incarnation: old numbers do not count there."""
        self.journal.backend.backup(str(path), self._ids(), progress)

    def close(self) -> None:
        """Hands back the compactions under way and lets go of the store."""
        self._runner.hand_back("its process closed the store")
        self.journal.backend.close()


def open(
    address: str | Path,
    *,
    create: bool = True,
    summarizer: Summarizer | None = None,
    policy: Policy | None = None,
    clock: Clock = system_clock,
    ids: Ids = random_id,
    agent: str | None = None,
) -> Store:
    """Opens a store: `agent.db` or `sqlite:PATH` for SQLite, `memory:` for tests."""
    text = str(address)
    backend: Backend
    if text == "memory:":
        backend = MemoryBackend(clock=clock)
    elif text.startswith(("postgresql://", "postgres://")):
        raise StoreError("PostgreSQL stores are not part of this version; use a file, such as agent.db")
    elif text.startswith("files:") or text.endswith("/"):
        raise StoreError("stores of plain files are not part of this version; use a file, such as agent.db")
    else:
        backend = SqliteBackend(text.removeprefix("sqlite:"), create=create, clock=clock, ids=ids)
    return Store(backend, summarizer=summarizer, policy=policy, ids=ids, agent=agent)
