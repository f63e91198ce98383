"""Why a client's request is rejected."""

from __future__ import annotations

from onefold.errors import OnefoldError
from onefold.model import Json

AUTH_REQUIRED = -32000
"""ACP's own: a client that is answered so asks its person to log in. So nothing else has this code."""
BUSY = -32010
FORBIDDEN = -32001


class RequestRejected(OnefoldError):
    """What a client asked for is not to be had, or not now. `code` is JSON-RPC's."""

    def __init__(self, message: str, code: int = BUSY, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RoomClosed(RequestRejected):
    """The room has ended. Its session can have another one."""

    def __init__(self, session: str) -> None:
        super().__init__(f"the room of session {session!r} is closed; the next prompt takes it up again")
