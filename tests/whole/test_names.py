"""Columns may have any name: also one that the statements of a job use for themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muntin as mt

# What statements call their own columns and relations.
OURS = ("w", "win", "r", "rows", "k0", "o0", "x0", "x1", "a0", "c0", "pane", "part", "last", "p0")
QUERIES = {
    "key": 'SELECT k AS "{}", count(*) AS n FROM s GROUP BY 1 ORDER BY n DESC, 1',
    "first": 'SELECT k AS "{}", count(*) AS n FROM s GROUP BY 1 ORDER BY n DESC, 1 LIMIT 2',
    "value": 'SELECT k, sum(v) AS "{}", median(v) AS m FROM s GROUP BY k ORDER BY k DESC',
    "finish": 'SELECT k, "{0}", rank() OVER (ORDER BY "{0}") AS place '
    'FROM (SELECT k, sum(v) AS "{0}" FROM s GROUP BY k) ORDER BY place DESC, k',
}
STREAM = "CREATE STREAM s FROM '{}/a.jsonl' FORMAT json TIMESTAMP t IN SECONDS; "


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    records = [{"t": n * 7, "k": f"k{n * n % 11}", "v": n % 13} for n in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return tmp_path


def _values(folder: Path, job: str) -> Iterator[tuple[str, int, int, list[list[Any]]]]:
    for result in mt.run(mt.sql(STREAM.format(folder) + job)):
        rows = [list(row.values()) for row in result.rows.to_pylist()]
        yield result.window, result.start, result.end, rows


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_column_named_as_one_of_ours_changes_no_row_and_no_order(query: str, logs: Path) -> None:
    job = "CREATE JOB j AS {} WINDOW 1 MINUTE, 2 MINUTES EVERY 1 MINUTE;"
    wanted = list(_values(logs, job.format(query.format("plain"))))
    assert [end for _, _, end, _ in wanted] == sorted(end for _, _, end, _ in wanted)
    for name in OURS:
        assert list(_values(logs, job.format(query.format(name)))) == wanted, name


def test_sessions_are_in_order_whatever_a_column_is_called(logs: Path) -> None:
    query = 'SELECT k AS "{}", count(*) AS n FROM s GROUP BY 1'
    job = f"CREATE JOB j AS {query} WINDOW SESSION 20 SECONDS;"
    wanted = list(_values(logs, job.format("plain")))
    for name in OURS:
        assert list(_values(logs, job.format(name))) == wanted, name


def test_rows_of_a_python_job_are_in_order_whatever_a_column_is_called(logs: Path) -> None:
    class Counts(mt.MapReduce):
        columns = {"n": "BIGINT", "w": "VARCHAR"}  # noqa: RUF012

        def mapper(self, key: None, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
            yield record["k"], 1

        def reducer(self, key: str, values: Iterator[int]) -> Iterator[tuple[int, str]]:
            yield sum(values), key

    program = mt.with_job(
        mt.sql(STREAM.format(logs)), "counts", Counts, stream="s", window="1 MINUTE"
    )
    results = [(result.end, result.rows.to_pylist()) for result in mt.run(program)]
    assert results == sorted(results, key=lambda result: result[0])
    for _, rows in results:
        assert rows == sorted(rows, key=lambda row: (row["n"], row["w"]))
