"""Muntin on Spark: the program run once, results in its own Delta tables.

The context is ready when `start_context` is back: it has run a trivial job of its own. The SQL
is read before that, as `muntin run` does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import muntin
from benchmarks.contest import Entry, measure, parse_entry, report
from benchmarks.questions import muntin_sql
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun


def run(entry: Entry, state: Path) -> None:
    program = muntin.sql(muntin_sql(entry.question, entry.folder))
    context = start_context(f"local[{entry.cores}]")

    def answer() -> None:
        for _ in SparkRun(program, context, Settings(state, follow=False)).turns():
            pass

    measured = measure(answer)
    table = state / "results" / entry.question.name
    report(measured, f"SELECT * FROM read_parquet('{table}/*.parquet')")
    context.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="muntin-bench-") as folder:
        run(parse_entry(__doc__), Path(folder))
