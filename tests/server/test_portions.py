"""Records for streams: how many are held at once, whatever their number and size."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from onefold.model import Record
from onefold.server.events.record_batches import TOGETHER, RecordBatch, portion


class Journal:
    """Records of given sizes, and what was read of them at once."""

    def __init__(self, *sizes: int) -> None:
        self.records = [Record(n, f"r{n}", "message", 0.0, {"content": "x" * size}) for n, size in enumerate(sizes, 1)]
        self.asked: list[int] = []

    def read(self, start: int, several: int) -> list[Record]:
        self.asked.append(several)
        return self.records[start - 1 : start - 1 + several]

    def portion(self, start: int = 1, *, limit: int = 1_000, most: int) -> list[RecordBatch]:
        return portion("s", self.read, start, len(self.records) + 1, limit=limit, most=most)


def test_large_records_are_read_one_by_one_and_no_more_of_them_than_there_is_room_for() -> None:
    journal = Journal(*[1 << 20] * 100)

    told = journal.portion(most=8 << 20)

    assert len(told) <= 9
    assert max(journal.asked) <= 4


def test_small_ones_are_read_many_at_a_time() -> None:
    journal = Journal(*[100] * 500)

    told = journal.portion(limit=500, most=8 << 20)

    assert [one.record.number for one in told] == list(range(1, 501))
    assert len(journal.asked) < 16
    assert max(journal.asked) == TOGETHER


def test_one_that_is_larger_than_the_bound_comes_alone() -> None:
    told = Journal(5_000, 10, 10).portion(most=1_000)

    assert [one.record.number for one in told] == [1]


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=200), st.integers(1, 300), st.integers(1, 20_000))
def test_portions_make_the_whole_without_a_gap_and_stop_at_the_bound(sizes: list[int], limit: int, most: int) -> None:
    journal = Journal(*sizes)
    seen: list[int] = []
    while len(seen) < len(sizes):
        told = journal.portion(len(seen) + 1, limit=limit, most=most)
        assert 0 < len(told) <= limit
        before = sum(len(one.text) for one in told[: -journal.asked[-1]])
        assert before < most, "it was full before the last ones were read"
        seen += [one.record.number for one in told]
    assert seen == list(range(1, len(sizes) + 1))


def test_nothing_is_there_to_read() -> None:
    assert Journal().portion(most=10) == []
    assert portion("s", lambda start, several: [], 1, 5, limit=10, most=10) == []
