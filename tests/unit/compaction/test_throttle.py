"""Long work stops for a moment: often while somebody writes, and now and then in any case."""

from __future__ import annotations

import pytest

from onefold.compaction.throttle import Throttle


@pytest.mark.parametrize(("writing", "worked", "pauses"), [
    (True, 0.0001, 0), (True, 0.0005, 1), (False, 0.0005, 0), (False, 0.03, 1),
])  # fmt: skip
def test_it_pauses_after_a_bit_of_work_beside_writers_and_rarely_alone(
    monkeypatch: pytest.MonkeyPatch, writing: bool, worked: float, pauses: int
) -> None:
    now = [0.0]
    monkeypatch.setattr("onefold.compaction.throttle.time.monotonic", lambda: now[0])
    waited: list[float] = []
    pause = Throttle(waited.append, lambda: writing)

    now[0] += worked
    pause()
    pause()

    assert len(waited) == pauses, "and once: what was worked counts from the last pause on"
