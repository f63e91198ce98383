"""Recall: finding what was said before, whatever was compacted since, and reading it again.

It reads the journal and writes nothing to it. The index is a sidecar file of the store.
"""

from onefold.recall.agent_tools import RecallTools
from onefold.recall.background_indexer import BackgroundIndexer
from onefold.recall.hits import Hit, SearchResult
from onefold.recall.search_engine import Recall, search

__all__ = ["BackgroundIndexer", "Hit", "Recall", "RecallTools", "SearchResult", "search"]
