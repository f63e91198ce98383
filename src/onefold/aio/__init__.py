"""The same library for programs with an event loop: the same names and arguments, and what takes time is awaited.

It runs the sync library in worker threads and holds no rule of its own. A call that is cancelled has either not begun
or is over: nothing happens behind the back of whoever was cancelled. Works under asyncio and trio.
"""

try:
    import anyio as _anyio
except ModuleNotFoundError as _missing:
    raise ImportError("onefold.aio needs anyio, which is an extra: pip install 'onefold[aio]'") from _missing

from onefold.aio.compactor import Compactor
from onefold.aio.journal import Journal
from onefold.aio.session import Session
from onefold.aio.store import Store, open
from onefold.aio.turn import Turn

__all__ = ["Compactor", "Journal", "Session", "Store", "Turn", "open"]

del _anyio
