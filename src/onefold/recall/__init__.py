"""Recall: finding what was said before, whatever was compacted since, and reading it again.

It reads the journal and writes nothing to it. The index is a file of its own beside the store.
"""

from onefold.recall.finding import Recall, search
from onefold.recall.follower import Follower
from onefold.recall.hits import Found, Hit
from onefold.recall.tools import Tools

__all__ = ["Follower", "Found", "Hit", "Recall", "Tools", "search"]
