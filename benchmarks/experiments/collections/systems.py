"""The systems that are compared, on the same packs and executors, answering by the same function.

Spark-R: ranges of each dataset's own; to meet, all but the first are shuffled for each question.
Spark-H: one partitioner for all; a task runs where the first dataset's partition is, as Spark's
cogroup does, and fetches those of the others from wherever they are.
Stark: a collection. Stark-H hashes keys and Stark-S has ranges, both in groups that stay as they
are; Stark-E has groups that split and merge.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import RDD
from pyspark.sql import SparkSession

from muntin.collections.groups import Group
from muntin.collections.homes import Executor
from muntin.collections.keys import ByHash, ByRange, Partitioner, Selection
from muntin.collections.rows import (
    Part,
    by_step,
    cut,
    from_ipc,
    joined,
    packed,
    size_of,
    to_ipc,
    unpacked,
)
from muntin.spark.collections import internals
from muntin.spark.collections.collection import Collection
from muntin.spark.collections.internals import MEMORY, Packs
from muntin.spark.collections.packing import Packing
from muntin.spark.collections.piece import Source, Task
from muntin.spark.collections.readings import Readings

T = TypeVar("T")
Answer = Callable[[dict[int, pa.Table]], Iterable[T]]
MINUTES = 300_000_000
FILES = 4  # of a dataset
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class System(Protocol):
    """Something that keeps datasets, by number, and answers questions over some of them."""

    name: str

    def add(self, number: int, table: pa.Table) -> None:
        """Keeps a dataset."""

    def ask(self, numbers: Sequence[int], selection: Selection, answer: Answer[T]) -> list[T]:
        """What a function yields, over all tasks."""

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        """Bytes of each task of a question over all keys of these."""

    def homes(self, numbers: Sequence[int]) -> list[Executor]:
        """Where each of these tasks prefers to run."""

    def drop(self) -> None:
        """Lets go of everything."""


class Plain:
    """Spark without placement: Spark-H, or Spark-R where each dataset has ranges of its own."""

    def __init__(
        self, session: SparkSession, key: str, partitions: int, own_ranges: bool, shared: Any = None
    ) -> None:
        self.name = "Spark-R" if own_ranges else "Spark-H"
        self._session, self._context = session, session.sparkContext
        self._key, self._partitions, self._own = key, partitions, own_ranges
        self._shared: Partitioner = shared or ByHash(partitions)
        self._kept: dict[int, tuple[Packs, Partitioner, dict[int, Executor], list[int]]] = {}
        self._readings, self._lock = Readings(self._context), Lock()

    def add(self, number: int, table: pa.Table) -> None:
        keys = table.column(self._key)
        partitioner = self._shared
        if self._own:
            partitioner = ByRange.fitted(keys.combine_chunks(), self._partitions)
        packing = Packing(number, self._key, keys.type, partitioner, self.name)
        packs = internals.persist(
            self._context, packing.frame(as_frame(self._session, table)), MEMORY
        )
        sizes = [0] * partitioner.count
        for partition, size in internals.as_rdd(self._context, packs).map(size_of).collect():
            sizes[partition] = size.bytes
        known = {each.id: each for each in internals.executors(self._context)}
        held = internals.holders(self._context, packs)
        while len(held) < partitioner.count:  # Spark hears of blocks a moment later
            time.sleep(0.02)
            held = internals.holders(self._context, packs)
        places = {partition: known[ids[0]] for partition, ids in held.items()}
        self._kept[number] = (packs, partitioner, places, sizes)

    def ask(self, numbers: Sequence[int], selection: Selection, answer: Answer[T]) -> list[T]:
        key = self._key
        first, partitioner, places, _ = self._kept[numbers[0]]
        sources = [first, *(self._kept[number][0] for number in numbers[1:])]
        readings = self._readings
        if self._own and len(numbers) > 1:
            sources = [first, self._shuffled(numbers[1:], partitioner, selection)]
            readings = Readings(self._context)
        wanted = selection.partitions(partitioner, pa.int64() if selection.ranges else pa.string())
        count = partitioner.count
        tasks = [
            Task(
                Group(partition, partition + 1),
                (partition,),
                places[partition],
                tuple(Source(packs, 0, count) for packs in sources),
                (),
            )
            for partition in wanted
        ]
        with self._lock:
            packs = internals.as_rdd(self._context, readings.of(tasks))
        return packs.mapPartitions(lambda each: answer(by_step(each, key, selection))).collect()

    def _shuffled(
        self, numbers: Sequence[int], partitioner: Partitioner, selection: Selection
    ) -> Packs:
        """Datasets with ranges of their own, cut and moved by those of the first."""
        key = self._key

        def cut_again(packs: Iterable[bytes]) -> Iterator[tuple[int, tuple[int, bytes]]]:
            for pack in packs:
                part = unpacked(pack)
                mask = selection.mask(part.rows.column(key))
                rows = part.rows if mask is None else part.rows.filter(mask)
                for number, some in cut(rows, rows.column(key), partitioner):
                    yield number, (part.step, to_ipc(some).to_pybytes())

        def join(moved: Iterable[tuple[int, tuple[int, bytes]]]) -> Iterator[bytes]:
            found: dict[int, list[pa.Table]] = {}
            for _, (step, rows) in moved:
                found.setdefault(step, []).append(from_ipc(rows))
            for step, tables in found.items():
                yield packed(Part(step, 0, joined(tables)))

        all_packs = internals.union(self._context, [self._kept[number][0] for number in numbers])
        moving: RDD[Any] = internals.as_rdd(self._context, all_packs).mapPartitions(cut_again)
        moved = moving.partitionBy(partitioner.count, lambda partition: partition)
        return internals.packs_of(moved.mapPartitions(join))

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        return [sum(each) for each in zip(*(self._kept[n][3] for n in numbers), strict=False)]

    def homes(self, numbers: Sequence[int]) -> list[Executor]:
        _, partitioner, places, _ = self._kept[numbers[0]]
        return [places[partition] for partition in range(partitioner.count)]

    def drop(self) -> None:
        for packs, _, _, _ in self._kept.values():
            packs.unpersist(True)
        self._kept.clear()
        self._readings.forget()


class Stark:
    """A collection, with groups that stay as they are, or split and merge."""

    def __init__(
        self,
        session: SparkSession,
        name: str,
        key: str,
        partitions: int,
        bounds: Sequence[Any] | None = None,
        elastic: bool = False,
    ) -> None:
        self.name, self._session = name, session
        how: dict[str, Any] = {"partitions": partitions} if bounds is None else {"bounds": bounds}
        if not elastic:
            how |= {"split_above": "1000 GB", "merge_below": "0 bytes"}
        self.collection = Collection(session, name, key=key, **how)

    def add(self, number: int, table: pa.Table) -> None:
        self.collection.add(at(number), as_frame(self._session, table))

    def ask(self, numbers: Sequence[int], selection: Selection, answer: Answer[T]) -> list[T]:
        asked = self.collection.between(at(min(numbers)), at(max(numbers) + 1))
        if selection.ranges is not None:
            asked = asked.key_ranges(selection.ranges)
        return asked.per_group(lambda tables: answer(dict(enumerate(tables.values())))).collect()

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        starts = [number * MINUTES + int(NOON.timestamp()) * 1_000_000 for number in numbers]
        pieces = [p for p in self.collection._pieces.values() if p.step in starts]
        return [
            sum(piece.sizes[p].bytes for piece in pieces for p in group.partitions)
            for group in self.collection.groups.leaves
        ]

    def homes(self, numbers: Sequence[int]) -> list[Executor]:
        homes = self.collection.homes
        return [homes[group][0] for group in self.collection.groups.leaves]

    def drop(self) -> None:
        self.collection.drop_before(at(100_000))


def at(number: int) -> datetime:
    return NOON + number * timedelta(minutes=5)


def as_frame(session: SparkSession, table: pa.Table) -> Any:
    """A table as executors read it, from files that stay as long as the program runs."""
    folder = Path(_files().name) / uuid4().hex
    folder.mkdir()
    size = -(-table.num_rows // FILES)
    for n in range(FILES):
        pq.write_table(table.slice(n * size, size), folder / f"{n}.parquet", compression="none")
    return session.read.parquet(str(folder))


@cache
def _files() -> tempfile.TemporaryDirectory[str]:
    """Made when it is needed: workers of Spark, which load this too, would leave one each."""
    return tempfile.TemporaryDirectory(prefix="muntin-datasets-")
