"""Plain PySpark, batch: read JSON, group by window and product, write Parquet.

Settings are the fastest of those tried on two cores: one shuffle partition a core, a schema
given rather than inferred, a heap of 4 GB (with the default of 1 GB it collects garbage most
of the time; one that starts at 2 GB is no faster), adaptive execution off (no difference),
Spark's own garbage collector settings.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.contest import Entry, measure, parse_entry, report, warm
from benchmarks.questions import Question
from benchmarks.shop import COLUMNS, FILE

SCHEMA = ", ".join(
    f"{name} {'STRING' if kind == 'VARCHAR' else kind}" for name, kind in COLUMNS.items()
)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def start_plain_session(cores: int, settings: dict[str, str]) -> SparkSession:
    """A session without anything of Muntin's, warm."""
    builder = SparkSession.builder.master(f"local[{cores}]").appName("plain")
    builder = builder.config("spark.sql.shuffle.partitions", str(cores))
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    warm(session, cores)
    return session


def clicks_by_window(records: DataFrame, question: Question) -> DataFrame:
    """The answer's columns, with all products of each window."""
    wanted = records.where(F.col("store") == question.store) if question.store else records
    length, slide = (f"{us // 1_000_000} seconds" for us in (question.range_us, question.slide_us))
    window = F.window("ts", length, None if length == slide else slide)
    clicks = F.sum("clicks").alias("clicks")
    return (
        wanted.groupBy(window.alias("window"), "product")
        .agg(clicks)
        .selectExpr("window.start AS window_start", "window.end AS window_end", "product", "clicks")
    )


def top_products(clicks: DataFrame, top: int) -> DataFrame:
    order = Window.partitionBy("window_start", "window_end").orderBy(F.desc("clicks"), "product")
    ranked = clicks.withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= top).drop("rank")


def run(entry: Entry, output: Path) -> None:
    session = start_plain_session(entry.cores, SETTINGS)

    def answer() -> None:
        records = session.read.schema(SCHEMA).json(f"{entry.folder}/*/{FILE}")
        rows = clicks_by_window(records, entry.question)
        if entry.question.top:
            rows = top_products(rows, entry.question.top)
        rows.write.parquet(str(output / "answer"))

    measured = measure(answer)
    report(measured, f"SELECT * FROM read_parquet('{output}/answer/*.parquet')")
    session.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="muntin-bench-") as folder:
        run(parse_entry(__doc__), Path(folder))
