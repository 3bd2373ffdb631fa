"""What is kept of results for jobs that look back: the last of each kind, in any state."""

from __future__ import annotations

import pyarrow as pa

from muntin.language.check import check
from muntin.model.counts import Counts
from muntin.model.jobs import Job
from muntin.run.catalog import Catalog
from muntin.run.previous import Kept, kept_of, previous_of
from muntin.run.results import Emission, JobWindows

TEXT = """CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;
CREATE JOB j AS SELECT count(*) AS n, (SELECT n FROM PREVIOUS(j)) AS b FROM s
WINDOW 1 MINUTE, 2 MINUTES; CREATE JOB other AS SELECT count(*) AS n FROM s WINDOW 1 MINUTE"""
MINUTE = 60_000_000


def catalog(text: str = TEXT) -> Catalog:
    program = check(text, lambda _: ())
    return Catalog.of(program.streams["s"], program.jobs.values())


def left(job: Job, *windows: tuple[int, int, int | None]) -> JobWindows:
    """Windows by kind and end, each with a row of that number, if any."""
    rows = [window for window in windows if window[2] is not None]
    which, ends, numbers = zip(*rows, strict=True)
    table = pa.table({"__window": which, "__end": ends, "n": numbers, "b": numbers})
    return JobWindows(job, table, {(kind, end): Counts() for kind, end, _ in windows}, {})


def test_the_last_window_of_each_kind_is_kept() -> None:
    known = catalog()
    windows = left(known.jobs["j"], (0, 4, 1), (0, 5, 2), (1, 4, 3))
    kept = kept_of(Emission((windows, left(known.jobs["other"], (0, 5, 9)))))
    previous = previous_of(known, kept)
    assert previous.keys() == {"j"}
    assert {kind: (end, rows["n"].to_pylist()) for kind, (end, rows) in previous["j"].items()} == {
        0: (5, [2]),
        1: (4, [3]),
    }


def test_a_last_window_without_rows_leaves_none() -> None:
    known = catalog()
    kept = kept_of(Emission((left(known.jobs["j"], (0, 4, 1), (0, 5, None)),)))
    ((end, rows),) = previous_of(known, kept)["j"].values()
    assert (end, rows.num_rows) == (5, 0)


def test_what_is_kept_can_be_written_and_read() -> None:
    rows = pa.table({"n": [1, None], "l": [["ü"], []]})
    again = Kept.read(Kept("v", -5, rows).text)
    assert (again.version, again.end, again.rows) == ("v", -5, rows)


def test_another_grid_is_no_matter_and_another_definition_is() -> None:
    known = catalog()
    kept = kept_of(Emission((left(known.jobs["j"], (0, 4, 1)),)))
    finer = catalog(TEXT.replace("WINDOW 1 MINUTE, 2", "WINDOW 1 MINUTE EVERY 30 SECONDS, 2"))
    assert previous_of(finer, kept)["j"] == {}
    grown = Catalog.of(known.stream, known.jobs.values()).with_jobs(
        *catalog(
            TEXT.replace("JOB other", "JOB more").replace("S; C", "S PANE 1 SECOND; C")
        ).jobs.values()
    )
    ((end, _),) = previous_of(grown, kept)["j"].values()
    assert end * grown.jobs["j"].shape.pane == 4 * MINUTE
