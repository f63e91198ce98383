"""An agent's process, and what it starts."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process runs: one that ended and that nobody waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
