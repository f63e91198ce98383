"""Sessions as folders of JSON lines, with an index next to them that can be thrown away."""

from onefold.storage.jsonl.backend import FilesBackend
from onefold.storage.jsonl.filesystem import Disk

__all__ = ["Disk", "FilesBackend"]
