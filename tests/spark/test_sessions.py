"""Sessions that are too many for the driver: tasks store and score them as the driver would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import muntin as mt
from muntin.run.results import Departing
from muntin.run.sessions import StoredSessions
from muntin.spark.runner import Settings, SparkRun
from muntin.store.checkpoint import saved_in
from muntin.store.results import Results
from tests.effort import examples
from tests.oracle import Record, write_logs
from tests.spark.sending import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-60, 120),
            "k": st.sampled_from(["a", "b", "c", None]),
            "n": st.one_of(st.none(), st.integers(0, 3)),
        }
    ),
    max_size=25,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
JOBS = (
    "CREATE JOB visits AS SELECT k, count(*) AS c, sum(n) AS n, list(n ORDER BY n LIMIT 2) AS l "
    "FROM logs GROUP BY k WINDOW SESSION 10 SECONDS; "
    "CREATE JOB fails AS SELECT k, CAST(sum(40 * n) AS TINYINT) AS n FROM logs GROUP BY k "
    "WINDOW SESSION 10 SECONDS MAX ERRORS 2; "
    "CREATE JOB both AS SELECT k, count(*) AS c FROM logs GROUP BY k "
    "WINDOW 1 MINUTE, SESSION 5 SECONDS; "
    "CREATE JOB over AS SELECT count(*) AS sessions, sum(c) AS c FROM JOB visits WINDOW 1 MINUTE;"
)


def program(folder: Path, slack: int | None) -> mt.Program:
    wait = f"SLACK {slack} SECONDS" if slack is not None else ""
    return mt.sql(
        f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
        f"FORMAT json TIMESTAMP t {wait}; {JOBS}"
    )


def departed(spark: SparkSession, asked: mt.Program, state: Path, batch: int) -> list[Departing]:
    settings = Settings(state, follow=False, batch_bytes=batch)
    turns = SparkRun(asked, spark.sparkContext, settings).turns()
    return [windows for turn in turns for windows in turn.emission.windows]


def at(*times: int) -> list[Record]:
    return [{"t": t, "k": "a", "n": None} for t in times]


@examples(4)
@example(logs={"db": at(0, 0, 0, -55, *[0] * 12)}, slack=0, batch=200, ranges=1)  # without rows
@given(
    logs=sources, slack=st.sampled_from([None, 0, 15]), batch=st.integers(200, 4000),
    ranges=st.integers(1, 8),
)  # fmt: skip
def test_tasks_store_and_score_what_the_driver_would(
    spark: SparkSession,
    logs: Mapping[str, Sequence[Record]],
    slack: int | None,
    batch: int,
    ranges: int,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        write_logs(folder, logs)
        asked = program(folder, slack)
        by_driver = departed(spark, asked, folder / "driver", batch)
        patch.setattr("muntin.spark.collection.ROWS_AT_HAND", -1_000_000)
        patch.setattr("muntin.spark.rows.RANGE_ROWS", ranges)
        patch.setattr("muntin.spark.sessions._AT_ONCE", 2)
        by_tasks = departed(spark, asked, folder / "tasks", batch)
        assert not any(isinstance(each, StoredSessions) for each in by_driver)
        assert all(isinstance(w, StoredSessions) for w in by_tasks if not w.job.windows)
        for job in ("visits", "fails", "both", "over"):
            assert results_of(by_tasks, job) == results_of(by_driver, job), job
            assert stored(folder / "tasks", job) == stored(folder / "driver", job), job
        assert summed_up(by_tasks) == summed_up(by_driver)
        assert measured(folder / "tasks") == measured(folder / "driver")


def test_what_reaches_the_driver_does_not_grow_with_sessions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(monkeypatch)
    sizes = []
    for keys in (20_000, 80_000):
        folder = tmp_path / f"{keys}"
        folder.mkdir()
        lines = (f'{{"t": {n / 1000}, "k": "key {n * 7919 % keys}"}}\n' for n in range(keys))
        (folder / "web-1.jsonl").write_text("".join(lines))
        asked = mt.sql(
            f"CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.jsonl' FORMAT json "
            "TIMESTAMP t; "
            "CREATE JOB j AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW SESSION 1 SECOND;"
        )
        sent.bytes = 0
        (left,) = departed(spark, asked, folder / "state", 1 << 30)
        assert isinstance(left, StoredSessions)
        assert (left.num_windows, left.num_rows, len(left.scores)) == (keys, keys, 1)
        sizes.append(sent.bytes)
    assert sizes[1] < 1.3 * sizes[0] < 100_000, sizes
    places = [(result.end, result.start) for result in left.results()]
    assert places == sorted(set(places))
    assert len(places) == 80_000


def results_of(every: Sequence[Departing], job: str) -> list[tuple[Any, ...]]:
    """All but what is the same of all; in the order of windows, as jobs leave in any."""
    found = [
        (r.end, r.start, r.window, r.rows.to_pylist(), r.counts, r.c2, r.version)
        for windows in every
        if windows.job.title == job
        for r in windows.results()
    ]
    return sorted(found, key=itemgetter(0, 1, 2))


def stored(state: Path, job: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Results(state).read(job).drop_columns(["emitted_at"]).to_pylist()
    return rows


def summed_up(every: Sequence[Departing]) -> list[tuple[Any, ...]]:
    """What is said of windows that left together, and the rows of the newest."""
    return sorted(
        (w.job.name, w.last, w.num_windows, w.num_rows, str(w.scores[w.last]), w.counts[w.last],
         w.newest().table().drop_columns(["emitted_at"]).to_pylist())
        for w in every
        if w.counts
    )  # fmt: skip


def measured(state: Path) -> dict[str, tuple[int, float, int]]:
    """By job, how many windows have left, and how complete they were."""
    timings = {n: t for s in saved_in(state).values() for n, t in s.progress.timings.items()}
    return {name: (t.windows, round(t.area, 9), t.thinned) for name, t in timings.items()}
