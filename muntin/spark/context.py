"""Spark for small batches from Python, with its workers warm.

A context is all that a run needs; a session, with Spark SQL, would take longer to start.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Event, Thread

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from muntin.run.inline import ignore
from muntin.spark import internals
from muntin.spark.executors import PATIENCE_SECONDS, no_executors
from muntin.spark.first_tasks import prepared
from muntin.spark.gateway import Jvm, JvmError, not_started, start
from muntin.spark.master import is_local, require_reached, unanswered
from muntin.spark.settings import WORKER_MEMORY
from muntin.spark.shipping import provide
from muntin.spark.trouble import explained
from muntin.store.journal import rehearse

_POLL_SECONDS = 0.02


def start_context(master: str | None = None) -> SparkContext:
    """The context in use, or a new one on `master` (by default `local[*]`), workers warm."""
    context = internals.active_context()
    if context is None:
        require_reached(master)
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
    _make_ready(context)
    return context


@lru_cache(maxsize=1)  # a context that is used again is ready
def _make_ready(context: SparkContext, note: Callable[[str], None] = ignore) -> None:
    """Sees to it that executors have what they need, and that their workers are warm."""
    provide(context, note)
    _warm(context)


@contextmanager
def own_context(
    jvm: Jvm, stop: Event, note: Callable[[str], None] = ignore
) -> Iterator[SparkContext]:
    """A context on a JVM of its own, which ends with it.

    Raises KeyboardInterrupt if `stop` is set before the context is ready. `note` is told what a
    cluster is waited for.
    """
    try:
        context = _awaited(jvm, stop, note)
        try:
            with _ending(context):
                yield context
        except Exception:
            jvm.end()  # in peace, so that Spark removes its files
            raise
        jvm.end()
    except _StoppedError:
        jvm.end()
        raise KeyboardInterrupt from None
    except BaseException:
        jvm.kill()
        raise
    finally:
        internals.forget_context()


def _awaited(jvm: Jvm, stop: Event, note: Callable[[str], None]) -> SparkContext:
    """A context with its workers warm.

    It is made beside this thread, which a signal may then find at any time: Spark waits for long,
    and a cluster that has nothing to give has it wait for ever.
    """
    start = _Start(jvm, stop.is_set, note)
    thread = Thread(target=start.run, name="muntin start", daemon=True)
    thread.start()
    look_at = time.monotonic() + PATIENCE_SECONDS
    told: set[str] = set()
    while thread.is_alive():
        if stop.wait(_POLL_SECONDS):
            raise _StoppedError
        if time.monotonic() > look_at:
            look_at += PATIENCE_SECONDS
            waits = start.waits_for()
            if waits is not None and waits not in told:
                told.add(waits)
                note(waits)
    if stop.is_set():
        raise _StoppedError
    if start.error is not None:
        raise start.error
    assert start.context is not None
    return start.context


class _Start:
    """The start of Spark, in a thread of its own."""

    def __init__(self, jvm: Jvm, given_up: Callable[[], bool], note: Callable[[str], None]) -> None:
        self._jvm = jvm
        self._given_up = given_up
        self._note = note
        self.context: SparkContext | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with ThreadPoolExecutor(1) as beside:
                commit = beside.submit(_rehearse)
                self.context = _new_context(self._jvm, self._given_up)
                commit.result()
            if not self._given_up():
                with explained():
                    _make_ready(self.context, self._note)
        except BaseException as error:
            self.error = error

    def waits_for(self) -> str | None:
        """What a cluster has not given yet; None where everything comes from this machine."""
        master = self._jvm.settings["spark.master"]
        if is_local(master) or self._jvm.gateway is None:
            return None
        if self.context is None:
            return unanswered(master)
        if internals.executors(self.context):
            return None
        return no_executors(master)


class _StoppedError(Exception):
    """Somebody said stop while Spark started."""


@contextmanager
def _ending(context: SparkContext) -> Iterator[None]:
    """Stops the context in peace or, when interrupted, only what would complain of the end."""
    try:
        with explained():
            yield
    except KeyboardInterrupt:
        internals.hear_no_more(context)
        raise
    except BaseException:
        _stop(context)
        raise
    _stop(context)


def _stop(context: SparkContext) -> None:
    with suppress(Py4JError, OSError):  # of a JVM that has gone there is nothing to stop
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
    internals.keep_quiet(context)
    for variable in WORKER_MEMORY:  # executors have them: not sent again with every function
        context.environment.pop(variable, None)
    return context


def _rehearse() -> None:
    """What the driver does in a batch: a statement, and a commit."""
    prepared([])
    rehearse()


def _warm(context: SparkContext) -> None:
    """Rehearses a batch, so that the first real one finds workers and classes loaded."""
    tasks = context.defaultParallelism
    pairs = context.parallelize([(n, n) for n in range(tasks)], tasks).mapPartitions(prepared)
    moved = pairs.partitionBy(tasks)
    step = moved.mapPartitions(prepared, True).persist()
    internals.write_shuffle(moved)
    step.collect()
    context.union([step, step]).mapPartitions(prepared).collect()
    step.unpersist()
