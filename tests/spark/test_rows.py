"""Rows that are too many for the driver: tasks order and store them as the driver would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import muntin as mt
from muntin.run.many import StoredResult
from muntin.run.results import AtHand, Result
from muntin.spark.rows import SortedRows, Waits
from muntin.spark.runner import Settings, SparkRun
from muntin.store.results import Results
from tests.spark.sending import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = {
    "plain": "SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW 1 MINUTE, 2 MINUTES",
    "sorted": "SELECT k, sum(n) AS n FROM s GROUP BY k ORDER BY n DESC NULLS FIRST, k DESC "
    "WINDOW 1 MINUTE",
    "first": "SELECT k, sum(n) AS n FROM s GROUP BY k ORDER BY n DESC LIMIT 70 WINDOW 1 MINUTE",
    "around": "SELECT k, n, rank() OVER (ORDER BY n, k) AS place FROM "
    "(SELECT k, sum(n) AS n FROM s GROUP BY k) ORDER BY place WINDOW 1 MINUTE",
    "lists": "SELECT k, list(n ORDER BY n LIMIT 1) AS l FROM s GROUP BY k WINDOW 1 MINUTE",
    "pairs": "PYTHON 'tests.python_jobs:Sums' FROM s WINDOW 1 MINUTE",
    "rounds": "PYTHON 'tests.python_jobs:Most' FROM s WINDOW 1 MINUTE",
    "back": "SELECT k, n, n - coalesce((SELECT sum(p.n) FROM PREVIOUS(back) AS p WHERE p.k = r.k), "
    "0) AS more FROM (SELECT k, sum(n) AS n FROM s GROUP BY k) AS r WINDOW 1 MINUTE",
    "over": "SELECT count(*) AS rows, sum(n) AS n FROM JOB sorted WINDOW 3 MINUTES",
}


def program(folder: Path, jobs: Mapping[str, str] = JOBS) -> mt.Program:
    for source in ("web-1", "web-2"):
        lines = (
            json.dumps({"t": t / 10, "k": f"key {t * 7919 % 311}" if t % 50 else None, "n": t % 13})
            for t in range(0, 3000)
        )
        (folder / f"{source}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    stream = (
        "CREATE STREAM s (t DOUBLE, k VARCHAR, s VARCHAR, n BIGINT) "
        f"FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t;"
    )
    return mt.sql(stream + "".join(f"CREATE JOB {name} AS {job};" for name, job in jobs.items()))


def results(spark: SparkSession, asked: mt.Program, state: Path) -> Iterator[Result]:
    for turn in SparkRun(asked, spark.sparkContext, Settings(state, follow=False)).turns():
        yield from turn.emission.results()


def test_tasks_store_what_the_driver_would(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program(tmp_path)
    at_hand = list(results(spark, asked, tmp_path / "driver"))
    assert not any(isinstance(each, StoredResult) for each in at_hand)
    monkeypatch.setattr("muntin.spark.collection.ROWS_AT_HAND", 0)
    monkeypatch.setattr("muntin.spark.rows.RANGE_ROWS", 200)
    stored = list(results(spark, asked, tmp_path / "tasks"))
    assert {each.job for each in stored if isinstance(each, StoredResult)} >= {
        "plain", "sorted", "around", "lists", "pairs",
    }  # fmt: skip
    assert [told(each) for each in stored] == [told(each) for each in at_hand]
    for job in JOBS:
        by_driver, by_tasks = (
            Results(tmp_path / state).read(job).drop_columns(["emitted_at"])
            for state in ("driver", "tasks")
        )
        assert [row(each) for each in by_tasks.to_pylist()] == [
            row(each) for each in by_driver.to_pylist()
        ], job
    files = list((tmp_path / "tasks" / "results" / "sorted").glob("*.parquet"))
    assert len(files) > 1


def test_what_reaches_the_driver_does_not_grow_with_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(monkeypatch)
    sizes = []
    for keys in (20_000, 80_000):
        folder = tmp_path / f"{keys}"
        folder.mkdir()
        lines = (f'{{"t": {n % 60}, "k": "key {n * 7919 % keys}"}}\n' for n in range(keys))
        (folder / "web-1.jsonl").write_text("".join(lines))
        asked = mt.sql(
            f"CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.jsonl' FORMAT json "
            "TIMESTAMP t; "
            "CREATE JOB j AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 1 MINUTE;"
        )
        sent.bytes = 0
        (found,) = results(spark, asked, folder / "state")
        assert (found.num_rows, isinstance(found, StoredResult)) == (keys, True)
        sizes.append(sent.bytes)
    assert sizes[1] < 1.3 * sizes[0] < 100_000, sizes


def test_rows_that_are_not_sorted_yet_have_no_digests() -> None:
    """Which would say of every window that it is as it was shown last."""
    nobody: Any = None
    rows = SortedRows(nobody, nobody, (), Waits(), lambda: None)
    with pytest.raises(NotImplementedError, match="are to be `in_order`"):
        rows.digests  # noqa: B018


@pytest.mark.parametrize("more", [0, 1])
def test_after_a_lost_state_tasks_find_what_tables_have(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """What comes out the same is not stored again, and what does not becomes a revision."""
    jobs = {name: JOBS[name] for name in ("plain", "sorted", "around", "lists", "pairs")}
    jobs["visits"] = "SELECT k, count(*) AS n FROM s GROUP BY k WINDOW SESSION 1 SECOND"
    monkeypatch.setattr("muntin.spark.rows.RANGE_ROWS", 50)
    monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", 0)
    found = {}
    for way, at_hand in (("driver", 1 << 20), ("tasks", -1_000_000)):
        monkeypatch.setattr("muntin.spark.collection.ROWS_AT_HAND", at_hand)
        (tmp_path / way).mkdir()
        asked, state = program(tmp_path / way, jobs), tmp_path / way / "state"
        first = list(results(spark, asked, state))
        assert way == "driver" or {type(each) for each in first} == {StoredResult, AtHand}
        shutil.rmtree(state / "streams")
        with (tmp_path / way / "web-1.jsonl").open("a") as log:  # one that is there, once more
            log.write(f'{{"t": 299.9, "k": "key {2999 * 7919 % 311}", "n": 5}}\n' * more)
        assert len(list(results(spark, asked, state))) == len(first)
        for job in jobs:
            stored = Results(state).read(job, revisions=True).drop_columns(["emitted_at"])
            found[way, job] = [row(each) for each in stored.to_pylist()]
            assert any(each["revision"] for each in found[way, job]) == bool(more), job
            whole = [each for each in first if each.job == job]
            kept = [each for each in found[way, job] if not each["revision"]]
            assert len(kept) == sum(each.num_rows for each in whole), job
    for job in jobs:
        assert found["tasks", job] == found["driver", job], job


def told(result: Result) -> tuple[Any, ...]:
    return (
        result.job, result.window, result.start, result.end, result.num_rows,
        [row(each) for each in result.rows.to_pylist()],
        result.counts, result.c2, result.revision, result.version,
    )  # fmt: skip


def row(found: dict[str, Any]) -> dict[str, Any]:
    """All but the process that a job of the tests has run in."""
    return {name: value for name, value in found.items() if name != "process"}
