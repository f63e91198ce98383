"""Sessions as folders of JSON lines, with an index beside them that can be thrown away."""

from onefold.journal.files.backend import FilesBackend
from onefold.journal.files.disk import Disk

__all__ = ["Disk", "FilesBackend"]
