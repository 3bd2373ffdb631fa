"""Dates of the years 1 and 9999, and beyond: they stop nothing, and can be read and printed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import muntin as mt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
TIMES = [FIRST, "1677-09-21T00:00:00Z", "2026-01-01T00:00:00Z", "2262-04-12T00:00:00Z", LAST]
BEYOND = ["0000-12-31T23:59:59Z", "-0044-03-15T12:00:00Z", "10000-01-01T00:00:00Z", "290000-01-01"]
JOBS = {
    "hours": "count(*) AS c, max(d) AS d, max(d + INTERVAL 1 DAY) AS e, max(d::DATE) AS day, "
    "[max(d + INTERVAL 1 DAY)] AS f, {'x': max((d + INTERVAL 1 DAY)::DATE)} AS g "
    "FROM logs WINDOW 1 HOUR EVERY 30 MINUTES",
    "centuries": "count(*) AS c FROM logs WINDOW 36500 DAYS",
    "visits": "count(*) AS c, min(d) AS d FROM logs WINDOW SESSION 1 DAY",
    "counted": "count(*) AS c, min(d) AS d, max(d) AS e FROM logs WINDOW 100 RECORDS",
}


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Jobs over logs with times of all years; those outside of the calendar are bad."""
    lines = [json.dumps({"t": t, "d": t}) for t in [*TIMES[:3], *BEYOND, *TIMES[3:]]]
    (tmp_path / "web.jsonl").write_text("".join(line + "\n" for line in lines))
    stream = (
        f"CREATE STREAM logs (t VARCHAR, d TIMESTAMP) FROM '{tmp_path}/web.jsonl' FORMAT json "
        "TIMESTAMP t;\n"
    )
    return stream + "".join(f"CREATE JOB {n} AS SELECT {job};\n" for n, job in JOBS.items())


def check(results: list[mt.Result]) -> None:
    counts = {name: [r for r in results if r.job == name] for name in JOBS}
    assert {name: len(windows) for name, windows in counts.items()} == {
        "hours": 10,
        "centuries": 5,
        "visits": 5,
        "counted": 1,
    }
    (counted,) = counts["counted"]
    assert (counted.counts.read, counted.counts.bad) == (5, 4)
    assert counted.rows.to_pylist() == [
        {
            "c": 5,
            "d": datetime(1, 1, 1, tzinfo=UTC),
            "e": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        }
    ]
    for result in results:
        assert len(result.to_pandas()) == 1


def test_inline(text: str) -> None:
    notes: list[str] = []
    check(list(mt.run(mt.sql(text), notes.append)))
    (note,) = notes
    assert "line 4: a row does not fit stream 'logs': TIMESTAMP \"t\" gives a time out of" in note


def printed(*args: object) -> str:
    command = [sys.executable, "-m", "muntin", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_on_spark_and_in_every_format(spark: SparkSession, text: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    check(list(mt.run_on_spark(mt.sql(text), state, spark, note=lambda _: None)))
    for name in JOBS:
        stored = mt.results(name, state)
        bounds = stored.select(["window_start", "window_end"]).to_pylist()
        assert stored.num_rows == len(bounds) > 0
        assert stored.to_pandas(date_as_object=False).shape[0] == stored.num_rows
        assert mt.results(name, state, window="latest").num_rows >= 1
    hours = mt.results("hours", state).select(["window_start", "window_end"]).to_pylist()
    assert hours[0]["window_start"] == datetime(1, 1, 1, tzinfo=UTC)
    assert hours[-1]["window_end"] == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    tables = {
        (name, format_, detail): printed(
            "results", name, "--state", state, "--window", "all", "--format", format_, *detail
        )
        for name in ("hours", "visits")
        for format_ in ("table", "json", "csv")
        for detail in ((), ("--detail",))
    }
    for (name, format_, _), out in tables.items():
        assert "0001-01-01" in out
        assert "9999-12-31" in out
        assert ("10000-01-01" in out) == (name == "hours")
        if format_ == "json":
            assert all(json.loads(line)["c"] == 1 for line in out.splitlines())
    status = json.loads(printed("status", "--state", state, "--json"))
    (source,) = status["sources"]
    assert (source["from"], source["to"]) == (FIRST, LAST)
    assert "0001-01-01" in printed("status", "--state", state)
    assert "9999-12-31 23:00:00" in printed("try", _file(tmp_path, text), "--job", "hours")


def _file(folder: Path, text: str) -> Path:
    (folder / "jobs.sql").write_text(text)
    return folder / "jobs.sql"
