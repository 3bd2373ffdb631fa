"""Partials of an executor's tasks, merged with each other before they are sent to key groups.

A task's number says where its partials are merged, before anything runs: in one of the slots, of
which there is one an executor. Where tasks really run decides how many bytes are saved and nothing
else. So one that runs again elsewhere changes no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from pyspark import RDD, SparkConf

from muntin.collections.homes import Executor
from muntin.errors import MuntinError, StartError
from muntin.kernel.reading import Reading
from muntin.kernel.slices import merge_all_in_slices
from muntin.spark.collections.internals import each_at
from muntin.spark.holdings import TELLING, Element, Held, Holding, Shapes, by_shape, bytes_of, home

SPEED = "spark.muntin.network.mbits"
_SPEED_MBITS = "10000"
_BITS = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Slots:
    """The executors that merge what their tasks have made, in so many tasks each."""

    executors: Sequence[Executor]
    parts: int

    def placed(self, tasks: RDD[T]) -> RDD[T]:
        """Tasks, one a partition, that prefer the executor of their slot."""
        number, every = tasks.getNumPartitions(), self.executors
        return each_at([every[task % len(every)] for task in range(number)], tasks)

    def merged(self, computed: Held, shapes: Shapes) -> Held:
        """What tasks have computed, merged by slot and key group; news go on.

        Spark runs a task that merges on a host where much of what it reads is.
        """
        slots, parts = len(self.executors), self.parts

        def by_slot(task: int, items: Iterable[Element]) -> Iterator[tuple[int, Element]]:
            return ((task % slots * parts + each[0] % parts, each) for each in items)

        moved = computed.mapPartitionsWithIndex(by_slot).partitionBy(slots * parts, home)
        return moved.values().mapPartitions(merging(shapes))


def merging(shapes: Shapes) -> Callable[[Iterable[Element]], Iterator[Element]]:
    def merge(items: Iterable[Element]) -> Iterator[Element]:
        found: dict[int, list[Holding]] = {}
        for group, each in items:
            assert isinstance(each, Holding), each
            found.setdefault(group, []).append(each)
        for group in sorted(found):
            every = found.pop(group)
            several = by_shape(every)
            news = tuple(chain.from_iterable(each.news for each in every))
            try:
                merged = merge_all_in_slices(shapes, several, group, {})
            except MuntinError as error:  # raised by the driver, without Spark's traceback
                yield TELLING, Holding(news=(*news, error))
                continue
            blocks = {id_: some for id_, some in merged.items() if some}
            yield group, Holding(blocks, news, made=bytes_of(several))

    return merge


def came_twice(readings: Iterable[Reading]) -> bool:
    """Whether two tasks have delivered the same. Merged in two slots, it would count twice."""
    numbered = [(each.source, each.sequence) for each in readings if each.sequence]
    return len(set(numbered)) < len(numbered)


def network_speed(settings: SparkConf) -> float:
    """Bytes a second that an executor sends, as settings of Spark say."""
    given = settings.get(SPEED) or _SPEED_MBITS
    if not given.isdecimal() or not int(given):
        raise StartError(f"{SPEED} is a number of Mbit/s, 1 or more, not '{given}'")
    return int(given) * _BITS / 8
