"""Questions on Spark: the same answers as in this process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import muntin as mt
from muntin.ask.answering import Asking
from muntin.spark import asking as asking_on_spark
from muntin.spark.asking import SparkMerge

QUESTIONS = (
    "SELECT product, clicks, ms, p95, kinds FROM hot GROUP BY product ORDER BY 1",
    "SELECT sum(clicks) FROM hot WHERE product = 'a' BETWEEN '10:10' AND '10:25'",
    "SELECT * FROM hot WHERE product <> 'b' ORDER BY product",
)


def test_jobs_that_ran_on_spark_are_asked_here_and_there(
    tmp_path: Path, spark: SparkSession
) -> None:
    rows = [
        {
            "t": 36_000 + n * 7 + n // 150 * 7200,
            "product": "abc"[n * 5 % 7 % 3],
            "ms": n % 17,
            "source": "xy"[n % 2],
        }
        for n in range(400)
    ]
    program = mt.sql(
        f"CREATE STREAM s (t BIGINT, product VARCHAR, ms BIGINT) FROM '{tmp_path}/{{source}}.log' "
        "FORMAT json TIMESTAMP t SLACK 1 SECOND; CREATE JOB hot AS SELECT product, count(*) AS "
        "clicks, avg(ms) AS ms, quantile_disc(ms, 0.95) AS p95, count(DISTINCT ms) AS kinds FROM s "
        "GROUP BY product WINDOW 10 MINUTES EVERY 5 MINUTES RETAIN 1 DAY;"
    )
    state = tmp_path / "state"
    for upto in (150, 400):  # after a restart, panes have moved from blocks to files
        for source in "xy":
            mine = [json.dumps(row) + "\n" for row in rows[:upto] if row["source"] == source]
            with (tmp_path / f"{source}.log").open("a") as log:
                log.writelines(mine[len((tmp_path / f"{source}.log").read_text().splitlines()) :])
        list(mt.run_on_spark(program, state=state, spark=spark))
        asking, there_too = Asking(state), SparkMerge(spark.sparkContext)
        for question in QUESTIONS:
            here, there = asking.ask(question), asking.ask(question, there_too)
            assert here.rows.equals(there.rows)
            assert here.c2.area == there.c2.area == 1.0
        assert mt.ask(QUESTIONS[0], state=state, spark=spark).to_spark(spark).count() == 3
        assert len(mt.ask(QUESTIONS[0], state=state).to_pandas()) == 3
        counted = asking.ask(QUESTIONS[0]).rows.to_pylist()
        assert {row["product"]: row["clicks"] for row in counted} == Counter(
            row["product"] for row in rows[:upto]
        )


def test_records_that_were_kept_on_spark_are_asked_here_and_there(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"t": 36_000 + n * 3 + n // 100 * 3600, "product": ["a", "b", None][n % 3],
         "ms": [n % 7 / 2, -0.0, None][n % 4 % 3], "tags": [["x"], ["y, z", None]][n % 2]}
        for n in range(300)
    ]  # fmt: skip
    program = mt.sql(
        "CREATE STREAM s (t BIGINT, product VARCHAR, ms DOUBLE, tags VARCHAR[], n BIGINT) FROM "
        f"'{tmp_path}/{{source}}.log' FORMAT json TIMESTAMP t SLACK 1 SECOND RETAIN 1 DAY OF "
        "STREAM (product, ms, tags); "
        f"CREATE STREAM alone (t BIGINT, product VARCHAR) FROM '{tmp_path}/{{source}}.log' FORMAT "
        "json TIMESTAMP t RETAIN 1 DAY OF STREAM; "
        "CREATE JOB j AS SELECT product, count(*) AS c FROM s GROUP BY 1 WINDOW 5 MINUTES;"
    )
    state, con = tmp_path / "state", duckdb.connect()
    asking, there_too = Asking(state), SparkMerge(spark.sparkContext)
    for first, upto in ((0, 120), (120, 300)):  # with a restart
        for source in "xy":
            with (tmp_path / f"{source}.log").open("a") as log:
                log.writelines(json.dumps(row) + "\n" for row in rows[first:upto])
        results = list(mt.run_on_spark(program, state=state, spark=spark))
        assert {result.job for result in results} == {"j"}
        con.register("raw", pa.Table.from_pylist([*rows[:upto], *rows[:upto]]))
        for question in (
            "SELECT product, count(*), median(ms), max(tags) FROM {} WHERE {} GROUP BY product "
            "ORDER BY ALL",
            "SELECT product, ms, tags, t FROM {} WHERE product = 'a' AND {} ORDER BY ALL",
        ):
            inside = "t >= 36001 AND t < 36200"
            wanted = con.execute(question.format("raw", inside)).fetchall()
            asked = question.format("s BETWEEN '10:00:01' AND '10:03:20'", "true")
            for answer in (asking.ask(asked), asking.ask(asked, there_too)):
                told = [tuple(row.values()) for row in answer.rows.to_pylist()]
                assert repr(told) == repr(wanted)
                assert answer.c2.area == 1.0
        alone = mt.ask("SELECT count(*) AS n FROM alone", state=state, spark=spark)
        assert alone.to_spark(spark).collect()[0].n == 2 * upto
    monkeypatch.setattr(asking_on_spark, "SENT", 10)
    with pytest.raises(mt.InputError, match="too many for tasks to send"):
        asking.ask("SELECT * FROM s", there_too)
