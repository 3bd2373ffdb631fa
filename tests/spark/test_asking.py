"""Questions on Spark: the same answers as in this process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import muntin as mt
from muntin.ask.answering import Asking
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
