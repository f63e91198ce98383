"""Everything onefold raises. Each message says what happened, to which session or store, and what to do."""

from __future__ import annotations

import math

from onefold.model import Usage


class OnefoldError(Exception):
    """The root of all errors of this library."""


class StoreError(OnefoldError):
    """The store could not be opened or used as asked."""


class StoreTooNew(StoreError):
    """The store was written by a newer onefold, which no longer accepts writes from this one."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, read or written now. Nothing was done; the same call may work later."""


class StoreDamaged(StoreError):
    """The journal itself is damaged, so that no derived state can be trusted."""


class SessionNotFound(OnefoldError):
    """No session is known by this id."""

    def __init__(self, session: str, *, deleted: bool = False) -> None:
        super().__init__(
            f"session {session!r} was deleted, and nothing is written to it any more; choose another id"
            if deleted
            else f"no session {session!r} in this store; list them with `onefold sessions`, "
            "or create it with store.session(id)"
        )
        self.session = session
        self.deleted = deleted


class TurnBusy(OnefoldError):
    """Another writer has the session's turn."""


class TurnLost(OnefoldError):
    """This writer no longer has the turn it writes in. Nothing was written."""


class InvalidMessage(OnefoldError):
    """The message cannot be stored so that it comes back equal. Nothing was written."""


class MessageTooLarge(InvalidMessage):
    """A message, a summary or a note is over its limit. Nothing was written."""


class ContextTooLarge(OnefoldError):
    """The context is over the hard limit of its model, and was not handed out."""


class CompactionDisabled(OnefoldError):
    """This session does not compact."""


class SummarizerFailed(OnefoldError):
    """A summarizer could not make a summary: why, what it cost all the same, and whether another try makes sense."""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        spent: Usage | None = None,
        retry_after: float | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """overflow, rate limit, unavailable, timeout, refused, setup, stopped, garbage or unknown."""
        self.spent = spent or Usage()
        self.retry_after = retry_after if retry_after is not None and math.isfinite(retry_after) else None
        """How long the provider asks to be left alone, in seconds."""
        self.final = final
        """Nothing will change by itself: a key that is wrong, a model that is not there."""


class CommitRefused(OnefoldError):
    """The compaction can no longer be committed. Nothing was written."""

    def __init__(self, message: str, *, session: str, compaction: str) -> None:
        super().__init__(message)
        self.session = session
        self.compaction = compaction


class CompactionSuperseded(CommitRefused):
    """Another summary was first, or the session moved on."""


class CompactionCancelled(CommitRefused):
    """Somebody cancelled the compaction."""


class StaleHandle(OnefoldError):
    """The session is not where the caller saw it last."""


class NotNow(OnefoldError):
    """Compaction is held back for now."""

    def __init__(self, message: str, *, session: str, retry_at: float | None = None) -> None:
        super().__init__(message)
        self.session = session
        self.retry_at = retry_at


class KeyConflict(OnefoldError):
    """The same idempotency key was used before with other content. Nothing was written."""


class OutcomeUnknown(OnefoldError):
    """It cannot be told whether the operation was written. Repeat it with the same key."""


def is_everybodys(error: OnefoldError) -> bool:
    """Whether every session has a part in it: a store that is away is everybody's trouble, and a damaged or deleted
    session its own."""
    return isinstance(error, StoreError) and not isinstance(error, StoreDamaged)


_KINDS = {
    "CompactionCancelled": "Cancelled",
    "CompactionSuperseded": "Superseded",
    "ContextTooLarge": "TooLarge",
    "MessageTooLarge": "TooLarge",
    "StaleHandle": "Moved",
    "TurnBusy": "Busy",
    "AlreadyHosted": "Hosted",
    "ErasureFirst": "Overtaken",
    "IndexUnavailable": "Unusable",
    "InvalidCursor": "BadCursor",
    "RequestRejected": "Refused",
    "RoomClosed": "Closed",
    "SubprocessGone": "ChildGone",
    "SubprocessNotReading": "ChildDeaf",
}
"""What clients know an error by, where its class has another name."""


def kind_of(error: Exception) -> str:
    """The kind of an error as HTTP and ACP name it. It never changes, whatever happens to the class's name."""
    name = type(error).__name__
    return _KINDS.get(name, name)
