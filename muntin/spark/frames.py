"""The batches of a streaming DataFrame as an intake.

Rows of a frame have no order, so a source's clock stands still within a batch: a record's mark is
where its source had come to at the end of the batch before. There is none before a source has had
as many records as have to confirm each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from muntin.fidelity.scoreboard import Source
from muntin.kernel.clocks import BatchClock, Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.logs.bad import ahead_text
from muntin.logs.chunks import Chunk, WorkOrder
from muntin.logs.formats import Wanted
from muntin.logs.records import parse
from muntin.model.records import TIME
from muntin.model.streams import Stream
from muntin.run.contracts import Batch, Delivery, Request
from muntin.spark.holdings import Element, Held, delivered


@dataclass(frozen=True)
class FrameWork:
    """One batch of a frame; `since` is how far its sources had come."""

    frame: DataFrame
    stream: Stream
    column: str | None  # that names the source of a record
    since: Mapping[str, Mapping[str, int]]
    slack_us: int | None
    latest: int | None

    def compute(self, recipes: Sequence[Recipe], groups: int) -> Held:
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        version = max((recipe.version for recipe in recipes), default=0)
        rows = _Rows(self.stream, self.column, self.since, self.slack_us, self.latest, recipes)

        def compute_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                computed = rows.deliveries(pa.Table.from_batches([batch]))
                yield _packed(delivered(computed, shapes, groups, version))

        computed = self.frame.mapInArrow(compute_batches, "g int, kept binary")
        return computed.rdd.map(lambda row: (row.g, pickle.loads(row.kept)))


@dataclass(frozen=True)
class _Rows:
    """What a task needs to make deliveries of rows."""

    stream: Stream
    column: str | None
    since: Mapping[str, Mapping[str, int]]
    slack_us: int | None
    latest: int | None
    recipes: Sequence[Recipe]

    def deliveries(self, rows: pa.Table) -> Iterator[Delivery]:
        """The rows of each source; a batch has several deliveries of a source, in any order."""
        for source, mine in self._by_source(rows):
            clock = BatchClock(self.since.get(source, {}).get(TIME.column))
            clocks = Clocks(self.slack_us, {TIME.column: clock}, self.latest)
            yield self._delivery(source, mine, clocks)

    def _by_source(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self.column is None:
            yield self.stream.name, rows
            return
        names = rows.column(self.column).cast(pa.string())
        for name in pc.unique(names).to_pylist():
            same = pc.equal(names, name) if name is not None else pc.is_null(names)
            yield str(name), rows.filter(same)

    def _delivery(self, source: str, rows: pa.Table, clocks: Clocks) -> Delivery:
        name = f"DataFrame {self.stream.name}"
        order = WorkOrder(self.stream.name, source, name, 0, rows.num_rows)
        wanted = Wanted.of(recipe.shape for recipe in self.recipes)
        records = parse(Chunk(rows, 0, rows.nbytes, {}), self.stream, wanted, order)
        blocks, reading = compute(records, source, self.recipes, clocks)
        notes = (ahead_text(name, reading.ahead),) if reading.ahead else ()
        reading = replace(reading.placed(lambda _: name), notes=notes, loose=True)
        return Delivery(blocks, (reading,))


class Frames:
    """What Spark hands over, batch after batch, as the loop asks for it."""

    def __init__(self, stream: Stream, column: str | None, number: int) -> None:
        """`number` is that of the last batch that is final."""
        self._stream = stream
        self._column = column
        self._last = number
        self._offered: tuple[DataFrame, int] | None = None
        self._batches = 0
        self._settled = False

    def offer(self, frame: DataFrame, number: int) -> bool:
        """Takes the next batch; False if it is final already, and Spark repeats it."""
        if number <= self._last:
            return False
        self._offered = frame, number
        return True

    @property
    def batches(self) -> int:
        """How many were handed out since the start."""
        return self._batches

    def next(self, request: Request) -> Batch:
        if self._offered is None:
            return Batch()
        (frame, number), self._offered = self._offered, None
        self._last = number
        self._batches += 1
        known = request.sources.items()  # a source of few records may turn out to be before them
        since = {name: dict(source.reached) for name, source in known if not source.doubt.young}
        work = FrameWork(
            frame,
            self._stream,
            self._column,
            since,
            request.slack_us,
            request.latest,
        )
        return Batch(work, number=number)

    def settle(self) -> None:
        """Takes note that all was handed over that was written during the first batch."""
        self._settled = True

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        """The first batch takes long: what was written meanwhile is not late for that."""
        return frozenset(sources if self._batches == 1 and not self._settled else ())


def _packed(elements: Iterable[Element]) -> pa.RecordBatch:
    pairs = [(group, pickle.dumps(item)) for group, item in elements]
    return pa.RecordBatch.from_pydict(
        {"g": pa.array([g for g, _ in pairs], pa.int32()), "kept": [data for _, data in pairs]}
    )
