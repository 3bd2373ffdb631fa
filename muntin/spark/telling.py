"""What tasks tell the driver beside what they make: it comes with their end, in an accumulator.

Each task tells all or nothing, and of one that runs again the last word counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import RDD, AccumulatorParam, SparkContext

from muntin.errors import MuntinError
from muntin.spark.internals import forget_accumulator

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@dataclass(frozen=True)
class Told(Generic[T]):
    """Something for the driver, among what a task makes."""

    value: T


Make = Callable[[int, Iterable[U]], Iterator[V | Told[T]]]  # given the number of the partition


class _ByTask(AccumulatorParam[dict[int, Any]]):
    """What each task has told. One that ran again has told all of it anew."""

    def zero(self, value: dict[int, Any]) -> dict[int, Any]:
        return {}

    def addInPlace(  # noqa: N802
        self, value1: dict[int, Any], value2: dict[int, Any]
    ) -> dict[int, Any]:
        return value1 | value2


class Telling(Generic[T]):
    """What the tasks of one job tell."""

    def __init__(self, context: SparkContext) -> None:
        self._heard = context.accumulator({}, _ByTask())

    def made(self, rdd: RDD[U], make: Make[U, V, T]) -> RDD[V]:
        """What tasks make of partitions, which stay where they are, less what they tell.

        A MuntinError that is raised on the way is told, too.
        """
        heard = self._heard

        def tell(task: int, items: Iterable[U]) -> Iterator[V]:
            told: list[T | MuntinError] = []
            try:
                for each in make(task, items):
                    if isinstance(each, Told):
                        told.append(each.value)
                    else:
                        yield each
            except MuntinError as error:  # raised by the driver, without Spark's traceback
                told = [error]
            heard.add({task: told})

        return rdd.mapPartitionsWithIndex(tell, preservesPartitioning=True)

    def heard(self, tasks: int) -> list[T]:
        """All that was told, task by task, once so many tasks have ended; raises what one has.

        It can be asked once: what is told when something is computed again later is known.
        """
        by_task: dict[int, list[T | MuntinError]] = self._heard.value
        self.forget()
        _require_all(tasks, len(by_task))
        told: list[T] = []
        for task in sorted(by_task):
            for each in by_task[task]:
                if isinstance(each, MuntinError):
                    raise each
                told.append(each)
        return told

    def forget(self) -> None:
        forget_accumulator(self._heard)


def _require_all(tasks: int, told: int) -> None:
    """Spark only logs that an accumulator could not be updated."""
    if told < tasks:
        raise MuntinError(
            f"the reports of {tasks - told} of {tasks} Spark tasks did not reach the driver, so "
            "nothing of this batch was kept; Spark's log says why. If another accumulator of this "
            "session has failed, start a new session."
        )
