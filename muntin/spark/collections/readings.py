"""What questions read, as RDDs that are made once.

Making one takes tens of calls into the JVM, and Spark then works out its partitions and where they
are: together more than reading them takes. A question that reads the same partitions of the same
packs in the same home as one before has its RDD. Not safe to use from two threads at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from pyspark import SparkContext

from muntin.collections.homes import Executor
from muntin.spark.collections import internals
from muntin.spark.collections.internals import Packs
from muntin.spark.collections.piece import Task

_KEPT = 1024
_Key: TypeAlias = tuple[Any, ...]


class _Made(NamedTuple):
    packs: Packs
    of: object  # whose names are the key: as long as it lives, nothing else has them


class Readings:
    """RDDs of questions, those that were asked for last."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._anchors: dict[Executor, Packs] = {}
        self._made: OrderedDict[_Key, _Made] = OrderedDict()

    def of(self, tasks: Iterable[Task]) -> Packs:
        """The packs that tasks read, a partition a task, each of which prefers its home."""
        parts = [self._task(task) for task in tasks]
        return self._union(parts)

    def forget(self) -> None:
        """Lets go of all, as packs have come or gone."""
        self._made.clear()

    def _task(self, task: Task) -> Packs:
        several = [source.packs for source in task.sources]
        where = tuple(source.first for source in task.sources)

        def make() -> Packs:
            chosen, before = [], 0
            for source in task.sources:
                chosen += [before + p - source.first for p in task.partitions]
                before += source.partitions
            some = internals.only(self._context, self._union(several), chosen)
            return internals.at(self._anchor(task.home), some)

        return self._once((task.home, task.partitions, where, *map(id, several)), several, make)

    def _union(self, several: Sequence[Packs]) -> Packs:
        if len(several) == 1:
            return several[0]
        return self._once(
            ("union", *map(id, several)),
            several,
            lambda: internals.union(self._context, several),
        )

    def _once(self, key: _Key, of: object, make: Callable[[], Packs]) -> Packs:
        made = self._made.pop(key, None) or _Made(make(), of)
        self._made[key] = made
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return made.packs

    def _anchor(self, executor: Executor) -> Packs:
        if executor not in self._anchors:
            self._anchors[executor] = internals.home(self._context, executor)
        return self._anchors[executor]
