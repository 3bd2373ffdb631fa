"""Spark for small batches from Python, with its workers warm.

A context is all that a run needs; a session, with Spark SQL, would take longer to start.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Event

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from muntin.kernel import block, engine
from muntin.spark import internals
from muntin.spark.gateway import Jvm, JvmError, not_started, start
from muntin.spark.settings import WORKER_MEMORY
from muntin.store.journal import rehearse


def start_context(master: str | None = None) -> SparkContext:
    """The context in use, or a new one on `master` (by default `local[*]`), workers warm."""
    context = internals.active_context()
    if context is None:
        with ThreadPoolExecutor(1) as beside:
            jvm = start(master)
            commit = beside.submit(_rehearse)
            try:
                context = _new_context(jvm, lambda: False)
            except BaseException:
                jvm.kill()
                raise
            atexit.register(jvm.end)
            # Its thread would complain, on the user's terminal, of a JVM that has gone before it.
            atexit.register(internals.hear_no_more, context)
            commit.result()
    _warm(context)
    return context


@contextmanager
def own_context(jvm: Jvm, stop: Event) -> Iterator[SparkContext]:
    """A context on a JVM of its own, which ends with it.

    Raises KeyboardInterrupt if `stop` is set before the context is ready.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with ThreadPoolExecutor(1) as beside:
            commit = beside.submit(_rehearse)
            context = _new_context(jvm, stop.is_set)
            # Spark's own handler calls the JVM, perhaps in the middle of another call.
            signal.signal(signal.SIGINT, on_interrupt)
            commit.result()
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
        internals.forget_context()


class _StoppedError(Exception):
    """Somebody said stop while Spark started."""


@contextmanager
def _ending(context: SparkContext) -> Iterator[None]:
    """Stops the context in peace or, when interrupted, only what would complain of the end."""
    try:
        yield
    except KeyboardInterrupt:
        internals.hear_no_more(context)
        raise
    except Py4JError as error:
        said = str(error)  # which only a living JVM can say
        context.stop()
        raise RuntimeError(said) from None
    except BaseException:
        context.stop()
        raise
    context.stop()


def _new_context(jvm: Jvm, given_up: Callable[[], bool]) -> SparkContext:
    if (
        os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    ):  # the driver may have begun with another
        pa.set_memory_pool(pa.system_memory_pool())
    conf = SparkConf().setAll(list(jvm.settings.items()))
    try:
        context = SparkContext(conf=conf, gateway=jvm.connect(given_up))
    except JvmError as error:
        raise not_started(conf.get("spark.master"), str(error)) from error
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise not_started(conf.get("spark.master"), f"{error}\n{jvm.said()}") from error
    for variable in WORKER_MEMORY:  # executors have them: not sent again with every function
        context.environment.pop(variable, None)
    return context


def _rehearse() -> None:
    """What the driver does in a batch: a statement, and a commit."""
    _prepared([])
    rehearse()


@lru_cache(maxsize=1)  # a context that is used again is warm
def _warm(context: SparkContext) -> None:
    """Rehearses a batch, so that the first real one finds workers and classes loaded."""
    tasks = context.defaultParallelism
    pairs = context.parallelize([(n, n) for n in range(tasks)], tasks).mapPartitions(_prepared)
    moved = pairs.partitionBy(tasks)
    step = moved.mapPartitions(_prepared, True).persist()
    internals.write_shuffle(moved)
    step.collect()
    context.union([step, step]).mapPartitions(_prepared).collect()
    step.unpersist()


def _prepared(items: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    lines = pa.table({"line": ['{"a": 1, "b": "x"}'] * 2})
    fields = """from_json(line, '{"a": "VARCHAR", "b": "VARCHAR"}')"""
    sql = f"SELECT f.b, sum(f.a::BIGINT) FROM (SELECT TRY({fields}) AS f FROM t) GROUP BY ALL"
    block.decode(block.encode(engine.run(sql, {"t": lines}, "starting a worker")), "rehearsal")
    return items
