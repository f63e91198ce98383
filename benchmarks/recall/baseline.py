"""Plain full text with stemming, as one would build it with SQLite alone, and told which language it has."""

from __future__ import annotations

import re
from contextlib import closing

import apsw
import Stemmer

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")


class FullText:
    """Messages by number; a question finds those with any of its stems, ranked by BM25."""

    def __init__(self, stemmer: str | None) -> None:
        self._stem = Stemmer.Stemmer(stemmer).stemWord if stemmer is not None else str
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(
            "create virtual table said using fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2')"
        )

    def add(self, number: int, text: str) -> None:
        self._connection.execute("insert into said (rowid, text) values (?, ?)", (number, " ".join(self._stems(text))))

    def search(self, question: str, limit: int) -> list[int]:
        any_of = " OR ".join(f'"{stem}"' for stem in dict.fromkeys(self._stems(question)))
        with closing(self._connection.cursor()) as cursor:
            rows = cursor.execute(
                "select rowid from said where said match ? order by bm25(said) limit ?", (any_of, limit)
            )
            return [int(str(row[0])) for row in rows]

    def _stems(self, text: str) -> list[str]:
        return [self._stem(word) for word in _WORD.findall(text.lower())]
