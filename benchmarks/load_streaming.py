"""Structured Streaming for `benchmarks.load`: a query a job over files as they come.

    python -m benchmarks.load_streaming FOLDER JOBS CORES

Append mode with a watermark of no delay: a window leaves when somebody has written of later. Each
that has left is told in FOLDER/windows.jsonl, with when it was written.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.load import questions
from benchmarks.pyspark_batch import SETTINGS, start_plain_session
from benchmarks.structured_streaming import STREAMING_SETTINGS

_SCHEMA = (
    "t DOUBLE, server STRING, product STRING, store STRING, event STRING, clicks BIGINT, "
    "latency_ms BIGINT"
)


def start(session: SparkSession, folder: Path, number: int, key: str, store: str) -> StreamingQuery:
    """One question: the first ten of a store, every second."""
    records = session.readStream.schema(_SCHEMA).option("cleanSource", "off")
    shop = records.json(f"{folder}/logs").withColumn("ts", F.timestamp_seconds("t"))
    answer = (
        shop.withWatermark("ts", "0 seconds")
        .where(F.col("store") == store)
        .groupBy(F.window("ts", "1 second").alias("window"), F.col(key).alias("k"))
        .agg(F.count("*").alias("n"), F.sum("clicks").alias("clicks"))
    )

    def write(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr(
            "*", "row_number() OVER (PARTITION BY window ORDER BY clicks DESC, k) AS r"
        ).where("r <= 10")
        found = rows.selectExpr("window.end AS end", "k", "n", "clicks").collect()
        ends = sorted({row["end"].timestamp() for row in found})
        if ends:
            path = folder / "answers" / f"{number}-{int(1000 * ends[-1])}.json"
            path.write_text("\n".join(str(row) for row in found))
            with (folder / "windows.jsonl").open("a") as told:
                told.write("".join(json.dumps({"end": e, "at": time.time()}) + "\n" for e in ends))

    place = str(folder / "checkpoints" / str(number))
    writer = answer.writeStream.outputMode("append").option("checkpointLocation", place)
    return writer.foreachBatch(write).start()


def main() -> None:
    folder, jobs, cores = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    session = start_plain_session(cores, SETTINGS | STREAMING_SETTINGS)
    (folder / "answers").mkdir()
    for number, key, store in questions(jobs):
        start(session, folder, number, key, store)
    session.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
