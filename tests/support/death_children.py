"""What children of the tests of deaths do, each in a process of its own. Started by `tests.support.helpers.Child`."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from pathlib import Path

from onefold.journal.process_liveness import MACHINE
from tests.support.helpers import hear, say


def live() -> None:
    """Says which process it is, and lives."""
    say("living", process=MACHINE.this())
    hear()


def live_without_its_first_thread() -> None:
    """The same; but its first thread ends, and the process goes on in another."""

    def go_on() -> None:
        ends = threading.Event()
        while ") Z " not in Path(f"/proc/{os.getpid()}/stat").read_text():
            ends.wait(0.01)
        say("living", process=process)
        hear()
        os._exit(0)

    process = MACHINE.this()
    threading.Thread(target=go_on).start()
    ctypes.CDLL(None).pthread_exit(None)


def fork_and_tell() -> None:
    """Says which process it is, and which its forked child is."""
    process = MACHINE.this()
    heard, tell = os.pipe()
    if os.fork() == 0:
        try:
            os.write(tell, json.dumps(MACHINE.this()).encode())
        finally:
            os._exit(0)
    os.wait()
    os.close(tell)
    with os.fdopen(heard) as lines:
        say("told", process=process, child=json.load(lines))
