"""Datasets of time steps in Spark's memory, alike in partitions and places.

Partition i of every step lies in the same executor, as far as Spark goes along: every task is told
the home of its group, and what a task computes is cached where it runs. So a question over any
range of steps reads local memory. What is added, asked for and dropped may come from several
threads: values are exchanged under one lock, and Spark works outside of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock, RLock
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, pmod, rand, unix_micros
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from muntin.collections.demand import Demand
from muntin.collections.grid import Grid, Moment, moments
from muntin.collections.groups import Group, Groups
from muntin.collections.homes import Executor
from muntin.collections.keys import (
    ByHash,
    ByRange,
    Partitioner,
    Selection,
    as_keys,
    fitting_type,
)
from muntin.collections.lineage import Dataset, Lineage, cut
from muntin.collections.manifest import Manifest, Written
from muntin.collections.memory import Kept, to_keep
from muntin.collections.rows import KEY, Size, size_of
from muntin.errors import InputError
from muntin.spark.collections import internals
from muntin.spark.collections.internals import MEMORY, Packs
from muntin.spark.collections.options import Options, at_least_one
from muntin.spark.collections.packing import Packing, key_of, told
from muntin.spark.collections.piece import Piece, Task
from muntin.spark.collections.places import HALF_LIFE, Places
from muntin.spark.collections.range import STEP, Range
from muntin.units import describe_time

PARTITIONS_A_CORE = 8  # so that groups can be split a few times
_SAMPLE = 20_000  # keys, for the bounds of ranges
_SEED = 18

_log = logging.getLogger("muntin.collections")


class _Made(NamedTuple):
    """A dataset that was computed, the names of those it comes of, and how long it took."""

    piece: Piece
    parents: tuple[str, ...]
    seconds: float


class Collection:
    """Datasets by time step, partitioned by one key.

    `key` names the key's column of frames; without it, steps are RDDs of pairs (key, value). Every
    step begins at a multiple of `step`, and holds what was added for it.

    `partitions` is the number of fine partitions. With `ordered`, they are ranges of keys, fitted
    to the first step that is added, or ending before each of `bounds`; else keys are hashed. Groups
    of partitions split above `split_above` bytes and merge below `merge_below`, counted over the
    `newest` datasets; by default so that all cores are about equally busy.

    Above `memory`, such as '2 GB', steps go to disk. With `recovery`, such as '10 seconds',
    datasets are written to `folder` so that none takes longer to be computed again, at a cost of at
    most `relaxation` times the least. A collection of the same name that is opened on this folder
    later has what was written.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        key: str | None = None,
        step: str = "5 minutes",
        *,
        partitions: int | None = None,
        ordered: bool = False,
        bounds: Sequence[Any] | None = None,
        split_above: str | None = None,
        merge_below: str | None = None,
        newest: int = 3,
        memory: str | None = None,
        recovery: str | None = None,
        relaxation: float = 3.0,
        folder: str | Path | None = None,
        note: Callable[[str], None] = _log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._whose = name, f"collection '{name}'"
        self.session, self._context = spark, spark.sparkContext
        self.key = KEY if key is None else key
        self.is_pairs = key is None
        self.schema: StructType | None = None  # of frames
        self.written_bytes = 0
        self._grid = Grid.of(step, self._whose)
        self._options = Options.of(
            self._whose, split_above, merge_below, newest, memory, recovery, relaxation
        )
        self._clock = clock
        self._lock, self._tending, self._saving = RLock(), Lock(), Lock()
        self._run = uuid4().hex  # whose datasets are numbered anew
        self._left: dict[str, str] = {}  # where datasets were written that were dropped
        self._places = Places(
            self._context,
            self._options.limits,
            self._options.newest,
            lambda text: note(f"{self._whose}: {text}"),
            clock,
        )
        self._pieces: dict[str, Piece] = {}
        self._coming: list[int] = []  # steps that are computed just now
        self._batches: set[tuple[str, int]] = set()
        self._number = 0
        self._lineage = Lineage()
        self._by_step: Demand[int] = Demand(HALF_LIFE)
        self._type: pa.DataType | None = None
        self._partitioner: Partitioner | None = None
        cores = self._context.defaultParallelism
        self._partitions = (
            PARTITIONS_A_CORE * cores
            if partitions is None
            else at_least_one(self._whose, "partitions", partitions)
        )
        if bounds is not None:
            as_keys(bounds, None, self._whose)  # which type they are of is settled by the data
            self._use(ByRange(tuple(bounds)))
        elif not ordered:
            self._use(ByHash(self._partitions))
        self._folder = Path(folder).resolve() if folder is not None else None
        self._open_folder(ordered)

    # What goes in and out

    def add(self, step: Moment, data: DataFrame | RDD[Any]) -> None:
        """Adds a dataset as the step that begins then, computes it and keeps it.

        Raises InputError where that step is there already, or keys or columns do not fit.
        """
        start = self._grid.start(step)
        with self._lock:
            if start in self._coming or start in self._starts():
                raise InputError(
                    f"{self._whose} has the step of {describe_time(start)} already; extend adds to "
                    "it, and drop_before lets go of it and those before it"
                )
            self._coming.append(start)
        try:
            piece = self._made(start, data)
        finally:
            with self._lock:
                self._coming.remove(start)
        self._publish([piece])

    def extend(self, step: Moment, data: DataFrame | RDD[Any]) -> None:
        """Adds a dataset to a step, which may be there already."""
        self._publish([self._made(self._grid.start(step), data)])

    def feed(self, time: str, query: str = "") -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch`: rows go to the step that their column `time` falls into.

        A batch that comes again, with a number that was taken, is not added again. Where several
        queries feed a collection, each has a name.
        """

        def take(batch: DataFrame, number: int) -> None:
            if time not in batch.columns:
                raise InputError(f"{self._whose}: a batch has no column '{time}': {batch.columns}")
            if (query, number) in self._batches:
                return
            at = unix_micros(col(time).cast("timestamp"))
            begins = at - pmod(at, lit(self._grid.length))
            batch = batch.persist()
            try:
                starts = [row[0] for row in batch.select(begins).distinct().collect()]
                if None in starts:
                    raise InputError(f"{self._whose}: rows of a batch have no '{time}'; drop them")
                parts = [self._made(each, batch.where(begins == each)) for each in sorted(starts)]
                self._publish(parts)  # all or none: a batch that fails comes again as a whole
                self._batches.add((query, number))
            finally:
                batch.unpersist()

        return take

    def drop_before(self, moment: Moment) -> list[datetime]:
        """Lets go of all steps that begin before a moment; returns those."""
        limit = self._grid.start(moment)
        with self._lock:
            gone = [piece for piece in self._pieces.values() if piece.step < limit]
            for piece in gone:
                del self._pieces[piece.name]
            steps = sorted({piece.step for piece in gone})
            for step in steps:
                self._by_step.forget(step)
            self._lineage = self._lineage.released(piece.name for piece in gone)
            # Questions that are under way may read what was dropped just now, but nothing earlier.
            over = [name for name in self._left if name not in self._lineage.datasets]
            erasing = [self._left.pop(name) for name in over]
            self._left |= {piece.name: piece.path for piece in gone if piece.path}
            self._places.forget()
        for piece in gone:
            piece.drop()
        self._save()
        for path in erasing:
            internals.erase(self._context, path)
        return moments(steps)

    def steps(self) -> list[datetime]:
        """When the steps begin that are there, in order."""
        with self._lock:
            return moments(self._starts())

    # What is asked for

    def between(self, lower: Moment | None = None, upper: Moment | None = None) -> Range:
        """The steps that begin in `[lower, upper)`; None is no bound."""
        self.starts(lower, upper)  # is there something?
        return Range(self, lower, upper, Selection())

    def keys(self, *keys: Any) -> Range:
        """Some keys of all steps."""
        return self.between().keys(*keys)

    def key_range(self, lower: Any, upper: Any) -> Range:
        """The keys in `[lower, upper)` of all steps."""
        return self.between().key_range(lower, upper)

    def key_ranges(self, ranges: Iterable[tuple[Any, Any]]) -> Range:
        """The keys in one of some ranges `[lower, upper)` of all steps."""
        return self.between().key_ranges(ranges)

    def cogroup(self) -> RDD[tuple[Any, tuple[list[Any], ...]]]:
        """Every key with its rows of each step."""
        return self.between().cogroup()

    def frame(self) -> DataFrame:
        """All rows of all steps."""
        return self.between().frame()

    @property
    def groups(self) -> Groups:
        """The groups of partitions that tasks work on now."""
        with self._lock:
            return self._places.groups

    @property
    def homes(self) -> dict[Group, tuple[Executor, ...]]:
        """The executors that groups live in now."""
        with self._lock:
            return dict(self._places.homes)

    @property
    def lineage(self) -> Lineage:
        """What was computed from what, with what that cost."""
        with self._lock:
            return self._lineage

    def selected(self, selection: Selection) -> Selection:
        """A selection of keys of this collection's type; InputError where they are of another."""
        return selection.checked(self._type, self._whose) if self._type is not None else selection

    def starts(self, lower: Moment | None, upper: Moment | None) -> tuple[int, ...]:
        """The steps that begin in `[lower, upper)`; InputError where that reaches out."""
        with self._lock:
            return self._grid.between(lower, upper, self._starts())

    def reading(
        self, lower: Moment | None, upper: Moment | None, selection: Selection
    ) -> tuple[tuple[int, ...], list[Task]]:
        """The steps of a range as they are now, and what is to be read where for them."""
        with self._lock:
            steps = self.starts(lower, upper)
            return steps, self.tasks(steps, selection)

    def tasks(self, steps: Sequence[int], selection: Selection) -> list[Task]:
        """What is to be read where for a question, a task for each group that it touches."""
        with self._lock:
            self._places.look(list(self._pieces.values()))
            pieces = [piece for piece in self._pieces.values() if piece.step in steps]
            if self._partitioner is None or self._type is None:
                return []
            self._by_step.note(steps, self._clock())
            return self._places.reading(pieces, selection.partitions(self._partitioner, self._type))

    def packs(self, tasks: Iterable[Task]) -> Packs:
        """The packs that tasks read, a partition a task, each in its home."""
        with self._lock:
            return self._places.packs(tasks)

    # How it is done

    def _starts(self) -> list[int]:
        return sorted({piece.step for piece in self._pieces.values()})

    def _made(self, start: int, data: DataFrame | RDD[Any]) -> _Made:
        """A dataset, computed and kept, that nobody knows of yet."""
        began = time.perf_counter()
        with told():
            packing = self._packing(start, data)
            packs = packing.frame(data) if isinstance(data, DataFrame) else packing.pairs(data)
            internals.persist(self._context, packs, MEMORY)
            with self._lock:
                self._places.look(list(self._pieces.values()))
                known = {piece.packs.id(): piece.name for piece in self._pieces.values()}
                at = self._places.first_homes
            parents = internals.ancestors(self._context, packs, known) if known else set()
            piece = Piece("", start, packs, [Size(0, 0)] * packing.partitioner.count, at)
            try:
                piece.sizes = self._computed(piece)
            except BaseException:
                piece.drop()
                raise
        names = tuple(known[number] for number in sorted(parents))
        return _Made(piece, names, time.perf_counter() - began)

    def _publish(self, made: Iterable[_Made]) -> None:
        """Adds datasets to what is there, all at once, and sees what follows from that."""
        with self._lock:
            for each in made:
                self._number += 1
                piece = each.piece
                piece.name = f"{describe_time(piece.step)} #{self._number}"
                self._pieces[piece.name] = piece
                dataset = Dataset(piece.name, each.parents, piece.bytes, each.seconds)
                self._lineage = self._lineage.plus(dataset)
        self.tend()

    def _computed(self, piece: Piece) -> list[Size]:
        """Computes all of a piece, each partition in its home, and says what they take."""
        with self._lock:
            reading = self._places.packs(self._places.computing(piece))
        sizes = list(piece.sizes)
        for partition, size in internals.as_rdd(self._context, reading).map(size_of).collect():
            sizes[partition] = size
        return sizes

    def tend(self) -> None:
        """Splits and merges groups, gives and takes homes, writes and makes room, as need be.

        Adding does so, too.
        """
        with self._tending, told():  # one at a time
            with self._lock:
                self._places.balance(self._pieces.values())
                due: tuple[str, ...] = ()
                if self._options.recovery is not None:
                    due = cut(self._lineage, self._options.recovery, self._options.relaxation)
                writing = [self._pieces[name] for name in due if name in self._pieces]
            for piece in writing:
                self._write(piece)
            self._make_room()

    def _make_room(self) -> None:
        """Steps to disk and back, so that what is in memory is within the limit."""
        limit = self._options.memory
        if limit is None:
            return
        with self._lock:
            now = self._clock()
            pieces = list(self._pieces.values())
            kept = to_keep(
                (
                    Kept(
                        step,
                        sum(max(p.memory, p.bytes) for p in pieces if p.step == step),
                        self._by_step.of(step, now),
                        all(p.in_memory for p in pieces if p.step == step),
                    )
                    for step in {piece.step for piece in pieces}
                ),
                limit,
            )
            leaving = [p for p in pieces if p.in_memory and p.step not in kept]
            coming = [p for p in pieces if not p.in_memory and p.step in kept]
        for piece in leaving:
            if piece.to_disk(self._context) is not None:
                self._computed(piece)
            with self._lock:
                piece.freed()
                self._places.forget()
        with self._lock:
            for piece in coming:
                piece.to_memory(self._context)

    def _write(self, piece: Piece) -> None:
        folder = None if self._folder is None else str(self._folder / "packs" / self._run)
        piece.path = internals.write(self._context, piece.packs, folder)
        with self._lock:
            self.written_bytes += piece.bytes
            if piece.name in self._lineage.datasets:
                self._lineage = self._lineage.written([piece.name])
        self._save()

    # What is given

    def _packing(self, start: int, data: DataFrame | RDD[Any]) -> Packing:
        """How these data become packs, as what was added first has settled it."""
        with self._lock:
            if isinstance(data, DataFrame):
                type_ = self._key_type_of(data)
            elif isinstance(data, RDD):
                type_ = self._key_type_of_pairs(data)
            else:
                raise InputError(
                    f"{self._whose}: expected a DataFrame or an RDD, not {type(data).__name__}"
                )
            if self._partitioner is None:
                self._use(self._fitted(data, type_))
            elif self._type is None:
                self._partitioner = self._partitioner.typed(type_, self._whose)
            self._type = type_
            assert self._partitioner is not None
            return Packing(start, self.key, type_, self._partitioner, self._whose)

    def _key_type_of(self, frame: DataFrame) -> pa.DataType:
        if self.is_pairs:
            raise InputError(
                f"{self._whose} is of pairs; name the key's column of frames, as key='user'"
            )
        if self.key not in frame.columns:
            raise InputError(
                f"{self._whose}: the frame has no column '{self.key}', which is the key; it has "
                f"{', '.join(frame.columns)}"
            )
        if STEP in frame.columns:
            raise InputError(
                f"{self._whose}: '{STEP}' is the column that says which step a row is of; give the "
                "frame's own another name"
            )
        schema = StructType.fromJson(_without_nulls(frame.schema.jsonValue()))
        if self.schema is not None and schema != self.schema:
            raise InputError(
                f"{self._whose}: its frames have {self.schema.simpleString()}, and this one has "
                f"{schema.simpleString()}; select and cast to these"
            )
        given = to_arrow_schema(schema, timezone="UTC").field(self.key).type
        type_ = fitting_type(given, self._type, self._whose)
        self.schema = schema
        return type_

    def _key_type_of_pairs(self, pairs: RDD[Any]) -> pa.DataType:
        if not self.is_pairs:
            raise InputError(
                f"{self._whose} is of frames with the key '{self.key}'; make a DataFrame of the RDD"
            )
        if self._type is not None:  # tasks see whether all keys are of it
            return self._type
        first = pairs.take(1)
        if not first:
            raise InputError(
                f"{self._whose}: the first RDD is empty, so the type of keys is not known; begin "
                "with one that has some"
            )
        return as_keys([key_of(first[0], self._whose)], None, self._whose).type

    def _fitted(self, data: DataFrame | RDD[Any], type_: pa.DataType) -> Partitioner:
        """Ranges with about as many keys each, of some of these data."""
        if isinstance(data, DataFrame):
            some = data.select(self.key).dropna().orderBy(rand(_SEED)).limit(_SAMPLE).toArrow()
            sample = some.column(0).combine_chunks().cast(type_)
        else:
            sample = pa.array(data.keys().takeSample(False, _SAMPLE, _SEED), type_)
        return ByRange.fitted(sample, self._partitions)

    def _use(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._places.begin(partitioner.count)

    def _open_folder(self, ordered: bool) -> None:
        if self._folder is None:
            if self._options.recovery is not None and not internals.has_folder(self._context):
                raise InputError(
                    f"{self._whose}: recovery needs a folder to write to, which every executor can "
                    "read; give one as folder="
                )
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        manifest = Manifest.read(self._folder, self.name)
        if manifest is None:
            return
        manifest.require(self._whose, self.key, self._grid.length, self._partitioner, ordered)
        self._type = manifest.type
        self.schema = StructType.fromJson(manifest.schema) if manifest.schema else None
        self._use(manifest.partitioner)
        for written in manifest.pieces:
            packs = internals.restored(self._context, written.path)
            internals.persist(self._context, packs, MEMORY)
            at = self._places.first_homes
            piece = Piece(written.name, written.step, packs, written.sizes, at, written.path)
            self._number += 1
            self._pieces[piece.name] = piece
            dataset = Dataset(piece.name, (), piece.bytes, written=True)
            self._lineage = self._lineage.plus(dataset)

    def _save(self) -> None:
        if self._folder is None:
            return
        with self._lock:
            if self._partitioner is None or self._type is None:
                return
            pieces = [
                Written(piece.name, piece.step, piece.path, tuple(piece.sizes))
                for piece in self._pieces.values()
                if piece.path
            ]
            schema = None if self.schema is None else self.schema.jsonValue()
            manifest = Manifest(
                self.key, self._type, self._grid.length, self._partitioner, schema, tuple(pieces)
            )
        with self._saving:
            manifest.write(self._folder, self.name)


def _without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema in which every column may be null: whether one may is no difference."""
    fields = [{**each, "nullable": True, "metadata": {}} for each in schema["fields"]]
    return {**schema, "fields": fields}
