"""A pseudo-terminal with a command of onefold in it, for tests: what a person sees, and what they type."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType

from tests.support.command_line import clean

PATIENCE = 30.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TerminalSession:
    """`onefold …` on a terminal of its own, which is its controlling one: Ctrl-C typed there is a signal."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onefold", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean(folder, TERM="xterm", **environ),
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  one system call, and no locks
        )
        os.close(theirs)
        self._raw = b""
        self._seen = 0
        """How far `until` has read."""

    def __enter__(self) -> TerminalSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def screen(self) -> str:
        """All that was written, without the signs that only a terminal sees."""
        return _CONTROL.sub("", self._raw.decode("utf-8", "replace")).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, words: str) -> str:
        """Waits until this is written, after what was waited for before; returns what came up to it."""
        limit = time.monotonic() + PATIENCE
        while (at := self.screen.find(words, self._seen)) < 0:
            if not self._read(limit - time.monotonic()):
                raise AssertionError(f"{words!r} was not written; the screen:\n{self.screen}")
        began, self._seen = self._seen, at + len(words)
        return self.screen[began : self._seen]

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        limit = time.monotonic() + PATIENCE
        while self._read(limit - time.monotonic()):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self._raw += data
        return bool(data)
