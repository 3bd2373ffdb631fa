"""Open windows of many rows: tasks compare and store what is shown as this process would."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import Reason
from muntin.language.program import sql, with_job
from muntin.model.jobs import Program
from muntin.run.derived import JobResults, Readers
from muntin.run.inline import InlineRun
from muntin.run.loop import Loop, Rules
from muntin.run.many import StoredResult, StoredWindows
from muntin.run.members import results_in
from muntin.run.results import Emission, Result
from muntin.schedule.pace import Measure
from muntin.spark.runner import Settings, StreamRun
from muntin.store.results import Results
from tests.effort import examples
from tests.spark.sending import Sent
from tests.whole import test_changes
from tests.whole.test_changes import STARTED, batches, steps_of, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("looking_at_all")]

STREAM = test_changes.STREAM.replace("k VARCHAR", "k VARCHAR, s VARCHAR")
SUMS = "SELECT k, sum(n) AS n FROM s GROUP BY k"
JOBS = {
    "sums": f"{SUMS} WINDOW 10 SECONDS, 20 SECONDS EVERY 5 SECONDS",
    "few": f"{SUMS} HAVING sum(n) < 6 WINDOW 10 SECONDS REVISE",
    "ranked": "SELECT k FROM s GROUP BY k ORDER BY sum(n) DESC, k WINDOW 20 SECONDS",
    "shares": f"SELECT k, n, sum(n) OVER () AS whole FROM ({SUMS}) ORDER BY k WINDOW 20 SECONDS",
    "fails": f"SELECT k, CAST(40 * n AS TINYINT) AS n FROM ({SUMS}) WINDOW 10 SECONDS MAX ERRORS 1",
    "pairs": "PYTHON 'tests.python_jobs:Sums' FROM s WINDOW 10 SECONDS",
    "runs": "PYTHON 'tests.python_jobs:Runs' FROM s WINDOW 10 SECONDS",
}
OTHERS = (
    "CREATE JOB most AS SELECT k, max(n) AS n, count(*) AS c FROM JOB sums GROUP BY k "
    "WINDOW 20 SECONDS;"
    "CREATE JOB beside AS SELECT g.n, l.k, l.n AS was FROM (SELECT sum(n) AS n FROM s) g "
    "LEFT JOIN LATEST(sums, 10 SECONDS) l ON true ORDER BY l.k WINDOW 10 SECONDS;"
)


def program(folder: Path) -> Program:
    jobs = (f"CREATE JOB {name} AS {text} EMIT CHANGES;" for name, text in JOBS.items())
    asked = sql(STREAM.format(folder=folder) + "".join(jobs) + OTHERS)
    return with_job(asked, "alarms", test_changes.Windowed, stream="s")


class Inline:
    """All streams of a program in this process."""

    def __init__(self, asked: Program) -> None:
        self._runs = []
        for stream in asked.streams.values():
            intake = JobResults(stream, True) if stream.job else None
            rules = Rules(True, idle_seconds=1000)
            self._runs.append(InlineRun(stream, asked.jobs_of(stream.name), rules, intake=intake))

    def turn(self, now: float) -> list[Result]:
        intakes = [each for run in self._runs for each in results_in(run.loop._intake)]
        readers = Readers(intakes, [run.loop for run in self._runs])
        return [r for run in self._runs for r in handed_on(run.loop, run.turn(now), readers)]


class OnSpark:
    """The same on Spark, with a new program when it is said to begin again."""

    def __init__(self, spark: SparkSession, asked: Program, state: Path) -> None:
        self._spark, self._asked, self._state = spark, asked, state
        self._clock = [STARTED + 0.0]
        self.stored = 0
        self._runs = self._begun()

    def _begun(self) -> list[StreamRun]:
        settings, context = Settings(self._state, True, idle_seconds=1000), self._spark.sparkContext
        runs = []
        with patch.object(StreamRun, "_watch", return_value=None):
            for stream in self._asked.streams.values():
                jobs = self._asked.jobs_of(stream.name)
                runs.append(StreamRun(context, stream, jobs, settings, lambda: self._clock[0]))
                runs[-1].loop.pace.leaving = Measure(0.0)
        return runs

    def again(self) -> None:
        self.close()
        self._runs = self._begun()

    def turn(self, now: float) -> list[Result]:
        self._clock[0] = now
        intakes = [each for run in self._runs for each in results_in(run.intake)]
        readers = Readers(intakes, [run.loop for run in self._runs])
        found: list[Result] = []
        for run in self._runs:
            emission = run.loop.turn().emission
            self.stored += sum(isinstance(each, StoredWindows) for each in emission.windows)
            found += handed_on(run.loop, emission, readers)
        return found

    def close(self) -> None:
        for run in self._runs:
            run.close()


def handed_on(loop: Loop, emission: Emission, readers: Readers) -> list[Result]:
    readers.hand_on(loop, emission)
    return list(emission.results())


def told(results: Iterable[Result]) -> list[tuple[Any, ...]]:
    """Results in the order of windows."""
    return sorted(
        (r.job, r.window, r.end, r.revision, str(r.c2.reason), r.num_rows, r.counts.read,
         r.counts.failed, r.c2.area, rows_of(r.rows))
        for r in results
    )  # fmt: skip


def rows_of(rows: pa.Table) -> list[str]:
    return [str(row) for row in rows.to_pylist()]


@examples(5)
@given(
    steps=batches, again=st.sets(st.integers(0, 8), max_size=3), ranges=st.integers(1, 3),
    at_hand=st.lists(st.sampled_from([-1000, 1500, 1 << 20]), min_size=12, max_size=12),
)  # fmt: skip
def test_tasks_show_what_this_process_would(
    spark: SparkSession, steps: list[Any], again: set[int], ranges: int, at_hand: Sequence[int]
) -> None:
    """Whatever is at hand with one batch, and with the next in tasks, also of another program."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as changed:
        changed.setattr("muntin.spark.rows.RANGE_ROWS", ranges)
        folder, state = Path(name) / "logs", Path(name) / "state"
        folder.mkdir()
        for source in "ab":
            write(folder, source, [(0, "x", 1)], STARTED)
        here, tasks = Inline(program(folder)), OnSpark(spark, program(folder), state)
        every: list[tuple[Any, ...]] = []
        more = [[(source, 9, "end", 1) for source in "ab"] for _ in range(4)]
        for number, (now, written) in enumerate(steps_of([*steps, *more])):
            for source, records in written.items():
                write(folder, source, records, STARTED + now)
            changed.setattr("muntin.spark.collection.ROWS_AT_HAND", at_hand[number])
            expected = told(here.turn(STARTED + now))
            assert told(tasks.turn(STARTED + now)) == expected
            every += expected
            if number in again:
                tasks.again()
        tasks.close()
        assert tasks.stored or min(at_hand[: len(steps) + 4]) > 0
        for job in (*JOBS, "alarms", "most", "beside"):
            assert stored(state, job) == sorted(
                (window, revision, reason, row)
                for name, window, _, revision, reason, *_, rows in every
                if name == job
                for row in rows
            ), job


def stored(state: Path, job: str) -> list[tuple[Any, ...]]:
    """All revisions that a table has."""
    found = Results(state).read(job, revisions=True)
    names = [name for name in found.column_names if name not in _OURS]
    told = found.select(["window_name", "revision", "c2"]).to_pylist()
    rows = rows_of(found.select(names))
    return sorted(
        (t["window_name"], t["revision"], t["c2"]["reason"], row)
        for t, row in zip(told, rows, strict=True)
    )


_OURS = (
    "job", "window_name", "window_start", "window_end", "c2", "c2_records", "revision",
    "emitted_at", "job_version", "results_used",
    *(f"records_{what}" for what in ("read", "bad", "late", "failed")),
)  # fmt: skip


def test_what_reaches_the_driver_does_not_grow_with_rows_that_are_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(monkeypatch)
    sizes = []
    for keys in (20_000, 80_000):
        folder = tmp_path / f"{keys}"
        (folder / "logs").mkdir(parents=True)
        texts = {"sums": SUMS, "shares": JOBS["shares"].partition(" WINDOW")[0]}
        jobs = (f"CREATE JOB {n} AS {t} WINDOW 1 MINUTE EMIT CHANGES;" for n, t in texts.items())
        asked = sql(STREAM.format(folder=folder / "logs") + "".join(jobs))
        run = OnSpark(spark, asked, folder / "state")
        sent.bytes, shown = 0, list[Result]()
        for number in range(3):  # with the last batch, nothing has changed
            more = [(number, f"key {n}", 1) for n in range(keys)] if number < 2 else []
            write(folder / "logs", "a", more, STARTED + number)
            shown += run.turn(STARTED + 1.0 + number)
        run.close()
        assert [(r.revision, r.num_rows, r.c2.reason) for r in shown] == [
            (revision, keys, Reason.OPEN) for revision in (0, 0, 1, 1)
        ]
        assert all(isinstance(result, StoredResult) for result in shown)
        sizes.append(sent.bytes)
    assert sizes[1] < 1.3 * sizes[0] < 200_000, sizes
