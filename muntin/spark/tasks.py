"""What a commit has done to several things in tasks, where it is too much for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark import SparkContext

from muntin.errors import MuntinError
from muntin.store.settling import here

BY_DRIVER = 4 << 20  # bytes that the driver reads itself: a job of Spark takes longer
T = TypeVar("T")
U = TypeVar("U")


class SparkTasks:
    """Does the same to several things, in tasks, if many bytes are read for that."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def __call__(self, do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
        if size <= BY_DRIVER:
            return here(do, items, size)

        def done(some: Iterable[T]) -> Iterator[U | MuntinError]:
            try:
                yield from map(do, some)
            except MuntinError as error:  # raised by the driver, without Spark's traceback
                yield error

        # Several for each core, as some take longer than others.
        tasks = min(len(items), 4 * self._context.defaultParallelism)
        made: list[U] = []
        for each in self._context.parallelize(items, tasks).mapPartitions(done).collect():
            if isinstance(each, MuntinError):
                raise each
            made.append(each)
        return made
