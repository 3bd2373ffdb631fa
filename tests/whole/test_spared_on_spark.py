"""A job that takes long for every record beside a cheap one, on Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import muntin as mt
from muntin.kernel.python.jobs import MapReduce, Pair
from muntin.store.results import Results
from muntin.store.status import status
from tests.whole.test_live_on_spark import Clock, started, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAKES = 0.04  # seconds a record, of a real clock
EACH = 40  # records a second

PROGRAM = """
CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;
CREATE JOB cheap AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 1 SECOND
WITHIN 2 SECONDS;
CREATE JOB dear AS PYTHON 'tests.whole.test_spared_on_spark:Slow' FROM s WINDOW 1 SECOND
WITHIN 2 SECONDS;
"""


class Slow(MapReduce):
    """Counts records, and takes its time for each."""

    uses = ("k",)
    columns = {"k": "VARCHAR", "c": "BIGINT"}  # noqa: RUF012

    def mapper(self, _: None, record: dict[str, Any]) -> Iterator[Pair]:
        until = time.perf_counter() + TAKES
        while time.perf_counter() < until:
            pass
        yield record["k"], 1

    def reducer(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        yield key, sum(values)


def test_a_dear_job_lacks_panes_and_the_cheap_one_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By a clock that stands still while a batch is read, so that costs alone decide."""
    clock, program = Clock(), mt.sql(PROGRAM.format(folder=tmp_path))
    written: Counter[int] = Counter()
    notes: list[str] = []
    with patch("muntin.spark.runner.StreamRun._watch", return_value=None):
        run = started(spark, tmp_path, program, clock)
    for _ in range(10):
        times = [clock.now + number / EACH for number in range(EACH)]
        write(tmp_path, "a", *times, at=clock.now)
        written.update(int(at) for at in times)
        clock.now += 1
        remaining = 1
        while remaining:
            turn = run.loop.turn(run.loop.wake_at())
            notes, remaining = [*notes, *turn.notes], turn.remaining
    run.close()
    jobs = {row["job"]: row for row in status(tmp_path / "state")[0]}
    found = Results(tmp_path / "state")
    cheap, dear = (found.read(job).to_pylist() for job in ("cheap", "dear"))
    assert len(cheap) >= 8
    for row in cheap[4:]:  # until then it may not be known what records take
        assert row["c"] == written[int(row["window_start"].timestamp())]
        assert {m["why"] for m in row["c2"]["missing"]} <= {"awaited"}
    assert jobs["cheap"]["thinned"] == 0
    assert jobs["dear"]["thinned"] >= 1
    assert jobs["dear"]["computing"] > 0.5
    for row in dear:
        whole = written[int(row["window_start"].timestamp())]
        assert row["c"] == whole if row["c2"]["area"] == 1.0 else row["c"] < whole
        assert {m["why"] for m in row["c2"]["missing"]} <= {"shed", "awaited"}
    assert any("job 'dear'" in note and "panes of it are shed" in note for note in notes)
