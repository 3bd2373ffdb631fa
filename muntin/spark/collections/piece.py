"""A piece of a step: packs on Spark, where they lie, and copies of them for other homes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark import SparkContext

from muntin.collections.groups import Group
from muntin.collections.homes import Executor
from muntin.collections.rows import Size
from muntin.spark.collections import internals
from muntin.spark.collections.internals import DISK, MEMORY, Packs


class Source(NamedTuple):
    """An RDD of packs, and the partition with which it begins."""

    packs: Packs
    first: int
    partitions: int


@dataclass
class Piece:
    """One dataset that was added.

    `packs` are what others are computed from, and what is written. They are in memory at first. A
    piece that leaves memory lies on disk, as what was written or in a copy that is made once.
    """

    name: str
    step: int
    packs: Packs
    sizes: Sequence[Size]
    at: list[Executor]  # by partition, whose task has computed it
    path: str = ""  # where it was written
    in_memory: bool = True
    _disk: Packs | None = None
    _memory: Packs | None = None  # of one that has come back from its copy on disk
    _copies: dict[tuple[Group, Executor], Packs] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(size.bytes for size in self.sizes)

    @property
    def rows(self) -> int:
        return sum(size.rows for size in self.sizes)

    @property
    def memory(self) -> int:
        """Bytes that it takes in memory, with copies."""
        own = self.bytes if self.in_memory else 0
        return own + sum(
            sum(self.sizes[p].bytes for p in group.partitions) for group, _ in self._copies
        )

    @property
    def whole(self) -> Source:
        """All partitions."""
        return Source(self._memory or self._disk or self.packs, 0, len(self.sizes))

    def source(
        self, context: SparkContext, group: Group, wanted: Sequence[int], home: Executor
    ) -> Source:
        """What a task of a group reads in a home: what lies there, or a copy that will."""
        if not self.in_memory or all(self.at[p] == home for p in wanted):
            return self.whole
        for (copied, place), packs in self._copies.items():
            if place == home and copied.holds(group):
                return Source(packs, copied.lower, len(copied))
        packs = internals.only(context, self.whole.packs, group.partitions)
        self._copies[group, home] = internals.persist(context, packs, MEMORY)
        return Source(packs, group.lower, len(group))

    def keep_copies(self, homes: Mapping[Group, tuple[Executor, ...]]) -> None:
        """Lets go of copies in what is no home of theirs any more."""
        for copied, place in list(self._copies):
            used = any(place in homes[group] for group in homes if copied.holds(group))
            if not used:
                self._copies.pop((copied, place)).unpersist(False)

    def rehoused(self, lost: Executor, homes: Sequence[Executor]) -> None:
        """What a lost executor held is computed again where its group now lives."""
        self.at = [homes[p] if home == lost else home for p, home in enumerate(self.at)]
        for group, place in list(self._copies):
            if place == lost:
                self._copies.pop((group, place)).unpersist(False)

    def to_disk(self, context: SparkContext) -> Packs | None:
        """Makes room; returns what has to be computed before that, if there is something.

        `freed` ends it.
        """
        if self.path or self._disk is not None:
            return None
        copy = internals.only(context, self.packs, range(len(self.sizes)))
        self._disk = internals.persist(context, copy, DISK)
        return self._disk

    def freed(self) -> None:
        """Takes it out of memory, with all copies."""
        for packs in (self._memory, *self._copies.values()):
            if packs is not None:
                packs.unpersist(False)
        self.packs.unpersist(False)
        self._copies.clear()
        self._memory, self.in_memory = None, False

    def to_memory(self, context: SparkContext) -> None:
        """Has it come back into memory, as it is asked for."""
        if self._disk is None:
            internals.persist(context, self.packs, MEMORY)
        else:
            copy = internals.only(context, self._disk, range(len(self.sizes)))
            self._memory = internals.persist(context, copy, MEMORY)
        self.in_memory = True

    def drop(self) -> None:
        """Lets go of all of it; what was written stays."""
        self.freed()
        if self._disk is not None:
            self._disk.unpersist(False)
            self._disk = None


@dataclass(frozen=True)
class Task:
    """What one task reads: partitions of a group, of some pieces, in a home."""

    group: Group
    partitions: tuple[int, ...]
    home: Executor
    sources: tuple[Source, ...]
    pieces: tuple[Piece, ...]
