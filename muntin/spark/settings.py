"""Settings of Spark that pay for small batches from Python. Loads nothing of Spark."""

from __future__ import annotations

import os
import re
import sys

from muntin.spark.master import is_alone

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
    # A buffer of this size is made, and cleared, for every function that is sent to tasks.
    "spark.broadcast.blockSize": "256k",
    # The driver only hands out tasks: compiling its code well costs more than it ever saves.
    # With Java's own small first heap, the buffers of every job force a garbage collection.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xms256m -XX:MetaspaceSize=128m",
}

# Workers use the same large buffers again and again: giving them back to the system after
# every piece of log costs much time in page faults. Arrow's own pool takes huge pages
# from the system, which are dear to clear and mostly stay empty.
WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483648",
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}

_HERE = ("local", "spark://127.", "spark://localhost:")  # masters of this machine
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # To try a cluster, its executors should be there soon.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


_REMOTE = {
    # An executor that has gone does not come back where it was: what it held is made again, and
    # trying to fetch it for Spark's fifteen seconds would have windows miss their bounds.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    # One that has just come takes seconds to start its Python. A task that waits for that, or for
    # an executor that hangs, is done by another one as well, and whoever is first counts.
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "2s",
}
_ATTEMPTS = 4  # at a task, as many as a cluster makes: a worker may be killed


def settings_on(master: str | None) -> dict[str, str]:
    """All settings of a context on `master`, by default `local[*]`."""
    on = re.sub(r"^local\[([^],]+)\]$", rf"local[\1,{_ATTEMPTS}]", master or "local[*]")
    settings = {"spark.app.name": "muntin", "spark.master": on} | SETTINGS
    for variable, value in WORKER_MEMORY.items():
        settings[f"spark.executorEnv.{variable}"] = value
    if not is_alone(settings["spark.master"]):
        settings |= _REMOTE
    if settings["spark.master"].startswith(_HERE):
        settings |= _LOOPBACK
    return settings


def prepare_environment() -> None:
    """Tells processes that are started from now on which Python to run, and how it has memory."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for variable, value in WORKER_MEMORY.items():
        os.environ.setdefault(variable, value)
