"""Asks a server `/healthz` again and again until stdin ends, and says how long it was silent at most.

A process of its own, so that whoever attacks does not slow it down. On a busy machine a server waits for a processor,
and so does this program: the system counts that time, and it is none of the server's silence. Nor is the time in
which a virtual machine's processors were given to other machines.

    python silences.py PORT PID PAUSE
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from pathlib import Path


def main(port: int, server: int, pause: float) -> None:
    ask = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        longest = wall = 0.0
        count, last = 0, False
        while not last:
            last = bool(select.select([sys.stdin], [], [], pause)[0])  # then once more: it may be silent only now
            stolen, waited, began = _stolen(), _waited(server), time.perf_counter()
            connection.sendall(ask)
            while not connection.recv(65_536).endswith(b"}"):
                pass
            took = time.perf_counter() - began
            longest = max(longest, took - _since(waited, _waited(server)) - (_stolen() - stolen))
            wall = max(wall, took)
            count += 1
            if count == 1:
                print("asked", flush=True)
    print(json.dumps({"longest": longest, "wall": wall, "count": count}), flush=True)


def _stolen() -> float:
    """Seconds for which processors of this machine were ready to run, and its host ran others."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def _waited(server: int) -> dict[str, int]:
    """Nanoseconds for which this process and each thread of the server were ready to run, and others ran."""
    found = {"me": int(Path("/proc/self/schedstat").read_text().split()[1])}
    for task in Path(f"/proc/{server}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name = "loop" if task.name == str(server) else task.name
            found[name] = int(task.joinpath("schedstat").read_text().split()[1])
    return found


def _since(before: dict[str, int], now: dict[str, int]) -> float:
    """Seconds that this process and the event loop waited, and the thread that did so longest: it may be the one that
    the event loop waits for."""
    waits = {name: now[name] - before.get(name, 0) for name in now}
    others = [wait for name, wait in waits.items() if name not in ("me", "loop")]
    return (waits["me"] + waits["loop"] + max(others, default=0)) / 1e9


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
