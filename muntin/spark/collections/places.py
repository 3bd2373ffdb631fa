"""Where a collection's groups live, and what a question reads where.

Nothing here is safe to use from two threads at once: a collection asks under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark import SparkContext

from muntin.collections.demand import Demand
from muntin.collections.groups import Bounds, Group, Groups, newest
from muntin.collections.homes import Executor, placed, replicated
from muntin.spark.collections import internals
from muntin.spark.collections.internals import Packs
from muntin.spark.collections.piece import Piece, Task
from muntin.spark.collections.readings import Readings

HALF_LIFE = 60.0  # seconds, of demand
_WAIT = "spark.locality.wait"
_LOOK_SECONDS = 1.0  # between two looks at who runs


class Places:
    """Groups of partitions and their homes.

    Groups change with the sizes of the `newest` datasets, within `limits` or, without, so that all
    cores are about equally busy. `note` is told of executors that are gone.
    """

    def __init__(
        self,
        context: SparkContext,
        limits: Bounds | None,
        newest: int,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._context, self._limits, self._newest = context, limits, newest
        self._note, self._clock = note, clock
        self._executors = internals.executors(context)
        self._looked = clock()
        if len(self._executors) > 1 and (context.getConf().get(_WAIT) or "3s").startswith("0"):
            note(
                f"{_WAIT} is 0, so tasks do not wait for the executor that holds what they read; "
                "3s is Spark's own setting"
            )
        self._readings = Readings(context)
        self._questions = 0
        self.demand: Demand[int] = Demand(HALF_LIFE)  # by partition
        self.groups = Groups((Group(0, 1),))
        self.homes: dict[Group, tuple[Executor, ...]] = {}

    def begin(self, partitions: int) -> None:
        """So many partitions, in about equal groups, one for each core."""
        tasks = min(partitions, self._context.defaultParallelism)
        self.groups = Groups.even(partitions, tasks)
        self.homes = placed(self.groups.leaves, {}, self._executors, [0] * partitions)

    @property
    def first_homes(self) -> list[Executor]:
        """By partition, where what is new is computed."""
        return [self.homes[group][0] for group in self.groups.leaves for _ in group.partitions]

    def reading(self, pieces: Sequence[Piece], partitions: Sequence[int]) -> list[Task]:
        """What to read where, a task for each group that a question touches; notes the demand.

        A group with several homes is read in each of them in turn.
        """
        self.demand.note(partitions, self._clock())
        self._questions += 1
        tasks = []
        for group in sorted({self.groups.of(partition) for partition in partitions}):
            wanted = tuple(p for p in partitions if group.lower <= p < group.upper)
            homes = self.homes[group]
            home = homes[self._questions % len(homes)]
            sources = (piece.source(self._context, group, wanted, home) for piece in pieces)
            tasks.append(Task(group, wanted, home, tuple(sources), tuple(pieces)))
        return tasks

    def computing(self, piece: Piece) -> list[Task]:
        """What computes all of a piece, each group in its first home."""
        return [
            Task(group, tuple(group.partitions), homes[0], (piece.whole,), (piece,))
            for group, homes in self.homes.items()
        ]

    def packs(self, tasks: Iterable[Task]) -> Packs:
        """The packs that tasks read, a partition a task, each of which prefers its home."""
        return self._readings.of(tasks)

    def forget(self) -> None:
        """Packs were dropped, or have moved to disk or back."""
        self._readings.forget()

    def balance(self, pieces: Iterable[Piece]) -> None:
        """Splits and merges groups by size, and gives them homes by contention and demand."""
        ordered = sorted(pieces, key=lambda piece: piece.step)
        by_piece = [[size.bytes for size in piece.sizes] for piece in ordered]
        sizes = newest(by_piece, self._newest, self.groups.root.upper)
        limits = self._limits or Bounds.fitting(sum(sizes), self._context.defaultParallelism)
        self.groups = self.groups.balanced(sizes, limits)
        homes = placed(self.groups.leaves, self.homes, self._executors, sizes)
        now = self._clock()
        demand = {
            group: max(self.demand.of(partition, now) for partition in group.partitions)
            for group in self.groups.leaves
        }
        self.homes = replicated(homes, self._executors, demand, sizes)
        for piece in ordered:
            piece.keep_copies(self.homes)
        self.forget()

    def look(self, pieces: Sequence[Piece]) -> None:
        """Sees which executors run, at most once a second; groups of one that is gone move."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        running = internals.executors(self._context)
        if not running or running == self._executors:
            return
        lost = [each for each in self._executors if each not in running]
        self._executors = running
        if not self.homes:
            return
        self.balance(pieces)
        for executor in lost:
            for piece in pieces:
                piece.rehoused(executor, self.first_homes)
            self._note(
                f"executor {executor.id} on {executor.host} is gone; its groups live in others "
                "now, and what it held is computed again when it is asked for"
            )
