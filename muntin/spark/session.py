"""A Spark session with the settings that pay for small batches from Python."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from muntin.errors import MuntinError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4MB",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.shuffle.compress": "false",  # blocks are compressed already
    "spark.rdd.compress": "false",
    "spark.locality.wait": "0s",
    "spark.cleaner.periodicGC.interval": "5min",
}

# Workers use the same large buffers again and again: giving them back to the system after
# every piece of log costs a sixth of the time in page faults.
_WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483648",
    "MALLOC_ARENA_MAX": "2",
}


def start_session(master: str | None = None, name: str = "muntin") -> SparkSession:
    """A session on `master`; `local[*]` where none is given or configured."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for variable, value in _WORKER_MEMORY.items():
        os.environ.setdefault(variable, value)
    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    for variable, value in _WORKER_MEMORY.items():
        builder = builder.config(f"spark.executorEnv.{variable}", value)
    if master is not None or "SPARK_MASTER" not in os.environ:
        builder = builder.master(master or "local[*]")
    if (master or "local").startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    logging = Path(tempfile.mkdtemp(prefix="muntin-")) / "log4j2.properties"
    logging.write_text(_LOGGING)
    builder = builder.config(
        "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging}"
    )
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise MuntinError(f"Spark did not start: {error}. It needs Java 17 or later.") from error
    _warm(session)
    return session


def _warm(session: SparkSession) -> None:
    """Starts the Python workers, so that the first batch finds them ready."""
    tasks = session.sparkContext.defaultParallelism
    session.sparkContext.parallelize(range(tasks), tasks).foreach(_import_kernel)


def _import_kernel(_: int) -> None:
    import muntin.kernel.engine as engine
    import muntin.logs.records  # noqa: F401

    sql = """SELECT unnest(TRY(from_json('{"a": 1}', '{"a": "VARCHAR"}')))"""
    engine.run(sql, {}, "starting a worker")


_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
