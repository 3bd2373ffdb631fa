"""A job whose reducer takes long beside a cheap one, on Spark and through restarts."""

from __future__ import annotations

import time
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

TAKES = 0.3  # seconds, of a real clock

PROGRAM = """
CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;
CREATE JOB cheap AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 1 SECOND
WITHIN 500 MILLISECONDS;
CREATE JOB dear AS PYTHON 'tests.whole.test_fair_on_spark:Slow' FROM s WINDOW 1 SECOND
WITHIN 100 MILLISECONDS;
"""


class Slow(MapReduce):
    """Counts records, and takes its time."""

    uses = ("k",)
    columns = {"k": "VARCHAR", "c": "BIGINT"}  # noqa: RUF012

    def mapper(self, _: None, record: dict[str, Any]) -> Iterator[Pair]:
        yield record["k"], 1

    def reducer(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        until = time.perf_counter() + TAKES
        while time.perf_counter() < until:
            pass
        yield key, sum(values)


def test_a_dear_job_sheds_windows_and_every_one_leaves_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock, program = Clock(), mt.sql(PROGRAM.format(folder=tmp_path))
    begin = int(clock.now)
    for _ in range(2):  # a new program every time
        with patch("muntin.spark.runner.StreamRun._watch", return_value=None):
            run = started(spark, tmp_path, program, clock)
        for _ in range(12):
            write(tmp_path, "a", clock.now, clock.now + 0.5, at=clock.now)
            clock.now += 1
            for _ in range(2):
                run.loop.turn(run.loop.wake_at())
        run.close()
    jobs = {row["job"]: row for row in status(tmp_path / "state")[0]}
    rows = {
        job: [
            (int(row["window_start"].timestamp()) - begin, row["c"])
            for row in Results(tmp_path / "state").read(job).to_pylist()
        ]
        for job in jobs
    }
    windows = jobs["cheap"]["windows"]
    assert windows >= 20
    assert rows["cheap"] == [(start, 2) for start in range(windows)]
    assert jobs["cheap"]["shed"] == 0
    # The newest may wait, or have left sooner as it takes longer.
    assert abs(jobs["dear"]["windows"] - windows) <= 1
    assert jobs["dear"]["shed"] == jobs["dear"]["windows"] - len(rows["dear"])
    assert jobs["dear"]["shed"] >= 3
    assert set(rows["dear"]) <= {(start, 2) for start in range(windows + 1)}
    assert len(set(rows["dear"])) == len(rows["dear"]) >= 2
    assert jobs["dear"]["answer"] > TAKES
    assert jobs["dear"]["share"] > 0.5
