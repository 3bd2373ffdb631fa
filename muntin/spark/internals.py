"""What PySpark has for its own use only, and we use too: all of it, and nowhere else.

`tests/spark/test_internals.py` has a test for every function, so that a version of PySpark that
changes one of them fails there first. `pyproject.toml` admits the versions that were tested.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark import RDD, Accumulator, SparkContext
from pyspark.accumulators import _accumulatorRegistry
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

T = TypeVar("T")

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def spark_home() -> Path:
    """The folder of Spark's scripts and jars."""
    return Path(_find_spark_home())


def connect(told: Path) -> Any:
    """The gateway to a JVM that has written its port and secret into the file `told`."""
    with told.open("rb") as file:
        port = read_int(file)  # type: ignore[no-untyped-call]
        secret = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    with _environment({_PORT: str(port), _SECRET: str(secret)}):
        return launch_gateway()  # type: ignore[no-untyped-call]


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    os.environ |= variables
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def active_context() -> SparkContext | None:
    """The context of this process, if there is one that runs."""
    return SparkContext._active_spark_context


def executors(context: SparkContext) -> int:
    """How many executors a cluster has given; what is in the driver does not count."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def executor_names(context: SparkContext) -> frozenset[str]:
    """The executors of a cluster; no two that it ever gives have one name."""
    names = context._jsc.sc().getExecutorIds().mkString(",")
    return frozenset(filter(None, names.split(",")))


def has_worked(context: SparkContext, executor: str) -> bool:
    """Whether an executor has done a task, by what Spark knows a moment later."""
    return bool(context._jsc.sc().statusStore().executorSummary(executor).completedTasks())


def forget_context() -> None:
    """Makes the next context ask for a gateway again: the JVM of this one has gone."""
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def hear_no_more(context: SparkContext) -> None:
    """Ends the thread that hears accumulators, which complains of a JVM that goes before it."""
    if context._accumulatorServer is not None:  # of a context that was not stopped
        context._accumulatorServer.shutdown()


def keep_quiet(context: SparkContext) -> None:
    """Has no thread print a traceback when the JVM goes: whoever uses it meets an error then."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    logging.getLogger().addFilter(_is_no_lost_command)


def _is_no_lost_command(record: logging.LogRecord) -> bool:
    """Not what py4j logs before it raises the same, and to nobody's logger."""
    return record.msg != "Exception while sending command."


def forget_accumulator(accumulator: Accumulator[Any]) -> None:
    """Lets go of its value; what tasks add from now on is dropped."""
    _accumulatorRegistry.pop(accumulator.aid)


def write_shuffle(moved: RDD[Any]) -> None:
    """Has pairs that were just partitioned, one partition or more, written into shuffle files.

    Python's RDD takes values out of pairs of bytes (first dependency), which come out of a
    shuffle (second). Raises what a task has raised.
    """
    jvm = moved.context._jvm
    assert jvm is not None  # of a context that runs
    pairs = moved._jrdd.rdd().dependencies().apply(0).rdd()
    stage = moved.context._jsc.sc().submitMapStage(pairs.dependencies().apply(0))
    # Unlike its get, this raises what the stage has raised and not that it has raised something.
    stage.result(jvm.scala.concurrent.duration.Duration.Inf(), None)


def compute(rdd: RDD[Any]) -> None:
    """Computes all partitions. The JVM counts them: in Python it takes one more worker a core."""
    rdd._jrdd.count()


def compute_beside(anchor: RDD[Any], rdd: RDD[Any]) -> None:
    """Computes all partitions, each on the executor that has the same one of the anchor in memory.

    Spark looks for a place at the first parent of two that are zipped. Of both nothing is taken,
    so that it does not matter how many elements they have.
    """
    nothing = (each._jrdd.sample(False, 0.0, 0) for each in (anchor, rdd))
    first, second = nothing
    first.zip(second).count()


def serialized_like(rdd: RDD[T], other: RDD[Any]) -> RDD[T]:
    """The rows, serialized as the other's are: a union of both then moves bytes as they are."""
    return rdd._reserialize(other._jrdd_deserializer)


def load_worker() -> None:
    """Imports all that a Python worker of Spark needs."""
    import pyspark.daemon
    import pyspark.worker  # noqa: F401


def serve_workers() -> None:
    """Forks workers as Spark asks for them on standard input, until that ends."""
    from pyspark.daemon import manager

    manager()
