"""Complete windows are kept while larger ones may be made of them, and only then."""

from __future__ import annotations

import pyarrow as pa

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.consolidate import Consolidation
from muntin.language.program import sql
from muntin.model.counts import Tally
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.windows.shelf import Complete, Shelf
from muntin.windows.spec import WindowSpec

MINUTE = 60_000_000


def job() -> Job:
    return sql(
        "CREATE STREAM s (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT count(*) AS n FROM s "
        "WINDOW 5 MINUTES, 10 MINUTES, 15 MINUTES, 20 MINUTES PANE 1 MINUTE"
    ).jobs["j"]


def test_windows_that_leave_minute_by_minute_take_86_merges_too() -> None:
    """The hour of `test_sharing`, but live: at each minute only what ends there is due."""
    found = job()
    shape = found.shape
    minutes = pa.array([minute * MINUTE for minute in range(60)], pa.int64())
    records = pa.table({POSITION: minutes})
    recipe = Recipe(shape, found.windows)
    (block,) = compute(records, "web-1", [recipe], Clocks())[0].values()
    made: list[tuple[WindowSpec, pa.Table]] = []
    tiles = 0
    for now in range(1, 61):
        consolidation = Consolidation(shape, block, known=made)
        for spec in sorted(found.windows, key=lambda spec: spec.length):
            if now % spec.length == 0:
                rows = consolidation.windows(spec, [now], again=True).table()
                assert rows["c0"].to_pylist() == [spec.length]
        made += consolidation.fresh
        tiles += consolidation.merges.tiles
    assert tiles == 86


def complete(shape: str, length: int, end: int) -> Complete[str]:
    spec = next(w for w in job().windows if w.length == length)
    return Complete(shape, spec, end, f"{length} to {end}")


def test_only_smaller_windows_are_useful() -> None:
    shape = job().shape.id
    shelf = Shelf([complete(shape, 5, 5), complete(shape, 10, 10)])
    due = {shape: [w for w in job().windows if w.length == 10]}
    assert [c.rows for c in shelf.useful(due)] == ["5 to 5"]
    assert shelf.useful({}) == []


def test_what_nothing_can_be_made_of_is_dropped() -> None:
    shape = job().shape.id
    shelf = Shelf([complete(shape, 5, 5), complete(shape, 5, 10), complete(shape, 10, 10)])
    shelf.drop_before({shape: 5})
    assert [c.rows for c in shelf.complete] == ["5 to 10"]


def test_records_that_come_after_all_make_windows_incomplete() -> None:
    found = job()
    shape = found.shape
    shelf = Shelf([complete(shape.id, 5, 5), complete(shape.id, 5, 10)])
    late = Tally("web-2", POSITION, shape.pane, 7, 12, 1, 0, 0)
    shelf.drop_touched({shape.id: shape}, [late])
    assert len(shelf.complete) == 2
    on_time = Tally("web-2", POSITION, shape.pane, 7, None, 1, 0, 0)
    shelf.drop_touched({shape.id: shape}, [on_time])
    assert [c.rows for c in shelf.complete] == ["5 to 5"]
