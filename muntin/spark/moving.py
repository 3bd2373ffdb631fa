"""The first half of a shuffle, run by itself: rows wait in its files, and tasks tell the driver.

What tasks tell comes with their end, in an accumulator. A job whose result it were would take a
second stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pyspark import RDD, AccumulatorParam

from muntin.errors import MuntinError
from muntin.spark.internals import forget_accumulator, write_shuffle

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
    divide: Callable[[V], tuple[V, list[T]]],
) -> tuple[Pairs[V], list[T]]:
    """The pairs, moved to their partitions, and what they had for the driver, task by task.

    `divide` takes apart what moves and what is told.
    """
    heard = pairs.context.accumulator({}, _ByTask())

    def tell(task: int, items: Iterable[tuple[int, V]]) -> Iterator[tuple[int, V]]:
        told: list[T] = []
        for key, value in items:
            moving, news = divide(value)
            told += news
            yield key, moving
        heard.add({task: told})

    moved = pairs.mapPartitionsWithIndex(tell).partitionBy(partitions, home)
    try:
        write_shuffle(moved)
    finally:
        forget_accumulator(heard)  # what is told when files are lost later is known
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
