"""What this process knows to be written, for frameworks that hand over all messages whenever one is new.

It saves looking in the journal, and decides nothing: what is not known here is looked for there. A message that was
written stays so, whoever else writes, removes or erases, so what is known here does not become untrue.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

_MOST = 200


class SeenCache:
    """Of the sessions that were used last: the messages handed over last, by id, each with a print of its content."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._by_session: OrderedDict[str, Mapping[str, int]] = OrderedDict()

    def of(self, session: str) -> Mapping[str, int]:
        with self._lock:
            return self._by_session.get(session, {})

    def keep(self, session: str, prints: Mapping[str, int]) -> None:
        """Those that the journal has now. Others are forgotten: they are not in the framework's state any more."""
        with self._lock:
            self._by_session[session] = prints
            self._by_session.move_to_end(session)
            if len(self._by_session) > self._most:
                self._by_session.popitem(last=False)
