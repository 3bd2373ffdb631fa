"""Sources that are gone for good are let go, and no others."""

from __future__ import annotations

from muntin.fidelity.scoreboard import Source
from muntin.model.records import POSITION, RECORDS
from muntin.run.progress import GONE_SECONDS, Progress


def test_sources_that_are_gone_for_good_are_let_go() -> None:
    def source(reached: int, heard: float, ended: bool = True, axis: str = POSITION) -> Source:
        return Source({axis: reached}, {axis: 0}, heard, ended=ended)

    progress = Progress(
        sources={
            "gone": source(10, 0.0),
            "lately": source(10, 100.0),
            "needed": source(20, 0.0),
            "there": source(10, 0.0, ended=False),
            "counting": source(10, 0.0, axis=RECORDS.column),
        }
    )
    progress.let_go({POSITION: 20, RECORDS.column: 20}, GONE_SECONDS + 50)
    assert list(progress.sources) == ["lately", "needed", "there", "counting"]
