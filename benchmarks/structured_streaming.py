"""Plain Structured Streaming: append mode with a watermark, all there is now, Parquet out.

On top of the settings of plain batch: the checkpoint files written without renames, state in
Spark's own store on disk and heap (RocksDB with changelogs was slower), and everything in one
micro-batch. More and smaller batches are slower and lose records: files of several servers come
one after another, and the watermark of the first makes the others' records late.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.contest import Entry, measure, parse_entry, report
from benchmarks.pyspark_batch import (
    SCHEMA,
    SETTINGS,
    clicks_by_window,
    start_plain_session,
    top_products,
)
from benchmarks.questions import Question
from benchmarks.shop import FILE

STREAMING_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
WATERMARK = "10 seconds"

# Append mode emits a window when the watermark has passed its end, so without a later record
# the last windows would never come. This one closes them all; its own windows stay open.
FLUSH = {"ts": "2100-01-01T00:00:00.000Z", "product": "flush", "store": "video_games", "clicks": 0}


def stage(folder: Path, staged: Path) -> None:
    """The same files next to one that holds the flush record."""
    for path in folder.glob(f"*/{FILE}"):
        link = staged / path.parent.name / FILE
        link.parent.mkdir(parents=True)
        link.symlink_to(path)
    flush = staged / "flush" / FILE
    flush.parent.mkdir()
    flush.write_text(json.dumps(FLUSH) + "\n")


def start_query(clicks: DataFrame, question: Question, output: Path) -> StreamingQuery:
    writer = (
        clicks.writeStream.outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(output / "checkpoint"))
    )
    answer, top = str(output / "answer"), question.top
    if top is None:
        return writer.format("parquet").option("path", answer).start()

    def write_top(batch: DataFrame, _: int) -> None:
        top_products(batch, top).write.mode("append").parquet(answer)

    return writer.foreachBatch(write_top).start()


def run(entry: Entry, output: Path) -> None:
    session = start_plain_session(entry.cores, SETTINGS | STREAMING_SETTINGS)
    staged = output / "input"
    stage(entry.folder, staged)

    def answer() -> None:
        records = session.readStream.schema(SCHEMA).json(f"{staged}/*/{FILE}")
        clicks = clicks_by_window(records.withWatermark("ts", WATERMARK), entry.question)
        start_query(clicks, entry.question, output).awaitTermination()

    measured = measure(answer)
    report(measured, f"SELECT * FROM read_parquet('{output}/answer/*.parquet')")
    session.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="muntin-bench-") as folder:
        run(parse_entry(__doc__), Path(folder))
