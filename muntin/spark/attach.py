"""Jobs on a streaming DataFrame that the user already has.

The frame's batches go through the same kernel and pipeline as log files. A frame has no log
order, so its unit of lateness is the batch: a record's mark is the stream time at the end of
the batch before. Offsets and restarts are Spark's; a batch that Spark repeats after a restart
changes nothing, because its number is already in the journal. Between batches, and when the frame
has none, a thread looks at the clock and lets windows leave that are due.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, Thread

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from muntin.errors import InputError, StateError
from muntin.kernel.compute import Clock as StreamClock
from muntin.kernel.compute import Clocks, Positions, Recipe, compute
from muntin.kernel.engine import column_types
from muntin.language.check import check
from muntin.logs.chunks import Chunk, WorkOrder
from muntin.logs.formats import Wanted
from muntin.logs.records import Report, changed_panes, parse
from muntin.model import Column, Format, Shape, Stream
from muntin.run.pipeline import Pipeline
from muntin.spark.collection import Holding, SparkCollection, scatter
from muntin.spark.outlet import POLL_SECONDS, Clock, Outlet
from muntin.store.journal import Journal

_log = logging.getLogger("muntin")
_QUIET_LOOKS = 3


@dataclass
class _Post:
    """Who works on the state of a stream in this process: one handler, one thread at a time."""

    lock: Lock = field(default_factory=Lock)
    holder: _Handler | None = None


_posts: dict[Path, _Post] = {}


@dataclass
class BatchClock(StreamClock):
    """Stands still within a batch, since rows of a frame have no order."""

    def advance(self, positions: Positions) -> Positions:
        before = self.reached
        super().advance(positions)
        return positions if before is None else np.full(len(positions), before)


def attach(
    frame: DataFrame,
    text: str,
    state: Path,
    stream: str,
    timestamp: str,
    slack_us: int = 0,
    source: str | None = None,
    idle_seconds: float = 10.0,
    clock: Clock = time.time,
) -> StreamingQuery:
    """Starts the jobs of `text` on a streaming frame that they call `stream`.

    `source` names the column that says which server a record is from, if there is one.
    """
    if not frame.isStreaming:
        raise InputError("the DataFrame is not streaming; expected spark.readStream…load()")
    if source is not None and source not in frame.columns:
        raise InputError(f"the DataFrame has no column '{source}'; it has {frame.columns}")
    described = _described(frame, stream, timestamp, slack_us)
    program = check(text, lambda _: (), {stream: described})
    jobs = program.jobs_of(stream)
    if not jobs:
        raise InputError(f"the text defines no job on stream '{stream}'")
    if any(not axis.is_time for job in jobs for axis in job.shape.axes):
        message = "rows of a DataFrame have no order to count them by, or to update states in"
        raise InputError(f"{message}; use windows of time")
    post = _posts.setdefault(state.resolve() / stream, _Post())
    with post.lock:  # what an earlier query on the same state has begun comes first
        collection = SparkCollection(frame.sparkSession.sparkContext, described)
        journal = Journal(state, described, jobs, collection)
        _tell(journal.notes)
        pipeline = Pipeline(described, jobs, collection, True, idle_seconds, journal.progress)
        outlet = Outlet(pipeline, journal, follow=True, clock=clock)
        post.holder = handler = _Handler(pipeline, collection, journal, outlet, source, clock, post)
    writer = frame.writeStream.foreachBatch(handler.take)
    query = writer.option("checkpointLocation", str(state / "spark" / stream)).start()
    Thread(target=handler.watch, args=(query,), name=f"muntin {stream}", daemon=True).start()
    return query


def _described(frame: DataFrame, name: str, timestamp: str, slack_us: int) -> Stream:
    """The frame as a stream: Arrow columns, no files."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    columns = tuple(Column(n, t) for n, t in column_types(schema.empty_table()).items())
    bare = Stream(name, (), Format("parquet"), columns, timestamp, slack_us)
    declared = f"CREATE STREAM {name} FROM 'frame' FORMAT parquet TIMESTAMP {timestamp}"
    checked = check(declared, lambda _: columns).streams[name]
    return replace(bare, timestamp=checked.timestamp)


class _Handler:
    """What Spark calls with each batch of the frame, and what goes on between batches."""

    def __init__(
        self,
        pipeline: Pipeline,
        collection: SparkCollection,
        journal: Journal,
        outlet: Outlet,
        source: str | None,
        clock: Clock,
        post: _Post,
    ) -> None:
        self._pipeline = pipeline
        self._collection = collection
        self._journal = journal
        self._outlet = outlet
        self._source = source
        self._clock = clock
        self._post = post
        self._batches = 0
        self._quiet_looks = 0  # after the first batch, at a Spark that has nothing to do

    def take(self, frame: DataFrame, batch: int) -> None:
        progress, outlet = self._pipeline.progress, self._outlet
        with self._working():
            if batch <= progress.frame_batch:
                return
            started = self._clock()
            _tell(outlet.leave_first(started, outlet.wake_at()).notes)
            reports = self._collection.keep_frame(self._computed(frame), self._shapes())
            _tell(self._pipeline.take(reports, started))
            outlet.took(0, self._clock() - started)
            progress.frame_batch = batch
            # The first batch takes long: what was written meanwhile is not late for that.
            self._batches += 1
            behind = frozenset(progress.sources if self._batches == 1 else ())
            _tell(outlet.leave(started, read=True, behind=behind).notes)
            _tell(self._journal.tidy())

    def watch(self, query: StreamingQuery) -> None:
        """Lets windows leave in time when Spark has no batch, as long as the query goes on."""
        while _is_active(query):
            try:
                with self._working():
                    if _is_active(query) and self._may_leave(query):
                        _tell(self._outlet.leave(self._clock()).notes)
            except Exception:
                if _is_active(query):
                    stream = self._pipeline.stream.name
                    _log.exception("windows of stream '%s' cannot leave; its query stops", stream)
                    query.stop()
            time.sleep(POLL_SECONDS)

    def _may_leave(self, query: StreamingQuery) -> bool:
        """Whether all is read that was written during the first batch, as far as one can see."""
        if self._batches == 1 and not query.status["isTriggerActive"]:
            self._quiet_looks += 1
        return self._batches > 1 or self._quiet_looks >= _QUIET_LOOKS

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Holds the pipeline, which nobody uses again once something has failed halfway."""
        with self._post.lock:
            if self._post.holder is not self:
                stream = self._pipeline.stream.name
                raise StateError(f"stream '{stream}': this query has failed, or another took over")
            try:
                yield
            except BaseException:
                self._post.holder = None
                raise

    def _shapes(self) -> dict[str, Shape]:
        return {job.shape.id: job.shape for job in self._pipeline.jobs.values()}

    def _computed(self, frame: DataFrame) -> DataFrame:
        stream, recipes = self._pipeline.stream, self._pipeline.recipes()
        shapes, groups = self._shapes(), self._collection.groups
        slack_us = self._pipeline.slack_us
        column = self._source
        since = {n: dict(s.reached) for n, s in self._pipeline.progress.sources.items()}

        def compute_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for source, rows in _by_source(pa.Table.from_batches([batch]), column, stream):
                    reached = since.get(source, {})
                    clocks = Clocks(slack_us, {a: BatchClock(at) for a, at in reached.items()})
                    blocks, report = _compute_rows(rows, source, stream, recipes, clocks)
                    yield _packed(scatter(shapes, blocks, report, groups))

        return frame.mapInArrow(compute_batches, "g int, kept binary")


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except (Py4JError, OSError):  # Spark has gone, and the query with it
        return False


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        _log.warning(note)


def _by_source(
    rows: pa.Table, column: str | None, stream: Stream
) -> Iterator[tuple[str, pa.Table]]:
    if column is None:
        yield stream.name, rows
        return
    names = rows.column(column).cast(pa.string())
    for name in pc.unique(names).to_pylist():
        same = pc.equal(names, name) if name is not None else pc.is_null(names)
        yield str(name), rows.filter(same)


def _compute_rows(
    rows: pa.Table, source: str, stream: Stream, recipes: Sequence[Recipe], clocks: Clocks
) -> tuple[dict[str, pa.Table], Report]:
    wanted = Wanted.of(recipe.shape for recipe in recipes)
    order = WorkOrder(stream.name, source, f"DataFrame {stream.name}", 0, rows.num_rows)
    records = parse(Chunk(rows, 0, rows.nbytes, {}), stream, wanted, order)
    done = compute(records, source, recipes, clocks)
    reached = clocks.reached()
    return done.blocks, Report(
        source,
        done.tallies,
        done.records,
        done.bad,
        reached,
        done.costs,
        done.late,
        faults=done.faults,
        first=done.first,
        changed=changed_panes({r.shape.id: r.shape for r in recipes}, done.blocks),
    )


def _packed(kept: Iterable[tuple[int, Holding]]) -> pa.RecordBatch:
    pairs = [(group, pickle.dumps(item)) for group, item in kept]
    return pa.RecordBatch.from_pydict(
        {"g": pa.array([g for g, _ in pairs], pa.int32()), "kept": [data for _, data in pairs]}
    )
