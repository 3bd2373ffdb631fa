"""What is asked of a collection: some steps, and of these some keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from muntin.collections.grid import Moment, moments
from muntin.collections.keys import Selection
from muntin.collections.rows import by_step, chosen, cogrouped
from muntin.errors import InputError
from muntin.spark.collections import internals
from muntin.spark.collections.internals import Packs
from muntin.spark.collections.piece import Task
from muntin.units import describe_time

T = TypeVar("T")
STEP = "step"  # the column of frames that says which step a row is of


class Asked(Protocol):
    """What a range needs of its collection."""

    name: str
    key: str
    is_pairs: bool
    schema: StructType | None
    session: SparkSession

    def selected(self, selection: Selection) -> Selection:
        """The selection, in the type of the keys."""

    def starts(self, lower: Moment | None, upper: Moment | None) -> tuple[int, ...]:
        """The steps that begin in `[lower, upper)`, of those that are there now."""

    def reading(
        self, lower: Moment | None, upper: Moment | None, selection: Selection
    ) -> tuple[tuple[int, ...], list[Task]]:
        """These steps, and what is to be read where."""

    def packs(self, tasks: Iterable[Task]) -> Packs:
        """What they read."""


@dataclass(frozen=True)
class Range:
    """Steps and keys of a collection. Nothing is read before an answer is asked for.

    Which steps these are is seen then, too: without a bound it is all that are there, and one that
    was dropped since is missed, with an InputError, where a bound reaches that far.
    """

    _of: Asked
    _lower: Moment | None
    _upper: Moment | None
    _selection: Selection

    def keys(self, *keys: Any) -> Range:
        """These keys only."""
        return self._with(replace(self._selection, keys=tuple(keys)))

    def key_range(self, lower: Any, upper: Any) -> Range:
        """Keys in `[lower, upper)` only; None is no bound."""
        return self.key_ranges([(lower, upper)])

    def key_ranges(self, ranges: Iterable[tuple[Any, Any]]) -> Range:
        """Keys in one of some ranges `[lower, upper)` only."""
        return self._with(replace(self._selection, ranges=tuple(ranges)))

    def steps(self) -> list[datetime]:
        """When the steps begin that are part of it."""
        return moments(self._of.starts(self._lower, self._upper))

    def cogroup(self) -> RDD[tuple[Any, tuple[list[Any], ...]]]:
        """Every key with one list a step, in the order of steps: its rows there, as dictionaries.

        Of a collection of pairs, its values.
        """
        key, pairs, selection = self._of.key, self._of.is_pairs, self._selection
        steps, tasks = self._reading()

        def answer(packs: Iterable[bytes]) -> Iterator[tuple[Any, tuple[list[Any], ...]]]:
            return cogrouped(by_step(packs, key, selection), steps, key, pairs)

        return self._rdd(tasks).mapPartitions(answer)

    def per_group(self, answer: Callable[[dict[datetime, pa.Table]], Iterable[T]]) -> RDD[T]:
        """What a function yields for each group of keys, given its rows as one Arrow table a step.

        A key is in one group only. Steps without rows in a group may be missing there.
        """
        key, selection = self._of.key, self._selection

        def asked(packs: Iterable[bytes]) -> Iterable[T]:
            tables = by_step(packs, key, selection)
            return answer(dict(zip(moments(list(tables)), tables.values(), strict=True)))

        _, tasks = self._reading()
        return self._rdd(tasks).mapPartitions(asked)

    def frame(self) -> DataFrame:
        """All rows, as they were added, and the column `step`: when their step begins."""
        schema, key, selection = self._of.schema, self._of.key, self._selection
        if schema is None:
            raise InputError(
                f"collection '{self._of.name}' is of pairs, which have no columns; use cogroup()"
            )
        whole = StructType([*schema.fields, StructField(STEP, TimestampType())])
        arrow = to_arrow_schema(whole, timezone="UTC")

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for pack in batch.column(0):
                    part = chosen(pack.as_py(), key, selection)
                    step = pa.repeat(pa.scalar(part.step, pa.int64()), part.rows.num_rows)
                    yield from part.rows.append_column(STEP, step).cast(arrow).to_batches()

        session, (_, tasks) = self._of.session, self._reading()
        return internals.as_frame(session, self._of.packs(tasks)).mapInArrow(rows, whole)

    def explain(self) -> str:
        """What would be read: steps, from memory or disk, and a line for each task."""
        steps, tasks = self._reading()
        pieces = dict.fromkeys(piece.name for task in tasks for piece in task.pieces)
        known = {piece.name: piece for task in tasks for piece in task.pieces}
        lines = [
            f"{_counted(len(steps), 'step')} of '{self._of.name}' in {_counted(len(tasks), 'task')}"
        ]
        for name in pieces:
            piece = known[name]
            where = "memory" if piece.in_memory else "disk"
            written = ", written" if piece.path else ""
            rows = _counted(piece.rows, "row")
            lines.append(f"  {describe_time(piece.step)}: {rows} in {where}{written}")
        for task in tasks:
            first, last = task.group.lower, task.group.upper - 1
            size = sum(p.sizes[n].bytes for p in task.pieces for n in task.partitions)
            lines.append(
                f"  partitions {first} to {last}: reads {len(task.partitions)}, "
                f"{size:,} bytes, on executor {task.home.id} of {task.home.host}"
            )
        return "\n".join(lines)

    def _with(self, selection: Selection) -> Range:
        return replace(self, _selection=self._of.selected(selection))

    def _reading(self) -> tuple[tuple[int, ...], list[Task]]:
        return self._of.reading(self._lower, self._upper, self._selection)

    def _rdd(self, tasks: Iterable[Task]) -> RDD[bytes]:
        return internals.as_rdd(self._of.session.sparkContext, self._of.packs(tasks))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
