"""What an agent holds: one conversation, under one id for life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onefold.compaction.context import Boundary, Context, boundary, render
from onefold.compaction.policy import Policy
from onefold.compaction.run import Runner, compact
from onefold.compaction.summarizers import Summarizer, extract
from onefold.errors import InvalidMessage, OnefoldError, SessionNotFound, TooLarge
from onefold.journal.contract import Journal
from onefold.journal.seam import Transaction
from onefold.messages import draft
from onefold.model import (
    MANUAL,
    Appended,
    Compaction,
    CompactResult,
    Draft,
    Holder,
    Ids,
    Json,
    Record,
    Segment,
    SessionState,
)

MESSAGE_LIMIT = 64 << 20


class Session:
    """A handle on one session. Cheap to make; any number of them, in any number of processes, may be in use."""

    def __init__(
        self,
        journal: Journal,
        id: str,
        *,
        summarizer: Summarizer | None,
        policy: Policy,
        runner: Runner,
        ids: Ids,
        agent: str | None = None,
    ) -> None:
        self.id = id
        self._journal = journal
        self._summarizer = summarizer
        self._policy = policy
        self._runner = runner
        self._ids = ids
        self._agent = agent
        self._measured: int | None = None

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def state(self) -> SessionState:
        return self._journal.state(self.id)

    @property
    def head(self) -> int:
        """The number of the segment in force."""
        return self.state.head

    def segments(self) -> list[Segment]:
        """Every boundary this session ever had, the oldest first."""
        return self._journal.backend.read(lambda tx: tx.segments(self.id))

    def compactions(self) -> list[Compaction]:
        """Every compaction this session was ever asked for, the oldest first."""
        return self._journal.backend.read(lambda tx: tx.compactions(self.id, open_only=False))

    def append(
        self,
        messages: Json | Sequence[Json],
        *,
        key: str | None = None,
        format: str | None = None,
        actor: str | None = None,
    ) -> Appended:
        """Adds one message or a list of them, all or none. They are on disk when this returns.

        The same `key` again returns the same numbers and writes nothing; with other content it is `KeyConflict`.
        """
        given = list(messages) if isinstance(messages, list | tuple) else [messages]
        if not given:
            raise InvalidMessage(f"session {self.id!r}: there is nothing to append; give a message or a list of them")
        if key is not None:
            check_name("key", key)
        if actor is not None:
            check_name("actor", actor)
        return self._journal.append(self.id, [self._draft(m, format, actor) for m in given], key=key)

    def read(self, start: int = 1, stop: int | None = None) -> Iterator[Record]:
        """Records with start ≤ number < stop: everything that ever happened, whatever was compacted."""
        return self._journal.read(self.id, start, stop)

    def follow(self, after: int = 0, *, incarnation: str | None = None, idle: float | None = None) -> Iterator[Record]:
        """Records after a number, live, from this and other processes, without a gap or a repeat."""
        return self._journal.follow(self.id, after, incarnation=incarnation, idle=idle)

    def context(self, segment: int | None = None) -> Context:
        """What to send to a model now; or what an older segment would send."""

        def look(tx: Transaction) -> tuple[Boundary, list[Record], int]:
            state = tx.session(self.id)
            if state is None:
                raise SessionNotFound(self.id)
            begins = boundary(tx, self.id, segment or state.head)
            return begins, tx.messages(self.id, begins.segment.cut, state.last + 1), state.last

        begins, tail, last = self._journal.backend.read(look)
        if segment is None:
            self._measured = begins.segment.number
        return render(begins, tail, last)

    def compact(
        self,
        summarizer: Summarizer | None = None,
        *,
        trigger: str = MANUAL,
        instructions: str | None = None,
        wait: bool | float = True,
        base: int | None = None,
        follow_up: Json | None = None,
    ) -> CompactResult:
        """Makes the context smaller, once, whoever else asks for it at the same time.

        It is for the segment this handle saw last, by `context()` or by the last `compact()`: if somebody compacted
        that one meanwhile, there is nothing to do, and the result says so. `follow_up` is an input that the next
        turn takes, written together with the summary.
        """
        measured = base or self._measured or self.head
        result = compact(
            self._journal,
            self.id,
            summarizer or self._summarizer or extract,
            self._policy,
            self._runner,
            base=measured,
            trigger=trigger,
            instructions=instructions,
            wait=wait,
            agent=self._agent,
            follow_up=None if follow_up is None else self._draft(follow_up, None, None),
        )
        self._measured = result.segment
        return result

    def cancel(self) -> Compaction | None:
        """Ends the compaction that is open, if one is."""
        return self._journal.cancel(self.id, actor=self._agent)

    def holder(self) -> Holder | None:
        """Who compacts this session now, since when and until when; None if nobody does."""
        return self._journal.holder(self.id)

    def alias(self, other_id: str) -> None:
        """Makes this session known by one more id, such as the one its agent gave it, before or after a rotation."""
        check_name("alias", other_id)
        self._journal.alias(self.id, other_id, actor=self._agent)

    def queue(self, message: Json, *, format: str | None = None) -> int:
        """Keeps an input until a turn takes it."""
        return self._journal.queue(self.id, self._draft(message, format, None))

    def take(self) -> Record | None:
        """Takes the oldest input that waits, as a message of this session; None if none does."""
        return self._journal.take(self.id)

    def _draft(self, message: Json, format: str | None, actor: str | None) -> Draft:
        try:
            body = message if isinstance(message, dict) or not isinstance(message, Mapping) else dict(message)
            made = draft(body, self._ids, format=format, actor=actor)
        except InvalidMessage as error:
            raise InvalidMessage(f"session {self.id!r}: {error}") from None
        if (size := _bytes(made.data)) > MESSAGE_LIMIT:
            raise TooLarge(
                f"session {self.id!r}: a message of {size:,} bytes is over the limit of {MESSAGE_LIMIT:,}; "
                "nothing was written. Keep large content in a file and send its path"
            )
        return made


def _bytes(data: str) -> int:
    """The size of a JSON text, counted only where it can matter."""
    return len(data.encode()) if len(data) * 4 > MESSAGE_LIMIT else len(data)


def check_name(what: str, name: str) -> None:
    """Ids and keys are short and printable, so that they can be stored, shown and typed."""
    if not 0 < len(name) <= 512 or not name.isprintable():
        raise OnefoldError(f"{what} {name!r:.80} will not do: use 1 to 512 printable characters")
