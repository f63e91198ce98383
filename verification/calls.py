"""The system calls that SQLite makes, counted, so that a process can die at any one of them; and those that Python
makes, for a store of plain files.

SQLite calls the system through a table of its own, which can be changed while it runs. Only what changes something,
or takes or gives a lock, is counted; a sync stands between two of these, and a killed process loses nothing by it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import apsw

_INT, _POINTER, _SIZE, _OFFSET, _SIGNED = (
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_ssize_t,
)  # fmt: skip
_SHAPES: dict[str, tuple[Any, ...]] = {
    "open": (_INT, _POINTER, _INT, _INT),
    "openDirectory": (_INT, _POINTER, _POINTER),
    "close": (_INT, _INT),
    "write": (_SIGNED, _INT, _POINTER, _SIZE),
    "pwrite": (_SIGNED, _INT, _POINTER, _SIZE, _OFFSET),
    "pwrite64": (_SIGNED, _INT, _POINTER, _SIZE, _OFFSET),
    "ftruncate": (_INT, _INT, _OFFSET),
    "fcntl": (_INT, _INT, _INT, _POINTER),
    "unlink": (_INT, _POINTER),
    "mmap": (_POINTER, _POINTER, _SIZE, _INT, _INT, _INT, _OFFSET),
}

_OF_PYTHON = ("pwrite", "ftruncate", "link", "replace", "rename", "unlink", "mkdir", "rmdir")


class _Table(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("counted", "")


class Calls:
    """Counts the calls of this process and its forks, and kills it right before one of them, inside a `with` block."""

    def __init__(self) -> None:
        self.made = 0
        self._deadly: int | None = None
        self._kept: list[object] = []  # what C calls must not be collected
        self._table = _Table()
        self._real: dict[str, int] = {}

    def __enter__(self) -> Calls:
        for name, (result, *arguments) in _SHAPES.items():
            address = self._table.xGetSystemCall(name)
            if address:
                self._real[name] = address
                shape = ctypes.CFUNCTYPE(result, *arguments, use_errno=True)
                counted = shape(self._counted(shape(address)))
                self._kept.append(counted)
                self._table.xSetSystemCall(name, ctypes.cast(counted, ctypes.c_void_p).value or 0)
        return self

    def __exit__(self, *_: object) -> None:
        for name, address in self._real.items():
            self._table.xSetSystemCall(name, address)
        self._table.unregister()

    def arm(self, at: int) -> None:
        """From now on: dies right before the call with this number, counted from 1."""
        self.made, self._deadly = 0, at

    def count_python_too(self) -> None:
        """In a process that ends by it: also dies in the middle of a write, which is the second of its two calls."""
        for name in _OF_PYTHON:
            real = getattr(os, name)
            setattr(os, name, self._halved(real) if name == "pwrite" else self._counted(real))

    def _halved(self, write: Callable[[int, bytes, int], int]) -> Callable[[int, bytes, int], int]:
        def call(fd: int, data: bytes, offset: int) -> int:
            self._reach()
            half = len(data) // 2
            if self.made + 1 == self._deadly:
                write(fd, data[:half], offset)
            self._reach()
            return write(fd, data, offset)

        return call

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        self._kept.append(real)

        def call(*arguments: Any) -> Any:
            self._reach()
            return real(*arguments)

        return call

    def _reach(self) -> None:
        self.made += 1
        if self.made == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
