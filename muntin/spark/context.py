"""Spark with the settings that pay for small batches from Python.

A context is all that a run needs; a session, with Spark SQL, would take seconds more to start.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Event

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from muntin.errors import MuntinError
from muntin.kernel import block, engine
from muntin.spark.gateway import Jvm, JvmError
from muntin.spark.moving import compute_now
from muntin.store.journal import rehearse

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
# every piece of log costs a sixth of the time in page faults. Arrow's own pool takes huge pages
# from the system, which are dear to clear and mostly stay empty.
_WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "2147483648",
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def start_context(master: str | None = None) -> SparkContext:
    """The context in use, or a new one on `master` (by default `local[*]`), workers warm."""
    context = SparkContext._active_spark_context
    if context is None:
        jvm, conf = _new_jvm(master, lambda: False)
        atexit.register(jvm.end)
        context = _new_context(jvm, conf)
        # Its thread would complain, on the user's terminal, of a JVM that has gone before it.
        atexit.register(context._accumulatorServer.shutdown)
    _warm(context)
    return context


@contextmanager
def own_context(master: str | None, stop: Event) -> Iterator[SparkContext]:
    """A context with a JVM of its own, which ends with it.

    Raises KeyboardInterrupt if `stop` is set before the context is ready.
    """
    jvm, conf = _new_jvm(master, stop.is_set)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = _new_context(jvm, conf)
        # Spark's own handler speaks to the JVM, perhaps in the middle of another sentence.
        signal.signal(signal.SIGINT, on_interrupt)
        with _ending(context):
            if not stop.is_set():
                _warm(context)
            if stop.is_set():
                raise _StoppedError
            yield context
        jvm.end()
    except _StoppedError:
        jvm.end()
        raise KeyboardInterrupt from None
    except BaseException:
        jvm.kill()
        raise
    finally:
        _forget_context()


class _StoppedError(Exception):
    """Somebody said stop while Spark started."""


@contextmanager
def _ending(context: SparkContext) -> Iterator[None]:
    """Stops the context in peace or, when interrupted, only what would complain of the end."""
    try:
        yield
    except KeyboardInterrupt:
        context._accumulatorServer.shutdown()
        raise
    except Py4JError as error:
        said = str(error)  # which only a living JVM can say
        context.stop()
        raise RuntimeError(said) from None
    except BaseException:
        context.stop()
        raise
    context.stop()


def _forget_context() -> None:
    """Makes the next context start a JVM again."""
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def _new_jvm(master: str | None, given_up: Callable[[], bool]) -> tuple[Jvm, SparkConf]:
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())  # for the driver, which runs already
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for variable, value in _WORKER_MEMORY.items():
        os.environ.setdefault(variable, value)
    conf = _configuration(master)
    try:
        return Jvm(conf, given_up), conf
    except (JvmError, PySparkException, OSError) as error:
        raise _not_started(conf, str(error)) from error


def _new_context(jvm: Jvm, conf: SparkConf) -> SparkContext:
    try:
        context = SparkContext(conf=conf, gateway=jvm.gateway)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise _not_started(conf, f"{error}\n{jvm.said()}") from error
    for variable in _WORKER_MEMORY:  # executors have them: not sent again with every function
        context.environment.pop(variable, None)
    return context


def _not_started(conf: SparkConf, said: str) -> MuntinError:
    """Spark's own reason where it gives one; else the end of what was said, and what it needs."""
    start = f"Spark did not start on {conf.get('spark.master')}"
    reason = re.search(r"(?:SparkException|Error): (.+)", said)
    if reason is not None:
        return MuntinError(f"{start}: {reason[1]}")
    needs = "It needs Java 17 or later, found through JAVA_HOME or PATH."
    return MuntinError(f"{start}: {said[-2000:].strip()}\n{needs}")


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


@lru_cache(maxsize=1)  # a context that is used again is warm
def _warm(context: SparkContext) -> None:
    """Rehearses a batch, so that the first real one finds workers and classes loaded.

    The driver's part, a commit, is rehearsed while the first workers start.
    """
    with ThreadPoolExecutor(1) as beside:
        commit = beside.submit(rehearse)
        _prepared([])
        tasks = context.defaultParallelism
        pairs = context.parallelize([(n, n) for n in range(tasks)], tasks).mapPartitions(_prepared)
        moved = pairs.partitionBy(tasks)
        step = moved.mapPartitions(_prepared, True).persist()
        compute_now(moved)
        step.collect()
        context.union([step, step]).mapPartitions(_prepared).collect()
        step.unpersist()
        commit.result()


def _prepared(items: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    lines = pa.table({"line": ['{"a": 1, "b": "x"}'] * 2})
    fields = """from_json(line, '{"a": "VARCHAR", "b": "VARCHAR"}')"""
    sql = f"SELECT f.b, sum(f.a::BIGINT) FROM (SELECT TRY({fields}) AS f FROM t) GROUP BY ALL"
    block.decode(block.encode(engine.run(sql, {"t": lines}, "starting a worker")), "rehearsal")
    return items
