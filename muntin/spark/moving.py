"""The first half of a shuffle, run by itself: rows wait in its files, and tasks tell the driver.

What tasks tell comes with their end. A job whose result it were would take a second stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark import RDD

from muntin.spark.internals import write_shuffle
from muntin.spark.telling import Make, Telling

U = TypeVar("U")
V = TypeVar("V")
T = TypeVar("T")
K = TypeVar("K")


def move(
    rdd: RDD[U],
    make: Make[U, tuple[K, V], T],
    partitions: int,
    home: Callable[[K], int],
) -> tuple[RDD[tuple[K, V]], list[T]]:
    """The pairs that tasks make, moved to their partitions, and what tasks tell, task by task."""
    telling: Telling[T] = Telling(rdd.context)
    made: RDD[tuple[K, V]] = telling.made(rdd, make)
    moved, tasks = made.partitionBy(partitions, home), rdd.getNumPartitions()
    try:
        if tasks:  # a batch of a frame may have none
            write_shuffle(moved)
    except BaseException:
        telling.forget()
        raise
    return moved, telling.heard(tasks)
