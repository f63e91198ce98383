"""Names this process and thread as the holder of a claim."""

from __future__ import annotations

import os
import socket
import threading

from onefold.ids import random_id
from onefold.model import HolderId

_nonce = random_id()


def _fresh_nonce() -> None:
    global _nonce  # noqa: PLW0603  one per process, and a forked child is another process
    _nonce = random_id()


os.register_at_fork(after_in_child=_fresh_nonce)


def this_process(agent: str | None = None) -> HolderId:
    """This process and thread, as a holder is named."""
    return HolderId(socket.gethostname(), os.getpid(), threading.current_thread().name, agent, _nonce)
