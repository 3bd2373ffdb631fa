"""Spark with the settings that pay for small batches from Python.

A context is all that a run needs; a session, with Spark SQL, would take seconds more to start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from muntin.errors import MuntinError
from muntin.kernel import block, engine

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "muntin.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4MB",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.shuffle.compress": "false",  # blocks are compressed already
    "spark.locality.wait": "0s",
    "spark.log.level": "ERROR",
    # The driver only hands out tasks: compiling its code well costs more than it ever saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}

# Workers use the same large buffers again and again: giving them back to the system after
# every piece of log costs a sixth of the time in page faults.
_WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483648",
    "MALLOC_ARENA_MAX": "2",
}


def start_context(master: str | None = None) -> SparkContext:
    """The context in use, or a new one on `master` (by default `local[*]`), workers warm."""
    context = SparkContext._active_spark_context or _new_context(master)
    _warm(context)
    return context


def _new_context(master: str | None) -> SparkContext:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for variable, value in _WORKER_MEMORY.items():
        os.environ.setdefault(variable, value)
    conf = _configuration(master)
    log = Path(tempfile.gettempdir()) / f"muntin-spark-{os.getpid()}.log"
    try:
        # Java writes what it has to say to a file: a terminal is for results.
        with log.open("wb") as stderr:
            gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
        return SparkContext(conf=conf, gateway=gateway)
    except (PySparkException, OSError, RuntimeError) as error:
        said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise MuntinError(
            f"Spark did not start on {conf.get('spark.master')}: {error}\n{said}".rstrip()
            + "\nIt needs Java 17 or later, found through JAVA_HOME or PATH."
        ) from error


def _configuration(master: str | None) -> SparkConf:
    conf = SparkConf().setAppName("muntin")
    for key, value in SETTINGS.items():
        conf.setIfMissing(key, value)
    for variable, value in _WORKER_MEMORY.items():
        conf.setExecutorEnv(variable, value)
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    if str(conf.get("spark.master")).startswith("local"):
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _warm(context: SparkContext) -> None:
    """Rehearses a batch, so that the first real one finds workers and classes loaded."""
    tasks = context.defaultParallelism
    pairs = context.parallelize([(n, n) for n in range(tasks)], tasks).mapPartitions(_prepared)
    step = pairs.partitionBy(tasks).mapPartitions(_prepared, True).persist()
    step.collect()
    context.union([step, step]).mapPartitions(_prepared).collect()
    step.unpersist()


def _prepared(items: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    lines = pa.table({"line": ['{"a": 1, "b": "x"}'] * 2})
    fields = """from_json(line, '{"a": "VARCHAR", "b": "VARCHAR"}')"""
    sql = f"SELECT f.b, sum(f.a::BIGINT) FROM (SELECT TRY({fields}) AS f FROM t) GROUP BY ALL"
    block.decode(block.encode(engine.run(sql, {"t": lines}, "starting a worker")), "rehearsal")
    return items
