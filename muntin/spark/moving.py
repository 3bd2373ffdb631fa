"""The first half of a shuffle, run by itself: rows wait in its files, and tasks tell the driver.

What tasks tell comes with their end, in an accumulator. A job whose result it were would take a
second stage: 60 ms a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pyspark import RDD, AccumulatorParam
from pyspark.accumulators import _accumulatorRegistry

from muntin.errors import MuntinError

V = TypeVar("V")
T = TypeVar("T")
Pairs = RDD[tuple[int, V]]


class _ByTask(AccumulatorParam[dict[int, Any]]):
    """What each task has told. One that ran again has told all of it anew."""

    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(  # noqa: N802
        self, value1: dict[int, Any], value2: dict[int, Any]
    ) -> dict[int, Any]:
        return value1 | value2


def move(
    pairs: Pairs[V],
    partitions: int,
    home: Callable[[int], int],
    part: Callable[[V], tuple[V, list[T]]],
) -> tuple[Pairs[V], list[T]]:
    """The pairs, moved to their partitions, and what they had for the driver, task by task.

    `part` takes apart what moves and what is told.
    """
    heard = pairs.context.accumulator({}, _ByTask())

    def tell(task: int, items: Iterable[tuple[int, V]]) -> Iterator[tuple[int, V]]:
        told: list[T] = []
        for key, value in items:
            moving, news = part(value)
            told += news
            yield key, moving
        heard.add({task: told})

    moved = pairs.mapPartitionsWithIndex(tell).partitionBy(partitions, home)
    try:
        compute_now(moved)
    finally:
        _accumulatorRegistry.pop(heard.aid)  # what is told when files are lost later is known
    by_task: dict[int, list[T]] = heard.value
    _require_all(pairs.getNumPartitions(), len(by_task))
    return moved, [news for task in sorted(by_task) for news in by_task[task]]


def _require_all(tasks: int, told: int) -> None:
    """Spark only logs that an accumulator could not be updated."""
    if told < tasks:
        raise MuntinError(
            f"the reports of {tasks - told} of {tasks} Spark tasks did not reach the driver, so "
            "nothing of this batch was kept; Spark's log says why. If another accumulator of this "
            "session has failed, start a new session."
        )


def compute_now(moved: RDD[Any]) -> None:
    """Has pairs that were just partitioned written into the shuffle's files.

    Spark has this for its own use only. Python's RDD takes values out of pairs of bytes (first
    dependency), which come out of a shuffle (second); its partitions must be one or more.
    """
    jvm = moved.context._jvm
    assert jvm is not None  # of a context that runs
    pairs = moved._jrdd.rdd().dependencies().apply(0).rdd()
    stage = moved.context._jsc.sc().submitMapStage(pairs.dependencies().apply(0))
    # Unlike its get, this raises what the stage has raised and not that it has raised something.
    stage.result(jvm.scala.concurrent.duration.Duration.Inf(), None)
