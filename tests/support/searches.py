"""Sessions to search in, and what is found."""

from __future__ import annotations

from onefold import Store
from onefold.model import Json
from onefold.recall import Hit, Recall, SearchResult


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def numbers(found: SearchResult | list[Hit]) -> list[int]:
    return [hit.number for hit in found]


def find(store: Store, query: str, **options: Json) -> list[int]:
    return numbers(Recall(store).search(query, patience=None, **options))
