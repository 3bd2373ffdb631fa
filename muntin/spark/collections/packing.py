"""Frames and pairs as packs: cut by partition, moved once, joined where they come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame

from muntin.collections.keys import Partitioner, cast_keys
from muntin.collections.rows import Part, cut, from_ipc, joined, of_pairs, packed, to_ipc
from muntin.errors import InputError, SparkError
from muntin.spark.collections.internals import Packs, packs_of, packs_of_frame
from muntin.spark.trouble import explained

_PAIRS_AT_ONCE = 50_000
_REFUSED = re.compile(r"muntin\.errors\.InputError: (.*)")


@dataclass(frozen=True)
class Packing:
    """How rows of one step become packs: by which key, of which type, in which partition."""

    step: int
    key: str
    type: pa.DataType
    partitioner: Partitioner
    whose: str

    def frame(self, frame: DataFrame) -> Packs:
        """Packs of a frame, a partition each; partitions without rows have none."""

        def cut_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from _moving(self._cut(pa.Table.from_batches([batch])))

        def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = (row for batch in batches for row in batch.to_pylist())
            packs = list(self._joined((row["part"], row["rows"]) for row in rows))
            if packs:
                yield pa.record_batch({"pack": pa.array(packs, pa.binary())})

        moving = frame.mapInArrow(cut_batches, "part int, rows binary")
        moved = moving.repartitionById(self.partitioner.count, "part")
        return packs_of_frame(moved.mapInArrow(join_batches, "pack binary"))

    def pairs(self, pairs: RDD[Any]) -> Packs:
        """Packs of an RDD of pairs."""

        def cut_pairs(items: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
            left = iter(items)
            while some := list(islice(left, _PAIRS_AT_ONCE)):
                pairs = [(key_of(each, self.whose), each[1]) for each in some]
                for part, rows in self._cut(of_pairs(pairs, self.type, self.whose)):
                    yield part, to_ipc(rows).to_pybytes()

        moved = pairs.mapPartitions(cut_pairs).partitionBy(self.partitioner.count, _itself)
        return packs_of(moved.mapPartitions(self._joined))

    def _cut(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        keys = cast_keys(rows.column(self.key), self.type, self.whose)
        return cut(rows, keys, self.partitioner)

    def _joined(self, moved: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        found: dict[int, list[pa.Table]] = {}
        for part, rows in moved:
            found.setdefault(part, []).append(from_ipc(rows))
        for part, tables in found.items():
            yield packed(Part(self.step, part, joined(tables)))


def key_of(pair: Any, whose: str) -> Any:
    """The key of an element that should be a pair."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InputError(
            f"{whose} is of pairs, and an RDD for it has elements (key, value), not "
            f"{type(pair).__name__}; name a column as key= for a collection of frames"
        )
    return pair[0]


@contextmanager
def told() -> Iterator[None]:
    """Has what a task refuses, or Spark fails with, leave as one sentence."""
    try:
        with explained():
            yield
    except SparkError as error:
        said = str(error).split("; what was committed")[0]  # of runs, which are none of ours
        refused = _REFUSED.findall(said)
        raise (InputError(refused[-1]) if refused else SparkError(said)) from None


def _moving(parts: Iterable[tuple[int, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """What moves, one row a partition, no more than some partitions at once."""
    for part, rows in parts:
        columns = {"part": pa.array([part], pa.int32()), "rows": [to_ipc(rows).to_pybytes()]}
        yield pa.record_batch(columns)


def _itself(part: int) -> int:
    return part
