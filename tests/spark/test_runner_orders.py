"""A run on Spark that takes orders while it follows logs, and goes on with them after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from muntin.errors import LanguageError, OrderError
from muntin.run.door import Door
from muntin.spark.runner import Settings, SparkRun
from muntin.store.results import Results
from tests.spark.test_runner import BASE, program, write
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("looking_at_all")


class Running:
    """A program that runs in a thread of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.notes: list[str] = []
        self.door, self._folder = Door(folder), folder
        settings = Settings(folder / "state", follow=True, idle_seconds=600)
        self._stop = Event()
        self._run = SparkRun(
            program(folder / "logs"), spark.sparkContext, settings, self._stop, door=self.door
        )
        self._thread = Thread(target=self._turns)
        self._thread.start()

    def _turns(self) -> None:
        for turn in self._run.turns():
            self.notes += turn.notes

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def rows(self, job: str) -> list[tuple[int, int, str, int]]:
        """Version, window, key and number of what is stored."""
        results = Results(self._folder / "state")
        if not results.has(job):
            return []
        return [
            (row["job_version"], int(row["window_start"].timestamp()) - BASE, row["k"], row["n"])
            for row in results.read(job).to_pylist()
        ]


@contextmanager
def running(spark: SparkSession, folder: Path) -> Iterator[Running]:
    run = Running(spark, folder)
    try:
        wait_for(lambda: _is_open(run.door))
        yield run
    finally:
        run.stop()


def _is_open(door: Door) -> bool:
    try:
        return bool(door.program)
    except OrderError:
        return False


def test_orders_are_taken_while_logs_are_followed(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write(logs, "web-1", (3, "a", 1), (12, "a", 2))
    with running(spark, tmp_path) as run:
        wait_for(lambda: run.rows("sums") == [(1, 0, "a", 1)])
        with pytest.raises(LanguageError):
            run.door.submit("CREATE JOB broken AS SELECT nothing FROM logs WINDOW 1 DAY")
        reply = run.door.submit(
            "CREATE OR REPLACE JOB sums AS SELECT k, sum(n) * 100 AS n, count(*) AS c FROM logs "
            "GROUP BY k WINDOW 10 SECONDS; CREATE JOB most AS SELECT k, max(n) AS n FROM logs "
            "GROUP BY k WINDOW 10 SECONDS"
        )
        replaced, created = reply.effects
        assert (replaced.version, replaced.position) == (2, (BASE + 20) * 1_000_000)
        assert (created.version, created.position) == (1, (BASE + 20) * 1_000_000)
        write(logs, "web-1", (15, "a", 4), (25, "a", 8), (33, "a", 16))
        wait_for(lambda: len(run.rows("sums")) == 3 and len(run.rows("most")) == 1)
    versions = [(1, 0, "a", 1), (1, 10, "a", 6), (2, 20, "a", 800)]
    with running(spark, tmp_path) as run:
        write(logs, "web-1", (45, "a", 32))
        wait_for(lambda: run.rows("sums") == [*versions, (2, 30, "a", 1600)])
        wait_for(lambda: run.rows("most") == [(1, 20, "a", 8), (1, 30, "a", 16)])
        assert any("goes on as it was changed while it ran (version 2)" in n for n in run.notes)
        assert run.door.submit("DROP JOB most").effects[0].does == "dropped"
        assert run.door.submit("PAUSE JOB sums").effects[0].does == "paused"
        write(logs, "web-1", (65, "a", 64))
        (resumed,) = run.door.submit("RESUME JOB sums").effects
        assert resumed.position is not None
