"""Sessions of OpenViking as tests make them: the files and fields that the program writes, and ways to damage them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOW = 1_800_000_000.0


def ids(first: int, last: int) -> list[str]:
    return [f"msg_{n:032x}" for n in range(first, last + 1)]


def line(id: str | None, text: str = "words") -> str:
    named = {} if id is None else {"id": id}
    body = {**named, "role": "user", "parts": [{"type": "text", "text": text}], "created_at": "2026-11-15T22:48:11Z"}
    return json.dumps(body, ensure_ascii=False) + "\n"


def log(names: Iterable[str | None]) -> str:
    return "".join(line(id) for id in names)


@dataclass(frozen=True)
class Commit:
    """One archive as a healthy commit leaves it, unless it is told otherwise. None leaves a file out."""

    takes: Sequence[str]
    keeps: Sequence[str] = ()
    status: str | None = "ready"
    done: str | None = "{}"
    failed: str | None = None
    data: str | None = ""
    """What its file of messages holds; an empty text stands for what it takes."""
    overview: bool = True
    learnt: bool = True
    meta: str | None = ""

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        phase = {
            "version": 1,
            "status": self.status,
            "queue_message": {"session_id": "bench", "memory_policy": {"working_memory": {"enabled": True}}},
            "original_message_ids": [*self.takes, *(id for id in self.keeps if id not in self.takes)],
            "archived_message_ids": list(self.takes),
            "retained_message_ids": list(self.keeps),
        }
        ends = {"starting_message_id": self.takes[0], "ending_message_id": self.takes[-1]} if self.takes else {}
        files = {
            "messages.jsonl": log(self.takes) if self.data == "" else self.data,
            ".meta.json": self.meta
            or (json.dumps({"phase1": phase}) if self.status and self.meta is not None else None),
            ".done": json.dumps(ends) if self.done == "{}" else self.done,
            ".failed.json": self.failed,
            ".overview.md": "# What was said\n" if self.overview else None,
            "memory_diff.json": "{}" if self.learnt else None,
        }
        for name, content in files.items():
            if content is not None:
                (folder / name).write_text(content, encoding="utf-8", newline="")


def session(
    folder: Path,
    live: Sequence[str | None] | str,
    *commits: Commit,
    count: int | None = -1,
    commit_count: int | None = None,
    meta: str | None = "",
) -> Path:
    """A session's folder. `live` is the ids that are live, or the text of the file."""
    folder.mkdir(parents=True)
    text = live if isinstance(live, str) else log(live)
    (folder / "messages.jsonl").write_text(text, encoding="utf-8", newline="")
    (folder / ".abstract.md").write_text("words\n")
    finished = max((number for number, commit in enumerate(commits, 1) if commit.done is not None), default=0)
    said = {
        "session_id": folder.name,
        "message_count": text.count("\n") if count == -1 else count,
        "commit_count": finished if commit_count is None else commit_count,
        "keep_recent_count": 10,
    }
    if meta is not None:
        (folder / ".meta.json").write_text(meta or json.dumps(said), encoding="utf-8")
    for number, commit in enumerate(commits, 1):
        commit.write(folder / "history" / f"archive_{number:03}")
    return folder


def tree(folder: Path) -> dict[str, Any]:
    """Everything below a folder: each file with its bytes and its time, each folder with its time."""
    found: dict[str, Any] = {}
    for place, folders, files in os.walk(folder):
        for name in (*files, *folders):
            path = Path(place, name)
            state = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            found[path.relative_to(folder).as_posix()] = (content, state.st_mtime_ns, state.st_ino, state.st_mode)
    return found


def live_ids(folder: Path) -> list[str | None]:
    text = (folder / "messages.jsonl").read_bytes().decode()
    return [json.loads(entry).get("id") for entry in text.split("\n") if entry]
