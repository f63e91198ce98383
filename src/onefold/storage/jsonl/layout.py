"""What the files and folders of a store are called."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

import orjson

from onefold.storage import locations

OWN = locations.OWN
STORE = locations.STORE
INDEX = "index.db"
LOCK = "lock"
LAG = "lag"
USERS = "users"
DELETED = "deleted.jsonl"
HEAD = "head.json"
FORMAT = 2
"""Of the files. A store that says a higher number was written by a newer program. Format 1 knew no masks and no items
of providers: a writer that does not know them would drop them, and show what they hide."""

_LONGEST = 200  # bytes of a folder's name; file systems take 255
_SAFE = "-_.@+=,"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=,-][A-Za-z0-9_@+=,.-]{0,199}")
_SEGMENT = re.compile(r"(\d{10,})\.jsonl")


def folder_name(session: str) -> str:
    """A session's folder: its id, quoted where a file name cannot hold it or would be hidden, and cut short by its hash
    where it is too long."""
    if _PLAIN.fullmatch(session):
        return session
    name = quote(session, safe=_SAFE).replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(session.encode()).hexdigest()[:16]}"
    return name


def file_name(base: int) -> str:
    """The file of the segment that replaces segment `base`; 0 for the first."""
    return f"{base:010}.jsonl"


def base_of(name: str) -> int | None:
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else None


def head_json(session: str, base: int, segment: int) -> bytes:
    return orjson.dumps({"session": session, "file": file_name(base), "segment": segment}) + b"\n"


def is_temporary(name: str) -> bool:
    return name.startswith(".new-")


def is_intention(name: str) -> bool:
    return name.startswith("erase-") and name.endswith(".json")


def is_set_aside(name: str) -> bool:
    """What was not written whole, and is kept for people to look at."""
    return ".jsonl.torn-" in name or name.startswith("unfinished-")


def is_leftover(name: str) -> bool:
    """What no folder has while nobody works in it."""
    return name.startswith((".new-", ".erased-", ".head-")) or is_intention(name)
